# SPDX-License-Identifier: BSD-3-Clause
"""What is run in all orders, and what may come of it.

Each makes an object for each run: the actions of its threads, and what checks their results.
"""

import asyncio
import functools
import importlib
import itertools
import os
import select
import selectors
import signal
import subprocess as standard

from .. import pidwait, seam
from .schedule import CLASSES, explored, go_on_tracing, raised_by

subprocess, aio = (
    importlib.import_module(pidwait.__name__ + "." + name) for name in ("subprocess", "aio")
)
CODE = 7
SHELL = "/bin/sh"
GONE = ValueError, ProcessLookupError
SCENARIOS = {}


class Scenario:
    """Its subclasses set ``actions``; each may be run again after an exception of a handler."""

    in_child = None  # what a forked child checks
    outside = None  # see Run
    allowed = ()  # exceptions
    expected = (CODE,)  # results
    classes = CLASSES  # what handlers raise

    def __init__(self):
        self.came_through = 0
        self.actions = [functools.partial(self.again, one) for one in self.make()]

    def again(self, action):
        """As a program that goes on after an exception."""
        while True:
            try:
                return action()
            except BaseException as error:
                if not raised_by(error):
                    raise
                self.came_through += 1
            go_on_tracing()

    def check(self, results):
        for result in results.values():
            if isinstance(result, BaseException):
                if not isinstance(result, self.allowed):
                    return "%s: %s" % (type(result).__name__, result)
            elif result not in self.expected:
                return "a wrong result: %r" % (result,)
        return self.check_after()

    def check_after(self):
        return None

    def end(self):
        """Clean up."""


class Named:
    """A scenario by its name: what a search needs to know of it."""

    def __init__(self, name, make):
        self.name, self.make = name, make
        one = make()
        self.count, self.in_child, self.outside = len(one.actions), one.in_child, one.outside
        self.classes = one.classes
        one.end()


def named(name, *args):
    def register(kind):
        SCENARIOS[name] = functools.partial(kind, *args)
        return kind

    return register


# Processes


def zombie():
    """A child that has exited, and that nobody has reaped."""
    pid = os.fork()
    if not pid:
        os._exit(CODE)
    pidwait.wait(pid, 20)
    return pid


@functools.lru_cache(None)
def kept_zombies():
    """For scenarios that reap nothing."""
    return [zombie() for _ in range(2)]


def dead(kind):
    """An owner whose process has exited."""
    popen = kind([SHELL, "-c", "exit %d" % CODE])
    pidwait.wait(popen.pid, 20)
    return popen


class Reader:
    """A process that exits with CODE once it is told to."""

    def __init__(self, start):
        reader, self.writer = os.pipe()
        try:
            self.proc = start([SHELL, "-c", "read line; exit %d" % CODE], stdin=reader)
        finally:
            os.close(reader)

    def tell(self):
        writer, self.writer = self.writer, None
        if writer is not None:
            os.close(writer)

    def end(self):
        """Also after a fault."""
        self.tell()
        try:
            os.waitpid(self.proc.pid, 0)
        except ChildProcessError:
            return


def reap(pid):
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


# Sets


class Set(Scenario):
    """``names``: what each thread does with a set of one process, or of none before an "add"."""

    steps = "wait", "wait0", "loop", "add", "again", "discard", "readd", "close"

    def __init__(self, *names, members=1):
        self.names = names
        self.pids = kept_zombies()
        self.given = list(self.pids[:members])
        self.told = []
        self.waiting = pidwait.WaitSet(self.given)
        self.closes = "close" in names
        # A program that selects the file descriptor of a closed set gets EBADF.
        self.allowed = (ValueError, OSError) if self.closes else ()
        self.expected = (None,)
        if not self.closes:
            self.in_child = self.check_in_child
        super().__init__()

    def make(self):
        return [getattr(self, name) for name in self.names]

    def wait(self):
        self.told += self.waiting.wait()

    def wait0(self):
        self.told += self.waiting.wait(0)

    def loop(self):
        """As a program's own event loop."""
        for _ in range(4):
            fd = self.waiting.fileno()
            if not self.waiting:
                return
            explored.sleep(lambda: select.select([fd], [], [], 0)[0], 5.0)  # noqa: B023
            self.told += self.waiting.wait(0)

    def add(self):
        self._add(self.pids[1])

    def again(self_, *action):
        if action:  # Scenario's
            return Scenario.again(self_, *action)
        return self_._add(self_.pids[0])

    def _add(self, pid):
        self.given.append(pid)
        self.waiting.add(pid)

    def discard(self):
        self.waiting.discard(self.pids[0])

    def readd(self):
        self.discard()
        self._add(self.pids[0])

    def close(self):
        self.waiting.close()

    def check_after(self):
        if self.closes:
            return None
        for _ in range(3):
            self.told += self.waiting.wait(0)
        pids = [pid for pid, _ in self.told]
        if [code for _, code in self.told if code != CODE]:
            return "a wrong code: %s" % self.told
        if any(pids.count(pid) > self.given.count(pid) for pid in pids):
            return "told twice: %s" % pids
        discards = {"discard", "readd"}.intersection(self.names)
        if set(pids) != set(self.given) and not discards:
            return "lost: %s" % (set(self.given) - set(pids))
        left = seam.left_in(self.waiting)
        return "left in %s" % ", ".join(left) if left or len(self.waiting) else None

    def check_in_child(self):
        count, found = len(self.waiting), []
        while len(self.waiting):
            more = self.waiting.wait(5)
            if not more:
                break
            found += more
        wrong = len(found) != count or [code for _, code in found if code != CODE]
        return "%d of %d were told: %s" % (len(found), count, found) if wrong else None

    def end(self):
        self.waiting.close()


def _sets():
    pairs = itertools.combinations_with_replacement(Set.steps, 2)
    triples = [("wait", "wait", "add"), ("add", "again", "wait0"), ("wait", "discard", "readd")]
    triples += [("wait", "loop", "add"), ("wait", "again", "close"), ("wait", "wait0", "discard")]
    for names in [*pairs, *triples]:
        if names in (("close", "close"), ("discard", "discard")):
            continue
        yield names, 1
    yield ("wait", "wait"), 2
    yield ("add", "add"), 0


for _names, _members in _sets():
    _name = "set_" + "_".join(_names) + ("" if _members == 1 else "_of_%d" % _members)
    SCENARIOS[_name] = functools.partial(Set, *_names, members=_members)


# Several objects for one process


KINDS = {
    "pid": lambda popen: popen.pid,
    "process": lambda popen: pidwait.Process(popen.pid),
    "info": lambda popen: pidwait.ProcessInfo(popen.pid),
    "popen": lambda popen: popen,
}


class Kinds(Scenario):
    """Two objects for one process, in one set: each is told once, with the code."""

    expected = (None, CODE)

    def __init__(self, *kinds):
        self.popen = dead(subprocess.Popen)
        self.members = [KINDS[kind](self.popen) for kind in kinds]
        self.waiting, self.told = pidwait.WaitSet(self.members), []
        super().__init__()

    def make(self):
        return [self.wait, self.wait, self.popen.poll]

    def wait(self):
        while self.waiting:
            self.told += self.waiting.wait()

    def check_after(self):
        # A pid is told once, however often it was given.
        if len(self.told) != len(set(map(id, self.members))) or [
            c for _, c in self.told if c != CODE
        ]:
            return "told: %s" % self.told
        code = self.popen.returncode if self.popen in self.members else self.popen.wait()
        return None if code == CODE else "returncode %r" % code

    def end(self):
        self.waiting.close()
        for one in self.members:
            if isinstance(one, pidwait.Process):
                one.close()
        reap(self.popen.pid)
        self.popen.returncode = CODE


class RunningKinds(Kinds):
    """They run, and exit meanwhile. Kinds has tried all classes at the same lines."""

    outside = 0.002
    classes = CLASSES[:1]

    def __init__(self, *kinds):
        self.reader = Reader(subprocess.Popen)
        self.popen = self.reader.proc
        self.members = [KINDS[kind](self.popen) for kind in kinds]
        self.waiting, self.told = pidwait.WaitSet(self.members), []
        Scenario.__init__(self)

    def make(self):
        return [self.wait, self.wait, self.reader.tell]

    def end(self):
        self.reader.tell()
        super().end()


for _one, _other in itertools.combinations_with_replacement(KINDS, 2):
    if not _one == _other == "pid":
        SCENARIOS["kinds_%s_%s" % (_one, _other)] = functools.partial(Kinds, _one, _other)
        SCENARIOS["running_%s_%s" % (_one, _other)] = functools.partial(RunningKinds, _one, _other)


# One process


class One(Scenario):
    """Threads that use one object; ``actions`` take it."""

    def __init__(self, new, *actions, expected=(CODE,), allowed=(), after=None):
        self.target, self.todo, self.after = new(), actions, after
        self.expected, self.allowed = expected, allowed
        super().__init__()

    def make(self):
        return [functools.partial(one, self.target) for one in self.todo]

    def check_after(self):
        return self.after(self.target) if self.after else None

    def end(self):
        for name in "close", "end":
            getattr(self.target, name, int)()


def one(name, *args, **kwargs):
    SCENARIOS[name] = functools.partial(One, *args, **kwargs)


def kept_process():
    return pidwait.Process(kept_zombies()[0])


def child():
    return dead(pidwait.spawn)


def wait(target):
    return target.wait()


def wait_5(target):
    return target.wait(5)


def close(target):
    return target.close()


def has_exited(target):
    return target.has_exited()


one("process_wait_wait", kept_process, wait, wait_5)
one(
    "process_wait_close",
    kept_process,
    wait,
    close,
    has_exited,
    allowed=GONE,
    expected=(CODE, True, None),
)
one(
    "process_signal_close",
    kept_process,
    lambda process: process.send_signal(0),
    close,
    allowed=GONE,
    expected=(None,),
)
one(
    "process_fileno_close",
    kept_process,
    lambda process: process.fileno() >= 0,
    close,
    allowed=(ValueError, OSError),
    expected=(None, True),
)


class ReapingProcess(One):
    """wait(reap=True) in two threads."""

    def __init__(self):
        self.pid = zombie()
        super().__init__(
            lambda: pidwait.Process(self.pid),
            lambda process: process.wait(reap=True),
            lambda process: process.wait(5, reap=True),
        )

    def end(self):
        super().end()
        reap(self.pid)


SCENARIOS["process_reap_reap"] = ReapingProcess

one("child_wait_wait", child, wait, wait)
one("child_wait_wait_5", child, wait, wait_5)
one("child_wait_5_wait_5", child, wait_5, wait_5, wait)
one("child_wait_close", child, wait, close, allowed=GONE, expected=(CODE, None))
one("child_has_exited_close", child, has_exited, close, allowed=GONE, expected=(True, None))
one("child_wait_has_exited", child, wait, has_exited, expected=(CODE, True))
one("child_wait_kill", child, wait, lambda c: c.kill(), allowed=GONE, expected=(CODE, None))
one("child_function_wait", child, wait, pidwait.wait)
one("child_set_wait", child, wait, lambda c: pidwait.wait_procs([c])[0][0][1])


class RunningChild(One):
    """A Child that exits while two threads wait for it."""

    outside = 0.002
    classes = CLASSES[:1]

    def __init__(self, *waits):
        self.reader = Reader(pidwait.spawn)
        super().__init__(
            lambda: self.reader.proc,
            *waits,
            lambda child: self.reader.tell(),
            expected=(CODE, None),
        )

    def end(self):
        self.reader.tell()
        super().end()
        self.reader.end()


SCENARIOS["running_child_wait_wait"] = functools.partial(RunningChild, wait, wait)
SCENARIOS["running_child_wait_wait_5"] = functools.partial(RunningChild, wait, wait_5)


class LeftChild(Scenario):
    """A Child that was closed while it ran: the first spawn() after its exit reaps it, once."""

    outside = 0.002
    expected = (CODE,)

    def __init__(self):
        reader = Reader(pidwait.spawn)
        self.pid, self.children = reader.proc.pid, []
        reader.proc.close()
        reader.tell()
        pidwait.wait(self.pid, 20)
        super().__init__()

    def make(self):
        return [self.spawn, self.spawn]

    def spawn(self):
        child = pidwait.spawn([SHELL, "-c", "exit %d" % CODE])
        self.children.append(child)
        return child.wait()

    def check_after(self):
        self.spawn_others()
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return "a child is left"

    def spawn_others(self):
        """They reap what is left: also a child whose start a handler has interrupted."""
        while True:
            with pidwait.spawn(["/bin/true"]):
                if not seam.left_children():
                    return

    def end(self):
        for child in self.children:
            child.close()
        self.spawn_others()
        reap(self.pid)


SCENARIOS["spawn_spawn_left"] = LeftChild


# Popen


class PopenCase(One):
    """Of ours, of the patched one, or of the standard one."""

    def __init__(self, kind, *actions):
        self.patch = subprocess.patch() if kind == "patched" else None
        start = subprocess.Popen if kind == "ours" else standard.Popen
        super().__init__(lambda: dead(start), *actions)

    def check_after(self):
        return None if self.target.returncode == CODE else "returncode %r" % self.target.returncode

    def end(self):
        reap(self.target.pid)
        self.target.returncode = CODE
        if self.patch:
            self.patch.close()


def poll(popen):
    return popen.poll()


def function_5(popen):
    return pidwait.wait(popen, 5)


def by_set(popen):
    with pidwait.WaitSet([popen]) as waiting:
        return waiting.wait()[0][1]


for _kind in "ours", "patched", "standard":
    for _name, _actions in {
        "wait_wait_poll": (wait, wait_5, poll),
        "wait_function": (wait_5, function_5, pidwait.wait),
        "set_function": (by_set, function_5),
        "set_set_poll": (by_set, by_set, poll),
    }.items():
        SCENARIOS["popen_%s_%s" % (_kind, _name)] = functools.partial(PopenCase, _kind, *_actions)


class RunAlone(Scenario):
    """run() in one thread, with and without a time-out."""

    outside = 0.002

    def make(self):
        return [self.run]

    def run(self):
        command = [SHELL, "-c", "exit %d" % CODE]
        return subprocess.run(command).returncode * (
            subprocess.run(command, timeout=60).returncode == CODE
        )


SCENARIOS["run_alone"] = RunAlone


# Trees


class Tree(Scenario):
    """A command that is told to exit, or ended, while threads wait for its tree."""

    outside = 0.02

    def __init__(self, *names):
        self.names = names
        self.popen = subprocess.Popen(
            [SHELL, "-c", "read line; exit %d" % CODE],
            tree=True,
            stdin=standard.PIPE,
            stdout=standard.PIPE,
        )
        self.expected = (CODE, None, (b"", None))
        if names not in (("wait", "poll", "tell"), ("end", "wait")):
            self.classes = CLASSES[:1]  # each run takes as long as the start of an interpreter
        if {"end", "kill", "kill_keeper"}.intersection(names):
            self.expected += -signal.SIGTERM, -signal.SIGKILL
        super().__init__()

    def make(self):
        do = {
            "tell": self.popen.stdin.close,
            "wait": self.popen.wait,
            "poll": self.popen.poll,
            "communicate": self.popen.communicate,
            "end": lambda: self.popen.end(0),
            "kill": self.popen.kill,
            "kill_keeper": self.kill_keeper,
        }
        return [do[name] for name in self.names]

    def kill_keeper(self):
        with open("/proc/self/task/%d/children" % os.getpid()) as children:
            for pid in children.read().split():
                with open("/proc/%s/cmdline" % pid) as words:
                    if "keeper" in words.read():
                        os.kill(int(pid), signal.SIGKILL)

    def check_after(self):
        if "wait" in self.names and self.popen.returncode is None:
            return "wait() has returned, but there is no returncode"
        code = self.popen.wait(20)
        return None if code in self.expected else "returncode %r" % code

    def end(self):
        self.popen.stdin.close()
        self.popen.stdout.close()
        self.popen.end(0)


for _names in (
    ("wait", "wait", "tell"),
    ("wait", "poll", "tell"),
    ("wait", "kill"),
    ("end", "wait"),
    ("end", "end"),
    ("communicate", "kill"),
    ("communicate", "end"),
    ("wait", "poll", "kill_keeper"),
):
    SCENARIOS["tree_" + "_".join(_names)] = functools.partial(Tree, *_names)


# watch()


class Watching(Scenario):
    """watch() of what has exited, from two threads; a callback that adds another watch."""

    def __init__(self, *names):
        self.names, self.told, self.pid = names, [], kept_zombies()[0]
        self.expected = (None,)
        super().__init__()

    def make(self):
        return [getattr(self, name) for name in self.names]

    def add(self):
        # After an exception nobody has the Watch; the callback comes, or it does not.
        told = []
        self.watch(told.append)
        self.told.append(told)

    def watch(self, note):
        return pidwait.watch(self.pid, lambda pid, code: note(code))

    def cancel(self):
        told = []
        watching = self.watch(told.append)
        cancelled = watching.cancel()
        self.told.append(told if not cancelled else [CODE, *told])

    def add_in_callback(self):
        told = []
        self.watch(lambda code: self.watch(told.append))
        self.told.append(told)

    def check_after(self):
        # The threads have ended: also watch's.
        return "told: %s" % self.told if [t for t in self.told if t != [CODE]] else None


for _names in (
    ("add", "add"),
    ("add", "cancel"),
    ("cancel", "add_in_callback"),
    ("add", "add_in_callback"),
):
    SCENARIOS["watch_" + "_".join(_names)] = functools.partial(Watching, *_names)


# end_procs()


class Ending(Scenario):
    """Two threads end the same running process, or one waits for it."""

    outside = 0.002

    def __init__(self, *names):
        self.names = names
        self.popen = subprocess.Popen(["/bin/sleep", "60"])
        self.expected = (-signal.SIGTERM, -signal.SIGKILL)
        super().__init__()

    def make(self):
        return [getattr(self, name) for name in self.names]

    def end_it(self):
        exited, alive = pidwait.end_procs([self.popen])
        return alive or exited[0][1]

    def wait(self):
        return self.popen.wait()

    def end(self):
        try:
            os.kill(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        reap(self.popen.pid)
        self.popen.returncode = -signal.SIGKILL


SCENARIOS["end_procs_twice"] = functools.partial(Ending, "end_it", "end_it")
SCENARIOS["end_procs_wait"] = functools.partial(Ending, "end_it", "wait")


# asyncio


class Selector(selectors.SelectSelector):
    """Sleeps in turns."""

    def select(self, timeout=None):
        super_select = super().select
        if timeout is None or timeout > 0:
            said = explored.sleep(lambda: super_select(0), timeout)
            if said is not None:
                return said[0] or []
        return super_select(0 if timeout is None else timeout)


class Loops(Scenario):
    """Two event loops, in two threads.

    No handler raises: asyncio reports what comes out of a callback, and that one is not repeated.
    """

    classes = ()

    def __init__(self, *names):
        self.names, self.pid = names, kept_zombies()[0]
        self.popen = dead(subprocess.Popen)
        super().__init__()

    def make(self):
        return [functools.partial(self.run, getattr(self, name)) for name in self.names]

    def run(self, wait):
        loop = asyncio.SelectorEventLoop(Selector())
        loop.time = explored.now
        try:
            return loop.run_until_complete(wait())
        finally:
            for task in all_tasks(loop):
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))
            loop.close()

    async def wait(self):
        return await aio.wait(self.pid)

    async def owner(self):
        return await aio.wait(self.popen)

    async def several(self):
        exited, _ = await aio.wait_procs([self.pid, self.popen, self.popen.pid])
        codes = {code for proc, code in exited if proc is not self.popen.pid}
        return CODE if codes == {CODE} and len(exited) == 3 else exited

    def end(self):
        reap(self.popen.pid)
        self.popen.returncode = CODE


def all_tasks(loop):
    return getattr(asyncio, "all_tasks", getattr(asyncio.Task, "all_tasks", None))(loop)


for _names in (("wait", "wait"), ("owner", "owner"), ("several", "owner")):
    SCENARIOS["aio_" + "_".join(_names)] = functools.partial(Loops, *_names)


# What is asked of the system once


class FirstUse(Scenario):
    """The probe's answers, and the calls, are made by several threads at once."""

    outside = 0.002

    def __init__(self, *names):
        self.names, self.pid = names, kept_zombies()[0]
        self.backend = pidwait.probe()["backend"]
        self.expected = (CODE, self.backend)
        seam.forget()
        super().__init__()

    def make(self):
        return [getattr(self, name) for name in self.names]

    def probe(self):
        return pidwait.probe()["backend"]

    def wait(self):
        return pidwait.wait(self.pid)

    def end(self):
        while seam.left_children():  # a keeper's interpreter, which the probe starts
            pidwait.spawn(["/bin/true"]).wait()


SCENARIOS["first_wait_wait"] = functools.partial(FirstUse, "wait", "wait")
SCENARIOS["first_wait_probe"] = functools.partial(FirstUse, "wait", "probe")


class Patching(Scenario):
    """patch() and unpatch() in one thread, starts in another."""

    outside = 0.002

    def make(self):
        return [self.patch, self.run]

    def patch(self):
        with subprocess.patch():
            return CODE

    def run(self):
        return standard.call([SHELL, "-c", "exit %d" % CODE])

    def check_after(self):
        subprocess.unpatch()

    def end(self):
        subprocess.unpatch()


SCENARIOS["patch_run"] = Patching
