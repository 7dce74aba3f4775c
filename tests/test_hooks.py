# SPDX-License-Identifier: BSD-3-Clause
"""Code that replaces what patch() replaces, too: before it, after it, and in between."""

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import pidwait
from .copies import FILES, put
from .processes import run_python

_hooks = importlib.import_module(pidwait.__name__ + "._hooks")
PROGRAM = Path(__file__).with_name("hooked.py")


def asked(order, hooks, folder, *options):
    """What hooked.py prints."""
    for name in "one", "two":
        put(FILES, folder / name)
    done = subprocess.run(
        [sys.executable] + list(options) + [str(PROGRAM), order, hooks],
        env=dict(os.environ, PYTHONPATH=str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert done.stderr == "" and done.returncode == 0, done.stderr
    return done.stdout


# See hooked.py: while patch() is in force, posix_spawn is asked once for each start.
ORDERS = {
    "puhpu": "2--2-",
    "hpupu": "-2-2-",
    "phupu": "22-2-",
    "phru": "222-",
    "phurpu": "22--2-",
    "phuhpu": "22--2-",
    "phPuU": "2222-",
    "hpPUu": "-222-",
    "phuPU": "22-2-",
}


@pytest.mark.parametrize("hooks", ["closures", "wraps", "subclass"])
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_hooks_on_public_methods(order, hooks, tmp_path):
    assert asked(order, hooks, tmp_path) == ORDERS[order]


# A hook on the starting method has to see each start, so patch() leaves that method alone.
PRIVATE = {
    "hpupu": "-0-0-",
    "phupu": "22-2-",
    "hpru": "-00-",
    "hprupu": "-00-2-",
    "phurpu": "22--2-",
    "phPuU": "2222-",
    "hpPUu": "-000-",
}


@pytest.mark.parametrize("order", sorted(PRIVATE))
def test_hooks_on_private_methods(order, tmp_path):
    assert asked(order, "private", tmp_path) == PRIVATE[order]


# Like gevent's Popen: another class, whose methods take other arguments, in another order.
FOREIGN = """if True:
    import logging, subprocess, sys
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)

    class Foreign:
        def __init__(self, args, **options):
            self.args, self.returncode = args, None
            self._execute_child(None, args)

        def _execute_child(self, universal_newlines, args):
            self.pid = 1

        def wait(self, timeout=None, _raise_exc=True):
            return self.returncode or 3

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            self.wait()

    def call(args, **options):
        return Popen(args, **options).wait(_raise_exc=True)

    call.__globals__["Popen"] = Foreign
    early = {early!r}
    if early:
        from {package} import subprocess as ours
    subprocess.Popen, subprocess.call = Foreign, call
    from {package} import subprocess as ours
    ours._would_fork = lambda: True
    for _ in range(2):
        with ours.patch():
            assert subprocess.call(["nonesuch"]) == subprocess.Popen(["nonesuch"]).wait() == 3
            if not early:
                assert ours.call(["nonesuch"]) == 3 and ours.Popen is Foreign
            else:
                assert ours.call(["sh", "-c", "exit 5"], timeout=30) == 5
    ours.unpatch()
    assert subprocess.call(["nonesuch"]) == 3
"""


@pytest.mark.parametrize("early", [True, False])
def test_popen_of_others_is_left_alone(early):
    code = FOREIGN.replace("{early!r}", repr(early)).replace("{package}", pidwait.__name__)
    done = run_python(code)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.count("leaves <class '__main__.Foreign'> alone") == 2 * (not early)


def test_popen_that_is_no_class():
    """As pytest-subprocess replaces it by a function."""
    code = """if True:
        import subprocess
        Popen = subprocess.Popen
        subprocess.Popen = lambda *args, **options: Popen(*args, **options)
        from {package} import subprocess as ours
        with ours.patch():
            for module in subprocess, ours:
                assert module.call(["sh", "-c", "exit 3"]) == 3
                assert module.run(["sh", "-c", "exit 4"], timeout=30).returncode == 4
    """
    done = run_python(code.replace("{package}", pidwait.__name__))
    assert (done.stderr, done.returncode) == ("", 0)


HOOKED_FUNCTIONS = """if True:
    import functools, subprocess
    seen = []

    def hooked(name):
        old = getattr(subprocess, name)

        @functools.wraps(old)
        def hook(*args, **options):
            seen.append(name)
            return old(*args, **options)

        return hook

    for name in "run", "check_output":
        setattr(subprocess, name, hooked(name))
    from {package} import subprocess as ours
    ours._would_fork = lambda: True
    assert ours.run(["true"]).returncode == 0
    assert ours.check_output(["echo", "x"]) == b"x\\n"
    assert seen == ["run", "check_output"] + ["run"] * (len(seen) - 2), seen
    assert ours.call(["sh", "-c", "exit 3"], process_group=0) == 3
"""


def test_hooks_on_functions():
    done = run_python(HOOKED_FUNCTIONS.replace("{package}", pidwait.__name__))
    assert (done.stderr, done.returncode) == ("", 0)


GROUP = """if True:
    import os, subprocess
    Popen = subprocess.Popen
    execute = Popen._execute_child
    Popen._execute_child = lambda self, *args: execute(self, *args)
    from {package} import subprocess as ours
    for patched in False, True:
        if patched:
            ours.patch()
        for cls in (ours.Popen, Popen)[: 1 + patched]:
            try:
                with cls(["sleep", "60"], process_group=0) as child:
                    child.kill()
                    assert os.getpgid(child.pid) == child.pid
            except (TypeError, NotImplementedError) as error:
                assert "process_group" in str(error)
                print(type(error).__name__)
"""


def test_process_group_is_not_lost_in_a_hook():
    """Before Python 3.11 the start that the hook calls takes none: that is an error."""
    done = run_python(GROUP.replace("{package}", pidwait.__name__))
    assert (done.stderr, done.returncode) == ("", 0)
    if "process_group" in inspect.signature(subprocess.Popen.__init__).parameters:
        assert done.stdout == ""
    else:
        assert done.stdout.split() == ["NotImplementedError", "NotImplementedError", "TypeError"]


def test_parameters_of_the_standard_popen():
    assert _hooks.has_parameter(subprocess.Popen, "pass_fds")
    assert not _hooks.has_parameter(subprocess.Popen, "nonesuch")


def test_parameters_that_hooks_hide():
    class Hooked:
        def __init__(self, *args, **options):
            pass

        def _execute_child(self, *args):
            pass

    assert _hooks.has_parameter(Hooked, "process_group")
    Hooked.__init__ = subprocess.Popen.__init__
    assert _hooks.has_parameter(Hooked, "pass_fds")
    assert not _hooks.has_parameter(Hooked, "nonesuch")
