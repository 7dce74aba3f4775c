# SPDX-License-Identifier: BSD-3-Clause
"""Write a cpio archive in the format that Linux unpacks at its start: cpio(5), "newc"."""

import os
import stat


class Cpio:
    def __init__(self, file):
        self.file = file
        self.number = 0

    def _add(self, name, mode, data=b"", owner=(0, 0), device=(0, 0)):
        self.number += 1
        path = os.fsencode(name) + b"\0"
        fields = [self.number, mode, *owner, 1, 0, len(data), 0, 0, *device, len(path), 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
        for part in head, data:
            self.file.write(part + bytes(-len(part) % 4))

    def add_folder(self, name, mode=0o755):
        self._add(name, stat.S_IFDIR | mode)

    def add_file(self, name, data, mode=0o644):
        self._add(name, stat.S_IFREG | mode, data)

    def add_member(self, tar, entry):
        """Add an entry of a tar file; a hard link becomes a copy."""
        owner = entry.uid, entry.gid
        if entry.isdir():
            self._add(entry.name, stat.S_IFDIR | entry.mode, owner=owner)
        elif entry.issym():
            self._add(entry.name, stat.S_IFLNK | 0o777, os.fsencode(entry.linkname), owner)
        elif entry.isfile() or entry.islnk():
            self._add(entry.name, stat.S_IFREG | entry.mode, tar.extractfile(entry).read(), owner)

    def add_tree(self, name, folder, ignore):
        """Add a folder; ``ignore`` is as for shutil.copytree."""
        self.add_folder(name)
        names = sorted(os.listdir(str(folder)))
        for entry in sorted(set(names) - set(ignore(str(folder), names))):
            path = os.path.join(str(folder), entry)
            inside = "{}/{}".format(name, entry)
            if os.path.isdir(path):
                self.add_tree(inside, path, ignore)
            else:
                with open(path, "rb") as file:
                    self.add_file(inside, file.read(), os.stat(path).st_mode & 0o777)

    def close(self):
        self._add("TRAILER!!!", 0)
