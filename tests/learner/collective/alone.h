/* One rank by NCCL, on whatever device: it joins, captures, and leaves, and a next generation does
 * the same. For one rank sums in place are nothing to do, so vectors have to stay as they are; a
 * mean into another vector, which groups have not, is a kernel of its own. */
#ifndef TRP_TESTS_LEARNER_ALONE_H
#define TRP_TESTS_LEARNER_ALONE_H

#include <sched.h>

#include "core/clock.h"
#include "learner/collective/nccl_api.h"
#include "tests/core/captured.h"
#include "tests/core/patience.h"
#include "vectors.h"

enum { GENERATIONS = 2, TIMES = 3 };

/* What the log says while a rank connects, which is said again, however that ends. */
static struct captured joining;
static bool joins;

static inline int end_joining(void **state)
{
    (void)state;
    if (joins) {
        capture_end(&joining);
        fputs(joining.text, stderr);
    }
    joins = false;
    return 0;
}

static inline trp_collective *connect_alone(trp_device *device, uint64_t generation)
{
    trp_collective *group = NULL;
    trp_collective_listener *listener;
    OR_FAIL(trp_collective_listener_create(&listener, NULL, false));
    const char *address = trp_collective_listener_address(listener);
    capture_begin(&joining);
    joins = true;
    trp_status status = trp_collective_connect(&group, listener,
                                               &(trp_collective_options){.group = "alone",
                                                                         .generation = generation,
                                                                         .size = 1,
                                                                         .addresses = &address,
                                                                         .device = device});
    end_joining(NULL);
    OR_FAIL(status);
    trp_collective_listener_destroy(listener);
    return group;
}

/* Each list comes several times: it is captured, and launched again. */
static inline void check_operations_alone(trp_collective *group, struct vector *vector)
{
    for (int type = TRP_COLLECTIVE_F32; type <= TRP_COLLECTIVE_U64; type++)
        for (enum what what = ALLREDUCE; what < WHATS; what++)
            for (int time = 0; time < TIMES; time++) {
                vector_give(vector, 0, LARGEST, (trp_collective_type)type);
                OR_FAIL(trp_collective_wait(group,
                                            begin(group, vector, what, LARGEST,
                                                  (trp_collective_type)type, TRP_COLLECTIVE_SUM)));
                assert_int_equal(vector_wrong(vector, group, what, LARGEST,
                                              (trp_collective_type)type, TRP_COLLECTIVE_SUM),
                                 0);
            }
}

/* A next generation joins as the first one did. */
static inline void check_generations(trp_device *device)
{
    for (uint64_t generation = 1; generation <= GENERATIONS; generation++) {
        trp_collective *group = connect_alone(device, generation);
        assert_int_equal(captured_count(&joining, "go by NCCL"), 1);
        struct vector vector; /* whose queue outlives the group */
        vector_create(&vector, device);
        check_operations_alone(group, &vector);
        assert_true(trp_collective_read(group).bytes_sent == 0);
        trp_collective_destroy(group);
        vector_destroy(&vector, device);
    }
}

/* ---- a call of its own ----------------------------------------------------------------------- */

struct bare {
    struct nccl_api api;
    struct nccl_comm *comm;
};

struct mean_job {
    void *from, *to;
};

/* A communicator that does not block says that it goes on, until it is asked long enough. */
static inline bool nccl_settles(struct bare *bare, enum nccl_result result)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, PATIENCE_MS);
    while (result == NCCL_IN_PROGRESS && !deadline_passed(deadline, &clock_monotonic)) {
        sched_yield();
        if (bare->api.CommGetAsyncError(bare->comm, &result) != NCCL_SUCCESS)
            return false;
    }
    return result == NCCL_SUCCESS;
}

static inline bool put_mean(void *owner, void *stream, const void *arguments)
{
    struct bare *bare = owner;
    const struct mean_job *job = arguments;
    return nccl_settles(bare, bare->api.AllReduce(job->from, job->to, LARGEST, NCCL_F32, NCCL_AVG,
                                                  bare->comm, stream));
}

static inline bool never_over(const void *owner)
{
    (void)owner;
    return false;
}

static inline void bare_begin(struct bare *bare, trp_queue *queue)
{
    struct nccl_config config = NCCL_CONFIG_DEFAULT;
    struct nccl_id id;
    config.blocking = 0;
    (void)trp_queue_native(queue); /* this thread's GPU is the device */
    assert_int_equal(bare->api.GetUniqueId(&id), NCCL_SUCCESS);
    enum nccl_result result = bare->api.CommInitRankConfig(&bare->comm, 1, id, 0, &config);
    if (!nccl_settles(bare, result))
        fail_msg("ncclCommInitRankConfig: %s", bare->api.GetLastError(bare->comm));
}

static inline void bare_end(struct bare *bare, trp_queue *queue)
{
    trp_queue_forget(queue, bare);
    assert_true(nccl_settles(bare, bare->api.CommFinalize(bare->comm)));
    assert_int_equal(bare->api.CommDestroy(bare->comm), NCCL_SUCCESS);
}

static inline void put_call(struct bare *bare, trp_queue *queue, const struct mean_job *job)
{
    static const trp_library_call call = {"NCCL", put_mean, never_over};
    const trp_operand operands[] = {
        {offsetof(struct mean_job, from), LARGEST * sizeof(float), TRP_READ},
        {offsetof(struct mean_job, to), LARGEST * sizeof(float), TRP_WRITE}};
    trp_queue_call(queue, &call, bare, job, sizeof *job, operands, 2);
}

static inline void check_kernel(trp_device *device, const struct nccl_api *api, bool in_place)
{
    struct bare bare = {.api = *api};
    struct mean_job job;
    trp_queue *queue;
    float *here = trp_floats_create(LARGEST), *back = trp_floats_create(LARGEST);
    OR_FAIL(trp_queue_create(&queue, device));
    OR_FAIL(trp_device_alloc(device, LARGEST * sizeof(float), &job.from));
    job.to = job.from;
    if (!in_place)
        OR_FAIL(trp_device_alloc(device, LARGEST * sizeof(float), &job.to));
    bare_begin(&bare, queue);
    for (int time = 0; time < TIMES; time++) {
        for (size_t i = 0; i < LARGEST; i++)
            here[i] = (float)(i * 31 % 1009 + (size_t)time);
        trp_queue_copy(queue, job.from, here, LARGEST * sizeof(float));
        put_call(&bare, queue, &job);
        trp_queue_copy(queue, back, job.to, LARGEST * sizeof(float));
        OR_FAIL(trp_queue_sync(queue, trp_queue_mark(queue)));
        assert_memory_equal(here, back, LARGEST * sizeof(float));
    }
    bare_end(&bare, queue);
    trp_queue_destroy(queue);
    trp_device_free(device, job.from);
    if (!in_place)
        trp_device_free(device, job.to);
    trp_floats_destroy(here);
    trp_floats_destroy(back);
}

#endif
