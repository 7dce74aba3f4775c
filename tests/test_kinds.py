# SPDX-License-Identifier: BSD-3-Clause
"""Objects whose attributes are not what their names say: those of real packages are in plays."""

import pytest

from . import pidwait
from .processes import become_zombie, exiting, gone_pid, state
from .ways import every_way


class LikeTrio:
    """Asked for its code, it reaps, and then raises: it is not in its loop's thread."""

    asked = tells = 0

    def __init__(self, popen):
        self.pid = popen.pid
        self._proc = popen

    @property
    def returncode(self):
        code = self._proc.poll()
        if code is not None:
            raise RuntimeError("must be called from async context")
        self.asked += 1
        if self.asked == self.tells:
            self._proc.stdin.close()
        return code

    def poll(self):
        return self.returncode

    async def wait(self):
        raise AssertionError("its loop waits for it")


class LikeAnyio:
    def __init__(self, process):
        self._process = process

    pid = property(lambda self: self._process.pid)
    returncode = property(lambda self: self._process.returncode)

    async def wait(self):
        raise AssertionError("its loop waits for it")


@pytest.fixture(params=[LikeTrio, lambda popen: LikeAnyio(LikeTrio(popen))], ids=["trio", "anyio"])
def of_loop(request):
    return request.param


@every_way
def test_loop_that_has_not_looked_yet(either, way, start, of_loop):
    child = start(*exiting(3))
    become_zombie(child.pid)
    process = of_loop(child)
    assert way(process) == 3
    assert way(process) == 3  # it has been reaped


@every_way
def test_loop_does_the_reaping(either, way, start_told, of_loop):
    child = start_told(3)
    process = of_loop(child)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(process, 0)
    like_trio = getattr(process, "_process", process)
    like_trio.tells = 2 * like_trio.asked  # it exits once there is a handle, after the last look
    assert way(process) == 3
    assert state(child.pid) == "Z"


class Reaped:
    """As asyncio's, which a thread has reaped; the loop is told a little later."""

    def __init__(self, left):
        self.pid = gone_pid()
        self.left = left

    @property
    def returncode(self):
        self.left -= 1
        return 3 if self.left < 0 else None


@every_way
def test_loop_that_is_about_to_be_told(either, way):
    assert way(Reaped(0)) == 3
    assert way(Reaped(9)) == 3


def test_loop_that_is_never_told(either):
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(Reaped(10**9), 0.01)
    assert pidwait.wait(Reaped(10**9), 30) is None


class LikeInvoke:
    """The code is what a method returns."""

    def __init__(self, pid):
        self.pid = pid

    def returncode(self):
        raise AssertionError("its own thread reaps")

    poll = returncode


@every_way
def test_methods_are_no_exit_codes(either, way, start):
    child = start(*exiting(3))
    become_zombie(child.pid)
    assert way(LikeInvoke(child.pid)) == 3
    assert child.wait() == 3
