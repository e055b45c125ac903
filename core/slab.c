/* A replay table of ten million items is twenty million objects of 50 to 400 bytes that come and go
 * in the order of a queue, or in none. malloc pays 16 bytes and 20 to 60 ns for each. Here a size
 * has a list of free pieces, and a piece is cut from a block when the list is empty. Blocks are
 * small at first and large later, so that they are huge pages where there are many.
 *
 * Under AddressSanitizer every object is malloc's, or use after free would go unseen. */
#include "slab.h"

#include <stdlib.h>

#include "alloc.h"

enum { BLOCK_FIRST = 64 << 10, BLOCK_LAST = 16 << 20 };

struct slab_free {
    struct slab_free *next;
};

struct slab_block {
    _Alignas(SLAB_STEP) struct slab_block *next;
};

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* 0: malloc's. */
static size_t steps_of(size_t size)
{
#ifdef __SANITIZE_ADDRESS__
    (void)size;
    return 0;
#else
    return size <= SLAB_BYTES_MAX ? (size + SLAB_STEP - 1) / SLAB_STEP : 0;
#endif
}

static void add_block(struct slabs *slabs)
{
    size_t size = slabs->bytes < BLOCK_FIRST ? BLOCK_FIRST : slabs->bytes;
    size = size < BLOCK_LAST ? size : BLOCK_LAST;
    struct slab_block *block = xaligned(size < HUGE_PAGE ? SLAB_STEP : HUGE_PAGE, size);
    block->next = slabs->blocks;
    slabs->blocks = block;
    slabs->bytes += size;
    slabs->at = (uint8_t *)(block + 1);
    slabs->end = (uint8_t *)block + size;
}

void *slab_take(struct slabs *slabs, size_t size)
{
    size_t steps = steps_of(size);
    if (steps == 0)
        return xmalloc(size);
    struct slab_free *piece = slabs->free[steps];
    if (piece) {
        slabs->free[steps] = piece->next;
        return piece;
    }
    if ((size_t)(slabs->end - slabs->at) < steps * SLAB_STEP)
        add_block(slabs);
    void *memory = slabs->at;
    slabs->at += steps * SLAB_STEP;
    return memory;
}

void slab_give(struct slabs *slabs, void *memory, size_t size)
{
    size_t steps = steps_of(size);
    struct slab_free *piece = memory;
    if (steps == 0 || !memory) {
        free(memory);
        return;
    }
    piece->next = slabs->free[steps];
    slabs->free[steps] = piece;
}

void slabs_cleanup(struct slabs *slabs)
{
    while (slabs->blocks) {
        struct slab_block *block = slabs->blocks;
        slabs->blocks = block->next;
        free(block);
    }
    *slabs = (struct slabs){.at = NULL};
}
