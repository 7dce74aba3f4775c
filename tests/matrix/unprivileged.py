# SPDX-License-Identifier: BSD-3-Clause
"""Run the suite without root's rights, as `nobody` if started by root, and with SIGHUP ignored.

`nobody` may be unable to read this tree, this environment or its interpreter, so the suite runs on
copies, with an interpreter of the same version that everybody may run. Without one, it runs as
root, or fails if the environment variable CI is set. SIGHUP is ignored, as under nohup(1).

--small limits the user to 160 processes and 128 open files, as on the BSDs. The limit counts all
processes of a user, so this is another user, in a PID namespace of its own. The run fails if a test
has left a process.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IS_SMALL = sys.argv[1:2] == ["--small"]
USER = "games" if IS_SMALL else "nobody"
PROCESSES, FILES = 160, 128
PYTEST = ["-m", "pytest"] + sys.argv[1 + IS_SMALL :]
CACHE = Path(sysconfig.get_path("data"), "pytest-cache")  # which `nobody` can't reach


def drop():
    import pwd  # not on Windows
    import resource

    if IS_SMALL:
        resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    user = pwd.getpwnam(USER)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def run(command, **options):
    """Run it as that user. The first process of a PID namespace reaps its orphans, too."""
    child = subprocess.Popen(command, preexec_fn=drop, **options)
    while os.getpid() == 1:
        pid, status = os.wait()
        if pid == child.pid:
            child.returncode = os.WEXITSTATUS(status) or os.WTERMSIG(status)
            break
    child.wait()
    left = [path for path in Path("/proc").glob("[0-9]*") if IS_SMALL and path.owner() == USER]
    if left:
        print("left: {}, such as {}".format(len(left), (left[0] / "cmdline").read_bytes()[:500]))
    return child.returncode or bool(left)


def public_interpreter():
    name = "python{}.{}".format(*sys.version_info)
    for folder in os.get_exec_path():
        python = os.path.join(folder, name)
        try:
            if subprocess.call([python, "-Ic", ""], preexec_fn=drop, cwd="/") == 0:
                return python
        except OSError:
            continue
    print("no {} on PATH that `nobody` may run".format(name), flush=True)
    if os.environ.get("CI"):
        sys.exit(1)
    return None


def main():
    if IS_SMALL and os.getpid() != 1:
        namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return subprocess.call([*namespace, sys.executable, *sys.argv])
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # children inherit that
    public = public_interpreter() if hasattr(os, "getuid") and os.getuid() == 0 else None
    if public is None:
        return subprocess.call([sys.executable] + PYTEST)
    with tempfile.TemporaryDirectory() as tmp:
        top = Path(tmp)
        top.chmod(0o755)
        tree, venv = top / "tree", top / "venv"
        ignored = shutil.ignore_patterns(".git", ".tox", ".venv", ".*_cache", "__pycache__")
        shutil.copytree(ROOT, tree, ignore=ignored)
        # The user can't write there: each child would compile the package again.
        subprocess.check_call([public, "-m", "compileall", "-q", tree])
        subprocess.check_call([public, "-m", "venv", "--without-pip", venv])
        (site,) = venv.glob("lib/*/site-packages")
        shutil.copytree(sysconfig.get_path("purelib"), site, dirs_exist_ok=True)
        env = dict(os.environ, PYTHONPATH=str(tree), HOME="/nonexistent")
        command = [venv / "bin" / "python"] + PYTEST + ["-o", "cache_dir=%s/cache" % tree]
        # Of the tests that failed: see environments.py.
        cache = tree / "cache"
        if CACHE.exists():
            shutil.copytree(CACHE, cache)
        cache.mkdir(exist_ok=True)
        for path in [cache, *cache.rglob("*")]:
            shutil.chown(path, USER)
        code = run(command, cwd=tree, env=env)
        shutil.copytree(cache, CACHE, dirs_exist_ok=True)
        return code


if __name__ == "__main__":
    sys.exit(main())
