/* What kernels of phases (trp_phase_measure() and the others) are given, for those who have code of
 * their own for them, and what they share; in the part of C that is C++, too. Who compiles it for a
 * device defines PHASE. */
#ifndef TRP_NN_PHASE_H
#define TRP_NN_PHASE_H

#include <math.h>
#include <stdbool.h>

#include <troupe/optimizer.h>

#ifndef PHASE
#define PHASE static inline
#endif

struct phase_measure_arguments {
    const float *grads, *watched;
    trp_phases *phases;
    size_t count;
    bool leaves_out;
};

struct measure_range_arguments {
    float *grads; /* from the range's first on */
    const float *rows;
    trp_phase_part *part;
    size_t first, count;
    float batch_size;
};

struct measure_parts_arguments {
    const trp_phase_part *parts;
    const float *watched;
    trp_phases *phases;
    size_t part_count, count;
    bool leaves_out;
};

struct phase_step_arguments {
    trp_optimizer optimizer;
    float *params; /* all from the range's first on */
    const float *grads;
    float *state[TRP_OPTIMIZER_STATES_MAX];
    trp_phases *phases; /* a device sums LAMB's norms in its parts */
    size_t count;
};

struct phase_end_arguments {
    trp_phases *phases;
};

struct polyak_arguments {
    float *target;
    const float *params;
    size_t count;
    float rate;
};

/* A number that is not finite. */
struct odd {
    uint64_t place;
    float value;
};

/* The step is taken where it can be; `odd` is of the gradient. */
PHASE void decide(trp_phases *phases, bool finite, bool leaves_out, struct odd odd)
{
    if (!finite && leaves_out)
        phases->left_out++;
    else if (!finite && !phases->refused) {
        phases->refused = true;
        phases->place = odd.place;
        phases->value = odd.value;
    }
    phases->skipped = !finite || phases->refused;
}

#endif
