/* One pull is under way at a time; everything that passes between the two threads is the pulling
 * one's until it is answered, and the caller's from then on. The client keeps parameters in the
 * reply that brought them, until its next pull; so a newer version is copied on the pulling thread,
 * and the caller swaps two pointers. */
#include "feed.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/thread.h"
#include "limits.h"

struct feed {
    struct thread thread;
    bool alone;    /* no thread: pulls are done when asked for */
    trp_stop *end; /* ends a pull */
    struct mutex mutex;
    struct cond changed;
    atomic_bool asked; /* changed with the mutex held */
    bool ending;       /* the mutex's */
    /* The thread's while `asked`, else the caller's. */
    trp_params_client *client;
    uint64_t steps, episodes; /* to report */
    trp_status status;
    char *words;      /* of a failure */
    uint64_t version; /* of the parameters in `next` */
    float *next;
    trp_moments *next_statistics;
    /* The caller's. */
    uint64_t taken; /* version at the last feed_take() */
    float *mine;    /* its parameters */
    trp_moments *my_statistics;
};

trp_status feed_create(struct feed **out, const trp_params_client_options *options, bool alone)
{
    struct feed *feed = xcalloc(1, sizeof *feed);
    trp_params_client_options own = *options;
    *out = NULL;
    feed->alone = alone || turns_active();
    feed->end = trp_stop_create();
    if (!feed->alone)
        own.stop = feed->end;
    mutex_init(&feed->mutex);
    cond_init(&feed->changed);
    trp_status status = trp_params_client_create(&feed->client, &own);
    if (status == TRP_OK)
        *out = feed;
    else
        feed_destroy(feed);
    return status;
}

void feed_destroy(struct feed *feed)
{
    if (!feed)
        return;
    trp_stop_request(feed->end);
    mutex_lock(&feed->mutex);
    feed->ending = true;
    cond_broadcast(&feed->changed);
    mutex_unlock(&feed->mutex);
    thread_stop(&feed->thread);
    trp_params_client_destroy(feed->client);
    trp_stop_destroy(feed->end);
    mutex_cleanup(&feed->mutex);
    cond_cleanup(&feed->changed);
    free(feed->words);
    free(feed->mine);
    free(feed->next);
    free(feed->my_statistics);
    free(feed->next_statistics);
    free(feed);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static trp_status feed_pull(struct feed *feed, uint64_t steps, uint64_t episodes)
{
    if (trp_params_client_state(feed->client).version == 0)
        TRP_TRY(trp_params_client_wait(feed->client, PARAMS_GIVE_UP_MS));
    return trp_params_client_pull(feed->client, steps, episodes, NULL);
}

static void feed_answer(struct feed *feed)
{
    feed->status = feed_pull(feed, feed->steps, feed->episodes);
    if (feed->status != TRP_OK) {
        feed->words = error_keep();
        return;
    }
    trp_params_state state = trp_params_client_state(feed->client);
    if (state.version == feed->version)
        return;
    size_t bytes = state.count * sizeof(float);
    if (!feed->next)
        feed->next = xmalloc(bytes);
    memcpy(feed->next, state.params, bytes);
    free(feed->next_statistics);
    feed->next_statistics = xmemdup(state.statistics, state.statistic_count * sizeof(trp_moments));
    feed->version = state.version;
}

static void feed_run(void *arg)
{
    struct feed *feed = arg;
    mutex_lock(&feed->mutex);
    while (!feed->ending) {
        if (!feed->asked) {
            cond_wait(&feed->changed, &feed->mutex, DEADLINE_NEVER);
            continue;
        }
        mutex_unlock(&feed->mutex);
        feed_answer(feed);
        mutex_lock(&feed->mutex);
        feed->asked = false;
        cond_broadcast(&feed->changed);
    }
    mutex_unlock(&feed->mutex);
}

/* ---- the acting thread ----------------------------------------------------------------------- */

trp_status feed_ask(struct feed *feed, uint64_t steps, uint64_t episodes)
{
    if (feed->asked)
        return TRP_OK;
    feed->steps = steps;
    feed->episodes = episodes;
    if (feed->alone)
        return feed_pull(feed, steps, episodes);
    if (!feed->thread.running)
        TRP_TRY(thread_start(&feed->thread, "params", feed_run, feed));
    mutex_lock(&feed->mutex);
    feed->asked = true;
    cond_broadcast(&feed->changed);
    mutex_unlock(&feed->mutex);
    return TRP_OK;
}

void feed_report(struct feed *feed, const trp_moments *statistics, size_t count)
{
    if (!feed->asked)
        trp_params_client_report(feed->client, statistics, count);
}

bool feed_is_answered(const struct feed *feed)
{
    return !feed->asked;
}

bool feed_wait(struct feed *feed)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, ACTOR_FEED_MS);
    mutex_lock(&feed->mutex);
    while (feed->asked && cond_wait(&feed->changed, &feed->mutex, deadline))
        continue;
    mutex_unlock(&feed->mutex);
    return !feed->asked;
}

trp_status feed_take(struct feed *feed, trp_params_state *state, uint64_t *steps, bool *newer)
{
    assert(!feed->asked);
    if (feed->status != TRP_OK) {
        trp_status status = feed->status;
        feed->status = TRP_OK;
        status = error_back(status, feed->words);
        feed->words = NULL;
        return status;
    }
    *state = trp_params_client_state(feed->client);
    *steps = feed->steps;
    *newer = state->version != feed->taken;
    if (*newer && !feed->alone) {
        float *old = feed->mine;
        feed->mine = feed->next;
        feed->next = old;
        trp_moments *seen = feed->my_statistics;
        feed->my_statistics = feed->next_statistics;
        feed->next_statistics = seen;
    }
    feed->taken = state->version;
    if (!feed->alone) {
        state->params = feed->mine;
        state->statistics = feed->my_statistics;
    }
    return TRP_OK;
}
