# SPDX-License-Identifier: BSD-3-Clause
"""What the README shows and says, as it stands there."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import pidwait
from .processes import not_on_windows

README = Path(__file__).resolve().parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")


def blocks(language):
    return re.findall(r"^```%s\n(.*?)^```" % language, TEXT, re.S | re.M)


def with_our_name(code):
    """The package may be a copy under another name."""
    code = code.replace("import pidwait", "import %s as pidwait" % pidwait.__name__)
    return code.replace("-m pidwait", "-m " + pidwait.__name__)


@not_on_windows("sh and sleep")
def test_sessions(capsys):
    sessions = blocks("pycon")
    assert sessions
    example = doctest.DocTestParser().get_doctest(
        with_our_name("\n".join(sessions)), {}, "README.md", str(README), 0
    )
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, clear_globs=False)
    assert result.attempted > 5
    assert result.failed == 0, capsys.readouterr().out
    for child in example.globs["sleeps"]:
        child.close()


def commands():
    for block in blocks("console"):
        command, shown = block[len("$ ") :].split("\n", 1)
        yield pytest.param(command, shown, id=command.split(" -m ")[-1])


@not_on_windows("sh and sleep")
@pytest.mark.parametrize("command, shown", list(commands()))
def test_commands(command, shown, tmp_path):
    if pidwait.probe()["backend"] != "pidfd":
        pytest.skip("it shows what Linux offers from 5.3 on")
    path = os.pathsep.join(sys.path)
    (tmp_path / "python3").symlink_to(sys.executable)
    env = dict(os.environ, PYTHONPATH=path, PATH=str(tmp_path) + os.pathsep + os.environ["PATH"])
    for seconds in ("2", "10", "60"):  # on a busy machine our interpreter may start too late
        slower = with_our_name(command).replace("sleep 2", "sleep " + seconds)
        process = subprocess.Popen(["sh", "-c", slower], env=env, stdout=subprocess.PIPE)
        printed = process.communicate()[0]
        if process.returncode == 0:
            break
    assert process.returncode == 0
    # A pid, a time and a binding can be others; … stands for what is left out.
    pattern = re.escape(shown.strip())
    for other, any_of_them in (
        (r"^\d{4}|\d+\\\.\d{3}", r"[\\d.]+"),
        (r"\\\((os|signal|fcntl)\\\)", r"\\(\\w+\\)"),
        (r"\\?…", ".*"),
    ):
        pattern = re.sub(other, any_of_them, pattern, flags=re.M)
    assert re.match(pattern + r"\Z", printed.decode().strip(), re.S), printed.decode()


def test_names():
    """Each name that the README calls is there."""
    names = set(re.findall(r"pidwait\.([A-Za-z_]+)[(`]", TEXT))
    assert {"wait", "wait_procs", "WaitSet", "watch", "spawn"} <= names
    for name in names - {"subprocess"}:
        assert name in pidwait.__all__
    for name in re.findall(r"`Process\.([a-z_]+)", TEXT):
        assert hasattr(pidwait.Process, name)
    for name in re.findall(r"`process\.([a-z_]+)\(", TEXT):
        assert hasattr(pidwait.Process, name)


def test_links():
    links = re.findall(r"\]\(([^)]*)\)", TEXT)
    assert any(link.endswith(".svg") for link in links)
    for link in links:
        assert (README.parent / link).is_file(), link


def test_can_be_read_in_a_few_minutes():
    assert len(TEXT.split()) <= 1500
