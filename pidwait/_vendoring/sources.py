# SPDX-License-Identifier: BSD-3-Clause
"""The files that this package consists of, wherever it was imported from: a folder or a zip."""

import os
import pkgutil
import sys
import zipimport
from errno import ENOENT
from importlib.util import find_spec

PACKAGE = __name__.rsplit(".", 2)[0]


def folder() -> str:
    """Where the package is, maybe in a zip."""
    (path,) = sys.modules[PACKAGE].__path__
    return path


def read() -> "dict[str, bytes]":
    """The contents of each file, by its path from the package's folder on, with slashes.

    OSError: a file can't be read, as where only compiled files were installed.
    """
    top = folder()
    spec = find_spec(PACKAGE)
    archive = spec and getattr(spec.loader, "archive", None)
    if archive:
        # pkgutil looks into a cache that importlib.invalidate_caches() has emptied perhaps: seen
        # on Python 3.15.
        zipimport.zipimporter(archive)
    names = [PACKAGE]
    names += [one.name for one in pkgutil.walk_packages([top], PACKAGE + ".")]
    found = {"py.typed": _data(PACKAGE, os.path.join(top, "py.typed"))}
    for name in names:
        spec = find_spec(name)
        assert spec is not None
        path = spec.origin
        if path is None or not path.endswith(".py"):
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT) + ": its source", name)
        found[os.path.relpath(path, top).replace(os.sep, "/")] = _data(name, path)
    return dict(sorted(found.items()))


def _data(name: str, path: str) -> bytes:
    spec = find_spec(name)
    assert spec is not None
    data: bytes = spec.loader.get_data(path)  # type: ignore[union-attr]
    return data
