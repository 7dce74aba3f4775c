# SPDX-License-Identifier: BSD-3-Clause
"""Run the suite on a vendored copy: the wheel of the sdist, moved to acme/_vendor/pidwait."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from flit_core import buildapi

ROOT = Path(__file__).resolve().parents[2]


def build(tmp):
    """Unpack the sdist, and in it as acme/_vendor the wheel that it builds; return the folder."""
    os.chdir(str(ROOT))
    sdist = buildapi.build_sdist(str(tmp))
    shutil.unpack_archive(str(tmp / sdist), str(tmp))
    top = tmp / sdist[: -len(".tar.gz")]
    os.chdir(str(top))
    wheel = buildapi.build_wheel(str(tmp))
    shutil.rmtree(str(top / "pidwait"))
    vendor = top / "acme" / "_vendor"
    shutil.unpack_archive(str(tmp / wheel), str(vendor), "zip")
    for folder in vendor, vendor.parent:
        folder.joinpath("__init__.py").touch()
    return top


def check_files(vendor):
    def files(top, *suffixes):
        found = (p for p in top.joinpath("pidwait").rglob("*") if p.is_file())
        return {str(p.relative_to(top)) for p in found if p.suffix.endswith(suffixes)}

    want, have = files(ROOT, ".py", ".typed"), files(vendor, "")
    for name in sorted(want ^ have):
        print("the wheel", "lacks" if name in want else "also has", name)
    if want != have:
        sys.exit(1)


def redirect(init):
    text, count = re.subn(
        "(?m)^import pidwait$", "import acme._vendor.pidwait as pidwait", init.read_text()
    )
    if count != 1:
        sys.exit("{} has `import pidwait` {} times".format(init, count))
    init.write_text(text)


def main():
    with tempfile.TemporaryDirectory() as tmp:
        top = build(Path(tmp))
        check_files(top / "acme" / "_vendor")
        redirect(top / "tests" / "__init__.py")
        env = dict(os.environ, PYTHONPATH=str(top))
        elsewhere = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pidwait'))"
        if subprocess.call([sys.executable, "-c", elsewhere], env=env, cwd=str(top)):
            sys.exit("another pidwait is importable")
        return subprocess.call([sys.executable, "-m", "pytest"] + sys.argv[1:], env=env)


if __name__ == "__main__":
    sys.exit(main())
