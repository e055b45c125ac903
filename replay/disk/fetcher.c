/* Problem: samples of a table that is larger than memory wait for the disk, which does its best
 * only with dozens of reads at a time; and one thread owns all tables, which must not wait for any.
 * Design: a few threads, two steps. To start a fetch is to ask the kernel for its runs, which does
 * not wait for the disk; whatever is to be started is, before any thread waits, so that the disk
 * has all of it in its queue. Then a thread waits for the last page of each run, by reading a byte
 * of it. Neither is done through a mapping: a page table entry is a good part of what it costs to
 * give a page up again. Pages that are asked for and not there yet are bounded, because they would
 * be given up before they are used. Guarantee: a fetch that was started is done once its pages were
 * in memory, or their read failed; whoever uses them reads them again and is told. */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/list.h"
#include "limits.h"
#include "core/thread.h"

struct fetcher {
    int fd;
    void (*done)(void *arg);
    void *arg;
    struct thread threads[FETCH_THREADS];

    struct mutex mutex; /* guards what follows */
    struct cond wake;
    struct list wanted, started, ended; /* of struct fetch */
    uint64_t started_bytes;             /* asked for, not there yet */
    bool stop;
};

/* ---- fetches ----------------------------------------------------------------------------- */

void fetch_add(struct fetch *fetch, struct fetch_run run)
{
    struct fetch_run *last = fetch->count ? &fetch->runs[fetch->count - 1] : NULL;
    fetch->bytes += run.bytes;
    if (last && last->at + last->bytes == run.at) {
        last->bytes += run.bytes;
        return;
    }
    *ARRAY_PUSH(fetch->runs, fetch->count, fetch->capacity) = run;
}

void fetch_clear(struct fetch *fetch)
{
    fetch->count = 0;
    fetch->bytes = 0;
}

void fetch_cleanup(struct fetch *fetch)
{
    free(fetch->runs);
}

static struct fetch *fetch_pop(struct list *queue)
{
    struct fetch *fetch = LIST_FIRST(queue, struct fetch, link);
    if (fetch)
        list_remove(queue, &fetch->link);
    return fetch;
}

/* ---- the threads ------------------------------------------------------------------------- */

/* In steps: of a longer request the kernel takes the beginning only. */
static void run_ask(const struct fetcher *fetcher, struct fetch_run run)
{
    for (uint64_t at = run.at, end = run.at + run.bytes; at < end; at += FETCH_STEP_BYTES) {
        uint64_t bytes = end - at < FETCH_STEP_BYTES ? end - at : FETCH_STEP_BYTES;
        posix_fadvise(fetcher->fd, (off_t)at, (off_t)bytes, POSIX_FADV_WILLNEED);
    }
}

/* A step is one read of the disk, whose last page is there when all are. */
static void run_wait(const struct fetcher *fetcher, struct fetch_run run)
{
    char byte;
    for (uint64_t at = run.at, end = run.at + run.bytes, next; at < end; at = next) {
        next = end - at < FETCH_STEP_BYTES ? end : at + FETCH_STEP_BYTES;
        if (pread(fetcher->fd, &byte, 1, (off_t)(next - 1)) < 0)
            return; /* whoever wants it is told when he reads it */
    }
}

static struct fetch *next_wanted_locked(struct fetcher *fetcher)
{
    if (fetcher->started_bytes >= FETCH_BYTES_MAX)
        return NULL;
    struct fetch *fetch = fetch_pop(&fetcher->wanted);
    if (fetch)
        fetcher->started_bytes += fetch->bytes;
    return fetch;
}

static void fetch_ask(struct fetcher *fetcher, struct fetch *fetch)
{
    mutex_unlock(&fetcher->mutex);
    for (uint32_t i = 0; i < fetch->count; i++)
        run_ask(fetcher, fetch->runs[i]);
    mutex_lock(&fetcher->mutex);
    list_push(&fetcher->started, &fetch->link);
}

static void fetch_wait(struct fetcher *fetcher, struct fetch *fetch)
{
    mutex_unlock(&fetcher->mutex);
    for (uint32_t i = 0; i < fetch->count; i++)
        run_wait(fetcher, fetch->runs[i]);
    mutex_lock(&fetcher->mutex);
    fetcher->started_bytes -= fetch->bytes;
    bool tell = !fetcher->ended.first;
    list_push(&fetcher->ended, &fetch->link);
    if (!tell)
        return;
    mutex_unlock(&fetcher->mutex);
    fetcher->done(fetcher->arg);
    mutex_lock(&fetcher->mutex);
}

static void fetcher_run(void *arg)
{
    struct fetcher *fetcher = arg;
    struct fetch *fetch;
    mutex_lock(&fetcher->mutex);
    while (!fetcher->stop) {
        if ((fetch = next_wanted_locked(fetcher)))
            fetch_ask(fetcher, fetch);
        else if ((fetch = fetch_pop(&fetcher->started)))
            fetch_wait(fetcher, fetch);
        else
            cond_wait(&fetcher->wake, &fetcher->mutex, DEADLINE_NEVER);
    }
    mutex_unlock(&fetcher->mutex);
}

/* ---- the caller -------------------------------------------------------------------------- */

void fetcher_start(struct fetcher *fetcher, struct fetch *fetch)
{
    mutex_lock(&fetcher->mutex);
    list_push(fetcher->stop ? &fetcher->ended : &fetcher->wanted, &fetch->link);
    cond_signal(&fetcher->wake);
    mutex_unlock(&fetcher->mutex);
}

struct fetch *fetcher_take(struct fetcher *fetcher)
{
    mutex_lock(&fetcher->mutex);
    struct fetch *fetch = fetch_pop(&fetcher->ended);
    mutex_unlock(&fetcher->mutex);
    return fetch;
}

/* ---- life -------------------------------------------------------------------------------- */

trp_status fetcher_create(struct fetcher **out, const char *path, void (*done)(void *arg),
                          void *arg)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return trp_fail(TRP_UNAVAILABLE, "open %s: %s", path, strerror(errno));
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    struct fetcher *fetcher = xcalloc(1, sizeof *fetcher);
    fetcher->fd = fd;
    fetcher->done = done;
    fetcher->arg = arg;
    mutex_init(&fetcher->mutex);
    cond_init(&fetcher->wake);
    for (int i = 0; i < FETCH_THREADS; i++) {
        trp_status status = thread_start(&fetcher->threads[i], "fetch", fetcher_run, fetcher);
        if (status != TRP_OK) {
            fetcher_destroy(fetcher);
            return status;
        }
    }
    *out = fetcher;
    return TRP_OK;
}

void fetcher_stop(struct fetcher *fetcher)
{
    struct fetch *fetch;
    mutex_lock(&fetcher->mutex);
    fetcher->stop = true;
    cond_broadcast(&fetcher->wake);
    mutex_unlock(&fetcher->mutex);
    for (int i = 0; i < FETCH_THREADS; i++)
        thread_stop(&fetcher->threads[i]);
    while ((fetch = fetch_pop(&fetcher->started)) || (fetch = fetch_pop(&fetcher->wanted)))
        list_push(&fetcher->ended, &fetch->link);
}

void fetcher_destroy(struct fetcher *fetcher)
{
    if (!fetcher)
        return;
    fetcher_stop(fetcher);
    close(fetcher->fd);
    cond_cleanup(&fetcher->wake);
    mutex_cleanup(&fetcher->mutex);
    free(fetcher);
}
