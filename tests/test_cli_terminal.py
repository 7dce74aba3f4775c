# SPDX-License-Identifier: BSD-3-Clause
"""What the command line shows on a terminal: progress and colours."""

import contextlib
import importlib
import os
import re
import select
import struct
import sys
import types

import pytest

from . import pidwait
from .command_line import COMMAND
from .processes import exiting, sleeping

progress = importlib.import_module(pidwait.__name__ + ".cli._progress")
LINE = r"\r\x1b\[K"


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0:00"),
        (59, "0:59"),
        (60, "1:00"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (45296, "12:34:56"),
    ],
)
def test_clock(seconds, text):
    assert progress._clock(seconds) == text


def on_a_terminal(start, killed, *args, columns=0, **env):
    """What the command writes there; ``killed`` has whom to kill once it has shown what."""
    return shown_by(start, COMMAND + list(map(str, args)), killed, columns, **env)


def shown_by(start, command, killed=None, columns=0, **env):
    import fcntl
    import pty
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    env = dict(os.environ, **dict({"TERM": "xterm", "NO_COLOR": ""}, **env))
    seen = b""
    try:
        waiter = start(*command, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        while True:
            if select.select([master], [], [], 1)[0]:
                try:
                    seen += os.read(master, 1024)
                except OSError:  # EIO: the other side is closed
                    break
            elif waiter.poll() is not None:
                break
            for shown, child in (killed or {}).items():
                if shown in seen:
                    child.kill()
    finally:
        os.close(master)
    return seen.decode()


def test_progress_of_several(start, sleeper):
    child = start(*sleeping(60))
    killed = {b"0 of 2": child, b"1 of 2": sleeper}
    text = on_a_terminal(start, killed, child.pid, sleeper.pid)
    line = r"\r\x1b\[K1 of 2 exited, \d+:\d\d; waiting for %d \(sleep\)" % sleeper.pid
    assert re.search(line, text), text


@pytest.mark.parametrize("columns, width", [(0, 80), (23, 23)])
def test_progress_is_as_wide_as_the_terminal(start, columns, width):
    """0 is what a terminal says that was not told its size. The last column stays free."""
    children = [start(*sleeping(60)) for _ in range(9)]
    killed = {b"0 of 9": children[0]}
    pids = [child.pid for child in children]
    text = on_a_terminal(start, killed, "--any", *pids, columns=columns)
    names = ", ".join("%d (sleep)" % pid for pid in pids[:3])
    shown = re.match(r"\r\x1b\[K(0 of 9 exited, (\d:\d\d).*?)\r", text)
    line = "0 of 9 exited, %s; waiting for %s, and 6 more" % (shown.group(2), names)
    assert shown.group(1) == line[: width - 1]


def test_progress_on_a_terminal(start):
    child = start(*sleeping(60))
    text = on_a_terminal(start, {b"waiting 0:01": child}, "-v", child.pid)
    assert re.search(r"\r\x1b\[Kwaiting 0:01 for %d \(sleep\)\r" % child.pid, text), text
    # It is wiped before the result.
    assert re.search(
        r"\r\x1b\[K%d \(sleep\): \x1b\[31mkilled by SIGKILL\x1b\[m; waited" % child.pid, text
    ), text


def test_no_progress_in_the_background(start):
    """Nor a message that would stop it there."""
    code = """if True:
        import os, signal, sys, termios
        os.setsid()
        fd = os.open(os.ttyname(2), os.O_RDWR)  # the terminal that controls us from here on
        old = termios.tcgetattr(fd)
        old[3] |= termios.TOSTOP
        termios.tcsetattr(fd, termios.TCSANOW, old)
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            os.execv(sys.executable, [sys.executable] + sys.argv[1:])
        os._exit(os.waitpid(pid, 0)[1] >> 8)
    """
    args = ["-m", pidwait.__name__, "run", "-v", "-t", "1.5", "sleep", "60"]
    text = shown_by(start, [sys.executable, "-c", code] + args)
    assert "sending signal TERM to command 'sleep'" in text and "waiting" not in text


def test_progress_of_run(start):
    text = on_a_terminal(start, {}, "run", "-v", "-t", "1.9", "sleep", "60")
    assert re.match(LINE + r"waiting 0:01 for \d+ \(sleep\)" + LINE + ".* sending signal", text), (
        text
    )
    assert on_a_terminal(start, {}, "run", "-t", "1.9", "sleep", "60") == ""


def test_line_of_run_is_wiped_at_the_end(start, tmp_path):
    path = str(tmp_path / "fifo")
    os.mkfifo(path)

    def end():
        with contextlib.suppress(OSError):  # ENXIO: nobody reads it any more
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    killed = {b"waiting 0:01": types.SimpleNamespace(kill=end)}
    text = on_a_terminal(start, killed, "run", "-v", "sh", "-c", 'read line < "$0"', path)
    assert re.search(r"waiting \d:\d\d for \d+ \(sh\)%s$" % LINE, text), text


@pytest.mark.parametrize(
    "active, steps", [(False, [None, 0.5, 9]), (True, [progress.EVERY, 0.5, progress.EVERY])]
)
def test_steps_in_which_the_line_is_drawn(active, steps):
    """Without a line, a wait is not interrupted."""
    one = progress.Progress()
    one.active = active
    assert [one.step(seconds) for seconds in (None, 0.5, 9)] == steps


@pytest.mark.parametrize("active", [False, True])
def test_line_is_drawn_and_wiped(monkeypatch, active):
    drawn = []
    monkeypatch.setattr(progress, "put", drawn.append)
    one = progress.Progress()
    one.active = active
    one.show(["something"], 1)
    one.clear()
    one.clear()
    shown, wiped = "\r\x1b[Kwaiting 0:00 for something", "\r\x1b[K"
    assert drawn == ([shown, wiped] if active else [])


@pytest.mark.parametrize(
    "env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "dumb", "NO_COLOR": ""}]
)
def test_no_colours(start, env):
    text = on_a_terminal(start, {}, "-v", start(*exiting(3)).pid, **env)
    assert "exited with 3; waited" in text and "\x1b" not in text


@pytest.mark.parametrize("code", [0, 3])
def test_colour_tells_failures(start, code):
    text = on_a_terminal(start, {}, "-v", start(*exiting(code)).pid)
    how = "exited with %d" % code
    assert (": \x1b[31m%s\x1b[m; waited" if code else ": %s; waited") % how in text


def test_no_colours_in_a_file(start, tmp_path):
    with open(str(tmp_path / "out"), "w+b") as out:
        start(*COMMAND + ["-v", str(start(*exiting(3)).pid)], stdout=out).wait()
        out.seek(0)
        assert b"\x1b" not in out.read()


def test_dumb_terminals_show_no_progress(start):
    child = start(*sleeping(1.3))
    assert on_a_terminal(start, {}, child.pid, TERM="dumb") == ""
