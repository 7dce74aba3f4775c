# SPDX-License-Identifier: BSD-3-Clause
"""Thousands of processes, started by a small C program whose memory they share."""

import os
import subprocess

from . import core

STARTER = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STACK = 4096 };
static sigset_t go;

static int live(void *number)
{
    siginfo_t info;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigwaitinfo(&go, &info);
    _exit((long) number % 256);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    long count = atol(argv[1]), i;
    pid_t *pids = malloc(count * sizeof *pids);
    char *stacks = malloc((count + 1) * STACK), line[100];

    sigemptyset(&go);
    sigaddset(&go, SIGUSR1);
    sigprocmask(SIG_BLOCK, &go, NULL);
    if (!strcmp(argv[2], "reap"))
        signal(SIGCHLD, SIG_IGN);
    for (i = 0; i < count; i++) {
        pids[i] = clone(live, stacks + (i + 1) * STACK, CLONE_VM | SIGCHLD, (void *) i);
        if (pids[i] < 0)
            return 1;
        printf("%d\n", pids[i]);
    }
    fflush(stdout);
    /* FIRST LAST MICROSECONDS: end these, one at a time */
    while (fgets(line, sizeof line, stdin)) {
        long first, last, step;
        double next = now();

        sscanf(line, "%ld %ld %ld", &first, &last, &step);
        for (i = first; i < last; i++, next += step / 1e6) {
            struct timespec rest = {0, step > 60 ? (step - 60) * 1000 : 0};

            if (now() < next)
                nanosleep(&rest, NULL);
            while (now() < next)
                ;
            kill(pids[i], SIGUSR1);
        }
    }
    return 0;
}
"""


def compile_starter(folder):
    return core.build(STARTER.encode(), os.path.join(folder, "starter"), "-Os", "-static")


class Herd:
    """``count`` processes that are not our children; the i-th exits with i % 256.

    Their parent reaps them at once, or keeps the zombies until the herd is closed.
    """

    def __init__(self, starter, count, keep=False):
        self._parent = subprocess.Popen(
            [starter, str(count), "keep" if keep else "reap"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
            bufsize=1,
        )
        self.pids = []
        for _ in range(count):
            line = self._parent.stdout.readline()
            if not line:
                self.close()
                raise core.Unavailable("only {} processes can be had".format(len(self.pids)))
            self.pids.append(int(line))

    def end(self, first, last, step):
        """Let them exit, one every `step` microseconds."""
        self._parent.stdin.write("{} {} {}\n".format(first, last, step))

    def close(self):
        self._parent.kill()  # which ends all of them
        self._parent.wait()
        self._parent.stdin.close()
        self._parent.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()
