/* The parts of IMPALA: tables and adder in impala.c, its update in files of their own. */
#ifndef TRP_AGENTS_IMPALA_H
#define TRP_AGENTS_IMPALA_H

#include <troupe/impala.h>
#include "unroll_loss.h"

#define IMPALA_TABLE "unrolls"

extern const trp_option_table impala_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_impala_options impala_options(const trp_agent *agent);

/* Its network and its items; refers to the options. */
struct unroll impala_unroll(const trp_impala_options *options);

/* What learns it. */
trp_optimizer impala_optimizer(const trp_impala_options *options);

/* ---- the loss ------------------------------------------------------------------------------ */

void impala_loss_on(trp_queue *queue, const struct impala_loss_arguments *job);

TRP_MUST_USE trp_status impala_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                              const trp_updater_options *options,
                                              trp_updater **out);

#endif
