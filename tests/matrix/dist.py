# SPDX-License-Identifier: BSD-3-Clause
"""What others get: build the sdist and the wheel, or install from this folder, and look at it.

python -m tests.matrix.dist FOLDER|--install: builds both into the folder, which needs flit_core and
twine; or needs only pip, which fetches flit_core. From pip 19 on it does so; older ones know no
pyproject.toml.
"""

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from .. import pidwait

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = "pidwait", "tests", ".github"
BESIDE = "CHANGELOG.md LICENSE README.md pyproject.toml tox.ini".split()


def tree(*folders):
    """The files of these folders, but what Python has compiled."""
    found = (path for folder in folders for path in ROOT.joinpath(folder).rglob("*"))
    kept = (path for path in found if path.is_file() and path.parent.name != "__pycache__")
    return {path.relative_to(ROOT).as_posix() for path in kept}


def build(folder):
    from flit_core import buildapi

    names = buildapi.build_sdist(folder), buildapi.build_wheel(folder)
    return [os.path.join(folder, name) for name in names]


def in_sdist(path):
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    return set(names) - {"PKG-INFO"}


def in_wheel(path):
    """Its files without those of .dist-info, and its metadata."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        top = os.path.dirname(metadata) + "/"
        text = archive.read(metadata).decode()
    return {name for name in names if not name.startswith(top)}, email.message_from_string(text)


def differences(what, have, want):
    return ["%s lacks %s" % (what, name) for name in sorted(want - have)] + [
        "%s has besides %s" % (what, name) for name in sorted(have - want)
    ]


def check_build(folder):
    os.chdir(str(ROOT))
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    sdist, wheel = build(folder)
    wrong = differences("the sdist", in_sdist(sdist), tree(*FOLDERS) | set(BESIDE))
    files, metadata = in_wheel(wheel)
    wrong += differences("the wheel", files, tree("pidwait"))
    for name, value in (
        ("Version", pidwait.__version__),
        ("License-Expression", "BSD-3-Clause"),
        ("License-File", "LICENSE"),
        ("Requires-Python", ">=3.6"),
    ):
        if metadata[name] != value:
            wrong.append("the metadata's %s is %r, not %r" % (name, metadata[name], value))
    print("\n".join(wrong + [str(metadata).partition("\n\n")[0]]), flush=True)
    twine = [sys.executable, "-m", "twine", "check", "--strict", sdist, wheel]
    return subprocess.call(twine) or bool(wrong)


def check_install():
    """By pip as it is, the package alone; then use it from elsewhere."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as tmp:
        copy, site = os.path.join(tmp, "copy"), os.path.join(tmp, "site")
        # A failed build leaves nothing in this folder.
        shutil.copytree(
            str(ROOT), copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "tests")
        )
        subprocess.check_call(pip + ["--version"])
        subprocess.check_call(pip + ["install", "--quiet", "--target", site, copy])
        code = "import pidwait; print(pidwait.__file__, pidwait.wait(pidwait.spawn(['true'])))"
        env = dict(os.environ, PYTHONPATH=site)
        shown = subprocess.check_output(
            [sys.executable, "-c", code], cwd=tmp, env=env, universal_newlines=True
        )
        shown += subprocess.check_output(
            [os.path.join(site, "bin", "py-pidwait"), "--version"], env=env, universal_newlines=True
        )
    wanted = "%s 0\n" % os.path.join(site, "pidwait", "__init__.py")
    wanted += "%s %s\n" % ("py-pidwait", pidwait.__version__)
    if shown != wanted:
        print("installed and used: %r, not %r" % (shown, wanted))
    return shown != wanted


if __name__ == "__main__":
    sys.exit(check_install() if sys.argv[1] == "--install" else check_build(sys.argv[1]))
