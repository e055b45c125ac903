/* Parameters and the policy that is to act with them. A vector of numbers fits any network of its
 * size, so who knows what lies where says it: learner and policy, on every way between them. */
#include "params_use.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

trp_status params_check(const trp_params_state *state, const char *whose, const trp_policy *policy)
{
    if (policy->tensor_count == 0)
        return TRP_OK;
    if (state->count != policy->param_count)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s has %zu parameters, the policy's network has %zu", whose, state->count,
                        policy->param_count);
    if (!state->layout)
        return TRP_OK;
    char *mine = trp_net_layout(policy->tensors, policy->tensor_count, 0);
    trp_status status = trp_net_layout_compare(state->layout, whose, mine, "the policy's network");
    free(mine);
    return status;
}

trp_status trp_params_use(const trp_params_state *state, trp_policy *policy)
{
    char version[40];
    snprintf(version, sizeof version, "version %" PRIu64, state->version);
    TRP_TRY(params_check(state, version, policy));
    return policy->impl->load(policy, state->params, state->count);
}
