/* Targets over many steps: a loop over the sequences, each of which columns.h does. */
#include <troupe/returns.h>

#include "batch_sequences.h"

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
    for (uint32_t i = 0; i < trajectories->sequences; i++)
        gae_at(trajectories, lambda, advantages, returns, i);
}

void trp_vtrace(const trp_trajectories *trajectories, const trp_vtrace_options *options,
                const float *log_ratios, float *returns, float *advantages)
{
    trp_vtrace_options o = options ? *options : (trp_vtrace_options){0};
    for (uint32_t i = 0; i < trajectories->sequences; i++)
        vtrace_at(trajectories, &o, log_ratios, returns, advantages, i);
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
