# SPDX-License-Identifier: BSD-3-Clause
"""A file descriptor that is closed once, wherever an exception comes from."""

import os

from ._errors import log


class FileDescriptor:
    """What has one in ``fd``, and closes it."""

    # A signal handler may raise between any two lines: an fd is taken and given
    # back within one, and __del__ is for where nobody else would close.
    fd = -1

    def close(self) -> None:
        try:
            fd, self.fd = self.fd, -1; os.close(fd)  # fmt: skip  # noqa: E702
        except OSError as error:  # somebody else has closed it
            log("close: %s", error)

    def __del__(self) -> None:
        if self.fd >= 0:
            self.close()
