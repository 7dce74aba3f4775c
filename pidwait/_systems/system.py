# SPDX-License-Identifier: BSD-3-Clause
"""What the package has to know of a system."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Callable, Check, Checks, Clock, Opener


class System:
    """A system: its backend's name, its check, and what makes handles and polled handles.

    ``clock`` measures what a look at a polled process costs; ``parent_of`` tells the parent of a
    process: 0 if it is in another PID namespace, -1 if it has exited (Windows), None if that is not
    known. ``tree`` is the mechanism that ends trees: "reaper", "job" or "group". ``checks_of`` has
    what probe() shows of the backend, and of what is there without it. ``received`` makes a handle
    of a file descriptor.
    """

    def __init__(
        self,
        backend: str,
        check: "Check",
        handle: "Opener",
        polled: "Opener",
        clock: "Clock",
        parent_of: "Callable[[int], int | None]",
        tree: str,
        checks_of: "tuple[Checks, Checks]",
        received: "Opener | None" = None,
    ) -> None:
        self.backends = backend, "polling"
        self.checks: "dict[str, Check]" = {backend: check, "polling": lambda: None}
        self.handle, self.polled, self.clock, self.received = handle, polled, clock, received
        self.parent_of, self.tree, self.checks_of = parent_of, tree, checks_of
