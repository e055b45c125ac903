/* Pages of a mapping, before they are touched. */
#ifndef TRP_CORE_MAPPED_H
#define TRP_CORE_MAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* Are these in memory, of which the first page tells? */
static inline bool pages_resident(uint8_t *first, size_t page_bytes)
{
    unsigned char resident = 0;
    return mincore(first, page_bytes, &resident) == 0 && resident & 1;
}

/* Pages that the disk is asked for, neighbours in one call. A zeroed struct is the beginning. */
struct page_run {
    uint8_t *first, *end;
};

static inline void page_run_ask(struct page_run *run)
{
    if (run->end > run->first)
        madvise(run->first, (size_t)(run->end - run->first), MADV_WILLNEED);
    *run = (struct page_run){0};
}

static inline void page_run_add(struct page_run *run, uint8_t *page, size_t page_bytes)
{
    if (page != run->end) {
        page_run_ask(run);
        run->first = page;
    }
    run->end = page + page_bytes;
}

#endif
