/* Large buffers for a short time, over and over. Given back to malloc, they would leave the process
 * and come back as page faults. A zeroed struct is empty. One thread at a time. */
#ifndef TRP_CORE_SPARES_H
#define TRP_CORE_SPARES_H

#include <stddef.h>

enum { SPARE_UNIT_BYTES = 4096, SPARE_CLASSES = 256 };

struct spare;

struct spares {
    struct spare *free[SPARE_CLASSES]; /* by size in units */
    size_t bytes;                      /* of all that are kept */
};

/* `size` bytes, not cleared. Those of SPARE_CLASSES units or more come from malloc. */
void *spares_take(struct spares *spares, size_t size);

/* `size` as it was taken; kept unless all would be more than `most` bytes then. NULL is fine. */
void spares_give(struct spares *spares, void *memory, size_t size, size_t most);

void spares_cleanup(struct spares *spares);

#endif
