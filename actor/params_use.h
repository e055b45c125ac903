/* Whether parameters are those of a policy's network. */
#ifndef TRP_ACTOR_PARAMS_USE_H
#define TRP_ACTOR_PARAMS_USE_H

#include <troupe/params.h>

/* FAILED_PRECONDITION says what of `whose` ("version 7", a path) is not what the policy has. */
TRP_MUST_USE trp_status params_check(const trp_params_state *state, const char *whose,
                                     const trp_policy *policy);

/* The layout that was found to be a policy's: versions that have it are not looked at again, which
 * would take longer than a step of a small network. Zeroed; params_fit_cleanup() frees it. */
struct params_fit {
    char *layout;
};

/* trp_params_use() of one policy, again and again. */
TRP_MUST_USE trp_status params_fit_use(struct params_fit *fit, const trp_params_state *state,
                                       trp_policy *policy);
void params_fit_cleanup(struct params_fit *fit);

/* OUT_OF_RANGE says which number of `whose` is not finite and, where the state's layout or the
 * policy (NULL: none) tells what lies where, of which tensor. About as fast as a copy. */
TRP_MUST_USE trp_status params_check_finite(const trp_params_state *state, const char *whose,
                                            const trp_policy *policy);

#endif
