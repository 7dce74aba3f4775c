# SPDX-License-Identifier: BSD-3-Clause
"""The probe: real calls, made once, and remembered unless they fail for a passing reason."""

import errno
import importlib
import json
import os
import platform
import sys

import pytest

try:
    import resource
except ImportError:  # Windows
    resource = None

from . import pidwait
from .processes import WINDOWS, exiting, not_on_windows, run_python

probe = importlib.import_module(pidwait.__name__ + "._probe")
checks = importlib.import_module(pidwait.__name__ + "._checks")
backends = importlib.import_module(pidwait.__name__ + "._backends")
pidfd = importlib.import_module(pidwait.__name__ + "._backends.pidfd")


def test_first_check_of_a_backend_tells_whether_it_works():
    rows = ("first", None, "its check"), ("other", None, "another check")
    assert backends.Backend("any", None, rows).check == "its check"


def test_what_it_tells(variant, backend):
    answer = pidwait.probe()
    assert answer["backend"] == backend
    known = ["win32"] if WINDOWS else ["pidfd", "connector"]
    assert list(answer["backends"]) == [*known, "polling"]
    if WINDOWS:
        assert {"OpenProcess", "WaitForMultipleObjects"} <= set(answer["calls"])
    else:
        linux = {"pidfd_open", "pidfd_send_signal", "waitid", "PIDFD_GET_INFO"}
        linux.add("inotify_add_watch")
        assert linux <= set(answer["calls"])
        for name in "/proc", "/proc exit status", "pidfd inodes":  # no calls
            assert answer["calls"][name]["via"] is None
    for section in ("backends", "bindings", "calls"):
        for row in answer[section].values():
            assert row["available"] is (row["reason"] is None)
    assert json.loads(json.dumps(answer)) == answer
    assert answer["python"].startswith(sys.implementation.name + " %d.%d." % sys.version_info[:2])
    if WINDOWS:
        assert answer["system"].startswith("Windows ")
    else:
        about = platform.system(), platform.release(), platform.machine()
        assert answer["system"] == " ".join(about)


@pytest.mark.parametrize("ffi", ["ctypes", "cffi"])
def test_forced_binding(use_variant, ffi):
    use_variant(("win32-" if WINDOWS else "pidfd-") + ffi)
    calls = pidwait.probe()["calls"]
    names = ("pidfd_open", "pidfd_send_signal", "waitid")
    assert {calls[name]["via"] for name in (calls if WINDOWS else names)} == {ffi}


@pytest.mark.parametrize(
    "variable, good",
    [
        ("PIDWAIT_BACKEND", "auto, pidfd, connector, kqueue, win32, polling"),
        ("PIDWAIT_FFI", "auto, ct?y?p?e?s?|cf?f?i?"),
    ],
)
def test_bad_choice(monkeypatch, variable, good):
    monkeypatch.setenv(variable, "nonesuch")
    probe.forget()
    try:
        for use in (pidwait.probe, lambda: pidwait.wait(os.getpid(), 0)):
            with pytest.raises(ValueError, match="%s must be one of.*'nonesuch'" % variable):
                use()
    finally:
        monkeypatch.undo()
        probe.forget()


@pytest.mark.parametrize("choice", ["kqueue", "pidfd" if WINDOWS else "win32"])
def test_choice_that_this_system_lacks(monkeypatch, choice):
    monkeypatch.setenv("PIDWAIT_BACKEND", choice)
    probe.forget()
    try:
        with pytest.raises(OSError, match="PIDWAIT_BACKEND is %s: not on this system" % choice):
            pidwait.wait(os.getpid(), 0)
    finally:
        monkeypatch.undo()
        probe.forget()


def counting(error):
    calls = []

    def check():
        calls.append(True)
        if error is not None:
            raise error

    return check, calls


@pytest.mark.parametrize("code", [None, errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_remembered(code):
    check, calls = counting(code and OSError(code, "no"))
    assert [checks.works(check) for _ in range(3)] == [code is None] * 3
    assert len(calls) == 1
    probe.forget()


@not_on_windows("fork")
@pytest.mark.parametrize("has_hook", [True, False], ids=["own", "3.6"])
def test_a_forked_child_asks_again(monkeypatch, has_hook):
    """It can be in another PID namespace."""
    if not has_hook:
        monkeypatch.delattr(os, "register_at_fork", raising=False)
        monkeypatch.setattr(checks, "_asked_by", [])
    check, calls = counting(None)
    assert checks.works(check) and checks.works(check) and len(calls) == 1
    pid = os.fork()
    if pid == 0:
        checks.works(check)
        checks.works(check)
        os._exit(len(calls))
    assert os.waitpid(pid, 0)[1] == 2 << 8
    assert checks.works(check) and len(calls) == 1
    probe.forget()


def test_one_hook_for_forks(monkeypatch):
    hooks = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hook: hooks.append(hook), raising=False)
    monkeypatch.setattr(checks, "_asked_by", [])
    check, _ = counting(None)
    assert checks.works(check) and checks.works(check)
    assert hooks == [{"after_in_child": checks._answers.clear}]
    probe.forget()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_passing_failure_is_not_remembered(code):
    check, calls = counting(OSError(code, "not now"))
    assert [checks.works(check) for _ in range(3)] == [True] * 3
    assert len(calls) == 3


@not_on_windows("limit of file descriptors")
def test_no_file_descriptor_left_while_probing(use_variant, start):
    """That wait works by polling, and the next one by a pidfd."""
    use_variant("pidfd-own" if hasattr(os, "pidfd_open") else "pidfd-ctypes")
    probe.forget()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    child = start(*exiting(3, after=0.05))
    fds = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        while True:
            fds.append(os.dup(0))
    except OSError as error:
        assert error.errno == errno.EMFILE
        with pidwait.Process(child.pid) as process:
            assert process.backend == "polling"
            assert process.wait(30) == 3
        assert pidfd.check not in checks._answers and backends.chosen == []
        assert pidwait.wait(child.pid) == 3
    finally:
        for fd in fds:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pidwait.Process(child.pid) as process:
        assert process.backend == "pidfd"
    assert backends.chosen == [backends.backend()]


@not_on_windows("limit of file descriptors")
def test_a_first_wait_without_file_descriptors(start):
    """Then even an import can't open its file; only wait() was imported before."""
    child = start(*exiting(3, after=0.1))
    code = """if True:
        import os, resource, sys
        from {package} import wait
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        pid = os.fork()
        if pid == 0:
            os._exit(4)
        print(wait(pid), wait(int(sys.argv[1])), wait(pid, reap=True))
    """
    done = run_python(code.format(package=pidwait.__name__), str(child.pid))
    assert done.stderr == ""
    own, others, reaped = done.stdout.split()
    # An interpreter without os.waitid can't load a binding for it now.
    assert own == ("4" if hasattr(os, "waitid") else "None")
    # We can see that somebody else's child has exited, but not its code.
    assert others == "None"
    assert reaped == "4"


@not_on_windows("limit of file descriptors")
def test_binding_that_can_not_be_loaded_for_now():
    """It fails for want of a file descriptor, so it is tried again later."""
    code = """if True:
        import errno, importlib, resource
        import {package} as pidwait
        calls = importlib.import_module("{package}._ffi.calls")

        def tell():
            for name in ("pidfd_open", "ioctl"):
                try:
                    print(calls.resolve(name)[1])
                except OSError as error:
                    print(errno.errorcode[error.errno])

        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        tell()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        tell()
    """
    bindings = pidwait.probe()["bindings"]
    binding = next((name for name in ("ctypes", "cffi") if bindings[name]["available"]), "ctypes")
    env = dict(os.environ, PIDWAIT_FFI=binding)
    done = run_python(code.format(package=pidwait.__name__), env=env)
    # fcntl, which has ioctl, needs no file where it is built in.
    built_in = "fcntl" in sys.builtin_module_names
    ioctl = "fcntl" if built_in else "EMFILE"
    opened = binding if bindings[binding]["available"] else "ENOSYS"
    assert done.stdout.split() == ["EMFILE", ioctl, opened, "fcntl"], done


def test_answer_that_another_thread_asks_for_anew(monkeypatch):
    class Forgetful(dict):
        def __setitem__(self, check, answer):
            """It is removed at once."""

    monkeypatch.setattr(checks, "_answers", Forgetful())
    assert checks.still_works(lambda: None)
