# SPDX-License-Identifier: BSD-3-Clause
"""python -m pidwait --probe: what probe() tells, to be read."""

import json
import re

import pytest

from .. import pidwait


@pytest.mark.windows
def test_the_command_line_shows_it(variant, backend, main):
    done = main("--probe", "--json")
    answer = pidwait.probe()
    assert done[::2] == (0, "") and json.loads(done.stdout) == answer
    done = main("--probe")
    assert done[::2] == (0, "")
    for key in "system", "python", "backend":
        assert re.search("^%s +%s$" % (key, re.escape(answer[key])), done.stdout, re.M)
    for section in "backends", "bindings", "calls":
        rows = done.stdout.partition("\n\n%s\n" % section)[2].partition("\n\n")[0].splitlines()
        assert len(rows) == len(answer[section])
        for line, (name, row) in zip(rows, answer[section].items()):
            via = " (%s)" % row["via"] if row.get("via") else ""
            shown = "yes" + via if row["available"] else "no: " + row["reason"]
            assert line.startswith("  " + name) and line.endswith(" " + shown)
