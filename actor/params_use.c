/* Parameters and the policy that is to act with them. A vector of numbers fits any network of its
 * size, so who knows what lies where says it: learner and policy, on every way between them. */
#include "params_use.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/finite.h"

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

/* The place of the first number that is not finite; `count`: all are. */
static size_t find_not_finite(const float *params, size_t count)
{
    enum { BLOCK = 4096 };
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t end = count - first < BLOCK ? count : first + BLOCK;
        bool finite = floats_are_finite(params + first, end - first);
        for (size_t i = first; !finite && i < end; i++)
            if (!isfinite(params[i]))
                return i;
    }
    return count;
}

/* What of a layout begins last before `place`; "": it does not say. */
static void name_place(const char *layout, size_t place, char *text, size_t size)
{
    size_t nearest = 0;
    text[0] = '\0';
    for (const char *line = layout; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char name[128], shape[128];
        size_t first;
        if (sscanf(line, "%127s %127s at %zu", name, shape, &first) != 3 || first > place ||
            first < nearest)
            continue;
        nearest = first;
        snprintf(text, size, ", in %s %s, which begins at number %zu", name, shape, first);
    }
}

trp_status params_check_finite(const trp_params_state *state, const char *whose,
                               const trp_policy *policy)
{
    size_t place = find_not_finite(state->params, state->count);
    if (place == state->count)
        return TRP_OK;
    char where[384], *own = NULL;
    if (!state->layout && policy)
        own = trp_net_layout(policy->tensors, policy->tensor_count, 0);
    const char *layout = own ? own : state->layout;
    name_place(layout ? layout : "", place, where, sizeof where);
    free(own);
    return trp_fail(TRP_OUT_OF_RANGE, "%s: number %zu of the parameters is %g%s", whose, place,
                    (double)state->params[place], where);
}

static bool fit_holds(const struct params_fit *fit, const trp_params_state *state,
                      const trp_policy *policy)
{
    return fit->layout && state->layout && state->count == policy->param_count &&
           strcmp(fit->layout, state->layout) == 0;
}

static trp_status fit_check(struct params_fit *fit, const trp_params_state *state,
                            const trp_policy *policy)
{
    char version[40];
    snprintf(version, sizeof version, "version %" PRIu64, state->version);
    TRP_TRY(params_check(state, version, policy));
    free(fit->layout);
    fit->layout = state->layout && policy->tensor_count > 0 ? xstrdup(state->layout) : NULL;
    return TRP_OK;
}

trp_status params_fit_use(struct params_fit *fit, const trp_params_state *state, trp_policy *policy)
{
    if (!fit_holds(fit, state, policy))
        TRP_TRY(fit_check(fit, state, policy));
    return policy->impl->load(policy, state->params, state->count);
}

void params_fit_cleanup(struct params_fit *fit)
{
    free(fit->layout);
}

trp_status trp_params_use(const trp_params_state *state, trp_policy *policy)
{
    struct params_fit fit = {0};
    trp_status status = params_fit_use(&fit, state, policy);
    params_fit_cleanup(&fit);
    return status;
}
