# SPDX-License-Identifier: BSD-3-Clause
"""Run the suite without root's rights, as `nobody` if started by root, and with SIGHUP ignored.

`nobody` may be unable to read this tree, this environment or its interpreter, so the suite runs on
copies, with an interpreter of the same version that everybody may run. Without one, it runs as
root, or fails if the environment variable CI is set. SIGHUP is ignored, as under nohup(1).
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
PYTEST = ["-m", "pytest"] + sys.argv[1:]
CACHE = Path(sysconfig.get_path("data"), "pytest-cache")  # which `nobody` can't reach


def drop():
    import pwd  # not on Windows

    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


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
            shutil.chown(path, "nobody")
        code = subprocess.call(command, preexec_fn=drop, cwd=tree, env=env)
        shutil.copytree(cache, CACHE, dirs_exist_ok=True)
        return code


if __name__ == "__main__":
    sys.exit(main())
