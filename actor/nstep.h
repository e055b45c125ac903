/* Windows of the last n steps of one episode, and the items they make. Arithmetic only. */
#ifndef TRP_ACTOR_NSTEP_H
#define TRP_ACTOR_NSTEP_H

#include <stddef.h>
#include <stdint.h>

#include "adder.h"

struct nstep_sizes {
    uint32_t n_step;
    double discount;
    struct blob observation; /* the tensors of an observation */
    struct blob choice;      /* the action, then the extras */
};

/* One item; pointers are borrowed from the window and the transition. */
struct nstep_item {
    const uint8_t *observation, *choice; /* blobs */
    const void *const *next_observations;
    const bool *next_mask;
    float reward, discount;
    uint64_t version;
};

typedef void (*nstep_emit)(void *context, const struct nstep_item *item);

struct nstep_window;

/* `sizes` outlives the window. */
struct nstep_window *nstep_create(const struct nstep_sizes *sizes);
void nstep_destroy(struct nstep_window *window); /* NULL is fine */

/* Forgets the window: `observations` begin an episode. */
void nstep_first(struct nstep_window *window, const void *const *observations);

/* Adds a step and emits 1 item, or up to n_step at the end of an episode. After an end, or before
 * the first nstep_first(), it is a bug to add. */
void nstep_add(struct nstep_window *window, const trp_transition *transition, nstep_emit emit,
               void *context);

#endif
