# SPDX-License-Identifier: BSD-3-Clause
"""A real sshd on the loopback, with keys of its own: another machine, as far as ssh can tell.

It needs Debian's packages openssh-server and openssh-client. It runs as any user, root or not, and
lets that user log in, with that user's login shell.
"""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

# Of root sshd demands that this folder be there, which an init script makes.
RUN = "/run/sshd"
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/id.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
# A hundred at once.
MaxStartups 200
"""
CLIENT = """\
Host *
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/id
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known
    HostKeyAlias loopback
    BatchMode yes
    LogLevel ERROR
"""


def program():
    """The path of sshd, which must not be relative; None if there is none."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
    return shutil.which("sshd", path=path) if shutil.which("ssh") else None


class Sshd:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.config = str(self.folder / "ssh_config")
        self.ssh = ["ssh", "-F", self.config]
        for name in "host", "id":
            key = str(self.folder / name)
            subprocess.check_call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
        self._server = None

    def start(self):
        while not self._starts():
            pass  # somebody else took the port first

    def _starts(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        names = {"port": port, "folder": self.folder, "user": pwd.getpwuid(os.geteuid()).pw_name}
        self.folder.joinpath("sshd_config").write_text(SERVER.format(**names))
        Path(self.config).write_text(CLIENT.format(**names))
        host = self.folder.joinpath("host.pub").read_text()
        self.folder.joinpath("known").write_text("loopback " + host)
        if os.geteuid() == 0:
            os.makedirs(RUN, 0o755, exist_ok=True)
        with self.folder.joinpath("log").open("wb") as log:
            self._server = subprocess.Popen(
                [program(), "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        while self._server.poll() is None:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                return True
            time.sleep(0.01)
        log = self.folder.joinpath("log").read_text()
        if "in use" not in log:
            raise OSError("sshd does not start: " + log)
        return False

    def stop(self):
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    @property
    def pid(self):
        return self._server.pid

    def command(self, *words):
        """ssh to a machine of any name, which is this one."""
        return [*self.ssh, "there", *words]


@contextlib.contextmanager
def running():
    # Not below pytest's folder, where the path may be too long or closed to sshd.
    with tempfile.TemporaryDirectory() as folder:
        sshd = Sshd(folder)
        try:
            sshd.start()
            yield sshd
        finally:
            sshd.stop()
