/* What an actor-critic learns from: items of so many steps of an actor, and one row more, which is
 * the first of the next item, too: it is only bootstrapped from. They go on with the next episode,
 * and lie in a queue from which each goes once. */
#ifndef TRP_AGENTS_UNROLL_H
#define TRP_AGENTS_UNROLL_H

#include <troupe/adder.h>
#include <troupe/updater.h>
#include "actor_critic.h"

struct unroll {
    struct actor_critic network; /* a recurrent one has the state before an item's first row */
    const char *table;
    uint32_t steps;                  /* of an item */
    uint32_t batch_size, queue_size; /* items */
};

/* INVALID_ARGUMENT: more steps than an update may have, or what of the environment does not fit. */
TRP_MUST_USE trp_status unroll_check(const struct unroll *unroll, const trp_env_spec *env);

/* The first of these, of another number of items. */
TRP_MUST_USE trp_status unroll_check_batch(const struct unroll *unroll, uint32_t batch_size);

/* Appends the columns of an item. */
void unroll_columns(const struct unroll *unroll, const trp_env_spec *env, trp_columns *columns);

TRP_MUST_USE trp_status unroll_tables(const struct unroll *unroll, const trp_env_spec *env,
                                      trp_agent_table_list *list);

TRP_MUST_USE trp_status unroll_adder(const struct unroll *unroll, const trp_adder_options *options,
                                     trp_adder **out);

#endif
