#include "mapped.h"

#include <sys/mman.h>

bool pages_resident(uint8_t *first, size_t page_bytes)
{
    unsigned char resident = 0;
    return mincore(first, page_bytes, &resident) == 0 && resident & 1;
}

void page_run_ask(struct page_run *run)
{
    if (run->end > run->first)
        madvise(run->first, (size_t)(run->end - run->first), MADV_WILLNEED);
    *run = (struct page_run){0};
}

void page_run_add(struct page_run *run, uint8_t *page, size_t page_bytes)
{
    if (page != run->end) {
        page_run_ask(run);
        run->first = page;
    }
    run->end = page + page_bytes;
}
