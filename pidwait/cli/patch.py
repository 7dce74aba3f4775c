# SPDX-License-Identifier: BSD-3-Clause
"""The command ``patch``: run a script, or with -m a module, under subprocess.patch()."""

import _signal  # type: ignore[import-not-found]
import builtins
import os
import sys
from types import ModuleType

from ._common import Command, Usage, check_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

_USAGE = """\
{prog} patch SCRIPT [ARGUMENT...]
       {prog} patch -m MODULE [ARGUMENT...]"""
_TEXT = """\
Run a script, or a module, as python does. Its subprocesses are started by
posix_spawn where Python would fork, and waited for without a busy loop.

  -m MODULE               run a module
  -V, --version           show the version
  -h, --help              show this

exit status: that of the script; 2 if there is none
"""

COMMAND = Command(" patch", _USAGE, _TEXT, "m|module")
COMMAND.intermixed = False


def main(argv: "Sequence[str]") -> int:
    return COMMAND.run(_main, argv)


def _main(options: "dict[str, str]", operands: "list[str]") -> int:
    if not operands:
        raise Usage("give a " + ("MODULE" if "module" in options else "SCRIPT"))
    check_environment()
    from .. import subprocess

    subprocess.patch()
    sys.argv = operands
    if "module" in options:
        import runpy

        sys.path[0] = os.getcwd()
        _restore_ctrl_c()
        runpy.run_module(operands[0], run_name="__main__", alter_sys=True)
        return 0
    path = operands[0]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise Usage("%s: %s" % (path, error.strerror)) from None
    _restore_ctrl_c()
    code = compile(source, path, "exec", dont_inherit=True)
    # Not runpy's: what the script leaves running still has its globals.
    module = ModuleType("__main__")
    vars(module).update({"__file__": path, "__builtins__": builtins})
    sys.modules["__main__"] = module
    exec(code, vars(module))
    return 0


def _restore_ctrl_c() -> None:
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:  # it is main() that has set it so
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
