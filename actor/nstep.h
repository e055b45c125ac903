/* Windows of the last n steps of one episode, and the items they make. Arithmetic only. */
#ifndef TRP_ACTOR_NSTEP_H
#define TRP_ACTOR_NSTEP_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/actor.h>

struct nstep_sizes {
    uint32_t n_step;
    size_t observation_bytes, action_bytes;
    double discount;
};

/* One item; pointers are borrowed from the window and the transition. */
struct nstep_item {
    const void *observation, *action, *next_observation;
    float reward, discount;
    uint64_t version;
};

typedef void (*nstep_emit)(void *context, const struct nstep_item *item);

struct nstep_window;

struct nstep_window *nstep_create(const struct nstep_sizes *sizes);
void nstep_destroy(struct nstep_window *window); /* NULL is fine */

/* Forgets the window: `observation` begins an episode. */
void nstep_first(struct nstep_window *window, const void *observation);

/* Adds a step and emits 1 item, or up to n_step at the end of an episode. After an end, or before
 * the first nstep_first(), it is a bug to add. */
void nstep_add(struct nstep_window *window, const trp_transition *transition, nstep_emit emit,
               void *context);

#endif
