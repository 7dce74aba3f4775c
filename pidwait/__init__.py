# SPDX-License-Identifier: BSD-3-Clause
"""Wait for processes to exit, without polling, on every Python from 3.6 on.

Import two more modules by name, unless a copy is without them: ``aio`` waits in asyncio;
``subprocess`` is the standard library's subprocess, but starts processes by posix_spawn and waits
for them without polling.
"""

import sys

# Older Pythons can read this file: it has no annotations.
if sys.version_info < (3, 6):
    raise ImportError("%s needs Python 3.6 or newer" % __name__)

from ._base.errors import TimeoutExpired
from ._base.handle import Usage
from ._ending import end_procs
from ._finding import ProcessInfo, process_iter
from ._probe import probe
from ._process import Process, has_exited, pid_exists, wait
from ._sets import WaitSet, as_completed, wait_procs
from ._starting.spawn import Child, spawn
from ._watching import Watch, watch, watch_parent

__version__ = "0.2.0"

__all__ = ["Child", "Process", "ProcessInfo", "TimeoutExpired", "Usage", "WaitSet", "Watch"]
__all__ += ["as_completed", "end_procs", "has_exited", "pid_exists", "probe", "process_iter"]
__all__ += ["spawn", "wait", "wait_procs", "watch", "watch_parent"]


def _load_all():  # type: () -> None
    """Import what CPython's -X lazy_imports=all would import in the middle of a wait."""
    known = 0
    while known < len(sys.modules):
        known = len(sys.modules)
        for name, module in list(sys.modules.items()):
            if (name + ".").startswith(__name__ + "."):
                for attribute in list(vars(module)):
                    getattr(module, attribute)


def _name_classes():  # type: () -> None
    """Name the public module in __module__ of classes; of methods, too: pydoc of 3.13 shows it."""
    for name in __all__:
        found = globals()[name]
        for value in [found] + list(vars(found).values()) if isinstance(found, type) else ():
            named = getattr(value, "__func__", value)  # of a classmethod
            if named is found or hasattr(named, "__code__"):
                named.__module__ = __name__


_load_all()
_name_classes()
