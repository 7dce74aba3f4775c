# SPDX-License-Identifier: BSD-3-Clause
"""Two copies of the package in one process, of different versions."""

import os

import pytest

from . import pidwait
from .copies import FILES, put
from .processes import WINDOWS, exiting, run_python

# In the other version a module has another name, and patch() leaves the wait alone.
OTHER = (
    ("__init__.py", '__version__ = "%s"' % pidwait.__version__, '__version__ = "0.0.1"'),
    (
        "subprocess.py",
        "    return names\n\n\nclass _Patch:",
        "    return [one for one in names if one != _WAIT]\n\n\nclass _Patch:",
    ),
)


@pytest.fixture
def run_both(tmp_path):
    """run_both(code, args...) runs it where `one` and `two` are copies; return its stdout."""
    other = dict(FILES)
    for path, old, new in OTHER:
        assert other[path].decode().count(old) == 1
        other[path] = other[path].replace(old.encode(), new.encode())
    other = {
        path.replace("_hooks", "_hooked"): data.replace(b"_hooks", b"_hooked")
        for path, data in other.items()
    }
    for name, contents in ("one", FILES), ("two", other):
        put(contents, tmp_path / "another" / name / "_vendor" / "renamed")
    head = """if True:
        import os, subprocess, sys, threading, warnings
        warnings.filterwarnings("ignore", "This process .*multi-threaded")  # it forks on purpose
        import another.one._vendor.renamed as one, another.two._vendor.renamed as two
        assert one.__version__ != two.__version__
    """

    def run(code, *args):
        env = dict(os.environ, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
        done = run_python(head + code, *args, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def test_each_waits_for_what_the_other_knows(run_both):
    code = """
        child = subprocess.Popen(sys.argv[1:])
        with one.Process(child.pid) as a, two.Process(child.pid) as b:
            assert a != b
            assert one.wait(b, 30) == two.wait(a, 30) == 3
            assert one.wait(child) == two.wait(child) == child.returncode == 3
        try:
            one.wait(os.getpid(), 0)
        except two.TimeoutExpired:
            raise SystemExit("one copy's exception is the other's")
        except TimeoutError:
            print("good")
    """
    assert run_both(code, *exiting(3)) == "good\n"


# Small letters patch, capitals unpatch.
SOME = "abAB abBA baAB baBA aAbB bBaA ABaAbB"
PATCH = """
        import itertools
        from another.one._vendor.renamed import subprocess as first
        if sys.argv[1]:
            orders = sys.argv[1].split()
        else:
            orders = sorted({"".join(order) for order in itertools.permutations("aabAAB")})
        end = sys.argv[2:]
        popen = subprocess.Popen
        original = dict(vars(popen))
        sleeper = popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
        done = 0

        def check(users, changed):
            now = dict(vars(popen))
            state = now.pop("_patched", None)
            assert (state is not None) == bool(users), state
            differing = {name for name in now if now[name] is not original.get(name)}
            assert (differing, set(now)) == (changed, set(original)), (differing, changed)
            with popen(end) as child:
                assert child.wait(60) == 3
            try:
                sleeper.wait(0.001)
            except subprocess.TimeoutExpired:
                pass
            else:
                raise AssertionError("it was waited for to the end")
            assert sleeper.poll() is None and sleeper.returncode is None
            if "a" in users:  # on each Python
                with popen(end, process_group=0) as child:
                    assert child.wait(60) == 3

        # The second finds the Popen that the first has patched when it is imported.
        first.patch()
        from another.two._vendor.renamed import subprocess as second
        first.unpatch()
        copies = {"a": first, "b": second}
        for order in orders:
            users, changed = [], set()
            for step in order + "AAB":
                copy = copies[step.lower()]
                if step.islower():
                    copy.patch()
                    users.append(step)
                    changed |= set(copy._missing())
                else:
                    copy.unpatch()
                    if step.lower() in users:
                        users.remove(step.lower())
                    if not users:
                        changed = set()
                try:
                    check(users, changed)
                except Exception:
                    print(order, step, users)
                    raise
                done += 1
            assert not users
        assert first.call(end) == second.call(end, timeout=60) == 3
        sleeper.communicate()
        assert sleeper.returncode == 0
        print(len(orders), set(second._missing()) <= set(first._missing()))
"""


def test_both_patch_and_unpatch_in_any_order(run_both):
    # Where starting a process takes long, but some.
    orders = SOME if WINDOWS else ""
    assert run_both(PATCH, orders, *exiting(3)) == "%d True\n" % (7 if WINDOWS else 180)


THREADS = """
        from another.one._vendor.renamed import subprocess as first
        from another.two._vendor.renamed import subprocess as second
        first.patch()
        second.patch()
        codes, seen = {}, threading.Semaphore(0)

        def start():
            command = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"]
            return subprocess.Popen(command, stdin=subprocess.PIPE)

        def wait_many(copy, child):
            with copy.WaitSet([child]) as group:
                ((_, code),) = group.wait(60)
            return code

        def as_handle(copy, child):
            with copy.Process(child.pid) as process:
                return process.wait(60)

        ways = [
            lambda copy, child: copy.wait(child, 60),
            wait_many,
            as_handle,
            lambda copy, child: child.wait(60),
        ]

        def note(key, function):
            codes[key] = function()
            seen.release()

        children, threads = [], []
        for copy in one, two:
            for number, way in enumerate(ways):
                child = start()
                children.append(child)
                args = (copy, number), lambda way=way, copy=copy, child=child: way(copy, child)
                threads.append(threading.Thread(target=note, args=args))
                threads[-1].start()
            child = start()
            children.append(child)
            key = copy, len(ways)
            copy.watch(child, lambda proc, code, key=key: note(key, lambda: code))
"""
FORK = """
        pid = os.fork()
        if not pid:
            status = 1
            try:
                for copy, module in (one, first), (two, second):
                    assert module.call(["sh", "-c", "exit 4"], timeout=60) == 4
                    assert copy.wait(copy.spawn(["sh", "-c", "exit 5"]), 60) == 5
                    done = threading.Semaphore(0)
                    copy.watch(os.getppid(), print)
                    copy.watch(copy.spawn(["true"]), lambda proc, code: done.release())
                    assert done.acquire(timeout=60)
                    assert subprocess.call(["sh", "-c", "exit 6"], timeout=60) == 6
                    module.unpatch()
                assert "_patched" not in vars(subprocess.Popen)
                status = 0
            finally:
                os._exit(status)
        assert one.wait(pid, 60, reap=True) == 0
"""
END = """
        for child in children:
            child.stdin.close()
        for thread in threads:
            thread.join()
        for _ in children:
            assert seen.acquire(timeout=60)
        for child in children:
            assert child.wait(60) == 3
        second.unpatch()
        first.unpatch()
        assert "_patched" not in vars(subprocess.Popen)
        print(len(codes), set(codes.values()))
"""


@pytest.mark.parametrize(
    "middle", [""] if WINDOWS else ["", FORK], ids=["plain", "fork"][: 2 - WINDOWS]
)
def test_threads_wait_in_both(run_both, middle):
    assert run_both(THREADS + middle + END) == "10 {3}\n"
