# SPDX-License-Identifier: BSD-3-Clause
"""The user database."""

from .._base.errors import raise_of_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    _Names = dict[int, str]
else:
    _Names = dict


class Names(_Names):
    """The names of users by their numbers, each looked up once; the number if there is none.

    Each listing has its own, so it is shared only if a program shares the listing: then two
    threads may look up the same name.
    """

    def __missing__(self, uid: int) -> str:
        import pwd

        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError as error:
            raise_of_handler(error)
            name = str(uid)
        self[uid] = name
        return name
