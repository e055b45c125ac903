/* Problem: a batch wants rows of columns; a message has samples. A sample says which rows of
 * which tensors of which chunks its columns are cut from, and may be spread over several entries
 * and messages.
 * Design: a sample that looks like one seen before is copied as that one was (decode_template.c).
 * Any other is decoded, its rows are cut out of its chunks (wire/cut.h), and a template is learnt
 * from it. A sample whose end has not come yet is kept in `open`, along with the messages that its
 * chunks lie in.
 * Guarantee: everything comes from a peer, so nothing is believed before it was compared with the
 * columns that the caller asked for: element type, shape, number of rows. A sample that does not
 * fit ends in a status that names the column, never in a write outside its row of the batch. */
#include "unpack_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/limits.h"
#include "replay/model/signature.h"

/* The columns of the next row are there. */
static void batch_end_row(struct batch *batch, const struct wire_item *item,
                          const struct wire_draw *draw)
{
    uint32_t row = batch->rows++;
    batch->keys[row] = item->key;
    batch->priorities[row] = item->priority;
    batch->times_sampled[row] = item->times_sampled;
    batch->policy_versions[row] = item->policy_version;
    batch->probabilities[row] = draw->probability;
    batch->table_sizes[row] = draw->table_size;
    batch->rate_limited[row] = draw->rate_limited;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static trp_status wrong_column(const struct unpacker *unpacker, size_t index, const char *has)
{
    const trp_tensor_spec *spec = &unpacker->columns[index];
    char ours[128];
    tensor_describe(ours, sizeof ours, (int32_t)spec->dtype, spec->rank, spec->shape);
    return trp_fail(TRP_INVALID_ARGUMENT, "column %zu (%s) was asked for as %s, but the sample %s",
                    index, spec->name ? spec->name : "unnamed", ours, has);
}

static trp_status wrong_length(const struct unpacker *unpacker, size_t index,
                               const struct wire_column *wire, const struct wire_slice *slices)
{
    char has[64];
    int64_t steps = 0;
    for (uint32_t i = 0; i < wire->slice_count; i++)
        steps += slices[i].length;
    snprintf(has, sizeof has, "has %" PRId64 " steps there", steps);
    return wrong_column(unpacker, index,
                        wire->squeeze ? "has one step without a time axis there" : has);
}

static trp_status wrong_tensor(const struct unpacker *unpacker, size_t index, bool squeeze,
                               const struct wire_tensor *tensor)
{
    char theirs[128], has[160];
    tensor_describe(theirs, sizeof theirs, tensor->dtype, tensor->rank, tensor->dims);
    snprintf(has, sizeof has, "cuts %s from a chunk of %s", squeeze ? "one step" : "steps", theirs);
    return wrong_column(unpacker, index, has);
}

/* True when a step of `tensor` is a step of the column. */
static bool tensor_fits(const struct wire_tensor *tensor, const trp_tensor_spec *spec, bool squeeze)
{
    uint32_t skip = squeeze ? 0 : 1; /* the column's own time axis */
    if (tensor->dtype != (int32_t)spec->dtype || tensor->rank > TRP_RANK_MAX ||
        tensor->rank != spec->rank + 1 - skip || tensor->dims[0] < 0)
        return false;
    for (uint32_t i = 1; i < tensor->rank; i++)
        if (tensor->dims[i] != spec->shape[i - 1 + skip])
            return false;
    return true;
}

/* ---- one sample ------------------------------------------------------------------------------ */

static trp_status unpack_slice(struct unpacker *unpacker, size_t column, bool squeeze,
                               const struct wire_slice *slice, size_t row_bytes, uint8_t *out)
{
    const struct wire_tensor *tensor;
    bool delta;
    trp_bytes rows;
    TRP_TRY(cutter_find(&unpacker->cutter, slice, &tensor, &delta));
    if (!tensor_fits(tensor, &unpacker->columns[column], squeeze))
        return wrong_tensor(unpacker, column, squeeze, tensor);
    TRP_TRY(cutter_cut(&unpacker->cutter, slice, tensor, delta, row_bytes, out, &rows));
    if (rows.size > 0 && rows.data != out)
        memcpy(out, rows.data, rows.size);
    return TRP_OK;
}

static trp_status unpack_column(struct unpacker *unpacker, const struct wire_lists *lists,
                                const struct wire_column *wire, size_t index, uint8_t *out)
{
    const struct wire_slice *slices = &lists->slices[wire->slice_first];
    const trp_tensor_spec *spec = &unpacker->columns[index];
    if (!wire->squeeze && spec->rank == 0)
        return wrong_length(unpacker, index, wire, slices);
    int64_t steps = wire->squeeze ? 1 : spec->shape[0];
    size_t row_bytes = unpacker->row_bytes[index] / (size_t)steps;
    int64_t done = 0;
    for (uint32_t i = 0; i < wire->slice_count; i++) {
        int64_t length = slices[i].length;
        if (length < 0 || length > steps - done)
            return wrong_length(unpacker, index, wire, slices);
        TRP_TRY(unpack_slice(unpacker, index, wire->squeeze, &slices[i], row_bytes, out));
        out += (size_t)length * row_bytes;
        done += length;
    }
    return done == steps ? TRP_OK : wrong_length(unpacker, index, wire, slices);
}

trp_status unpacker_decode_sample(struct unpacker *unpacker, const struct wire_lists *lists,
                                  const struct wire_item *item, const struct wire_draw *draw,
                                  struct batch *batch)
{
    if (item->column_count < unpacker->column_count)
        return wrong_column(unpacker, item->column_count, "ends before it");
    if (item->column_count > unpacker->column_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "%zu columns were asked for, but the sample has %u",
                        unpacker->column_count, item->column_count);
    cutter_begin(&unpacker->cutter, lists->chunks, lists->chunk_count);
    for (size_t i = 0; i < unpacker->column_count; i++)
        TRP_TRY(unpack_column(unpacker, lists, &lists->columns[item->column_first + i], i,
                              (uint8_t *)batch->columns[i] + batch->rows * unpacker->row_bytes[i]));
    batch_end_row(batch, item, draw);
    return TRP_OK;
}

/* ---- samples over several messages ----------------------------------------------------------- */

static void open_keep(struct unpacker *unpacker, trp_message *message)
{
    *ARRAY_PUSH(unpacker->open.messages, unpacker->open.message_count,
                unpacker->open.message_capacity) = message;
}

static void open_clear(struct unpacker *unpacker)
{
    for (uint32_t i = 0; i < unpacker->open.message_count; i++)
        trp_message_destroy(unpacker->open.messages[i]);
    unpacker->open.message_count = 0;
    unpacker->open.bytes = 0;
    unpacker->open.begun = false;
    unpacker->needed = false;
    wire_lists_clear(&unpacker->open.lists);
}

/* Memory that was joined in is used up; it is kept for the open sample. */
static void drop_joined(struct unpacker *unpacker)
{
    if (unpacker->needed && unpacker->joined)
        open_keep(unpacker, unpacker->joined);
    else
        trp_message_destroy(unpacker->joined);
    unpacker->joined = NULL;
}

/* Memory to join a field in. Parts that were joined before are kept if they are needed. */
static uint8_t *unpacker_memory(void *arg, size_t size)
{
    enum { STEP = 4096 };
    struct unpacker *unpacker = arg;
    if (!unpacker->joined || unpacker->needed || trp_message_size(unpacker->joined) < size) {
        drop_joined(unpacker);
        unpacker->joined = trp_message_create((size + STEP - 1) / STEP * STEP);
    }
    return unpacker->joined ? trp_message_data(unpacker->joined) : NULL;
}

/* The message goes, unless the open sample's chunks lie in it. */
static trp_status drop_message(struct unpacker *unpacker)
{
    trp_message *message = unpacker->message;
    unpacker->message = NULL;
    unpacker->parts = (struct assembler){.memory = NULL};
    if (!message)
        return TRP_OK;
    if (!unpacker->needed) {
        trp_message_destroy(message);
        return TRP_OK;
    }
    drop_joined(unpacker);
    unpacker->needed = false;
    size_t size = trp_message_size(message);
    open_keep(unpacker, message);
    unpacker->open.bytes += size;
    if (unpacker->open.bytes > SAMPLE_BYTES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a sample of more than %zu bytes",
                        (size_t)SAMPLE_BYTES_MAX);
    return TRP_OK;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* A sample that is an item, and all chunks, of `lists`. */
static trp_status fill_item(struct unpacker *unpacker, struct wire_lists *lists, uint32_t item,
                            const struct wire_draw *draw, struct batch *batch)
{
    TRP_TRY(wire_item_columns(lists, &lists->items[item]));
    return unpacker_decode_sample(unpacker, lists, &lists->items[item], draw, batch);
}

/* A part of a sample: joins the open one, which may end with it. */
static trp_status fill_part(struct unpacker *unpacker, const struct wire_entry *entry,
                            struct batch *batch)
{
    struct wire_lists *lists = &unpacker->open.lists;
    if (entry->has_info) {
        open_clear(unpacker);
        unpacker->open.begun = true;
        unpacker->open.draw = entry->draw;
    }
    TRP_TRY(sample_add(lists, &unpacker->response, entry));
    unpacker->needed = true;
    if (!entry->end_of_sequence)
        return TRP_OK;
    trp_status status = fill_item(unpacker, lists, 0, &unpacker->open.draw, batch);
    open_clear(unpacker);
    return status;
}

/* One entry, as field 1 of a response of its own. */
static trp_status fill_decoded(struct unpacker *unpacker, trp_bytes response, struct batch *batch)
{
    TRP_TRY(wire_sample_response_decode(response, &unpacker->response));
    const struct wire_entry *entry = &unpacker->response.entries[0];
    if (entry->has_info == unpacker->open.begun)
        return trp_fail(TRP_INVALID_ARGUMENT, "a sample %s",
                        entry->has_info ? "begins before the last one ended" : "has no info");
    if (entry->has_info && entry->end_of_sequence)
        return fill_item(unpacker, &unpacker->response.lists, entry->item, &entry->draw, batch);
    return fill_part(unpacker, entry, batch);
}

bool unpacker_copy_sample(struct unpacker *unpacker, const struct raw_sample *raw,
                          struct batch *batch)
{
    if (!decode_templates_copy(unpacker->templates, raw, batch->columns, batch->rows))
        return false;
    batch_end_row(batch, &raw->item, &raw->draw);
    return true;
}

static trp_status fill_entry(struct unpacker *unpacker, const struct field *field,
                             struct batch *batch)
{
    struct raw_chunk chunks[TEMPLATE_CHUNKS_MAX];
    struct raw_sample raw = {.chunks = chunks};
    bool whole = !unpacker->open.begun && raw_sample_parse(field->bytes, &raw);
    if (whole && unpacker_copy_sample(unpacker, &raw, batch))
        return TRP_OK;
    trp_bytes response = {field->before,
                          (size_t)(field->bytes.data + field->bytes.size - field->before)};
    TRP_TRY(fill_decoded(unpacker, response, batch));
    if (whole)
        decode_templates_learn(unpacker->templates, &raw, &unpacker->response.lists,
                               &unpacker->response.lists.items[0], unpacker->columns);
    return TRP_OK;
}

trp_status unpacker_feed(struct unpacker *unpacker, trp_message *message)
{
    trp_status status = drop_message(unpacker);
    const trp_bytes *parts;
    size_t count = trp_message_parts(message, &parts);
    unpacker->message = message;
    if (status == TRP_OK)
        unpacker->parts = (struct assembler){spans_of(parts, count), unpacker_memory, unpacker};
    return status;
}

trp_status unpacker_feed_shared(struct unpacker *unpacker, trp_message *message,
                                struct shared_view *view, struct shared_header *header)
{
    struct shared_samples *samples = &unpacker->shared.samples;
    unpacker_reset(unpacker);
    unpacker->message = message;
    TRP_TRY(shared_samples_decode(message_bytes(message), samples));
    unpacker->shared.view = view;
    *header = samples->header;
    return TRP_OK;
}

bool unpacker_used_up(const struct unpacker *unpacker)
{
    const struct shared_reader *shared = &unpacker->shared;
    return shared->view && shared->next == shared->samples.header.counts[SHARED_ENTRIES];
}

bool unpacker_damaged(const struct unpacker *unpacker, uint64_t *key)
{
    struct shared_entry entry;
    if (!unpacker->shared.damaged)
        return false;
    shared_samples_entry(&unpacker->shared.samples, unpacker->shared.next, &entry);
    *key = entry.key;
    return true;
}

/* The next field of the message, in one place until the next call. */
static trp_status next_field(struct unpacker *unpacker, struct field *field, bool *more)
{
    struct wire_more beyond;
    trp_status status = assembler_next(&unpacker->parts, field, &beyond, more);
    if (status == TRP_OK && beyond.count > 0)
        status = assembler_join(&unpacker->parts, field, &beyond);
    if (status != TRP_OK)
        return trp_fail(
            status, "SampleStreamResponse of %zu bytes %s", trp_message_size(unpacker->message),
            status == TRP_INVALID_ARGUMENT ? "is malformed" : "is more than there is memory for");
    return TRP_OK;
}

trp_status unpacker_fill(struct unpacker *unpacker, struct batch *batch)
{
    struct field field;
    bool more = true;
    if (unpacker->shared.view)
        return shared_reader_fill(unpacker, batch);
    while (batch->rows < batch->capacity && more) {
        TRP_TRY(next_field(unpacker, &field, &more));
        if (more && field.tag == TAG(1, LEN))
            TRP_TRY(fill_entry(unpacker, &field, batch));
    }
    return TRP_OK;
}

void unpacker_reset(struct unpacker *unpacker)
{
    open_clear(unpacker);
    drop_joined(unpacker);
    trp_message_destroy(unpacker->message);
    unpacker->message = NULL;
    unpacker->parts = (struct assembler){.memory = NULL};
    unpacker->shared.view = NULL;
    unpacker->shared.next = 0;
    unpacker->shared.damaged = false;
    unpacker->shared.shape_count = 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct unpacker *unpacker_create(const trp_tensor_spec *columns, size_t column_count)
{
    struct unpacker *unpacker = xcalloc(1, sizeof *unpacker);
    unpacker->columns = xcalloc(column_count, sizeof *unpacker->columns);
    unpacker->row_bytes = xcalloc(column_count, sizeof *unpacker->row_bytes);
    unpacker->templates = decode_templates_create();
    unpacker->column_count = column_count;
    for (size_t i = 0; i < column_count; i++) {
        unpacker->columns[i] = columns[i];
        unpacker->columns[i].name = columns[i].name ? xstrdup(columns[i].name) : NULL;
        unpacker->row_bytes[i] = trp_tensor_bytes(&columns[i]);
    }
    return unpacker;
}

void unpacker_destroy(struct unpacker *unpacker)
{
    if (!unpacker)
        return;
    unpacker_reset(unpacker);
    for (size_t i = 0; i < unpacker->column_count; i++)
        free((void *)unpacker->columns[i].name);
    free(unpacker->columns);
    free(unpacker->row_bytes);
    decode_templates_destroy(unpacker->templates);
    free(unpacker->open.messages);
    shared_reader_cleanup(&unpacker->shared);
    wire_lists_cleanup(&unpacker->open.lists);
    wire_sample_response_cleanup(&unpacker->response);
    cutter_cleanup(&unpacker->cutter);
    free(unpacker);
}
