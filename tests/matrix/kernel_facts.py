# SPDX-License-Identifier: BSD-3-Clause
"""What the kernel that runs this offers, and the probe says, is what is known of its version."""

import errno
import importlib
import os
import re
import select
import subprocess
import sys

import pytest

from .. import pidwait
from ..processes import ending_after_the_main_thread, exiting, needs_ctypes

NAME = pidwait.__name__
checks = importlib.import_module(NAME + "._checks")
exitcodes = importlib.import_module(NAME + "._sources.exitcodes")
probe = importlib.import_module(NAME + "._probe")
pidfd = importlib.import_module(NAME + "._backends.pidfd")

# Of gVisor's two, "current" or "without-pidfd".
GVISOR = "GVISOR" in os.environ
WITHOUT_PIDFD = os.environ.get("GVISOR") == "without-pidfd"
EXEC = """if True:
    import os, threading
    command = "read line; printf .; read line; exit 3"
    threading.Thread(target=os.execv, args=("/bin/sh", ["sh", "-c", command])).start()
    threading.Event().wait()
"""
LINUX = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


def since(*version):
    return version <= LINUX and not GVISOR


def code(error):
    return error and errno.errorcode[error.errno]


@pytest.fixture(params=["pidfd-own", "pidfd-ctypes", "pidfd-cffi"])
def pidfds(request, use_variant):
    if not WITHOUT_PIDFD:
        use_variant(request.param)


@pytest.fixture
def reaped():
    """The pidfd of a process that exited with 7 and has been reaped, and what poll said before."""
    child = subprocess.Popen(exiting(7))
    handle = pidfd.PidfdHandle(child.pid)
    poll = select.poll()
    poll.register(handle.fd, select.POLLIN)
    before = poll.poll()[0][1]
    child.wait()
    yield handle, before, poll.poll()[0][1]
    handle.close()


def test_pidfd_open(pidfds):
    assert code(checks.ask(pidfd.check)) == ("ENOSYS" if WITHOUT_PIDFD else None)
    assert pidwait.probe()["backend"] == ("polling" if WITHOUT_PIDFD else "pidfd")


@pytest.mark.skipif(WITHOUT_PIDFD, reason="this kernel has no pidfd_open")
class TestPidfds:
    def test_calls(self, pidfds):
        assert code(checks.ask(pidfd.check_send_signal)) is None
        assert code(checks.ask(pidfd.check_waitid)) is None
        refused = "EINVAL" if since(6, 12) else "ENOTTY"  # not in 6.1
        assert code(checks.ask(pidfd.check_get_info)) == (None if since(6, 13) else refused)
        assert code(checks.ask(pidfd.check_pidfs)) == (None if since(6, 9) else "EINVAL")

    def test_reaping(self, pidfds, reaped):
        handle, before, after = reaped
        assert before == select.POLLIN
        tells = GVISOR or since(6, 12)  # not in 6.1
        assert after == (select.POLLIN | select.POLLHUP if tells else select.POLLIN)
        if since(6, 13):
            assert handle.get_info() == (True, 7 if since(6, 15) else None)
        else:
            assert handle.get_info() is None
        assert handle._is_reaped() is True


def test_proc():
    assert code(checks.ask(exitcodes.check_status)) == ("ENOSYS" if GVISOR else None)


@needs_ctypes
def test_main_thread_that_ended_first(pidfds, start):
    """Before Linux 5.17, whoever looks without reaping is told the main thread's status.

    As on the older gVisor; see LIMITS.md.
    """
    child = start(*ending_after_the_main_thread(9))
    is_right = since(5, 17) or (GVISOR and not WITHOUT_PIDFD)
    assert pidwait.wait(child.pid) == (9 if is_right else 0)
    assert pidwait.wait(child.pid, reap=True) == 9
    child.wait()


@needs_ctypes
def test_exit_codes_of_others(keeper, pidfds):
    """Of a zombie it is told everywhere, but on gVisor; of one that has been reaped, since 6.15."""
    pid = keeper.start("sleep", "60")
    keeper.reap_soon(pid)
    with pidwait.Process(pid) as process:
        process.kill()
        keeper.reaped()
        assert process.wait() == (-9 if since(6, 15) else None)
    pid = keeper.start(*ending_after_the_main_thread(9))
    with pidwait.Process(pid) as process:
        assert process.wait() == (9 if since(5, 17) else None)
    keeper.reap(pid)
    for wanted in 0, 7, -9:
        pid = keeper.start(*exiting(wanted))
        with pidwait.Process(pid) as process:
            assert process.wait() == (None if GVISOR else wanted)
        keeper.reap(pid)


@pytest.fixture
def connector(monkeypatch):
    monkeypatch.setenv("PIDWAIT_BACKEND", "connector")
    probe.forget()
    yield
    monkeypatch.undo()
    probe.forget()


def is_there_for(user):
    """Whether the proc connector works for a user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setuid(user)
            probe.forget()
            os._exit(7 if pidwait.probe()["backends"]["connector"]["available"] else 0)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1] >> 8
    assert status in (0, 7)
    return status == 7


def test_connector_is_for_root_or_for_all():
    assert is_there_for(0) is not GVISOR
    assert is_there_for(65534) is since(6, 6)


@pytest.mark.skipif(GVISOR, reason="gVisor has no proc connector")
class TestConnector:
    @pytest.mark.parametrize("wanted", [0, 7, -9])
    def test_code_of_what_others_reap_at_once(self, connector, keeper, tmp_path, wanted):
        fifo = tmp_path / "fifo"
        pid = keeper.start_told(wanted, fifo)
        keeper.reap_soon(pid)
        with pidwait.Process(pid) as process:
            assert process.backend == "connector"
        with pidwait.WaitSet([pid]) as members:
            assert members.wait(0) == []
            fifo.write_text("\n")
            keeper.reaped()
            assert members.wait() == [(pid, wanted)]

    def test_set(self, connector, start_told):
        children = [start_told(code) for code in range(5)]
        with pidwait.WaitSet([child.pid for child in children]) as members:
            for code in 3, 0, 4, 1, 2:
                children[code].stdin.close()
                assert members.wait() == [(children[code].pid, code)]

    def test_threads(self, connector, keeper):
        """The main thread ends before the process does: its message tells no exit code."""
        # If the process ends within 0.1 s after that, the message may be taken for it: LIMITS.
        pid = keeper.start(*ending_after_the_main_thread(9, seconds=1))
        with pidwait.Process(pid) as process:
            code = process.wait()
        assert code == 9 if since(5, 17) else code in (None, 9)
        keeper.reap(pid)

    def test_program_that_a_thread_starts(self, connector, start):
        """A message comes for the old main thread, with the pid of the process that goes on."""
        child = start(sys.executable, "-c", EXEC, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with pidwait.Process(child.pid) as process:
            with pytest.raises(pidwait.TimeoutExpired):
                process.wait(0)
            child.stdin.write(b"\n")
            child.stdin.flush()
            assert child.stdout.read(1) == b"."
            with pytest.raises(pidwait.TimeoutExpired):
                process.wait(0.5)
            child.stdin.close()
            assert process.wait() == 3
