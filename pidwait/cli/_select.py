# SPDX-License-Identifier: BSD-3-Clause
"""Processes chosen by what they are: by name, user, parent and so on."""

import os
import re

from .._base.errors import raise_of_handler
from .._finding import ProcessInfo, iterate
from .._process import Process
from .._waiting.owners import check_pid
from ._common import CommandError, Usage, digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    Criterion = Callable[[dict[str, Any]], bool]

_MOST_LOOKS = 100  # at ancestors that exit one after the other
_EXITED = "zombie", "dead"


class Choice:
    """What the options ask for; Usage if they are wrong."""

    def __init__(self, options: "Mapping[str, str]") -> None:
        self._attributes = {"name", "status"}
        self._criteria: "list[Criterion]" = []
        self._end = max if "newest" in options else min if "oldest" in options else None
        if "name" in options:
            self._add_name(options)
        if "user" in options:
            self._add_user(options["user"])
        if "parent" in options:
            self._add("ppid", _numbers("parent", options["parent"]))
        for option, attribute, call in ("group", "pgid", "getpgrp"), ("session", "sid", "getsid"):
            if option in options:
                if os.name == "nt":
                    raise Usage("--%s is not for Windows" % option)
                ours = os.getpgrp() if call == "getpgrp" else os.getsid(0)
                numbers = _numbers(option, options[option])
                self._add(attribute, {number or ours for number in numbers})

    def _add(self, attribute: str, values: "set[int]") -> None:
        self._attributes.add(attribute)
        self._criteria.append(lambda facts: facts[attribute] in values)

    def _add_name(self, options: "Mapping[str, str]") -> None:
        text = options["name"]
        if not text:
            raise Usage("--name '' would match every process")
        # As with POSIX expressions, the dot takes a newline, too, which a name can have.
        flags = re.DOTALL | (re.IGNORECASE if "ignore-case" in options else 0)
        try:
            pattern = re.compile(text, flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise Usage("--name %r is not a regular expression: %s" % (text, error)) from None
        match = pattern.fullmatch if "exact" in options else pattern.search
        if "full" in options:
            self._attributes.add("cmdline")

            def has_line(facts: "dict[str, Any]") -> bool:
                # A kernel's thread has no command line.
                line = " ".join(facts["cmdline"] or ()) or facts["name"]
                return line is not None and match(line) is not None

            self._criteria.append(has_line)
        else:
            self._criteria.append(
                lambda facts: facts["name"] is not None and match(facts["name"]) is not None
            )

    def _add_user(self, text: str) -> None:
        words = text.split(",")
        if "" in words:
            raise Usage("--user %r has an empty name" % text)
        if os.name == "nt":
            users = {word.lower() for word in words}
            self._attributes.add("username")

            def is_of(facts: "dict[str, Any]") -> bool:
                user = (facts["username"] or "").lower()
                return user in users or user.rpartition("\\")[2] in users

            self._criteria.append(is_of)
            return
        uids = set(map(_uid, words))
        self._attributes.add("uids")
        self._criteria.append(
            lambda facts: facts["uids"] is not None and facts["uids"].effective in uids
        )

    def processes(self) -> "list[ProcessInfo]":
        """Those that have not exited, but for this process and its ancestors."""
        try:
            found = [
                info
                for info in iterate(sorted(self._attributes), None)
                if all(criterion(info.info) for criterion in self._criteria)
            ]
            # After the list, as the parent may have exited meanwhile, and we have another one.
            ours = _family() if found else {}
        except OSError as error:
            raise_of_handler(error)
            raise CommandError(error.strerror or str(error)) from None
        found = [info for info in found if not _is_among(info, ours) and not _has_exited(info)]
        if self._end is None:
            return found
        known = [info for info in found if info._started is not None]
        return [self._end(known, key=_age)] if known else []


def _age(info: ProcessInfo) -> "tuple[int | None, int]":
    return info._started, info.pid


def _numbers(option: str, text: str) -> "set[int]":
    found = set()
    for word in text.split(","):
        number = digits(word)
        if number is None:
            raise Usage("--%s: %r is not a number" % (option, word))
        try:
            found.add(number and check_pid(number, "--" + option))
        except ValueError as error:
            raise Usage(str(error)) from None
    return found


def _uid(word: str) -> int:
    import pwd

    try:
        return pwd.getpwnam(word).pw_uid
    except KeyError:
        number = digits(word)
        if number is None:
            raise Usage("--user: there is no user %r" % word) from None
        return number


def _has_exited(info: ProcessInfo) -> bool:
    # A process whose main thread has ended looks like a zombie while its other threads run.
    if info.info["status"] not in _EXITED:
        return False
    try:
        with Process(info.pid) as process:
            return process.has_exited()
    except ProcessLookupError as error:
        raise_of_handler(error)
        return True


def _is_among(info: ProcessInfo, family: "Mapping[int, ProcessInfo]") -> bool:
    known = family.get(info.pid)
    # Windows does not tell when a process of the system was started: then the pid has to do.
    return known is not None and (known == info or None in (known._started, info._started))


def _family() -> "dict[int, ProcessInfo]":
    """This process and its ancestors, by their pids."""
    found: "dict[int, ProcessInfo]" = {}
    for _ in range(_MOST_LOOKS):
        if _climb(found):
            break
    return found


def _climb(found: "dict[int, ProcessInfo]") -> bool:
    """Add them; False if one of them exited meanwhile, so that we have other ancestors now."""
    info = ProcessInfo(os.getpid())
    seen: "set[int]" = set()
    try:
        while info.pid not in seen:
            seen.add(info.pid)
            found[info.pid] = info
            pid = info.ppid()
            if pid <= 0:
                break
            try:
                parent = ProcessInfo(pid)
            except ProcessLookupError as error:
                raise_of_handler(error)
                # Of Windows' processes, and in a jail, it is the parent all the same.
                return info.ppid() == pid
            if _is_younger(parent, info):
                break
            info = parent
    except ProcessLookupError as error:
        raise_of_handler(error)
        return False
    except PermissionError as error:  # a hidden one is not listed either
        raise_of_handler(error)
        return True
    return True


def _is_younger(parent: ProcessInfo, child: ProcessInfo) -> bool:
    # On Windows a child keeps the pid of a parent that has exited, which may be another's now.
    if parent._started is None or child._started is None:
        return False
    return parent._started > child._started
