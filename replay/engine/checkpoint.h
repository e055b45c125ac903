/* Checkpoints of a store while it goes on, and its verification: long work on a thread that may
 * wait, beside a server that may not. */
#ifndef TRP_REPLAY_ENGINE_CHECKPOINT_H
#define TRP_REPLAY_ENGINE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "replay/disk/disk.h"
#include "core/thread.h"
#include "engine.h"

struct checkpointer_options {
    const char *store_dir;
    const char *dir; /* of the checkpoints; NULL: checkpoints/ in the store */
    uint32_t keep;   /* whole ones; older ones are removed after a new one. 0: all */
    struct engine_door door;
};

struct progress {
    const char *what; /* NULL: nothing is going on */
    uint64_t done_bytes, total_bytes;
    int64_t started_ns;
};

struct checkpointer {
    struct checkpointer_options options;
    char *root;
    struct mutex mutex;
    struct cond changed;
    bool busy, stopping; /* under mutex */
    uint32_t waiting;    /* calls that wait for their turn */
    struct progress progress;
};

void checkpointer_init(struct checkpointer *checkpointer,
                       const struct checkpointer_options *options);

/* Work that is going on ends soon with CANCELLED, and so does any that is asked for later. */
void checkpointer_stop(struct checkpointer *checkpointer);
void checkpointer_cleanup(struct checkpointer *checkpointer); /* nothing is going on */
struct progress checkpointer_progress(struct checkpointer *checkpointer);

/* A checkpoint of this moment; its absolute path is the caller's to free. Waits for other work of
 * this kind. `cancelled` is asked between slices; NULL: the caller has a thread of its own, others
 * get UNAVAILABLE when CHECKPOINT_WAITERS_MAX wait. RESOURCE_EXHAUSTED: no room for it;
 * DATA_LOSS: the file's structure is damaged, or too much else; nothing is left behind then. Of
 * single damaged items it goes on without: checkpoint_info.damaged. */
trp_status checkpointer_run(struct checkpointer *checkpointer, bool (*cancelled)(void),
                            char **path);

/* Reads all that the store holds at this moment and compares sums. TRP_OK also if it is damaged. */
trp_status checkpointer_verify(struct checkpointer *checkpointer, bool (*cancelled)(void),
                               trp_replay_report *report);

/* Says how far it is to who watches this thread, see trp_replay_watch(). CANCELLED: to end. */
trp_status watch_tell(uint64_t done, uint64_t total);

#endif
