# SPDX-License-Identifier: BSD-3-Clause
"""The command ``patch``: run a script, or with -m a module, under subprocess.patch()."""

import builtins
import os
import sys
from types import ModuleType

from .. import subprocess
from ._common import PROG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

_PROG = PROG + " patch"


def main(argv: "Sequence[str]") -> int:
    if not argv or argv[0] in ("-h", "--help") or argv == ["-m"]:
        print("usage: %s SCRIPT [ARGUMENT...]\n       %s -m MODULE [ARGUMENT...]" % (_PROG, _PROG))
        return 0 if argv and argv[0] != "-m" else 2
    subprocess.patch()
    if argv[0] == "-m":
        import runpy

        sys.argv = list(argv[1:])
        sys.path[0] = os.getcwd()
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return 0
    sys.argv = list(argv)
    sys.path[0] = os.path.dirname(os.path.realpath(argv[0]))
    try:
        with open(argv[0], "rb") as file:
            code = compile(file.read(), argv[0], "exec", dont_inherit=True)
    except OSError as error:
        print("%s: %s" % (_PROG, error), file=sys.stderr)
        return 2
    # Not runpy's: what the script leaves running still has its globals.
    module = ModuleType("__main__")
    vars(module).update({"__file__": argv[0], "__builtins__": builtins})
    sys.modules["__main__"] = module
    exec(code, vars(module))
    return 0
