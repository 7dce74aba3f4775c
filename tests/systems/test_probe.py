# SPDX-License-Identifier: BSD-3-Clause
"""The probe: what this system offers, asked once by real calls; and a choice that is forced."""

import errno
import json
import os
import sys

import pytest

from .. import pidwait
from .. import seam as calls
from ..conftest import CALL, EVENT, STANDIN
from ..processes import WINDOWS, not_on_windows, run_python

on_linux = pytest.mark.skipif(WINDOWS or bool(STANDIN), reason="it has no pidfd")


def needs_pidfd():
    reason = pidwait.probe()["backends"]["pidfd"]["reason"]
    if reason:
        pytest.skip(reason)


@pytest.mark.windows
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
    if not WINDOWS and not STANDIN:
        names = "pidfd_open pidfd_send_signal waitid PIDFD_GET_INFO posix_spawn"
        assert set(names.split()) <= set(answer["calls"])
    python = sys.implementation.name + " %d.%d." % sys.version_info[:2]
    assert answer["python"].startswith(python)
    assert answer["system"].startswith("Windows " if WINDOWS else " ".join(os.uname()[::2][:2]))


@pytest.mark.windows
@pytest.mark.parametrize("name", ["ctypes", "cffi"])
def test_a_forced_binding_makes_the_calls(monkeypatch, name):
    if not pidwait.probe()["bindings"][name]["available"]:
        pytest.skip(pidwait.probe()["bindings"][name]["reason"])
    monkeypatch.setenv("PIDWAIT_FFI", name)
    calls.forget()
    try:
        answer = pidwait.probe()["calls"]
        names = ("OpenProcess", CALL) if WINDOWS else ("pidfd_open", "pidfd_send_signal", "waitid")
        assert {answer[call]["via"] for call in names if answer[call]["available"]} == {name}
    finally:
        monkeypatch.undo()
        calls.forget()


@pytest.mark.windows
@pytest.mark.parametrize(
    "variable, value, good",
    [
        ("PIDWAIT_BACKEND", "nonesuch", ["auto", "pidfd", "kqueue", "win32", "polling"]),
        ("PIDWAIT_BACKEND", "PIDFD", ["auto", "pidfd", "kqueue", "win32", "polling"]),
        ("PIDWAIT_FFI", "nonesuch", ["auto", "ctypes", "cffi"]),
    ],
)
def test_a_bad_choice_is_an_error_that_lists_the_good_ones(monkeypatch, variable, value, good):
    monkeypatch.setenv(variable, value)
    calls.forget()
    try:
        for use in (pidwait.probe, lambda: pidwait.wait(os.getpid(), 0)):
            with pytest.raises(ValueError, match=variable) as caught:
                use()
            assert repr(value) in str(caught.value)
            listed = str(caught.value).replace(",", " ").split()
            assert set(good) <= set(listed)
    finally:
        monkeypatch.undo()
        calls.forget()


@pytest.mark.windows
@pytest.mark.parametrize("choice", ["kqueue", "pidfd" if WINDOWS else "win32"])
def test_a_choice_that_this_system_lacks_is_an_error(monkeypatch, choice):
    monkeypatch.setenv("PIDWAIT_BACKEND", choice)
    calls.forget()
    try:
        for use in (pidwait.probe, lambda: pidwait.wait(os.getpid(), 0)):
            with pytest.raises(OSError, match="PIDWAIT_BACKEND is " + choice) as caught:
                use()
            assert caught.value.errno == errno.ENOSYS
    finally:
        monkeypatch.undo()
        calls.forget()


@pytest.mark.windows
@pytest.mark.parametrize("value", ["", "auto"])
def test_no_choice_is_the_best_one_that_works(monkeypatch, value):
    monkeypatch.setenv("PIDWAIT_BACKEND", value)
    monkeypatch.setenv("PIDWAIT_FFI", value)
    calls.forget()
    answer = pidwait.probe()
    works = [name for name, row in answer["backends"].items() if row["available"]]
    assert answer["backend"] == works[0]


@on_linux
@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EINVAL])
def test_a_refusal_is_remembered_with_its_reason(seam, sleeper, code):
    needs_pidfd()
    calls.forget()
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
def test_what_works_is_not_asked_again(seam, sleeper):
    needs_pidfd()
    calls.forget()
    assert pidwait.probe()["backend"] == "pidfd"
    seam.refuse("pidfd_open", errno.ENOSYS)
    assert pidwait.probe()["backends"]["pidfd"]["available"]
    with pidwait.Process(sleeper.pid) as process:  # that one is polled
        assert process.backend == "polling"
    assert pidwait.probe()["backend"] == "pidfd"


@on_linux
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_passing_failure_is_not_remembered(seam, sleeper, code):
    needs_pidfd()
    calls.forget()
    real = calls.get("pidfd_open")
    seam.refuse("pidfd_open", code)
    for _ in range(2):
        with pidwait.Process(sleeper.pid) as process:
            assert process.backend == "polling"
    seam.put("pidfd_open", real)
    with pidwait.Process(sleeper.pid) as process:
        assert process.backend == "pidfd"


@on_linux
def test_without_file_descriptors_it_learns_nothing(start_told, fds_left):
    """That wait works by polling, and the next one by a pidfd."""
    needs_pidfd()
    child = start_told(3)
    calls.forget()
    with fds_left(0):
        with pidwait.Process(child.pid) as process:
            assert process.backend == "polling"
            child.stdin.close()
            assert process.wait() == 3
        assert pidwait.wait(child.pid) == 3
    with pidwait.Process(child.pid) as process:
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
    not_asked = {"available": False, "reason": "not asked, as PIDWAIT_BACKEND is polling"}
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
def test_a_forked_child_asks_again(seam):
    """It can be in another PID namespace."""
    needs_pidfd()
    calls.forget()
    real = calls.get("pidfd_open")
    seam.refuse("pidfd_open", errno.ENOSYS)
    assert not pidwait.probe()["backends"]["pidfd"]["available"]
    seam.put("pidfd_open", real)
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            status = 0 if pidwait.probe()["backends"]["pidfd"]["available"] else 1
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
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


@not_on_windows("chroot")
@pytest.mark.root
def test_after_the_first_wait_it_needs_no_file(tmp_path):
    """In another root, as another user, it can import nothing."""
    tmp_path.chmod(0o755)
    code = """if True:
        import os, sys
        import {package} as pidwait

        def waits():
            pid = os.fork() or os._exit(3)
            with pidwait.Process(pid) as process:
                told = [process.wait(), pidwait.wait_procs([pid])[0], process.backend]
            return told + [pidwait.wait(pid, reap=True)]

        first = waits()
        os.chroot(sys.argv[1])
        os.chdir("/")
        os.setgid(65534)
        os.setuid(65534)
        again = waits()
        assert first[0] == again[0] == first[-1] == again[-1] == 3, (first, again)
        assert first[1][0][1] == again[1][0][1] == 3 and first[2] == again[2], (first, again)
    """
    done = run_python(code.format(package=pidwait.__name__), str(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done
