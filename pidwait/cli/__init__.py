# SPDX-License-Identifier: BSD-3-Clause
"""The command line, python -m PACKAGE: a file per command, and main() to choose one."""

# Without its enums, which take longer to load than all of this.
import _signal  # type: ignore[import-not-found]
import os
import sys

from .._base.errors import IS_WHOLE
from .shared import Command, as_status, called_by


def main(argv: "list[str] | None" = None) -> int:
    """Run a command, and return its exit status.

    Without ``argv``, it is the program: it takes the arguments of the command line, and exits
    with the status, because zipapp's -m drops a return value.
    """
    Command.prog = called_by(argv is None)
    if argv is not None:
        return _run_command(argv)
    # From here on Ctrl-C ends the process at once, even during an import. On Windows SIG_DFL would
    # leave Ctrl-C to the system, whose exit status is 0 under Wine.
    if os.name != "nt" and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    try:
        sys.exit(_run_command(sys.argv[1:]))
    except KeyboardInterrupt:
        if os.name != "nt":
            raise
        sys.exit(as_status(0xC000013A))  # STATUS_CONTROL_C_EXIT


def _run_command(arguments: "list[str]") -> int:
    # Each command loads only what it needs: the command line must start quickly.
    command = arguments[0] if arguments and IS_WHOLE else None
    if command == "run":
        from .run import RUN, run_job

        return RUN.run(run_job, arguments[1:])
    if command == "vendor":
        from .vendor import VENDOR, vendor

        return VENDOR.run(vendor, arguments[1:])
    from .wait import WAIT, wait_for_exits

    return WAIT.run(wait_for_exits, arguments)
