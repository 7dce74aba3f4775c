# SPDX-License-Identifier: BSD-3-Clause
"""The command ``patch``: run a script, or with -m a module, under subprocess.patch()."""

import _signal  # type: ignore[import-not-found]
import builtins
import os
import sys
from types import ModuleType

from .shared import Command, CommandError, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Sequence

_PATCH_USAGE = "{prog} patch SCRIPT [ARGUMENT...]\n       {prog} patch -m MODULE [ARGUMENT...]"
_PATCH_TEXT = """\
Run a script or module as python does, with faster subprocesses: posix_spawn
starts them where Python would fork, and a wait does not poll.

  -m MODULE               run a module
  -V, --version           show the version
  -h, --help              show this

SCRIPT can also be a folder or zip file with a __main__.py.

exit status: as with python; 2 if SCRIPT can't be read, or for wrong arguments
"""
_PATCH = Command(" patch", _PATCH_USAGE, _PATCH_TEXT, "m|module")
_PATCH.intermixed = False


def patch_command(argv: "Sequence[str]") -> int:
    program: "list[Any]" = []
    try:
        status = _PATCH.run(lambda *words: _prepare(program, *words), argv)
        if program:
            run, *arguments = program
            run(*arguments)
        return status
    except BaseException as error:
        begin, show = error.__traceback__, sys.excepthook
        while begin and begin.tb_frame.f_globals.get("__name__") in (__name__, Command.__module__):
            begin = begin.tb_next
        # It begins in the file of the program, as it does under python.
        sys.excepthook = lambda kind, value, _: show(kind, value.with_traceback(begin), begin)
        raise


def _prepare(program: "list[Any]", options: "dict[str, str]", operands: "list[str]") -> int:
    """Put in what is to be called, and have all as it is when python runs the program."""
    if not operands:
        raise Usage("give a " + ("MODULE" if "module" in options else "SCRIPT"))
    import runpy
    from importlib.machinery import SourceFileLoader
    from pkgutil import get_importer

    from .. import subprocess

    path, main = operands[0], ModuleType("__main__")
    if "module" not in options and hasattr(sys, "platlibdir"):
        # From Python 3.9 on, which has that name, too. Only Windows takes dots out of it.
        path = os.path.abspath(path) if os.name == "nt" else os.path.join(os.getcwd(), path)
    # What python itself calls. What runpy documents would take the globals from what the program
    # leaves running.
    run_main = runpy._run_module_as_main  # type: ignore[attr-defined]
    # python -m has put a folder first, but not with -I or, from Python 3.11 on, -P.
    has_folder = not getattr(sys.flags, "safe_path", sys.flags.isolated)
    if "module" in options:
        folders = [os.getcwd()] if has_folder else []
        program[:] = run_main, path
    elif get_importer(path) is not None:  # a folder, or a zip file
        folders = [path]
        program[:] = run_main, "__main__", False
    else:
        folders = [os.path.dirname(os.path.realpath(path))] if has_folder else []
        try:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        except OSError as error:
            raise CommandError("%s: %s" % (operands[0], error.strerror), _PATCH.wrong) from None
        loader = SourceFileLoader("__main__", path)
        vars(main).update(__file__=path, __builtins__=builtins, __loader__=loader)
        program[:] = exec, code, vars(main)
    sys.path[:has_folder] = folders
    subprocess.patch()
    sys.argv = operands
    sys.modules["__main__"] = main
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:  # it is cli.main() that has set it so
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    return 0
