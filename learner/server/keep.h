/* A shard on disk: a checkpoint, and the messages that it took since, which are appended before
 * they are answered. The shard after a restart is the one that takes the same messages again. */
#ifndef TRP_LEARNER_SERVER_KEEP_H
#define TRP_LEARNER_SERVER_KEEP_H

#include "shard.h"

struct shard_keep {
    char *checkpoint, *log; /* paths; NULL: nothing is kept */
    bool logs;              /* else checkpoints alone are written */
    int fd;                 /* of the log; -1: the next record begins one */
    uint64_t number;        /* of the checkpoint */
    uint64_t log_number;    /* of the log: that of the checkpoint that it was begun behind */
    uint64_t bytes;         /* in the log, as whole records; 0: it has to be begun */
    bool torn;              /* there may be others behind them */
    uint64_t changes;       /* since the checkpoint */
    uint64_t covered[2];    /* by the checkpoint that was loaded: a log, and so many bytes of it */
    uint64_t failed_at;     /* bytes or changes when the last checkpoint could not be written */
};

/* What a log has. */
enum keep_kind { KEEP_PUSH, KEEP_JOIN, KEEP_LEAVE };

/* Where files of `vector` are in `dir`; NULL: nothing is kept. */
void keep_init(struct shard_keep *keep, const char *dir, const char *vector, bool logs);
void keep_cleanup(struct shard_keep *keep); /* zeroed is fine */

/* Whether what a shard takes is appended to a log. */
static inline bool keep_logs(const struct shard_keep *keep)
{
    return keep->log && keep->logs;
}

/* Makes of a shard with the right options the one that was kept; *found: there was one. Its log is
 * taken with the rule and the optimizer of the life that wrote it, which the shard has changed by
 * then. `steps` are those that pushes told of. DATA_LOSS: files are damaged. FAILED_PRECONDITION:
 * they are of another shard, or of an optimizer without a state that this one has. As the disk
 * fails. Files are as they were then. */
TRP_MUST_USE trp_status keep_load(struct shard_keep *keep, struct param_shard *shard,
                                  uint64_t *steps, bool *found);

/* Before it is done. Fails as the disk does, then nothing was appended. */
TRP_MUST_USE trp_status keep_append(struct shard_keep *keep, enum keep_kind kind,
                                    const struct shard_push *push, uint64_t new_steps);

/* Writes a checkpoint where one is due, or always: with `now`. After one that failed the next one
 * is due when there is as much to write again; what was appended stays in the log. */
TRP_MUST_USE trp_status keep_save(struct shard_keep *keep, const struct param_shard *shard,
                                  uint64_t steps, bool now);

#endif
