#include "passes.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <troupe/log.h>
#include "core/team.h"
#include "limits.h"

struct pass_job {
    void (*pass)(void *arg, size_t first, size_t size);
    void *arg;
    size_t count;       /* of numbers */
    atomic_size_t next; /* the first one that nobody took */
};

static uint32_t threads_of_process(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 1;
    int count = CPU_COUNT(&cores);
    return count < PASS_THREADS_MAX ? (uint32_t)count : PASS_THREADS_MAX;
}

/* Without the others the calling thread does all. */
static void find_team(struct passes *passes)
{
    if (passes->threads == 0)
        passes->threads = threads_of_process();
    if (passes->threads == 1 || passes->team || team_join(&passes->team, passes->threads) == TRP_OK)
        return;
    trp_log(TRP_WARN, "long ranges are stepped by one thread reason=%s", trp_last_error());
    passes->threads = 1;
}

/* Until all parts are taken: whoever comes late, as a thread that had to be woken, takes fewer. */
static void passes_take_parts(void *arg, uint32_t index)
{
    struct pass_job *job = arg;
    size_t first;
    (void)index;
    while ((first = atomic_fetch_add(&job->next, PASS_PART_NUMBERS)) < job->count) {
        size_t left = job->count - first;
        job->pass(job->arg, first, left < PASS_PART_NUMBERS ? left : PASS_PART_NUMBERS);
    }
}

void passes_run(struct passes *passes, size_t count,
                void (*pass)(void *arg, size_t first, size_t size), void *arg)
{
    struct pass_job job = {.pass = pass, .arg = arg, .count = count};
    bool is_long = passes && count >= (size_t)PASS_SHARED_NUMBERS;
    if (is_long)
        find_team(passes);
    if (!is_long || !passes->team) {
        pass(arg, 0, count);
        return;
    }
    team_run(passes->team, passes_take_parts, &job);
}

void passes_rest(struct passes *passes)
{
    if (passes && passes->team)
        team_rest(passes->team);
}

void passes_cleanup(struct passes *passes)
{
    team_leave(passes->team);
    *passes = (struct passes){0};
}
