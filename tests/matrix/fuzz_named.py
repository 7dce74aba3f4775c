# SPDX-License-Identifier: BSD-3-Clause
"""The differences that are intended, each with its reason.

A reason explains as little as possible: its function is asked about one name at a time of those
under which something was found. It sees the case, and all that was found of the two starts.
"""

import ast
import re
from errno import EBADF, EMFILE, ENAMETOOLONG, ENOENT, EPERM

from .fuzz_cases import TABLES

GLIBC_OWN = 0x180000000
IGNORES_SIGCHLD = "signal.signal(signal.SIGCHLD,signal.SIG_IGN)"
NOT_ITERABLE = "'int' object is not iterable", "'NoneType' object is not iterable"
REFUSALS = "TypeError", "ValueError"


def events(found):
    return ast.literal_eval(found.get("events", "[]"))


def glibc_signals(case, name, theirs, ours):
    """glibc's posix_spawn has its children ignore glibc's own signals, 32 and 33"""
    return (
        name == "child.SigIgn"
        and name in theirs
        and name in ours
        and int(theirs[name], 16) | GLIBC_OWN == int(ours[name], 16)
    )


def no_event(case, name, theirs, ours):
    """spawn() is no Popen: it raises Popen's audit event only if it needs a Popen"""
    own = [event for event in events(ours) if event[0] != "os.posix_spawn"]
    return case["way"] == "spawn" and name == "events" and own in ([], events(theirs))


def event_again(case, name, theirs, ours):
    """posix_spawn was tried before the standard code, and each of them raises the audit event"""
    return (
        name == "events"
        and not ours["posix_spawn"]
        and events(ours) == events(theirs)[:1] + events(theirs)
    )


def event_of_posix_spawn(case, name, theirs, ours):
    """the standard code calls os.posix_spawn, which raises an audit event of its own"""
    own = events(theirs)
    return (
        name == "events"
        and [event for event in own if event[0] != "os.posix_spawn"] == events(ours)
        and len(own) == len(events(ours)) + 1
    )


def no_warning(case, name, theirs, ours):
    """after a failed start no Popen is left to warn of a child, even if SIGCHLD is ignored"""
    if name != "warnings":
        return False
    still = ast.literal_eval(theirs["warnings"])[-1:]
    return (
        IGNORES_SIGCHLD in case["world"]
        and theirs["error"] != "None"
        and still == [("ResourceWarning", "subprocess * is still running")]
        and ast.literal_eval(ours["warnings"]) + still == ast.literal_eval(theirs["warnings"])
    )


def os_environ(case, name, theirs, ours):
    """we pass os.environ, not C's environ, which other threads may change without the GIL"""
    if name != "child.environ" or name not in theirs or name not in ours:
        return False
    theirs, ours = (set(ast.literal_eval(each[name]).split(b"\0")) for each in (theirs, ours))
    hidden = {b"UNSEEN=1"} if "os.putenv('UNSEEN','1')" in case["world"] else set()
    hidden |= {b"FUZZ=x"} if "os.unsetenv('FUZZ')" in case["world"] else set()
    return theirs ^ ours <= hidden


def names_argument(case, name, theirs, ours):
    """spawn() says which argument is wrong, and before it starts anything"""
    if case["way"] != "spawn" or ours["error"] not in REFUSALS:
        return False
    argument = ours["error.text"].split()[0].rstrip(":")
    odd = TABLES["spawn"].get(argument, ((), ()))[1]
    return case["options"].get(argument) in odd and (
        theirs["error"] in REFUSALS + ("OverflowError", "AttributeError", "IndexError")
        or theirs.get("error.errno") in (str(EBADF), str(EMFILE))
        or is_taken(ours["error.text"])
    )


def is_taken(text):
    """Whether Popen takes it: float, bool or fileno() of -1 as a file; a group below 0 as none."""
    files = "(std(in|out|err)|pass_fds) (must be a|is not a) file descriptor"
    return re.match(files + "|process_group must be", text)


def of_two_errors(case, name, theirs, ours):
    """of two bad arguments spawn() finds the other one first"""
    return (
        case["way"] == "spawn"
        and (name.startswith("error") or name == "events")
        and theirs["error"] != "None" != ours["error"]
        and len(odd_options(case)) > 1
    )


def odd_options(case):
    table = TABLES[case["way"]]
    return [name for name, value in case["options"].items() if value in table[name][1]]


def only_items(case, name, theirs, ours):
    """spawn() reads env only by items(), and all of it before it looks for PATH"""
    return (
        case["way"] == "spawn"
        and case["options"].get("env", "").startswith("Items(")
        and (
            theirs.get("error.text") == "'Items' object has no attribute 'get'"
            or (name in ("error.text", "error.args") and theirs["error"] == ours["error"] != "None")
        )
    )


def unreadable_pass_fds(case, name, theirs, ours):
    """pass_fds that raises does so before the audit event, since an iterator is not read twice"""
    raises = case["options"].get("pass_fds", "").startswith("failing(")
    if name.startswith("error") and (ours.get("error.text") in NOT_ITERABLE or raises):
        both = "None" not in (theirs["error"], ours["error"])
        return both and (raises or len(odd_options(case)) > 1)
    return (
        name == "events"
        and case["options"].get("pass_fds") in TABLES["Popen"]["pass_fds"][1]
        and "None" not in (theirs["error"], ours["error"])
        and (
            raises
            or theirs["error.text"] == ours["error.text"]
            or ours["error.text"] in NOT_ITERABLE
        )
        and events(ours) == []
        and len(events(theirs)) == 1
    )


def above_the_limit(case, name, theirs, ours):
    """the standard code may leave file descriptors above the limit open"""
    if name != "child.fds" or not any(each.startswith("limit(") for each in case["world"]):
        return False
    theirs, ours = (ast.literal_eval(found.get(name, "{}")) for found in (theirs, ours))
    lowest = min(int(each[6:-1]) for each in case["world"] if each.startswith("limit("))
    extra = set(theirs) - set(ours)
    return bool(extra) and min(extra) >= lowest and {fd: theirs[fd] for fd in ours} == ours


def for_its_truth(case, name, theirs, ours):
    """spawn() takes start_new_session as true or false, where most Popens take only an int"""
    return (
        case["way"] == "spawn"
        and case["options"].get("start_new_session") in TABLES["spawn"]["start_new_session"][1]
        and (
            name in ("child.group", "child.session")  # PyPy takes the last 32 bits
            or (
                re.search(r"\bint(eger)?\b", theirs.get("error.text", ""))
                and theirs["error"] in ("TypeError", "OverflowError")
            )
        )
    )


def group_or_session(case, name, theirs, ours):
    """spawn() itself refuses to have a session's leader join a group; the system says EPERM"""
    return (
        theirs["error"] != "None"
        and ours.get("error.text") == "process_group can't be combined with start_new_session"
    )


def pass_fds_alone(case, name, theirs, ours):
    """spawn() takes no pass_fds without close_fds, where Popen warns"""
    return (
        case["way"] == "spawn"
        and ours["error"] != "None"
        and "pass_fds overriding close_fds" in theirs["warnings"]
        and (name == "warnings" or ours["error.text"] == "pass_fds needs close_fds")
    )


def group_or_program(case, name, theirs, ours):
    """we find that a program is not in PATH before we ask for a process group"""
    return (
        "process_group" in case["options"]
        and theirs.get("error.errno") == str(EPERM)
        and ours.get("error.errno") in (str(ENOENT), str(ENAMETOOLONG))
        and "/" not in ours["error.filename"]
    )


def false_pass_fds(case, name, theirs, ours):
    """spawn() takes any false pass_fds, or an empty iterator, as none"""
    if case["way"] != "spawn" or case["options"].get("pass_fds") not in ("None", "0", "iter(())"):
        return False
    warned = "pass_fds overriding close_fds" in theirs["warnings"]
    return theirs.get("error.text") in NOT_ITERABLE or (
        warned and name in ("warnings", "child.fds")
    )


def name_again(case, name, theirs, ours):
    """before Python 3.8 the text of Popen's FileNotFoundError has the name, spawn()'s has not"""
    return (
        case["way"] == "spawn"
        and name in ("error.args", "error.strerror", "error.text")
        and theirs["error"] == ours["error"] == "FileNotFoundError"
        and theirs["error.filename"] == ours["error.filename"]
        and theirs["error.strerror"].startswith(ours["error.strerror"] + ": ")
    )


def path_alone(case, name, theirs, ours):
    """before Python 3.8 Popen does not take a path as args; spawn() does"""
    return (
        case["way"] == "spawn"
        and case["options"]["args"].startswith(("Path(", "Fspath("))
        and "' object is not iterable" in theirs.get("error.text", "")
    )


def by_os_posix_spawn(case, name, theirs, ours):
    """os.posix_spawn, which the standard code may call, reads env by keys(), refuses empty names"""
    odd = case["options"].get("env", "").startswith(("Mapping(", "Items(", "{'': "))
    # Nor does it read pass_fds, if there are none.
    odd = odd or case["options"].get("pass_fds") in ("None", "0")
    return odd and (
        any(event[0] == "os.posix_spawn" for event in events(theirs))
        or theirs.get("error.text")
        in (
            "illegal environment variable name",
            "posix_spawn: environment must be a mapping object",
        )
    )


def bytearray_of_pypy(case, name, theirs, ours):
    """PyPy's Popen takes a bytearray as cwd"""
    return (
        case["way"] == "spawn"
        and case["options"].get("cwd", "").startswith("bytearray")
        and theirs["error"] != "TypeError"
        and ours["error.text"].endswith("os.PathLike object, not bytearray")
    )


def code_nobody_keeps(case, name, theirs, ours):
    """only a pidfd may see the exit code; the standard Popen makes up a 0"""
    return (
        name == "exit code"
        and IGNORES_SIGCHLD in case["world"]
        and theirs.get(name) == "0"
        and name in ours
    )


def needs_no_stdout(case, name, theirs, ours):
    """spawn() does not need sys.__stdout__ to find stdout"""
    return (
        case["way"] == "spawn"
        and case["options"].get("stderr") == "STDOUT"
        and "setattr(sys,'__stdout__',None)" in case["world"]
        and theirs.get("error.text") == "'NoneType' object has no attribute 'fileno'"
    )


def needs_no_pipe(case, name, theirs, ours):
    """the standard code needs two more file descriptors, for a pipe that reports failures"""
    return theirs.get("error.errno") == str(EMFILE) != ours.get("error.errno")


def nothing_for_the_loader(case, name, theirs, ours):
    """with no file descriptor left we do start the program, and its loader complains"""
    return (
        name == "err"
        and any(each.startswith("limit(") for each in case["world"])
        and ours["err"].startswith(theirs["err"])
        and ours["err"].endswith("cannot open shared object file: Error 24\n")
    )


def null_device_left(case, name, theirs, ours):
    """when a stream is not a file, the standard code fails and leaves the null device open"""
    if name != "fds left" or case["way"] != "spawn" or theirs["error"] == "None":
        return False
    theirs, ours = (ast.literal_eval(found[name]) for found in (theirs, ours))
    extra = {fd: what for fd, what in theirs.items() if fd not in ours}
    return (
        "DEVNULL" in case["options"].values()
        and {what[0] for what in extra.values()} == {"/dev/null"}
        and {fd: theirs.get(fd) for fd in ours} == ours
    )


NAMED = (
    glibc_signals,
    no_event,
    event_again,
    event_of_posix_spawn,
    no_warning,
    os_environ,
    names_argument,
    for_its_truth,
    group_or_session,
    group_or_program,
    pass_fds_alone,
    of_two_errors,
    only_items,
    unreadable_pass_fds,
    above_the_limit,
    false_pass_fds,
    name_again,
    path_alone,
    by_os_posix_spawn,
    bytearray_of_pypy,
    code_nobody_keeps,
    needs_no_stdout,
    needs_no_pipe,
    nothing_for_the_loader,
    null_device_left,
)


def reason(case, name, theirs, ours):
    """Why ``name`` may differ, or None."""
    for function in NAMED:
        if function(case, name, theirs, ours):
            return function.__doc__
    return None
