/* Pages of data.mdb that exist: a helper thread allocates and populates them ahead of the writer.
 * Owner: the store's thread; `watermark` is what the two share. */
#ifndef TRP_REPLAY_DISK_SPACE_H
#define TRP_REPLAY_DISK_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include "core/clock.h"

struct space;

struct space_options {
    int fd;       /* of data.mdb; stays the caller's, outlives the space */
    uint8_t *map; /* where page 0 is mapped writable; NULL: allocate only */
    size_t page_bytes;
    uint64_t first; /* pages below this exist already */
    uint64_t limit; /* pages at or beyond this never will */
};

/* Starts the helper. Allocates nothing yet. */
trp_status space_create(struct space **out, const struct space_options *options);

/* Stops the helper. NULL is fine. */
void space_destroy(struct space *space);

/* Every page below this one is allocated and stays so. Any thread. */
uint64_t space_watermark(const struct space *space);

/* The helper aims at `page`; never waits. A higher aim stands. */
void space_want(struct space *space, uint64_t page);

/* Sees to it, or waits, that the watermark reaches `page`. False: the deadline passed, or the file
 * system (or the limit) refuses, now: when it refused a moment ago it is not asked again. */
bool space_wait(struct space *space, uint64_t page, struct deadline deadline);

/* The errno of the last refusal; 0: none since the watermark last rose. */
int space_error(struct space *space);

#endif
