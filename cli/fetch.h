/* The items of a table whole, one after the other, as they were inserted. */
#ifndef TRP_CLI_FETCH_H
#define TRP_CLI_FETCH_H

#include <troupe/item.h>
#include "core/buffer.h"
#include "replay_target.h"

struct item_fetch {
    const struct target *target;
    Troupe__ReplayFetchRequest request;
    trp_item_reader *reader;
    Troupe__ReplayFetchRest rest; /* of the item that comes in parts */
    struct buffer part;           /* what has come of it */
    bool asked, more;             /* the server has more than what the reader holds */
};

/* `filter` may be NULL and is borrowed. */
void fetch_open(struct item_fetch *fetch, const struct target *target, const char *table,
                Troupe__ReplayFilter *filter);

/* `*more` false: that was all. `item` is valid until the next call. UNIMPLEMENTED: see
 * trp_item_reader_next(). INTERNAL: an answer brings nothing new, or an item in tiny parts;
 * DEADLINE_EXCEEDED: answers come, and no item with them, for as long as one answer may take. */
TRP_MUST_USE trp_status fetch_next(struct item_fetch *fetch, trp_item_data *item, bool *more);
void fetch_close(struct item_fetch *fetch);

#endif
