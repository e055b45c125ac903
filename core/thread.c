/* Every lock in the project is one of these, so that the rules can be checked in one file: waits
 * use the monotonic clock, threads block signals, and a thread that joined turns never sleeps on a
 * condition but hands its turn on. The only sleep of such a thread is for its own turn.
 *
 * Pthread calls that can fail only through misuse are asserted. */
#include "core/thread.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/alloc.h"
#include "core/log.h"

struct turns {
    struct mutex mutex;
    struct cond changed;
    uint32_t count, joined;
    uint32_t current; /* whose turn it is */
    bool *gone;
};

static _Thread_local struct turns *my_turns;
static _Thread_local uint32_t my_index;

void mutex_init(struct mutex *mutex)
{
    int rc = pthread_mutex_init(&mutex->handle, NULL);
    assert(rc == 0);
}

void mutex_cleanup(struct mutex *mutex)
{
    pthread_mutex_destroy(&mutex->handle);
}

void mutex_lock(struct mutex *mutex)
{
    int rc = pthread_mutex_lock(&mutex->handle);
    assert(rc == 0);
}

void mutex_unlock(struct mutex *mutex)
{
    int rc = pthread_mutex_unlock(&mutex->handle);
    assert(rc == 0);
}

void once_run(struct once *once, void (*run)(void))
{
    pthread_once(&once->handle, run);
}

void cond_init(struct cond *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&cond->handle, &attributes);
    assert(rc == 0);
    pthread_condattr_destroy(&attributes);
}

void cond_cleanup(struct cond *cond)
{
    pthread_cond_destroy(&cond->handle);
}

void cond_signal(struct cond *cond)
{
    pthread_cond_signal(&cond->handle);
}

void cond_broadcast(struct cond *cond)
{
    pthread_cond_broadcast(&cond->handle);
}

bool cond_wait_in_turn(struct cond *cond, struct mutex *mutex, struct deadline deadline)
{
    if (deadline.at_ns == INT64_MAX)
        return pthread_cond_wait(&cond->handle, &mutex->handle) == 0;
    struct timespec until = {.tv_sec = deadline.at_ns / 1000000000,
                             .tv_nsec = deadline.at_ns % 1000000000};
    return pthread_cond_timedwait(&cond->handle, &mutex->handle, &until) != ETIMEDOUT;
}

bool cond_wait(struct cond *cond, struct mutex *mutex, struct deadline deadline)
{
    if (!my_turns)
        return cond_wait_in_turn(cond, mutex, deadline);
    mutex_unlock(mutex);
    turns_pass();
    mutex_lock(mutex);
    return !deadline_passed(deadline, &clock_monotonic);
}

struct start {
    void (*run)(void *);
    void *arg;
    char name[16];
    struct log_origin origin;
};

static void *thread_main(void *memory)
{
    struct start *start = memory;
    pthread_setname_np(pthread_self(), start->name);
    void (*run)(void *) = start->run;
    void *arg = start->arg;
    log_origin_set(&start->origin);
    free(start);
    run(arg);
    return NULL;
}

trp_status thread_start(struct thread *thread, const char *name, void (*run)(void *), void *arg)
{
    struct start *start = xcalloc(1, sizeof *start);
    *start = (struct start){.run = run, .arg = arg, .origin = log_origin_get()};
    strncpy(start->name, name, sizeof start->name - 1);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread->handle, NULL, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        free(start);
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "thread %s: %s", name, strerror(rc));
    }
    thread->running = true;
    return TRP_OK;
}

void thread_keep_to(const struct thread *thread, const cpu_set_t *cores)
{
    (void)pthread_setaffinity_np(thread->handle, sizeof *cores, cores);
}

bool thread_cores(const struct thread *thread, cpu_set_t *cores)
{
    return pthread_getaffinity_np(thread->handle, sizeof *cores, cores) == 0;
}

static size_t stack_bytes(void)
{
    pthread_attr_t attributes;
    size_t bytes;
    int rc = pthread_getattr_default_np(&attributes);
    assert(rc == 0);
    rc = pthread_attr_getstacksize(&attributes, &bytes);
    assert(rc == 0);
    (void)rc;
    pthread_attr_destroy(&attributes);
    return bytes;
}

trp_status threads_fit(uint32_t count)
{
    size_t bytes = 2 * count * stack_bytes();
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "too little of the address space is left for %u threads and their work, "
                        "%zu MiB: raise `ulimit -v`, or lower `ulimit -s`",
                        count, bytes >> 20);
    munmap(place, bytes);
    return TRP_OK;
}

void thread_stop(struct thread *thread)
{
    if (thread->running)
        pthread_join(thread->handle, NULL);
    thread->running = false;
}

void thread_detach(struct thread *thread)
{
    if (thread->running)
        pthread_detach(thread->handle);
    thread->running = false;
}

struct turns *turns_create(uint32_t count)
{
    struct turns *turns = xcalloc(1, sizeof *turns);
    mutex_init(&turns->mutex);
    cond_init(&turns->changed);
    turns->count = count;
    turns->gone = xcalloc(count, sizeof *turns->gone);
    return turns;
}

void turns_destroy(struct turns *turns)
{
    if (!turns)
        return;
    cond_cleanup(&turns->changed);
    mutex_cleanup(&turns->mutex);
    free(turns->gone);
    free(turns);
}

static void wait_for_turn_locked(struct turns *turns, uint32_t index)
{
    while (turns->joined < turns->count || turns->current != index)
        cond_wait_in_turn(&turns->changed, &turns->mutex, DEADLINE_NEVER);
}

static void next_turn_locked(struct turns *turns)
{
    for (uint32_t step = 0; step < turns->count; step++) {
        turns->current = (turns->current + 1) % turns->count;
        if (!turns->gone[turns->current])
            break;
    }
    cond_broadcast(&turns->changed);
}

void turns_join(struct turns *turns, uint32_t index)
{
    assert(!my_turns);
    assert(index < turns->count);
    my_turns = turns;
    my_index = index;
    mutex_lock(&turns->mutex);
    turns->joined++;
    cond_broadcast(&turns->changed);
    wait_for_turn_locked(turns, index);
    mutex_unlock(&turns->mutex);
}

void turns_pass(void)
{
    if (!my_turns)
        return;
    mutex_lock(&my_turns->mutex);
    next_turn_locked(my_turns);
    wait_for_turn_locked(my_turns, my_index);
    mutex_unlock(&my_turns->mutex);
}

void turns_leave(void)
{
    struct turns *turns = my_turns;
    if (!turns)
        return;
    my_turns = NULL;
    mutex_lock(&turns->mutex);
    turns->gone[my_index] = true;
    next_turn_locked(turns);
    mutex_unlock(&turns->mutex);
}

bool turns_active(void)
{
    return my_turns != NULL;
}
