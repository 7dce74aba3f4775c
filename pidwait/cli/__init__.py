# SPDX-License-Identifier: BSD-3-Clause
"""The command line, python -m PACKAGE: a file per command, and main() to choose one."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence


def main(argv: "Sequence[str] | None" = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    # Each loads only what it needs: the command line is to start quickly.
    if arguments[:1] == ["run"]:
        from .run import main as run

        return run(arguments[1:])
    if arguments[:1] == ["patch"]:
        from .patch import main as patch

        return patch(arguments[1:])
    from .wait import main as wait

    return wait(arguments)
