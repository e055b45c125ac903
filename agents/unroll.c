#include "unroll.h"

#include <inttypes.h>

#include "limits.h"

trp_status unroll_check_batch(const struct unroll *unroll, uint32_t batch_size)
{
    if ((uint64_t)unroll->steps * batch_size <= UPDATE_ROWS_MAX)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s: unroll %" PRIu32 " times batch_size %" PRIu32
                    " are more steps than %d, which an update may have",
                    unroll->network.who, unroll->steps, batch_size, UPDATE_ROWS_MAX);
}

trp_status unroll_check(const struct unroll *unroll, const trp_env_spec *env)
{
    const struct actor_critic *network = &unroll->network;
    TRP_TRY(unroll_check_batch(unroll, unroll->batch_size));
    TRP_TRY(actor_critic_check(network, env));
    if (network->separate && network->core)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: separate layers need a core of none: policy and value both read what "
                        "it says",
                        network->who);
    return TRP_OK;
}

void unroll_rate_set(const struct unroll_rate *rate, trp_optimizer *optimizer)
{
    if (rate->steps == 0)
        return;
    optimizer->schedule = rate->schedule;
    optimizer->final_rate = (double)rate->final;
    optimizer->schedule_steps = rate->steps;
}

trp_status unroll_rate_check(const struct unroll_rate *rate, const char *who)
{
    if (rate->steps > 0)
        return TRP_OK;
    if (rate->final > 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: final_learning_rate is %g, needs schedule_steps: within how many the "
                        "rate goes there",
                        who, (double)rate->final);
    if (rate->schedule == TRP_RATE_COSINE)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: rate_schedule is cosine, needs schedule_steps: how long it is", who);
    return TRP_OK;
}

static trp_sequence_options unroll_sequence(const struct unroll *unroll)
{
    static const char *const core[] = {AC_CORE, NULL};
    return (trp_sequence_options){.length = unroll->steps + 1,
                                  .period = unroll->steps,
                                  .end = TRP_END_CONTINUE,
                                  .first_extras = unroll->network.core ? core : NULL};
}

void unroll_columns(const struct unroll *unroll, const trp_env_spec *env, trp_columns *columns)
{
    trp_sequence_options sequence = unroll_sequence(unroll);
    trp_columns extras = {0};
    actor_critic_extras(&unroll->network, env, &extras);
    trp_sequence_columns(env, &extras, &sequence, columns);
    trp_columns_cleanup(&extras);
}

trp_status unroll_tables(const struct unroll *unroll, const trp_env_spec *env,
                         trp_agent_table_list *list)
{
    trp_columns columns = {0};
    unroll_columns(unroll, env, &columns);
    trp_table_options table = {.name = unroll->table,
                               .sampler = {.kind = TRP_FIFO},
                               .max_times_sampled = 1,
                               .limiter = trp_limiter_queue(unroll->queue_size)};
    return trp_agent_table_list_add(list, &table, &columns);
}

trp_status unroll_adder(const struct unroll *unroll, const trp_adder_options *options,
                        trp_adder **out)
{
    trp_sequence_options sequence = unroll_sequence(unroll);
    trp_adder_options own = *options;
    uint32_t copies = options->copies ? options->copies : 1;
    own.table = unroll->table;
    if (own.max_in_flight == 0)
        own.max_in_flight = UNROLLS_IN_FLIGHT_PER_COPY * copies;
    TRP_TRY(trp_sequence_adder_create(out, &own, &sequence));
    (*out)->pull_every_steps = (uint64_t)unroll->steps * copies;
    return TRP_OK;
}
