/* A plan on the host, from inside: the same for float and double, in elements of its backend. */
#ifndef TRP_NN_NET_H
#define TRP_NN_NET_H

#include <troupe/nn.h>

#include "backend.h"
#include "core/team.h"
#include "plan.h"

enum { BOUND_ARENA = UINT32_MAX };

/* Where columns of a buffer begin: in the arena, or in what the caller gave as `external`. */
struct bound {
    char *base;        /* arena; NULL: no columns */
    uint32_t external; /* index into struct pass; or BOUND_ARENA */
    size_t stride, row_bytes, column_bytes;
};

struct bound_op {
    struct bound a, b, to, kept;
    const struct linear_kernels *linear; /* NULL: it is none */
    const struct conv_kernels *conv;
};

/* What one thread of a plan has for itself. */
struct plan_part {
    uint32_t rows;          /* most of a call */
    char *arena;            /* the program's, for so many rows */
    struct bound_op *bound; /* [operations] */
    void *grads;            /* a flat gradient; NULL in part 0, which adds to the caller's */
    void *scratch;          /* the backend's */
    void *noisy;            /* weights with noise on them, and what becomes of a layer's gradient */
    void *noisy_grads;
    /* With recurrent layers and several threads: copies of what the caller gives (sequences.h). */
    void *external[EXTERNAL];
    uint8_t *resets;
};

struct host_net {
    trp_net base;
    const struct backend *backend;
    bool chooses;            /* who multiplies, layer by layer; else the backend does */
    bool bf16;               /* factors of products are rounded */
    uint32_t threads, share; /* parts, rows of one when all are there */
    size_t arena_bytes;
    void *arena;             /* everything below, one allocation */
    void *zeros;             /* gradients of outputs that a caller does not give */
    struct plan_part *parts; /* [threads] */
    struct team *team;       /* NULL with one thread */
    void *noise;             /* of noisy layers, in elements; its own allocation */
    bool has_noise;
};

/* A plan on a host whose layers are all this backend's, or, where it `chooses`, linear ones those
 * of whoever is faster. */
TRP_MUST_USE trp_status host_net_create(trp_net **out, const trp_net_options *options,
                                        const struct backend *backend, bool chooses);

static inline struct host_net *host_net(trp_net *net)
{
    return (struct host_net *)net;
}

/* Bytes of an element of a buffer. */
static inline size_t buffer_element(const struct host_net *net, const struct net_buffer *buffer)
{
    return buffer->element_bytes ? buffer->element_bytes : net->backend->element_bytes;
}

/* Rows of a batch: one part's share. */
struct rows {
    uint32_t from, to;
};

/* Of a pass's rows, or with recurrent layers of its sequences. */
struct rows net_part_rows(const struct host_net *net, uint32_t rows, uint32_t part);
void net_forward_part(struct host_net *net, const struct pass *pass, struct rows rows,
                      uint32_t part);
void net_backward_part(struct host_net *net, const struct pass *pass, struct rows rows,
                       uint32_t part);

/* Operation `index` for the rows of one part (op.c). */
void op_run(struct host_net *net, uint32_t index, const struct pass *pass, struct rows rows,
            uint32_t part);

/* Where the operation's operands are in a part. */
void op_bind(const struct host_net *net, const struct op *op, const struct plan_part *part,
             struct bound_op *bound);

/* Elements of scratch that an operation needs. */
size_t op_scratch(const struct host_net *net, const struct op *op);

#endif
