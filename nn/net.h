/* A plan from inside: the same for float and double, in elements of its backend. */
#ifndef TRP_NN_NET_H
#define TRP_NN_NET_H

#include <troupe/nn.h>

#include "backend.h"
#include "shape.h"
#include "team.h"

/* What one thread of a plan has for itself. */
struct plan_part {
    void *grads;   /* a flat gradient; NULL in part 0, which adds to the caller's */
    void *scratch; /* the backend's */
};

/* Sums over the rows of one thread. */
struct q_sums {
    double loss, q;
};

struct trp_net {
    trp_net_spec spec;
    struct net_shape shape;
    const struct backend *backend;
    uint32_t batch, threads;
    size_t arena_bytes;
    void *arena;                    /* everything below, one allocation */
    void *slots[SLOTS_MAX];         /* activations [batch][stride]; NULL: the caller's */
    void *slot_grads[SLOTS_MAX];    /* the same for their gradients */
    size_t strides[SLOTS_MAX];      /* elements from row to row */
    float *q, *q_online, *q_target; /* [batch][outputs] of trp_q_step() */
    struct q_sums *q_sums;          /* [threads] */
    struct plan_part *parts;        /* [threads] */
    struct team *team;              /* NULL with one thread */
    uint32_t rows;                  /* of the last forward */
};

/* trp_net_create() with the backend given: tests pick it by hand. */
TRP_MUST_USE trp_status net_create(trp_net **out, const trp_net_options *options,
                                   const struct backend *backend);

/* The public functions for elements of any width. */
void net_forward(trp_net *net, const void *params, const void *in, uint32_t rows, void *out);
void net_backward(trp_net *net, const void *params, const void *in, const void *dout, void *grads,
                  trp_grads_ready ready, void *context);

/* One part's share of a pass: `in`, `out` and `dout` are those of the whole batch. */
struct rows {
    uint32_t from, to;
};

struct rows net_part_rows(const trp_net *net, uint32_t rows, uint32_t part);
void net_forward_part(trp_net *net, const void *params, const void *in, void *out, struct rows rows,
                      uint32_t part);
void net_backward_part(trp_net *net, const void *params, const void *in, const void *dout,
                       void *grads, struct rows rows, uint32_t part, trp_grads_ready ready,
                       void *context);

/* Adds what parts 1.. have computed for `rows` rows to `grads`, in order. */
void net_reduce(trp_net *net, uint32_t rows, void *grads, trp_grads_ready ready, void *context);

#endif
