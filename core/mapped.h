/* Pages of a mapping, before they are touched. */
#ifndef TRP_CORE_MAPPED_H
#define TRP_CORE_MAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Are these in memory, of which the first page tells? */
bool pages_resident(uint8_t *first, size_t page_bytes);

/* Pages that the disk is asked for, neighbours in one call. A zeroed struct is the beginning. */
struct page_run {
    uint8_t *first, *end;
};

/* Adds a page; asks for those before it unless it is their neighbour. */
void page_run_add(struct page_run *run, uint8_t *page, size_t page_bytes);

/* Asks for those that were added, and begins anew. Does not wait for the disk. */
void page_run_ask(struct page_run *run);

#endif
