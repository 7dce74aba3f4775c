# SPDX-License-Identifier: BSD-3-Clause
"""Run the tests marked windows on Windows CPythons, under Wine.

python -m tests.matrix.windows [--python 3.7] [pytest arguments]: on each of VERSIONS, or on those
named; on some processors at once, or as -n says. With --readme by `python -m tests`, where pip
takes the packages from a folder.

As on Windows, pytest runs in a virtual environment, whose python.exe is a launcher: the interpreter
is its child. The launcher is CPython's own PC/venvlauncher.c, of 3.13 for all versions (what is on
Windows up to 3.12 is older, and puts the interpreter's path into the child's command line), built
with MinGW, as the interpreters here come without one.

It needs wine64 and wine (Debian's work), and at the first time mvn, as the interpreters come from
Maven Central, apt-get for CPython's sources, and gcc-mingw-w64-x86-64-win32. Interpreters, launcher
and the wheels of the tools are kept in a folder of the user's cache. Without these programs it is
skipped, or fails if the environment variable CI is set.
"""

import argparse
import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from . import freethreaded, interpreters
from .interpreters import CACHE
from .tools import check_tools, locked, replacing, run_each

ROOT = Path(__file__).resolve().parents[2]
FOLDER = CACHE / "windows"
LAUNCHER = FOLDER / "venvlauncher.exe"
COMPILER = "x86_64-w64-mingw32-gcc"
# org.bytedeco:cpython, the newest of each; there is no 3.8.
VERSIONS = {
    "3.7": "3.7.9-1.5.4",
    "3.9": "3.9.6-1.5.6",
    "3.12": "3.12.1-1.5.10",
    "3.14": "3.14.3-1.5.13",
}
WHEELS = "pytest pytest-timeout pytest-xdist cffi".split()
# pip evaluates environment markers for its own interpreter, so these are named here.
MARKED = {"": "colorama tomli exceptiongroup typing_extensions", "3.7": "importlib_metadata zipp"}


def fetch_python(folder, version):
    """Fetch a CPython without large unused parts and _wmi, which crashes platform under Wine."""
    top = "org/bytedeco/cpython/windows-x86_64/"
    with replacing(folder) as new, tempfile.TemporaryDirectory() as tmp:
        artifact = "org.bytedeco:cpython:{}:jar:windows-x86_64".format(version)
        copy = ["dependency:copy", "-Dartifact=" + artifact, "-DoutputDirectory=" + tmp]
        subprocess.check_call(["mvn", "-q", "-B", "-Dstyle.color=never"] + copy)
        (jar,) = Path(tmp).glob("*.jar")
        with zipfile.ZipFile(str(jar)) as archive:
            for name in archive.namelist():
                rest = name[len(top) :].lower()
                if name.startswith(top) and not re.match("lib/(test/|_wmi)|include/", rest):
                    archive.extract(name, str(new))
        for path in new.joinpath(top).iterdir():
            path.rename(new / path.name)


def build_launcher():
    """Build what a virtual environment on Windows has as its python.exe."""
    with tempfile.TemporaryDirectory() as tmp:
        interpreters.main()  # fetches sid, whose mirror has trixie, too
        repository = CACHE.joinpath("sid/etc/apt/sources.list").read_text().splitlines()[0]
        tree, new = freethreaded.sources(repository, Path(tmp)), LAUNCHER.with_suffix(".new")
        compile_ = [COMPILER, "-w", "-municode", "-IInclude", "PC/venvlauncher.c", "-lpathcch"]
        subprocess.check_call(compile_ + ["-o", str(new)], cwd=str(tree))
        new.rename(LAUNCHER)


def fetch_wheels(pip, folder, version, platforms, packages, how=("install", "--target")):
    """Fetch what another interpreter needs, by a pip that is made in a folder of its own."""
    if not pip.is_dir():
        with replacing(pip) as new:
            subprocess.check_call([sys.executable, "-m", "venv", str(new)])
    with replacing(folder) as new:
        command = [str(pip / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
        command += [*how, str(new), "--python-version", version]
        command += ["--platform=" + one for one in platforms]
        command += "-q --implementation cp --only-binary=:all:".split()
        subprocess.check_call(command + packages)


def fetch(version):
    """The folders of an interpreter, of the packages for it, and of their files for its own pip.

    Each is fetched once.
    """
    python = FOLDER / VERSIONS[version]
    wheels, files = (FOLDER / (version + name) for name in ("-wheels-xdist", "-files"))
    more = " ".join(MARKED.get(key, "") for key in ("", version)).split()
    with locked(FOLDER):
        if not python.is_dir():
            fetch_python(python, VERSIONS[version])
        if not wheels.is_dir():
            fetch_wheels(FOLDER / "pip", wheels, version, ["win_amd64"], WHEELS + more)
        if not files.is_dir():
            packages = WHEELS + more + ["psutil"]
            how = "download", "--dest"
            fetch_wheels(FOLDER / "pip", files, version, ["win_amd64"], packages, how)
        if not LAUNCHER.is_file():
            build_launcher()
        for name in "python.exe", "venvlauncher.exe":  # venv looks for one of them
            shutil.copy(str(LAUNCHER), str(python / "lib/venv/scripts/nt" / name))
        shutil.copy(str(Path(__file__).with_name("wine") / "sitecustomize.py"), str(python / "lib"))
    return python, wheels, files


@contextlib.contextmanager
def wine():
    """The environment of a fresh Windows, which is deleted after the block."""
    # It takes 700 MB, too much for a /tmp in memory.
    with tempfile.TemporaryDirectory(prefix="prefix-", dir=str(FOLDER)) as prefix:
        env = dict(os.environ, WINEPREFIX=prefix, WINEARCH="win64", WINEDEBUG="-all")
        env.pop("DISPLAY", None)
        try:
            # Without a persistent server, each first process takes a second or two.
            subprocess.check_call(["wineserver", "-p"], env=env)
            null = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
            subprocess.check_call(["wineboot", "-i"], env=env, timeout=600, **null)
            yield env
        finally:
            subprocess.call(["wineserver", "-k", "-w"], env=env, timeout=60)


PATIENCE = 120  # seconds
# Wine waits more than it computes.
OPTIONS = "-p xdist -n 4".split()
# Not our own stdout: Wine's python fails if that is a regular file.
PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def windows_path(path):
    return "Z:" + str(path).replace("/", "\\")


def run_suite(version, args, by_readme=False):
    """Return what has failed: a text, an exit code or 0."""
    python, wheels, files = fetch(version)
    with wine() as env, tempfile.TemporaryDirectory() as tmp:
        # A copy, or Windows' .pyc files, with their own paths, would get among ours.
        tree = Path(tmp, "tree")
        ignored = shutil.ignore_patterns(".*", "__pycache__")
        shutil.copytree(str(ROOT), str(tree), ignore=ignored)
        command = ["wine", str(python / "python.exe"), "-m"]
        if by_readme:
            command += ["tests", *args]
            env.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=windows_path(files))
        else:
            venv = Path(tmp, "venv")
            made = subprocess.run(
                command + ["venv", "--without-pip", windows_path(venv)], env=env, **PIPES
            )
            if made.returncode:
                return made.stdout.decode("utf-8", "replace")
            (venv / "Lib/site-packages/wheels.pth").write_text(windows_path(wheels) + "\n")
            command = ["wine", str(venv / "Scripts/python.exe"), "-m", "pytest", *OPTIONS, *args]
            env["PYTHONPATH"] = windows_path(tree)
        with subprocess.Popen(command, cwd=str(tree), env=env, **PIPES) as process:
            fault = copy_output(process)
        # Only one byte of the exit code arrives, which may be 0 after a crash.
        return fault or process.returncode


def holders(pipe):
    """The processes that have this pipe open, this one aside: their pids and command lines."""
    inode = os.fstat(pipe.fileno()).st_ino
    for folder in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            opened = (os.stat(str(link)).st_ino for link in folder.glob("fd/*"))
            if inode in opened and int(folder.name) != os.getpid():
                words = folder.joinpath("cmdline").read_bytes().split(b"\0")
                yield folder.name + ": " + b" ".join(words).decode("utf-8", "replace")


def copy_output(process):
    """Print what a suite prints; return what is wrong with it, or None."""
    last = rest = b""
    give_up = None  # What a test has killed may take some seconds to end.
    while True:
        if give_up is None and process.poll() is not None:
            give_up = time.monotonic() + PATIENCE
        if not select.select([process.stdout], [], [], 1)[0]:
            if give_up is not None and time.monotonic() > give_up:
                left = "\n".join(holders(process.stdout))
                return "a test has left what has the suite's stdout open:\n" + left
            continue
        some = os.read(process.stdout.fileno(), 65536)
        *lines, rest = (rest + some).split(b"\n")
        for line in lines if some else [rest]:
            print(line.decode("utf-8", "replace").rstrip("\r"), flush=True)
            last = line.strip() or last
        if not some:
            break
    if not re.search(rb"\d+ (passed|deselected|skipped).* in \d|\d s in all, ", last):
        return "the suite has not come to its end"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", choices=list(VERSIONS), default=[])
    parser.add_argument("--readme", action="store_true")
    options, args = parser.parse_known_args()
    check_tools("wine", "wineboot", "wineserver", "mvn", COMPILER)
    versions = options.python or VERSIONS
    run_each("Windows, CPython", versions, lambda version: run_suite(version, args, options.readme))


if __name__ == "__main__":
    main()
