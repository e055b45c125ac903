/* Bounds of replay/sampler/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_SAMPLER_LIMITS_H
#define TRP_REPLAY_SAMPLER_LIMITS_H

enum {
    SHARED_WINDOW_BYTES = 32 << 20, /* see SHARED_WINDOW_BYTES_MAX in wire/limits.h */
    /* shards.c: servers of one client, each with channels and threads of its own. */
    REPLAY_SHARDS_MAX = 1024,
    /* sampler.c: batches of memory. */
    SAMPLER_PREFETCH_MAX = 1024,
    SAMPLER_WORKERS_MAX = 64, /* threads for each server */
    SAMPLER_HELD_MAX = 64,
    /* sampler.c: batches requested beyond the one being filled. The server makes one while
     * another is on its way; at most these two are lost at a stop. */
    SAMPLER_BATCHES_AHEAD = 2,
    /* sampler.c: about what it takes to wake a thread, and for it to get going. */
    SAMPLER_AWAY_NS = 20000,
    SAMPLER_ASK_MS = 100, /* sampler.c: a shorter wait ends without asking a server that is away */
    /* sample_source.c: how soon a release that there was no room for is tried again. */
    SAMPLER_RELEASE_MS = 10,
    /* mutate.c: requests unanswered; the option is a uint32_t. */
    PRIORITY_WINDOW_MAX = 4096,
};

#endif
