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

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/limits.h"
#include "replay/wire/limits.h"
#include "replay/model/signature.h"
#include "replay/wire/tensor.h"

/* ---- batches --------------------------------------------------------------------------------- */

enum {
    BATCH_ALIGNMENT = 64,
    TEMPLATE_MISSES = 16, /* samples decoded for each that is learnt from */
};

static void *array_create(size_t count, size_t size)
{
    size_t bytes;
    return size_mul(count, size, &bytes)
               ? aligned_alloc(BATCH_ALIGNMENT, (bytes + BATCH_ALIGNMENT) & ~(size_t)(63))
               : NULL;
}

trp_status batch_init(struct batch *batch, const trp_tensor_spec *columns, size_t column_count,
                      uint32_t capacity)
{
    *batch = (struct batch){.capacity = capacity};
    batch->columns = xcalloc(column_count, sizeof *batch->columns);
    for (size_t i = 0; i < column_count; i++) {
        size_t bytes = trp_tensor_bytes(&columns[i]);
        const char *name = columns[i].name ? columns[i].name : "unnamed";
        if (bytes == 0)
            return trp_fail(TRP_INVALID_ARGUMENT, "sampler: column %zu (%s) is no tensor", i, name);
        batch->columns[i] = array_create(capacity, bytes);
        if (!batch->columns[i])
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "sampler: no memory for %u rows of column %zu (%s), %zu bytes each",
                            capacity, i, name, bytes);
    }
    batch->keys = xcalloc(capacity, sizeof *batch->keys);
    batch->priorities = xcalloc(capacity, sizeof *batch->priorities);
    batch->probabilities = xcalloc(capacity, sizeof *batch->probabilities);
    batch->table_sizes = xcalloc(capacity, sizeof *batch->table_sizes);
    batch->times_sampled = xcalloc(capacity, sizeof *batch->times_sampled);
    batch->policy_versions = xcalloc(capacity, sizeof *batch->policy_versions);
    batch->rate_limited = xcalloc(capacity, sizeof *batch->rate_limited);
    return TRP_OK;
}

void batch_cleanup(struct batch *batch, size_t column_count)
{
    for (size_t i = 0; batch->columns && i < column_count; i++)
        free(batch->columns[i]);
    free(batch->columns);
    free(batch->keys);
    free(batch->priorities);
    free(batch->probabilities);
    free(batch->table_sizes);
    free(batch->times_sampled);
    free(batch->policy_versions);
    free(batch->rate_limited);
    views_destroy(batch->views);
    *batch = (struct batch){0};
}

/* The columns of the next row are there. */
static void batch_end_row(struct batch *batch, const struct sample_facts *facts)
{
    uint32_t row = batch->rows++;
    batch->keys[row] = facts->key;
    batch->priorities[row] = facts->priority;
    batch->times_sampled[row] = facts->times_sampled;
    batch->policy_versions[row] = facts->policy_version;
    batch->probabilities[row] = facts->draw.probability;
    batch->table_sizes[row] = facts->draw.table_size;
    batch->rate_limited[row] = facts->draw.rate_limited;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static trp_status wrong_tensor(const struct unpacker *unpacker, size_t column, bool squeeze,
                               const struct wire_tensor *tensor)
{
    const trp_tensor_spec *spec = &unpacker->columns[column].spec;
    char ours[128], theirs[128];
    tensor_describe(ours, sizeof ours, (int32_t)spec->dtype, spec->rank, spec->shape);
    tensor_describe(theirs, sizeof theirs, tensor->dtype, tensor->rank, tensor->dims);
    return trp_fail(
        TRP_INVALID_ARGUMENT,
        "column %zu (%s) was asked for as %s, but the sample cuts %s from a chunk of %s", column,
        spec->name ? spec->name : "unnamed", ours, squeeze ? "one step" : "steps", theirs);
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

/* Where rows of a column go. */
struct row_target {
    uint8_t *out;
    struct views *views; /* or are seen; NULL: they are copied */
    uint32_t row;
    size_t column;
};

/* Rows that were written to target->out or lie in a chunk, which a view may show as they are. */
static void place_rows(const struct unpacker *unpacker, const struct row_target *target,
                       trp_bytes rows)
{
    bool seen = target->views && !unpacker->gathered;
    if (rows.size == 0)
        return;
    if (rows.data != target->out && !seen)
        memcpy(target->out, rows.data, rows.size);
    if (target->views)
        views_push(target->views, target->row, target->column, seen ? rows.data : target->out,
                   rows.size);
}

/* ---- one sample ------------------------------------------------------------------------------ */

static trp_status unpack_slice(struct unpacker *unpacker, bool squeeze,
                               const struct wire_slice *slice, size_t row_bytes,
                               const struct row_target *target)
{
    const struct wire_tensor *tensor;
    bool delta;
    trp_bytes rows;
    TRP_TRY(cutter_find(&unpacker->cutter, slice, &tensor, &delta));
    if (!tensor_fits(tensor, &unpacker->columns[target->column].spec, squeeze))
        return wrong_tensor(unpacker, target->column, squeeze, tensor);
    TRP_TRY(cutter_cut(&unpacker->cutter, slice, tensor, delta, row_bytes, target->out, &rows));
    place_rows(unpacker, target, rows);
    return TRP_OK;
}

static trp_status wrong_length(const struct unpacker *unpacker, size_t index, bool squeeze)
{
    const trp_tensor_spec *spec = &unpacker->columns[index].spec;
    char ours[128];
    tensor_describe(ours, sizeof ours, (int32_t)spec->dtype, spec->rank, spec->shape);
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "column %zu (%s) was asked for as %s, but the sample has %s there", index,
                    spec->name ? spec->name : "unnamed", ours,
                    squeeze ? "one step without a time axis" : "another number of steps");
}

static trp_status unpack_column(struct unpacker *unpacker, const struct sample *sample,
                                struct row_target target)
{
    size_t index = target.column;
    const struct wire_column *wire = &sample->lists->columns[sample->item->column_first + index];
    const struct wire_slice *slices = &sample->lists->slices[wire->slice_first];
    const struct wanted_column *column = &unpacker->columns[index];
    if (!wire->squeeze && column->spec.rank == 0)
        return wrong_length(unpacker, index, wire->squeeze);
    int64_t steps = wire->squeeze ? 1 : column->spec.shape[0];
    size_t row_bytes = column->bytes / (size_t)steps;
    int64_t done = 0;
    for (uint32_t i = 0; i < wire->slice_count; i++) {
        int64_t length = slices[i].length;
        if (length < 0 || length > steps - done)
            return wrong_length(unpacker, index, wire->squeeze);
        TRP_TRY(unpack_slice(unpacker, wire->squeeze, &slices[i], row_bytes, &target));
        target.out += (size_t)length * row_bytes;
        done += length;
    }
    return done == steps ? TRP_OK : wrong_length(unpacker, index, wire->squeeze);
}

trp_status unpacker_sample(struct unpacker *unpacker, const struct sample *sample,
                           struct batch *batch)
{
    if (sample->item->column_count != unpacker->column_count)
        return trp_fail(TRP_INVALID_ARGUMENT, "%zu columns were asked for, but the sample has %u",
                        unpacker->column_count, sample->item->column_count);
    cutter_begin(&unpacker->cutter, sample->chunks, sample->chunk_count);
    uint32_t row = batch->rows;
    if (batch->views)
        views_begin(batch->views, row);
    for (size_t i = 0; i < unpacker->column_count; i++)
        TRP_TRY(unpack_column(unpacker, sample,
                              (struct row_target){.out = (uint8_t *)batch->columns[i] +
                                                         row * unpacker->columns[i].bytes,
                                                  .views = batch->views,
                                                  .row = row,
                                                  .column = i}));
    batch_end_row(batch, &(struct sample_facts){.key = sample->item->key,
                                                .policy_version = sample->item->policy_version,
                                                .priority = sample->item->priority,
                                                .times_sampled = sample->item->times_sampled,
                                                .draw = sample->draw});
    return TRP_OK;
}

/* ---- samples over several messages ----------------------------------------------------------- */

static void messages_push(struct messages *messages, trp_message *message)
{
    if (messages->count == messages->capacity)
        messages->at = array_grow(messages->at, &messages->capacity, sizeof *messages->at);
    messages->at[messages->count++] = message;
}

/* A message that is used up. */
static void message_done(struct unpacker *unpacker, trp_message *message)
{
    if (unpacker->keeps && message)
        messages_push(&unpacker->kept, message);
    else
        trp_message_destroy(message);
}

static void open_clear(struct unpacker *unpacker)
{
    for (uint32_t i = 0; i < unpacker->open.messages.count; i++)
        message_done(unpacker, unpacker->open.messages.at[i]);
    unpacker->open.messages.count = 0;
    unpacker->open.bytes = 0;
    unpacker->open.begun = false;
    unpacker->needed = false;
    wire_lists_clear(&unpacker->open.lists);
}

static void open_begin(struct unpacker *unpacker, const struct wire_entry *entry)
{
    open_clear(unpacker);
    unpacker->open.begun = true;
    unpacker->open.draw = entry->draw;
    sample_begin(&unpacker->open.lists, &unpacker->response, entry);
}

/* Memory that was joined in is used up; it is kept for the open sample or for views. */
static void drop_joined(struct unpacker *unpacker)
{
    if (unpacker->needed && unpacker->joined)
        messages_push(&unpacker->open.messages, unpacker->joined);
    else
        message_done(unpacker, unpacker->joined);
    unpacker->joined = NULL;
}

/* Memory to join a field in. What was joined before is kept if it is needed. */
static uint8_t *unpacker_memory(void *arg, size_t size)
{
    enum { STEP = 4096 };
    struct unpacker *unpacker = arg;
    bool kept = unpacker->needed || unpacker->keeps;
    if (!unpacker->joined || kept || trp_message_size(unpacker->joined) < size) {
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
        message_done(unpacker, message);
        return TRP_OK;
    }
    drop_joined(unpacker);
    unpacker->needed = false;
    size_t size = trp_message_size(message);
    messages_push(&unpacker->open.messages, message);
    unpacker->open.bytes += size;
    if (unpacker->open.bytes > SAMPLE_BYTES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "a sample of more than %zu bytes",
                        (size_t)SAMPLE_BYTES_MAX);
    return TRP_OK;
}

/* ---- entries --------------------------------------------------------------------------------- */

static trp_status fill_whole(struct unpacker *unpacker, struct batch *batch)
{
    const struct wire_entry *entry = &unpacker->response.entries[0];
    const struct wire_lists *lists = &unpacker->response.lists;
    struct sample sample = {
        .lists = lists,
        .item = &lists->items[entry->item],
        .chunks = lists->chunks,
        .chunk_count = entry->chunk_count,
        .draw = entry->draw,
    };
    return unpacker_sample(unpacker, &sample, batch);
}

/* A part of a sample: joins the open one, which may end with it. */
static trp_status fill_part(struct unpacker *unpacker, struct batch *batch)
{
    const struct wire_entry *entry = &unpacker->response.entries[0];
    if (entry->has_info)
        open_begin(unpacker, entry);
    TRP_TRY(sample_add_chunks(&unpacker->open.lists, &unpacker->response, entry));
    unpacker->needed |= entry->chunk_count > 0;
    if (!entry->end_of_sequence)
        return TRP_OK;
    struct sample sample = {
        .lists = &unpacker->open.lists,
        .item = &unpacker->open.lists.items[0],
        .chunks = unpacker->open.lists.chunks,
        .chunk_count = unpacker->open.lists.chunk_count,
        .draw = unpacker->open.draw,
    };
    trp_status status = unpacker_sample(unpacker, &sample, batch);
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
        return fill_whole(unpacker, batch);
    return fill_part(unpacker, batch);
}

static void rows_place(const struct decode_template *template, const struct raw_sample *raw,
                       struct batch *batch)
{
    if (!batch->views) {
        decode_template_copy(template, raw, batch->columns, batch->rows);
        return;
    }
    views_begin(batch->views, batch->rows);
    decode_template_view(template, raw, batch->views, batch->rows);
}

/* Tries the templates, the one that matched last before the others. */
bool unpacker_fill_by_template(struct unpacker *unpacker, const struct raw_sample *raw,
                               struct batch *batch)
{
    uint32_t count = unpacker->learnt < TEMPLATES ? unpacker->learnt : TEMPLATES;
    for (uint32_t i = 0, at = unpacker->template; i < count; i++, at = (at + 1) % count) {
        bool known = raw->shape != 0 && raw->shape == unpacker->shape && at == unpacker->template;
        if (!(known ? decode_template_matches_again
                    : decode_template_matches)(unpacker->templates[at], raw))
            continue;
        rows_place(unpacker->templates[at], raw, batch);
        unpacker->template = at;
        unpacker->shape = raw->shape;
        batch_end_row(batch, &raw->facts);
        return true;
    }
    return false;
}

/* Learning costs as much as decoding; samples that are all different would make it a waste. */
void unpacker_learn(struct unpacker *unpacker, const struct raw_sample *raw)
{
    if (unpacker->learnt >= TEMPLATES && unpacker->misses++ < TEMPLATE_MISSES)
        return;
    struct decode_template **template = &unpacker->templates[unpacker->learnt++ % TEMPLATES];
    if (unpacker->learnt == 2 * TEMPLATES)
        unpacker->learnt = TEMPLATES;
    unpacker->misses = 0;
    unpacker->shape = 0;
    if (!*template)
        *template = decode_template_create();
    decode_template_learn(*template, raw, unpacker->specs, unpacker->column_count);
}

static trp_status fill_entry(struct unpacker *unpacker, const struct field *field,
                             struct batch *batch)
{
    struct raw_sample raw;
    bool whole = !unpacker->open.begun && raw_sample_parse(field->bytes, &raw);
    if (whole && unpacker_fill_by_template(unpacker, &raw, batch))
        return TRP_OK;
    trp_bytes response = {field->before,
                          (size_t)(field->bytes.data + field->bytes.size - field->before)};
    TRP_TRY(fill_decoded(unpacker, response, batch));
    if (whole)
        unpacker_learn(unpacker, &raw);
    return TRP_OK;
}

trp_status unpacker_feed(struct unpacker *unpacker, trp_message *message)
{
    trp_status status = drop_message(unpacker);
    const trp_bytes *parts;
    size_t count = trp_message_parts(message, &parts);
    unpacker->message = message;
    if (status == TRP_OK)
        unpacker->parts = assembler_of(parts, count, unpacker_memory, unpacker);
    return status;
}

trp_status unpacker_feed_shared(struct unpacker *unpacker, trp_message *message,
                                struct shared_view *view)
{
    struct shared_reader *shared = &unpacker->shared;
    trp_bytes bytes = message_bytes(message);
    unpacker_reset(unpacker);
    unpacker->message = message;
    TRP_TRY(shared_samples_decode(bytes, &shared->samples));
    shared->view = view;
    return TRP_OK;
}

bool unpacker_used_up(const struct unpacker *unpacker)
{
    return unpacker->shared.next == unpacker->shared.samples.header.entries;
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

void unpacker_keep(struct unpacker *unpacker)
{
    unpacker->keeps = true;
}

void unpacker_release(struct unpacker *unpacker)
{
    for (uint32_t i = 0; i < unpacker->kept.count; i++)
        trp_message_destroy(unpacker->kept.at[i]);
    unpacker->kept.count = 0;
}

void unpacker_reset(struct unpacker *unpacker)
{
    open_clear(unpacker);
    drop_joined(unpacker);
    message_done(unpacker, unpacker->message);
    unpacker->message = NULL;
    unpacker->parts = (struct assembler){.memory = NULL};
    unpacker->shared.view = NULL;
    unpacker->shared.next = 0;
    unpacker->shared.shape_count = 0;
    unpacker->shared.samples.header = (struct shared_header){0};
}

/* ---- life ------------------------------------------------------------------------------------ */

struct unpacker *unpacker_create(const trp_tensor_spec *columns, size_t column_count)
{
    struct unpacker *unpacker = xcalloc(1, sizeof *unpacker);
    unpacker->columns = xcalloc(column_count, sizeof *unpacker->columns);
    unpacker->specs = xcalloc(column_count, sizeof *unpacker->specs);
    unpacker->column_count = column_count;
    for (size_t i = 0; i < column_count; i++) {
        unpacker->specs[i] = columns[i];
        unpacker->specs[i].name = columns[i].name ? xstrdup(columns[i].name) : NULL;
        unpacker->columns[i].spec = unpacker->specs[i];
        unpacker->columns[i].bytes = trp_tensor_bytes(&columns[i]);
    }
    return unpacker;
}

const trp_tensor_spec *unpacker_columns(const struct unpacker *unpacker, size_t *count)
{
    *count = unpacker->column_count;
    return unpacker->specs;
}

void unpacker_destroy(struct unpacker *unpacker)
{
    if (!unpacker)
        return;
    unpacker_reset(unpacker);
    unpacker_release(unpacker);
    for (size_t i = 0; i < unpacker->column_count; i++)
        free((void *)unpacker->specs[i].name);
    for (size_t i = 0; i < TEMPLATES; i++)
        decode_template_destroy(unpacker->templates[i]);
    free(unpacker->specs);
    free(unpacker->columns);
    free(unpacker->open.messages.at);
    free(unpacker->kept.at);
    shared_reader_cleanup(&unpacker->shared);
    wire_lists_cleanup(&unpacker->open.lists);
    wire_sample_response_cleanup(&unpacker->response);
    cutter_cleanup(&unpacker->cutter);
    free(unpacker);
}
