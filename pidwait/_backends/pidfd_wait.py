# SPDX-License-Identifier: BSD-3-Clause
"""Linux: the wait for our own child by its pid, in as few steps as it can be written out.

After the sleep the caches are cold, and each name and call costs. So for what is waited for most,
nothing is made that is not needed: neither a handle nor a Deadline.
"""

import select

from .._errors import is_of_signal_handler, log
from .._fd import close, own
from .._ffi import calls, linux
from . import pidfd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .contract import Handle

_POLLIN = 0x001  # a system without poll(2) may load this, in a single file for several
_P_PIDFD, _REAP, _LOOK, _CLD_EXITED = linux.P_PIDFD, linux.REAP, linux.LOOK, linux.CLD_EXITED


def wait_or_open(pid: int, timeout: "float | None", reap: bool) -> "int | Handle":
    """The exit code of our child; in all other cases a handle, with which the wait goes on.

    ``timeout`` is in seconds, at most 24 days, and more than 0. Raises the OSError of pidfd_open.
    """
    owner = next(map(own, map(calls.get("pidfd_open"), (pid,), (0,))))  # as opened() does
    code = reaped = None
    try:
        fd = owner.fileno()
        poll = select.poll()
        poll.register(fd, _POLLIN)
        for _, event in poll.poll(None if timeout is None else timeout * 1000):
            if event != _POLLIN:
                reaped = True if event & select.POLLHUP else None
                break
            reaped = False
            info = calls.get("waitid")(_P_PIDFD, fd, _REAP if reap else _LOOK)
            if info is not None:
                code = info.si_status if info.si_code == _CLD_EXITED else -info.si_status
                owner.close()
                return code  # type: ignore[no-any-return]
            reaped = None
    except BaseException as error:
        if not isinstance(error, (OSError, AttributeError)) or is_of_signal_handler(error):
            close(owner)
            raise
        if not isinstance(error, ChildProcessError):  # the handle meets it again
            log("pid %s: %s", pid, error)
            reaped = None
        if code is not None:  # somebody else has closed the pidfd
            return code  # type: ignore[no-any-return]
    # It is not our child, or runs, or a tracer prevents its reaping.
    return pidfd.PidfdHandle(pid, owner, reaped)
