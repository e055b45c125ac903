/* The experiments of bsuite, and what is counted of a run. Ported from bsuite's sweep.py and
 * analysis.py of each experiment, its environments' bsuite_info() and utils/wrappers.py
 * (Apache-2.0; see THIRD_PARTY_NOTICES).
 *
 * A copy counts in its own state, which resets leave alone, so that the infos of the last episode
 * are about the whole run. Nothing is counted beyond an experiment's episodes: from then on its
 * score stays what it is, however late somebody looks. */
#include "bsuite.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "class.h"
#include "core/buffer.h"
#include "core/words.h"

/* What scores: the regret of an episode, given as such or by the return of a perfect one, below
 * that of an agent that scores 0; the same below a limit; episodes that go wrong. */
#define REGRET(zero)          .ideal = NAN, .base = zero
#define RETURN(perfect, zero) .ideal = perfect, .base = zero
#define BELOW(perfect, limit)                                                                      \
    .ideal = perfect, .base = limit, .rule = BSUITE_THRESHOLD, .groups = BSUITE_BY_SETTING
#define SOLVED(rate, first)                                                                        \
    .bad_rate = rate, .from = first, .rule = BSUITE_SOLVED, .groups = BSUITE_BY_SETTING
#define NOISE .variant = BSUITE_NOISE, .groups = BSUITE_BY_LEVEL
#define SCALE .variant = BSUITE_SCALE, .groups = BSUITE_BY_LEVEL

static const struct bsuite_experiment experiments[] = {
    {{"bandit", 20, 10000, "total_regret", NULL}, REGRET(0.5)},
    {{"bandit_noise", 20, 10000, "total_regret", NULL}, REGRET(0.5), NOISE},
    {{"bandit_scale", 20, 10000, "total_regret", NULL}, REGRET(0.5), SCALE},
    {{"cartpole", 20, 1000, "raw_return", "best_episode"}, RETURN(1000, 1000), .good = 500},
    {{"cartpole_noise", 20, 1000, "raw_return", "best_episode"},
     RETURN(1000, 1000),
     .good = 500,
     NOISE},
    {{"cartpole_scale", 20, 1000, "raw_return", "best_episode"},
     RETURN(1000, 1000),
     .good = 500,
     SCALE},
    {{"cartpole_swingup", 20, 1000, "raw_return", "best_episode"},
     RETURN(700, 700),
     .good = 100,
     .groups = BSUITE_BY_SETTING},
    {{"catch", 20, 10000, "total_regret", NULL}, REGRET(1.6)},
    {{"catch_noise", 20, 10000, "total_regret", NULL}, REGRET(1.6), NOISE},
    {{"catch_scale", 20, 10000, "total_regret", NULL}, REGRET(1.6), SCALE},
    {{"deep_sea", 21, 10000, "total_bad_episodes", "solved_episode"}, SOLVED(0.9, 1)},
    {{"deep_sea_stochastic", 21, 10000, "total_bad_episodes", "solved_episode"}, SOLVED(0.8, 100)},
    {{"discounting_chain", 20, 1000, "total_return", NULL}, RETURN(1.1, 0.1)},
    {{"memory_len", 23, 10000, "total_perfect", NULL}, BELOW(1, 0.375)},
    {{"memory_size", 17, 10000, "total_perfect", NULL}, BELOW(1, 0.375)},
    {{"mountain_car", 20, 1000, "raw_return", NULL}, RETURN(-100, 1000)},
    {{"mountain_car_noise", 20, 1000, "raw_return", NULL}, RETURN(-100, 1000), NOISE},
    {{"mountain_car_scale", 20, 1000, "raw_return", NULL}, RETURN(-100, 1000), SCALE},
    {{"umbrella_distract", 23, 10000, "total_regret", NULL}, BELOW(NAN, 0.5)},
    {{"umbrella_length", 23, 10000, "total_regret", NULL}, BELOW(NAN, 0.5)},
};

enum { EXPERIMENTS = sizeof experiments / sizeof experiments[0] };

static const char prefix[] = "bsuite/";

const trp_bsuite_experiment *trp_bsuite_at(size_t index)
{
    return index < EXPERIMENTS ? &experiments[index].public : NULL;
}

/* The first `length` characters of `name`; NULL: no experiment is called so. */
static const struct bsuite_experiment *experiment_find(const char *name, size_t length)
{
    for (size_t i = 0; i < EXPERIMENTS; i++) {
        const char *known = experiments[i].public.name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return &experiments[i];
    }
    return NULL;
}

trp_status trp_bsuite_find(const char *name, const trp_bsuite_experiment **experiment)
{
    const struct bsuite_experiment *found = experiment_find(name, strlen(name));
    *experiment = found ? &found->public : NULL;
    if (found)
        return TRP_OK;
    struct buffer names = {0};
    const char *known[EXPERIMENTS + 1] = {0};
    char guess[GUESS_BYTES];
    for (size_t i = 0; i < EXPERIMENTS; i++) {
        known[i] = experiments[i].public.name;
        buffer_append(&names, text_bytes(" "));
        buffer_append(&names, text_bytes(known[i]));
    }
    word_guess(name, known, guess);
    trp_status status =
        trp_fail(TRP_NOT_FOUND, "no experiment of bsuite is '%.100s'%s%s there are:%.*s", name,
                 guess, *guess ? "" : ";", (int)names.size, (const char *)names.data);
    buffer_cleanup(&names);
    return status;
}

/* ---- reading a run --------------------------------------------------------------------------- */

/* NaN: nobody said it. */
static double metric_value(const trp_metric *metrics, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(metrics[i].name, name) == 0)
            return metrics[i].value;
    return NAN;
}

/* Of an environment, behind which there may be wrappers. */
static trp_status setting_of(const char *env, const struct bsuite_experiment **experiment,
                             uint32_t *setting)
{
    const struct env_class *class;
    TRP_TRY(env_class_find(env, &class));
    while (class->inner)
        class = class->inner;
    size_t skip = sizeof prefix - 1;
    *experiment = NULL;
    if (strncmp(env, prefix, skip) == 0)
        *experiment = experiment_find(env + skip, strcspn(env + skip, "?"));
    if (!*experiment)
        return trp_fail(TRP_INVALID_ARGUMENT, "environment '%s' is no experiment of bsuite", env);
    *setting = ((const struct bsuite_arguments *)class->arguments)->setting;
    return TRP_OK;
}

trp_status trp_bsuite_read(const char *env, const trp_metric *metrics, size_t count,
                           trp_bsuite_run *run)
{
    const struct bsuite_experiment *experiment;
    *run = (trp_bsuite_run){0};
    TRP_TRY(setting_of(env, &experiment, &run->setting));
    double episode = metric_value(metrics, count, "episode");
    run->total = metric_value(metrics, count, experiment->public.total);
    if (experiment->public.best)
        run->best = metric_value(metrics, count, experiment->public.best);
    if (isnan(episode) || isnan(run->total) || isnan(run->best))
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: no episode has ended yet", env);
    run->episodes = (int64_t)episode;
    return TRP_OK;
}

/* ---- for environments ------------------------------------------------------------------------ */

trp_status bsuite_configure(void *arguments, void *user, trp_env_spec *spec)
{
    static const double noises[] = {0.1, 0.3, 1, 3, 10}, scales[] = {0.001, 0.03, 1, 30, 1000};
    struct bsuite_arguments *a = arguments;
    (void)user;
    const char *word = spec->name + sizeof prefix - 1;
    a->experiment = experiment_find(word, strlen(word));
    assert(a->experiment);
    const trp_bsuite_experiment *public = &a->experiment->public;
    spec->infos[0] = (trp_env_info){"episode", TRP_INFO_LAST};
    spec->infos[1] = (trp_env_info){"bsuite_score", TRP_INFO_LAST};
    spec->infos[2] = (trp_env_info){public->total, TRP_INFO_LAST};
    spec->infos[3] = (trp_env_info){public->best, TRP_INFO_LAST};
    a->noise = a->experiment->variant == BSUITE_NOISE ? noises[a->setting / BSUITE_PER_LEVEL] : 0;
    a->scale = a->experiment->variant == BSUITE_SCALE ? scales[a->setting / BSUITE_PER_LEVEL] : 1;
    return TRP_OK;
}

int32_t bsuite_log_spaced(uint32_t setting)
{
    static const int32_t middle[] = {12, 14, 17, 20, 25};
    enum { DENSE = 10, MIDDLE = sizeof middle / sizeof middle[0] };
    if (setting < DENSE)
        return (int32_t)setting + 1;
    if (setting < DENSE + MIDDLE)
        return middle[setting - DENSE];
    return 30 + 10 * (int32_t)(setting - DENSE - MIDDLE);
}

int32_t bsuite_deep_sea_size(uint32_t setting)
{
    return 10 + 2 * (int32_t)setting;
}

trp_status bsuite_create(void *state, const void *arguments, void *user)
{
    (void)user;
    ((struct bsuite_copy *)state)->arguments = arguments;
    return TRP_OK;
}

float bsuite_reward(const struct bsuite_copy *copy, trp_rng *rng, double reward)
{
    if (copy->arguments->noise > 0)
        reward += copy->arguments->noise * trp_rng_normal(rng);
    return (float)(reward * copy->arguments->scale);
}

static bool run_is_over(const struct bsuite_copy *copy)
{
    return copy->count.episode >= copy->arguments->experiment->public.episodes;
}

void bsuite_add(struct bsuite_copy *copy, double amount)
{
    if (run_is_over(copy))
        return;
    copy->count.total += amount;
    if (copy->arguments->experiment->good > 0)
        copy->count.running += amount;
}

/* Whether bsuite writes a row after this episode: 1, 1.2, 1.4, ... times a power of ten. */
static bool is_logged(int64_t episode)
{
    static const int64_t tenths[] = {10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90};
    int64_t power = 1;
    while (power * 10 <= episode)
        power *= 10;
    for (size_t i = 0; i < sizeof tenths / sizeof tenths[0]; i++)
        if (episode * 10 == power * tenths[i])
            return true;
    return false;
}

static void count_best(const struct bsuite_experiment *experiment, struct bsuite_count *count)
{
    if (experiment->rule != BSUITE_SOLVED) {
        count->best = fmax(count->best, count->running);
    } else if (count->best == 0 && count->episode >= experiment->from &&
               is_logged(count->episode) &&
               count->total / (double)count->episode < experiment->bad_rate) {
        count->best = (double)count->episode;
    }
}

void bsuite_end(struct bsuite_copy *copy, trp_env_outcome *outcome)
{
    const struct bsuite_experiment *experiment = copy->arguments->experiment;
    struct bsuite_count *count = &copy->count;
    if (!run_is_over(copy)) {
        count->episode++;
        count_best(experiment, count);
    }
    const trp_bsuite_run run = {copy->arguments->setting, count->episode, count->total,
                                count->best};
    outcome->terminated = true;
    outcome->infos[0] = (double)count->episode;
    outcome->infos[1] = trp_bsuite_score(&experiment->public, &run, 1);
    outcome->infos[2] = count->total;
    if (experiment->public.best)
        outcome->infos[3] = count->best;
}

trp_status bsuite_check_count(const struct bsuite_copy *copy)
{
    const struct bsuite_count *count = &copy->count;
    if (count->episode >= 0 && isfinite(count->total) && isfinite(count->best) &&
        isfinite(count->running))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "bsuite/%s: %" PRId64 " episodes, total %g, best %g",
                    copy->arguments->experiment->public.name, count->episode, count->total,
                    count->best);
}
