/* What a learner does for one updater: its vectors, batches on its device, and the calls of
 * updater.h. */
#ifndef TRP_LEARNER_UPDATE_H
#define TRP_LEARNER_UPDATE_H

#include <stdbool.h>

#include <troupe/learner.h>
#include "frames.h"
#include "learner/modes/mode.h"

struct trp_update_run {
    trp_updater *updater; /* borrowed */
    struct mode *mode;
    trp_device *device;
    bool is_host;
    trp_queue *queue, *upload;
    struct vectors vectors;
    float *values[TRP_UPDATER_VECTORS_MAX], *grads[TRP_UPDATER_VECTORS_MAX]; /* the device's */
    uint64_t version;                                                        /* last published */
    trp_update steps[2];  /* the last one and the one before, which may not be collected yet */
    uint64_t marks[2];    /* of the queue, at their ends */
    uint64_t uploaded[2]; /* of the other one, behind their batches */
    double *priorities[2][TRP_UPDATER_SOURCES_MAX]; /* of those */
    void **columns[2][TRP_UPDATER_SOURCES_MAX];     /* rooms on the device; NULL: the host's */
    struct frames frames[2][TRP_UPDATER_SOURCES_MAX];
    uint64_t uploaded_bytes;     /* of batches, so far */
    const struct vector *params; /* actors pull it, or a part */
    char *layout;                /* of that part */
    trp_rng rng;
    uint64_t left_out; /* phases whose gradient was not finite */
    bool metrics_full; /* some are left out */
    size_t metric_count;
    trp_metric metrics[TRP_LEARNER_METRICS_MAX];
};

enum {
    /* A vector is its values, its optimizer's state and steps; then the updater's own and rng. */
    UPDATE_TENSORS_MAX =
        TRP_UPDATER_VECTORS_MAX * (2 + TRP_OPTIMIZER_STATES_MAX) + TRP_UPDATER_TENSORS_MAX + 1,
};

/* INVALID_ARGUMENT: what of its declarations is wrong. */
TRP_MUST_USE trp_status updater_check(const trp_updater *updater);

static inline size_t published_end(const trp_vector_spec *spec)
{
    return spec->published_count > 0 ? spec->published_first + spec->published_count : spec->count;
}

/* Checks what the updater declares and initialises its vectors. INVALID_ARGUMENT names what is
 * wrong; RESOURCE_EXHAUSTED: the device has no memory for it. */
TRP_MUST_USE trp_status update_prepare(struct trp_update_run *run, trp_updater *updater,
                                       uint64_t seed);

/* In place of being alone, before the first step. The updater of `options` is set here. Fails as
 * mode_create(). */
TRP_MUST_USE trp_status update_use_mode(struct trp_update_run *run,
                                        const struct mode_options *options);

/* Waits for what is on the queues, which still reads the batches of the last steps. Zeroed is fine.
 */
void update_cleanup(struct trp_update_run *run);

/* Step `step`, from one batch per source. `batches` and what becomes of the step are kept until
 * step + 2 begins. */
TRP_MUST_USE trp_status update_step(struct trp_update_run *run, uint64_t step,
                                    const trp_batch *batches);

/* Reports phases that ended because other learners had batches for them. Fails where they were
 * refused. */
TRP_MUST_USE trp_status update_followed(struct trp_update_run *run, uint64_t step);

/* The state is another learner's now: what was left out is counted as it did. */
void update_adopt(struct trp_update_run *run);

/* Waits for that step, whose phases may have been refused, reports its norms, and lets the updater
 * collect it. */
TRP_MUST_USE trp_status update_collect(struct trp_update_run *run, uint64_t step);

/* The device's vectors, as far as they are on its queue, become those that the functions below
 * read, or only what is published; and the other way round. They fail as trp_queue_sync(). */
TRP_MUST_USE trp_status update_fetch(struct trp_update_run *run);
TRP_MUST_USE trp_status update_fetch_published(struct trp_update_run *run);
TRP_MUST_USE trp_status update_store(struct trp_update_run *run);

/* What of the vectors actors pull. */
struct published {
    size_t first, count; /* in "params" */
    const float *values;
    const char *layout; /* as trp_net_layout() */
};

struct published update_published(const struct trp_update_run *run);

/* As trp_update_report(). */
void update_report(struct trp_update_run *run, const char *name, double value);

static inline const trp_update *update_of_step(const struct trp_update_run *run, uint64_t step)
{
    return &run->steps[step % 2];
}

/* FAILED_PRECONDITION: another optimizer, or one with other options, wrote the checkpoint. */
TRP_MUST_USE trp_status update_check_state(const struct trp_update_run *run,
                                           const trp_checkpoint *checkpoint);

/* The whole state as tensors over its own memory; returns how many. */
size_t update_state(struct trp_update_run *run, trp_checkpoint_tensor tensors[UPDATE_TENSORS_MAX]);

#endif
