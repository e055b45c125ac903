/* Evaluation: the mean return of a policy over whole, fresh episodes.
 *
 * Stepping many copies at once and stopping after so many ended episodes would count short episodes
 * more often than long ones. So every copy has a share of the episodes, fixed before the first
 * step, and what it plays after its share is ignored. */
#include <troupe/actor.h>

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "limits.h"

struct evaluation {
    trp_policy *policy;
    trp_env *env;
    trp_rng rng;
    uint32_t copies, episodes;
    uint32_t *shares; /* episodes that a copy has yet to play */
    double *running;  /* return of a copy's episode so far */
    double *returns;  /* of finished episodes */
    uint32_t finished;
    uint64_t steps;
    void *observations, *actions;
    float *rewards;
    bool *terminated, *truncated;
};

void trp_policy_destroy(trp_policy *policy)
{
    if (policy)
        policy->impl->destroy(policy);
}

static void evaluation_prepare(struct evaluation *run)
{
    uint32_t copies = run->copies;
    run->shares = xcalloc(copies, sizeof *run->shares);
    for (uint32_t i = 0; i < copies; i++)
        run->shares[i] = run->episodes / copies + (i < run->episodes % copies);
    run->running = xcalloc(copies, sizeof *run->running);
    run->returns = xcalloc(run->episodes, sizeof *run->returns);
    run->observations = xcalloc(copies, trp_env_observation_bytes(run->env));
    run->actions = xcalloc(copies, trp_env_action_bytes(run->env));
    run->rewards = xcalloc(copies, sizeof *run->rewards);
    run->terminated = xcalloc(copies, sizeof *run->terminated);
    run->truncated = xcalloc(copies, sizeof *run->truncated);
}

static void evaluation_cleanup(struct evaluation *run)
{
    free(run->shares);
    free(run->running);
    free(run->returns);
    free(run->observations);
    free(run->actions);
    free(run->rewards);
    free(run->terminated);
    free(run->truncated);
    trp_env_destroy(run->env);
}

static void count_rewards(struct evaluation *run)
{
    for (uint32_t i = 0; i < run->copies; i++) {
        if (run->shares[i] == 0)
            continue;
        run->steps++;
        run->running[i] += run->rewards[i];
        if (!run->terminated[i] && !run->truncated[i])
            continue;
        run->returns[run->finished++] = run->running[i];
        run->running[i] = 0;
        run->shares[i]--;
    }
}

static trp_status play(struct evaluation *run, trp_stop *stop)
{
    trp_act act = {.observations = run->observations,
                   .rows = run->copies,
                   .rng = &run->rng,
                   .actions = run->actions};
    trp_env_buffers buffers = {.observations = run->observations,
                               .rewards = run->rewards,
                               .terminated = run->terminated,
                               .truncated = run->truncated};
    TRP_TRY(trp_env_reset(run->env, run->observations));
    while (run->finished < run->episodes) {
        if (trp_stop_requested(stop))
            return trp_fail(TRP_CANCELLED, "evaluation: stop");
        TRP_TRY(run->policy->impl->act(run->policy, &act));
        TRP_TRY(trp_env_step(run->env, run->actions, &buffers));
        count_rewards(run);
    }
    return TRP_OK;
}

static trp_evaluation evaluation_summarise(const struct evaluation *run)
{
    trp_evaluation result = {
        .episodes = run->episodes, .steps = run->steps, .min = INFINITY, .max = -INFINITY};
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < run->episodes; i++) {
        sum += run->returns[i];
        result.min = fmin(result.min, run->returns[i]);
        result.max = fmax(result.max, run->returns[i]);
    }
    result.mean = sum / run->episodes;
    for (uint32_t i = 0; i < run->episodes; i++)
        squares += (run->returns[i] - result.mean) * (run->returns[i] - result.mean);
    if (run->episodes > 1)
        result.std = sqrt(squares / (run->episodes - 1));
    result.lower = result.mean - 2 * result.std / sqrt(run->episodes);
    return result;
}

trp_status trp_evaluate(trp_policy *policy, const trp_evaluate_options *options,
                        trp_evaluation *result)
{
    struct evaluation run = {.policy = policy};
    run.episodes = options->episodes ? options->episodes : EVALUATE_EPISODES;
    if (run.episodes > EVALUATE_EPISODES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "evaluation: %u episodes are above %d", run.episodes,
                        EVALUATE_EPISODES_MAX);
    run.copies = options->copies ? options->copies : EVALUATE_COPIES;
    if (run.copies > run.episodes)
        run.copies = run.episodes;
    TRP_TRY(trp_env_create(&run.env, options->env,
                           &(trp_env_options){.count = run.copies, .seed = options->seed}));
    trp_rng_init(&run.rng, options->seed, UINT64_MAX); /* no copy's stream */
    evaluation_prepare(&run);
    trp_status status = play(&run, options->stop);
    if (status == TRP_OK)
        *result = evaluation_summarise(&run);
    evaluation_cleanup(&run);
    return status;
}
