/* What is timed inside a sandbox: execs alone, programs started, memory files made.

       execs exec|spawn|memory COUNT    prints seconds

   exec: one process that runs itself COUNT times.  spawn: COUNT children, each /usr/bin/true.
   memory: COUNT memory files, made and closed. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long count = atol(argv[2]);
    double began = argc > 3 ? atof(argv[3]) : now();
    if (!strcmp(argv[1], "exec")) {
        if (count > 0) {
            char left[32], since[32];
            snprintf(left, sizeof left, "%ld", count - 1);
            snprintf(since, sizeof since, "%.9f", began);
            execl("/proc/self/exe", argv[0], argv[1], left, since, NULL);
            fail("execl");
        }
    } else if (!strcmp(argv[1], "spawn")) {
        char *words[] = {"true", NULL}, *none[] = {NULL};
        while (count--) {
            pid_t pid;
            int status;
            if (posix_spawn(&pid, "/usr/bin/true", NULL, NULL, words, none)) fail("posix_spawn");
            if (waitpid(pid, &status, 0) != pid || status) fail("true");
        }
    } else {
        while (count--) {
            int fd = memfd_create("bench", MFD_CLOEXEC);
            if (fd < 0) fail("memfd_create");
            close(fd);
        }
    }
    printf("%.9f\n", now() - began);
    return 0;
}
