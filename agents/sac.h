/* The parts of SAC: options, table and adder in sac.c, its update in a file of its own. Its policy
 * is control_policy.c's. */
#ifndef TRP_AGENTS_SAC_H
#define TRP_AGENTS_SAC_H

#include <troupe/sac.h>
#include "control_agent.h"

extern const trp_option_table sac_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_sac_options sac_options(const trp_agent *agent);

/* Its networks and items, which borrow the options. */
struct control_agent sac_parts(const trp_sac_options *options);

/* Actions that its critics are asked of at each state. */
uint32_t sac_samples(const trp_sac_options *options);

TRP_MUST_USE trp_status sac_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif
