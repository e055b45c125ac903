/* The parts of TD3: options, table and adder in td3.c, its update in a file of its own. Its policy
 * is control_policy.c's. */
#ifndef TRP_AGENTS_TD3_H
#define TRP_AGENTS_TD3_H

#include <troupe/td3.h>
#include "control_agent.h"

extern const trp_option_table td3_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_td3_options td3_options(const trp_agent *agent);

/* Its networks and items, which borrow the options. */
struct control_agent td3_parts(const trp_td3_options *options);

TRP_MUST_USE trp_status td3_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif
