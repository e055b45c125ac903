/* Networks that say continuous actions, and the policies that act by them. Shared by all agents of
 * continuous actions: what of a network is a policy's is the vector "params", which actors pull;
 * critics are another one (critics.h). Actions of networks are in [-1, 1], see box.h. */
#ifndef TRP_AGENTS_CONTROL_H
#define TRP_AGENTS_CONTROL_H

#include <troupe/agent.h>
#include <troupe/distributions.h>
#include "bodies/draws.h"
#include "torso.h"

struct control {
    const char *who; /* "td3": begins messages */
    enum control_kind kind;
    struct torso_hidden hidden;
    float head_variance; /* of the outputs' weights at the beginning, times their inputs; biases are
                            0 then. 0: as other layers */
    trp_precision precision;
    bool normalize_states; /* by normalizer.h */
    float noise; /* of deterministic ones: the deviation of what is added to an action by who
                    explores, in halves of the distance between its bounds */
    int64_t random_steps; /* of all actors together, in which those that explore draw any action
                              between the bounds */
};

/* INVALID_ARGUMENT: actions are no box (box_check()), or it observes no row of numbers. */
TRP_MUST_USE trp_status control_check(const struct control *control, const trp_env_spec *env);

trp_net_spec control_spec(const struct control *control, const trp_env_spec *env);

TRP_MUST_USE trp_status control_policy_create(const struct control *control,
                                              const trp_env_spec *env,
                                              const trp_policy_options *place, trp_policy **out);

#endif
