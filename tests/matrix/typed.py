# SPDX-License-Identifier: BSD-3-Clause
"""Check a project with copies of the package, as type checkers and editors see them.

mypy --strict, pyright and ty find nothing wrong with its uses, trees among them, and find a
misspelt name. jedi, which vim, Spyder and IPython use, completes each public name, and shows its
parameters. One copy is a folder under another name, the other one a single file.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jedi

ROOT = Path(__file__).resolve().parents[2]
USES = """\
from typing import List, Optional, Tuple

from acme import waits
from acme._vendor import renamed
from acme._vendor.renamed import aio, subprocess


def tree(command: List[str]) -> Tuple[str, float]:
    try:
        done = subprocess.run(
            command, timeout=60, tree=True, grace=5, process_group=0, capture_output=True, text=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return str(error), error.usage.user if error.usage else 0.0
    return done.stdout.upper(), done.usage.max_rss if done.usage else 0.0


def opened(command: List[str]) -> Tuple[List[int], Optional[int]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, tree="wait") as popen:
        print(popen.mechanism, popen.communicate()[0].decode(), popen.usage)
        return popen.left or [], popen.end(grace=2.5)


async def awaited(command: List[str]) -> str:
    done = await aio.run(command, tree=True, encoding="utf-8", stdout=subprocess.PIPE)
    return done.stdout + subprocess.check_output(command, tree="leave", errors="replace")


def by_the_folder(pid: int) -> Optional[int]:
    with renamed.WaitSet([pid]) as waiting:
        for proc, exitcode in waiting.wait(1):
            print(proc + 1, exitcode)
    return renamed.wait(pid, 1)


def by_the_file(pid: int) -> Optional[int]:
    exited, alive = waits.wait_procs([pid], 1)
    print(exited, alive)
    return waits.wait(pid, 1)
"""
MISSPELT = """\
from acme import waits
from acme._vendor import renamed

waits.wait_porcs([])
renamed.wait_porcs([])
"""
WRONG = """\
from acme._vendor.renamed import aio, subprocess

subprocess.run(["true"], tree="all")
subprocess.Popen(["true"], grace="5")
subprocess.Popen(["true"]).end(b"5")
subprocess.Popen(["true"]).ended()
subprocess.check_call(["true"], tree=None)
text: str = subprocess.check_output(["true"], tree=True)
aio.run(["true"], tree="all")
"""
MODULES = "pidwait", "acme._vendor.renamed", "acme.waits"
CHECKERS = (
    ["mypy", "--strict", "acme"],
    ["pyright", "--pythonpath", sys.executable, "acme/main.py", "acme/waits.py"],
    ["ty", "check", "--output-format", "concise", "--python", sys.prefix, "acme/main.py"],
)


def make_project(folder):
    project = Path(folder, "acme")
    project.joinpath("_vendor").mkdir(parents=True)
    for one in project, project / "_vendor":
        one.joinpath("__init__.py").touch()
    vendor = [sys.executable, "-m", "pidwait", "vendor"]
    subprocess.check_call(vendor + [str(project / "_vendor" / "renamed")], cwd=str(ROOT))
    subprocess.check_call(vendor + ["--single-file", str(project / "waits.py")], cwd=str(ROOT))


def check(folder, code):
    """What each checker says of the code: the lines with errors."""
    Path(folder, "acme", "main.py").write_text(code)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for checker in CHECKERS:
        command = [sys.executable, "-m", *checker]
        done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
        print(*checker, done.stdout, flush=True)
        yield [line for line in done.stdout.splitlines() if re.search(r"error[:[]", line)]


def check_completions(folder, module):
    """The public names that jedi does not complete, or of which it knows no parameters."""
    code = "import %s as copy\n" % module
    run = [sys.executable, "-c", code + "print(*copy.__all__)"]
    env = dict(os.environ, PYTHONPATH=str(ROOT))
    names = subprocess.check_output(run, cwd=folder, env=env, universal_newlines=True).split()
    project = jedi.Project(folder, added_sys_path=[str(ROOT)])

    def script(text):
        return jedi.Script(code + text, path=folder + "/new.py", project=project)

    completed = {one.name for one in script("copy.").complete(2, 5)}
    print("jedi, %s: %d names" % (module, len(names)), flush=True)
    assert "wait_procs" in names and "_Group" not in completed
    return [
        name
        for name in names
        if name not in completed or not script("copy.%s(" % name).get_signatures()
    ]


def main():
    with tempfile.TemporaryDirectory() as folder:
        make_project(folder)
        wrong = [line for lines in check(folder, USES) for line in lines]
        for lines in check(folder, MISSPELT):
            if len([line for line in lines if "wait_porcs" in line]) != 2:
                wrong.append("a misspelt name is not found")
        for lines in check(folder, WRONG):
            missing = set(range(3, 10)) - {
                int(re.search(r"main\.py:(\d+)", line)[1]) for line in lines
            }
            wrong += ["line %d is not found wrong" % line for line in missing]
        for module in MODULES:
            wrong += ["%s: %s" % (module, one) for one in check_completions(folder, module)]
        print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
