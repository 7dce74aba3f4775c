# SPDX-License-Identifier: BSD-3-Clause
"""On a terminal a command is what it would be without a tree, and with `run` what timeout makes it.

Each scene is played by all starters at once, each on a terminal of its own.
"""

import contextlib
import errno
import os
import pty
import subprocess
import sys
import termios
import time

import pytest

from .. import pidwait
from ..processes import kill, state
from ..trouble.conftest import namespaces  # noqa: F401
from .test_tree import KEEPER

if not KEEPER:
    pytest.skip("there can be no keeper", allow_module_level=True)

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "terminals.py")
LONG = 20  # seconds to wait for what should come at once
PLAY = [sys.executable, "-S", FILE]
RUN = [sys.executable, "-S", "-m", pidwait.__name__, "run"]
STARTERS = {
    "plain": [*PLAY, "caller", "", "{}"],
    "reaper": [*PLAY, "caller", "tree", "{}"],
    "group": [*PLAY, "caller", "tree", "{}"],
    "run": RUN,
    "run -f": [*RUN, "-f"],
    "run --tree": [*RUN, "--tree"],
    "run --tree -f": [*RUN, "--tree", "-f"],
    "run -t": [*RUN, "-t", "60"],
    "timeout": ["timeout", "60"],
}
OWN_GROUP = {name: [*STARTERS[name][:-1], "{'process_group': 0}"] for name in ("plain", "reaper")}
CTRL_C, CTRL_Z, CTRL_QUIT = b"\x03", b"\x1a", b"\x1c"
FG = "fg", "continued"
# Who leads what, what the command does, and what the user does: types bytes, continues a stopped
# job, or closes the terminal. Other words are awaited in the log; T: the command is stopped. In the
# background timeout stays awake, as `run -t` does, so that a shell sees no stopped job.
SCENES = {
    "Ctrl-C": ("job", "wait", [CTRL_C, "INT"]),
    "Ctrl-\\": ("job", "wait", [CTRL_QUIT, "QUIT"]),
    "Ctrl-Z, fg": ("job", "wait", [CTRL_Z, "stopped 20", "T", *FG, CTRL_C, "INT"]),
    "reads": ("job", "read", [b"hello\n", "read hello"]),
    "hang-up": ("job", "wait", ["close", "HUP"]),
    "background reads, fg": ("background", "read", ["T", *FG, b"hello\n", "read hello"]),
    "background writes, fg": ("background", "write", ["T", *FG, "written"]),
    "leader, Ctrl-C": ("leader", "wait", [CTRL_C, "INT"]),
    "leader, Ctrl-Z is ignored": ("leader", "wait", [CTRL_Z, CTRL_C, "INT"]),
    "leader, reads": ("leader", "read", [b"hello\n", "read hello"]),
    "leader, hang-up": ("leader", "read", ["close", os.strerror(errno.EIO)]),
    "leader, another group, Ctrl-Z": ("leader", "grab", [CTRL_Z, "T"]),
    "pid 1, Ctrl-C": ("pid 1", "wait", [CTRL_C, "INT"]),
    "pid 1, Ctrl-Z is ignored": ("pid 1", "wait", [CTRL_Z, CTRL_C, "INT"]),
    "pid 1, reads": ("pid 1", "read", [b"hello\n", "read hello"]),
}


class Play:
    def __init__(self, folder, starter, mode, kind, options, within):
        self.log, self.seen = os.path.join(folder, starter), 0
        open(self.log, "w").close()
        self.terminal, theirs = pty.openpty()
        settings = termios.tcgetattr(theirs)
        settings[3] |= termios.TOSTOP
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        reader, self.fg = os.pipe()
        mechanism = starter if starter == "group" else "reaper"
        env = dict(os.environ, PIDWAIT_TREE=mechanism, PACKAGE=pidwait.__name__, FG=str(reader))
        env["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
        words = [*options, *PLAY, "command", kind]
        before = [*within] if mode == "pid 1" else []
        mode = "leader" if mode == "pid 1" else mode
        self.popen = subprocess.Popen(
            [*before, *PLAY, "top", mode, self.log, *words],
            **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
            start_new_session=True,
            pass_fds=[reader],
            env=env,
        )
        os.close(theirs)
        os.close(reader)

    def lines(self):
        with open(self.log) as file:
            return file.read().splitlines()

    def do(self, step):
        """Take a step; return whether what it waits for has come."""
        if isinstance(step, bytes):
            os.write(self.terminal, step)
        elif step == "close":
            os.close(self.terminal)
            self.terminal = None
        elif step == "fg":
            os.write(self.fg, b"\n")
        else:
            end = time.monotonic() + LONG
            while not self.has(step):
                if time.monotonic() > end:
                    return False
                time.sleep(0.001)
        return True

    def pids(self):
        return [int(line.split()[1]) for line in self.lines() if line.startswith("pid")]

    def has(self, step):
        if step == "T":
            return state(self.pids()[-1]) == "T"
        return any(line.startswith(step) for line in self.lines())

    def end(self, is_inside):
        for pid in [self.popen.pid] if is_inside else {*self.pids(), self.popen.pid}:
            with contextlib.suppress(ProcessLookupError):  # it ended with another one
                kill(pid)
        self.popen.wait()
        os.close(self.fg)
        if self.terminal is not None:
            os.close(self.terminal)
        return [line for line in self.lines() if not line.startswith("pid")]


@pytest.mark.parametrize("scene", SCENES)
def test_a_command_on_a_terminal_is_what_it_is_without_us(tmp_path, scene, request):
    mode, kind, steps = SCENES[scene]
    within = request.getfixturevalue("namespaces") if mode == "pid 1" else []
    starters = OWN_GROUP if kind == "grab" else STARTERS
    plays, found = {}, {}
    try:
        for starter, words in starters.items():
            plays[starter] = Play(str(tmp_path), starter, mode, kind, words, within)
        for starter, play in plays.items():
            wanted = ["ready", *steps]
            if starter == "group":
                wanted = wanted[:1]
            elif mode == "background" and starter in ("run -t", "timeout"):
                wanted = wanted[:2]
            found[starter] = [step for step in wanted if not play.do(step)]
    finally:
        logs = {starter: play.end(mode == "pid 1") for starter, play in plays.items()}
    assert not any(found.values()), (found, logs)
    facts = {starter: [one for one in log if "ready" in one][0] for starter, log in logs.items()}
    group = facts.pop("group", "ready: its terminal the caller's session")
    assert group == "ready: its terminal the caller's session"
    assert len(set(facts.values())) == 1, facts
