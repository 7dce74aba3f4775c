# SPDX-License-Identifier: BSD-3-Clause
"""The option --list: what would be waited for."""

from .._base.errors import raise_of_handler
from ._common import PROG, CommandError, no_process
from ._output import complain, write
from ._waited import NOT_THERE, is_gone, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

    from ._waited import Waited

_SHOWN = "pid", "name", "ppid", "username", "cmdline", "create_time", "status"


def show(all_: "Sequence[Waited]", options: "Mapping[str, str]") -> int:
    """Return the exit status."""
    status = 0
    line = _as_json if "json" in options else _as_text
    for one in all_:
        try:
            text = line(one)
        except ProcessLookupError as error:
            raise_of_handler(error)
            if one.chosen is None and "exited" not in options:
                complain(NOT_THERE % (PROG, one.pid))
                status = no_process("exit-code" in options)
            continue
        write(text + "\n")
    return status


def _as_text(one: "Waited") -> str:
    if one.chosen is None:
        from .._process import pid_exists

        if is_gone(one.pid) or not pid_exists(one.pid):
            raise ProcessLookupError
        one.name = name_of(one.pid)
    return str(one)


def _as_json(one: "Waited") -> str:
    import json

    from .._finding import ProcessInfo

    try:
        info = one.chosen or ProcessInfo(one.pid)
        found = info.as_dict(_SHOWN)
    except ProcessLookupError as error:
        raise_of_handler(error)
        raise
    except OSError as error:
        raise_of_handler(error)
        raise CommandError(error.strerror or str(error)) from None
    return json.dumps({name: found[name] for name in _SHOWN})
