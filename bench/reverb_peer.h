/* dm-reverb's clients, run by bench/peers/reverb_load.py: the peer of the replay benchmarks. */
#ifndef BENCH_REVERB_PEER_H
#define BENCH_REVERB_PEER_H

#include "replay_load.h"

enum { WAYS_MAX = 40 };

/* One way of dm-reverb's clients to do a case, on its own server and on ours. */
struct way {
    char what[16], size[16], name[48];
    unsigned writers;
    struct segments theirs, ours;
};

struct peer {
    struct way ways[WAYS_MAX];
    size_t count;
};

/* Runs its clients (`cases`: "growing", "full" or "samples") from the virtual environment
 * DIR/reverb against its own server, and in turns with it against `address`, which the process
 * `pid` serves (unless NULL). Each call adds segments. */
void run_peer(struct peer *peer, const char *dir, const char *cases, const char *address,
              pid_t pid);

/* dm-reverb's fastest way on its own server; zeros without a peer. */
struct measured fastest(struct peer *peer, const char *what, const char *size);

#endif
