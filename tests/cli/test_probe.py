# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait --probe, and probe(): what the system offers, by real calls made once."""

import errno
import json
import os
import platform
import re
import sys

import pytest

from .. import pidwait, trouble
from ..processes import WINDOWS, not_on_windows
from ..seam import forget, get

EVENT = "win32" if WINDOWS else "pidfd"


@pytest.mark.windows
def test_the_probe_tells_what_there_is_and_why_not(variant, backend):
    answer = pidwait.probe()
    assert answer["backend"] == backend and {EVENT, "polling"} <= set(answer["backends"])
    calls = {"OpenProcess", "WaitForMultipleObjects"}
    if not WINDOWS:
        calls = {"pidfd_open", "pidfd_send_signal", "waitid", "PIDFD_GET_INFO"}
    assert calls <= set(answer["calls"])
    for section in "backends", "bindings", "calls":
        for row in answer[section].values():
            assert row["available"] is (row["reason"] is None)
    assert answer["python"].startswith(sys.implementation.name + " %d.%d." % sys.version_info[:2])
    about = platform.system(), platform.release(), platform.machine()
    expected = "Windows " if WINDOWS else " ".join(about)
    assert answer["system"].startswith(expected)


@pytest.mark.windows
def test_the_command_line_shows_it(variant, backend, main):
    done = main("--probe", "--json")
    answer = pidwait.probe()
    assert done[::2] == (0, "") and json.loads(done.stdout) == answer
    done = main("--probe")
    assert done[::2] == (0, "")
    for key in "system", "python", "backend":
        assert re.search("^%s +%s$" % (key, re.escape(answer[key])), done.stdout, re.M)
    for section in "backends", "bindings", "calls":
        rows = done.stdout.partition("\n\n%s\n" % section)[2].partition("\n\n")[0].splitlines()
        assert len(rows) == len(answer[section])
        for line, (name, row) in zip(rows, answer[section].items()):
            via = " (%s)" % row["via"] if row.get("via") else ""
            shown = "yes" + via if row["available"] else "no: " + row["reason"]
            assert line.startswith("  " + name) and line.endswith(" " + shown)


@not_on_windows("pidfds")
def test_what_is_missing_is_shown_with_the_reason(seam, main):
    seam.hide("pidfd_open")
    shown = main("--probe").stdout
    assert re.search("^  pidfd +no: .*the system's library has no pidfd_open", shown, re.M)
    assert pidwait.probe()["backend"] != "pidfd"


@pytest.mark.windows
@pytest.mark.parametrize("ffi", ["ctypes", "cffi"])
def test_a_binding_can_be_forced(use_variant, ffi):
    use_variant("%s-%s" % (EVENT, ffi))
    calls = pidwait.probe()["calls"]
    names = calls if WINDOWS else ("pidfd_open", "pidfd_send_signal", "waitid")
    assert {calls[name]["via"] for name in names} == {ffi}


@pytest.fixture
def forced(monkeypatch):
    def forced(variable, value):
        monkeypatch.setenv(variable, value)
        forget()

    yield forced
    monkeypatch.undo()
    forget()


@pytest.mark.windows
@pytest.mark.parametrize(
    "variable, good", [("PIDWAIT_BACKEND", "auto, pidfd, .*polling"), ("PIDWAIT_FFI", "auto, ")]
)
def test_a_bad_choice_is_an_error_that_lists_the_good_ones(forced, variable, good):
    forced(variable, "nonesuch")
    message = "%s must be one of %s.*, not 'nonesuch'" % (variable, good)
    for use in pidwait.probe, lambda: pidwait.wait(os.getpid(), 0):
        with pytest.raises(ValueError, match=message):
            use()


@pytest.mark.windows
@pytest.mark.parametrize("choice", ["kqueue", "pidfd" if WINDOWS else "win32"])
def test_a_choice_that_this_system_lacks_is_an_error(forced, choice):
    forced("PIDWAIT_BACKEND", choice)
    with pytest.raises(OSError, match="PIDWAIT_BACKEND is %s: not on this system" % choice):
        pidwait.wait(os.getpid(), 0)


@not_on_windows("pidfds")
@pytest.mark.parametrize("code", [errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_refusal_is_remembered_but_for_a_passing_one(seam, code):
    if trouble.why_no_pidfd():
        pytest.skip(trouble.why_no_pidfd())

    def backend():
        with pidwait.Process(os.getppid()) as process:
            return process.backend

    forget()
    works = get("pidfd_open")
    seam.refuse("pidfd_open", code)
    assert backend() != "pidfd"
    seam.put("pidfd_open", works)
    assert (backend() == "pidfd") is (code != errno.EPERM)
