/* An actor that is stepped when the learner wants a batch, and whose items go into it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/agent.h>
#include <troupe/rollout.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"

struct rollout_source {
    trp_source base;
    trp_agent agent;
    char *env, *name;
    uint64_t seed;
    uint32_t copies, index;
    trp_stop *stop; /* the learner's; may be NULL */
    trp_rollout *rollout;
    trp_actor *actor;
    bool begun; /* a batch, which has some of its items */
};

static trp_status rollout_open(trp_source *base, const trp_source_use *use)
{
    struct rollout_source *source = (struct rollout_source *)base;
    source->stop = use->stop;
    TRP_TRY(trp_rollout_create(&source->rollout,
                               &(trp_rollout_options){.columns = &use->spec->columns,
                                                      .batch_size = use->spec->batch_size,
                                                      .held = use->held,
                                                      .allocator = use->memory}));
    return trp_agent_actor_create(&source->actor, &source->agent,
                                  &(trp_agent_actor_options){.name = source->name,
                                                             .env = source->env,
                                                             .copies = source->copies,
                                                             .index = source->index,
                                                             .rollout = source->rollout,
                                                             .params = use->params,
                                                             .stop = use->stop,
                                                             .seed = source->seed});
}

static trp_status rollout_begin(struct rollout_source *source)
{
    if (source->begun)
        return TRP_OK;
    TRP_TRY(trp_actor_pull(source->actor));
    trp_rollout_begin(source->rollout);
    source->begun = true;
    return TRP_OK;
}

/* What is not full in time is gone on with by the next call. Where threads take turns no clock
 * decides whose turn it is. */
static trp_status rollout_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    struct rollout_source *source = (struct rollout_source *)base;
    struct deadline deadline =
        turns_active() ? DEADLINE_NEVER : deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(rollout_begin(source));
    do {
        if (trp_stop_requested(source->stop))
            return trp_fail(TRP_CANCELLED, "rollout: stopped in the middle of a batch");
        trp_status status = trp_actor_step(source->actor);
        bool full = trp_rollout_is_full(source->rollout);
        if (status != TRP_OK && !(full && status == TRP_DEADLINE_EXCEEDED))
            return status;
    } while (!trp_rollout_is_full(source->rollout) && !deadline_passed(deadline, &clock_monotonic));
    *batch = trp_rollout_batch(source->rollout);
    if (!trp_rollout_is_full(source->rollout))
        return trp_fail(TRP_DEADLINE_EXCEEDED, "rollout: only %" PRIu32 " items so far",
                        batch->rows);
    source->begun = false;
    return TRP_OK;
}

static size_t rollout_metrics(const trp_source *base, trp_metric *metrics)
{
    const struct rollout_source *source = (const struct rollout_source *)base;
    trp_actor_counters counters = trp_actor_read(source->actor);
    size_t count = counters.metric_count;
    memcpy(metrics, counters.metrics, count * sizeof *metrics);
    metrics[count++] =
        (trp_metric){"actor_steps", (double)(counters.earlier_steps + counters.steps)};
    metrics[count++] =
        (trp_metric){"episodes", (double)(counters.earlier_episodes + counters.episodes)};
    if (!isnan(counters.mean_return))
        metrics[count++] = (trp_metric){"return", counters.mean_return};
    return count;
}

static void rollout_destroy(trp_source *base)
{
    struct rollout_source *source = (struct rollout_source *)base;
    trp_actor_destroy(source->actor);
    trp_rollout_destroy(source->rollout);
    free(source->env);
    free(source->name);
    free(source);
}

static const trp_source_impl rollout_impl = {.open = rollout_open,
                                             .next = rollout_next,
                                             .metrics = rollout_metrics,
                                             .destroy = rollout_destroy,
                                             .acts = true};

_Static_assert(TRP_SOURCE_METRICS_MAX >= TRP_METRICS_MAX + TRP_INFOS_MAX + 3,
               "a source reports all that an actor does");

trp_status trp_agent_rollout_source_create(trp_source **out, const trp_agent *agent,
                                           const char *env, uint64_t seed,
                                           const trp_agent_rollout_options *options)
{
    *out = NULL;
    TRP_TRY(trp_agent_check(agent, env));
    struct rollout_source *source = xcalloc(1, sizeof *source);
    source->base.impl = &rollout_impl;
    source->agent = *agent;
    source->env = xstrdup(env);
    source->name = xstrdup(options->name ? options->name : "");
    source->seed = seed;
    source->copies = options->copies;
    source->index = options->index;
    *out = &source->base;
    return TRP_OK;
}
