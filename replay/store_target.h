/* A new data.mdb, written once from front to back from a copy of a store. One thread, any. */
#ifndef TRP_REPLAY_STORE_TARGET_H
#define TRP_REPLAY_STORE_TARGET_H

#include "store_copy.h"

struct store_target;

/* `dir` exists and is empty. */
trp_status store_target_create(struct store_target **out, const char *dir);

/* As struct copy_sink wants it; `target` is its argument. RESOURCE_EXHAUSTED: no room. */
trp_status store_target_item(void *target, uint64_t seq, trp_bytes record);
trp_status store_target_piece(void *target, uint64_t seq, uint32_t piece, trp_bytes bytes);

/* Adds tables, counters and numbers, and syncs; the bytes of the file. */
trp_status store_target_finish(struct store_target *target, const struct store_copy *copy,
                               uint64_t *bytes);

/* Closes; the files stay. NULL is fine. */
void store_target_destroy(struct store_target *target);

#endif
