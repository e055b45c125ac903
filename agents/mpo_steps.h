/* MPO's two steps on a queue: what actions of the target policy weigh, and what the policy learns
 * of them. */
#ifndef TRP_AGENTS_MPO_STEPS_H
#define TRP_AGENTS_MPO_STEPS_H

#include <stdbool.h>

#include "critic_loss.h"
#include "room.h"

/* What a step leaves to be reported. */
struct mpo_numbers {
    struct critic_numbers critics;
    float policy_loss, temperature_loss;
    float temperature;
    float mean_divergence, deviation_divergence; /* sums over the numbers of an action */
};

struct mpo_steps {
    /* Filled in by whoever creates it: */
    uint32_t samples, size; /* size: numbers of an action */
    bool joint, penalty;
    float epsilon, epsilon_penalty, epsilon_mean, epsilon_deviation;
    /* The device's, of a room: */
    uint32_t rows;                       /* of the batch at hand */
    float *target_mean, *target_log_std; /* [rows][size]: what the policies say */
    float *mean, *log_std;
    float *dmean, *dlog_std; /* their gradients */
    float *actions, *cut;    /* [rows][samples][size]: of the target policy; within [-1, 1] */
    float *values;           /* [rows][samples]: of the target critic; weights afterwards */
    float *next_values;      /* [rows]: their means */
    struct mpo_numbers *numbers;
    /* Its own: */
    float *target_means, *target_log_stds; /* [rows][samples][size], as the next three */
    float *learned, *dmeans, *dlog_stds;
    float *log_probs;   /* [rows][samples]: and costs */
    float *divergences; /* [2][rows][size] */
};

/* For batches of at most `rows`. */
TRP_MUST_USE trp_status mpo_steps_create(struct mpo_steps *steps, uint32_t rows, struct room *room);

/* What is learned beside networks, in one vector: the temperature, that of costs, and multipliers
 * of the divergence by means and by deviations, each one number or one for each of an action. */
size_t mpo_dual_count(const struct mpo_steps *steps);

/* What they begin at, on the host: both temperatures, and multipliers. */
void mpo_duals_init(const struct mpo_steps *steps, float temperature, float by_means,
                    float by_deviations, float *duals);

/* Actions, as the target policy draws them. The noise follows from the seed. */
void mpo_draw_on(trp_queue *queue, const struct mpo_steps *steps, uint64_t seed);

/* The E-step: next_values and weights from values, and the temperatures' gradients. */
void mpo_weigh_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                  float *dduals);

/* The M-step: dmean and dlog_std, and the multipliers' gradients. */
void mpo_follow_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                   float *dduals);

#endif
