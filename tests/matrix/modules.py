# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: lets tests look into the modules of the package where there is one file."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pidwait

PLAN = json.loads(Path(__file__).resolve().parents[2].joinpath("plan.json").read_text())
NAMES = PLAN["names"]
FIRST = dict(vars(pidwait))


class Part(ModuleType):
    """What has become of a module: its names are those that they have got in the file."""

    def __init__(self, name):
        ModuleType.__init__(self, pidwait.__name__ + "." + name)
        vars(self)["_names"] = NAMES[name]

    def __getattr__(self, name):
        try:
            return getattr(pidwait, vars(self)["_names"][name])
        except KeyError:
            raise AttributeError("%s.%s is not in the file" % (self.__name__, name)) from None

    def __setattr__(self, name, value):
        setattr(pidwait, vars(self)["_names"].get(name, name), value)

    def __delattr__(self, name):
        # pytest 9 ends a monkeypatch so, where the name was not in the module's own dict.
        self.__setattr__(name, FIRST[vars(self)["_names"][name]])


def pytest_ignore_collect(collection_path):
    name = collection_path.name
    if name.startswith("test_") and name[len("test_") : -len(".py")] not in PLAN["tests"]:
        return True
    return None


def forget():
    """What _probe.forget() does: nothing in the file calls it."""
    for name in "_answers", "_known", "chosen", "_resolved":
        getattr(pidwait, name).clear()


# A package can have nothing of its own.
for name in list(NAMES):
    NAMES.setdefault(name.rpartition(".")[0] or name, {})
for name in NAMES:
    sys.modules[pidwait.__name__ + "." + name] = Part(name)
for name in NAMES:
    above, _, last = name.rpartition(".")
    if above:
        vars(sys.modules[pidwait.__name__ + "." + above])[last] = sys.modules["pidwait." + name]
vars(sys.modules["pidwait._probe"])["forget"] = forget
