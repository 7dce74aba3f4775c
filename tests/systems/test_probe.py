# SPDX-License-Identifier: BSD-3-Clause
"""The probe: what this system offers, asked once by real calls; and a choice that is forced."""

import errno
import json
import os
import sys

import pytest

from .. import pidwait
from .. import seam as calls
from ..conftest import CALL, EVENT, KQUEUES
from ..processes import WINDOWS, everywhere, run_python
from ..waiting.crowd import in_a_fork

on_linux = pytest.mark.skipif(WINDOWS or bool(KQUEUES), reason="it has no pidfd")


@pytest.fixture
def asked_anew():
    """The test needs pidfds; the probe has not asked for them yet."""
    reason = pidwait.probe()["backends"]["pidfd"]["reason"]
    if reason:
        pytest.skip(reason)
    calls.forget()


@pytest.fixture
def choose(monkeypatch):
    """choose(variable, value): the probe asks anew, with this choice, until the test ends."""

    def choose(variable, value):
        monkeypatch.setenv(variable, value)
        calls.forget()

    yield choose
    monkeypatch.undo()
    calls.forget()


@everywhere
def test_it_tells_what_there_is_and_why_not(variant, backend):
    answer = pidwait.probe()
    assert answer["backend"] == backend and json.loads(json.dumps(answer)) == answer
    assert {EVENT, "polling"} <= set(answer["backends"])
    assert answer["backends"]["polling"] == {"available": True, "reason": None}
    assert set(answer["bindings"]) == {"ctypes", "cffi"}
    for section in "backends", "bindings", "calls":
        for row in answer[section].values():
            assert row["available"] is (row["reason"] is None)
            assert row["reason"] is None or (isinstance(row["reason"], str) and row["reason"])
    assert all(row["via"] is None or row["via"] for row in answer["calls"].values())
    row = answer["calls"]["job objects" if WINDOWS else "keeper of trees"]
    assert WINDOWS <= row["available"] <= (not KQUEUES)
    if not WINDOWS and not KQUEUES:
        names = "pidfd_open pidfd_send_signal waitid PIDFD_GET_INFO posix_spawn"
        assert set(names.split()) <= set(answer["calls"])
    python = sys.implementation.name + " %d.%d." % sys.version_info[:2]
    assert answer["python"].startswith(python)
    assert answer["system"].startswith("Windows " if WINDOWS else " ".join(os.uname()[::2][:2]))


@pytest.mark.windows
@pytest.mark.parametrize("name", ["ctypes", "cffi"])
def test_a_forced_binding_makes_the_calls(choose, name):
    if not pidwait.probe()["bindings"][name]["available"]:
        pytest.skip(pidwait.probe()["bindings"][name]["reason"])
    choose("PIDWAIT_FFI", name)
    answer = pidwait.probe()["calls"]
    names = {"win32": ("OpenProcess", CALL), "kqueue": (CALL, "waitid")}
    names = names.get(EVENT, ("pidfd_open", "pidfd_send_signal", "waitid"))
    assert {answer[call]["via"] for call in names if answer[call]["available"]} == {name}


@pytest.mark.windows
@pytest.mark.parametrize(
    "variable, value, good",
    [
        ("PIDWAIT_BACKEND", "nonesuch", ["auto", "pidfd", "kqueue", "win32", "polling"]),
        ("PIDWAIT_BACKEND", "PIDFD", ["auto", "pidfd", "kqueue", "win32", "polling"]),
        ("PIDWAIT_FFI", "nonesuch", ["auto", "ctypes", "cffi"]),
    ],
)
def test_a_bad_choice_is_an_error_that_lists_the_good_ones(choose, variable, value, good):
    choose(variable, value)
    for use in (pidwait.probe, lambda: pidwait.wait(os.getpid(), 0)):
        with pytest.raises(ValueError, match=variable) as caught:
            use()
        assert repr(value) in str(caught.value)
        listed = str(caught.value).replace(",", " ").split()
        assert set(good) <= set(listed)


@pytest.mark.windows
@pytest.mark.parametrize("choice", sorted({"kqueue", "pidfd", "win32"} - {EVENT}))
def test_a_choice_that_this_system_lacks_is_an_error(choose, choice):
    choose("PIDWAIT_BACKEND", choice)
    for use in (pidwait.probe, lambda: pidwait.wait(os.getpid(), 0)):
        with pytest.raises(OSError, match="PIDWAIT_BACKEND is " + choice) as caught:
            use()
        assert caught.value.errno == errno.ENOSYS


@pytest.mark.windows
@pytest.mark.parametrize("value", ["", "auto"])
def test_no_choice_is_the_best_one_that_works(choose, value):
    choose("PIDWAIT_BACKEND", value)
    choose("PIDWAIT_FFI", value)
    answer = pidwait.probe()
    works = [name for name, row in answer["backends"].items() if row["available"]]
    assert answer["backend"] == works[0]


@on_linux
@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EINVAL])
def test_a_refusal_is_remembered_with_its_reason(asked_anew, seam, sleeper, code):
    real = calls.get("pidfd_open")
    seam.refuse("pidfd_open", code)
    with pidwait.Process(sleeper.pid) as process:
        assert process.backend != "pidfd"
    seam.put("pidfd_open", real)
    answer = pidwait.probe()
    row = answer["backends"]["pidfd"]
    assert row["available"] is False and os.strerror(code) in row["reason"]
    assert answer["backend"] != "pidfd"
    with pidwait.Process(sleeper.pid) as process:
        assert process.backend != "pidfd"
    calls.forget()
    assert pidwait.probe()["backend"] == "pidfd"


@on_linux
def test_what_works_is_not_asked_again(asked_anew, seam, sleeper):
    assert pidwait.probe()["backend"] == "pidfd"
    seam.refuse("pidfd_open", errno.ENOSYS)
    assert pidwait.probe()["backends"]["pidfd"]["available"]
    with pidwait.Process(sleeper.pid) as process:  # that one is polled
        assert process.backend == "polling"
    assert pidwait.probe()["backend"] == "pidfd"


@on_linux
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_passing_failure_is_not_remembered(asked_anew, seam, sleeper, code):
    real = calls.get("pidfd_open")
    seam.refuse("pidfd_open", code)
    for _ in range(2):
        with pidwait.Process(sleeper.pid) as process:
            assert process.backend == "polling"
    seam.put("pidfd_open", real)
    with pidwait.Process(sleeper.pid) as process:
        assert process.backend == "pidfd"


@on_linux
def test_what_polling_does_not_need_is_not_asked(use_variant, seam, start_told):
    """A filter that kills whoever makes an unknown call may be the reason for the choice."""
    use_variant("polling")
    asked = []
    names = "pidfd_open pidfd_send_signal ioctl".split()
    for name in names:
        seam.put(name, lambda *args, name=name: asked.append(name) or os.dup(0))
    answer = pidwait.probe()
    assert answer["backend"] == "polling" and answer["calls"]["/proc"]["available"]
    not_asked = {"available": False, "reason": "not checked: PIDWAIT_BACKEND is polling"}
    assert answer["backends"]["pidfd"] == not_asked
    for name in "pidfd_open", "pidfd_send_signal", "PIDFD_GET_INFO":
        assert dict(not_asked, via=answer["calls"][name]["via"]) == answer["calls"][name]
    child, popen = start_told(3), start_told(4)
    with pidwait.Process(child.pid) as process, pidwait.WaitSet([child.pid, popen]) as waiting:
        process.send_signal(0)
        assert not process.has_exited() and pidwait.wait_procs([popen], 0) == ([], [popen])
        child.stdin.close()
        popen.stdin.close()
        assert process.wait() == pidwait.wait(child.pid) == 3
        assert pidwait.wait(popen) == 4
        assert len(waiting.wait() + waiting.wait(60)) == 2
    with pidwait.spawn(["sh", "-c", "exit 5"]) as child:
        assert child.wait() == 5
    assert asked == []


@on_linux
def test_a_forked_child_asks_again(asked_anew, seam):
    """It can be in another PID namespace."""
    real = calls.get("pidfd_open")
    seam.refuse("pidfd_open", errno.ENOSYS)
    assert not pidwait.probe()["backends"]["pidfd"]["available"]
    seam.put("pidfd_open", real)

    def ask():
        assert pidwait.probe()["backends"]["pidfd"]["available"]

    assert in_a_fork(ask)
    assert not pidwait.probe()["backends"]["pidfd"]["available"]


FIRST_WAIT = """if True:
    import os, resource, sys
    from {package} import probe, wait
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    pid = os.fork()
    if pid == 0:
        os._exit(4)
    print(wait(pid), wait(int(sys.argv[1])), wait(pid, reap=True))
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    print(probe()["backend"])
"""


@on_linux
@pytest.mark.parametrize("ffi", ["auto", "ctypes", "cffi"])
def test_the_first_wait_works_without_a_file_descriptor(start_told, ffi):
    """Then even an import can't open its file; the next wait gets all that there is."""
    child = start_told(3)
    backend = pidwait.probe()["backend"]
    if ffi != "auto" and not pidwait.probe()["bindings"][ffi]["available"]:
        pytest.skip(pidwait.probe()["bindings"][ffi]["reason"])
    child.stdin.close()
    env = dict(os.environ, PIDWAIT_FFI=ffi)
    done = run_python(FIRST_WAIT.format(package=pidwait.__name__), str(child.pid), env=env)
    assert done.stderr == ""
    own, others, reaped, later = done.stdout.split()
    # An interpreter without os.waitid may be unable to load a binding for it now.
    assert own == "4" or own == "None" and not (ffi == "auto" and hasattr(os, "waitid"))
    assert (others, reaped, later) == ("None", "4", backend)
