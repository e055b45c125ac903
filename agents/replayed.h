/* What agents that learn from a replay table share: how large it is before they begin, how often an
 * item is drawn, and what prioritized draws weigh. */
#ifndef TRP_AGENTS_REPLAYED_H
#define TRP_AGENTS_REPLAYED_H

#include <troupe/agent.h>
#include <troupe/updater.h>

struct replayed {
    int64_t size, min_size; /* items */
    float samples_per_insert, insert_tolerance;
    float priority_exponent; /* 0: uniform */
};

/* INVALID_ARGUMENT: it could never begin. `who` ("dqn") begins the message. */
TRP_MUST_USE trp_status replayed_check(const struct replayed *replayed, const char *who);

/* The table without its signature. */
trp_table_options replayed_table(const struct replayed *replayed, const char *name);

/* Importance weights of the rows of source 0, (N P_i)^-beta over the largest of the batches of
 * all learners, so that they only scale updates down (Schaul et al. 2016, section 3.4): put into
 * `weights`, which is to be left alone until the step was collected, and from there into `device`,
 * which is *out. NULL when every weight is 1: a beta of 0, or uniform draws. Fails as
 * trp_update_max(). */
TRP_MUST_USE trp_status replayed_weights(const trp_update *update, double beta, float *weights,
                                         float *device, const float **out);

#endif
