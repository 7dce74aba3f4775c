/* SPDX-License-Identifier: BSD-3-Clause

   A program that tries to outlive whoever ends it, in one of many ways.

   escaper ANIMAL WITNESS SECONDS NUMBER

   ANIMAL is a name in the table at the end; NUMBER is for some of them. Every process lives
   for at most SECONDS, and has the FIFO WITNESS open for writing, which is not closed with the
   other file descriptors, nor by execve(2). So its reader sees the end of the file when the last
   process has ended, however well hidden. A byte in the FIFO says that the animal lives. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WITNESS_FD 100 /* below the soft limit of small systems */

extern char **environ;
static char *program, *fifo;
static int witness, number, leaves_session;
static double end;

static void fail(const char *what)
{
    perror(what);
    _exit(99);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void nap(double seconds)
{
    struct timespec time = {seconds, (seconds - (time_t)seconds) * 1e9};

    nanosleep(&time, NULL);
}

static void live(void)
{
    if (write(witness, "x", 1) < 0)
        _exit(98);
}

static void stay(void)
{
    while (now() < end)
        nap(end - now());
    _exit(0);
}

static void settle(void)
{
    live();
    stay();
}

static void itself(void (*body)(void))
{
    body();
}

static void beget(void (*body)(void))
{
    if (fork() == 0) {
        body();
        _exit(0);
    }
}

static void beget_several(void (*body)(void))
{
    while (number-- > 0)
        beget(body);
}

static void abandon(void (*body)(void))
{
    if (fork() == 0) {
        beget(body);
        _exit(0);
    }
    wait(NULL);
}

/* As daemon(3), and with a second fork: it has no parent, and does not lead its session. */
static void daemonise(void (*body)(void))
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            if (chdir("/") < 0)
                fail("/");
            for (int fd = 0; fd < WITNESS_FD; fd++)
                close(fd);
            body();
        }
        _exit(0);
    }
    wait(NULL);
}

/* Bodies */

static void in_group(void)
{
    setpgid(0, 0);
    settle();
}

static void in_session(void)
{
    setsid();
    settle();
}

static void stopped(void)
{
    live();
    raise(SIGSTOP);
    stay();
}

static char *seconds_left(void)
{
    static char text[30];

    snprintf(text, sizeof text, "%.3f", end - now());
    return text;
}

/* The same program again, with an empty environment. */
static void cleaned(void)
{
    char *none[] = {NULL};

    execle(program, program, "plain", fifo, seconds_left(), "0", (char *)NULL, none);
    fail(program);
}

static void other_program(void)
{
    live();
    execl("/bin/sleep", "sleep", seconds_left(), (char *)NULL);
    fail("/bin/sleep");
}

/* Overwrites its environment, as setproctitle does. */
static void renamed(void)
{
    for (char **item = environ; *item; item++)
        memset(*item, 'x', strlen(*item));
    settle();
}

static void not_dumpable(void)
{
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    settle();
}

/* At SIGTERM it leaves a child in its place. */
static void rise(int unused)
{
    if (number-- > 0 && fork() == 0)
        setsid();
    else
        _exit(0);
}

static void phoenix(void)
{
    struct sigaction action = {0};

    number = 40;
    action.sa_handler = rise;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGTERM, &action, NULL);
    settle();
}

/* Has four children, and others if they are ended. */
static void mother(void)
{
    setsid();
    live();
    for (int births = 0; now() < end && births < 500; births++) {
        if (births >= 4)
            wait(NULL);
        beget(stay);
    }
}

/* Each process begets the next one and exits: no pid lives long. An old storm is slower, since its
   zombies could take all pids of a busy machine. */
static void run_away(void)
{
    double is_old = now() + 0.05;

    live();
    while (now() < end) {
        pid_t child = fork();

        if (child > 0)
            _exit(0);
        if (child < 0 || now() > is_old)
            nap(0.005);
        if (leaves_session)
            setsid();
    }
}

static void run_away_in_sessions(void)
{
    leaves_session = 1;
    run_away();
}

/* Begets one daemon after the other: some are born while it is being ended. */
static void pour_daemons(void)
{
    live();
    for (int births = 0; now() < end && births < 120; births++) {
        daemonise(stay);
        nap(0.0002);
    }
}

/* A subreaper itself, to which its daemons come. */
static void subreaper(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    setsid();
    for (int births = 0; births < 3; births++)
        daemonise(settle);
    stay();
}

static void *second_thread(void *nothing)
{
    beget(in_session);
    settle();
    return nothing;
}

/* Its main thread ends, and a second one goes on. */
static void headless(void)
{
    pthread_t thread;

    setsid();
    if (pthread_create(&thread, NULL, second_thread, NULL))
        fail("pthread_create");
    pthread_exit(NULL);
}

static void nohup(void)
{
    signal(SIGHUP, SIG_IGN);
    live();
    beget(settle);
    _exit(0);
}

/* Begets a daemon after NUMBER milliseconds. */
static void newborn(void)
{
    live();
    nap(number / 1000.0);
    daemonise(stay);
}

static const struct {
    const char *name;
    void (*way)(void (*body)(void));
    void (*body)(void);
} animals[] = {
    {"plain", itself, live},
    {"child", beget, settle},
    {"group", beget, in_group},
    {"setsid", beget, in_session},
    {"orphan", abandon, settle},
    {"nohup", itself, nohup},
    {"daemon", daemonise, settle},
    {"exec", daemonise, other_program},
    {"clean", daemonise, cleaned},
    {"storm", beget_several, run_away},
    {"storm-session", beget_several, run_away_in_sessions},
    {"newborn", itself, newborn},
    {"fountain", beget, pour_daemons},
    {"adopter", beget, subreaper},
    {"hidden", daemonise, not_dumpable},
    {"title", daemonise, renamed},
    {"headless", beget, headless},
    {"mother", beget, mother},
    {"phoenix", daemonise, phoenix},
    {"stopped", beget, stopped},
};

int main(int count, char **words)
{
    if (count != 5)
        fail("escaper ANIMAL WITNESS SECONDS NUMBER");
    program = words[0];
    fifo = words[2];
    end = now() + atof(words[3]);
    number = atoi(words[4]);
    witness = fcntl(open(fifo, O_WRONLY), F_DUPFD, WITNESS_FD);
    if (witness < 0)
        fail(fifo);
    for (unsigned i = 0; i < sizeof animals / sizeof *animals; i++)
        if (strcmp(words[1], animals[i].name) == 0) {
            animals[i].way(animals[i].body);
            stay(); /* the command itself */
        }
    fail(words[1]);
}
