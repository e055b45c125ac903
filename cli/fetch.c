/* Pages of troupe.Replay's Fetch, decoded item by item. An item too large for one answer comes in
 * parts, which are put together here: one item at most is in memory, as the server has it and
 * decoded. A server that keeps answering and brings nothing is left. */
#include "fetch.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/words.h"
#include "limits.h"

void fetch_open(struct item_fetch *fetch, const struct target *target, const char *table,
                Troupe__ReplayFilter *filter)
{
    *fetch =
        (struct item_fetch){.target = target, .reader = trp_item_reader_create(), .more = true};
    troupe__replay_fetch_request__init(&fetch->request);
    fetch->request.table = (char *)(uintptr_t)table;
    fetch->request.filter = filter;
}

static trp_status take_samples(struct item_fetch *fetch, trp_bytes samples, bool whole)
{
    if (whole && fetch->part.size == 0)
        return trp_item_reader_feed(fetch->reader, samples);
    if (samples.size > SAMPLE_BYTES_MAX - fetch->part.size)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "an item of more than %zu bytes",
                        (size_t)SAMPLE_BYTES_MAX);
    buffer_append(&fetch->part, samples);
    if (!whole)
        return TRP_OK;
    trp_status status = trp_item_reader_feed(fetch->reader, buffer_bytes(&fetch->part));
    buffer_cleanup(&fetch->part);
    return status;
}

/* The parts of an item begin behind the last whole one, and each goes on where the last ended. */
static bool part_goes_on(const struct item_fetch *fetch, const Troupe__ReplayFetchRest *rest)
{
    const Troupe__ReplayFetchRest *last = &fetch->rest;
    if (fetch->part.size == 0)
        return rest->sequence > fetch->request.after;
    return rest->sequence == last->sequence &&
           (rest->chunks != last->chunks ? rest->chunks > last->chunks : rest->bytes > last->bytes);
}

/* Every answer brings something, or a server could keep us for ever. */
static trp_status page_check(const struct item_fetch *fetch,
                             const Troupe__ReplayFetchResponse *page)
{
    const char *server = fetch->target->text;
    bool goes_on = page->rest ? part_goes_on(fetch, page->rest)
                              : !page->more || page->last > fetch->request.after || !fetch->asked;
    if (!goes_on)
        return trp_fail(TRP_INTERNAL, "%s sends the same items again", server);
    if (page->rest && page->gone)
        return trp_fail(TRP_INTERNAL, "%s sends a part of an item that has gone", server);
    if (page->rest && page->samples.len < FETCH_PART_BYTES_MIN)
        return trp_fail(TRP_INTERNAL,
                        "%s sends a part of %zu bytes, and says that there is more: no server of "
                        "troupe's sends less than %d of a large item",
                        server, page->samples.len, FETCH_PART_BYTES_MIN);
    return TRP_OK;
}

static trp_status fetch_more(struct item_fetch *fetch)
{
    ProtobufCMessage *reply = NULL;
    fetch->request.rest = fetch->part.size ? &fetch->rest : NULL;
    trp_status status = target_call(fetch->target, "Fetch", &fetch->request.base, &reply);
    Troupe__ReplayFetchResponse *page = (Troupe__ReplayFetchResponse *)reply;
    if (status != TRP_OK || page->gone)
        buffer_cleanup(&fetch->part);
    if (status != TRP_OK)
        return status;
    status = page_check(fetch, page);
    if (status == TRP_OK)
        status = take_samples(fetch, (trp_bytes){page->samples.data, page->samples.len},
                              page->rest == NULL);
    status = target_malformed(fetch->target, status);
    troupe__replay_fetch_rest__init(&fetch->rest);
    if (page->rest) {
        fetch->rest.sequence = page->rest->sequence;
        fetch->rest.chunks = page->rest->chunks;
        fetch->rest.bytes = page->rest->bytes;
    }
    fetch->asked = true;
    fetch->request.after = page->last;
    fetch->more = page->more || page->rest;
    protobuf_c_message_free_unpacked(reply, NULL);
    return status;
}

/* Damage is told with what finds out all of it. */
static trp_status damage_told(const struct item_fetch *fetch, trp_status status)
{
    if (status != TRP_DATA_LOSS)
        return status;
    char *target = shell_word(fetch->target->text);
    trp_fail(status, "%s; `troupe replay verify %s` says which items are damaged", trp_last_error(),
             target);
    free(target);
    return status;
}

/* By when there is an item, or a part of one: answers that bring neither may go on for ever. */
static struct deadline fetch_deadline(const struct item_fetch *fetch)
{
    return deadline_in_ms(&clock_monotonic, target_answer_ms(fetch->target));
}

static trp_status item_next(struct item_fetch *fetch, trp_item_data *item, bool *more)
{
    struct deadline until = fetch_deadline(fetch);
    for (;;) {
        TRP_TRY(target_malformed(fetch->target, trp_item_reader_next(fetch->reader, item, more)));
        if (*more || !fetch->more)
            return TRP_OK;
        if (deadline_passed(until, &clock_monotonic))
            return trp_fail(TRP_DEADLINE_EXCEEDED, "%s: no item came in %g s, in many answers",
                            fetch->target->text, (double)target_answer_ms(fetch->target) / 1000);
        TRP_TRY(fetch_more(fetch));
        if (fetch->part.size > 0)
            until = fetch_deadline(fetch);
    }
}

trp_status fetch_next(struct item_fetch *fetch, trp_item_data *item, bool *more)
{
    return damage_told(fetch, item_next(fetch, item, more));
}

void fetch_close(struct item_fetch *fetch)
{
    trp_item_reader_destroy(fetch->reader);
    buffer_cleanup(&fetch->part);
}
