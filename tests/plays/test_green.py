# SPDX-License-Identifier: BSD-3-Clause
"""gevent and eventlet: other greenlets run while one waits, and patches go together."""

import os

import pytest

from .. import pidwait
from ..processes import need_packages, run_python

need_packages("gevent", "eventlet")

# m patches the standard modules for the hub, u uses each wait, s makes a set that is used later,
# p is our patch().
PLAY = """if True:
    import os, subprocess, sys, threading
    hub, order = sys.argv[1:]
    polls = os.environ["PIDWAIT_BACKEND"] == "polling"
    import {package} as pidwait
    from {package} import subprocess as ours
    waiting = None

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
            return process.wait(*timeout)

    def by_itself(child, *timeout):
        return child.wait(*timeout)

    def watch(child, *timeout):
        told, codes = threading.Event(), []
        pidwait.watch(child, lambda child, code: (codes.append(code), told.set()))
        told.wait(*timeout)
        return codes[0]

    WAYS = [wait, wait_procs, as_completed, in_a_set, by_handle, by_itself, watch]

    def use(end):
        for start in pidwait.spawn, subprocess.Popen, ours.Popen:
            for way in WAYS:
                for timeout in (), (30,):
                    child = start(["sleep", "60"])
                    end(child)
                    code = way(child, *timeout)
                    # gevent reaps all children: then the code may not be known, and the standard
                    # code of our Popen says 0.
                    known = [-15, None] + [0] * (polls and hub == "gevent" and way is by_itself)
                    assert code in known, (start, way, timeout, code)
                    child.wait()
                    if start is pidwait.spawn:
                        child.close()
        assert subprocess.check_output(["echo", "x"]) == ours.check_output(["echo", "x"]) == b"x\\n"

    for letter in order:
        if letter == "m":
            put_in_place()
        elif letter == "u":
            use(lambda child: child.terminate())
        elif letter == "p":
            ours.patch()
        else:
            waiting = pidwait.WaitSet()
            WAYS.append(in_a_set_from_before)
    # Another greenlet ends the child, so it has to run while this one waits.
    use(lambda child: spawn(child.terminate))
    if waiting is not None:
        waiting.close()
    print("has run")
"""


@pytest.mark.parametrize("backend", ["auto", "polling"])
@pytest.mark.parametrize("order", ["m", "usm", "pm", "mp"])
@pytest.mark.parametrize("hub", ["gevent", "eventlet"])
def test_others_run_meanwhile(hub, order, backend):
    # eventlet warns against its own use
    env = dict(os.environ, PYTHONWARNINGS="ignore", PIDWAIT_BACKEND=backend)
    done = run_python(PLAY.replace("{package}", pidwait.__name__), hub, order, env=env)
    assert done.stdout == "has run\n", done.stderr


TIMEOUT = """if True:
    import gevent.monkey
    gevent.monkey.patch_all()
    import gevent, os
    import {package} as pidwait
    for error in TimeoutError("up"), OSError("up"), ValueError("up"):
        for wait in pidwait.wait, lambda pid: pidwait.wait_procs([pid]):
            try:
                with gevent.Timeout(0.05, error):
                    wait(os.getppid())
            except type(error) as raised:
                assert raised is error
            else:
                raise AssertionError("it went on")
    print("has run")
"""


def test_a_timeout_of_gevent_comes_out_of_a_wait():
    done = run_python(TIMEOUT.replace("{package}", pidwait.__name__))
    assert done.stdout == "has run\n", done.stderr
