# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for macOS' POSIX_SPAWN_CLOEXEC_DEFAULT and addinherit_np, on Linux.

It follows xnu's bsd/kern/kern_exec.c, exec_handle_file_actions(): with the flag, the exec closes
each file descriptor that no file action has opened, made by dup2 or inherited. To inherit one that
is not open is EBADF, and dup2 of a file descriptor to itself leaves it close-on-exec.
"""

import os

FLAG = 0x4000
_PREFIX = "posix_spawn_file_actions_"
INHERIT = _PREFIX + "addinherit_np"
_FREE = 990  # a file descriptor that no test uses


class StandIn:
    def __init__(self, get):
        self._own = {name: get(name) for name in self.functions() if name != INHERIT}
        # By their addresses: the file descriptors that each list of file actions makes, and
        # the attributes that have the flag.
        self._made = {}
        self._flagged = set()

    def functions(self):
        """The functions to replace, by name."""
        return {
            "posix_spawn": self.posix_spawn,
            "posix_spawnattr_setflags": self.setflags,
            _PREFIX + "init": self.init,
            _PREFIX + "adddup2": self.adddup2,
            _PREFIX + "addopen": self.addopen,
            _PREFIX + "addclose": self.addclose,
            INHERIT: self.addinherit_np,
        }

    def _add(self, name, *arguments):
        return self._own[_PREFIX + name](*arguments)

    def init(self, actions):
        self._made[id(actions)] = set()
        return self._add("init", actions)

    def setflags(self, attributes, flags):
        (self._flagged.add if flags & FLAG else self._flagged.discard)(id(attributes))
        return self._own["posix_spawnattr_setflags"](attributes, flags & ~FLAG)

    def adddup2(self, actions, fd, target):
        self._made[id(actions)].add(target)
        if fd != target:
            return self._add("adddup2", actions, fd, target)
        return self._add("adddup2", actions, fd, _FREE) or self._add("addclose", actions, _FREE)

    def addopen(self, actions, fd, *arguments):
        self._made[id(actions)].add(fd)
        return self._add("addopen", actions, fd, *arguments)

    def addclose(self, actions, fd):
        self._made[id(actions)].discard(fd)
        return self._add("addclose", actions, fd)

    def addinherit_np(self, actions, fd):
        self._made[id(actions)].add(fd)
        return (
            self._add("adddup2", actions, fd, _FREE)
            or self._add("adddup2", actions, _FREE, fd)
            or self._add("addclose", actions, _FREE)
        )

    def posix_spawn(self, cell, path, actions, attributes, *arguments):
        if id(attributes) in self._flagged:
            # Every number, as another thread may open any meanwhile. Only at the first use:
            # what is added to the file actions stays.
            made = self._made.pop(id(actions), None)
            for fd in () if made is None else range(os.sysconf("SC_OPEN_MAX")):
                if fd not in made and self._add("addclose", actions, fd):
                    raise OSError("addclose of %d" % fd)
        return self._own["posix_spawn"](cell, path, actions, attributes, *arguments)
