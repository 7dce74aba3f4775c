# SPDX-License-Identifier: BSD-3-Clause
"""The properties of a system that the package depends on."""

from .._base.deadline import cpu_clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Callable, Check, Checks, Clock, Opener


class System:
    """A system: its backend's name and check, and what opens handles and polled handles.

    ``clock`` measures the cost of a look at a polled process. ``parent_of`` returns the pid of a
    process's parent: 0 if it is in another PID namespace, -1 if it has exited (Windows), None if it
    is not known. ``tree`` is the mechanism that ends trees: "reaper", "job" or "group".
    ``checks_of`` has the checks that probe() shows: the backend's, and the others. ``received``
    makes a handle from a file descriptor.
    """

    def __init__(
        self,
        backend: str,
        check: "Check",
        handle: "Opener",
        polled: "Opener",
        parent_of: "Callable[[int], int | None]",
        tree: str,
        checks_of: "tuple[Checks, Checks]",
        clock: "Clock" = cpu_clock,
        received: "Opener | None" = None,
    ) -> None:
        self.backends = backend, "polling"
        self.checks: "dict[str, Check]" = {backend: check, "polling": lambda: None}
        self.handle, self.polled, self.clock, self.received = handle, polled, clock, received
        self.parent_of, self.tree, self.checks_of = parent_of, tree, checks_of
