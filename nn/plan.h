/* A plan as its device sees it: a program, and passes through it. */
#ifndef TRP_NN_PLAN_H
#define TRP_NN_PLAN_H

#include <troupe/nn.h>

#include "program.h"

enum {
    EXTERNAL_EACH =
        TRP_NET_INPUTS_MAX > TRP_NET_OUTPUTS_MAX ? TRP_NET_INPUTS_MAX : TRP_NET_OUTPUTS_MAX,
    EXTERNAL = (PLACES - 1) * EXTERNAL_EACH,
};

static inline uint32_t external_index(enum place place, uint32_t index)
{
    return (uint32_t)(place - 1) * EXTERNAL_EACH + index; /* the arena is not external */
}

/* What a pass works on: everything is of the whole batch, in the plan's elements and in its
 * device's memory. */
struct pass {
    const void *params;
    void *grads;              /* NULL: not wanted */
    bool wants_inputs;        /* gradients of any */
    void *external[EXTERNAL]; /* NULL: there is none, or of an output's gradient: zeros */
    uint32_t steps;           /* of recurrent layers; rows are [steps][rows / steps] */
    const uint8_t *resets;
    const void *state, *end_state_grad; /* NULL: zeros */
    void *end_state, *state_grad;       /* NULL: not wanted */
    trp_grads_ready ready;
    void *context;
};

/* A pass is put on `queue`, which is of the plan's device and may be NULL on a host's. It copies
 * `pass`; backward calls `ready` before it returns. */
struct plan_impl {
    void (*forward)(trp_net *net, trp_queue *queue, const struct pass *pass, uint32_t rows);
    void (*backward)(trp_net *net, trp_queue *queue, const struct pass *pass, uint32_t rows);
    /* program.graph.noise_count numbers, copied; NULL: no noise. */
    void (*noise)(trp_net *net, trp_queue *queue, const double *noise);
    void (*destroy)(trp_net *net);
};

/* The first member of every plan. */
struct trp_net {
    const struct plan_impl *impl;
    struct program program;
    uint32_t batch, rows; /* the most of a call; of the last forward */
    double *noise;        /* what is drawn, before it is the device's */
};

/* Builds the program; net_cleanup() frees it, also after a failure. */
TRP_MUST_USE trp_status net_init(trp_net *net, const struct plan_impl *impl,
                                 const trp_net_options *options);
void net_cleanup(trp_net *net);

#endif
