/* Continuous actions: numbers, each within finite bounds of its own. Environments and items have
 * them as the environment does; networks, noise and losses in halves of the distance between the
 * bounds, from -1 to 1. Shared by all agents of continuous actions that learn critics. */
#ifndef TRP_AGENTS_BOX_H
#define TRP_AGENTS_BOX_H

#include <troupe/device.h>
#include <troupe/env.h>
#include <troupe/rng.h>
#include "bodies/moves.h"

/* INVALID_ARGUMENT: actions are something else, or a bound is not finite, or allows one value.
 * `who` ("td3") begins the message. */
TRP_MUST_USE trp_status box_check(const char *who, const trp_env_spec *env);

/* Of one that passed the check; it refers to the spec. */
struct box box_of(const trp_env_spec *env);

/* Any action between the bounds, each as likely; [rows][size]. */
void box_draw(const struct box *box, trp_rng *rng, uint32_t rows, float *actions);

/* From [-1, 1] to the bounds, in place. What lies beyond comes to lie on a bound. */
void box_stretch(const struct box *box, uint32_t rows, float *actions);

/* The other way round, on a queue, whose device's memory all pointers are to: those of the box,
 * too. What lies beyond a bound counts as the bound. */
void box_shrink_on(trp_queue *queue, const struct box *box, uint32_t rows, const float *actions,
                   float *shrunk);

#endif
