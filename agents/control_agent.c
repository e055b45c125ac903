#include "control_agent.h"

#include <inttypes.h>

#include "limits.h"

trp_status control_agent_check(const struct control_agent *agent, const trp_env_spec *env)
{
    TRP_TRY(control_check(&agent->control, env));
    if (agent->critics.count > 0)
        TRP_TRY(critics_check(&agent->critics, env));
    return replayed_check(&agent->transitions.replayed, agent->control.who);
}

trp_status control_agent_check_rows(const char *who, uint32_t batch_size, uint32_t samples)
{
    if ((uint64_t)batch_size * samples <= UPDATE_ROWS_MAX)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s: batch_size %" PRIu32 " times %" PRIu32
                    " actions at each state are more rows than %d, which an update may have",
                    who, batch_size, samples, UPDATE_ROWS_MAX);
}
