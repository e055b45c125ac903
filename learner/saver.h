/* Writes a learner's checkpoints beside the learner, which waits for one copy of its state. */
#ifndef TRP_LEARNER_SAVER_H
#define TRP_LEARNER_SAVER_H

#include "core/background.h"
#include "save.h"

/* One thread's. A zeroed one has begun nothing. */
struct saver {
    struct background background;
    bool started;       /* its thread runs */
    struct saved saved; /* the thread's while `steps` > 0 */
    char *dir;
    uint64_t steps;       /* of the checkpoint that is being written; 0: none is */
    uint64_t saved_steps; /* of the last one that is on the disk, or of the state at the start */
    uint64_t written;     /* checkpoints */
};

/* Until the next checkpoint of a life that is `age_ms` old: a life is saved as often as it doubles,
 * so that a young one that ends is not all lost, until that is seldom. */
int64_t saver_interval_ms(int64_t age_ms);

/* Waits for what is being written, and gives up the thread. */
void saver_cleanup(struct saver *saver);

/* Begins to write the state as it is, once the one before is written. In a deterministic run it is
 * on the disk when this returns, and there is no thread. */
TRP_MUST_USE trp_status saver_begin(struct saver *saver, struct trp_update_run *update,
                                    trp_publisher *publisher,
                                    const struct learner_progress *progress);

bool saver_is_busy(struct saver *saver);

/* Takes note of what has been written. The failure of what could not be. Waits for nothing. */
TRP_MUST_USE trp_status saver_check(struct saver *saver);

/* The same, and waits. */
TRP_MUST_USE trp_status saver_wait(struct saver *saver);

/* Waits for what is being written, and writes this state. A failure of the former is logged if the
 * latter is on the disk. */
TRP_MUST_USE trp_status saver_finish(struct saver *saver, struct trp_update_run *update,
                                     trp_publisher *publisher,
                                     const struct learner_progress *progress);

#endif
