/* Whether parameters are those of a policy's network. */
#ifndef TRP_ACTOR_PARAMS_USE_H
#define TRP_ACTOR_PARAMS_USE_H

#include <troupe/params.h>

/* FAILED_PRECONDITION says what of `whose` ("version 7", a path) is not what the policy has. */
TRP_MUST_USE trp_status params_check(const trp_params_state *state, const char *whose,
                                     const trp_policy *policy);

/* OUT_OF_RANGE says which number of `whose` is not finite and, where the state's layout or the
 * policy (NULL: none) tells what lies where, of which tensor. About as fast as a copy. */
TRP_MUST_USE trp_status params_check_finite(const trp_params_state *state, const char *whose,
                                            const trp_policy *policy);

#endif
