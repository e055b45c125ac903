/* A client's view of a server's data.mdb: pages that it was told of, and its lease on them. It
 * opens no environment, takes no lock and begins no transaction. One thread. */
#ifndef TRP_REPLAY_CLIENT_SHARED_VIEW_H
#define TRP_REPLAY_CLIENT_SHARED_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include "replay/wire/shared_wire.h"

struct shared_view;

/* Maps the files that the server named. Any status: they are not here, not ours to read, or not the
 * server's. */
trp_status shared_view_open(struct shared_view **out, const struct shared_welcome *welcome);
void shared_view_close(struct shared_view *view); /* NULL is fine */

size_t shared_view_piece_bytes(const struct shared_view *view);
size_t shared_view_page_bytes(const struct shared_view *view);
size_t shared_view_piece_offset(const struct shared_view *view); /* in a page */

/* Bytes of pages that the server lets us have at a time. */
uint64_t shared_view_window(const struct shared_view *view);

/* The piece in a page, which may change under our eyes once the lease is over: copy it, ask
 * shared_view_valid(), and only then believe it. NULL: the file has no such page. */
const uint8_t *shared_view_piece(struct shared_view *view, uint64_t page);

/* Copies pages (their numbers as in a message, unaligned) to `out`, by reads: in a table that is
 * larger than memory a page that is mapped costs more to take and to give up than to copy.
 * INVALID_ARGUMENT: the file has no such page. */
trp_status shared_view_read(struct shared_view *view, const uint8_t *pages, uint32_t count,
                            uint8_t *out);

/* True: the bytes read of pieces so far are those that the server named. */
bool shared_view_valid(const struct shared_view *view);

#endif
