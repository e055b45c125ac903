/* The parts of IQL: options, table and adder in iql.c, its update in a file of its own. Its policy
 * is control_policy.c's. */
#ifndef TRP_AGENTS_IQL_H
#define TRP_AGENTS_IQL_H

#include <troupe/iql.h>
#include "offline.h"

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_iql_options iql_options(const trp_agent *agent);

/* Its networks and items, which borrow the options. */
struct control_agent iql_parts(const trp_iql_options *options);

TRP_MUST_USE trp_status iql_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif
