# SPDX-License-Identifier: BSD-3-Clause
"""Linux: the wait for our own child by its pid, in as few steps as it can be written out.

After the sleep the caches are cold, and each name and call costs. So for what is waited for most,
nothing is made that is not needed: neither a handle nor a Deadline.
"""

import select

from .._errors import is_of_signal_handler, log
from .._fd import close
from .._ffi import calls, linux
from . import pidfd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .contract import Handle


def wait_or_open(pid: int, timeout: "float | None", reap: bool) -> "int | Handle":
    """The exit code of our child; in all other cases a handle, with which the wait goes on."""
    owner = pidfd.open_pidfd(pid)
    code = reaped = None
    try:
        fd = owner.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        for _, event in poll.poll(None if timeout is None else timeout * 1000):
            if event != select.POLLIN:
                reaped = True if event & select.POLLHUP else None
                break
            reaped = False
            info = calls.get("waitid")(linux.P_PIDFD, fd, linux.REAP if reap else linux.LOOK)
            if info is not None:
                code = info.si_status if info.si_code == linux.CLD_EXITED else -info.si_status
            reaped = None
    except BaseException as error:
        if not isinstance(error, (OSError, AttributeError)) or is_of_signal_handler(error):
            close(owner)
            raise
        if not isinstance(error, ChildProcessError):  # the handle meets it again
            log("pid %s: %s", pid, error)
            reaped = None
    if code is not None:
        close(owner)
        return code  # type: ignore[no-any-return]
    # It is not our child, or runs, or a tracer prevents its reaping.
    return pidfd.PidfdHandle(pid, owner, reaped)
