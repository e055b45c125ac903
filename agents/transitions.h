/* Transitions of n steps in a replay table: what agents that learn from them say of their table,
 * adder and batches. Shared by all of these. */
#ifndef TRP_AGENTS_TRANSITIONS_H
#define TRP_AGENTS_TRANSITIONS_H

#include "replayed.h"

#define TRANSITIONS_TABLE "transitions"

struct transitions {
    uint32_t n_step;
    float discount;
    struct replayed replayed;
};

/* `extras` are the policy's; NULL: none. */
TRP_MUST_USE trp_status transitions_tables(const struct transitions *transitions,
                                           const trp_env_spec *env, const trp_columns *extras,
                                           trp_agent_table_list *list);

TRP_MUST_USE trp_status transitions_adder(const struct transitions *transitions,
                                          const trp_adder_options *options, trp_adder **out);

/* Of an updater; it has priorities where the table has. */
trp_batch_spec transitions_source(const struct transitions *transitions, const trp_env_spec *env,
                                  const trp_columns *extras, uint32_t batch_size);

#endif
