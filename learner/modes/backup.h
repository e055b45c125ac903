/* The state as it was after the last whole step: of vectors on their device, and what the updater
 * has beside them. */
#ifndef TRP_LEARNER_MODES_BACKUP_H
#define TRP_LEARNER_MODES_BACKUP_H

#include "vectors.h"

/* A piece of it and its copy. */
struct backup_piece {
    void *original, *copy;
    size_t bytes;
};

enum {
    BACKUP_PIECES_MAX =
        TRP_UPDATER_VECTORS_MAX * (4 + TRP_OPTIMIZER_STATES_MAX) + TRP_UPDATER_TENSORS_MAX + 1,
};

struct backup {
    const struct vectors *vectors;
    struct backup_piece pieces[BACKUP_PIECES_MAX];
    size_t count, on_device; /* the first so many are the device's */
    bool taken;
};

/* Zeroed. `rng` and the updater's tensors stay where they are. RESOURCE_EXHAUSTED: the device has
 * no memory. */
TRP_MUST_USE trp_status backup_create(struct backup *backup, const struct vectors *vectors,
                                      trp_updater *updater, trp_rng *rng);
/* More memory of the host; none is fine. It stays where it is. */
void backup_add_memory(struct backup *backup, const void *original, size_t bytes);
void backup_cleanup(struct backup *backup); /* zeroed is fine */

/* On the vectors' queue, but for what the updater has, which is copied at once. */
void backup_take(struct backup *backup);
void backup_restore(struct backup *backup);

/* Of a tensor. */
size_t tensor_bytes(const trp_checkpoint_tensor *tensor);

#endif
