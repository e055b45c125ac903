/* A cache of parameters: for its clients a publisher, for the learner one client. It asks the
 * learner every so often whether there is a newer version, and says what its clients did since. A
 * client that it has not heard of waits until the learner has said what is remembered of it. */
#include <stdlib.h>
#include <string.h>

#include <troupe/publisher.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "host.h"
#include "limits.h"

/* Waits on the stack of the thread that answers a pull. */
struct cache_asker {
    const char *name;
    bool carried, done;
    struct cache_asker *next;
};

struct cache {
    trp_context *context;
    trp_params_client *client;
    trp_publisher *publisher;
    uint64_t *told; /* of each of the publisher's clients: what the learner has heard, summed up */
    size_t told_count;  /* of so many */
    bool is_behind;     /* the learner is to hear of more than one pull carries */
    struct mutex mutex; /* all that follows */
    struct cond changed;
    struct cache_asker *askers;
    bool over;
};

/* ---- clients that are new here ----------------------------------------------------------- */

static void leave_askers_locked(struct cache *cache, const struct cache_asker *asker)
{
    struct cache_asker **at = &cache->askers;
    while (*at != asker)
        at = &(*at)->next;
    *at = asker->next;
}

static trp_status cache_recall(void *context, const char *name)
{
    struct cache *cache = context;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, CACHE_RECALL_MS);
    struct cache_asker asker = {.name = name};
    bool in_time = true;
    mutex_lock(&cache->mutex);
    asker.next = cache->askers;
    cache->askers = &asker;
    cond_broadcast(&cache->changed);
    while (!asker.done && !cache->over && in_time)
        in_time = cond_wait(&cache->changed, &cache->mutex, deadline);
    leave_askers_locked(cache, &asker);
    mutex_unlock(&cache->mutex);
    return asker.done ? TRP_OK
                      : trp_fail(TRP_UNAVAILABLE, "%s: the learner has not said yet what %s did",
                                 trp_context_name(cache->context), name);
}

/* ---- one question to the learner --------------------------------------------------------- */

struct cache_round {
    trp_client_counts *counts; /* of all clients */
    size_t count;
    trp_client_counts carried[TRP_PARAMS_CARRIED_MAX];
    uint64_t sums[TRP_PARAMS_CARRIED_MAX]; /* as in `told` */
    size_t places[TRP_PARAMS_CARRIED_MAX]; /* in `told` */
    size_t carried_count, known;           /* of clients that have a place there */
};

/* Whatever a client does raises it. */
static uint64_t sum_of(const trp_client_counts *counts)
{
    double seen = 0;
    for (size_t i = 0; i < counts->statistic_count; i++)
        seen += counts->statistics[i].count;
    return counts->steps + counts->episodes + (uint64_t)seen;
}

static void carry_news(struct cache *cache, struct cache_round *round)
{
    if (round->count > cache->told_count) {
        cache->told = xrealloc(cache->told, round->count * sizeof *cache->told);
        memset(cache->told + cache->told_count, 0,
               (round->count - cache->told_count) * sizeof *cache->told);
        cache->told_count = round->count;
    }
    cache->is_behind = false;
    for (size_t i = 0; i < round->count; i++) {
        uint64_t sum = sum_of(&round->counts[i]);
        if (sum == cache->told[i])
            continue;
        cache->is_behind = round->carried_count == TRP_PARAMS_CARRIED_MAX;
        if (cache->is_behind)
            break;
        round->sums[round->carried_count] = sum;
        round->places[round->carried_count] = i;
        round->carried[round->carried_count++] = round->counts[i];
    }
    round->known = round->carried_count;
}

static void carry_askers(struct cache *cache, struct cache_round *round)
{
    mutex_lock(&cache->mutex);
    for (struct cache_asker *asker = cache->askers; asker; asker = asker->next) {
        if (round->carried_count == TRP_PARAMS_CARRIED_MAX)
            break;
        asker->carried = true;
        round->carried[round->carried_count++] = (trp_client_counts){.name = xstrdup(asker->name)};
    }
    mutex_unlock(&cache->mutex);
}

static trp_status take_carried(struct cache *cache, struct cache_round *round)
{
    size_t count;
    const trp_client_counts *carried = trp_params_client_carried(cache->client, &count);
    for (size_t i = 0; i < count; i++)
        TRP_TRY(trp_publisher_restore(cache->publisher, &carried[i]));
    for (size_t i = 0; i < round->known; i++)
        cache->told[round->places[i]] = round->sums[i];
    mutex_lock(&cache->mutex);
    for (struct cache_asker *asker = cache->askers; asker; asker = asker->next)
        asker->done = asker->done || asker->carried;
    cond_broadcast(&cache->changed);
    mutex_unlock(&cache->mutex);
    return TRP_OK;
}

static void forward(struct cache *cache, bool newer)
{
    trp_params_state state = trp_params_client_state(cache->client);
    trp_publisher_forward(cache->publisher,
                          &(trp_forwarded_params){.params = newer ? state.params : NULL,
                                                  .version = state.version,
                                                  .learner_steps = state.learner_steps,
                                                  .first_version = state.first_version,
                                                  .total_steps = state.total_steps,
                                                  .statistics = state.statistics,
                                                  .statistic_count = state.statistic_count,
                                                  .age_ns = state.age_ns});
    trp_context_report(cache->context, "params_age_s", (double)state.age_ns / 1e9);
    trp_context_report(cache->context, "params_version", (double)state.version);
}

static trp_status ask_learner(struct cache *cache)
{
    struct cache_round *round = xcalloc(1, sizeof *round);
    bool newer;
    round->counts = trp_publisher_counts(cache->publisher, &round->count);
    carry_news(cache, round);
    carry_askers(cache, round);
    trp_params_client_carry(cache->client, round->carried, round->carried_count);
    trp_status status = trp_params_client_pull(cache->client, 0, 0, &newer);
    if (status == TRP_OK)
        status = take_carried(cache, round);
    if (status == TRP_OK)
        forward(cache, newer);
    for (size_t i = round->known; i < round->carried_count; i++)
        free(round->carried[i].name);
    trp_publisher_counts_free(round->counts, round->count);
    free(round);
    return status;
}

/* ---- its life ---------------------------------------------------------------------------- */

/* Until the next question is due; somebody may have one of their own. */
static void pause_between(struct cache *cache, int64_t poll_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, poll_ms);
    bool in_time = !cache->is_behind;
    mutex_lock(&cache->mutex);
    while (!cache->askers && in_time && !trp_stop_requested(trp_context_stop(cache->context)))
        in_time = cond_wait(&cache->changed, &cache->mutex, deadline);
    mutex_unlock(&cache->mutex);
}

static trp_status serve_params(struct cache *cache, const trp_params_cache_options *options)
{
    static const char *const blocking[] = {"Pull", NULL}; /* it may have to ask the learner */
    trp_status status =
        trp_context_serve(cache->context, trp_publisher_service(cache->publisher),
                          &(trp_serve_options){.blocking = blocking, .threads = CACHE_THREADS});
    while (status == TRP_OK && !trp_stop_requested(trp_context_stop(cache->context))) {
        status = ask_learner(cache);
        if (status == TRP_OK)
            pause_between(cache, options->poll_ms);
    }
    mutex_lock(&cache->mutex);
    cache->over = true;
    cond_broadcast(&cache->changed);
    mutex_unlock(&cache->mutex);
    return trp_stop_requested(trp_context_stop(cache->context)) ? TRP_OK : status;
}

static trp_status publisher_of(struct cache *cache, const trp_params_cache_options *options)
{
    TRP_TRY(trp_params_client_wait(cache->client, -1));
    trp_params_state state = trp_params_client_state(cache->client);
    cache->publisher = trp_publisher_create(state.count);
    if (state.layout)
        trp_publisher_describe(cache->publisher, state.layout);
    if (options->no_share)
        trp_publisher_keep_private(cache->publisher);
    trp_publisher_use_recall(cache->publisher, cache_recall, cache);
    forward(cache, true);
    return TRP_OK;
}

static trp_status dial_learner(struct cache *cache, const trp_params_cache_options *options)
{
    ProtobufCService *service;
    TRP_TRY(trp_dial(cache->context, options->params, 0, trp_params_descriptor(), &service));
    return trp_params_client_create(
        &cache->client, &(trp_params_client_options){.service = service,
                                                     .stop = trp_context_stop(cache->context),
                                                     .precision = options->precision});
}

trp_status cache_run(trp_context *context)
{
    const trp_params_cache_options *options = &context->group->options.cache;
    struct cache *cache = xcalloc(1, sizeof *cache);
    cache->context = context;
    mutex_init(&cache->mutex);
    cond_init(&cache->changed);
    trp_status status = dial_learner(cache, options);
    if (status == TRP_OK)
        status = publisher_of(cache, options);
    if (status == TRP_OK)
        status = serve_params(cache, options);
    if (status == TRP_CANCELLED && trp_stop_requested(trp_context_stop(context)))
        status = TRP_OK;
    if (!trp_context_withdraw(context, status))
        return status; /* somebody may still call */
    trp_publisher_destroy(cache->publisher);
    trp_params_client_destroy(cache->client);
    cond_cleanup(&cache->changed);
    mutex_cleanup(&cache->mutex);
    free(cache->told);
    free(cache);
    return status;
}
