/* The rows of an actor's copies: a buffer for each thing that a vector step reads or writes, and
 * the step itself, policy then environment. For the environment loop and for evaluation. */
#ifndef TRP_ACTOR_COPIES_H
#define TRP_ACTOR_COPIES_H

#include <troupe/adder.h>
#include <troupe/env.h>
#include <troupe/policy.h>

struct copies {
    trp_env *env;       /* borrowed */
    trp_policy *policy; /* borrowed */
    uint32_t count;
    size_t observation_count, action_bytes, choices; /* choices: 0 where nothing is masked */
    size_t observation_bytes[TRP_OBSERVATIONS_MAX];
    void *observations[TRP_OBSERVATIONS_MAX]; /* what to act on next */
    void *finals[TRP_OBSERVATIONS_MAX];       /* of copies whose episode just ended */
    uint8_t *actions, *last_actions;
    float *rewards, *discounts;
    bool *mask, *final_mask; /* what each may do next, and could at its final observation: a flag
                                per choice; NULL: everything */
    bool *terminated, *truncated;
    bool *first;             /* an episode begins with these observations */
    uint32_t *slots;         /* the copy's own number */
    size_t *extra_bytes;     /* policy->extras.count */
    void **extras;           /* as many */
    const void **row_extras; /* as many: of one copy */
};

void copies_prepare(struct copies *copies, trp_env *env, trp_policy *policy);
void copies_cleanup(struct copies *copies); /* a zeroed struct is fine */

/* Starts an episode in every copy. */
TRP_MUST_USE trp_status copies_reset(struct copies *copies);

/* Acts on every copy and steps it: actions, rewards, terminated, truncated, extras and finals are
 * of this step then, observations and first what the next one begins with. */
TRP_MUST_USE trp_status copies_step(struct copies *copies, uint64_t steps, trp_rng *rng);

/* The observations of one copy, in `row`. */
void copies_observations(const struct copies *copies, uint32_t copy,
                         const void *row[TRP_OBSERVATIONS_MAX]);

/* What the last step did to one copy. Its next observations are in `next`; what it points to is
 * valid until the next call. */
trp_transition copies_transition(const struct copies *copies, uint32_t copy, uint64_t version,
                                 const void *next[TRP_OBSERVATIONS_MAX]);

#endif
