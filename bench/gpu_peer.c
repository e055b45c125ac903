#include "gpu_peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"

#define SCRIPT "bench/peers/torch_gpu.py"

extern char **environ;

struct gpu_peer {
    const char *python, *device;
    pid_t pid;
    FILE *to, *from;
    bool ended; /* by itself: a library may end its process */
};

static bool spawn_peer(struct gpu_peer *peer)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
        return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    char *const argv[] = {(char *)(uintptr_t)peer->python, SCRIPT, (char *)(uintptr_t)peer->device,
                          NULL};
    int rc = posix_spawnp(&peer->pid, peer->python, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    peer->to = fdopen(to[1], "w");
    peer->from = fdopen(from[0], "r");
    return rc == 0 && peer->to && peer->from;
}

struct gpu_peer *gpu_peer_start(const char *python, const char *device)
{
    struct gpu_peer *peer = xcalloc(1, sizeof *peer);
    *peer = (struct gpu_peer){.python = python, .device = device};
    signal(SIGPIPE, SIG_IGN); /* who is gone is known by its answers */
    if (spawn_peer(peer))
        return peer;
    fprintf(stderr, "bench: %s does not start\n", python);
    free(peer);
    return NULL;
}

static void end_peer(struct gpu_peer *peer)
{
    fclose(peer->to); /* it ends with its input */
    fclose(peer->from);
    waitpid(peer->pid, NULL, 0);
}

void gpu_peer_stop(struct gpu_peer *peer)
{
    if (!peer)
        return;
    end_peer(peer);
    free(peer);
}

/* Without its end of line. False: the peer has ended. */
static bool ask_peer(struct gpu_peer *peer, const char *question, char *answer, size_t bytes)
{
    fprintf(peer->to, "%s\n", question);
    fflush(peer->to);
    peer->ended = !fgets(answer, (int)bytes, peer->from);
    if (peer->ended)
        return false;
    answer[strcspn(answer, "\n")] = '\0';
    return true;
}

bool gpu_peer_prepare(struct gpu_peer *peer, const char *name, const char *precision, char *how,
                      size_t bytes)
{
    char answer[512] = "";
    if (peer->ended) { /* another case may go well */
        end_peer(peer);
        if (!spawn_peer(peer)) {
            fprintf(stderr, "bench: %s does not start again\n", peer->python);
            exit(1);
        }
    }
    char *question = xasprintf("%s\t%s", name, precision);
    bool answered = ask_peer(peer, question, answer, sizeof answer);
    bool ready = answered && strncmp(answer, "ready ", 6) == 0;
    snprintf(how, bytes, "%s", ready ? answer + 6 : answered ? answer : "it has ended");
    free(question);
    return ready;
}

double gpu_peer_run(struct gpu_peer *peer)
{
    char answer[512];
    return ask_peer(peer, "run", answer, sizeof answer) ? strtod(answer, NULL) : 0;
}
