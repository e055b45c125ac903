/* What a policy with a recurrent core remembers of each of its slots (policy.h). */
#ifndef TRP_AGENTS_CORE_SLOTS_H
#define TRP_AGENTS_CORE_SLOTS_H

#include <troupe/policy.h>

struct core_slots {
    size_t width;  /* of a state; 0: there is no core, and nothing below does anything */
    float *slots;  /* [slots][width] */
    float *states; /* [rows][width], of a call */
};

void core_slots_create(struct core_slots *core, size_t slots, size_t rows, size_t width);
void core_slots_cleanup(struct core_slots *core);

/* Puts what the rows of a call remember into `states`: nothing, zeros, where an episode begins. */
void core_slots_recall(struct core_slots *core, const trp_act *act);

/* Keeps `states` for the rows' next call. */
void core_slots_keep(struct core_slots *core, const trp_act *act);

#endif
