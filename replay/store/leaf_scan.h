/* All entries of a tree, read from its pages in the map: several times faster than a cursor. */
#ifndef TRP_REPLAY_STORE_LEAVES_H
#define TRP_REPLAY_STORE_LEAVES_H

#include "internal.h"

/* `value`: its first bytes, as many as there are in one page. */
typedef trp_status leaf_scan_visit(void *arg, uint64_t key, trp_bytes value);

/* In ascending order of the keys; the first failure ends it. The snapshot is that of read_txn. */
trp_status leaf_scan_run(struct store *store, enum store_tree tree, leaf_scan_visit *visit,
                         void *arg);

#endif
