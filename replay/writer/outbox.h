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

struct outbox;

/* Room for `capacity` items over `history`, which is borrowed; `tuned`: its groups learn from
 * items.
 */
struct outbox *outbox_create(struct history *history, uint32_t capacity, bool tuned);
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

void outbox_set_policy_version(struct outbox *outbox, uint64_t version); /* of items to come */

uint32_t outbox_unconfirmed(const struct outbox *outbox); /* unsent ones included */
uint32_t outbox_unsent(const struct outbox *outbox);
bool outbox_full(const struct outbox *outbox);
uint64_t outbox_confirmed(const struct outbox *outbox);

/* Unsent items whose chunks are all closed. Never more than the ones before the first that is not.
 */
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

/* Keys of an InsertStreamResponse. Unknown and repeated ones are ignored. INVALID_ARGUMENT:
 * malformed. */
trp_status outbox_confirm(struct outbox *outbox, trp_bytes response);

#endif
