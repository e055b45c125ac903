/* One pull is under way at a time; everything that passes between the two threads, the client first
 * of all, is the pulling one's until it is answered, and the caller's from then on. So parameters
 * stay where the client has them, and the caller loads them from there. */
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
    uint64_t steps, episodes; /* to report, */
    bool now;                 /* without delay */
    trp_status status;
    char *words;    /* of a failure */
    uint64_t taken; /* the caller's: version at the last feed_take() */
};

trp_status feed_create(struct feed **out, const trp_params_client_options *options, bool alone)
{
    struct feed *feed = xcalloc(1, sizeof *feed);
    trp_params_client_options own = *options;
    own.in_place = true;
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
    free(feed);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static trp_status feed_pull(struct feed *feed)
{
    if (trp_params_client_state(feed->client).version == 0)
        TRP_TRY(trp_params_client_wait(feed->client, PARAMS_GIVE_UP_MS));
    if (feed->now)
        return trp_params_client_sync(feed->client, feed->steps, feed->episodes, NULL);
    return trp_params_client_pull(feed->client, feed->steps, feed->episodes, NULL);
}

static void feed_answer(struct feed *feed)
{
    feed->status = feed_pull(feed);
    if (feed->status != TRP_OK)
        feed->words = error_keep();
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

trp_status feed_ask(struct feed *feed, uint64_t steps, uint64_t episodes, bool now)
{
    if (feed->asked)
        return TRP_OK;
    feed->steps = steps;
    feed->episodes = episodes;
    feed->now = now;
    if (feed->alone)
        return feed_pull(feed);
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

trp_status feed_take(struct feed *feed, trp_params_state *state, bool *newer)
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
    *newer = state->version != feed->taken;
    feed->taken = state->version;
    return TRP_OK;
}

bool feed_is_whole(struct feed *feed)
{
    assert(!feed->asked);
    return trp_params_client_is_whole(feed->client);
}

trp_params_state feed_look(const struct feed *feed)
{
    assert(!feed->asked);
    return trp_params_client_state(feed->client);
}
