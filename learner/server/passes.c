#include "passes.h"

#include <sched.h>
#include <stdbool.h>

#include <troupe/log.h>
#include "core/team.h"
#include "limits.h"

struct pass_job {
    void (*pass)(void *arg, size_t first, size_t size);
    void *arg;
    size_t count, part; /* of numbers; a part */
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

static void passes_run_part(void *arg, uint32_t index)
{
    const struct pass_job *job = arg;
    size_t first = index * job->part;
    if (first >= job->count)
        return;
    size_t left = job->count - first;
    job->pass(job->arg, first, left < job->part ? left : job->part);
}

void passes_run(struct passes *passes, size_t count,
                void (*pass)(void *arg, size_t first, size_t size), void *arg)
{
    struct pass_job job = {.pass = pass, .arg = arg, .count = count};
    bool is_long = passes && count >= 2 * (size_t)PASS_PART_NUMBERS;
    if (is_long)
        find_team(passes);
    if (!is_long || !passes->team) {
        pass(arg, 0, count);
        return;
    }
    job.part = (count / passes->threads / PLACEMENT_NUMBERS + 1) * PLACEMENT_NUMBERS;
    if (job.part < PASS_PART_NUMBERS)
        job.part = PASS_PART_NUMBERS;
    team_run(passes->team, passes_run_part, &job);
}

void passes_cleanup(struct passes *passes)
{
    team_leave(passes->team);
    *passes = (struct passes){0};
}
