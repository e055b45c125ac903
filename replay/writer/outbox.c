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
#include "core/array.h"
#include "limits.h"
#include "replay/wire/parts.h"

struct outbox_slot {
    uint64_t key;
    uint32_t table; /* in outbox.tables */
    bool confirmed;
    struct group_chunk **chunks;
    uint32_t *rows; /* that it takes of each chunk */
    uint32_t chunk_count, chunk_capacity;
    uint8_t *memory;
    size_t capacity;
    trp_bytes bytes; /* the item as field 2, at the end of `memory` */
};

static struct outbox_slot *slot_at(const struct outbox *outbox, uint64_t serial)
{
    return &outbox->slots[serial & outbox->mask];
}

/* ---- items ----------------------------------------------------------------------------------- */

static uint32_t intern_table(struct outbox *outbox, const char *table)
{
    for (uint32_t i = 0; i < outbox->table_count; i++)
        if (strcmp((const char *)outbox->tables[i].data, table) == 0)
            return i;
    *ARRAY_PUSH(outbox->tables, outbox->table_count, outbox->table_capacity) =
        text_bytes(xstrdup(table));
    return outbox->table_count - 1;
}

static void slot_add_chunk(struct outbox *outbox, struct outbox_slot *slot,
                           struct group_chunk *chunk, uint32_t rows)
{
    if (chunk->seen_by == outbox->mark) {
        slot->rows[chunk->seen_at] += rows;
        return;
    }
    chunk->seen_by = outbox->mark;
    chunk->seen_at = slot->chunk_count;
    if (slot->chunk_count == slot->chunk_capacity) {
        slot->chunks = array_grow(slot->chunks, &slot->chunk_capacity, sizeof(slot->chunks[0]));
        slot->rows = xrealloc(slot->rows, slot->chunk_capacity * sizeof *slot->rows);
    }
    slot->rows[slot->chunk_count] = rows;
    slot->chunks[slot->chunk_count++] = chunk;
}

static trp_status check_ages(const struct outbox *outbox, const trp_item_column *column)
{
    uint32_t steps = history_size(outbox->history, column->column), row, index;
    const char *name = outbox->history->specs[column->column].name;
    for (uint32_t i = 0; i < column->length; i++) {
        uint32_t age = item_column_age(column, i);
        if (age >= steps)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "item: column %u (%s) wants the step of age %u, the history has %u",
                            column->column, name, age, steps);
        if (!history_find(outbox->history, column->column, age, &row, &index))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "item: column %u (%s) was not given in the step of age %u",
                            column->column, name, age);
    }
    return TRP_OK;
}

static trp_status check_column(const struct outbox *outbox, const trp_item_column *column)
{
    if (column->column >= outbox->history->column_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "item: column %u of %zu columns", column->column,
                        outbox->history->column_count);
    uint32_t steps = history_size(outbox->history, column->column);
    if (column->length == 0 ||
        (!column->ages && (column->age >= steps || column->length > column->age + 1)))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "item: column %u (%s) wants %u steps from age %u on, the history has %u",
                        column->column, outbox->history->specs[column->column].name, column->length,
                        column->age, steps);
    if (column->squeeze && column->length != 1)
        return trp_fail(TRP_INVALID_ARGUMENT, "item: column %u (%s) squeezes %u steps",
                        column->column, outbox->history->specs[column->column].name,
                        column->length);
    if (!column->ages && !outbox->history->gaps)
        return TRP_OK; /* the usual item: all of it is there */
    return check_ages(outbox, column);
}

/* The writers of small parts take and return where they are: a pointer in a struct would have to be
 * stored and loaded for every byte. */

static uint8_t *put_small_field(uint8_t *at, uint32_t number, uint32_t value)
{
    if (value == 0)
        return at;
    at -= varint_size(value);
    varint_write(at, value);
    *--at = (uint8_t)TAG(number, VARINT);
    return at;
}

/* The header of the bytes between `at` and `end`. */
static uint8_t *put_header(uint8_t *at, uint32_t number, const uint8_t *end)
{
    size_t size = (size_t)(end - at);
    at -= varint_size(size);
    varint_write(at, size);
    *--at = (uint8_t)TAG(number, LEN);
    return at;
}

/* A ChunkSlice as field 1 of its column. */
static uint8_t *put_slice(uint8_t *at, const struct group_chunk *chunk, uint32_t offset,
                          uint32_t length, uint32_t index)
{
    const uint8_t *end = at;
    at = put_small_field(at, 4, index);
    at = put_small_field(at, 3, length);
    at = put_small_field(at, 2, offset);
    at -= KEY_VARINT_BYTES;
    memcpy(at, chunk->key_bytes, KEY_VARINT_BYTES);
    *--at = TAG(1, VARINT);
    return put_header(at, 1, end);
}

/* A Column as field 1 of its trajectory: one slice for each run of rows in one chunk, the last
 * first, because writing goes backwards. */
static uint8_t *put_column(struct outbox *outbox, uint8_t *at, struct outbox_slot *slot,
                           const trp_item_column *column)
{
    const uint8_t *end = at;
    const struct history *history = outbox->history;
    uint32_t left = column->length, index, row;
    at = put_small_field(at, 2, column->squeeze);
    struct group_chunk *chunk =
        history_find(history, column->column, item_column_age(column, --left), &row, &index);
    for (;;) {
        uint32_t first = row, length = 1;
        struct group_chunk *before = NULL;
        while (left > 0) {
            before = history_find(history, column->column, item_column_age(column, --left), &row,
                                  &index);
            if (before != chunk || row + 1 != first)
                break;
            before = NULL;
            first = row;
            length++;
        }
        at = put_slice(at, chunk, first, length, index);
        slot_add_chunk(outbox, slot, chunk, length);
        if (!before)
            return put_header(at, 1, end);
        chunk = before;
    }
}

/* More than all of an item but its columns and its table's name. */
enum { ITEM_HEAD_BYTES = 80 };

/* More than an item of these columns takes: a slice is at most 33 bytes, and there are no more of
 * them than steps. */
static size_t item_size_max(size_t table, const trp_item_column *columns, size_t column_count)
{
    size_t size = ITEM_HEAD_BYTES + table;
    for (size_t i = 0; i < column_count; i++)
        size += 16 + (size_t)columns[i].length * 40;
    return size;
}

static void slot_encode(struct outbox *outbox, struct outbox_slot *slot, double priority,
                        const trp_item_column *columns, size_t column_count)
{
    trp_bytes table = outbox->tables[slot->table];
    size_t size = item_size_max(table.size, columns, column_count);
    if (size > slot->capacity) {
        slot->capacity = size;
        slot->memory = xrealloc(slot->memory, size);
    }
    uint8_t *end = slot->memory + slot->capacity, *at = end;
    for (size_t i = column_count; i-- > 0;)
        at = put_column(outbox, at, slot, &columns[i]);
    assert(at >= slot->memory + ITEM_HEAD_BYTES + table.size);
    struct writer writer = writer_of(slot->memory, slot->capacity);
    writer.size = (size_t)(end - at);
    put_len_header(&writer, 8, 0);
    put_item_head(&writer, &(struct wire_item){.key = slot->key,
                                               .table = table,
                                               .priority = priority,
                                               .policy_version = outbox->policy_version});
    put_len_header(&writer, 2, 0);
    slot->bytes = writer_bytes(&writer);
}

trp_status outbox_check(const struct outbox *outbox, double priority,
                        const trp_item_column *columns, size_t column_count)
{
    if (priority != priority)
        return trp_fail(TRP_INVALID_ARGUMENT, "item: priority is not a number");
    if (column_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "item: no columns");
    for (size_t i = 0; i < column_count; i++)
        TRP_TRY(check_column(outbox, &columns[i]));
    return TRP_OK;
}

void outbox_add(struct outbox *outbox, const char *table, double priority,
                const trp_item_column *columns, size_t column_count, uint64_t *key)
{
    assert(!outbox_full(outbox));
    uint64_t serial = outbox->next++;
    struct outbox_slot *slot = slot_at(outbox, serial);
    slot->key = key_draw(&outbox->history->rng);
    slot->table = intern_table(outbox, table);
    slot->confirmed = false;
    slot->chunk_count = 0;
    outbox->mark++;
    outbox->unconfirmed++;
    slot_encode(outbox, slot, priority, columns, column_count);
    for (uint32_t i = 0; i < slot->chunk_count; i++) {
        group_chunk_ref(slot->chunks[i]);
        slot->chunks[i]->last_item = serial;
    }
    if (key)
        *key = slot->key;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool slot_is_ready(const struct outbox_slot *slot)
{
    for (uint32_t i = 0; i < slot->chunk_count; i++)
        if (!slot->chunks[i]->closed)
            return false;
    return true;
}

/* Tells each group which rows the item took; a group's chunks need not be neighbours. */
static void slot_note(const struct outbox_slot *slot)
{
    for (uint32_t i = 0; i < slot->chunk_count; i++) {
        struct column_group *group = slot->chunks[i]->group;
        struct tuner_item item = {.first_key = slot->chunks[i]->key};
        bool first = true;
        for (uint32_t j = 0; j < slot->chunk_count; j++) {
            const struct group_chunk *chunk = slot->chunks[j];
            if (chunk->group != group)
                continue;
            first &= j >= i;
            item.last_key = chunk->key;
            item.chunks++;
            item.chunk_rows += chunk->rows;
            item.chunk_bytes += chunk->wire_size;
            item.rows += slot->rows[j];
        }
        if (first)
            column_group_note_item(group, &item);
    }
}

uint32_t outbox_ready(struct outbox *outbox)
{
    for (; outbox->ready < outbox->next; outbox->ready++) {
        const struct outbox_slot *slot = slot_at(outbox, outbox->ready);
        if (!slot_is_ready(slot))
            break;
        if (outbox->history->tuned)
            slot_note(slot);
    }
    while (outbox->sent < outbox->ready && slot_at(outbox, outbox->sent)->confirmed)
        outbox->sent++; /* on an earlier stream, out of order */
    return (uint32_t)(outbox->ready - outbox->sent);
}

/* True when the server sees the chunk where it is. */
static bool chunk_is_in_arena(const struct outbox *outbox, const struct group_chunk *chunk)
{
    return chunk->reference.size > 0 && chunk->arena == outbox->history->arena;
}

/* Chooses items from the oldest unsent on, up to a message's size, and lists their unsent chunks;
 * the bytes of both. */
static void choose_items(struct outbox *outbox)
{
    size_t size = 0, beside = 0;
    struct chunk_list *fresh = &outbox->fresh;
    fresh->count = 0;
    outbox->mark++;
    uint64_t serial = outbox->sent;
    for (; serial < outbox->ready && size < WRITER_MESSAGE_BYTES &&
           size + beside < WRITER_ARENA_BYTES;
         serial++) {
        const struct outbox_slot *slot = slot_at(outbox, serial);
        if (slot->confirmed)
            continue;
        size += slot->bytes.size;
        for (uint32_t i = 0; i < slot->chunk_count; i++) {
            struct group_chunk *chunk = slot->chunks[i];
            if (chunk->sent || chunk->seen_by == outbox->mark)
                continue;
            chunk->seen_by = outbox->mark;
            *ARRAY_PUSH(fresh->chunks, fresh->count, fresh->capacity) = chunk;
            size_t here =
                chunk_is_in_arena(outbox, chunk) ? chunk->reference.size : chunk->wire_size;
            size += here;
            beside += chunk->wire_size - here;
        }
    }
    outbox->message_end = serial;
}

static bool chunk_is_wanted(const struct outbox *outbox, const struct group_chunk *chunk)
{
    return chunk->in_history || chunk->last_item >= outbox->message_end;
}

static void choose_keys(struct outbox *outbox)
{
    outbox->keys.count = 0;
    const struct chunk_list *lists[] = {&outbox->kept, &outbox->fresh};
    for (size_t i = 0; i < 2; i++)
        for (uint32_t j = 0; j < lists[i]->count; j++) {
            const struct group_chunk *chunk = lists[i]->chunks[j];
            if (chunk_is_wanted(outbox, chunk))
                wire_push_key(&outbox->keys, chunk->key);
        }
}

struct outbox_content {
    const struct outbox *outbox;
    trp_bytes hello;
};

static void put_content(struct writer *writer, const void *of)
{
    const struct outbox_content *content = of;
    const struct outbox *outbox = content->outbox;
    put_bytes_field(writer, SHM_HELLO_FIELD, content->hello);
    put_keys(writer, 3, &outbox->keys);
    for (uint64_t serial = outbox->message_end; serial-- > outbox->sent;) {
        const struct outbox_slot *slot = slot_at(outbox, serial);
        if (!slot->confirmed)
            put_bytes(writer, slot->bytes);
    }
    for (uint32_t i = outbox->fresh.count; i-- > 0;) {
        const struct group_chunk *chunk = outbox->fresh.chunks[i];
        if (chunk_is_in_arena(outbox, chunk))
            put_bytes(writer, chunk->reference);
        else
            put_chunk(writer, 1, &chunk->wire);
    }
}

trp_status outbox_message(struct outbox *outbox, trp_bytes hello, trp_message **message)
{
    choose_items(outbox);
    choose_keys(outbox);
    return message_encode(put_content, &(struct outbox_content){outbox, hello}, message);
}

void outbox_sent(struct outbox *outbox)
{
    struct chunk_list *kept = &outbox->kept;
    uint32_t count = 0;
    for (uint32_t i = 0; i < kept->count; i++) {
        struct group_chunk *chunk = kept->chunks[i];
        if (chunk_is_wanted(outbox, chunk)) {
            kept->chunks[count++] = chunk;
            continue;
        }
        chunk->sent = false;
        group_chunk_unref(chunk);
    }
    kept->count = count;
    for (uint32_t i = 0; i < outbox->fresh.count; i++) {
        struct group_chunk *chunk = outbox->fresh.chunks[i];
        if (!chunk_is_wanted(outbox, chunk))
            continue;
        chunk->sent = true;
        group_chunk_ref(chunk);
        *ARRAY_PUSH(kept->chunks, kept->count, kept->capacity) = chunk;
    }
    outbox->sent = outbox->message_end;
}

void outbox_rewind(struct outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->kept.count; i++) {
        outbox->kept.chunks[i]->sent = false;
        group_chunk_unref(outbox->kept.chunks[i]);
    }
    outbox->kept.count = 0;
    outbox->sent = outbox->first;
}

/* ---- confirmations --------------------------------------------------------------------------- */

static void slot_release(struct outbox_slot *slot)
{
    for (uint32_t i = 0; i < slot->chunk_count; i++)
        group_chunk_unref(slot->chunks[i]);
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
    struct outbox_slot *slot = slot_at(outbox, serial);
    slot->confirmed = true;
    slot_release(slot);
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

uint32_t outbox_unsent(const struct outbox *outbox)
{
    return (uint32_t)(outbox->next - outbox->sent);
}

bool outbox_full(const struct outbox *outbox)
{
    return outbox->next - outbox->first >= outbox->window;
}

const char *outbox_table(const struct outbox *outbox)
{
    if (outbox->first == outbox->next)
        return NULL;
    return (const char *)outbox->tables[slot_at(outbox, outbox->first)->table].data;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct outbox *outbox_create(struct history *history, uint32_t capacity)
{
    struct outbox *outbox = xcalloc(1, sizeof *outbox);
    outbox->history = history;
    outbox->capacity = outbox->window = capacity;
    while (outbox->mask + 1 < capacity)
        outbox->mask = 2 * outbox->mask + 1;
    outbox->slots = xcalloc(outbox->mask + 1, sizeof *outbox->slots);
    outbox->first = outbox->sent = outbox->ready = outbox->next = 1;
    return outbox;
}

void outbox_destroy(struct outbox *outbox)
{
    if (!outbox)
        return;
    outbox_rewind(outbox);
    for (uint64_t i = 0; i <= outbox->mask; i++) {
        struct outbox_slot *slot = &outbox->slots[i];
        slot_release(slot);
        free(slot->chunks);
        free(slot->rows);
        free(slot->memory);
    }
    for (uint32_t i = 0; i < outbox->table_count; i++)
        free((void *)outbox->tables[i].data);
    free(outbox->tables);
    free(outbox->slots);
    free(outbox->kept.chunks);
    free(outbox->fresh.chunks);
    wire_keys_cleanup(&outbox->keys);
    free(outbox);
}
