/* What our interface costs over the bare call, in microseconds an operation, on a GPU: virtual
 * ranks, each a thread that waits, as learners are, over the kernel that sums their vectors, and
 * NCCL of one rank over ncclAllReduce. In place
 * that has nothing to do for one rank; so there are rows of sums into another vector, ours a copy
 * and a sum in one list, and of means (ncclAvg), which are sums here: what they are divided by
 * comes with them. Medians of several runs, by turns. bench_gpu_ranks [DEVICE]    cuda:0 by
 * default; without a GPU every row says so */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/collective.h>
#include "bench/median.h"
#include "core/clock.h"
#include "core/nvidia.h"
#include "core/thread.h"
#include "learner/collective/nccl_api.h"
#include "learner/collective/sum_kernel.h"

enum { RUNS = 7, OPERATIONS = 200, RANKS = 4 };

static const size_t counts[] = {1 << 10, 1 << 17, 1 << 21};
enum { COUNTS = sizeof counts / sizeof *counts };

static void stop_on(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_gpu_ranks: %s\n", trp_last_error());
    exit(1);
}

/* Vectors of ranks on a device. */
struct gpu_ranks {
    uint32_t size;
    trp_collective *groups[RANKS];
    trp_queue *queues[RANKS];
    float *values[RANKS];
    float *from; /* as large; of NCCL's rank */
    struct nccl_api nccl;
    struct nccl_comm *comm; /* of the bare call */
};

static void ranks_begin(struct gpu_ranks *ranks, trp_device *device, uint32_t size)
{
    ranks->size = size;
    for (uint32_t rank = 0; rank < size; rank++) {
        stop_on(trp_queue_create(&ranks->queues[rank], device));
        stop_on(trp_device_alloc(device, counts[COUNTS - 1] * sizeof(float),
                                 (void **)&ranks->values[rank]));
    }
}

static void ranks_end(struct gpu_ranks *ranks, trp_device *device)
{
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        trp_collective_destroy(ranks->groups[rank]);
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        trp_queue_destroy(ranks->queues[rank]);
        trp_device_free(device, ranks->values[rank]);
    }
}

static void sync_queue(trp_queue *queue)
{
    stop_on(trp_queue_sync(queue, trp_queue_mark(queue)));
}

/* ---- one operation of each kind -------------------------------------------------------------- */

static void sum_up(struct gpu_ranks *ranks, uint32_t rank, size_t count)
{
    uint64_t ticket =
        trp_collective_allreduce(ranks->groups[rank], ranks->queues[rank], ranks->values[rank],
                                 count, TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
    stop_on(trp_collective_wait(ranks->groups[rank], ticket));
}

static void through_interface(struct gpu_ranks *ranks, size_t count)
{
    sum_up(ranks, 0, count);
}

static void out_of_place(struct gpu_ranks *ranks, size_t count)
{
    trp_queue_copy(ranks->queues[0], ranks->values[0], ranks->from, count * sizeof(float));
    through_interface(ranks, count);
}

/* The kernel alone, which the device has code for. */
static void bare_kernel(struct gpu_ranks *ranks, size_t count)
{
    static const trp_kernel kernel = {.name = "collective.sum"};
    struct collective_sum_arguments sum = {
        .count = count, .ranks = ranks->size, .type = TRP_COLLECTIVE_F32, .op = TRP_COLLECTIVE_SUM};
    trp_operand operands[RANKS];
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        sum.values[rank] = ranks->values[rank];
        operands[rank] =
            (trp_operand){offsetof(struct collective_sum_arguments, values) + rank * sizeof(void *),
                          count * sizeof(float), TRP_READ | TRP_WRITE};
    }
    trp_queue_run(ranks->queues[0], &kernel, &sum, sizeof sum, operands, ranks->size);
    sync_queue(ranks->queues[0]);
}

static void bare_call(struct gpu_ranks *ranks, const float *from, size_t count,
                      enum nccl_reduction op)
{
    void *stream = trp_queue_native(ranks->queues[0]);
    enum nccl_result result =
        ranks->nccl.AllReduce(from, ranks->values[0], count, NCCL_F32, op, ranks->comm, stream);
    if (result != NCCL_SUCCESS) {
        fprintf(stderr, "bench_gpu_ranks: ncclAllReduce: %s\n", ranks->nccl.GetErrorString(result));
        exit(1);
    }
    sync_queue(ranks->queues[0]);
}

static void bare_nccl(struct gpu_ranks *ranks, size_t count)
{
    bare_call(ranks, ranks->values[0], count, NCCL_SUM);
}

static void bare_out_of_place(struct gpu_ranks *ranks, size_t count)
{
    bare_call(ranks, ranks->from, count, NCCL_SUM);
}

static void bare_mean(struct gpu_ranks *ranks, size_t count)
{
    bare_call(ranks, ranks->values[0], count, NCCL_AVG);
}

/* ---- medians --------------------------------------------------------------------------------- */

struct rank_thread {
    struct gpu_ranks *ranks;
    uint32_t rank;
    size_t count;
    void (*operation)(struct gpu_ranks *ranks, size_t count);
    struct thread thread;
};

/* The first rank does what is measured, the others what that waits for. */
static void run_rank(void *arg)
{
    const struct rank_thread *own = arg;
    for (int i = 0; i < OPERATIONS; i++)
        if (own->rank == 0)
            own->operation(own->ranks, own->count);
        else
            sum_up(own->ranks, own->rank, own->count);
}

static double run_us(struct gpu_ranks *ranks, size_t count, uint32_t together,
                     void (*operation)(struct gpu_ranks *ranks, size_t count))
{
    struct rank_thread threads[RANKS];
    int64_t began_ns = clock_now_ns(&clock_monotonic);
    for (uint32_t rank = 0; rank < together; rank++) {
        threads[rank] = (struct rank_thread){
            .ranks = ranks, .rank = rank, .count = count, .operation = operation};
        if (rank > 0)
            stop_on(thread_start(&threads[rank].thread, "rank", run_rank, &threads[rank]));
    }
    run_rank(&threads[0]);
    for (uint32_t rank = 1; rank < together; rank++)
        thread_stop(&threads[rank].thread);
    return (double)(clock_now_ns(&clock_monotonic) - began_ns) / 1e3 / OPERATIONS;
}

/* The same, through our interface and by the bare call. */
struct compared {
    const char *name;
    void (*ours)(struct gpu_ranks *ranks, size_t count);
    void (*bare)(struct gpu_ranks *ranks, size_t count);
};

static void compare_calls(struct gpu_ranks *ranks, const struct compared *pair)
{
    for (size_t i = 0; i < COUNTS; i++) {
        double ours[RUNS], theirs[RUNS];
        run_us(ranks, counts[i], 1, pair->bare);
        run_us(ranks, counts[i], ranks->size, pair->ours);
        for (int run = 0; run < RUNS; run++) {
            theirs[run] = run_us(ranks, counts[i], 1, pair->bare);
            ours[run] = run_us(ranks, counts[i], ranks->size, pair->ours);
        }
        double our_us = median(ours, RUNS), their_us = median(theirs, RUNS);
        printf("%s, %zu floats\t%.4g\tus, the bare call %.4g, over it %.4g\t0\t\n", pair->name,
               counts[i], our_us, their_us, our_us - their_us);
        fflush(stdout);
    }
}

static void skip(const struct compared *pairs, size_t count, const char *why)
{
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < COUNTS; i++)
            printf("%s, %zu floats\tskipped: %s\n", pairs[k].name, counts[i], why);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static const struct compared virtual_pairs[] = {
    {"allreduce of 4 virtual ranks", through_interface, bare_kernel}};
static const struct compared nccl_pairs[] = {
    {"allreduce by NCCL, one rank, in place", through_interface, bare_nccl},
    {"allreduce by NCCL, one rank, out of place", out_of_place, bare_out_of_place},
    {"allreduce by NCCL, one rank, a mean (ncclAvg)", through_interface, bare_mean}};
enum {
    VIRTUAL_PAIRS = sizeof virtual_pairs / sizeof *virtual_pairs,
    NCCL_PAIRS = sizeof nccl_pairs / sizeof *nccl_pairs,
};

static void bench_virtual(trp_device *device)
{
    struct gpu_ranks ranks = {0};
    ranks_begin(&ranks, device, RANKS);
    stop_on(trp_collective_local_create(ranks.groups, RANKS,
                                        &(trp_collective_options){.device = device}));
    compare_calls(&ranks, &virtual_pairs[0]);
    ranks_end(&ranks, device);
}

/* A communicator of its own, which has joined. False: it cannot. */
static bool join_bare(struct gpu_ranks *ranks)
{
    struct nccl_config config = NCCL_CONFIG_DEFAULT;
    struct nccl_id id;
    (void)trp_queue_native(ranks->queues[0]); /* this thread's GPU is the device */
    config.blocking = 1;
    return ranks->nccl.GetUniqueId(&id) == NCCL_SUCCESS &&
           ranks->nccl.CommInitRankConfig(&ranks->comm, 1, id, 0, &config) == NCCL_SUCCESS;
}

static void bench_nccl(trp_device *device)
{
    struct gpu_ranks ranks = {0};
    trp_collective_listener *listener;
    if (nccl_open(&ranks.nccl) != TRP_OK) {
        fprintf(stderr, "bench_gpu_ranks: %s\n", trp_last_error());
        skip(nccl_pairs, NCCL_PAIRS, "no NCCL");
        return;
    }
    ranks_begin(&ranks, device, 1);
    stop_on(trp_device_alloc(device, counts[COUNTS - 1] * sizeof(float), (void **)&ranks.from));
    stop_on(trp_collective_listener_create(&listener, NULL, false));
    const char *address = trp_collective_listener_address(listener);
    stop_on(trp_collective_connect(
        &ranks.groups[0], listener,
        &(trp_collective_options){.size = 1, .addresses = &address, .device = device}));
    bool joined = join_bare(&ranks);
    for (size_t i = 0; i < NCCL_PAIRS && joined; i++)
        compare_calls(&ranks, &nccl_pairs[i]);
    if (!joined)
        skip(nccl_pairs, NCCL_PAIRS, "NCCL does not join");
    ranks_end(&ranks, device);
    trp_device_free(device, ranks.from);
    if (ranks.comm)
        ranks.nccl.CommDestroy(ranks.comm);
    trp_collective_listener_destroy(listener);
}

int main(int argc, char **argv)
{
    trp_device *device;
    nvidia_look_about(getenv);
    if (trp_device_find(&device, argc > 1 ? argv[1] : "cuda:0") == TRP_OK) {
        bench_virtual(device);
        bench_nccl(device);
        return 0;
    }
    fprintf(stderr, "bench_gpu_ranks: %s\n", trp_last_error());
    skip(virtual_pairs, VIRTUAL_PAIRS, "no GPU");
    skip(nccl_pairs, NCCL_PAIRS, "no GPU");
    return 0;
}
