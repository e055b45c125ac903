/* A learner on a device that replay on this host feeds: batches of 512 stacks of four frames of
 * 84x84, as 32 sequences of 16 steps. Steps a second, beside the least of what bounds it: steps
 * with the frames on the GPU, copies of as many bytes over the bus, and the sampler's batches into
 * pinned memory. And the bytes that were copied, beside those of the stacks. Medians of several
 * runs, by turns.
 *     bench_gpu_feed [DEVICE]    cuda:0 by default; without a GPU every row says so. With cpu the
 *                                same runs on this host, where nothing crosses a bus: its copies
 *                                are of the host's memory, of as many bytes as a GPU would get */
#include <stdio.h>
#include <stdlib.h>

#include <troupe/troupe.h>

#include "core/nvidia.h"
#include "gpu_feed.h"
#include "median.h"

enum { SIDE = 84, SEQUENCES = 32, ROWS = 16, ITEMS = 128, RUNS = 5, STEPS_LEAST = 4 };

static const double run_s = 1;
static const char row_name[] = "learner fed by replay on the host, 84x84x4, B=512";
static const char bytes_name[] = "  bytes to the GPU, of a batch of stacks";

/* So many that a run takes about run_s. */
static uint64_t steps_at(double rate)
{
    double steps = rate * run_s;
    return steps > STEPS_LEAST ? (uint64_t)steps : STEPS_LEAST;
}

static void print_bytes(const struct feed *feed, double bytes)
{
    double stacks = (double)feed_batch_bytes(feed);
    if (bytes > 0)
        printf("%s\t%.4g\tMB\t%.4g\tall of it\n  times fewer than it has\t%.3g\tx\t0\t\n",
               bytes_name, bytes / 1e6, stacks / 1e6, stacks / bytes);
    else
        printf("%s\tskipped: it reads the host's memory\n", bytes_name);
}

static void bench(trp_device *device)
{
    const struct feed_shape shape = {SIDE, SEQUENCES, ROWS, ITEMS};
    struct feed *feed = feed_begin(&shape, device);
    double fed[RUNS], resident[RUNS], bus[RUNS], replay[RUNS];
    struct fed first = feed_learner(feed, STEPS_LEAST);
    size_t bytes = first.bytes > 0 ? (size_t)first.bytes : feed_sent_bytes(feed);
    uint64_t steps = steps_at(first.rate), copies = steps_at(feed_bus(feed, bytes, STEPS_LEAST));
    uint64_t batches = steps_at(feed_replay(feed, STEPS_LEAST));
    for (size_t i = 0; i < RUNS; i++) {
        fed[i] = feed_learner(feed, steps).rate;
        resident[i] = feed_resident(feed, steps);
        bus[i] = feed_bus(feed, bytes, copies);
        replay[i] = feed_replay(feed, batches);
    }
    struct feed_bounds bounds = {median(resident, RUNS), median(bus, RUNS), median(replay, RUNS)};
    double rate = median(fed, RUNS), least = feed_least(&bounds);
    printf("%s\t%.4g\tsteps/s\t%.4g\tthe least of the next three\n", row_name, rate, least);
    printf("  share of the least of the next three\t%.3g\t%%\t0\t\n", 100 * rate / least);
    printf("  steps with the frames on the GPU\t%.4g\tsteps/s\t0\t\n", bounds.resident);
    printf("  copies from pinned memory to the GPU\t%.4g\tbatches/s\t0\t\n", bounds.bus);
    printf("  replay into pinned memory\t%.4g\tbatches/s\t0\t\n", bounds.replay);
    print_bytes(feed, first.bytes);
    feed_end(feed);
}

int main(int argc, char **argv)
{
    trp_device *device;
    trp_log_set_level(TRP_ERROR);
    nvidia_look_about(getenv);
    if (trp_device_find(&device, argc > 1 ? argv[1] : "cuda:0") == TRP_OK) {
        bench(device);
        return 0;
    }
    fprintf(stderr, "bench_gpu_feed: %s\n", trp_last_error());
    printf("%s\tskipped: no GPU\n%s\tskipped: no GPU\n", row_name, bytes_name);
    return 0;
}
