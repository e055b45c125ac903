/* The rows of one episode while it is played: trp_episode (actor.h) in the making. */
#ifndef TRP_ACTOR_RECORDING_H
#define TRP_ACTOR_RECORDING_H

#include <troupe/actor.h>

#include "copies.h"

struct recording {
    trp_episode *episode; /* the caller's; NULL: nothing is recorded */
    bool ended;
    size_t row_bytes;
    uint64_t capacity; /* rows */
};

/* Of the first copy, from its first episode on. `episode` is zeroed by the caller. */
void recording_prepare(struct recording *recording, trp_episode *episode, const trp_env_spec *env);

/* Before a step: notes what it begins with, until the episode has ended. */
TRP_MUST_USE trp_status recording_observe(struct recording *recording, const struct copies *copies);

/* After it: what was done and what came of it; the final observation where the episode ended. */
TRP_MUST_USE trp_status recording_step(struct recording *recording, const struct copies *copies);

#endif
