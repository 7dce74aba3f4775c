# SPDX-License-Identifier: BSD-3-Clause
"""One run of a few threads, by a plan."""

import builtins
import dis
import glob
import inspect
import os
import signal
import sys
import threading
import time

from .. import pidwait, seam

ROOT = os.path.abspath(pidwait.__file__)
if hasattr(pidwait, "__path__"):
    ROOT = os.path.dirname(ROOT) + os.sep
CLASSES = ("Exception", "IndexError", "KeyError", "StopIteration", "AttributeError")
CLASSES += ("ProcessLookupError", "TimeoutError", "SystemExit")
MOST_LINES = 20000  # without a sleep
MOST_TURNS = 3  # of a loop: what comes later is the same
OUTSIDE = 20.0  # seconds of real time, at most, while other processes run
_WORDS = "CALL STORE_ATTR LOAD_ATTR LOAD_METHOD BINARY_SUBSCR STORE_SUBSCR FOR_ITER CONTAINS"
_CALLS = {n for n, name in enumerate(dis.opname) if name.startswith(tuple(_WORDS.split()))}


class Stuck(BaseException):
    """Ends the threads of a run that can't go on."""


class Raised:
    """What handlers raise: one class derived from each of CLASSES, as a program's own may be."""

    classes = {
        name: type("Raised", (getattr(builtins, name),), {"__module__": __name__})
        for name in CLASSES
    }
    every = tuple(classes.values())


def handler(number, frame):
    """A signal handler: the package tells its exceptions from others by its code."""
    raise handler.chosen()


def raised_by(error):
    """Whether a handler has. Python makes a RuntimeError of a StopIteration in a generator."""
    if isinstance(error, RuntimeError):
        error = error.__cause__
    return isinstance(error, Raised.every)


class Run:
    """``outside``: other processes are waited for until they have slept so many real seconds."""

    now = 0.0  # seconds that the threads have slept
    quiet_since = None

    def __init__(self, actions, plan, in_child=None, outside=None, opcodes=False):
        self.actions, self.plan, self.in_child = list(actions), dict(plan), in_child
        self.outside, self.opcodes = outside, opcodes
        self.step = self.asked = self.progress = 0
        self.is_idle = False  # one that sleeps asks, and nobody has done anything since
        self.fault = None
        self.raised = 0  # exceptions of handlers that have not come through
        self.results, self.where = {}, {}
        self.turns_of = {}  # {id(frame): how often each of its lines has run}
        # Kept: CPython's settrace() borrows them.
        self.trace, self.local = self._trace, self._local
        self.states = []  # "ready", "asleep" or "done"
        self.scheduling = set()  # threads in sleep(): a collection there may run the package's code
        self.turns, self.threads, self.until, self.lines = [], [], [], []

    def go(self):
        for action in self.actions:
            self._enter(threading.Thread(target=action))
        self.count = len(self.actions)
        for thread in self.threads[:]:
            thread.start()
        self.turns[self.plan.get(0, 0)].release()
        for thread in self.threads:  # grows meanwhile
            thread.join()
        self.threads = []
        return self

    def _enter(self, thread):
        """Have a thread run in turns from its start on."""
        me, action = len(self.threads), thread.run
        self.threads.append(thread)
        self.turns.append(threading.Semaphore(0))
        self.states.append("ready")
        self.until.append(None)
        self.lines.append(0)
        thread.explored, thread.daemon = (self, me), True
        thread.run = lambda: self._run(me, action if me >= len(self.actions) else self.actions[me])

    def _run(self, me, action):
        self.turns[me].acquire()
        if self.fault is None:
            sys.settrace(self.trace)
            try:
                self.results[me] = action()
            except Stuck:
                self.results[me] = None
            except BaseException as error:
                self.results[me] = error.with_traceback(None)
                error.__context__ = None
            finally:
                sys.settrace(None)
        self.states[me], self.asked = "done", 0
        self.progress += 1
        for other in self._others(me)[:1]:
            self.turns[other].release()

    def _others(self, me):
        """The threads that may go on in place of this one, in order."""
        found = [[i for i, one in enumerate(self.states) if one == word] for word in _ORDER]
        return [i for i in found[0] + found[1] if i != me]

    def _trace(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(ROOT):
            return None
        if self.opcodes:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.turns_of[id(frame)] = {}
        return self.local

    def _local(self, frame, event, arg):
        if self.is_idle or threading.current_thread().explored[1] in self.scheduling:
            return self.local
        if event == "line" or (event == "opcode" and _is_call(frame)):
            here, turns = frame.f_lasti, self.turns_of.setdefault(id(frame), {})
            turns[here] = turns.get(here, 0) + 1
            if turns[here] > MOST_TURNS and not self.fault:
                self.count_line(threading.current_thread().explored[1], frame)
                return self.local
            me = threading.current_thread().explored[1]
            self.step += 1
            self.where[self.step] = me, frame.f_code, frame.f_lineno
            self.count_line(me, frame)
            what = self.plan.get(self.step)
            if what is not None:
                self._do(me, what, frame)
            elif self.fault:
                raise Stuck
        return self.local

    def count_line(self, me, frame):
        self.lines[me] += 1
        if self.lines[me] > MOST_LINES:
            self._stop("thread %d spins in %s" % (me, place(frame.f_code, frame.f_lineno)))

    def _do(self, me, what, frame):
        if what in Raised.classes:
            # Handlers run in the main thread alone; what is raised in a destructor is ignored.
            if me < self.count and can_raise(frame) and not is_in_destructor(frame):
                self.raised += 1
                handler.chosen = Raised.classes[what]
                handler(signal.SIGUSR1, frame)
        elif what == "fork":
            if self.in_child is not None:
                self._fork(place(frame.f_code, frame.f_lineno))
        elif what in self._others(me):
            self._switch(me, what)

    def _switch(self, me, to):
        self.turns[to].release()
        self.turns[me].acquire()
        if self.fault:
            raise Stuck

    def _stop(self, fault):
        self.fault = self.fault or fault
        for turn in self.turns:
            turn.release()
        raise Stuck

    def sleep(self, me, ask, seconds):
        """Let others go on until ask() is true, for ``seconds`` at most; return what it says."""
        self.quiet_since = None
        self.until[me] = None if seconds is None else self.now + seconds
        real_end = _monotonic() + OUTSIDE
        seen = None  # by then nobody else has run since it asked
        self.scheduling.add(me)
        try:
            while True:
                self.states[me] = "asleep"
                if self.fault:
                    raise Stuck
                self.is_idle, seen = seen == self.progress, self.progress
                self.scheduling.discard(me)
                answer = ask()
                self.scheduling.add(me)
                self.is_idle, self.lines[me] = False, 0
                if answer or (self.until[me] is not None and self.now >= self.until[me]):
                    return answer
                self.asked += 1
                others = self._others(me)
                if self.states.count("ready"):
                    self._switch(me, others[0])
                    continue
                if self.asked > 2 * self.states.count("asleep"):  # all have, since somebody ran
                    self._pass_time(real_end)
                if others:  # those that sleep ask in turn
                    self._switch(me, min(others, key=lambda one: (one < me, one)))
        finally:
            self.states[me], self.asked, self.is_idle = "ready", 0, False
            self.scheduling.discard(me)
            self.progress += 1

    def _pass_time(self, real_end):
        """Nobody can go on now: have another process do something, or the next time-out come."""
        pairs = zip(self.until, self.states)
        ends = [end for end, state in pairs if state == "asleep" and end is not None]
        if self.outside is not None and _monotonic() < real_end and not self._is_quiet():
            _sleep(0.0005)
        elif ends:
            self.now = max(self.now, min(ends))
        else:
            self._stop("nobody can go on")

    def _is_quiet(self):
        """Whether no descendant has run for ``outside`` seconds: those have nothing to do.

        And each thread has asked since: this process may have stood for as long, too.
        """
        if are_descendants_running():
            self.quiet_since = None
        elif self.quiet_since is None:
            self.quiet_since = _monotonic(), self.asked
        if self.quiet_since is None:
            return False
        since, asked = self.quiet_since
        is_long = _monotonic() - since > self.outside
        return is_long and self.asked > asked + 2 * self.states.count("asleep")

    def _fork(self, where):
        pid = os.fork()
        if not pid:
            sys.settrace(None)
            explored.leave()
            signal.alarm(20)
            try:
                said = self.in_child()
            except BaseException as error:
                said = repr(error)
            if said:
                os.write(2, ("in the child: %s\n" % said).encode())
            os._exit(1 if said else 0)
        if os.waitpid(pid, 0)[1]:
            self.fault = self.fault or "wrong in a child that was forked at " + where


_ORDER = "ready", "asleep"
_sleep, _monotonic, _start = time.sleep, time.monotonic, threading.Thread.start
_BEGAN = _monotonic()


def place(code, line):
    name = code.co_filename[len(ROOT) :] or os.path.basename(ROOT)
    return "%s:%d %s()" % (name, line, code.co_name)


def are_descendants_running():
    """Whether a child, or a child of one, has something to do. One that is woken runs at once."""
    parents = ["self"]
    try:
        for parent in parents:
            for task in glob.glob("/proc/%s/task/*" % parent):
                with open(task + "/children") as children:
                    parents += children.read().split()
                with open(task + "/stat") as stat:
                    state = stat.read().rpartition(") ")[2][0]
                if parent != "self" and state not in "SZTtX":
                    return True
    except (FileNotFoundError, ProcessLookupError):  # one has ended meanwhile
        return True
    return False


def can_raise(frame):
    """Whether it can raise here what a signal handler can.

    No handler runs at a NOP, which Python 3.11 has for "try:". In a generator that jumps back,
    Python 3.13 lets a StopIteration of a trace function, but not that of a handler (0 of 400), pass
    by the code that makes a RuntimeError of it.
    """
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    is_generator = bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
    return name != "NOP" and not (is_generator and name == "JUMP_BACKWARD")


def is_in_destructor(frame):
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def _is_call(frame):
    return frame.f_code.co_code[frame.f_lasti] in _CALLS


class Explored:
    """While it is entered, threads of a Run sleep and start threads in turns, by its clock."""

    def enter(self):
        self.undo = seam.sleepers(self.sleep, self.now)
        threading.Thread.start = self.start

    def leave(self):
        self.undo()
        threading.Thread.start = _start

    @staticmethod
    def sleep(ask, seconds):
        """In a thread of a run; None elsewhere."""
        run, me = getattr(threading.current_thread(), "explored", (None, None))
        return None if run is None else (run.sleep(me, ask, seconds),)

    @staticmethod
    def now():
        run, _ = getattr(threading.current_thread(), "explored", (None, None))
        return _monotonic() if run is None else _BEGAN + run.now

    @staticmethod
    def start(thread):
        run, _ = getattr(threading.current_thread(), "explored", (None, None))
        if run is not None and run.fault is None:
            run._enter(thread)
        _start(thread)


explored = Explored()


def go_on_tracing():
    """Python stops tracing a thread when a trace function raises."""
    run, _ = getattr(threading.current_thread(), "explored", (None, None))
    if run is not None:
        sys.settrace(run.trace)
