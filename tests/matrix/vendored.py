# SPDX-License-Identifier: BSD-3-Clause
"""Run the suite on copies of the package, under other names and in other places.

python tests/matrix/vendored.py WAY [pytest arguments]

folder         what the command vendor copies, three folders deep and under another name
bare           the same, by an interpreter with -S -E -s -OO; its children have -s alone: many of
               what the tests run in them needs its asserts
zip            the same in a zip
vendoring      what the tool `vendoring` makes of the sdist's wheel, as in pip; the tool has a
               virtual environment in the user's cache, as it does not run on old interpreters
vendoring-zip  the same in a zip
wait, many, trees  a copy of that part for Linux and BSD: tests that need more are skipped
"""

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pidwait-matrix"
FOLDERS = "acme/lib/_vendor"
PARTS = ("wait", "many", "trees")
WAYS = {"folder", "bare", "zip", "vendoring", "vendoring-zip", *PARTS}
WORKERS = 3  # the tests mostly wait
# "-S -E" would hide from children what they have to import.
BARE = ["-S", "-E", "-s", "-OO"]
BARE_CHILDREN = {"PYTHONNOUSERSITE": "1"}
# That asserts outside of tests do nothing is no news.
WITHOUT_ASSERTS = ["-W", "ignore:assertions not in test"]
BOOT = """if True:
    import sys
    sys.path[:0] = {path!r}
    if sys.argv[1] == "-u":  # as xdist starts a worker: -u -c CODE
        exec(sys.argv[3])
    else:
        import pytest
        sys.exit(pytest.main())
"""
# A plugin of pytest for a copy of a part. What the tests ask the probe is answered by a whole copy.
PLUGIN = """import re
import {name} as part, pytest, whole._base.checks, whole._systems.calls

def probe():
    whole._base.checks._answers.clear()
    whole._systems._backend.clear()
    whole._systems.calls.CALLS.clear()
    part._systems.backend()  # as the part's own would
    return whole.probe()

part.probe = probe
lacks = re.compile("module '{name}' has no attribute|No module named '{name}[.]"
                   "|cannot import name '.*' from '{name}'")

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.excinfo and lacks.search(str(call.excinfo.value)):
        why = "Skipped: the copy has no more than its part"
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1], why)

@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    report = (yield).get_result()
    if report.failed and lacks.search(str(report.longrepr)):
        report.outcome = "skipped"
        report.longrepr = str(collector.path), 0, "Skipped: the copy has no more than its part"
"""
PROJECT = """
[tool.vendoring]
destination = "{folders}/"
requirements = "vendor.txt"
namespace = "acme.lib._vendor"
protected-files = ["__init__.py", "vendor.txt"]

[tool.vendoring.transformations]
drop = ["bin/", "*.dist-info"]
"""


def call(*command, **kwargs):
    subprocess.check_call([str(one) for one in command], **kwargs)


def copy_tests(top, name):
    """All but the package; in tests, `pidwait` is the copy."""
    ignored = shutil.ignore_patterns(".git", ".tox", ".venv", ".*_cache", "__pycache__", "pidwait")
    shutil.copytree(str(ROOT), str(top), ignore=ignored)
    init = top / "tests" / "__init__.py"
    text, count = re.subn("(?m)^import pidwait$", "import %s as pidwait" % name, init.read_text())
    if count != 1:
        sys.exit("{} has `import pidwait` {} times".format(init, count))
    init.write_text(text)


def copy_folder(made, *options):
    vendor = sys.executable, "-m", "pidwait", "vendor"
    call(*vendor, *options, made / FOLDERS / "renamed", cwd=str(ROOT))
    return "renamed"


def complete(top, name):
    """Beside a copy of a part: the plugin, and a whole copy, where seam.py finds other modules."""
    call(sys.executable, "-m", "pidwait", "vendor", top / "whole", cwd=str(ROOT))
    top.joinpath("lacking.py").write_text(PLUGIN.format(name=name))
    seam = top / "tests" / "seam.py"
    text, lacking = seam.read_text(), "            raise\n        return pidwait\n"
    if text.count(lacking) != 1:
        sys.exit("{} does not look for modules as before".format(seam))
    other = '            return importlib.import_module("whole." + name)\n        return pidwait\n'
    seam.write_text(text.replace(lacking, other))


def copy_vendoring(made):
    tool = environment()
    made.joinpath(FOLDERS).mkdir(parents=True)
    wheels = made / "wheels"
    build = "from flit_core import buildapi as b; import sys; b.build_%s(sys.argv[1])"
    call(tool / "python", "-c", build % "sdist", wheels, cwd=str(ROOT))
    (sdist,) = wheels.glob("*.tar.gz")
    shutil.unpack_archive(str(sdist), str(made / "sdist"))
    (unpacked,) = made.joinpath("sdist").iterdir()
    call(tool / "python", "-c", build % "wheel", wheels, cwd=str(unpacked))
    sdist.unlink()
    (wheel,) = wheels.iterdir()
    made.joinpath("pyproject.toml").write_text(PROJECT.format(folders=FOLDERS))
    made.joinpath("vendor.txt").write_text("==".join(wheel.name.split("-")[:2]) + "\n")
    env = dict(os.environ, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    env.update(PATH=str(tool) + os.pathsep + os.environ["PATH"], PIP_DISABLE_PIP_VERSION_CHECK="1")
    # vendoring's folder for downloads has one name for all who run it at the same time.
    env["TMPDIR"] = str(made / "tmp")
    made.joinpath("tmp").mkdir()
    env.pop("PYTHONPATH", None)
    call(tool / "vendoring", "sync", cwd=str(made), env=env)
    if not made.joinpath(FOLDERS, "pidwait", "LICENSE").exists():
        sys.exit("the vendored package lacks its LICENSE")
    return "pidwait"


def environment():
    """The folder of programs of a virtual environment with vendoring and flit_core."""
    CACHE.mkdir(parents=True, exist_ok=True)
    top = CACHE / "vendoring"
    with CACHE.joinpath("vendoring.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not top.joinpath("made").exists():
            python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
            call(python, "-m", "venv", "--clear", top)
            pip = [top / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
            # requests, for licences that are elsewhere.
            call(*pip + ["install", "--quiet", "vendoring", "requests", "flit_core>=3.11,<5"])
            top.joinpath("made").touch()
    return top / "bin"


def put_in_zip(top):
    with zipfile.ZipFile(str(top / "app.zip"), "w") as archive:
        for path in sorted(top.joinpath("acme").rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                archive.write(str(path), path.relative_to(top).as_posix())
    shutil.rmtree(str(top / "acme"))


def command(way, top, path):
    if way != "bare":
        return [sys.executable, "-m", "pytest"] + ["-p", "lacking"] * (way in PARTS)
    boot = top / "boot.py"
    boot.write_text(BOOT.format(path=path + [one for one in sys.path[1:] if one]))
    bare = [sys.executable] + BARE + [str(boot)]
    spec = "%d*popen//python=%s" % (WORKERS, " ".join(map(shlex.quote, bare)))
    return bare + ["-p", "xdist", "--dist", "load", "--tx", spec] + WITHOUT_ASSERTS


def run(way, args):
    with tempfile.TemporaryDirectory() as tmp:
        made, top = Path(tmp, "made"), Path(tmp, "suite")
        made.mkdir()
        options = ["--parts", way, "--systems", "linux,bsd"] if way in PARTS else []
        name = copy_vendoring(made) if way.startswith("vendoring") else copy_folder(made, *options)
        name = "%s.%s" % (FOLDERS.replace("/", "."), name)
        copy_tests(top, name)
        for folder in "acme", "acme/lib", FOLDERS:
            made.joinpath(folder, "__init__.py").touch()
        shutil.move(str(made / "acme"), str(top / "acme"))
        if way in PARTS:
            complete(top, name)
        path = [str(top)]
        if way.endswith("zip"):
            put_in_zip(top)
            path.insert(0, str(top / "app.zip"))
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(path))
        if way == "bare":
            env.update(BARE_CHILDREN)
        check = "import {} as it, sys; print(it.__name__, 'in', it.__spec__.origin)"
        elsewhere = "; import importlib.util; sys.exit(importlib.util.find_spec('pidwait'))"
        code = check.format(name) + elsewhere
        if subprocess.call([sys.executable, "-c", code], env=env, cwd=str(top)):
            sys.exit("it can't be imported, or another pidwait can")
        print("The suite:", way, flush=True)
        return subprocess.call(command(way, top, path) + args, env=env, cwd=str(top))


def main():
    if sys.argv[1:2] == [] or sys.argv[1] not in WAYS:
        sys.exit(__doc__.strip())
    return run(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
