/* The vectors that a learner has for its updater, with what goes with each: values, gradient,
 * optimizer state, and how its phases ended. */
#ifndef TRP_LEARNER_MODES_VECTORS_H
#define TRP_LEARNER_MODES_VECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/optimizer.h>
#include <troupe/updater.h>
#include "core/sealed.h"
#include "twin.h"

struct vector {
    const trp_vector_spec *spec;
    struct twin values;
    float *grads;         /* the device's, behind room for a line more; NULL: not learned */
    struct sealed shared; /* where others can read grads; memory NULL: nowhere */
    struct twin state[TRP_OPTIMIZER_STATES_MAX]; /* as many as the optimizer has */
    float *whole[TRP_OPTIMIZER_STATES_MAX]; /* the host's, where `state` is a part of it; or NULL */
    struct twin phases;
    trp_phases seen[2];   /* as they were after the last step that applied it, and the one before */
    bool applied[2];      /* whether it did */
    bool followed;        /* the last phase ended without the updater */
    uint64_t left_out;    /* phases, as far as collected */
    const float *watched; /* by the next phase */
    const char *watched_name;
    char *state_names[TRP_OPTIMIZER_STATES_MAX];
    char *steps_name, *norm_name;
};

struct vectors {
    trp_device *device;
    bool is_host;     /* it is: what was put on its queues is done */
    trp_queue *queue; /* borrowed */
    size_t count;
    struct vector each[TRP_UPDATER_VECTORS_MAX];
};

/* Those of the specs, which outlive them; zeroed. RESOURCE_EXHAUSTED: the device has no memory. */
TRP_MUST_USE trp_status vectors_create(struct vectors *vectors, trp_device *device,
                                       trp_queue *queue, const trp_vector_spec *specs,
                                       size_t count);
void vectors_cleanup(struct vectors *vectors); /* zeroed is fine */

/* On a host, before anybody has its address: its gradient is where other processes can read it, if
 * the system lets us. It is zero. */
void vector_share_grads(const struct vectors *vectors, struct vector *vector);

/* The device's values, state and phases become those of the host; and the other way round. They
 * fail as trp_queue_sync(). */
TRP_MUST_USE trp_status vectors_fetch(const struct vectors *vectors);
TRP_MUST_USE trp_status vectors_store(const struct vectors *vectors);

/* Steps all of it, as its phases say. */
void vector_step(const struct vectors *vectors, const struct vector *vector);

/* Adds to a hash what all who have a vector must agree in: its name, count, and what lies where. */
uint64_t vector_hash(uint64_t hash, const trp_vector_spec *spec);

/* Room for the whole state where a learner has a part of it; and no more. */
void vectors_make_whole(struct vectors *vectors);
void vectors_drop_whole(struct vectors *vectors);

/* There is that room. */
bool vectors_are_whole(const struct vectors *vectors);

/* How many vectors its optimizer's state is. */
static inline size_t vector_states(const struct vector *vector)
{
    return vector->spec->learned ? trp_optimizer_states(&vector->spec->optimizer) : 0;
}

/* All of one, the host's. */
static inline float *vector_state(const struct vector *vector, size_t state)
{
    return vector->whole[state] ? vector->whole[state] : vector->state[state].here;
}

static inline const trp_phases *vector_phases(const struct vector *vector)
{
    return vector->phases.here;
}

#endif
