/* A flag that is read without a lock on hot paths, a condition for those who wait here, and watches
 * for those who wait elsewhere (in a completion queue, say). Watches fire without the mutex held,
 * so that they may take locks; removing one waits until it does not run any more. */
#include "core/stop.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/thread.h"

struct trp_stop {
    _Atomic bool requested;
    struct mutex mutex;
    struct cond changed;
    struct stop_watch *watches;
    struct stop_watch *firing; /* runs right now, without the mutex */
};

trp_stop *trp_stop_create(void)
{
    trp_stop *stop = xcalloc(1, sizeof *stop);
    mutex_init(&stop->mutex);
    cond_init(&stop->changed);
    return stop;
}

void trp_stop_destroy(trp_stop *stop)
{
    if (!stop)
        return;
    cond_cleanup(&stop->changed);
    mutex_cleanup(&stop->mutex);
    free(stop);
}

static void watch_unlink(trp_stop *stop, struct stop_watch *watch)
{
    if (watch->previous)
        watch->previous->next = watch->next;
    else
        stop->watches = watch->next;
    if (watch->next)
        watch->next->previous = watch->previous;
    watch->next = watch->previous = NULL;
    watch->linked = false;
}

void trp_stop_request(trp_stop *stop)
{
    mutex_lock(&stop->mutex);
    atomic_store_explicit(&stop->requested, true, memory_order_release);
    while (stop->watches && !stop->firing) {
        struct stop_watch *watch = stop->watches;
        watch_unlink(stop, watch);
        stop->firing = watch;
        mutex_unlock(&stop->mutex);
        watch->fire(watch);
        mutex_lock(&stop->mutex);
        stop->firing = NULL;
        cond_broadcast(&stop->changed); /* somebody may wait to remove it */
    }
    cond_broadcast(&stop->changed);
    mutex_unlock(&stop->mutex);
}

void stop_watch_add(trp_stop *stop, struct stop_watch *watch, void (*fire)(struct stop_watch *))
{
    *watch = (struct stop_watch){.stop = stop, .fire = fire};
    if (!stop)
        return;
    mutex_lock(&stop->mutex);
    bool late = trp_stop_requested(stop);
    if (!late) {
        watch->next = stop->watches;
        if (watch->next)
            watch->next->previous = watch;
        stop->watches = watch;
        watch->linked = true;
    }
    mutex_unlock(&stop->mutex);
    if (late)
        fire(watch);
}

void stop_watch_remove(struct stop_watch *watch)
{
    trp_stop *stop = watch->stop;
    if (!stop)
        return;
    mutex_lock(&stop->mutex);
    if (watch->linked)
        watch_unlink(stop, watch);
    while (stop->firing == watch)
        cond_wait(&stop->changed, &stop->mutex, DEADLINE_NEVER);
    mutex_unlock(&stop->mutex);
    watch->stop = NULL;
}

bool trp_stop_requested(const trp_stop *stop)
{
    return stop && atomic_load_explicit(&stop->requested, memory_order_acquire);
}

bool trp_stop_wait(trp_stop *stop, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    mutex_lock(&stop->mutex);
    bool in_time = true;
    while (!trp_stop_requested(stop) && in_time)
        in_time = cond_wait(&stop->changed, &stop->mutex, deadline);
    mutex_unlock(&stop->mutex);
    return trp_stop_requested(stop);
}
