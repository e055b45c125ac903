/* A learner's checkpoints: files learner-<steps>.safetensors in one directory. */
#ifndef TRP_LEARNER_SAVE_H
#define TRP_LEARNER_SAVE_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/checkpoint.h>
#include <troupe/publisher.h>
#include "core/buffer.h"
#include "update.h"

/* What a checkpoint has besides the update's tensors and the clients' counts. */
struct learner_progress {
    uint64_t steps, version;
    uint64_t generation; /* of a group, which the version is of; 0: of none */
};

/* Makes `dir` when it is missing. With `fresh`, FAILED_PRECONDITION when there are checkpoints in
 * it already: they are another run's. */
TRP_MUST_USE trp_status save_prepare(const char *dir, bool fresh);

/* Of a run that goes on without one. */
void save_tell_none(const char *dir);

/* What a checkpoint has of the publisher's clients. */
struct saved_clients {
    trp_client_counts *counts;
    size_t count;
    uint64_t *steps, *episodes; /* the same as columns */
    trp_moments *statistics;    /* a row each, zeros: none */
    trp_moments *merged;
    size_t statistic_count;
    struct buffer names; /* a line each, NUL at the end */
};

enum { PUBLISHED_BYTES = 48 };

/* All that goes into a file. A zeroed one is empty. */
struct saved {
    trp_checkpoint_tensor tensors[UPDATE_TENSORS_MAX + 7];
    size_t count, state_count; /* those of the update come first */
    struct saved_clients clients;
    struct learner_progress progress;
    char published[PUBLISHED_BYTES];
    const char *layout; /* the update's */
    uint8_t *copy;      /* of those of the update; kept for the next one */
    size_t room;
};

/* The state as it is now; tensors of the update stay in its memory, until they are copied.
 * RESOURCE_EXHAUSTED: no memory for a copy. */
void saved_gather(struct saved *saved, struct trp_update_run *update, trp_publisher *publisher,
                  const struct learner_progress *progress);
TRP_MUST_USE trp_status saved_copy(struct saved *saved);
void saved_cleanup(struct saved *saved);

/* Writes the checkpoint of its steps and removes all but the newest ones. */
TRP_MUST_USE trp_status saved_put(const struct saved *saved, const char *dir);

/* All of that, at once. */
TRP_MUST_USE trp_status save_write(const char *dir, struct trp_update_run *update,
                                   trp_publisher *publisher,
                                   const struct learner_progress *progress);

/* Loads the newest checkpoint that can be read into the update and the publisher's counts; one
 * that is damaged is logged and passed over. *found is false when there is none at all.
 * FAILED_PRECONDITION: it belongs to another network or optimizer. DATA_LOSS: all are damaged. */
TRP_MUST_USE trp_status save_load(const char *dir, struct trp_update_run *update,
                                  trp_publisher *publisher, struct learner_progress *progress,
                                  bool *found);

#endif
