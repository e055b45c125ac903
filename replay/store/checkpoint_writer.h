/* A new data.mdb, written once from front to back from a copy of a store. One thread, any. */
#ifndef TRP_REPLAY_STORE_TARGET_H
#define TRP_REPLAY_STORE_TARGET_H

#include "copy.h"

struct checkpoint_writer;

/* `dir` exists and is empty; the store that is copied has `file_bytes`. */
trp_status checkpoint_writer_create(struct checkpoint_writer **out, const char *dir,
                                    uint64_t file_bytes);

/* As struct copy_sink wants it; `target` is its argument. RESOURCE_EXHAUSTED: no room. */
trp_status checkpoint_writer_item(void *target, uint64_t seq, trp_bytes record, bool doubtful);
trp_status checkpoint_writer_piece(void *target, uint64_t seq, uint32_t piece, trp_bytes bytes);
trp_status checkpoint_writer_removed(void *target, uint64_t number, trp_bytes records);

/* Logs the first of them, and goes on. */
trp_status checkpoint_writer_damage(void *target, uint32_t table_id, uint64_t key,
                                    const char *what);

struct checkpoint_writer_stats {
    uint64_t bytes;          /* of the file */
    uint64_t items, damaged; /* that are in it, and that were left out */
};

/* Leaves out what is damaged, adds tables, counters and numbers, and syncs. DATA_LOSS: too much is
 * damaged to say what. */
trp_status checkpoint_writer_finish(struct checkpoint_writer *target, const struct store_copy *copy,
                                    struct checkpoint_writer_stats *stats);

/* Closes; the files stay. NULL is fine. */
void checkpoint_writer_destroy(struct checkpoint_writer *target);

#endif
