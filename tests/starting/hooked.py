# SPDX-License-Identifier: BSD-3-Clause
"""A program that calls patch(), installs hooks and undoes both, in any order, with checks.

Run it as hooked.py ORDER HOOKS where two copies of the package can be imported, as one and two.
HOOKS names one of the functions below that install hooks. The letters of ORDER:

p, u    patch(), unpatch()
P, U    the same of the other copy
h, r    install the hooks; restore what was there before them

After each step it starts two processes, and each hook has to see both. It prints how many of the
two were asked of posix_spawn, or - while no patch() is in force.
"""

import functools
import importlib
import subprocess
import sys

METHODS = "__init__", "_execute_child", "wait", "_wait"
Standard = subprocess.Popen
BEFORE = {name: vars(Standard).get(name) for name in METHODS}
seen, starts, undo, patched = set(), [], [], []


def put(name, hook):
    undo.append(functools.partial(setattr, Standard, name, vars(Standard)[name]))
    setattr(Standard, name, hook)
    return name


def wrapper(name):
    old = vars(Standard)[name]

    def hook(self, *args, **kwargs):
        seen.add(name)
        return old(self, *args, **kwargs)

    return hook


def closures(names=("__init__", "wait")):
    """Plain functions, which don't show what they wrap."""
    return {put(name, wrapper(name)) for name in names}


def wraps(names=("__init__", "wait")):
    """Functions that look much like what they wrap, and name it in __wrapped__."""
    return {put(name, functools.wraps(vars(Standard)[name])(wrapper(name))) for name in names}


def private():
    return wraps({"_execute_child", "_wait"} & set(vars(Standard)))


def proxies(names=("__init__", "wait")):
    """Objects that behave in all but their type like what they wrap."""
    import wrapt

    def see(wrapped, instance, args, kwargs):
        seen.add(wrapped.__name__)
        return wrapped(*args, **kwargs)

    return {put(name, wrapt.FunctionWrapper(vars(Standard)[name], see)) for name in names}


def private_proxies():
    return proxies({"_execute_child", "_wait"} & set(vars(Standard)))


def subclass():
    class Popen(Standard):
        def __init__(self, *args, **kwargs):
            seen.add("__init__")
            super().__init__(*args, **kwargs)

    undo.append(lambda: setattr(subprocess, "Popen", Standard))
    subprocess.Popen = Popen
    return {"__init__"}


def sentry():
    """sentry_sdk's own hooks, which can't be taken off."""
    import sentry_sdk

    dsn = "http://a@127.0.0.1:1/1"  # where nothing listens
    sentry_sdk.init(dsn=dsn, traces_sample_rate=1.0, shutdown_timeout=0)
    return {"subprocess", "subprocess.wait"}


def copy(name):
    ours = importlib.import_module(name + ".subprocess")
    ours._would_fork = lambda: True
    core = importlib.import_module(name + "._posix_spawn")
    if not hasattr(core, "counts"):
        core.counts, start = True, core.start
        core.start = lambda request: starts.append(1) or start(request)
    return ours


def step(letter):
    """Do one step; return the names of the hooks in place from now on, or None for no change."""
    if letter in "pP":
        patched.append(letter)
        copy("one" if letter == "p" else "two").patch()
    elif letter in "uU":
        patched.remove("p" if letter == "u" else "P")
        copy("one" if letter == "u" else "two").unpatch()
    elif letter == "h":
        return globals()[sys.argv[2]]()
    else:
        while undo:
            undo.pop()()
        return set()
    return None


def look():
    seen.clear(), starts.clear()
    if "sentry_sdk" in sys.modules:
        import sentry_sdk

        with sentry_sdk.start_transaction(name="look") as transaction:
            call_twice()
            spans = transaction._span_recorder.spans
        seen.update(span.op for span in spans if span is not transaction)
    else:
        call_twice()


def call_twice():
    assert subprocess.call(["sh", "-c", "exit 3"]) == 3
    assert subprocess.call(["sh", "-c", "exit 4"], timeout=30) == 4
    # An argument that only our own start knows reaches it through all hooks.
    if patched and sys.argv[2] not in ("private", "private_proxies"):
        with subprocess.Popen(["true"], process_group=0):
            starts.pop()


def main():
    expected = set()
    for letter in sys.argv[1]:
        names = step(letter)
        expected = expected if names is None else names
        look()
        assert seen == expected, (letter, seen, expected)
        assert patched or not starts
        print(len(starts) if patched else "-", end="")
    if sys.argv[2] == "sentry":
        return
    # In the end everything is as it was at the beginning, and patch() works once more.
    step("r")
    while patched:
        step("u" if patched[-1] == "p" else "U")
    step("p"), look()
    assert len(starts) == 2 and not seen, (starts, seen)
    step("u"), look()
    assert not starts
    assert {name: vars(Standard).get(name) for name in METHODS} == BEFORE


main()
