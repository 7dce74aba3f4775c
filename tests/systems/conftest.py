# SPDX-License-Identifier: BSD-3-Clause
import contextlib
import os
import stat
import threading

import pytest

from .. import pidwait, seam
from ..conftest import KQUEUES, STANDIN


class OwnKernel:
    """The system's own kernel: a test can't tell it how to behave."""

    def __getattr__(self, name):
        pytest.skip("only the stand-in for kqueue, on Linux, can be told what to do")

    def __setattr__(self, name, value):
        getattr(self, name)


class On:
    """on(system, binding) makes this process look like one on that system; return its Kernel."""

    def __init__(self, folder):
        from . import kqueue  # not on Windows

        self._standin = kqueue
        self._folder = folder
        self._kernels = []
        self.patch = pytest.MonkeyPatch()

    def __call__(self, system, binding="own"):
        reason = None if binding == "own" else pidwait.probe()["bindings"][binding]["reason"]
        if reason:
            pytest.skip(reason)
        if STANDIN:
            self._kernels.append(self._standin.use(system, self.patch))
        elif system not in KQUEUES:
            pytest.skip("this is another system")
        seam.forget()
        self.patch.setenv("PIDWAIT_BACKEND", "kqueue")
        self.patch.setenv("PIDWAIT_FFI", "auto" if binding == "own" else binding)
        return self._kernels[-1] if STANDIN else OwnKernel()

    def ps(self, script, time_limit=None):
        """Have this script of sh run for ps; {ps} in it is the system's own."""
        path = os.path.join(str(self._folder), "ps-script")
        own = self._standin.PS if STANDIN else "/bin/ps"
        with open(path, "w") as file:
            file.write("#!/bin/sh\n%s\n" % script.replace("{ps}", own))
        os.chmod(path, stat.S_IRWXU)
        self._standin.set_ps(path, self.patch.setattr)
        if time_limit is not None:
            self._standin.set_time_limit_of_ps(time_limit, self.patch.setattr)

    def no_ps(self):
        self._standin.set_ps("/nonexistent/ps", self.patch.setattr)

    def leave(self):
        for kernel in self._kernels:
            kernel.close()
        self.patch.undo()
        seam.forget()


@pytest.fixture
def on(tmp_path):
    """On a BSD, or on macOS: see On."""
    it = On(tmp_path)
    yield it
    it.leave()


@pytest.fixture
def fds_left():
    """fds_left(number): in this block only so many more file descriptors can be opened."""
    resource = pytest.importorskip("resource")
    for name in pidwait.__all__:
        getattr(pidwait, name)  # whatever is imported at the first use
    thread = threading.Thread()  # at whose end glibc opens a library, or aborts
    thread.start()
    thread.join()

    @contextlib.contextmanager
    def fds_left(number):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], 100), limits[1]))
        fds = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    fds.append(os.dup(1))
            for _ in range(number):
                os.close(fds.pop())
            yield
        finally:
            for fd in fds:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    return fds_left
