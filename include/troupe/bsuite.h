/* The behaviour suite (Osband et al. 2020, "Behaviour Suite for Reinforcement Learning"): small
 * experiments, each in settings of growing difficulty, with scores in [0, 1]. Its environments are
 * named "bsuite/EXPERIMENT" or "bsuite/EXPERIMENT?setting=N": "bsuite/memory_len?setting=5" is
 * what bsuite calls memory_len/5. Tasks, settings and scores are those of bsuite 0.3.6; mnist and
 * its variants are not here, as they need data.
 *
 * A score looks at how one environment went while an agent learned, from the first episode on: one
 * actor with one copy plays `episodes` episodes. What is counted is infos of the environment, said
 * at the end of each episode and therefore metrics of the actor: "episode", what the experiment
 * counts, and "bsuite_score", the score by this run alone. Nothing is counted beyond `episodes`.
 *
 *     trp_actor_counters counters = trp_actor_read(actor);
 *     trp_bsuite_run run;
 *     TRP_TRY(trp_bsuite_read(env, counters.metrics, counters.metric_count, &run));
 *
 * examples/bsuite.c runs experiments with any agent and prints their scores. */
#ifndef TRP_BSUITE_H
#define TRP_BSUITE_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/metric.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct {
    const char *name;  /* "memory_len" */
    uint32_t settings; /* 0 to settings - 1 */
    int64_t episodes;  /* of a run */
    const char *total; /* the info that is summed over all episodes: "total_regret" */
    const char *best;  /* another info: "best_episode", the best return of an episode;
                          "solved_episode", the first one at which bsuite's log says that the chest
                          was found often enough, 0: none; NULL: there is none */
} trp_bsuite_experiment;

/* How a run went. */
typedef struct {
    uint32_t setting;
    int64_t episodes; /* so far; at most the experiment's */
    double total, best;
} trp_bsuite_run;

/* The experiments in alphabetical order; NULL behind the last. */
TRP_API const trp_bsuite_experiment *trp_bsuite_at(size_t index);

/* "memory_len". NOT_FOUND lists the names there are. */
TRP_API TRP_MUST_USE trp_status trp_bsuite_find(const char *name,
                                                const trp_bsuite_experiment **experiment);

/* What the metrics of an actor say of its run of `env`, the environment's name. INVALID_ARGUMENT:
 * it is none of bsuite's; FAILED_PRECONDITION: no episode has ended yet. */
TRP_API TRP_MUST_USE trp_status trp_bsuite_read(const char *env, const trp_metric *metrics,
                                                size_t count, trp_bsuite_run *run);

/* The score of an experiment by these runs, of any of its settings, as the experiment's analysis.py
 * computes it: runs of the same group (all, one level of noise or scale, or one setting) are
 * averaged first, over those that got as far as the furthest of the group, which need not be the
 * end. 0 without runs. */
TRP_API double trp_bsuite_score(const trp_bsuite_experiment *experiment, const trp_bsuite_run *runs,
                                size_t count);

TRP_END_DECLS
#endif
