/* Sequences of a pass with recurrent layers, of which each part of a plan takes some through all
 * steps. Rows are [steps][sequences], so a part's lie apart in the caller's memory: it works on
 * copies of its own, in the same order. */
#ifndef TRP_NN_SEQUENCES_H
#define TRP_NN_SEQUENCES_H

#include "net.h"

/* The pass of a part that takes `share` of all sequences, on its copies; inputs, resets and
 * gradients of outputs are copied into them, or with `backward` only what its forward has not. */
struct pass sequences_take(const struct host_net *net, const struct pass *pass, uint32_t sequences,
                           struct rows share, uint32_t part, bool backward);

/* Copies a part's outputs, or with `backward` its gradients of inputs, to the caller. */
void sequences_give(const struct host_net *net, const struct pass *pass, uint32_t sequences,
                    struct rows share, uint32_t part, bool backward);

#endif
