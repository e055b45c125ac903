/* See reverb_peer.h. */
#include "reverb_peer.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

static struct way *find_way(struct peer *peer, const struct way *like)
{
    for (size_t i = 0; i < peer->count; i++) {
        struct way *way = &peer->ways[i];
        if (strcmp(way->what, like->what) == 0 && strcmp(way->size, like->size) == 0 &&
            strcmp(way->name, like->name) == 0 && way->writers == like->writers)
            return way;
    }
    if (peer->count == WAYS_MAX)
        fail("the peer does more than expected");
    peer->ways[peer->count] = *like;
    return &peer->ways[peer->count++];
}

void run_peer(struct peer *peer, const char *dir, const char *cases, const char *address, pid_t pid)
{
    char *python = xasprintf("%s/reverb/bin/python", dir), number[16], line[512];
    snprintf(number, sizeof number, "%d", (int)pid);
    char *arguments[] = {python,        BENCH_SOURCE_DIR "/peers/reverb_load.py",
                         (char *)cases, (char *)address,
                         number,        NULL};
    struct process process = start(arguments);
    while (fgets(line, sizeof line, process.out)) {
        struct way way = {.writers = 0};
        struct measured measured;
        if (sscanf(line, "%15s %15s %u %47s %lf %lf %lf", way.what, way.size, &way.writers,
                   way.name, &measured.per_s, &measured.client_us, &measured.server_us) == 7)
            *(address ? &find_way(peer, &way)->ours : &find_way(peer, &way)->theirs) = measured;
    }
    stop(&process, SIGKILL);
    free(python);
}

struct measured fastest(const struct peer *peer, const char *what, const char *size)
{
    struct measured best = {0};
    for (size_t i = 0; i < peer->count; i++) {
        const struct way *way = &peer->ways[i];
        if (strcmp(way->what, what) == 0 && strcmp(way->size, size) == 0 &&
            way->theirs.per_s > best.per_s)
            best = way->theirs;
    }
    return best;
}
