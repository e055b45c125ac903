/* A list for each size in units. */
#include "spares.h"

#include <stdlib.h>

#include "alloc.h"

struct spare {
    struct spare *next;
};

static size_t spare_units(size_t size)
{
    return size ? (size + SPARE_UNIT_BYTES - 1) / SPARE_UNIT_BYTES : 1;
}

void *spares_take(struct spares *spares, size_t size)
{
    size_t units = spare_units(size);
    struct spare *spare = units < SPARE_CLASSES ? spares->free[units] : NULL;
    if (!spare)
        return xmalloc(units * SPARE_UNIT_BYTES);
    spares->free[units] = spare->next;
    spares->bytes -= units * SPARE_UNIT_BYTES;
    return spare;
}

void spares_give(struct spares *spares, void *memory, size_t size, size_t most)
{
    size_t units = spare_units(size), bytes = units * SPARE_UNIT_BYTES;
    struct spare *spare = memory;
    if (!spare || units >= SPARE_CLASSES || spares->bytes + bytes > most) {
        free(memory);
        return;
    }
    spare->next = spares->free[units];
    spares->free[units] = spare;
    spares->bytes += bytes;
}

void spares_cleanup(struct spares *spares)
{
    for (size_t units = 0; units < SPARE_CLASSES; units++) {
        for (struct spare *next, *spare = spares->free[units]; spare; spare = next) {
            next = spare->next;
            free(spare);
        }
    }
    *spares = (struct spares){0};
}
