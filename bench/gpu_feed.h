/* A learner on a device that is fed by replay on this host: IMPALA's updater, sequences of stacks
 * of frames that an actor wrote to a real server, a sampler that reads its file. What it does is
 * measured, and each of the three things that bound it by itself. Whatever fails ends the program.
 */
#ifndef BENCH_GPU_FEED_H
#define BENCH_GPU_FEED_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/device.h>

/* A batch is `sequences` of `rows` stacks of four frames, `side` pixels wide and high. */
struct feed_shape {
    uint32_t side, sequences, rows;
    uint32_t items; /* that the server has, a sequence each */
};

struct feed;

struct feed *feed_begin(const struct feed_shape *shape, trp_device *device);
void feed_end(struct feed *feed);

/* Rates are of batches a second. */
struct feed_bounds {
    double resident; /* steps of a learner whose frames lie on the device */
    double bus;      /* copies from pinned memory to the device of as many bytes as a batch has */
    double replay;   /* what the sampler gets into pinned memory */
};

struct fed {
    double rate;  /* steps of a learner that the sampler feeds */
    double bytes; /* that the learner copied to the device, a step; of a host none */
};

struct fed feed_learner(struct feed *feed, uint64_t steps);
double feed_resident(struct feed *feed, uint64_t steps);
double feed_replay(struct feed *feed, uint64_t batches);
double feed_bus(const struct feed *feed, size_t bytes, uint64_t copies);

/* The least of them: no learner is quicker. */
double feed_least(const struct feed_bounds *bounds);

/* Bytes of a batch: as it is, and of what need go to a device, where each frame of a sequence goes
 * once, and for each place of a stack which one it is. */
size_t feed_batch_bytes(const struct feed *feed);
size_t feed_sent_bytes(const struct feed *feed);

#endif
