/* A plan from inside: the same for float and double, in elements of its backend. */
#ifndef TRP_NN_NET_H
#define TRP_NN_NET_H

#include <troupe/nn.h>

#include "backend.h"
#include "program.h"
#include "team.h"

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
};

/* What one thread of a plan has for itself. */
struct plan_part {
    char *arena;            /* the program's, for this part's share of the rows */
    struct bound_op *bound; /* [operations] */
    void *grads;            /* a flat gradient; NULL in part 0, which adds to the caller's */
    void *scratch;          /* the backend's */
    void *noisy;            /* weights with noise on them, and what becomes of a layer's gradient */
    void *noisy_grads;
};

struct trp_net {
    struct program program;
    const struct backend *backend;
    bool chooses;                   /* who multiplies, layer by layer; else the backend does */
    uint32_t batch, threads, share; /* most rows: of a call, of a part */
    size_t arena_bytes;
    void *arena;             /* everything below, one allocation */
    void *zeros;             /* gradients of outputs that a caller does not give */
    struct plan_part *parts; /* [threads] */
    struct team *team;       /* NULL with one thread */
    uint32_t rows;           /* of the last forward */
    void *noise;             /* of noisy layers; its own allocation */
    bool has_noise;
};

/* trp_net_create() with the backend given, for linear layers too: tests pick it by hand. */
TRP_MUST_USE trp_status net_create(trp_net **out, const trp_net_options *options,
                                   const struct backend *backend);

enum {
    EXTERNAL_EACH =
        TRP_NET_INPUTS_MAX > TRP_NET_OUTPUTS_MAX ? TRP_NET_INPUTS_MAX : TRP_NET_OUTPUTS_MAX,
    EXTERNAL = (PLACES - 1) * EXTERNAL_EACH,
};

static inline uint32_t external_index(enum place place, uint32_t index)
{
    return (uint32_t)(place - 1) * EXTERNAL_EACH + index; /* the arena is not external */
}

/* What a pass works on: everything is of the whole batch, in the backend's elements. */
struct pass {
    const void *params;
    void *grads;              /* NULL: not wanted */
    bool wants_inputs;        /* gradients of any */
    void *external[EXTERNAL]; /* NULL: there is none */
    uint32_t steps;           /* of recurrent layers; rows are [steps][rows / steps] */
    const uint8_t *resets;
    const void *state, *end_state_grad; /* NULL: zeros */
    void *end_state, *state_grad;       /* NULL: not wanted */
    trp_grads_ready ready;
    void *context;
};

/* Rows of a batch: one part's share. */
struct rows {
    uint32_t from, to;
};

struct rows net_part_rows(const trp_net *net, uint32_t rows, uint32_t part);
void net_forward_part(trp_net *net, const struct pass *pass, struct rows rows, uint32_t part);
void net_backward_part(trp_net *net, const struct pass *pass, struct rows rows, uint32_t part);

/* Adds what parts 1.. have computed for `rows` rows to the gradient, in order. */
void net_reduce(trp_net *net, uint32_t rows, const struct pass *pass);

/* The public functions for elements of any width. */
void net_forward(trp_net *net, const struct pass *pass, uint32_t rows);
void net_backward(trp_net *net, const struct pass *pass);

/* Operation `index` for the rows of one part (op.c). */
void op_run(trp_net *net, uint32_t index, const struct pass *pass, struct rows rows, uint32_t part);

/* Where the operation's operands are, in a part with this arena. */
void op_bind(const trp_net *net, const struct op *op, char *arena, struct bound_op *bound);

/* Elements of scratch that an operation needs. */
size_t op_scratch(const trp_net *net, const struct op *op);

#endif
