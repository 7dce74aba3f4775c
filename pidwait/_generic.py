# SPDX-License-Identifier: BSD-3-Clause
"""Generic classes for type checkers, without typing at run time: class Box(Generic[P])."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic as Generic

    from typing_extensions import TypeVar  # novm

    from ._targets import Proc

    # The type of the processes. If nothing tells it, as for an empty set: all that wait() takes.
    P = TypeVar("P", bound=Proc, default=Proc)  # novm
    P_co = TypeVar("P_co", bound=Proc, default=Proc, covariant=True)  # novm
else:
    P = P_co = None
    Generic = {None: object}
