/* SPDX-License-Identifier: BSD-3-Clause
 * bomb KIND: multiply, as fast as the limit of processes allows. Start it under such a limit.
 */

#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    int number;

    if (!strcmp(kind, "group"))
        signal(SIGHUP, SIG_IGN);
    if (!strcmp(kind, "deaf"))
        for (number = 1; number < 32; number++)
            signal(number, number == SIGCHLD ? SIG_DFL : SIG_IGN);
    for (;;) {
        if (fork() == 0) {
            if (!strcmp(kind, "setsid"))
                setsid();
            if (!strcmp(kind, "group"))
                setpgid(0, 0);
            if (!strcmp(kind, "double") && fork() > 0)
                _exit(0);
        }
    }
}
