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


def test_others_run_meanwhile():
    """Another greenlet ends the child, so it has to run while this one waits."""
    code = GEVENT.replace("{how}", "") + MEANWHILE.replace("{package}", pidwait.__name__)
    done = run_python(code)
    assert (done.stdout, done.returncode) == ("-15\n" * 8, 0), done.stderr


MEANWHILE = """
import gevent
import {package} as pidwait

def in_a_set(child):
    with pidwait.WaitSet([child]) as waiting:
        return waiting.wait()[0][1]

waits = [pidwait.wait, lambda child: pidwait.wait(child, 30), lambda child: child.wait(), in_a_set]
for wait in waits:
    for start in pidwait.spawn, Popen:
        child = start(["sleep", "60"])
        gevent.spawn(child.terminate)
        print(wait(child), flush=True)
"""


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
