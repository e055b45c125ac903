/* The parts of A3C: tables and adder in a3c.c, its update in files of their own. */
#ifndef TRP_AGENTS_A3C_H
#define TRP_AGENTS_A3C_H

#include <troupe/a3c.h>
#include "unroll_loss.h"

#define A3C_TABLE "rollouts"

extern const trp_option_table a3c_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_a3c_options a3c_options(const trp_agent *agent);

/* Its network and its items; refers to the options. */
struct unroll a3c_unroll(const trp_a3c_options *options);

/* What learns it. */
trp_optimizer a3c_optimizer(const trp_a3c_options *options);

/* ---- the loss ------------------------------------------------------------------------------ */

/* On a queue. */
void a3c_loss_on(trp_queue *queue, const struct unroll_loss *loss);

TRP_MUST_USE trp_status a3c_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif
