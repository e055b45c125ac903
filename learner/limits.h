/* Bounds of learner/ that are no option, with their arithmetic. */
#ifndef TRP_LEARNER_LIMITS_H
#define TRP_LEARNER_LIMITS_H

#include <stdint.h>

enum {
    /* publisher.c: clients of one learner, and their names ("actor/65535"). */
    PARAMS_CLIENTS_MAX = 65536,
    PARAMS_CLIENT_NAME_BYTES_MAX = 127,
    /* client_table.c: what one client did, 2^this: at 10^6 steps/s in two years; the sum over all
     * clients is one of 62 bits. */
    PARAMS_COUNT_BITS = 46,
    /* publisher.c: parameters in one reply: a part is copied while it is in a cache, others are on
     * their way meanwhile, and a call's 50 us are little beside its millisecond. A version that is
     * pulled in parts is kept until its last part is, or for so long after the one before; so many
     * of them, besides the newest. */
    PARAMS_PART_BYTES = 2 << 20,
    PARAMS_LEND_MS = 10000,
    PARAMS_LENT_MAX = 2,
    /* publisher.c: counts in one pull of a cache: 150 KB without statistics. */
    PARAMS_CARRIED_MAX = 1024,
    /* publisher.c: of all clients' environments together, 24 bytes each: 96 MiB. */
    PARAMS_STATISTICS_MAX = 1 << 22,
    /* learner.c: one wait for a batch or for the answer to priorities before the stop is looked
     * at, and how long a missing replay server is waited for. */
    LEARNER_WAIT_MS = 200,
    LEARNER_PRIORITY_MS = 1000,
    LEARNER_REPLAY_GIVE_UP_MS = 60000,
    LEARNER_RETRY_MS = 50,
    /* learner.c: requests with priorities on their way: the server answers within a step or two. */
    LEARNER_PRIORITY_WINDOW = 8,
    /* learner.c: more versions than are published between two checkpoints (a minute at 17 000
     * steps/s, each published): after a restart no number is used for another vector. */
    LEARNER_VERSION_GAP = 1 << 20,
    /* learner.c: how long a learner of a group waits for a batch before it takes part without. */
    LEARNER_GROUP_WAIT_MS = 1000,
    /* learner.c: the same of a source that acts: half of an operation's time. */
    LEARNER_ACTING_WAIT_MS = 15000,
    /* learner.c: where half of the time of an operation of the group is latency: 90 us at 2.5 GB/s
     * are 225 KB; a bucket is a few times that. One line at least. */
    LEARNER_BUCKET_BYTES = 1 << 20,
    LEARNER_BUCKET_BYTES_MIN = 64,
    LEARNER_PREFETCH = 2,
    LEARNER_PREFETCH_MAX = 64,
    /* sampler_source.c: a thread and a stream each. */
    LEARNER_SHARDS_MAX = 256,
    LEARNER_SHARD_WAIT_MS = 20, /* for one of those that all have nothing */
    /* sampler_source.c: at the start, for all servers together: who is up answers in milliseconds.
     */
    LEARNER_SHARD_FIND_MS = 1000,
    LEARNER_PUBLISH_EVERY = 10,
    /* saver.c: the first checkpoint of a life, and how far they are apart at most. */
    LEARNER_CHECKPOINT_FIRST_MS = 1000,
    LEARNER_CHECKPOINT_EVERY_MS = 60000,
    /* gang.c: a member that lives answers within a step and what it waits for in it; starting is
     * mapping libraries, loading a checkpoint, finding a device. */
    GANG_SILENCE_MS = 10000,
    GANG_START_MS = 60000,
    /* gang.c: a generation that lived so long was no failure; so many that did not, one after the
     * other, with all their members there, are one. */
    GANG_HELD_MS = 60000,
    GANG_BREAKS_MAX = 5,
    /* save.c: the newest one, and one before it in case it cannot be read. */
    LEARNER_CHECKPOINTS_KEPT = 2,
};

#endif
