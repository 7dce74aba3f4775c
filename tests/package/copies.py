# SPDX-License-Identifier: BSD-3-Clause
"""The package's own files, also where it is in a zip."""

import importlib

from .. import pidwait

sources = importlib.import_module(pidwait.__name__ + "._vendoring.sources")
FILES = sources.read()
SOURCES = {path: data.decode() for path, data in FILES.items() if path.endswith(".py")}


def put(files, folder):
    """Write the files into the folder, which is made."""
    for path, data in files.items():
        whole = folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(data)
