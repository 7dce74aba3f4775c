# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.plays.event_loops LOOP: the recipes for that event loop, as they stand there.

Prints what came of each case, as JSON: of test_event_loops. Imports are inside: each loop runs
in an interpreter of its own, GLib's without pytest.
"""

import contextlib
import functools
import json
import os
import re
import selectors
import sys
import threading
import types

from .. import pidwait
from ..package.recipes import RECIPES, with_our_name

ONCE = 3  # its exit code


class Started:
    """A child that exits with a code when it is told to."""

    def __init__(self, code):
        reader, self.writer = os.pipe()
        self.child = pidwait.spawn(["sh", "-c", "read line; exit %d" % code], stdin=reader)
        os.close(reader)
        self.is_told = False

    def tell(self):
        if not self.is_told:
            self.is_told = True
            os.write(self.writer, b"\n")  # gevent's os.close() would close it later

    def close(self):
        self.child.wait()
        self.child.close()
        os.close(self.writer)

    def has_exited(self):
        """Tell it, and wait until it has exited; it is a zombie then."""
        self.tell()
        pidwait.wait(self.child.pid)
        return self


# Descriptors that an epoll still watched when they were about to be closed.
watched = []


def note_watched(close):
    @functools.wraps(close)
    def noted(source):
        with contextlib.suppress(OSError, ValueError):  # polled; closed already
            if source.fileno() in fds_in_epolls():
                watched.append(type(source).__name__)
        close(source)

    return noted


def fds_in_epolls():
    fds = set()
    for fd in os.listdir("/proc/self/fdinfo"):
        with contextlib.suppress(FileNotFoundError), open("/proc/self/fdinfo/" + fd) as file:
            # `tfd` is what it watches. A set's own epoll watches pidfds, not itself.
            fds.update(map(int, re.findall(r"^tfd: +([0-9]+)", file.read(), re.M)))
    return fds


def code_of(title, *parts):
    names = {}
    for part in parts:
        exec(compile(with_our_name(RECIPES[title][part]), title, "exec"), names)
    return types.SimpleNamespace(**names)


class Many:
    """Children of which one has exited before; each of the others exits after another's report."""

    def __init__(self):
        self.told = [Started(code) for code in (5, 6)]
        self.all = self.told + [Started(7).has_exited()]
        self.procs = [one.child for one in self.all]
        self.pids = [proc.pid for proc in self.procs]
        self.codes = []

    def report(self, child, code):
        self.codes.append(code)
        if self.told:
            self.told.pop().tell()

    def close(self):
        for one in self.all:
            one.close()


def cases(one, many):
    """``one(pid, tell)`` waits, and calls tell() in the loop meanwhile; ``many(procs, report)``."""
    found = {}
    for name in "told", "early":
        started = Started(ONCE)
        if name == "early":
            started.has_exited()
        try:
            found[name] = one(started.child.pid, started.tell)
        except ValueError as error:  # an OSError, too; not that of selectors
            found[name] = type(error).__name__
            started.tell()
        started.close()
    for name in "objects", "pids":
        group = Many()
        many(group.procs if name == "objects" else group.pids, group.report)
        found[name] = group.codes
        group.close()
    return found


LOOPS = {}


def loop(function):
    LOOPS[function.__name__] = function
    return function


@loop
def epoll():
    recipe = code_of("In other event loops", 0)

    def one(pid, tell):
        threading.Thread(target=tell).start()
        return recipe.wait(pid, 60)

    return cases(one, recipe.wait_for_all)


@loop
def selector():
    def one(pid, tell):
        with pidwait.Process(pid) as process, selectors.DefaultSelector() as selector:
            selector.register(process, selectors.EVENT_READ)
            threading.Thread(target=tell).start()
            return process.wait() if selector.select(60) else None

    def many(procs, report):
        with pidwait.WaitSet(procs) as waiting, selectors.DefaultSelector() as selector:
            selector.register(waiting, selectors.EVENT_READ)
            while waiting:
                selector.select()
                for exit in waiting.wait(0):
                    report(*exit)

    return cases(one, many)


def by_tasks(run, recipe, move_on_after, open_group):
    async def meanwhile(pid, tell):
        async def teller():
            tell()

        with move_on_after(0):
            await recipe.wait(os.getpid())
        async with open_group() as group:
            group.start_soon(teller)
            return await recipe.wait(pid)

    return cases(functools.partial(run, meanwhile), functools.partial(run, recipe.wait_for_all))


@loop
def trio():
    import trio

    recipe = code_of("In trio and anyio", 0, 2)
    return by_tasks(trio.run, recipe, trio.move_on_after, trio.open_nursery)


def by_anyio(backend):
    import anyio

    recipe = code_of("In trio and anyio", 1, 2)
    run = functools.partial(anyio.run, backend=backend)
    return by_tasks(run, recipe, anyio.move_on_after, anyio.create_task_group)


@loop
def anyio_on_asyncio():
    return by_anyio("asyncio")


@loop
def anyio_on_trio():
    return by_anyio("trio")


def by_greenlets(recipe, timeout, start):
    def one(pid, tell):
        with timeout(0.001, False):
            recipe.wait(os.getpid())
        start(tell)
        return recipe.wait(pid)

    return cases(one, recipe.wait_for_all)


def by_gevent():
    import gevent
    import gevent.socket

    recipe = code_of("In gevent and eventlet", 0, 2)
    found = by_greenlets(recipe, gevent.Timeout, gevent.spawn)
    # libev leaves what it no longer watches in its epoll, and passes over its events.
    watched.clear()
    return found


@loop
def gevent():
    return by_gevent()


@loop
def gevent_patched():
    from gevent.monkey import patch_all

    patch_all()
    return by_gevent()


def by_eventlet(patches):
    import eventlet
    import eventlet.hubs

    if patches:
        eventlet.monkey_patch()
    recipe = code_of("In gevent and eventlet", 1, 2)
    return by_greenlets(recipe, eventlet.Timeout, eventlet.spawn)


@loop
def eventlet():
    return by_eventlet(False)


@loop
def eventlet_patched():
    return by_eventlet(True)


def by_callbacks(when_exited, report_exits, stop, soon, run, end):
    """For loops that call back: soon() calls in the loop, end() ends run()."""

    def one(pid, tell):
        codes = []

        def callback(which, code):
            assert which == pid
            codes.append(code)
            soon(end)

        when_exited(pid, callback)
        soon(tell)
        run()
        (code,) = codes
        return code

    def many(procs, report):
        left = set(procs)

        def callback(proc, code):
            left.remove(proc)
            report(proc, code)
            if not left:
                soon(end)

        with pidwait.WaitSet(procs) as waiting:
            reporting = report_exits(waiting, callback)
            run()
            stop(reporting)

    return cases(one, many)


@loop
def tornado():
    import asyncio

    from tornado.ioloop import IOLoop

    asyncio.set_event_loop(asyncio.new_event_loop())
    io = IOLoop.current()
    recipe = code_of("In tornado", 0, 1)
    found = by_callbacks(
        functools.partial(recipe.when_exited, io),
        functools.partial(recipe.report_exits, io),
        lambda stop: stop(),
        io.add_callback,
        io.start,
        io.stop,
    )
    io.close()
    return found


@loop
def qt():
    import gc

    from PyQt5 import QtCore

    app = QtCore.QCoreApplication([])
    recipe = code_of("In Qt", 0, 1)

    def soon(function):
        # What nobody holds is collected before.
        QtCore.QTimer.singleShot(0, lambda: (gc.collect(), function()))

    return by_callbacks(
        functools.partial(recipe.when_exited, app),
        functools.partial(recipe.report_exits, app),
        lambda notifier: notifier.setEnabled(False),
        soon,
        app.exec_,
        app.quit,
    )


@loop
def glib():
    from gi.repository import GLib

    main = GLib.MainLoop()
    recipe = code_of("In GLib", 0, 1)
    return by_callbacks(
        recipe.when_exited,
        recipe.report_exits,
        GLib.source_remove,
        lambda function: GLib.idle_add(lambda: function() and False),
        main.run,
        main.quit,
    )


if __name__ == "__main__":
    pidwait.Process.close = note_watched(pidwait.Process.close)
    pidwait.WaitSet.close = note_watched(pidwait.WaitSet.close)
    answer = LOOPS[sys.argv[1]]()
    print(json.dumps([answer, watched]))
