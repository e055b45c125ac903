/* Targets over many steps: a loop over the sequences, each of which columns.h does. */
#include <troupe/returns.h>

#include <assert.h>

#include "trajectories.h"

void trp_n_step_returns(const trp_trajectories *trajectories, uint32_t n, float *returns)
{
    assert(n > 0);
    for (uint32_t i = 0; i < trajectories->sequences; i++) {
        size_t at = sequence_at(trajectories, i);
        struct column_f32 column = column_at(trajectories, at);
        n_step_column_f32(&column, n, returns + at);
    }
}

void trp_lambda_returns(const trp_trajectories *trajectories, float lambda, float *returns)
{
    for (uint32_t i = 0; i < trajectories->sequences; i++) {
        size_t at = sequence_at(trajectories, i);
        struct column_f32 column = column_at(trajectories, at);
        lambda_column_f32(&column, lambda, returns + at);
    }
}

void trp_gae(const trp_trajectories *trajectories, float lambda, float *advantages, float *returns)
{
    for (uint32_t i = 0; i < trajectories->sequences; i++) {
        size_t at = sequence_at(trajectories, i);
        struct column_f32 column = column_at(trajectories, at);
        gae_column_f32(&column, lambda, advantages + at);
    }
    size_t count = (size_t)trajectories->steps * trajectories->sequences;
    for (size_t i = 0; returns && i < count; i++)
        returns[i] = advantages[i] + trajectories->values[i];
}

static float or_one(float value)
{
    return value > 0 ? value : 1;
}

void trp_vtrace(const trp_trajectories *trajectories, const trp_vtrace_options *options,
                const float *log_ratios, float *returns, float *advantages)
{
    trp_vtrace_options o = options ? *options : (trp_vtrace_options){0};
    struct vtrace_bars_f32 bars = {.rho = or_one(o.rho_bar),
                                   .trace = or_one(o.c_bar),
                                   .policy_rho = or_one(o.policy_rho_bar),
                                   .lambda = or_one(o.lambda)};
    for (uint32_t i = 0; i < trajectories->sequences; i++) {
        size_t at = sequence_at(trajectories, i);
        struct column_f32 column = column_at(trajectories, at);
        vtrace_column_f32(&column, &bars, log_ratios + at, returns + at, advantages + at);
    }
}

void trp_retrace(const trp_trajectories *trajectories, float lambda, const float *chosen,
                 const float *log_ratios, float *returns)
{
    for (uint32_t i = 0; i < trajectories->sequences; i++) {
        size_t at = sequence_at(trajectories, i);
        struct column_f32 column = column_at(trajectories, at);
        retrace_column_f32(&column, lambda, chosen + at, log_ratios ? log_ratios + at : NULL,
                           returns + at);
    }
}
