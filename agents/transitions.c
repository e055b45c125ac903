#include "transitions.h"

#include <troupe/adder.h>

#include "torso.h"

trp_status transitions_tables(const struct transitions *transitions, const trp_env_spec *env,
                              const trp_columns *extras, trp_agent_table_list *list)
{
    trp_columns columns = {0};
    trp_nstep_columns(env, extras, &columns);
    trp_table_options table = replayed_table(&transitions->replayed, TRANSITIONS_TABLE);
    return trp_agent_table_list_add(list, &table, &columns);
}

trp_status transitions_adder(const struct transitions *transitions,
                             const trp_adder_options *options, trp_adder **out)
{
    trp_adder_options own = *options;
    own.table = TRANSITIONS_TABLE;
    trp_nstep_options nstep = {.n_step = transitions->n_step, .discount = transitions->discount};
    return trp_nstep_adder_create(out, &own, &nstep);
}

trp_batch_spec transitions_source(const struct transitions *transitions, const trp_env_spec *env,
                                  const trp_columns *extras, uint32_t batch_size)
{
    trp_batch_spec source = {
        .table = TRANSITIONS_TABLE,
        .batch_size = batch_size,
        .writes_priorities = transitions->replayed.priority_exponent > 0,
        .stacks = torso_stacks(env),
    };
    trp_nstep_columns(env, extras, &source.columns);
    return source;
}
