/* Teams: every part of a job is done once, by workers that have a core of their own where there is
 * one for each, and that leave it when no job follows soon. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/limits.h"
#include "core/team.h"
#include "tests/core/patience.h"

enum { THREADS = 2, JOBS = 200 };

struct job {
    atomic_uint runs[THREADS];
    atomic_bool begun;  /* part 1 */
    atomic_int core;    /* of part 1 */
    atomic_int thread;  /* that does part 1 */
    struct team *rests; /* when part 1 ends; NULL: it does not */
};

/* Part 0, the caller's, ends when somebody else is at part 1. */
static void run_both(void *arg, uint32_t part)
{
    struct job *job = arg;
    struct deadline deadline = patience();
    atomic_fetch_add(&job->runs[part], 1);
    if (part == 1) {
        atomic_store(&job->core, sched_getcpu());
        atomic_store(&job->thread, gettid());
        if (job->rests)
            team_rest(job->rests);
        atomic_store(&job->begun, true);
    }
    while (!atomic_load(&job->begun)) {
        still_patient(deadline, "a worker that takes a part");
        sched_yield();
    }
}

static void run_job(struct team *team, struct job *job)
{
    *job = (struct job){.rests = job->rests};
    team_run(team, run_both, job);
    for (uint32_t part = 0; part < THREADS; part++)
        assert_int_equal(atomic_load(&job->runs[part]), 1);
}

static void wait_until_it_sleeps(int thread)
{
    struct deadline deadline = patience();
    char path[64], state = '\0';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
        fclose(file);
        still_patient(deadline, "a worker that sleeps");
    }
}

static struct team *join(void)
{
    struct team *team;
    assert_int_equal(team_join(&team, THREADS), TRP_OK);
    return team;
}

static void pin_to(int core)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET((size_t)core, &cores);
    assert_int_equal(sched_setaffinity(0, sizeof cores, &cores), 0);
}

static void workers_stay_off_the_callers_core_wherever_it_goes(void **state)
{
    cpu_set_t cores;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    if (CPU_COUNT(&cores) < THREADS)
        skip();
    struct team *team = join();
    for (int core = 0, round = 0; round < 2 * CPU_COUNT(&cores); core = (core + 1) % CPU_SETSIZE) {
        if (!CPU_ISSET((size_t)core, &cores))
            continue;
        pin_to(core);
        for (int i = 0; i < 20; i++) {
            struct job job = {0};
            run_job(team, &job);
            assert_int_not_equal(atomic_load(&job.core), core);
            team_rest(team);
            wait_until_it_sleeps(atomic_load(&job.thread));
        }
        round++;
    }
    assert_int_equal(sched_setaffinity(0, sizeof cores, &cores), 0);
    team_leave(team);
}

/* As `taskset -ap` does it: all threads to one core. */
static void cores_that_workers_are_given_meanwhile_are_theirs(void **state)
{
    cpu_set_t cores, own;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    struct team *team = join();
    struct job job = {0};
    int core = sched_getcpu();
    run_job(team, &job);
    pin_to(core);
    run_job(team, &job); /* now the worker is apart, where there is another core */
    CPU_ZERO(&own);
    CPU_SET((size_t)core, &own);
    assert_int_equal(sched_setaffinity(atomic_load(&job.thread), sizeof own, &own), 0);
    for (int other = 0; other < CPU_SETSIZE; other++) {
        if (!CPU_ISSET((size_t)other, &cores))
            continue;
        pin_to(other);
        run_job(team, &job);
        assert_int_equal(atomic_load(&job.core), core);
    }
    assert_int_equal(sched_setaffinity(0, sizeof cores, &cores), 0);
    team_leave(team);
}

static void a_team_larger_than_the_cores_does_its_jobs_too(void **state)
{
    cpu_set_t cores;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    pin_to(sched_getcpu());
    struct team *team = join();
    for (int i = 0; i < JOBS; i++)
        run_job(team, &(struct job){0});
    assert_int_equal(sched_setaffinity(0, sizeof cores, &cores), 0);
    team_leave(team);
}

static int64_t cpu_ns(int thread)
{
    /* As pthread_getcpuclockid() makes it, of a thread whose number is known. */
    clockid_t clock = (clockid_t)(~(uint32_t)thread << 3 | 6);
    struct timespec time;
    assert_int_equal(clock_gettime(clock, &time), 0);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* The caller may lose its core between a job and the rest after it: it is said in the job. */
static void who_rests_does_not_spin_for_the_next_job(void **state)
{
    cpu_set_t cores;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    if (CPU_COUNT(&cores) < THREADS)
        skip(); /* the caller can say so only when the worker lets it */
    struct team *team = join();
    struct job job = {0};
    int64_t least_ns = INT64_MAX;
    run_job(team, &job);
    int worker = atomic_load(&job.thread);
    assert_int_not_equal(worker, gettid());
    job.rests = team;
    for (int i = 0; i < JOBS; i++) {
        int64_t before_ns = cpu_ns(worker);
        run_job(team, &job);
        wait_until_it_sleeps(worker);
        int64_t ns = cpu_ns(worker) - before_ns;
        least_ns = ns < least_ns ? ns : least_ns;
    }
    assert_in_range(least_ns, 0, TEAM_SPIN_NS * 3 / 4);
    team_leave(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_stay_off_the_callers_core_wherever_it_goes),
        cmocka_unit_test(cores_that_workers_are_given_meanwhile_are_theirs),
        cmocka_unit_test(a_team_larger_than_the_cores_does_its_jobs_too),
        cmocka_unit_test(who_rests_does_not_spin_for_the_next_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
