/* SPDX-License-Identifier: BSD-3-Clause */
/* The waits and starts of the benches in C: the least that they can cost.
 *
 * limit wait CHILD IN OUT  for each line read: start CHILD on these fds and wait for it, as
 *                          latency.make_inline() does; print when the wait returned, its CPU time
 * limit set COUNT          read COUNT pids, print "ready", wait for all of them, as
 *                          many.by_epoll() does; print the CPU time, then each pid with its code
 * limit start PROGRAM      for each line read, a number: start PROGRAM that often, each time in a
 *                          process group of its own, and reap it; print the CPU and the wall time
 *
 * Times are in seconds, points in time those of the monotonic clock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { OF_PIDFD = 3, TIMEOUT = 30000, EVENTS = 1023 };

/* Linux 6.15; since then the exit status is in the struct of 6.13. */
struct exit_info {
    uint64_t mask;
    uint64_t cgroup;
    uint32_t ids[11];
    int32_t status;
};
#define GET_INFO _IOWR(0xFF, 11, struct exit_info)
#define INFO_EXIT 8

struct member {
    pid_t pid;
    int fd;
    int code;
};

extern char **environ;

static void die(const char *call)
{
    fprintf(stderr, "limit: %s: %s\n", call, strerror(errno));
    exit(1);
}

static double now(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int open_pidfd(pid_t pid)
{
    int fd = syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0)
        die("pidfd_open");
    return fd;
}

static void reap(pid_t pid)
{
    siginfo_t info;

    if (waitid(P_PID, pid, &info, WEXITED) < 0)
        die("waitid");
}

static pid_t start(char *program, const posix_spawn_file_actions_t *actions,
                   const posix_spawnattr_t *attributes)
{
    char *arguments[] = {program, NULL};
    pid_t pid;

    errno = posix_spawn(&pid, program, actions, attributes, arguments, environ);
    if (errno)
        die("posix_spawn");
    return pid;
}

static int wait_for_child(pid_t pid)
{
    struct pollfd poller = {open_pidfd(pid), POLLIN, 0};
    siginfo_t info;

    if (poll(&poller, 1, TIMEOUT) != 1)
        die("poll");
    if (waitid((idtype_t) OF_PIDFD, poller.fd, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        die("waitid");
    close(poller.fd);
    return info.si_status;
}

static void waits(char *child, int in, int out)
{
    posix_spawn_file_actions_t actions;
    char line[100];

    fcntl(in, F_SETFD, FD_CLOEXEC);
    fcntl(out, F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    while (fgets(line, sizeof line, stdin)) {
        pid_t pid = start(child, &actions, NULL);
        double cpu = now(CLOCK_PROCESS_CPUTIME_ID), woken;
        int code = wait_for_child(pid);

        woken = now(CLOCK_MONOTONIC);
        cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        reap(pid);
        printf("%.9f %.9f %d\n", woken, cpu, code);
        fflush(stdout);
    }
}

/* Whether it has been reaped. Until then its pidfd stays ready, so we ask again. */
static int get_exit(struct member *member)
{
    struct exit_info info = {.mask = INFO_EXIT};

    if (ioctl(member->fd, GET_INFO, &info) < 0) {
        if (errno != ESRCH) /* just while it is being reaped */
            die("ioctl(PIDFD_GET_INFO)");
        return 0;
    }
    member->code = info.status >> 8 & 255;
    return (info.mask & INFO_EXIT) != 0;
}

static void set(long count)
{
    static struct epoll_event events[EVENTS];
    struct member *members = calloc(count, sizeof *members);
    struct member **exits = calloc(count, sizeof *exits);
    int epoll = epoll_create1(EPOLL_CLOEXEC), found;
    long i, ended = 0;
    double cpu;

    for (i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = &members[i]}};

        if (scanf("%d", &members[i].pid) != 1)
            exit(1);
        members[i].fd = open_pidfd(members[i].pid);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, members[i].fd, &event) < 0)
            die("epoll_ctl");
    }
    puts("ready");
    fflush(stdout);
    cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    while (ended < count) {
        found = epoll_wait(epoll, events, EVENTS, -1);
        if (found < 0)
            die("epoll_wait");
        for (i = 0; i < found; i++) {
            struct member *member = events[i].data.ptr;

            if (!get_exit(member))
                continue;
            close(member->fd);
            exits[ended++] = member;
        }
    }
    close(epoll);
    printf("%.9f\n", now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    for (i = 0; i < count; i++)
        printf("%d %d\n", exits[i]->pid, exits[i]->code);
}

static void starts(char *program)
{
    posix_spawnattr_t attributes;
    char line[100];

    /* No closefrom: no fd is open here but 0, 1 and 2. */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    while (fgets(line, sizeof line, stdin)) {
        double cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
        long left = atol(line);

        while (left--)
            reap(start(program, NULL, &attributes));
        cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%.9f %.9f\n", cpu, now(CLOCK_MONOTONIC) - wall);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "wait"))
        waits(argv[2], atoi(argv[3]), atoi(argv[4]));
    else if (argc == 3 && !strcmp(argv[1], "set"))
        set(atol(argv[2]));
    else if (argc == 3 && !strcmp(argv[1], "start"))
        starts(argv[2]);
    else
        return 2;
    return 0;
}
