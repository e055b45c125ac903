/* Targets over many steps: n-step and lambda returns, advantages, V-trace, Retrace. Pure functions
 * on arrays of what was seen and what a network says of it; they are constants of the losses that
 * use them. Nothing is allocated; what is not finite in what a target depends on makes it so.
 *
 *     // Advantages and returns of sequences of 21 rows, as the sequence adder makes them.
 *     static void targets(const float *rewards, const float *discounts, const float *values,
 *                         const bool *valid, float *advantages, float *returns)
 *     {
 *         trp_trajectories items = {.steps = 21, .sequences = 16, .by_sequence = true,
 *                                   .rewards = rewards, .discounts = discounts,
 *                                   .values = values, .valid = valid};
 *         trp_gae(&items, 0.95F, advantages, returns);
 *     }
 */
#ifndef TRP_RETURNS_H
#define TRP_RETURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

/* Steps of several sequences; everything is borrowed. Arrays are [steps][sequences], as recurrent
 * networks have them, or with by_sequence [sequences][steps], as batches of items have them.
 *
 * A return ends, and is bootstrapped with the value of the state that it led to, where the episode
 * was cut short, where the sequence ends, and where rows that are no steps begin. That value is the
 * next row's (the sequence adder writes the final observation there, which is not valid), and the
 * last row of a sequence is then only bootstrapped from. Or it comes from next_values, for rollouts
 * that have no row of it: then every row is a step.
 *
 * A row that is no step has its own value as its return and an advantage of 0. */
typedef struct {
    uint32_t steps, sequences;
    bool by_sequence;
    const float *rewards;     /* of the action at the step */
    const float *discounts;   /* gamma times the environment's: 0 where the episode terminated */
    const float *values;      /* V(s) of the step's state */
    const float *next_values; /* V(s) of the state that the step led to; NULL: as above */
    const bool *valid;        /* a step was taken; NULL: in every row */
    const bool *first;        /* an episode begins: no return comes from before; NULL: nowhere */
} trp_trajectories;

/* The sum of n discounted rewards, and then the value (Sutton and Barto 2018, chapter 7). `returns`
 * may be trajectories->values where these are the only ones. */
TRP_API void trp_n_step_returns(const trp_trajectories *trajectories, uint32_t n, float *returns);

/* G_t = r_t + d_t ((1 - lambda) V_t+1 + lambda G_t+1) (Sutton and Barto 2018, chapter 12: the
 * lambda-return, by its recursion). */
TRP_API void trp_lambda_returns(const trp_trajectories *trajectories, float lambda, float *returns);

/* The sum over k of (discount lambda)^k times the error of value k steps on (Schulman et al. 2016,
 * "High-Dimensional Continuous Control Using Generalized Advantage Estimation"). `returns`,
 * advantages + values, are those of lambda; NULL: not wanted. */
TRP_API void trp_gae(const trp_trajectories *trajectories, float lambda, float *advantages,
                     float *returns);

typedef struct {
    float rho_bar;        /* 0: 1; what the targets' fixed point depends on */
    float c_bar;          /* 0: 1; how far back errors reach */
    float policy_rho_bar; /* 0: 1; of the weight in the advantages */
    float lambda;         /* 0: 1; multiplies c */
} trp_vtrace_options;

/* V-trace (Espeholt et al. 2018, "IMPALA": the n-step V-trace target, c with a lambda as in
 * Retrace): `returns` are v_s, and `advantages` min(policy_rho_bar, ratio) (r + d v_s+1 - V), which
 * is what its policy gradient is weighted by. log_ratios: log of the policy's probability of the
 * action taken, less that of the policy that took it. `options` may be NULL. */
TRP_API void trp_vtrace(const trp_trajectories *trajectories, const trp_vtrace_options *options,
                        const float *log_ratios, float *returns, float *advantages);

/* Retrace (Munos et al. 2016, "Safe and Efficient Off-Policy Reinforcement Learning") for values of
 * actions: `chosen` is Q of the action taken, trajectories->values the expectation of Q(s, .) under
 * the policy, and c = lambda min(1, ratio). Without log_ratios (NULL) c = lambda: Q(lambda)
 * (Harutyunyan et al. 2016). */
TRP_API void trp_retrace(const trp_trajectories *trajectories, float lambda, const float *chosen,
                         const float *log_ratios, float *returns);

TRP_END_DECLS
#endif
