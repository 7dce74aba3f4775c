# SPDX-License-Identifier: BSD-3-Clause
"""Steps into the middle of a look at processes. Runs in the interpreters of trouble, too."""

import builtins
import os

from ..trouble import system

# Whoever reads /proc makes these calls, and only between them does another process matter.
CALLS = [(os, name) for name in "open read listdir scandir stat readlink kill".split()]
CALLS.append((builtins, "open"))


class before_call:
    """In the block, do something right before the n-th system call that looks at processes.

    ``reached`` tells whether there was such a call.
    """

    def __init__(self, number, action):
        self._left = number
        self._action = action
        self.reached = False

    def __enter__(self):
        self._real = [(where, name, getattr(where, name)) for where, name in CALLS]
        for where, name, function in self._real:
            setattr(where, name, self._step(function))
        return self

    def __exit__(self, *exc_info):
        for where, name, function in self._real:
            setattr(where, name, function)

    def _step(self, function):
        def step(*args, **kwargs):
            self._left -= 1
            if self._left == 0:
                self.reached = True
                self.__exit__()
                self._action()
            return function(*args, **kwargs)

        return step


def at_each_call(play, least, *args):
    """play(number, ...) until there is no such call any more; it returns its before_call."""
    number = 1
    while play(number, *args).reached:
        number += 1
    assert number > least, number


def bind(source, target):
    """Have the file ``target`` of /proc show the text of another one, in a mount namespace."""
    ms_bind = system.ctypes.c_ulong(4096)
    system.call("mount", source.encode(), target.encode(), None, ms_bind, None)
