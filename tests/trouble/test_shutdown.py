# SPDX-License-Identifier: BSD-3-Clause
"""The end of the interpreter and of subinterpreters; what is forgotten; and strict interpreters."""

import os
import sys

import pytest

from .. import pidwait
from ..conftest import KQUEUES
from ..needs import needs
from ..processes import run_python

PYPY = sys.implementation.name == "pypy"


def run(code, **kwargs):
    return run_python(code.replace("{package}", pidwait.__name__), **kwargs)


KEPT = """if True:
    import os, sys
    import {package} as pidwait

    class Cycle: pass
    def make():
        child = pidwait.spawn(["sleep", "0.01"])
        process, waiting = pidwait.Process(os.getppid()), pidwait.WaitSet([os.getppid(), child])
        waiting.wait(0)
        return process, waiting, child

    cycle, kept = Cycle(), make()
    cycle.kept, cycle.cycle = make(), cycle
"""


@pytest.mark.parametrize("asked", [False, True])
def test_open_objects_at_the_end_of_the_interpreter_only_warn_if_asked(variant, monkeypatch, asked):
    if asked:
        monkeypatch.setenv("PYTHONWARNINGS", "default::ResourceWarning")
    done = run(KEPT)
    if asked and not PYPY:  # which ends without finalizers
        for name in "Process", "WaitSet":
            assert "ResourceWarning: unclosed <%s" % name in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert (done.stdout, done.returncode) == ("", 0)
    assert asked or done.stderr == ""


DAEMONS = """if True:
    import atexit, os, threading
    import {package} as pidwait

    child = pidwait.spawn(["sleep", "60"])
    waiting, process = pidwait.WaitSet([child.pid]), pidwait.Process(child.pid)
    ready = threading.Barrier(4)
    for function in process.wait, waiting.wait, child.wait:
        wait = lambda function=function: (ready.wait(), function())
        threading.Thread(target=wait, daemon=True).start()
    pidwait.watch(child.pid, lambda proc, code: None)
    ready.wait()

    def last():
        child.kill()
        print(pidwait.wait(child, 30))
        with pidwait.spawn(["sh", "-c", "exit 4"]) as other:
            print(other.wait(30))
    atexit.register(last)
"""


@pytest.mark.threads
def test_daemon_threads_that_wait_do_not_hold_the_interpreter(variant):
    """And the functions of atexit may wait, too."""
    done = run(DAEMONS)
    assert (done.stdout, done.stderr, done.returncode) == ("-9\n4\n", "", 0)


# Subinterpreters: those that share the GIL, and isolated ones, which may lack a lot

DRIVER = """if True:
    import os, sys, threading, time, warnings
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module

    def create(kind):
        for create in (
            lambda: module.create(kind),
            lambda: module.create(isolated=kind == "isolated"),
            lambda: module.create(),  # Python 3.8 has but one kind
        ):
            try:
                return create()
            except TypeError:
                pass

    def once(code):
        interpreter = create("KIND")
        failed = getattr(module, "exec", module.run_string)(interpreter, USES + code)
        assert failed is None, failed.formatted
        module.destroy(interpreter)

    def links():
        links = ["/proc/self/fd/" + fd for fd in os.listdir("/proc/self/fd")]
        return sorted((link, os.readlink(link)) for link in links if os.path.lexists(link))

    USES = '''if True:
        import _thread, os, sys, threading, time, warnings
        sys.path.insert(0, os.getcwd())
        import {package} as pidwait

        def start(code):
            return os.posix_spawn("/bin/sh", ["sh", "-c", "exit " + str(code)], os.environ)

        def uses():
            with pidwait.spawn(["sh", "-c", "exit 3"]) as child:
                assert child.wait(30) == 3
            pid = start(5)
            with pidwait.Process(pid) as process:
                assert process.wait(30) == 5
                assert process.wait(reap=True) == 5
            codes = dict((start(code), code) for code in range(3))
            pids = list(codes)
            found = pidwait.wait_procs(pids[2:], 30)[0]
            with pidwait.WaitSet(pids[:2]) as waiting:
                while waiting:
                    found += waiting.wait(30)
            assert dict(found) == codes and len(found) == 3, (found, codes)
            for pid in pids:
                os.waitpid(pid, 0)
            assert os.getpid() in [info.pid for info in pidwait.process_iter()]
            report = pidwait.probe()
            assert report["backends"][report["backend"]]["available"]
            for row in report["bindings"].values():
                assert row["available"] or row["reason"]

        def watch():
            pid, told, threads = start(6), threading.Event(), len(os.listdir("/proc/self/task"))
            try:
                pidwait.watch(pid, lambda pid, code: code == 6 and told.set())
                assert told.wait(30)
                # Else destroying it would be fatal. Without a GIL a thread that is not counted
                # any more is there for a moment.
                while threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > threads:
                    time.sleep(0.001)
            except RuntimeError as error:
                is_told = hasattr(_thread, "_is_main_interpreter")  # from Python 3.12 on
                assert "thread" in str(error) and ("KIND" == "isolated" or is_told), error
            os.waitpid(pid, 0)
    '''
    exec(USES)
    if "ORDER" == "second":
        uses(), watch()
        opened = links()
    for _ in range(2):
        once("    uses(), watch()")
    if "ORDER" == "first":
        uses(), watch()
        opened = links()

    # Destroyed with open handles
    once('''
        warnings.simplefilter("ignore")
        process, waiting = pidwait.Process(%d), pidwait.WaitSet([%d])
        waiting.fileno()
    ''' % (os.getpid(), os.getppid()))
    assert links() == opened, (links(), opened)

    # Several at once. Before 3.12, destroying it elsewhere than where it imports threading hangs.
    done = []
    use = lambda: (once("    uses(), uses()"), done.append(True))
    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    uses()
    for thread in threads:
        thread.join()
    assert len(done) == 3
    uses(), watch()
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("done")
"""


@needs("/proc")
@pytest.mark.parametrize("kind, order", [("legacy", "second"), ("isolated", "first")])
def test_in_a_subinterpreter_everything_works_or_says_why_not(kind, order):
    """It is used before the main interpreter, or after it."""
    if PYPY or not hasattr(os, "posix_spawn"):
        pytest.skip("this interpreter has no subinterpreters, or no posix_spawn to start children")
    done = run(DRIVER.replace("KIND", kind).replace("ORDER", order))
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    # Python 3.8 has cleared the builtins when the destructors run, and prints that.
    assert done.stderr == "" or sys.version_info < (3, 9)


# python -bb: to compare str with bytes is an error, in a dict's lookup, too

STRICT = """
import os, sys, threading
import {package} as pidwait, {package}.aio
from {package} import subprocess
from {package}.cli import main

texts, raw = dict(A="1", PATH="/bin"), {b"A": b"1", b"PATH": b"/bin"}
commands = ["sh", "-c", "exit 3"], [b"sh", "-c", b"exit 3"], ("/bin/sh", b"-c", "exit 3")
for number, env in enumerate([None, texts, raw, {"A": b"2"}, {b"A": "1"}]):
    args, cwd = commands[number % 3], [None, "/", b"/"][number % 3]
    assert subprocess.call(args, env=env, cwd=cwd) == 3
    with pidwait.spawn(args, env=env, cwd=cwd) as child:
        assert pidwait.wait(child, 30) == 3
for start in subprocess.Popen, pidwait.spawn:
    for args, cwd in ([b"/nonesuch"], None), (["true"], b""):
        try:
            start(args, cwd=cwd)
            raise AssertionError
        except FileNotFoundError as error:
            assert error.filename is not None
with subprocess.patch():
    child = subprocess.Popen("exit 4", shell=True, process_group=0)
    assert pidwait.wait_procs([child, os.getppid()], 0.3)[1] == [os.getppid()]
    assert child.wait(30) == 4
told = threading.Event()
pidwait.watch(pidwait.spawn(b"true"), lambda proc, code: told.set())
assert told.wait(30)
assert list(pidwait.process_iter(["name", "cmdline", "username", "ppid"]))
pidwait.probe()
sys.exit(main(["run", "--tree", "sh", "-c", "exit 5"]))
"""


@pytest.mark.parametrize("ffi", ["auto", "cffi"])
def test_bytes_and_str_are_never_compared(variant, monkeypatch, ffi):
    reason = pidwait.probe()["bindings"].get(ffi, {"reason": None})["reason"]
    if reason:
        pytest.skip(reason)
    monkeypatch.setenv("PIDWAIT_FFI", ffi)
    done = run(STRICT, options=["-bb"])
    assert done.returncode == 5 and (KQUEUES or done.stderr == ""), done.stderr
