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
        struct way like = {.writers = 0};
        struct measured measured;
        char whose[16];
        if (sscanf(line, "%15s %15s %15s %u %47s %lf %lf %lf", whose, like.what, like.size,
                   &like.writers, like.name, &measured.per_s, &measured.client_us,
                   &measured.server_us) != 8)
            continue;
        struct way *way = find_way(peer, &like);
        segments_add(strcmp(whose, "ours") == 0 ? &way->ours : &way->theirs, measured);
    }
    stop(&process, SIGKILL);
    free(python);
}

struct measured fastest(struct peer *peer, const char *what, const char *size)
{
    struct measured best = {0};
    for (size_t i = 0; i < peer->count; i++) {
        struct way *way = &peer->ways[i];
        if (strcmp(way->what, what) != 0 || strcmp(way->size, size) != 0)
            continue;
        struct measured theirs = segments_median(&way->theirs);
        if (theirs.per_s > best.per_s)
            best = theirs;
    }
    return best;
}
