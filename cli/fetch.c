/* Pages of troupe.Replay's Fetch, decoded item by item. */
#include "fetch.h"

#include <stdlib.h>

#include "core/alloc.h"

void fetch_open(struct fetch *fetch, const struct target *target, const char *table,
                Troupe__ReplayFilter *filter)
{
    *fetch = (struct fetch){.target = target, .reader = trp_item_reader_create(), .more = true};
    troupe__replay_fetch_request__init(&fetch->request);
    fetch->request.table = (char *)(uintptr_t)table;
    fetch->request.filter = filter;
}

static trp_status fetch_page(struct fetch *fetch)
{
    ProtobufCMessage *reply = NULL;
    TRP_TRY(target_call(fetch->target, "Fetch", &fetch->request.base, &reply));
    Troupe__ReplayFetchResponse *page = (Troupe__ReplayFetchResponse *)reply;
    trp_status status =
        trp_item_reader_feed(fetch->reader, (trp_bytes){page->samples.data, page->samples.len});
    if (status == TRP_OK && page->more && page->last <= fetch->request.after && fetch->asked)
        status = trp_fail(TRP_INTERNAL, "%s sends the same items again", fetch->target->text);
    fetch->asked = true;
    fetch->request.after = page->last;
    fetch->more = page->more;
    protobuf_c_message_free_unpacked(reply, NULL);
    return status;
}

/* Damage is told with what finds out all of it. */
static trp_status damage_told(const struct fetch *fetch, trp_status status)
{
    if (status != TRP_DATA_LOSS)
        return status;
    char *why = xstrdup(trp_last_error());
    trp_fail(status, "%s; `troupe replay verify %s` says which items are damaged", why,
             fetch->target->text);
    free(why);
    return status;
}

static trp_status item_next(struct fetch *fetch, trp_item_data *item, bool *more)
{
    for (;;) {
        TRP_TRY(trp_item_reader_next(fetch->reader, item, more));
        if (*more || !fetch->more)
            return TRP_OK;
        TRP_TRY(fetch_page(fetch));
    }
}

trp_status fetch_next(struct fetch *fetch, trp_item_data *item, bool *more)
{
    return damage_told(fetch, item_next(fetch, item, more));
}

void fetch_close(struct fetch *fetch)
{
    trp_item_reader_destroy(fetch->reader);
}
