# SPDX-License-Identifier: BSD-3-Clause
"""The option --probe: what this system offers for waiting."""

import json

from .. import _probe
from ._common import write_line


def show_probe(as_json: bool) -> int:
    answer = _probe.probe()
    if as_json:
        write_line(json.dumps(answer, indent=2))
        return 0
    for key in ("system", "python", "backend"):
        write_line("%-20s %s" % (key, answer[key]))
    for section in ("backends", "bindings", "calls"):
        write_line("\n%s" % section)
        for name, row in answer[section].items():
            via = " (%s)" % row["via"] if row.get("via") else ""
            text = "yes" + via if row["available"] else "no: " + row["reason"]
            write_line("  %-18s %s" % (name, text))
    return 0
