/* Memory for very many small objects of few sizes: no header, no search, and neighbours in time are
 * neighbours in memory. A block that is given back is used again for its own size, and returns to
 * the system only when all slabs are cleaned up. A zeroed struct is empty. One thread at a time. */
#ifndef TRP_CORE_SLAB_H
#define TRP_CORE_SLAB_H

#include <stddef.h>
#include <stdint.h>

enum { SLAB_STEP = 16, SLAB_BYTES_MAX = 1024 };

struct slab_free;

struct slabs {
    struct slab_free *free[SLAB_BYTES_MAX / SLAB_STEP + 1]; /* by size in steps */
    uint8_t *at, *end;                                      /* of the newest block */
    struct slab_block *blocks;
    size_t bytes; /* of all blocks */
};

/* `size` bytes, not cleared, aligned to 16. More than SLAB_BYTES_MAX come from malloc. */
void *slab_take(struct slabs *slabs, size_t size);

/* `size` as it was taken; NULL is fine. */
void slab_give(struct slabs *slabs, void *memory, size_t size);

/* Frees all blocks, with whatever is still in them. */
void slabs_cleanup(struct slabs *slabs);

#endif
