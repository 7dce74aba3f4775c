# SPDX-License-Identifier: BSD-3-Clause
"""What a look at a process finds: RUNNING, or an exit code; None if the system tells no code."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import Enum
    from typing import Final, Union  # novm

    class Running(Enum):
        RUNNING = 0

    RUNNING: Final = Running.RUNNING  # novm
    Outcome = Union[int, None, Running]
else:
    RUNNING = object()  # loading enum would take longer than loading all of the package


class NotYet(Exception):
    """Our child has exited, but can't be reaped yet: a tracer prevents it."""


def from_status(status: int) -> int:
    """The exit code in a wait status, see wait(2)."""
    signal = status & 0x7F
    return -signal if signal else status >> 8 & 0xFF
