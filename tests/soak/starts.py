# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.starts COUNT: 64 threads start and wait, another opens inheritable fds."""

import importlib
import os
import sys
import threading

from .. import pidwait
from .waits import has_child, open_fds

subprocess = importlib.import_module(pidwait.__name__ + ".subprocess")
THREADS = 64

# Exits with 99 if it has inherited any fd but 0, 1 and 2.
SCRIPT = """for fd in /proc/$$/fd/*; do
    [ "${fd##*/}" -gt 2 ] && [ -e "$fd" ] && exit 99
done
exit """


def start(number):
    code = number % 90
    script = "exit " if number % 4 > 1 else SCRIPT
    args = ["/bin/sh", "-c", script + str(code)]
    if number % 2:
        child = subprocess.Popen(args, process_group=0)
        got = child.wait(50)
    else:
        with pidwait.spawn(args) as child:
            got = child.wait(50)
    assert got == code, (got, code)


def main():
    count = int(sys.argv[1])
    start(0), start(1)  # loads what is loaded once
    before = open_fds()
    errors, stop = [], []

    def starter(first):
        try:
            for number in range(first, count, THREADS):
                start(number)
        except BaseException as error:
            errors.append(error)

    def opener():
        while not stop:
            fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
            for fd in fds:
                os.set_inheritable(fd, True)
            for fd in fds:
                os.close(fd)

    threads = [threading.Thread(target=starter, args=(first,)) for first in range(THREADS)]
    threads.append(threading.Thread(target=opener))
    for thread in threads:
        thread.start()
    for thread in threads[:-1]:
        thread.join()
    stop.append(True)
    threads[-1].join()
    assert errors == [], errors[:3]
    assert open_fds() == before, (before, open_fds())
    assert not has_child()


if __name__ == "__main__":
    main()
