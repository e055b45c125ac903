/* The parts of D4PG: options, table and adder in d4pg.c, its update in a file of its own. Its
 * policy is control_policy.c's. */
#ifndef TRP_AGENTS_D4PG_H
#define TRP_AGENTS_D4PG_H

#include <troupe/d4pg.h>
#include "control_agent.h"

extern const trp_option_table d4pg_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_d4pg_options d4pg_options(const trp_agent *agent);

/* Its networks and items, which borrow the options. */
struct control_agent d4pg_parts(const trp_d4pg_options *options);

TRP_MUST_USE trp_status d4pg_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                            const trp_updater_options *options, trp_updater **out);

#endif
