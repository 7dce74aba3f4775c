# SPDX-License-Identifier: BSD-3-Clause
"""Where the animals live: namespaces of their own, in which everything ends with process 1."""

import os
import subprocess

from ..trouble import system

# Without it the test would be process 1, which inherits orphans.
INIT = "sh", "-c", '"$@"; exit $?', "init"
# `nobody` may signal its own processes only, but run any interpreter, where root alone may look.
CAPABILITY = "+dac_read_search"
BECOME_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
BECOME_NOBODY += ("--inh-caps=" + CAPABILITY, "--ambient-caps=" + CAPABILITY)
USERS = {"root": (), "nobody": BECOME_NOBODY}


def compiled(folder):
    """Compile the animals; return the path of the program."""
    program = os.path.join(str(folder), "escaper")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "escaper.c")
    subprocess.check_call(["cc", "-O1", "-pthread", "-o", program, source])
    return program


def nest(user):
    """The command with which root runs another one in a nest, as that user."""
    return ("unshare", *system.NAMESPACES, *INIT, *USERS[user])
