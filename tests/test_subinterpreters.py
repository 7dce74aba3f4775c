# SPDX-License-Identifier: BSD-3-Clause
"""In subinterpreters: those that share the GIL, and isolated ones, which may lack a lot."""

import pytest

from . import pidwait
from .processes import run_python

DRIVER = """if True:
    import os, sys, threading, time
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    import {package} as pidwait

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

    def run(interpreter, code):
        failed = getattr(module, "exec", module.run_string)(interpreter, USES + code)
        assert failed is None, failed.formatted

    def once(kind, code):
        interpreter = create(kind)
        run(interpreter, code)
        module.destroy(interpreter)

    def open_fds():
        links = ["/proc/self/fd/" + fd for fd in os.listdir("/proc/self/fd")]
        return sorted((link, os.readlink(link)) for link in links if os.path.lexists(link))

    def has_child():
        try:
            return os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False

    USES = '''if True:
        import os, sys, threading, time
        sys.path.insert(0, os.getcwd())
        import {package} as pidwait

        def start(code):
            return os.posix_spawn("/bin/sh", ["sh", "-c", "exit " + str(code)], os.environ)

        def uses():
            with pidwait.spawn(["sh", "-c", "exit 3"]) as child:
                assert child.wait(30) == 3
            assert pidwait.wait(start(4), 30, reap=True) == 4
            pid = start(5)
            with pidwait.Process(pid) as process:
                assert process.wait(30) == 5
                assert process.wait(reap=True) == 5
            codes = dict((start(code), code) for code in range(6))
            pids = list(codes)
            with pidwait.WaitSet(pids[:2]) as waiting:
                found = []
                while waiting:
                    found += waiting.wait(30)
            found += pidwait.wait_procs(pids[2:4], 30)[0] + list(pidwait.as_completed(pids[4:]))
            assert dict(found) == codes and len(found) == 6, (found, codes)
            for pid in pids:
                os.waitpid(pid, 0)
            assert os.getpid() in [info.pid for info in pidwait.process_iter()]
            report = pidwait.probe()
            assert report["backends"][report["backend"]]["available"]
            for row in report["bindings"].values():
                assert row["available"] or row["reason"]
            return report["backend"]

        def watch():
            pid, told, threads = start(6), [], len(os.listdir("/proc/self/task"))
            done = threading.Event()
            pidwait.watch(pid, lambda pid, code: (told.append(code), done.set()))
            assert done.wait(30) and told == [6]
            os.waitpid(pid, 0)
            # Else destroying it would be fatal. Without a GIL a thread that is not counted any more
            # is there for a moment.
            while threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > threads:
                time.sleep(0.001)

        def watch_or_refusal():
            try:
                watch()
            except RuntimeError as error:
                assert "daemon thread" in str(error), error
                pidwait.wait_procs([], 0)
                os.waitpid(-1, 0)
                return "refused"
            return "told"
    '''
    exec(USES)
"""


def run(code, is_quiet=True):
    done = run_python(DRIVER.replace("{package}", pidwait.__name__) + code)
    assert done.returncode == 0 and not (is_quiet and done.stderr), done
    return done.stdout.split()


@pytest.fixture(params=["legacy", "isolated"])
def kind(request):
    return request.param


def test_everything_works_or_says_why_not(kind):
    code = """
    uses()
    opened = open_fds()
    for _ in range(3):
        once("KIND", "    print(uses(), watch_or_refusal(), flush=True)")
    assert not has_child()
    assert open_fds() == opened, (open_fds(), opened)
    print(uses())
    watch()
    """.replace("KIND", kind)
    *pairs, backend = run(code)
    assert pairs[2:] == pairs[:2] * 2
    assert pairs[0] == backend
    assert pairs[1] == "told" or kind == "isolated"


def test_before_the_main_interpreter_has_used_it(kind):
    code = """
    once("KIND", "    uses()")
    uses(), watch()
    assert not has_child()
    """.replace("KIND", kind)
    assert run(code) == []


def test_several_at_once(kind):
    code = """
    def uses_in_one():
        # Before 3.12, destroying it elsewhere than where it imports threading would hang.
        once("KIND", "    for _ in range(5): uses()")
        done.append(True)

    uses()  # CPython 3.12 crashes at its end if several import _ctypes first, at the same time
    done = []
    threads = [threading.Thread(target=uses_in_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        uses()
    for thread in threads:
        thread.join()
    assert len(done) == 6 and not has_child()
    uses()
    """.replace("KIND", kind)
    assert run(code) == []


def test_destroyed_with_open_handles(kind):
    code = """
    import warnings
    uses()
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    opened = open_fds()
    once("KIND", '''
        import warnings
        warnings.simplefilter("ignore")
        process, waiting = pidwait.Process(%d), pidwait.WaitSet([%d])
        waiting.fileno()
    ''' % (pid, pid))
    assert open_fds() == opened, (open_fds(), opened)
    with pidwait.Process(pid) as process:
        process.kill()
        assert process.wait(30, reap=True) == -9
    """.replace("KIND", kind)
    # Python 3.8 has cleared the builtins when the destructors run, and prints that.
    assert run(code, is_quiet=False) == []


def test_can_not_be_destroyed_while_it_waits(kind):
    code = """
    def wait():
        try:
            code = "    os.write(%d, b'x'); assert pidwait.wait(%d, 60) == -9"
            run(interpreter, code % (writer, pid))
        finally:
            os.close(writer)

    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    reader, writer = os.pipe()
    interpreter = create("KIND")
    run(interpreter, "    uses()")  # imports threading where it is destroyed, else that would hang
    thread = threading.Thread(target=wait)
    thread.start()
    assert os.read(reader, 1)
    try:
        module.destroy(interpreter)
    except Exception as error:  # its class and words depend on the version
        refusal = str(error)
    os.kill(pid, 9)
    thread.join()
    assert "running" in refusal
    os.waitpid(pid, 0)
    module.destroy(interpreter)
    uses()
    """.replace("KIND", kind)
    assert run(code) == []
