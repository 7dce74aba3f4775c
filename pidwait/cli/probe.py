# SPDX-License-Identifier: BSD-3-Clause
"""The option --probe: what this system offers for waiting."""

from .. import _systems
from ._output import write


def show_probe(as_json: bool) -> int:
    answer = _systems.probe()
    if as_json:
        import json

        write(json.dumps(answer, indent=2) + "\n")
        return 0
    lines = ["%-20s %s" % (key, answer[key]) for key in ("system", "python", "backend")]
    for section in ("backends", "bindings", "calls"):
        lines += ["", section]
        for name, row in answer[section].items():
            via = " (%s)" % row["via"] if row.get("via") else ""
            text = "yes" + via if row["available"] else "no: " + row["reason"]
            lines.append("  %-18s %s" % (name, text))
    write("\n".join(lines) + "\n")
    return 0
