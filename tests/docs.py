# SPDX-License-Identifier: BSD-3-Clause
"""Make API.md of the docstrings: ``python -m tests.docs``; with --check, tell if it is current."""

import ast
import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

from . import pidwait

PAGE = Path(__file__).resolve().parent / "API.md"
HEAD = """\
# API

Every public name. `python3 -m tests.docs` makes this page from the docstrings.

You can paste each example into a new interpreter. It runs on Python 3.6, or on the version that
it names.
"""
# The modules, and their public names in the order of the page.
SECTIONS = (
    ("One process", "", "wait has_exited Process TimeoutExpired pid_exists"),
    ("Many processes", "", "wait_procs as_completed WaitSet watch Watch"),
    ("Ending", "", "end_procs watch_parent"),
    ("Starting", "", "spawn Child Usage"),
    ("Finding", "", "process_iter ProcessInfo"),
    ("The system", "", "probe"),
    ("asyncio", "aio", "wait wait_procs as_completed end_procs run spawn Child"),
    ("Popen", "subprocess", "Popen patch unpatch"),
)


def signature(function, is_method):
    """The parameters, without annotations: these read differently on each Python."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except ValueError:  # of a C function
        return "(...)"
    public = [one for one in found[is_method:] if one.name[0] != "_"]
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in public]
    return str(inspect.Signature(bare))


def text(thing, module):
    """The docstring as Markdown: its examples are blocks of code."""
    paragraphs = (inspect.getdoc(thing) or "").replace("``", "`").split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ""
        if paragraph.startswith(">>>"):
            yield from ("```pycon", *example(paragraph, module), "```")
        else:
            yield from paragraph.splitlines()


def example(session, module):
    """As it can be pasted: with an import of the names of ours, and the end of each block.

    A docstring has no such import, because a copy of the package can have any name.
    """
    parts = doctest.DocTestParser().get_examples(session)
    used = {node.id for part in parts for node in ast.walk(ast.parse(part.source)) if is_name(node)}
    names = ", ".join(sorted(used & set(module.__all__)))
    import_of_ours = [">>> from %s import %s" % (shown_name(module), names)]
    for part in parts:
        lines = part.source.splitlines()
        if not lines[0].startswith("import "):
            yield from import_of_ours
            import_of_ours = []
        yield ">>> " + lines[0]
        yield from ("... " + line for line in lines[1:])
        if lines[-1].startswith(" "):
            yield "..."
        yield from part.want.splitlines()


def is_name(node):
    return isinstance(node, ast.Name)


def shown_name(module):
    return module.__name__.replace(pidwait.__name__, "pidwait", 1)


def members(cls):
    """The public methods and properties that the class, or a base of this package, defines."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == cls.__module__.partition(".")[0]:
            found.update(vars(base))
    public = {name: value for name, value in found.items() if name[0] != "_" and has_text(value)}
    if issubclass(cls, subprocess.Popen):  # the rest is in Python's documentation
        public = {name: public[name] for name in public if has_own_text(public[name])}
    return public


def has_own_text(value):
    return bool(value.__doc__) and not hasattr(value, "__wrapped__")


def has_text(value):
    return callable(getattr(value, "__func__", value)) or isinstance(value, property)


def describe(module, name):
    thing = getattr(module, name)
    is_class = inspect.isclass(thing)
    heading = "### %s.%s" % (shown_name(module), name)
    if not (thing.__doc__ or "").startswith("Returned by"):  # nobody calls it
        heading += signature(thing, False)
    yield from ("", heading, "", *text(thing, module))
    if is_class and not issubclass(thing, tuple):  # Usage has its fields alone
        for label, value in members(thing).items():
            if isinstance(value, property):
                yield from ("", "#### %s" % label, "", *text(value, module))
            else:
                is_method = not isinstance(value, (classmethod, staticmethod))
                function = getattr(thing, label)
                yield from ("", "#### %s%s" % (label, signature(function, is_method)), "")
                yield from text(function, module)


def page():
    lines = [HEAD.rstrip("\n")]
    for title, name, names in SECTIONS:
        module = pidwait
        if name:
            module = importlib.import_module("%s.%s" % (pidwait.__name__, name))
        lines += ["", "## " + title]
        if name:
            lines += ["", *text(module, module)]
        for one in names.split():
            lines += describe(module, one)
    return "\n".join(lines) + "\n"


def main(args):
    made = page()
    if "--check" not in args:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    if made != PAGE.read_text(encoding="utf-8"):
        print("API.md is not current: run `python3 -m tests.docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
