# SPDX-License-Identifier: BSD-3-Clause
"""The single file, sent to another machine on standard input: by ssh, to a real sshd."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..package.recipes import SHELL, Folder
from ..processes import eventually, exiting, gone_pid, state
from . import sshd
from .remote import single_file

CI = "CI" in os.environ
pytestmark = pytest.mark.skipif(sshd.program() is None and not CI, reason="no sshd")


@pytest.fixture
def host():
    with sshd.running() as host:
        yield host


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "pidwait.py"
    path.write_bytes(single_file())
    return path


@pytest.fixture
def remote(host, script, start):
    """Start ssh, with the file as its input."""

    def start_it(line, options=(), **kwargs):
        with script.open("rb") as file:
            return start(
                *host.ssh, *options, "there", line, stdin=file, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, universal_newlines=True, **kwargs
            )  # fmt: skip

    return start_it


@pytest.fixture
def terminal(host, script, start):
    """Start ssh with a terminal. The file is there already: python3 - would be interactive."""

    def start_it(pid, prefix=""):
        line = prefix + shlex.quote(sys.executable) + " %s %d" % (script, pid)
        return start(
            *host.ssh, "-tt", "there", line,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start_it


def here(*arguments):
    return " ".join(map(shlex.quote, [sys.executable, "-", *map(str, arguments)]))


def result(popen):
    out, err = popen.communicate()
    return popen.returncode, out, err


def test_exit(remote, start):
    child = start(*exiting(0, 0.5))
    assert result(remote(here(child.pid))) == (0, "", "")
    assert state(child.pid) == "Z"


def test_status(remote, zombie, sleeper):
    child = zombie(3)
    program = os.path.basename(sys.executable) + " -"
    for arguments, status in (
        (["--exit-code", child.pid], 3),
        (["-t", "0.1", sleeper.pid], 124),
        ([gone_pid()], 1),
        (["--exit-code", gone_pid()], 127),
        (["--nonesuch"], 2),
    ):
        returned, out, err = result(remote(here(*arguments)))
        assert (returned, out) == (status, "")
        assert (program in err) == (status != 3), err


def test_output(remote, zombie):
    child = zombie(3)
    status, out, _ = result(remote(here("-v", child.pid)))
    assert status == 0 and out.startswith("%d (sh): exited with 3" % child.pid)
    status, out, _ = result(remote(here("--json", child.pid)))
    assert status == 0 and json.loads(out)["exitcode"] == 3


def parent_of(pid):
    with open("/proc/%d/stat" % pid, "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def files(pid):
    folder = "/proc/%s/fd/" % pid
    return [os.readlink(folder + fd) for fd in os.listdir(folder)]


def waiting(pid):
    """The process that waits for this pid, and sleeps: None if there is none."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            with open("/proc/%s/cmdline" % name, "rb") as file:
                words = file.read().split(b"\0")
            if words[-2:-1] != [b"%d" % pid] or b"python" not in words[0]:
                continue
            if state(int(name)) == "S" and "anon_inode:[eventpoll]" in files(name):
                return int(name)
    return None


def is_there(pid, found):
    found[:] = [one for one in [waiting(pid)] if one]
    return found


WAYS = {
    "Ctrl-C": lambda client, session: client.send_signal(signal.SIGINT),
    "client": lambda client, session: client.kill(),
    "session": lambda client, session: os.kill(session, signal.SIGKILL),
}


def break_off(client, pid, way):
    """Break the connection of a wait; return the process that waited there."""
    found = []
    eventually(lambda: is_there(pid, found) or client.poll() is not None)
    assert client.poll() is None, client.communicate()
    WAYS[way](client, parent_of(found[0]))
    client.communicate()
    assert client.returncode in (255, -signal.SIGINT, -signal.SIGKILL)
    return found[0]


@pytest.mark.parametrize(
    "arguments, way",
    [("{}", way) for way in sorted(WAYS)]
    + [("-v {}", "client"), ("--json -t 1h {}", "session"), ("{} 2>/dev/null", "client")],
)
def test_nothing_is_left(remote, sleeper, arguments, way):
    line = "exec " + here() + " " + arguments.format(sleeper.pid)
    client = remote(line, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    left = break_off(client, sleeper.pid, way)
    eventually(lambda: state(left) is None)
    assert sleeper.poll() is None


@pytest.mark.parametrize("way", ["client", "session"])
def test_nothing_is_left_of_a_terminal(terminal, sleeper, way):
    """The system's SIGHUP does it."""
    left = break_off(terminal(sleeper.pid, "exec "), sleeper.pid, way)
    eventually(lambda: state(left) is None)


def test_ctrl_c_on_a_terminal(terminal, sleeper):
    """It is the other machine's terminal that makes a SIGINT of it."""
    client, found = terminal(sleeper.pid), []
    eventually(lambda: is_there(sleeper.pid, found) or client.poll() is not None)
    client.stdin.write(b"\x03")
    client.stdin.flush()
    eventually(lambda: state(found[0]) is None)
    client.communicate()
    assert client.returncode in (130, 255)


def test_nohup(remote, sleeper, tmp_path):
    """It goes on: the end of the connection is not taken for that of the process."""
    status = tmp_path / "status"
    client = remote("(trap '' HUP; %s; echo $? > %s)" % (here(sleeper.pid), status))
    left = break_off(client, sleeper.pid, "client")
    eventually(lambda: not reads(left))
    sleeper.kill()
    eventually(lambda: status.exists() and status.read_text())
    assert status.read_text() == "0\n"


def reads(pid):
    """Whether somebody has the other end of its stdout."""
    pipe = os.readlink("/proc/%d/fd/1" % pid)
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            with open("/proc/%s/comm" % name, "rb") as file:
                if file.read() != b"sshd\n":
                    continue
            if pipe in files(name):
                return True
    return False


def test_recipe(host, start, tmp_path):
    folder = Folder(tmp_path)
    folder.write("bin/ssh", '#!/bin/sh\nexec %s -F %s "$@"\n' % (shutil.which("ssh"), host.config))
    folder.path.joinpath("bin/ssh").chmod(0o755)
    (code,) = SHELL["On another machine"]
    child = start(*exiting(0, 1))
    assert folder.shell(code, HOST="there", CLONE=".", PID=str(child.pid)) == (0, "", "")
    assert state(child.pid) == "Z"


needs_ansible = pytest.mark.skipif(
    find_spec("ansible") is None and not CI, reason="no ansible-core"
)


@pytest.fixture
def control(host, script, tmp_path):
    """The folder on the machine that Ansible is run on."""
    folder = Folder(tmp_path)
    shutil.copy(str(script), str(tmp_path))
    folder.path.joinpath("bin/ansible").symlink_to(Path(sys.executable).with_name("ansible"))
    folder.env.update(
        ANSIBLE_SSH_ARGS="-F " + host.config,
        ANSIBLE_HOME=str(tmp_path / "home"),
        ANSIBLE_REMOTE_TEMP=str(tmp_path / "there"),
        ANSIBLE_DEPRECATION_WARNINGS="0",
    )
    return folder


@needs_ansible
def test_ansible(control, start):
    """Three names of this machine at once."""
    children = [start(*exiting(code, 2)) for code in (0, 3, 0)]
    control.write("hosts", "".join("web%d pid=%d\n" % (one.pid, one.pid) for one in children))
    (code,) = SHELL["On a hundred machines"]
    status, out, err = control.shell(code)
    assert status == 2, (out, err)
    for child, code in zip(children, (0, 3, 0)):
        outcome = "FAILED!" if code else "CHANGED"
        assert "web%d | %s => " % (child.pid, outcome) in out
        assert state(child.pid) == "Z"
    assert out.count('"rc": 0,') == 2 and out.count('"rc": 3,') == 1
    assert list(control.path.glob("there/*")) == []


@needs_ansible
def test_ansible_that_is_interrupted(control, sleeper):
    control.write("hosts", "web1 pid=%d\n" % sleeper.pid)
    (code,) = SHELL["On a hundred machines"]
    popen = control.popen("sh", "-c", "exec " + code, start_new_session=True)
    found = []
    eventually(lambda: is_there(sleeper.pid, found) or popen.poll() is not None)
    os.killpg(popen.pid, signal.SIGINT)
    _, err = popen.communicate()
    assert found and popen.returncode, err
    eventually(lambda: state(found[0]) is None)
    assert sleeper.poll() is None
