/* The parts of MPO: options, table and adder in mpo.c, its update in a file of its own. Its
 * policy is control_policy.c's. */
#ifndef TRP_AGENTS_MPO_H
#define TRP_AGENTS_MPO_H

#include <troupe/mpo.h>
#include "control_agent.h"

extern const trp_option_table mpo_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_mpo_options mpo_options(const trp_agent *agent);

/* Its networks and items, which borrow the options. */
struct control_agent mpo_parts(const trp_mpo_options *options);

TRP_MUST_USE trp_status mpo_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif
