#include "control_agent.h"

trp_status control_agent_check(const struct control_agent *agent, const trp_env_spec *env)
{
    TRP_TRY(control_check(&agent->control, env));
    if (agent->critics.count > 0)
        TRP_TRY(critics_check(&agent->critics, env));
    return replayed_check(&agent->transitions.replayed, agent->control.who);
}
