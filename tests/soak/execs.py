# SPDX-License-Identifier: BSD-3-Clause
"""python -m tests.soak.execs COUNT: processes whose second thread calls execve(2), 300 times.

At each call the kernel replaces the main thread. All the while we ask whether the process has
exited: an answer that comes too early comes without the exit code.
"""

import os
import subprocess
import sys
import tempfile

from .. import pidwait

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char **arguments;

static void *go_on(void *unused)
{
    char left[20];
    int number = atoi(arguments[1]);

    if (number == 0)
        _exit(7);
    snprintf(left, sizeof left, "%d", number - 1);
    execl(arguments[0], arguments[0], left, (char *)NULL);
    abort();
}

int main(int count, char **values)
{
    pthread_t thread;

    arguments = values;
    if (pthread_create(&thread, NULL, go_on, NULL))
        return 1;
    pause();
    return count;
}
"""


def main():
    early = 0
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "again")
        command = ["cc", "-O", "-pthread", "-x", "c", "-", "-o", program]
        subprocess.run(command, input=SOURCE.encode(), check=True)
        for _ in range(int(sys.argv[1])):
            popen = subprocess.Popen([program, "300"])
            with popen, pidwait.Process(popen.pid) as process:
                while not process.has_exited():
                    continue
                early += process.exitcode != 7
    print("%d early" % early)


if __name__ == "__main__":
    main()
