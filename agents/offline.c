#include "offline.h"

struct control_agent offline_parts(const struct offline *offline)
{
    struct torso_hidden hidden = {.hidden = offline->hidden, .activation = offline->activation};
    return (struct control_agent){.control = {.who = offline->who,
                                              .kind = CONTROL_GAUSSIAN,
                                              .hidden = hidden,
                                              .precision = offline->precision},
                                  .critics = {.who = offline->who,
                                              .count = offline->critics,
                                              .outputs = 1,
                                              .hidden = hidden,
                                              .precision = offline->precision},
                                  .transitions = {.n_step = 1,
                                                  .discount = offline->discount,
                                                  .replayed = {.size = 1000000, .min_size = 1}}};
}

trp_status offline_check(const struct offline *offline, const trp_env_spec *env)
{
    struct control_agent parts = offline_parts(offline);
    TRP_TRY(control_check(&parts.control, env));
    return offline->critics > 0 ? critics_check(&parts.critics, env) : TRP_OK;
}

trp_status offline_tables(const struct offline *offline, const trp_env_spec *env,
                          trp_agent_table_list *list)
{
    struct control_agent parts = offline_parts(offline);
    return transitions_tables(&parts.transitions, env, NULL, list);
}

trp_status offline_policy(const struct offline *offline, const trp_env_spec *env,
                          const trp_policy_options *place, trp_policy **out)
{
    struct control_agent parts = offline_parts(offline);
    return control_policy_create(&parts.control, env, place, out);
}

trp_status offline_adder(const struct offline *offline, const trp_adder_options *options,
                         trp_adder **out)
{
    struct control_agent parts = offline_parts(offline);
    return transitions_adder(&parts.transitions, options, out);
}
