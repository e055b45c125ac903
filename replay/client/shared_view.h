/* A client's view of a server's data.mdb: pages that it was told of, and its lease on them. It
 * opens no environment, takes no lock and begins no transaction. One thread. */
#ifndef TRP_REPLAY_CLIENT_SHARED_VIEW_H
#define TRP_REPLAY_CLIENT_SHARED_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <troupe/status.h>
#include "replay/wire/shared_wire.h"

struct shared_view;

/* Maps the files that the server named. Any status: not here, not ours to read, another's. */
trp_status shared_view_open(struct shared_view **out, const struct shared_welcome *welcome);
void shared_view_close(struct shared_view *view); /* NULL is fine */

const struct shared_layout *shared_view_layout(const struct shared_view *view);

/* Page `index` of numbers as they are in a message, unaligned. */
static inline uint64_t shared_page(const uint8_t *pages, size_t index)
{
    uint64_t page;
    memcpy(&page, pages + index * sizeof page, sizeof page);
    return page;
}

/* The piece in a page, which may change under our eyes once the lease is over: copy it, ask
 * shared_view_valid(), and only then believe it. NULL: the file has no such page. */
const uint8_t *shared_view_piece(struct shared_view *view, uint64_t page);

/* Has this client compared the chunk that begins in this page of an earlier life with its sum? Such
 * a page is never another chunk's that is to be compared. */
bool shared_view_compared(const struct shared_view *view, uint64_t page);
void shared_view_set_compared(struct shared_view *view, uint64_t page);

/* Copies pages (their numbers as in a message) to `out`, by reads: in a table that is
 * larger than memory a page that is mapped costs more to take and to give up than to copy.
 * INVALID_ARGUMENT: the file has no such page. */
trp_status shared_view_read(struct shared_view *view, const uint8_t *pages, uint32_t count,
                            uint8_t *out);

/* True: the bytes read of pieces so far are those that the server named. */
bool shared_view_valid(const struct shared_view *view);

#endif
