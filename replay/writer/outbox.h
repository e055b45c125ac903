/* A writer's items between creation and confirmation, and the messages made of them. It owns the
 * encoded items and references to the chunks that they or the server need. One thread. */
#ifndef TRP_REPLAY_WRITER_OUTBOX_H
#define TRP_REPLAY_WRITER_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/writer.h>
#include "history.h"
#include "replay/wire/wire.h"

struct chunk_list {
    struct group_chunk **chunks;
    uint32_t count, capacity;
};

/* outbox.c alone writes it, but for the version. */
struct outbox {
    struct history *history;
    struct outbox_slot *slots;
    uint32_t capacity, window;         /* items that may be here: at most, and now */
    uint64_t mask;                     /* of the ring, a power of two */
    uint64_t first, sent, ready, next; /* serials, from 1 */
    uint32_t unconfirmed;              /* items, unsent ones included */
    uint64_t policy_version;           /* of items to come; the writer's to set */
    uint64_t confirmed;                /* in all */
    uint64_t mark;                     /* ascending: who looked at a chunk last */
    struct chunk_list kept;            /* by the server */
    /* The message made last, until outbox_sent(). */
    struct chunk_list fresh; /* chunks in it */
    uint64_t message_end;    /* serial behind its items */
    /* Scratch. */
    struct wire_keys keys;
    trp_bytes *tables; /* their names, owned, each with a zero behind it */
    uint32_t table_count, table_capacity;
};

/* Room for `capacity` items over `history`, which is borrowed. */
struct outbox *outbox_create(struct history *history, uint32_t capacity);
void outbox_destroy(struct outbox *outbox); /* NULL is fine */

/* How old step `i` of an item's column is. */
static inline uint32_t item_column_age(const trp_item_column *column, uint32_t i)
{
    return column->ages ? column->ages[i] : column->age - i;
}

/* INVALID_ARGUMENT: columns that name no steps of the history, or no priority. */
trp_status outbox_check(const struct outbox *outbox, double priority,
                        const trp_item_column *columns, size_t column_count);

/* Adds an item that was found good; there must be room. */
void outbox_add(struct outbox *outbox, const char *table, double priority,
                const trp_item_column *columns, size_t column_count, uint64_t *key);

uint32_t outbox_unsent(const struct outbox *outbox);
bool outbox_full(const struct outbox *outbox);

/* Unsent items whose chunks are all closed. None behind the first that has another counts. */
uint32_t outbox_ready(struct outbox *outbox);

/* The table of the oldest unconfirmed item; NULL when there is none. */
const char *outbox_table(const struct outbox *outbox);

/* A message of ready items (at least one is), their chunks, those in the history's arena as
 * references, the keys to keep, and a hello (empty: none). Its items count as unsent until
 * outbox_sent(). RESOURCE_EXHAUSTED: no memory. */
trp_status outbox_message(struct outbox *outbox, trp_bytes hello, trp_message **message);

/* The message made last was taken by the transport. */
void outbox_sent(struct outbox *outbox);

/* The stream is gone: everything unconfirmed is to be sent again. */
void outbox_rewind(struct outbox *outbox);

/* Keys of an InsertStreamResponse; unknown and repeated are ignored. INVALID_ARGUMENT: malformed.
 */
trp_status outbox_confirm(struct outbox *outbox, trp_bytes response);

#endif
