/* A learner's checkpoints: files learner-<steps>.safetensors in one directory. */
#ifndef TRP_LEARNER_SAVE_H
#define TRP_LEARNER_SAVE_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/publisher.h>
#include "update.h"

/* What a checkpoint has besides the update's tensors and the clients' counts. */
struct learner_progress {
    uint64_t steps, version;
};

/* Makes `dir` when it is missing. With `fresh`, FAILED_PRECONDITION when there are checkpoints in
 * it already: they are another run's. */
TRP_MUST_USE trp_status save_prepare(const char *dir, bool fresh);

/* Writes the checkpoint of progress->steps and removes all but the newest ones. */
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
