/* Evaluation: the mean return of a policy over whole, fresh episodes.
 *
 * Stepping many copies at once and stopping after so many ended episodes would count short episodes
 * more often than long ones. So every copy has a share of the episodes, fixed before the first
 * step, and what it plays after its share is ignored. */
#include <troupe/actor.h>

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "limits.h"
#include "copies.h"
#include "recording.h"

struct evaluation {
    const trp_evaluate_options *options;
    trp_env *env;
    struct copies copies;
    trp_rng rng;
    uint32_t episodes;
    uint32_t *shares; /* episodes that a copy has yet to play */
    double *running;  /* return of a copy's episode so far */
    double *returns;  /* of finished episodes */
    uint32_t finished;
    uint64_t steps;
    uint64_t since_end; /* that all copies have made since one of them ended an episode */
    struct recording recording;
};

static void evaluation_prepare(struct evaluation *run, trp_policy *policy)
{
    copies_prepare(&run->copies, run->env, policy);
    uint32_t copies = run->copies.count;
    run->shares = xcalloc(copies, sizeof *run->shares);
    for (uint32_t i = 0; i < copies; i++)
        run->shares[i] = run->episodes / copies + (i < run->episodes % copies);
    run->running = xcalloc(copies, sizeof *run->running);
    run->returns = xcalloc(run->episodes, sizeof *run->returns);
    recording_prepare(&run->recording, run->options->episode, trp_env_get_spec(run->env));
}

static void evaluation_cleanup(struct evaluation *run)
{
    free(run->shares);
    free(run->running);
    free(run->returns);
    copies_cleanup(&run->copies);
    trp_env_destroy(run->env);
}

static void count_rewards(struct evaluation *run)
{
    for (uint32_t i = 0; i < run->copies.count; i++) {
        if (run->shares[i] == 0)
            continue;
        run->steps++;
        run->running[i] += run->copies.rewards[i];
        if (!run->copies.first[i])
            continue;
        run->since_end = 0;
        run->returns[run->finished++] = run->running[i];
        run->running[i] = 0;
        run->shares[i]--;
    }
}

/* A policy may well walk into a wall for ever. */
static void tell_without_end(const struct evaluation *run)
{
    trp_log(TRP_WARN,
            "evaluation: no episode has ended in the last %d steps of each copy env=%s ended=%u "
            "of=%u: where nothing else ends one, time_limit=1000 in its name does",
            EVALUATE_LONG_STEPS, run->options->env, run->finished, run->episodes);
}

static trp_status play(struct evaluation *run)
{
    TRP_TRY(copies_reset(&run->copies));
    while (run->finished < run->episodes) {
        if (trp_stop_requested(run->options->stop))
            return trp_fail(TRP_CANCELLED, "evaluation: stop");
        TRP_TRY(recording_observe(&run->recording, &run->copies));
        TRP_TRY(copies_step(&run->copies, UINT64_MAX, &run->rng));
        TRP_TRY(recording_step(&run->recording, &run->copies));
        run->since_end++;
        count_rewards(run);
        if (run->since_end == EVALUATE_LONG_STEPS)
            tell_without_end(run);
    }
    return TRP_OK;
}

static int compare_returns(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, uint32_t count, double percent)
{
    double place = percent / 100 * (count - 1);
    uint32_t below = (uint32_t)place;
    uint32_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

/* Sorts the returns. */
static void add_percentiles(const struct evaluation *run, trp_evaluation *result)
{
    qsort(run->returns, run->episodes, sizeof *run->returns, compare_returns);
    result->p5 = percentile(run->returns, run->episodes, 5);
    result->p25 = percentile(run->returns, run->episodes, 25);
    result->median = percentile(run->returns, run->episodes, 50);
    result->p75 = percentile(run->returns, run->episodes, 75);
    result->p95 = percentile(run->returns, run->episodes, 95);
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
    if (run->options->returns)
        memcpy(run->options->returns, run->returns, run->episodes * sizeof *run->returns);
    add_percentiles(run, &result);
    return result;
}

trp_status trp_evaluate(trp_policy *policy, const trp_evaluate_options *options,
                        trp_evaluation *result)
{
    struct evaluation run = {.options = options};
    run.episodes = options->episodes ? options->episodes : EVALUATE_EPISODES;
    if (run.episodes > EVALUATE_EPISODES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "evaluation: %u episodes are above %d", run.episodes,
                        EVALUATE_EPISODES_MAX);
    uint32_t copies = options->copies ? options->copies : EVALUATE_COPIES;
    if (copies > run.episodes)
        copies = run.episodes;
    TRP_TRY(trp_env_create(
        &run.env, options->env,
        &(trp_env_options){.count = copies, .seed = options->seed, .read_only = true}));
    if (options->statistic_count > 0 || trp_env_statistics_count(run.env) > 0) {
        trp_status used =
            trp_env_use_statistics(run.env, options->statistics, options->statistic_count);
        if (used != TRP_OK) {
            trp_env_destroy(run.env);
            return used;
        }
    }
    trp_rng_init(&run.rng, options->seed, UINT64_MAX); /* no copy's stream */
    evaluation_prepare(&run, policy);
    trp_status status = play(&run);
    if (status == TRP_OK)
        *result = evaluation_summarise(&run);
    evaluation_cleanup(&run);
    return status;
}
