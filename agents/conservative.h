/* CQL(H): what makes critics think less of actions that nobody did (Kumar et al. 2020,
 * "Conservative Q-Learning for Offline Reinforcement Learning", by the samples of its appendix): at
 * each state some actions that are uniform, some that the policy draws there, and some that it
 * draws at the next state. */
#ifndef TRP_AGENTS_CONSERVATIVE_H
#define TRP_AGENTS_CONSERVATIVE_H

#include "bodies/offline.h"
#include "control_batch.h"
#include "critics.h"

struct conservative {
    float scale;      /* alpha */
    uint32_t samples; /* of each of the three kinds */
    uint32_t state_size;
    /* Of a room: */
    float *mean, *log_std; /* [rows][size]: room for what the policy says */
    float *states;         /* [rows][all samples][state_size] */
    float *actions;        /* [rows][all samples][size] */
    float *log_probs;      /* [rows][all samples]: what they were drawn with */
    float *taken[CRITICS_MAX];
    trp_cql *numbers; /* written: sums over the critics */
};

/* Rows of a critic's pass for a row of a batch. */
uint32_t conservative_rows(uint32_t samples);

/* Memory for batches of at most `rows`; scale and samples are filled in. */
TRP_MUST_USE trp_status conservative_create(struct conservative *conservative,
                                            const struct critics *critics, const trp_env_spec *env,
                                            uint32_t rows, struct room *room);

/* A policy that says squashed Gaussians, by parameters of the update's. */
struct conservative_policy {
    trp_net *net;
    const float *params;
    uint32_t draws; /* the first number of three draws, of the batch's seed */
};

/* Adds its part to the gradient of the critics' vector, whose own loss comes after it. */
void conservative_add(const struct conservative *conservative, struct critics *critics,
                      const struct control_batch *batch, const trp_update *update, size_t vector,
                      const struct conservative_policy *policy);

#endif
