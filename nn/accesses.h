/* What operations of a program read and write. Whoever runs them in another order than the list's,
 * or several at once, keeps those that conflict in the list's order. A plan's scratch carries
 * nothing from one operation to the next and is not named: who runs several at once has several;
 * nor is what is constant during a pass, such as noise and resets. */
#ifndef TRP_NN_ACCESSES_H
#define TRP_NN_ACCESSES_H

#include "program.h"

enum access_place {
    ACCESS_COLUMNS, /* `span`, of all rows */
    ACCESS_PARAMS,  /* [lo, hi) of the flat vector */
    ACCESS_GRADS,   /* the same of its gradient */
    ACCESS_NOISY,   /* weights with noise on them, which a layer's forward leaves to its backward:
                       [lo, hi) are numbers of layers */
    ACCESS_STATE,   /* columns [lo, hi) of the state at the beginning and, perhaps the same
                       memory, at the end */
    ACCESS_STATE_GRAD, /* of the gradients of both */
};

struct access {
    enum access_place place;
    bool reads, writes;
    struct span span;
    size_t lo, hi;
};

enum { OP_ACCESSES_MAX = 4 + 2 * LAYER_TENSORS_MAX + 2 };

/* Returns how many there are. What a pass does not want (gradients) is among them. */
size_t op_accesses(const struct program *program, const struct op *op,
                   struct access accesses[OP_ACCESSES_MAX]);

/* Whether they meet, one of them writing. Buffers of the arena meet where their places do. */
bool ops_conflict(const struct program *program, const struct op *a, const struct op *b);

#endif
