# SPDX-License-Identifier: BSD-3-Clause
"""The command line calls itself by the name by which it was called, and its advice works."""

import re
import subprocess
import sys
import zipapp

import pytest

from .. import pidwait
from ..processes import not_on_windows
from .recipes import Folder

posix = not_on_windows("files that can be executed by their first line")
PROGRAM = "#!/usr/bin/env python3\nimport sys\nfrom pidwait.cli import main\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Programs with the package, and copies of it."""
    folder = Folder(tmp_path_factory.mktemp("programs"))
    vendor = [sys.executable, "-m", pidwait.__name__, "vendor"]
    for more in ["acme/_vendor/waits"], ["--single-file", "alone.py"], ["app/pidwait"]:
        subprocess.check_call(vendor + more, cwd=str(folder.path), stdout=subprocess.DEVNULL)
    for name in "bin/py-waits", "app/__main__.py":
        folder.write(name, PROGRAM).chmod(0o755)
    app = str(folder.path / "app")
    zipapp.create_archive(app, str(folder.path / "wait.pyz"), "/usr/bin/env python3")
    zipapp.create_archive(app, str(folder.path / "plain.pyz"))
    return folder


@posix
@pytest.mark.parametrize(
    "name, called",
    [
        ("python3 -m pidwait", None),
        ("python3 -m acme._vendor.waits", None),
        ("./alone.py", None),
        ("./alone.py", "python3 alone.py"),
        ("py-waits", None),
        ("bin/py-waits", None),
        ("./wait.pyz", None),
        ("./wait.pyz", "python3 wait.pyz"),
        ("python3 plain.pyz", None),
        ("python3 app", None),
        ("python3 -m pidwait", "python3 -c 'from pidwait.cli import main; main()'"),
        ("python3 -m pidwait", "python3 -c 'from pidwait.cli import main; exit(main([\"-x\"]))'"),
    ],
)
def test_it_calls_itself_as_it_was_called(folder, name, called):
    path = {"PYTHONPATH": str(folder.path)}
    for command in ("",) if "alone" in name or called else ("", " run"):
        line = "%s%s --nonesuch" % (called or name, command)
        status, _, err = folder.shell(line, **path)
        advice = re.search(r"\(see (.*)\)$", err).group(1)
        assert status == (125 if "run" in command else 2)
        assert err.startswith(name + command + ": ") and advice == name + command + " -h"
        status, out, err = folder.shell(advice, **path)
        assert (status, err) == (0, "") and out.startswith("usage: " + name + " ")
    assert folder.shell(name + " -V", **path) == (0, "%s %s\n" % (name, pidwait.__version__), "")
