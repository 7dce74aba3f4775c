# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.zoo.tries PROGRAM TRIES: end animals, and count what goes wrong; in a nest.

An animal has *escaped* if any of its processes is still there a moment after run() has returned; if
one was there right at the return, run() was *early*. It was *late* if the animal had the time to
end by itself. It is *missed* if "group" can't know it: a child, in a session of its own, that is
born after the listing and before SIGTERM ends its parent. PIDWAIT_TREE chooses how trees are ended.
"""

import collections
import concurrent.futures
import importlib
import itertools
import logging
import os
import random
import sys
import tempfile
import threading
import time

from .. import pidwait, trouble

subprocess = importlib.import_module(pidwait.__name__ + ".subprocess")

GROUP = "plain child group setsid orphan nohup storm:4 stopped mother headless".split()
ALL = GROUP + "daemon exec clean storm-session:16 newborn fountain hidden title phoenix".split()
ALL += ["adopter"]
BEARERS = "mother", "headless"  # whose children have sessions of their own
MECHANISMS = {"reaper": ALL, "group": GROUP}
GRACES = 0, 0.05
MOMENT = 0.3  # seconds
LIFE = 10  # seconds that an animal lives on if nobody ends it
OLD = 2.2  # seconds: more than any bound in pidwait

# What went wrong, or ""; and the seconds from the time-out to the return.
Result = collections.namedtuple("Result", "animal wrong late")


def look(reader):
    """What is in the FIFO, and whether any process has it open for writing."""
    found = b""
    while True:
        try:
            more = os.read(reader, 4096)
        except BlockingIOError:
            return found, True
        if not more:
            return found, False
        found += more


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def no_thread_is_left():
    return within(1, lambda: threading.active_count() == 1)


def attempt(program, animal, timeout, **options):
    """The Result of one try, or None if it was ended before it lived."""
    logging.getLogger(pidwait.__name__).setLevel(logging.ERROR)  # it tells what "group" misses
    name, _, number = animal.partition(":")
    words = [str(timeout + LIFE), number or str(int(random.uniform(0, 1200) * timeout))]
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "witness")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        try:
            began = time.monotonic()
            try:
                subprocess.run([program, name, fifo, *words], timeout=timeout, **options)
            except subprocess.TimeoutExpired:
                pass
            except (OSError, ValueError) as error:
                return Result(animal, repr(error), 0)
            late = time.monotonic() - began - timeout
            found, is_there = look(reader)
            if not is_there:
                return Result(animal, "late" * (late > LIFE), late) if found else None
            if within(MOMENT, lambda: not look(reader)[1]):
                return Result(animal, "early", late)
            is_group = os.environ.get("PIDWAIT_TREE") == "group"
            is_missed = is_group and animal in BEARERS and options.get("grace")
            return Result(animal, "missed" if is_missed else "escaped", late)
        finally:
            os.close(reader)


def young(program, animal, tries, grace):
    """End it while it is being born, as often as that; nothing of ours may be left."""
    results = []
    while len(results) < tries:
        timeout, result = random.uniform(0.01, 0.04), None
        output = (subprocess.DEVNULL, subprocess.PIPE)[len(results) % 2]
        while result is None:  # the machine is busy
            try:
                with trouble.nothing_left():
                    options = {"tree": True, "grace": grace, "stdout": output}
                    result = attempt(program, animal, timeout, **options)
                    assert no_thread_is_left(), "a thread"
            except AssertionError as error:
                result = Result(animal, "leaves %s" % error, 0)
            timeout *= 2
        results.append(result)
    return results


def old(program, animals, graces=GRACES):
    """End all of them at once, when they are older than two seconds; every grace in its turn."""
    with trouble.nothing_left(), concurrent.futures.ThreadPoolExecutor(len(animals)) as pool:
        tries = [
            pool.submit(attempt, program, animal, OLD, tree=True, grace=grace)
            for animal, grace in zip(animals, itertools.cycle(graces))
        ]
    return [one.result() for one in tries]


def wrongs(results):
    """{(animal, what went wrong): how often}; a fiftieth of an animal's tries may be missed."""
    results = [one for one in results if one is not None]
    found = collections.Counter(one[:2] for one in results if one.wrong)
    for animal in BEARERS:
        tries = sum(one.animal == animal for one in results)
        if found[animal, "missed"] <= 1 + tries // 50:
            del found[animal, "missed"]
    return found


def check(results):
    assert not wrongs(results), wrongs(results)


def check_young(program, animal, tries):
    for grace in GRACES:
        check(young(program, animal, tries, grace))


def check_old(program, animals):
    check(old(program, animals))


def check_escape(program):
    assert attempt(program, "setsid", 0.05).wrong == "escaped"


def check_mechanism(name):
    with subprocess.Popen(["true"], tree=True) as popen:
        assert popen.mechanism == name
    assert no_thread_is_left()


def main(program, tries):
    mechanism = os.environ["PIDWAIT_TREE"]
    check_mechanism(mechanism)
    animals, failed = MECHANISMS[mechanism], False
    for grace in GRACES:
        results = []
        for animal in animals:
            results += young(program, animal, int(tries), grace)
        slowest = max(results, key=lambda one: one.late)
        for _ in range(1 + int(tries) // 20):
            results += old(program, animals, [grace])
        wrong = wrongs(results)
        failed = failed or bool(wrong)
        told = ["%d %s %s" % (n, *what) for what, n in sorted(wrong.items())] or ["0 wrong"]
        told += ["%d missed" % sum(getattr(one, "wrong", "") == "missed" for one in results)]
        text = "grace %-4s %6d tries: %s; a young %s took longest, %.0f ms beyond its time-out"
        words = ", ".join(told), slowest.animal, slowest.late * 1000
        print(text % (grace, len(results), *words), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
