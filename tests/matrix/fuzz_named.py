# SPDX-License-Identifier: BSD-3-Clause
"""The differences that are intended, each with its reason.

A reason explains as little as possible: its function is asked about one name at a time of those
under which something was found. It sees the case, and all that was found of the two starts.
"""

import ast
from errno import EMFILE, ENAMETOOLONG, ENOENT, EPERM

from .fuzz_cases import TABLE

GLIBC_OWN = 0x180000000
IGNORES_SIGCHLD = "signal.signal(signal.SIGCHLD,signal.SIG_IGN)"
NOT_ITERABLE = "'int' object is not iterable", "'NoneType' object is not iterable"


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


def odd_options(case):
    return [name for name, value in case["options"].items() if value in TABLE[name][1]]


def unreadable_pass_fds(case, name, theirs, ours):
    """pass_fds that raises does so before the audit event, since an iterator is not read twice"""
    raises = case["options"].get("pass_fds", "").startswith("failing(")
    if name.startswith("error") and (ours.get("error.text") in NOT_ITERABLE or raises):
        both = "None" not in (theirs["error"], ours["error"])
        return both and (raises or len(odd_options(case)) > 1)
    return (
        name == "events"
        and case["options"].get("pass_fds") in TABLE["pass_fds"][1]
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


def group_or_program(case, name, theirs, ours):
    """we find that a program is not in PATH before we ask for a process group"""
    return (
        "process_group" in case["options"]
        and theirs.get("error.errno") == str(EPERM)
        and ours.get("error.errno") in (str(ENOENT), str(ENAMETOOLONG))
        and "/" not in ours["error.filename"]
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


def code_nobody_keeps(case, name, theirs, ours):
    """only a pidfd may see the exit code; the standard Popen makes up a 0"""
    return (
        name == "exit code"
        and IGNORES_SIGCHLD in case["world"]
        and theirs.get(name) == "0"
        and name in ours
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


NAMED = (
    glibc_signals,
    event_again,
    event_of_posix_spawn,
    no_warning,
    os_environ,
    group_or_program,
    unreadable_pass_fds,
    above_the_limit,
    by_os_posix_spawn,
    code_nobody_keeps,
    needs_no_pipe,
    nothing_for_the_loader,
)


def reason(case, name, theirs, ours):
    """Why ``name`` may differ, or None."""
    for function in NAMED:
        if function(case, name, theirs, ours):
            return function.__doc__
    return None
