/* Scores of bsuite's experiments. Ported from bsuite's analysis.py of each experiment and
 * utils/plotting.py (Apache-2.0; see THIRD_PARTY_NOTICES): their grouping, and which runs of a
 * group count. */
#include "bsuite.h"

#include <math.h>

static double score_clip(double value)
{
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

static uint32_t group_of(const struct bsuite_experiment *experiment, uint32_t setting)
{
    switch (experiment->groups) {
    case BSUITE_BY_LEVEL:
        return setting / BSUITE_PER_LEVEL;
    case BSUITE_BY_SETTING:
        return setting;
    case BSUITE_TOGETHER:
        break;
    }
    return 0;
}

/* The runs of one group. */
struct score_group {
    int64_t episodes; /* of the furthest */
    double runs, furthest;
    double total;  /* of the furthest, added up */
    double good;   /* runs with a good episode */
    double solved; /* the first episode at which one was; 0: none was */
};

static void group_add(struct score_group *group, const struct bsuite_experiment *experiment,
                      const trp_bsuite_run *run)
{
    int64_t episodes = run->episodes;
    group->runs++;
    group->good += run->best > experiment->good;
    if (run->best > 0 && (group->solved == 0 || run->best < group->solved))
        group->solved = run->best;
    if (episodes < group->episodes)
        return;
    if (episodes > group->episodes) {
        group->episodes = episodes;
        group->total = group->furthest = 0;
    }
    group->total += run->total;
    group->furthest++;
}

/* The regret of an episode. */
static double group_regret(const struct score_group *group,
                           const struct bsuite_experiment *experiment)
{
    double episodes = (double)group->episodes, total = group->total / group->furthest;
    if (!isnan(experiment->ideal))
        total = experiment->ideal * episodes - total;
    return total / episodes;
}

/* The chest has to be found before an agent that acts by chance is expected to. */
static bool beats_chance(const struct score_group *group, uint32_t setting)
{
    return group->solved > 0 && group->solved < pow(2, bsuite_deep_sea_size(setting)) + 100;
}

static double group_score(const struct score_group *group,
                          const struct bsuite_experiment *experiment, uint32_t setting)
{
    if (experiment->rule == BSUITE_SOLVED)
        return beats_chance(group, setting);
    double regret = group_regret(group, experiment);
    if (experiment->rule == BSUITE_THRESHOLD)
        return regret < experiment->base;
    double score = score_clip((experiment->base - regret) / experiment->base);
    return experiment->good > 0 ? 0.5 * (score + group->good / group->runs) : score;
}

/* bsuite's score_by_scaling(): a mean, and what lies a deviation below it. */
static double by_level(const double *scores, size_t count, double mean)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++)
        squares += (scores[i] - mean) * (scores[i] - mean);
    return 0.5 * (score_clip(mean) + score_clip(mean - sqrt(squares / (double)count)));
}

double trp_bsuite_score(const trp_bsuite_experiment *public, const trp_bsuite_run *runs,
                        size_t count)
{
    const struct bsuite_experiment *experiment = (const void *)public;
    struct score_group groups[BSUITE_SETTINGS_MAX] = {0};
    double scores[BSUITE_SETTINGS_MAX], sum = 0;
    size_t scored = 0;
    for (size_t i = 0; i < count; i++)
        if (runs[i].setting < public->settings && runs[i].episodes > 0)
            group_add(&groups[group_of(experiment, runs[i].setting)], experiment, &runs[i]);
    for (uint32_t i = 0; i < BSUITE_SETTINGS_MAX; i++) {
        if (groups[i].runs == 0)
            continue;
        scores[scored] = group_score(&groups[i], experiment, i);
        sum += scores[scored++];
    }
    if (scored == 0)
        return 0;
    double mean = sum / (double)scored;
    return experiment->groups == BSUITE_BY_LEVEL ? by_level(scores, scored, mean) : mean;
}
