# SPDX-License-Identifier: BSD-3-Clause
"""Run the waiting suite on gVisor, whose kernel is written anew: processes as gVisor sees them.

python -m tests.matrix.gvisor [current] [without-pidfd] [pytest arguments]: by the interpreter that
runs it, which has pytest. The version without pidfd answers ENOSYS to pidfd_open, as Linux before
5.3 does. It needs root, for gVisor, and Go >= 1.21 at the first time: both versions are built (one
minute each), and kept in a folder of the user's cache. They see this machine's files; what they
write is thrown away. Without Go it is skipped, or fails if CI is set.
"""

import fcntl
import os
import signal
import subprocess
import sys

from .interpreters import CACHE
from .kernels import check_tools
from .trees import ROOT
from .windows import replacing

FOLDER = CACHE / "gvisor"
# name: the version, and the Go that builds it; with a newer Go the old one crashes at random
VERSIONS = {
    "current": ("v0.0.0-20260905035102-160fafc42237", None),
    "without-pidfd": ("v0.0.0-20250205023644-9414b50a5633", "go1.23.12"),
}
# Those of one process and of many, of starting, of asyncio.
TESTS = (
    "probe procfs pidfd wait process owners waiting waitset watching engine polling_set kinds "
    "targets highfds fd input handlers forks deadline ffi child spawn spawn_failures posix_spawn "
    "aio aio_spawn aio_completed aio_owners aio_loops"
).split()
# What gVisor has not, or has otherwise: the tests of it.
LACKS = {
    "a wait status in /proc": """
        tests/test_procfs.py::test_status_that_is_always_0
        tests/test_procfs.py::test_real_processes
        tests/test_procfs.py::test_zombie_that_is_not_our_child
        tests/test_procfs.py::test_status_that_is_the_main_threads
        tests/test_waiting.py::test_strangers
        tests/test_polling_set.py::test_polled_member_in_a_forked_child
        tests/test_aio_owners.py::test_stranger
        tests/test_forks.py::test_child_in_a_fork_is_not_waited_for_by_the_end_of_a_block_for_ever
        tests/test_forks.py::test_child_that_a_thread_was_reaping
        tests/test_forks.py::test_popen_whose_lock_was_held
        tests/test_ffi.py::test_ctypes_that_does_not_load
    """,
    "what these tests read in /proc: times of timers, signals that are ignored": """
        tests/test_fd.py::test_timer_of_a_set
        tests/test_ffi.py::test_timer
        tests/test_posix_spawn.py::test_signals_are_restored
    """,
    "an error for a process group that is not there": """
        tests/test_posix_spawn.py::test_group_that_is_not_there
    """,
    # A zombie of others is not seen then.
    "links in /proc that tell a zombie where there is no file descriptor left": """
        tests/test_procfs.py::test_links
        tests/test_probe.py::test_a_first_wait_without_file_descriptors
        tests/test_process.py::test_open_handle_needs_no_more_file_descriptors[polling]
    """,
}
LACKS_WITHOUT_PIDFD = {
    "pidfds": """
        tests/test_ffi.py::test_system_call[ctypes-pidfd_open]
        tests/test_ffi.py::test_system_call[ctypes-pidfd_send_signal]
        tests/test_ffi.py::test_system_call[cffi-pidfd_open]
        tests/test_ffi.py::test_system_call[cffi-pidfd_send_signal]
        tests/test_ffi.py::test_system_call_errors
    """,
    "a waitid that tells what the process exited with, not its main thread": """
        tests/test_wait.py::test_main_thread_that_ended_first
    """,
}
# Process 1 inherits orphans.
INIT = ["sh", "-c", '"$@"; exit $?', "init"]
RUN = ["--rootless=false", "--network=none", "--platform=systrap", "do"]


def fetch(name):
    version, toolchain = VERSIONS[name]
    folder = FOLDER / name
    FOLDER.mkdir(parents=True, exist_ok=True)
    with FOLDER.joinpath("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            check_tools("go")
            print("building gVisor", version, flush=True)
            with replacing(folder) as new:
                # With cgo it can't start.
                env = dict(os.environ, GOBIN=str(new), CGO_ENABLED="0")
                if toolchain:
                    env["GOTOOLCHAIN"] = toolchain
                install = ["go", "install", "gvisor.dev/gvisor/runsc@" + version]
                subprocess.check_call(install, env=env, cwd="/")
    return folder / "runsc"


def run(name, args):
    env = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1", GVISOR=name)
    env.pop("TOX_ENV_NAME", None)  # it grants no skips
    if all(arg.startswith("-") for arg in args):
        args += ["tests/matrix/kernel_facts.py"]
        args += ["tests/test_{}.py".format(test) for test in TESTS]
        lacks = LACKS if name == "current" else dict(LACKS, **LACKS_WITHOUT_PIDFD)
        args += ["--deselect=" + test for test in " ".join(lacks.values()).split()]
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.skips"]
    # Python fails if its output is a regular file.
    with subprocess.Popen(
        [str(fetch(name))] + RUN + INIT + pytest + args,
        cwd=str(ROOT),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            for line in process.stdout:
                print(line.decode("utf-8", "replace"), end="", flush=True)
        finally:
            if sys.exc_info()[0]:
                process.terminate()
    return process.returncode


def main():
    args = sys.argv[1:]
    names = [name for name in VERSIONS if name in args]
    args = [arg for arg in args if arg not in VERSIONS]
    if os.getuid() != 0:
        sys.exit("gVisor needs root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # cleaning up
    failed = []
    for name in names or VERSIONS:
        print("gVisor,", name, flush=True)
        if run(name, args[:]):
            failed.append(name)
    if failed:
        sys.exit("failed on gVisor: " + ", ".join(failed))


if __name__ == "__main__":
    main()
