# SPDX-License-Identifier: BSD-3-Clause
"""Processes chosen by what they are: by name, user, parent and so on."""

import contextlib
import os
from functools import partial
from stat import S_ISFIFO

from .. import ProcessInfo, has_exited
from .._base.errors import not_by_handler
from .._finding import list_all
from .shared import UsageError, digits, label, process_id, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Iterable, Iterator

# More of a wait's usage and help.
CHOICE = (
    """
       {prog} [OPTION...] --name PATTERN
       {prog} run [OPTION...] COMMAND [ARGUMENT...]
       {prog} vendor [OPTION...] DEST""",
    """
Instead of giving PIDs, choose the processes that match all of these options:
      --name PATTERN      search the name, or that of a script, not cut to 15
                          characters, for this Python regular expression
  -f, --full              search PATTERN in the command line, not in the name
  -x, --exact             PATTERN must match the whole name or command line
  -i, --ignore-case       ignore upper and lower case
  -u, --user USER,...     the process runs as one of these (names or numbers)
  -P, --parent PID,...    its parent is one of these
  -g, --group PGID,...    it is in one of these process groups; 0 means ours
  -s, --session SID,...   it is in one of these sessions; 0 means ours
  -n, --newest            of the matching processes, the one that started last
  -o, --oldest            of the matching processes, the one that started first
  -l, --list              show the processes, and do not wait
With -F, only the process of that PID can match; without -F, zombies, this
process and its ancestors never match, nor do other waits for the same, nor what
reads our output. If no process matches, the exit status is 1 (127 with
--exit-code), or 0 with -e.

run works like GNU timeout, and vendor copies this package into a project: see
run -h, vendor -h.
""",
)
# An interpreter, options without a program's text or a module's name, and a file.
_SCRIPT = r"""(?:[^\0]*[/\\])?
    (?:(?:ba|da|z|k|mk|fi|a|c|tc)?sh\0(?:-\w*o\0\w+\0|-[^\0]*[^co\0]\0)*
    |(?:python|pypy|perl|ruby|node|php|lua|tclsh|expect)[\d.]*w?(?:\.exe)?\0
     (?:-[WX]\0[^\0]+\0|-[^\0]*[^cemWX\0]\0)*)
    ([^-\0][^\0]*)"""
_SHOWN = "pid name ppid username cmdline create_time status".split()
_CHOOSING = "name", "user", "parent", "group", "session", "newest", "oldest"


def check_options(options: "dict[str, str]", has_pids: bool) -> bool:
    """Whether the options choose processes; UsageError if they can't be combined."""
    if "newest" in options and "oldest" in options:
        raise UsageError("--newest can't be combined with --oldest")
    for one in ("full", "exact", "ignore-case"):
        if one in options and "name" not in options:
            raise UsageError("--%s needs --name" % one)
    chosen = [one for one in _CHOOSING if one in options]
    if chosen and has_pids:
        raise UsageError("give PIDs or --%s, not both" % chosen[0])
    return bool(chosen)


def choose(options: "dict[str, str]", pids: "list[int]", parse: "Any") -> "list[ProcessInfo]":
    """The pids' processes that match all options; without pids, other running processes.

    ``parse(words)`` returns the options and operands of a wait's command line.
    """
    criteria = list(_criteria(options))
    # The name of a user may have to be asked for in the network.
    attributes = {one for one in _SHOWN if one != "username" or "json" in options}
    attributes.update(one for one, _ in criteria)
    listed = {info.pid: info for info in list_all(attributes, None)}
    among = set(pids) or set(listed) - _ancestors(listed)
    found = [info for info in listed.values() if info.pid in among and (pids or _runs(info))]
    found = [info for info in found if all(fits(info.info) for _, fits in criteria)]
    if not pids:  # leave out the processes that wait for this one
        waits, me = {os.getpid()}, listed.get(os.getpid())
        if "name" in options and me is not None and all(fits(me.info) for _, fits in criteria):
            waits.update(info.pid for info in found if _is_alike(info, options, parse))
        waits |= _readers(waits, listed)
        found = [info for info in found if info.pid not in waits]
    if "newest" not in options and "oldest" not in options:
        return found
    # The system may not show when another user's process was started.
    found = [info for info in found if info.info["create_time"] is not None]
    found.sort(key=lambda info: (info.info["create_time"], info.pid))
    return found[-1:] if "newest" in options else found[:1]


def show_list(found: "list[ProcessInfo]", as_json: bool) -> None:
    import json

    for info in found:  # by what is known: it may be gone
        facts = {name: info.info.get(name) for name in _SHOWN}
        say((json.dumps(facts) if as_json else label(info.pid, facts["name"])) + "\n")


def _criteria(options: "dict[str, str]") -> "Iterator[tuple[str, Callable[[Any], bool]]]":
    """For each option: the attribute to read, and a test of the process's attributes."""
    if "name" in options:
        match = _matcher(options)
        if "full" in options:
            # A kernel thread has no command line.
            yield "cmdline", lambda its: match(_line(its["cmdline"]) or its["name"])
        else:
            # pgrep searches the name as the kernel keeps it, cut.
            yield "comm", lambda its: any(map(match, (its["name"], its["comm"], _script(its))))
    if "user" in options:
        words = options["user"].split(",")
        if os.name == "nt":
            # A user may be named with a domain or without. An unknown one has no name.
            ends = tuple("\\" + word.lower() for word in words if word)
            yield "username", lambda its: ("\\" + (its["username"] or "")).lower().endswith(ends)
        else:
            uids = set(map(_uid, words))
            yield "uids", lambda its: getattr(its["uids"], "effective", None) in uids
    if "parent" in options:
        parents = _numbers_in("parent", options["parent"])
        yield "ppid", lambda its: its["ppid"] in parents
    for option, name in ("group", "getpgid"), ("session", "getsid"):
        if option in options:
            if os.name == "nt":
                raise UsageError("--%s is not for Windows" % option)
            numbers = {one or getattr(os, name)(0) for one in _numbers_in(option, options[option])}
            yield "pid", partial(_shares, getattr(os, name), numbers)


def _matcher(options: "dict[str, str]") -> "Callable[[str | None], bool]":
    import re

    text = options["name"]
    if not text:
        raise UsageError("--name '' would match every process")
    if re.search(r"\[:\w+:\]", text):
        raise UsageError("--name %r: Python has no classes such as [:alpha:]" % text)
    # As in POSIX expressions, a dot also matches a newline, which a name can contain.
    flags = re.DOTALL | (re.IGNORECASE if "ignore-case" in options else 0)
    try:
        pattern = re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        why = "--name %r is not a Python regular expression: %s" % (text, error)
        raise UsageError(why) from None
    match = pattern.fullmatch if "exact" in options else pattern.search
    return lambda name: name is not None and match(name) is not None


def _script(its: "dict[str, Any]") -> "str | None":
    """The name of the script that an interpreter runs, as pidof -x has it."""
    import re

    found = re.match(_SCRIPT, "\0".join(its["cmdline"] or ()), re.VERBOSE)
    return found and os.path.basename(found.group(1))


def _line(words: "list[str] | None") -> str:
    # As pgrep: without empty arguments at the end, which setting a title may have left there.
    return "\0".join(words or ()).rstrip("\0").replace("\0", " ")


def _shares(ask: "Callable[[int], int]", numbers: "set[int]", facts: "dict[str, Any]") -> bool:
    try:
        return ask(facts["pid"]) in numbers
    except not_by_handler(OSError):  # it is gone, or OpenBSD refuses to answer
        return False


def _numbers_in(option: str, text: str) -> "set[int]":
    words = text.split(",")
    return {0 if digits(word) == 0 else process_id(word, "--" + option) for word in words}


def _uid(word: str) -> int:
    import pwd

    try:
        return pwd.getpwnam(word).pw_uid
    except KeyError:
        number = digits(word)
        if number is None:
            raise UsageError("--user: no such user: %r" % word) from None
        return number


def _runs(info: ProcessInfo) -> bool:
    # A process whose main thread has ended looks like a zombie while its other threads run.
    return info.info["status"] not in ("zombie", "dead") or not has_exited(info)


def _is_alike(info: ProcessInfo, options: "dict[str, str]", parse: "Any") -> bool:
    """Whether it waits for the same, or has such a command for a shell (as tmux's client)."""
    import re

    words: "list[str]" = info.info["cmdline"] or []
    commands = re.split(r"[\0;|&\n]|\s\d*[<>]", re.sub("['\"]", "", "\0".join(words)))
    for line in [words, *map(str.split, commands)]:
        for start in [at for at, word in enumerate(line) if at and word[:1] == "-"]:
            with contextlib.suppress(UsageError):
                its, operands = parse(line[start:])
                if not operands and its.get("name") == options["name"]:
                    return bool(its.get("full") == options.get("full"))
    return False


def _readers(waits: "set[int]", listed: "Iterable[int]") -> "set[int]":
    """Those who read what the waits write to pipes, and so on, as far as Linux shows them."""
    found, new = set(), waits
    while new:
        pipes = {_pipe(pid, fd) for pid in new for fd in (1, 2)} - {None}
        new = {pid for pid in listed if pipes and pid not in found and _pipe(pid, 0) in pipes}
        found |= new
    return found


def _pipe(pid: int, fd: int) -> "tuple[int, int] | None":
    try:
        its = os.stat("/proc/%d/fd/%d" % (pid, fd))
    except not_by_handler(OSError):
        return None
    return (its.st_dev, its.st_ino) if S_ISFIFO(its.st_mode) else None


def _ancestors(listed: "dict[int, ProcessInfo]") -> "set[int]":
    """This process, its parent and so on, as far as the system shows them."""
    found: "set[int]" = set()
    info, youngest = listed.get(os.getpid()), float("inf")
    while info is not None and info.pid not in found:
        started = info.info["create_time"] or 0.0
        # On Windows a child keeps the ppid of a parent that has exited, and that pid may be reused.
        if started > youngest:
            break
        found.add(info.pid)
        info, youngest = listed.get(info.info["ppid"]), started or youngest
    return found
