/* Under WRITEMAP, the first write to a page that the file system cannot give is a SIGBUS. So pages
 * are taken before they are needed: posix_fallocate() says no politely, MADV_POPULATE_WRITE takes
 * the page faults off the writer's path. The watermark is published after both.
 *
 * One thread at a time takes a step: the helper, ahead of everybody, or whoever waits, so that a
 * busy machine that does not let the helper run is no full file system. After a refusal smaller
 * steps are tried down to STEP_MIN, so that nearly all of a small file system is used; then the
 * helper rests, and whoever waits asks the kernel at most every RETRY_MS. */
#include "disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    STEP_MAX = 1024, /* pages: 4 MiB take about 2 ms, the longest a stop waits */
    STEP_MIN = 16,
    RETRY_MS = 20,
};

struct space {
    struct space_options options;
    _Atomic uint64_t watermark;
    struct mutex mutex;
    struct cond wake, changed;
    struct thread thread;
    /* under mutex: */
    uint64_t target;
    bool stop, busy; /* busy: somebody takes a step */
    int error;
    int64_t refused_ns;
};

/* 0 or an errno. */
static int pages_allocate(const struct space *space, uint64_t first, uint64_t count)
{
    const struct space_options *options = &space->options;
    off_t offset = (off_t)(first * options->page_bytes);
    size_t bytes = count * options->page_bytes;
    int error = posix_fallocate(options->fd, offset, (off_t)bytes);
    if (error == ENOSPC && file_has_blocks(options->fd, (uint64_t)offset, bytes))
        error = 0; /* a full XFS refuses also what is there */
    if (error != 0 || !options->map)
        return error;
    if (madvise(options->map + offset, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    /* A kernel before 5.14 does not know it: the writer takes the faults, on allocated pages.
     * EFAULT is what would have been SIGBUS: a full file system wanted more than the page itself.
     */
    return errno == EINVAL ? 0 : errno == EFAULT ? ENOSPC : errno;
}

/* One step upwards; publishes what it got. The mutex is free meanwhile. */
static void step_locked(struct space *space, uint64_t target)
{
    assert(!space->busy);
    space->busy = true;
    mutex_unlock(&space->mutex);
    uint64_t watermark = atomic_load_explicit(&space->watermark, memory_order_relaxed);
    uint64_t step = target - watermark < STEP_MAX ? target - watermark : STEP_MAX;
    int error = pages_allocate(space, watermark, step);
    while (error != 0 && error != EINTR && step > STEP_MIN) {
        step /= 2;
        error = pages_allocate(space, watermark, step);
    }
    mutex_lock(&space->mutex);
    if (error == 0)
        atomic_store_explicit(&space->watermark, watermark + step, memory_order_release);
    space->error = error == EINTR ? 0 : error;
    if (space->error)
        space->refused_ns = clock_now_ns(&clock_monotonic);
    space->busy = false;
    cond_broadcast(&space->changed);
}

static void space_run(void *arg)
{
    struct space *space = arg;
    mutex_lock(&space->mutex);
    while (!space->stop) {
        bool idle = space_watermark(space) >= space->target || space->error != 0;
        if (idle || space->busy)
            cond_wait(idle ? &space->wake : &space->changed, &space->mutex, DEADLINE_NEVER);
        else
            step_locked(space, space->target);
    }
    mutex_unlock(&space->mutex);
}

trp_status space_create(struct space **out, const struct space_options *options)
{
    struct space *space = xcalloc(1, sizeof *space);
    space->options = *options;
    space->target = options->first;
    atomic_init(&space->watermark, options->first);
    mutex_init(&space->mutex);
    cond_init(&space->wake);
    cond_init(&space->changed);
    trp_status status = thread_start(&space->thread, "store-space", space_run, space);
    if (status != TRP_OK) {
        space_destroy(space);
        space = NULL;
    }
    *out = space;
    return status;
}

void space_destroy(struct space *space)
{
    if (!space)
        return;
    mutex_lock(&space->mutex);
    space->stop = true;
    cond_broadcast(&space->wake);
    cond_broadcast(&space->changed);
    mutex_unlock(&space->mutex);
    thread_stop(&space->thread);
    cond_cleanup(&space->changed);
    cond_cleanup(&space->wake);
    mutex_cleanup(&space->mutex);
    free(space);
}

uint64_t space_watermark(const struct space *space)
{
    return atomic_load_explicit(&space->watermark, memory_order_acquire);
}

static void want_locked(struct space *space, uint64_t page)
{
    if (page > space->options.limit)
        page = space->options.limit;
    if (page <= space->target)
        return;
    space->target = page;
    cond_signal(&space->wake);
}

void space_want(struct space *space, uint64_t page)
{
    if (page <= space_watermark(space))
        return;
    mutex_lock(&space->mutex);
    want_locked(space, page);
    mutex_unlock(&space->mutex);
}

static void wait_locked(struct space *space, uint64_t page, struct deadline deadline)
{
    while (space_watermark(space) < page) {
        if (space->busy) {
            if (!cond_wait_in_turn(&space->changed, &space->mutex, deadline))
                return;
            continue;
        }
        step_locked(space, page);
        if (space->error != 0 || deadline_passed(deadline, &clock_monotonic))
            return;
    }
}

bool space_wait(struct space *space, uint64_t page, struct deadline deadline)
{
    if (space_watermark(space) >= page)
        return true;
    if (page > space->options.limit)
        return false;
    mutex_lock(&space->mutex);
    int64_t since_ns = clock_now_ns(&clock_monotonic) - space->refused_ns;
    if (space->error == 0 || since_ns >= RETRY_MS * INT64_C(1000000)) {
        want_locked(space, page);
        wait_locked(space, page, deadline);
        cond_signal(&space->wake); /* what else the helper had to do, it may do again */
    }
    mutex_unlock(&space->mutex);
    return space_watermark(space) >= page;
}

int space_error(struct space *space)
{
    mutex_lock(&space->mutex);
    int error = space->error;
    mutex_unlock(&space->mutex);
    return error;
}
