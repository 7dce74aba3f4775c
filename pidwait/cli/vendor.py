# SPDX-License-Identifier: BSD-3-Clause
"""The command ``vendor``: copy this package into another project."""

from .. import __version__
from .options import Command, CommandError, Usage
from .report import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Sequence

_OTHER, _BY_HAND = 3, 4

_USAGE = """\
{prog} vendor [--force] DEST
       {prog} vendor --check DEST
       {prog} vendor --single-file [--systems SYSTEM,...] [--with PART,...] [FILE]"""
_TEXT = """\
Copy this package into another project, where it works under any name. DEST is
the folder that the copy becomes, as acme/_vendor/NAME; if it is a copy already,
it is updated.

      --force             update even what has been changed by hand
      --check             do not copy; tell whether the copy is current
      --single-file       make one module of all that waiting needs, with the
                          command line; print it, or write it to FILE
      --systems SYSTEM,...  for these systems alone: linux, bsd, windows
      --with PART,...     with more than waiting: watch, spawn, subprocess, aio
  -V, --version           show the version
  -h, --help              show this

exit status: 0 it is done, or the copy is current; 1 it can't be done; 2 wrong
arguments; with --check 3 the copy is of another version, or its update was
interrupted; 4 it was changed by hand: files were changed, removed or added
"""

COMMAND = Command(" vendor", _USAGE, _TEXT, "force check single-file systems: with:")
COMMAND.lists = ("systems", "with")


def vendor_command(argv: "Sequence[str]") -> int:
    return COMMAND.run(_main, argv)


def _main(options: "dict[str, str]", operands: "list[str]") -> int:
    if "single-file" in options:
        return _single_file(options, operands)
    return _folder(options, operands)


def _folder(options: "dict[str, str]", operands: "list[str]") -> int:
    if len(operands) != 1:
        raise Usage("give one DEST")
    if "systems" in options or "with" in options:
        raise Usage("--systems and --with are for --single-file")
    if "check" in options and "force" in options:
        raise Usage("--check changes nothing: it needs no --force")
    import os
    from pathlib import Path

    from .._vendoring import folder

    dest = Path(os.path.abspath(operands[0]))
    if not folder.can_be_imported(dest.name):
        raise Usage("%r is no name that Python can import" % dest.name)
    try:
        return (_check if "check" in options else _copy)(operands[0], dest, "force" in options)
    except folder.Refused as error:
        raise CommandError("%s: %s" % (operands[0], error)) from None
    except OSError as error:
        raise CommandError("%s: %s" % (error.filename or operands[0], error.strerror)) from None


def _copy(name: str, dest: "Path", force: bool) -> int:
    from .._vendoring import folder

    before = folder.status(dest)
    written, gone = folder.write(dest, force)
    text = "%d written, %d removed" % (len(written), len(gone))
    was = before.record.version if before else __version__
    versions = "%s to %s" % (was, __version__) if was != __version__ else __version__
    say("%s: %s: %s\nimport it so: %s\n" % (name, versions, text, folder.import_line(dest)))
    return 0


def _check(name: str, dest: "Path", _force: bool) -> int:
    from .._vendoring import folder

    found = folder.status(dest)
    if found is None:
        raise folder.Refused("no copy is there")
    record, this = found.record, folder.record_of(folder.contents())
    current = record.text() == this.text()
    by_hand = list(found.by_hand())
    if not record.finished:
        text = "an update to %s was interrupted: do it again" % record.version
    elif current:
        text = "%s, current" % record.version
    elif record.version == __version__:
        text = "%s, but not as it is here" % record.version
    else:
        text = "%s; this is %s" % (record.version, __version__)
    lines = ["%s: %s" % (name, text)] + ["%s by hand: %s" % one for one in by_hand]
    say("\n".join(lines) + "\n")
    if by_hand:
        return _BY_HAND
    return 0 if current else _OTHER


def _single_file(options: "dict[str, str]", operands: "list[str]") -> int:
    if len(operands) > 1:
        raise Usage("give one FILE, or none to print it")
    if "check" in options or "force" in options:
        raise Usage("--check and --force are for a folder")
    from .._vendoring.single_file import EXTRAS, SYSTEMS, SingleFile

    systems = _words(options, "systems", SYSTEMS) or SYSTEMS
    extras = _words(options, "with", EXTRAS)
    try:
        text = SingleFile(systems, extras).text()
        if not operands:
            say(text)
            return 0
        with open(operands[0], "wb") as file:
            file.write(text.encode())
    except OSError as error:
        raise CommandError("%s: %s" % (error.filename, error.strerror)) from None
    return 0


def _words(options: "dict[str, str]", name: str, known: "Sequence[str]") -> "list[str]":
    words = [word for word in options.get(name, "").split(",") if word]
    for word in words:
        if word not in known:
            raise Usage("--%s: %r is none of %s" % (name, word, ", ".join(known)))
    return words
