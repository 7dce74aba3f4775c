# SPDX-License-Identifier: BSD-3-Clause
"""What the README recommends, as it stands there."""

import os
import re
import sys
from pathlib import Path

import pytest

from . import pidwait
from .processes import WINDOWS, eventually, state

README = Path(__file__).resolve().parent.parent / "README.md"

MAIN = r"""
command = ["sh", "-c", 'trap "echo got INT" INT; trap "echo got TERM; exit" TERM; '
           'echo "started $$."; read -r line < {fifo}; echo ended']
run_all([command] * 4, at_once=2)
print("all done")
"""


def recipe():
    text = README.read_text(encoding="utf-8")
    (code,) = re.findall(r"tested by tests/test_readme.py -->\n```python\n(.*?)```", text, re.S)
    return code.replace("import pidwait\n", "import %s as pidwait\n" % pidwait.__name__)


class Terminal:
    """A program in the foreground of a terminal of its own."""

    def __init__(self, *args):
        import pty

        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execv(args[0], args)
            finally:
                os._exit(127)
        self.seen = ""

    def expect(self, pattern, count=1):
        while len(re.findall(pattern, self.seen)) < count:
            self.seen += os.read(self.fd, 1024).decode()
        return re.findall(pattern, self.seen)

    def press_ctrl_c(self):
        os.write(self.fd, b"\x03")

    def close(self):
        try:
            while True:
                self.seen += os.read(self.fd, 1024).decode()
        except OSError:  # EIO: the other side is closed
            pass
        os.close(self.fd)
        return os.waitpid(self.pid, 0)[1]


def handles(pid):
    if pidwait.probe()["backend"] != "pidfd":
        return 2
    folder = "/proc/%d/fd" % pid
    links = [os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)]
    return links.count("anon_inode:[pidfd]")


@pytest.mark.skipif(WINDOWS, reason="Windows has no pseudo-terminals that Python can open")
@pytest.mark.parametrize("presses", [0, 1, 2])
def test_soft_shutdown(tmp_path, presses):
    fifo = tmp_path / "fifo"
    os.mkfifo(str(fifo))
    script = tmp_path / "script.py"
    script.write_text(recipe() + MAIN.replace("{fifo}", str(fifo)))
    path = os.pathsep.join(sys.path)
    terminal = Terminal("/usr/bin/env", "PYTHONPATH=" + path, sys.executable, str(script))
    # Both ends, so that no open() waits for the other.
    end = os.open(str(fifo), os.O_RDWR)
    try:
        pids = [terminal.pid] + [int(pid) for pid in terminal.expect(r"started (\d+)\.", 2)]
        # A Ctrl-C that comes while spawn() is about to return takes the child along, and
        # a signal just before the system call that waits does not interrupt it: neither
        # Python's nor the shell's.
        eventually(lambda: handles(terminal.pid) == 2 and all(state(pid) == "S" for pid in pids))
        if presses:
            terminal.press_ctrl_c()
            terminal.expect("2 still run")
        if presses == 2:
            eventually(lambda: state(terminal.pid) == "S")
            terminal.press_ctrl_c()
            terminal.expect("got TERM", 2)
    finally:
        os.write(end, b"\n" * 1000)  # a line for everybody
        status = terminal.close()
        os.close(end)
    assert status == 0
    assert terminal.seen.count("started") == (2 if presses else 4)
    assert terminal.seen.count("ended") == {0: 4, 1: 2, 2: 0}[presses]
    assert "got INT" not in terminal.seen
    assert "all done" in terminal.seen
