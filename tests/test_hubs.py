# SPDX-License-Identifier: BSD-3-Clause
"""gevent and eventlet: their Popen beside ours, and beside patch()."""

import os

import pytest

from . import pidwait
from .processes import run_python, skip_module_without
from .test_green import ALL, run

skip_module_without("gevent", "eventlet")

GEVENT = """import gevent.monkey
gevent.monkey.patch_all({how})
import subprocess
Popen = subprocess.Popen
"""


@pytest.mark.parametrize("how", ["", "select=False"])
def test_gevent(how):
    (backend,) = run(GEVENT.replace("{how}", how) + ALL + "used()\n")
    assert backend in ("pidfd", "polling")


# m patches the standard modules for the hub, u uses each wait, s makes the set that is used then.
MEANWHILE = """if True:
    import gc, os, subprocess, sys, threading
    hub, order, backend = sys.argv[1:]
    os.environ["PIDWAIT_BACKEND"] = backend
    import {package} as pidwait
    waiting = None

    def put_in_place():
        global spawn, switch
        if hub == "gevent":
            import gevent.monkey
            gevent.monkey.patch_all()
            spawn, switch = gevent.spawn, gevent.sleep
        else:
            import eventlet
            eventlet.monkey_patch()
            spawn, switch = eventlet.spawn, eventlet.sleep

    def wait(child, *timeout):
        return pidwait.wait(child, *timeout)

    def wait_procs(child, *timeout):
        return pidwait.wait_procs([child], *timeout)[0][0][1]

    def as_completed(child, *timeout):
        return list(pidwait.as_completed([child], *timeout))[0][1]

    def in_a_set(child, *timeout):
        with pidwait.WaitSet([child]) as waiting:
            return waiting.wait(*timeout)[0][1]

    def in_a_set_from_before(child, *timeout):
        waiting.add(child)
        return waiting.wait(*timeout)[0][1]

    def by_handle(child, *timeout):
        with pidwait.Process(child.pid) as process:
            code = process.wait(*timeout)
        child.wait()
        return code

    def by_itself(child, *timeout):
        return child.wait(*timeout)

    def watch(child, *timeout):
        told, codes = threading.Event(), []
        pidwait.watch(child, lambda child, code: (codes.append(code), told.set()))
        told.wait(*timeout)
        return codes[0]

    WAITS = [wait, wait_procs, as_completed, in_a_set, by_handle, by_itself, watch]

    def use(how):
        for start in pidwait.spawn, subprocess.Popen:
            for way in WAITS:
                for timeout in (), (30,):
                    child = start(["sleep", "60"])
                    how(child)
                    code = way(child, *timeout)
                    # gevent reaps all children: then the code may not be known.
                    assert code in (-15, None), (start, way, timeout, code)
                    child.wait()
                    if start is pidwait.spawn:
                        child.close()

    for letter in order:
        if letter == "m":
            put_in_place()
        elif letter == "u":
            use(lambda child: child.terminate())
        else:
            waiting = pidwait.WaitSet()
            WAITS.append(in_a_set_from_before)
    # Another greenlet ends the child, so it has to run while this one waits.
    use(lambda child: spawn(child.terminate))
    if waiting is not None:
        waiting.close()
    print("has run")
"""


@pytest.mark.parametrize("backend", ["auto", "polling"])
@pytest.mark.parametrize("order", ["m", "um", "sm", "usm"])
@pytest.mark.parametrize("hub", ["gevent", "eventlet"])
def test_others_run_meanwhile(hub, order, backend):
    env = dict(os.environ, PYTHONWARNINGS="ignore")  # eventlet warns against its own use
    code = MEANWHILE.replace("{package}", pidwait.__name__)
    done = run_python(code, hub, order, backend, env=env)
    assert done.stdout == "has run\n", done.stderr


# m patches the standard modules for the hub, i imports our subprocess, p is patch(), u unpatch().
HUB = """if True:
    import subprocess, sys
    order, hub = sys.argv[1:]

    def put_in_place():
        global spawn
        if hub == "gevent":
            import gevent.monkey
            gevent.monkey.patch_all()
            spawn = gevent.spawn
        else:
            import eventlet
            eventlet.monkey_patch()
            spawn = eventlet.spawn

    def load():
        from {package} import subprocess
        return subprocess

    def use(module):
        assert module.call(["sh", "-c", "exit 3"]) == 3
        assert module.check_call("true", start_new_session=True) == 0
        assert module.check_output(["echo", "x"]).split() == [b"x"]
        assert module.run(["sh", "-c", "exit 4"], timeout=30).returncode == 4
        try:
            module.call(["sleep", "60"], timeout=0.05)
            raise AssertionError
        except module.TimeoutExpired:
            pass
        try:
            module.call(["/nonesuch"])
            raise AssertionError
        except FileNotFoundError:
            pass
        end_in_the_hub(module.Popen)

    def end_in_the_hub(Popen):
        # Another greenlet ends them, while the main one waits.
        for timeout in (), (30,):
            child = Popen(["sleep", "60"])
            spawn(child.terminate)
            assert child.wait(*timeout) == -15
        child = Popen(["sleep", "60"], stdout=-1)
        assert (spawn(child.terminate), child.wait(30))[1] == -15
        assert child.communicate() == (b"", None)

    for letter in order:
        if letter == "m":
            put_in_place()
        elif letter == "i":
            load()
        elif letter in "pu":
            load().patch() if letter == "p" else load().unpatch()
    use(load())
    use(subprocess)
    use(load())
    print(load().Popen is subprocess.Popen)
"""
ORDERS = ["mp", "pm", "im", "mi", "imp", "mpu", "pmu", "pum"]


@pytest.mark.parametrize("hub", ["gevent", "eventlet"])
@pytest.mark.parametrize("order", ORDERS)
def test_any_order(order, hub):
    env = dict(os.environ, PYTHONWARNINGS="ignore")  # eventlet warns against its own use
    done = run_python(HUB.replace("{package}", pidwait.__name__), order, hub, env=env)
    # gevent's Popen starts and waits in its own way: if it was there first, ours is the same.
    assert done.stdout == "%s\n" % (hub == "gevent" and order[0] == "m"), done.stderr
