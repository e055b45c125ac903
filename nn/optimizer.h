/* An optimizer's step on the kernels of a backend. */
#ifndef TRP_NN_OPTIMIZER_H
#define TRP_NN_OPTIMIZER_H

#include <troupe/optimizer.h>

#include "steps.h"

/* Where the step goes, in elements of `kernels`. */
struct optimizer_range {
    void *params;
    const void *grads;
    void *state[TRP_OPTIMIZER_STATES_MAX];
    size_t count;
    double scale; /* of gradients */
};

/* trp_optimizer_step() of a whole range. */
void optimizer_run(const struct step_kernels *kernels, const trp_optimizer *optimizer,
                   uint64_t step, const struct optimizer_range *range);

#endif
