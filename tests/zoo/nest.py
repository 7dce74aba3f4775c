# SPDX-License-Identifier: BSD-3-Clause
"""Where the animals live: namespaces of their own, in which everything ends with process 1."""

import os
import subprocess

from ..trouble import system

# Without it the test would be process 1, which inherits orphans.
INIT = "sh", "-c", '"$@"; exit $?', "init"
# `nobody` may signal its own processes only, but run any interpreter, where root alone may look.
CAPABILITY = "+dac_read_search"


def become(user):
    words = "setpriv", "--reuid=%d" % user, "--regid=%d" % user, "--clear-groups"
    return (*words, "--inh-caps=" + CAPABILITY, "--ambient-caps=" + CAPABILITY)


USERS = {"root": (), "nobody": become(65534), "bomber": become(54321)}


def compiled(folder, name="escaper"):
    """Compile the animals, or the bombs; return the path of the program."""
    program = os.path.join(str(folder), name)
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".c")
    subprocess.check_call(["cc", "-O1", "-pthread", "-o", program, source])
    return program


def nest(user):
    """The command with which root runs another one in a nest, as that user."""
    return ("unshare", *system.NAMESPACES, *INIT, *USERS[user])
