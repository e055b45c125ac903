/* Items wait here for their chunks, for company in a message, and for their confirmation.
 *
 * A ring of slots in the order of creation: [first, sent) went out, [sent, ready) have all their
 * chunks closed, [ready, next) wait for one. An item is encoded when it is created, into memory
 * that its slot keeps; a message is then copies of items plus the chunks that the server does not
 * have, written backwards straight into the message. Peers confirm in almost the order of sending,
 * so a key is found by looking from the oldest on.
 *
 * After a message the server drops every chunk that its keep_chunk_keys do not name, and fails the
 * stream when one is named that it does not have. So `kept` is exactly what the server has: chunks
 * that were sent and that a later item may still refer to, because they are in the history or an
 * unsent item names them. */
#include "outbox.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/limits.h"
#include "wire_parts.h"

struct slot {
    uint64_t key;
    const char *table; /* interned */
    bool confirmed;
    struct history_chunk **chunks;
    uint32_t chunk_count, chunk_capacity;
    uint8_t *bytes; /* the item as field 2 */
    size_t size, capacity;
};

struct chunk_list {
    struct history_chunk **chunks;
    uint32_t count, capacity;
};

struct outbox {
    struct history *history;
    struct slot *slots;
    uint32_t capacity;
    uint64_t first, sent, ready, next; /* serials, from 1 */
    uint32_t unconfirmed;
    uint64_t confirmed;
    uint64_t mark; /* ascending: who looked at a chunk last */
    struct chunk_list kept;
    /* The message made last, until outbox_sent(). */
    struct chunk_list fresh; /* chunks in it */
    uint64_t message_end;    /* serial behind its items */
    /* Scratch. */
    struct wire_lists lists;
    struct wire_keys keys;
    char **tables;
    size_t table_count;
};

static struct slot *slot_at(const struct outbox *outbox, uint64_t serial)
{
    return &outbox->slots[serial % outbox->capacity];
}

static void list_push(struct chunk_list *list, struct history_chunk *chunk)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        list->chunks = xrealloc(list->chunks, list->capacity * sizeof *list->chunks);
    }
    list->chunks[list->count++] = chunk;
}

/* ---- items ----------------------------------------------------------------------------------- */

static const char *intern_table(struct outbox *outbox, const char *table)
{
    for (size_t i = 0; i < outbox->table_count; i++)
        if (strcmp(outbox->tables[i], table) == 0)
            return outbox->tables[i];
    outbox->tables = xrealloc(outbox->tables, (outbox->table_count + 1) * sizeof *outbox->tables);
    outbox->tables[outbox->table_count] = xstrdup(table);
    return outbox->tables[outbox->table_count++];
}

static void slot_add_chunk(struct outbox *outbox, struct slot *slot, struct history_chunk *chunk)
{
    if (chunk->seen_by == outbox->mark)
        return;
    chunk->seen_by = outbox->mark;
    if (slot->chunk_count == slot->chunk_capacity) {
        slot->chunk_capacity = slot->chunk_capacity ? 2 * slot->chunk_capacity : 4;
        slot->chunks = xrealloc(slot->chunks, slot->chunk_capacity * sizeof(slot->chunks[0]));
    }
    slot->chunks[slot->chunk_count++] = chunk;
}

static trp_status check_column(const struct outbox *outbox, const trp_item_column *column)
{
    if (column->column >= history_columns(outbox->history))
        return trp_fail(TRP_INVALID_ARGUMENT, "item: column %u of %zu columns", column->column,
                        history_columns(outbox->history));
    uint32_t steps = history_size(outbox->history);
    if (column->length == 0 || column->age >= steps || column->length > column->age + 1)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "item: column %u wants %u steps from age %u on, the history has %u",
                        column->column, column->length, column->age, steps);
    if (column->squeeze && column->length != 1)
        return trp_fail(TRP_INVALID_ARGUMENT, "item: column %u squeezes %u steps", column->column,
                        column->length);
    return TRP_OK;
}

/* One slice for each run of steps in one chunk. */
static void push_slices(struct outbox *outbox, struct slot *slot, const trp_item_column *column)
{
    wire_push_column(&outbox->lists)->squeeze = column->squeeze;
    struct history_chunk *last = NULL;
    for (uint32_t i = 0; i < column->length; i++) {
        uint32_t row;
        struct history_chunk *chunk = history_find(outbox->history, column->age - i, &row);
        if (chunk == last) {
            outbox->lists.slices[outbox->lists.slice_count - 1].length++;
            continue;
        }
        *wire_push_slice(&outbox->lists) = (struct wire_slice){
            .chunk_key = chunk->key,
            .offset = (int32_t)row,
            .length = 1,
            .index = (int32_t)column->column,
        };
        slot_add_chunk(outbox, slot, chunk);
        last = chunk;
    }
}

static void slot_encode(struct outbox *outbox, struct slot *slot, const struct wire_item *item)
{
    size_t size = wire_item_size(&outbox->lists, item);
    if (size > slot->capacity) {
        slot->capacity = size;
        slot->bytes = xrealloc(slot->bytes, size);
    }
    slot->size = size;
    struct writer writer = {.at = slot->bytes + size, .start = slot->bytes};
    put_item(&writer, 2, &outbox->lists, item);
    assert(writer.at == slot->bytes);
}

trp_status outbox_add(struct outbox *outbox, const char *table, double priority,
                      const trp_item_column *columns, size_t column_count, uint64_t *key)
{
    assert(!outbox_full(outbox));
    if (priority != priority)
        return trp_fail(TRP_INVALID_ARGUMENT, "item: priority is not a number");
    if (column_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "item: no columns");
    for (size_t i = 0; i < column_count; i++)
        TRP_TRY(check_column(outbox, &columns[i]));

    uint64_t serial = outbox->next++;
    struct slot *slot = slot_at(outbox, serial);
    slot->key = history_draw_key(outbox->history);
    slot->table = intern_table(outbox, table);
    slot->confirmed = false;
    slot->chunk_count = 0;
    outbox->mark++;
    outbox->unconfirmed++;
    wire_lists_clear(&outbox->lists);
    struct wire_item *item = wire_push_item(&outbox->lists);
    item->key = slot->key;
    item->table = (trp_bytes){(const uint8_t *)slot->table, strlen(slot->table)};
    item->priority = priority;
    for (size_t i = 0; i < column_count; i++)
        push_slices(outbox, slot, &columns[i]);
    for (uint32_t i = 0; i < slot->chunk_count; i++) {
        history_ref(slot->chunks[i]);
        slot->chunks[i]->last_item = serial;
    }
    slot_encode(outbox, slot, item);
    if (key)
        *key = slot->key;
    return TRP_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool slot_is_ready(const struct slot *slot)
{
    for (uint32_t i = 0; i < slot->chunk_count; i++)
        if (!slot->chunks[i]->closed)
            return false;
    return true;
}

uint32_t outbox_ready(struct outbox *outbox)
{
    while (outbox->ready < outbox->next && slot_is_ready(slot_at(outbox, outbox->ready)))
        outbox->ready++;
    while (outbox->sent < outbox->ready && slot_at(outbox, outbox->sent)->confirmed)
        outbox->sent++; /* on an earlier stream, out of order */
    return (uint32_t)(outbox->ready - outbox->sent);
}

/* Chooses items from the oldest unsent on, up to a message's size, and lists their unsent chunks;
 * the bytes of both. */
static size_t choose_items(struct outbox *outbox)
{
    size_t size = 0;
    outbox->fresh.count = 0;
    outbox->mark++;
    uint64_t serial = outbox->sent;
    for (; serial < outbox->ready && size < WRITER_MESSAGE_BYTES; serial++) {
        const struct slot *slot = slot_at(outbox, serial);
        if (slot->confirmed)
            continue;
        size += slot->size;
        for (uint32_t i = 0; i < slot->chunk_count; i++) {
            struct history_chunk *chunk = slot->chunks[i];
            if (chunk->sent || chunk->seen_by == outbox->mark)
                continue;
            chunk->seen_by = outbox->mark;
            list_push(&outbox->fresh, chunk);
            size += chunk->wire_size;
        }
    }
    outbox->message_end = serial;
    return size;
}

static bool chunk_is_wanted(const struct outbox *outbox, const struct history_chunk *chunk)
{
    return chunk->in_history || chunk->last_item >= outbox->message_end;
}

static size_t choose_keys(struct outbox *outbox)
{
    size_t size = 0;
    outbox->keys.count = 0;
    const struct chunk_list *lists[] = {&outbox->kept, &outbox->fresh};
    for (size_t i = 0; i < 2; i++)
        for (uint32_t j = 0; j < lists[i]->count; j++) {
            const struct history_chunk *chunk = lists[i]->chunks[j];
            if (!chunk_is_wanted(outbox, chunk))
                continue;
            wire_push_key(&outbox->keys, chunk->key);
            size += varint_size(chunk->key);
        }
    return size;
}

static void write_message(const struct outbox *outbox, struct writer *writer)
{
    const uint8_t *end = writer->at;
    if (outbox->keys.count > 0) {
        for (uint32_t i = outbox->keys.count; i-- > 0;)
            put_varint(writer, outbox->keys.keys[i]);
        put_len_header(writer, 3, end);
    }
    for (uint64_t serial = outbox->message_end; serial-- > outbox->sent;) {
        const struct slot *slot = slot_at(outbox, serial);
        if (!slot->confirmed)
            put_bytes(writer, (trp_bytes){slot->bytes, slot->size});
    }
    for (uint32_t i = outbox->fresh.count; i-- > 0;) {
        const struct history_chunk *chunk = outbox->fresh.chunks[i];
        put_chunk(writer, 1, &(struct wire_chunk){.key = chunk->key, .steps = &chunk->steps});
    }
}

trp_status outbox_message(struct outbox *outbox, trp_message **message)
{
    size_t size = choose_items(outbox);
    assert(size > 0);
    size += bytes_field_size(choose_keys(outbox));
    *message = trp_message_create(size);
    if (!*message)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", size);
    struct writer writer = {.start = trp_message_data(*message)};
    writer.at = writer.start + size;
    write_message(outbox, &writer);
    assert(writer.at == writer.start); /* the size and the writing agree */
    return TRP_OK;
}

void outbox_sent(struct outbox *outbox)
{
    struct chunk_list *kept = &outbox->kept;
    uint32_t count = 0;
    for (uint32_t i = 0; i < kept->count; i++) {
        struct history_chunk *chunk = kept->chunks[i];
        if (chunk_is_wanted(outbox, chunk)) {
            kept->chunks[count++] = chunk;
            continue;
        }
        chunk->sent = false;
        history_unref(outbox->history, chunk);
    }
    kept->count = count;
    for (uint32_t i = 0; i < outbox->fresh.count; i++) {
        struct history_chunk *chunk = outbox->fresh.chunks[i];
        if (!chunk_is_wanted(outbox, chunk))
            continue;
        chunk->sent = true;
        history_ref(chunk);
        list_push(kept, chunk);
    }
    outbox->sent = outbox->message_end;
}

void outbox_rewind(struct outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->kept.count; i++) {
        outbox->kept.chunks[i]->sent = false;
        history_unref(outbox->history, outbox->kept.chunks[i]);
    }
    outbox->kept.count = 0;
    outbox->sent = outbox->first;
}

/* ---- confirmations --------------------------------------------------------------------------- */

static void slot_release(struct outbox *outbox, struct slot *slot)
{
    for (uint32_t i = 0; i < slot->chunk_count; i++)
        history_unref(outbox->history, slot->chunks[i]);
    slot->chunk_count = 0;
}

static void confirm_key(struct outbox *outbox, uint64_t key)
{
    uint64_t serial = outbox->first;
    while (serial < outbox->sent &&
           (slot_at(outbox, serial)->key != key || slot_at(outbox, serial)->confirmed))
        serial++;
    if (serial == outbox->sent)
        return;
    struct slot *slot = slot_at(outbox, serial);
    slot->confirmed = true;
    slot_release(outbox, slot);
    outbox->unconfirmed--;
    outbox->confirmed++;
    while (outbox->first < outbox->sent && slot_at(outbox, outbox->first)->confirmed)
        outbox->first++;
}

trp_status outbox_confirm(struct outbox *outbox, trp_bytes response)
{
    outbox->keys.count = 0;
    TRP_TRY(wire_insert_response_decode(response, &outbox->keys));
    for (uint32_t i = 0; i < outbox->keys.count; i++)
        confirm_key(outbox, outbox->keys.keys[i]);
    return TRP_OK;
}

uint32_t outbox_unconfirmed(const struct outbox *outbox)
{
    return outbox->unconfirmed;
}

uint32_t outbox_unsent(const struct outbox *outbox)
{
    return (uint32_t)(outbox->next - outbox->sent);
}

bool outbox_full(const struct outbox *outbox)
{
    return outbox->next - outbox->first == outbox->capacity;
}

uint64_t outbox_confirmed(const struct outbox *outbox)
{
    return outbox->confirmed;
}

const char *outbox_table(const struct outbox *outbox)
{
    return outbox->first < outbox->next ? slot_at(outbox, outbox->first)->table : NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct outbox *outbox_create(struct history *history, uint32_t capacity)
{
    struct outbox *outbox = xcalloc(1, sizeof *outbox);
    outbox->history = history;
    outbox->capacity = capacity;
    outbox->slots = xcalloc(capacity, sizeof *outbox->slots);
    outbox->first = outbox->sent = outbox->ready = outbox->next = 1;
    return outbox;
}

void outbox_destroy(struct outbox *outbox)
{
    if (!outbox)
        return;
    outbox_rewind(outbox);
    for (uint32_t i = 0; i < outbox->capacity; i++) {
        struct slot *slot = &outbox->slots[i];
        slot_release(outbox, slot);
        free(slot->chunks);
        free(slot->bytes);
    }
    for (size_t i = 0; i < outbox->table_count; i++)
        free(outbox->tables[i]);
    free(outbox->tables);
    free(outbox->slots);
    free(outbox->kept.chunks);
    free(outbox->fresh.chunks);
    wire_lists_cleanup(&outbox->lists);
    wire_keys_cleanup(&outbox->keys);
    free(outbox);
}
