# SPDX-License-Identifier: BSD-3-Clause
"""Starting the command of ``run``, as execvp(3) would."""

import os
from errno import ENOENT, ENOEXEC

from ..spawning import spawn
from ._common import PROG, CommandError
from ._output import complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from .._child import Child

RUN = " run"

# As in GNU timeout.
FAILED = 125
CANNOT_INVOKE = 126
NOT_FOUND = 127


def start(command: "Sequence[str]", process_group: "int | None" = None) -> "Child":
    """Start it, a script without #! by the shell, as execvp(3) does."""
    try:
        if not command[0]:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), "")
        return spawn(command, process_group=process_group)
    except OSError as error:
        path = _script(command[0]) if error.errno == ENOEXEC else None
        if path is None:
            raise CanNotStart(command[0], error) from None
    try:
        return spawn(["/bin/sh", path, *command[1:]], process_group=process_group)
    except OSError as error:
        raise CanNotStart(command[0], error) from None


def _script(name: str) -> "str | None":
    if "/" in name:
        return name
    from shutil import which

    return which(name)


class CanNotStart(CommandError):
    """The command has not been started."""

    def __init__(self, command: str, error: OSError) -> None:
        # On Windows the error does not name the command.
        super().__init__("can't start %r: %s" % (command, error.strerror or error))
        if error.errno == ENOENT:
            self.status = NOT_FOUND
        else:
            of_command = error.filename or isinstance(error, PermissionError)
            self.status = CANNOT_INVOKE if of_command else FAILED


def tell_of_signal(name: str, command: "Sequence[str]") -> None:
    complain("%s%s: sending signal %s to command %r" % (PROG, RUN, name, command[0]))
