/* A flag that is read without a lock on hot paths, and a condition for those who wait. */
#include <troupe/stop.h>

#include <stdatomic.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/thread.h"

struct trp_stop {
    _Atomic bool requested;
    struct mutex mutex;
    struct cond changed;
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

void trp_stop_request(trp_stop *stop)
{
    mutex_lock(&stop->mutex);
    atomic_store_explicit(&stop->requested, true, memory_order_release);
    cond_broadcast(&stop->changed);
    mutex_unlock(&stop->mutex);
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
