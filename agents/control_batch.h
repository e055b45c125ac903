/* A batch of transitions as learners of continuous actions read it, on the device: actions in
 * [-1, 1], discounts that have gamma, importance weights; and the priorities that come of it.
 * Shared by all agents that learn critics. */
#ifndef TRP_AGENTS_CONTROL_BATCH_H
#define TRP_AGENTS_CONTROL_BATCH_H

#include <troupe/updater.h>
#include "box.h"
#include "room.h"

struct control_batch {
    /* Filled in by whoever creates it: */
    float discount;            /* gamma, which items lack */
    float importance_exponent; /* of replayed_weights() */
    float priority_epsilon;    /* added to errors */
    /* The device's, [rows]: */
    uint32_t rows; /* of the batch at hand, as what follows */
    const float *states, *next_states, *rewards;
    const float *weights;                /* NULL: all 1 */
    float *actions, *discounts, *errors; /* errors: to be written for priorities */
    const uint64_t *seed;                /* of the step's draws (bodies/draws.h) */
    /* Its own: */
    struct box box;
    float *low, *high, *weight_room;
    uint64_t *seed_room;
    struct {
        float *weights, *errors; /* the host's */
        uint64_t seed;
    } turns[2]; /* of the last step and the one before */
};

/* For at most `rows`, with memory of `room`. To be cleaned up in any case. */
TRP_MUST_USE trp_status control_batch_create(struct control_batch *batch, const trp_env_spec *env,
                                             uint32_t rows, struct room *room);
void control_batch_cleanup(struct control_batch *batch);

/* Begins a step with source 0 of the update. Fails as trp_update_max(). */
TRP_MUST_USE trp_status control_batch_take(struct control_batch *batch, const trp_update *update);

/* Fetches errors, where priorities are made of them; nothing is put on the queue otherwise. */
void control_batch_leave(const struct control_batch *batch, const trp_update *update);

/* Writes the priorities of a step that is collected. */
void control_batch_collect(const struct control_batch *batch, const trp_update *update);

#endif
