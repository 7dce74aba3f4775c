# SPDX-License-Identifier: BSD-3-Clause
"""The user database."""

from .._errors import raise_of_handler


def name(uid: int) -> str:
    """The name of a user; the number of one without a name."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise_of_handler(error)
        return str(uid)
