/* Each directory has a shell that waits for the end of a pipe of which only this process has the
 * other end, and then removes it: no handler is asked, no path to the end of the program is
 * missed. */
#include "scratch.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"

extern char **environ;

enum { TMPFS = 0x01021994, REMOVERS_MAX = 16 };

/* The servers that write there die when this process does, perhaps a moment later. */
static const char script[] = "trap '' INT TERM HUP; read -r end; rm -rf \"$0\" 2>/dev/null ||\n"
                             "    { sleep 1; rm -rf \"$0\"; }";

static struct remover {
    char *dir; /* NULL: free */
    pid_t pid;
    int alive; /* the pipe's end */
} removers[REMOVERS_MAX];

static void fail_at(const char *what)
{
    perror(what);
    exit(1);
}

static struct remover *find_remover(const char *dir)
{
    for (size_t i = 0; i < REMOVERS_MAX; i++)
        if (removers[i].dir == dir)
            return &removers[i];
    fprintf(stderr, "bench: too many directories, or one that is not ours\n");
    exit(1);
}

static void start_remover(struct remover *remover)
{
    char *arguments[] = {"/bin/sh", "-c", (char *)script, remover->dir, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        fail_at("pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&remover->pid, arguments[0], &actions, NULL, arguments, environ) != 0)
        fail_at(arguments[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]);
    remover->alive = ends[1];
}

char *make_dir(const char *parent)
{
    struct remover *remover = find_remover(NULL);
    char *dir = xasprintf("%s/troupe_bench-XXXXXX", parent);
    if (!mkdtemp(dir))
        fail_at(parent);
    remover->dir = dir;
    start_remover(remover);
    return dir;
}

void remove_dir(char *dir)
{
    struct remover *remover = find_remover(dir);
    int status;
    close(remover->alive);
    if (waitpid(remover->pid, &status, 0) != remover->pid || status != 0)
        fail_at(dir);
    remover->dir = NULL;
    free(dir);
}

bool on_tmpfs(const char *path)
{
    struct statfs info;
    return statfs(path, &info) == 0 && info.f_type == TMPFS;
}
