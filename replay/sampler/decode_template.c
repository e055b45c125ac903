/* Decoding a sample of six small columns costs a microsecond, ten times as much as copying it; but
 * the samples of a table look all alike, because one program wrote them.
 *
 * A template is a decoded sample with gaps: in the trajectory where chunk keys are, in the chunks
 * where rows are. Another sample whose bytes are equal outside the gaps decodes in the same way,
 * because what lies in a gap is a varint of the same length, or bytes whose length was said before
 * it. So nothing is trusted that was not compared: a sample that differs anywhere is decoded and
 * checked by unpack.c. */
#include "decode_template.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/copy.h"
#include "replay/wire/tensor.h"
#include "replay/wire/bytes.h"

/* ---- splitting ------------------------------------------------------------------------------- */

static bool split_item(trp_bytes bytes, struct raw_sample *sample)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, VARINT))
            sample->facts.key = field.value;
        else if (field.tag == TAG(5, FIXED64))
            sample->facts.priority = bits_double(field.value);
        else if (field.tag == TAG(6, VARINT))
            sample->facts.times_sampled = (int32_t)field.value;
        else if (field.tag == TAG(8, LEN))
            sample->trajectory = field.bytes;
        else if (field.tag == TAG(POLICY_VERSION_FIELD, VARINT))
            sample->facts.policy_version = field.value;
        else if (field.tag != TAG(2, LEN) && field.tag != TAG(7, LEN))
            return false;
    }
    return !reader.malformed && sample->trajectory.size > 0;
}

static bool split_info(trp_bytes bytes, struct raw_sample *sample)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    if (!read_field(&reader, &field) || field.tag != TAG(1, LEN) ||
        !split_item(field.bytes, sample))
        return false;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(2, FIXED64))
            sample->facts.draw.probability = bits_double(field.value);
        else if (field.tag == TAG(3, VARINT))
            sample->facts.draw.table_size = (int64_t)field.value;
        else if (field.tag == TAG(4, VARINT))
            sample->facts.draw.rate_limited = field.value != 0;
        else
            return false;
    }
    return !reader.malformed;
}

static bool split_chunk(trp_bytes bytes, struct raw_sample *sample)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    if (sample->chunk_count == TEMPLATE_CHUNKS_MAX || !read_field(&reader, &field) ||
        field.tag != TAG(1, VARINT))
        return false;
    uint32_t index = sample->chunk_count++;
    sample->chunks[index].key = field.value;
    sample->chunks[index].key_bytes =
        (trp_bytes){field.before + 1, (size_t)(reader.at - field.before - 1)};
    if (!read_field(&reader, &field))
        return false;
    const uint8_t *body = field.tag == TAG(2, LEN) ? reader.at : field.before;
    sample->chunks[index].body = (struct body){.data = body, .size = (size_t)(reader.end - body)};
    return true;
}

bool raw_sample_parse(trp_bytes entry, struct raw_sample *sample)
{
    struct reader reader = reader_of(entry);
    struct field field;
    sample->shape = 0;
    sample->facts = (struct sample_facts){0};
    sample->trajectory = (trp_bytes){0};
    sample->chunk_count = 0;
    if (!read_field(&reader, &field) || field.tag != TAG(1, LEN) ||
        !split_info(field.bytes, sample))
        return false;
    while (read_field(&reader, &field) && field.tag == TAG(2, LEN))
        if (!split_chunk(field.bytes, sample))
            return false;
    return !reader.malformed && sample->chunk_count > 0 && reader.at == reader.end &&
           field.tag == TAG(3, VARINT) && field.value == 1;
}

/* ---- templates ------------------------------------------------------------------------------- */

/* A sample may differ from the template in these bytes. */
struct gap {
    size_t at, size;
    uint32_t chunk; /* in a trajectory: whose key it is */
};

/* Bytes that another sample has, too, except in the gaps. */
struct gapped {
    uint8_t *bytes;
    size_t size;
    struct gap *gaps; /* ascending */
    uint32_t gap_count, gap_capacity;
};

/* Rows of a chunk's body to their place in a column. */
struct row_copy {
    uint32_t chunk, column;
    size_t from, to, size;
};

struct decode_template {
    bool known;
    struct gapped trajectory;
    struct gapped chunks[TEMPLATE_CHUNKS_MAX];
    uint32_t chunk_count;
    struct row_copy *copies;
    uint32_t copy_count, copy_capacity;
    size_t *row_bytes; /* of each column */
};

static void gapped_set(struct gapped *gapped, trp_bytes bytes)
{
    gapped->bytes = xrealloc(gapped->bytes, bytes.size + 1);
    if (bytes.size)
        memcpy(gapped->bytes, bytes.data, bytes.size);
    gapped->size = bytes.size;
    gapped->gap_count = 0;
}

static void gapped_add_gap(struct gapped *gapped, struct gap gap)
{
    if (gapped->gap_count == gapped->gap_capacity) {
        gapped->gaps = array_grow(gapped->gaps, &gapped->gap_capacity, sizeof *gapped->gaps);
    }
    gapped->gaps[gapped->gap_count++] = gap;
}

/* How much of [at, at + size) of a body in pieces lies in one piece, and where. */
static size_t body_run(const struct body *body, size_t at, size_t size, const uint8_t **run)
{
    size_t from = (body->skip + at) % body->piece_bytes, left = body->piece_bytes - from;
    *run = body->pieces[(body->skip + at) / body->piece_bytes] + from;
    return size < left ? size : left;
}

static bool body_equals(const struct body *body, size_t at, const uint8_t *bytes, size_t size)
{
    if (body->data)
        return memcmp(body->data + at, bytes, size) == 0;
    while (size > 0) {
        const uint8_t *run;
        size_t length = body_run(body, at, size, &run);
        if (memcmp(run, bytes, length) != 0)
            return false;
        at += length;
        bytes += length;
        size -= length;
    }
    return true;
}

/* Equal outside the gaps. */
static bool gapped_matches(const struct gapped *gapped, const struct body *body)
{
    size_t at = 0;
    if (body->size != gapped->size)
        return false;
    for (uint32_t i = 0; i < gapped->gap_count; i++) {
        const struct gap *gap = &gapped->gaps[i];
        if (!body_equals(body, at, gapped->bytes + at, gap->at - at))
            return false;
        at = gap->at + gap->size;
    }
    return body_equals(body, at, gapped->bytes + at, body->size - at);
}

static bool keys_match(const struct decode_template *template, const struct raw_sample *sample)
{
    for (uint32_t i = 0; i < template->trajectory.gap_count; i++) {
        const struct gap *gap = &template->trajectory.gaps[i];
        trp_bytes key = sample->chunks[gap->chunk].key_bytes;
        if (key.size != gap->size ||
            memcmp(sample->trajectory.data + gap->at, key.data, key.size) != 0)
            return false;
    }
    return true;
}

static void copy_pieces(uint8_t *to, const struct body *body, size_t at, size_t size)
{
    while (size > 0) {
        const uint8_t *run;
        size_t length = body_run(body, at, size, &run);
        memcpy(to, run, length);
        to += length;
        at += length;
        size -= length;
    }
}

bool decode_template_matches_again(const struct decode_template *template,
                                   const struct raw_sample *sample)
{
    for (uint32_t i = 0; i < template->chunk_count; i++)
        if (!gapped_matches(&template->chunks[i], &sample->chunks[i].body))
            return false;
    return true;
}

bool decode_template_matches(const struct decode_template *template,
                             const struct raw_sample *sample)
{
    return template->known && sample->chunk_count == template->chunk_count &&
           gapped_matches(&template->trajectory, &(struct body){.data = sample->trajectory.data,
                                                                .size = sample->trajectory.size}) &&
           keys_match(template, sample) && decode_template_matches_again(template, sample);
}

void decode_template_copy(const struct decode_template *template, const struct raw_sample *sample,
                          void *const *columns, size_t row)
{
    for (uint32_t i = 0; i < template->copy_count; i++) {
        const struct row_copy *copy = &template->copies[i];
        uint8_t *out = (uint8_t *)columns[copy->column] + row * template->row_bytes[copy->column];
        const struct body *body = &sample->chunks[copy->chunk].body;
        if (body->data)
            copy_small(out + copy->to, body->data + copy->from, copy->size);
        else
            copy_pieces(out + copy->to, body, copy->from, copy->size);
    }
}

void decode_template_view(const struct decode_template *template, const struct raw_sample *sample,
                          struct views *views, uint32_t row)
{
    for (uint32_t i = 0; i < template->copy_count; i++) {
        const struct row_copy *copy = &template->copies[i];
        const struct body *body = &sample->chunks[copy->chunk].body;
        if (body->data) {
            views_push(views, row, copy->column, body->data + copy->from, copy->size);
            continue;
        }
        for (size_t at = 0, length; at < copy->size; at += length) {
            const uint8_t *run;
            length = body_run(body, copy->from + at, copy->size - at, &run);
            views_push(views, row, copy->column, run, length);
        }
    }
}

/* ---- learning -------------------------------------------------------------------------------- */

/* Every tensor has to be a plain literal; its rows are a gap, found again by their number. */
static bool learn_chunk(struct gapped *gapped, trp_bytes body)
{
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more = true;
    gapped_set(gapped, body);
    wire_tensors_open(&reader, &(struct wire_chunk){.tail = body});
    for (;;) {
        trp_bytes raw;
        if (wire_tensor_next(&reader, &tensor, &more) != TRP_OK)
            return false;
        if (!more)
            return !reader.delta_encoded;
        if (!block_literal(tensor.content, &raw))
            return false;
        gapped_add_gap(gapped,
                       (struct gap){.at = (size_t)(raw.data - body.data), .size = raw.size});
    }
}

static bool sample_chunk_index(const struct raw_sample *sample, uint64_t key, uint32_t *index)
{
    for (*index = 0; *index < sample->chunk_count; ++*index)
        if (sample->chunks[*index].key == key)
            return true;
    return false;
}

static struct row_copy *push_copy(struct decode_template *template)
{
    if (template->copy_count == template->copy_capacity)
        template->copies =
            array_grow(template->copies, &template->copy_capacity, sizeof *template->copies);
    return &template->copies[template->copy_count++];
}

static bool learn_slice(struct decode_template *template, const struct raw_sample *sample,
                        trp_bytes bytes, uint32_t column, size_t step_bytes, size_t *done)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    struct wire_slice slice = {0};
    struct gap key = {0};
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, VARINT)) {
            slice.chunk_key = field.value;
            key.at = (size_t)(field.before + 1 - sample->trajectory.data);
            key.size = (size_t)(reader.at - field.before - 1);
        } else if (field.tag == TAG(2, VARINT)) {
            slice.offset = (int32_t)field.value;
        } else if (field.tag == TAG(3, VARINT)) {
            slice.length = (int32_t)field.value;
        } else if (field.tag == TAG(4, VARINT)) {
            slice.index = (int32_t)field.value;
        }
    }
    if (key.size == 0 || !sample_chunk_index(sample, slice.chunk_key, &key.chunk))
        return false;
    gapped_add_gap(&template->trajectory, key);
    const struct gapped *chunk = &template->chunks[key.chunk];
    size_t from = (size_t)slice.offset * step_bytes, size = (size_t)slice.length * step_bytes;
    if ((uint32_t)slice.index >= chunk->gap_count || from + size > chunk->gaps[slice.index].size)
        return false;
    *push_copy(template) = (struct row_copy){.chunk = key.chunk,
                                             .column = column,
                                             .from = chunk->gaps[slice.index].at + from,
                                             .to = *done,
                                             .size = size};
    *done += size;
    return true;
}

static bool learn_column(struct decode_template *template, const struct raw_sample *sample,
                         trp_bytes bytes, uint32_t column, const trp_tensor_spec *spec)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    bool squeeze = false;
    size_t done = 0;
    while (read_field(&reader, &field))
        if (field.tag == TAG(2, VARINT))
            squeeze = field.value != 0;
    size_t row_bytes = template->row_bytes[column];
    size_t step_bytes = squeeze ? row_bytes : row_bytes / (size_t)spec->shape[0];
    reader = reader_of(bytes);
    while (read_field(&reader, &field))
        if (field.tag == TAG(1, LEN) &&
            !learn_slice(template, sample, field.bytes, column, step_bytes, &done))
            return false;
    return done == row_bytes;
}

bool decode_template_learn(struct decode_template *template, const struct raw_sample *sample,
                           const trp_tensor_spec *columns, size_t column_count)
{
    template->known = false;
    template->copy_count = 0;
    template->chunk_count = sample->chunk_count;
    template->row_bytes = xrealloc(template->row_bytes, column_count * sizeof *template->row_bytes);
    for (size_t i = 0; i < column_count; i++)
        template->row_bytes[i] = trp_tensor_bytes(&columns[i]);
    for (uint32_t i = 0; i < sample->chunk_count; i++)
        if (!learn_chunk(&template->chunks[i],
                         (trp_bytes){sample->chunks[i].body.data, sample->chunks[i].body.size}))
            return false;
    gapped_set(&template->trajectory, sample->trajectory);
    struct reader reader = reader_of(sample->trajectory);
    struct field field;
    uint32_t column = 0;
    while (read_field(&reader, &field)) {
        if (field.tag != TAG(1, LEN))
            continue;
        if (column == column_count ||
            !learn_column(template, sample, field.bytes, column, &columns[column]))
            return false;
        column++;
    }
    template->known = column == column_count;
    return template->known;
}

struct decode_template *decode_template_create(void)
{
    return xcalloc(1, sizeof(struct decode_template));
}

static void gapped_cleanup(struct gapped *gapped)
{
    free(gapped->bytes);
    free(gapped->gaps);
}

void decode_template_destroy(struct decode_template *template)
{
    if (!template)
        return;
    gapped_cleanup(&template->trajectory);
    for (uint32_t i = 0; i < TEMPLATE_CHUNKS_MAX; i++)
        gapped_cleanup(&template->chunks[i]);
    free(template->copies);
    free(template->row_bytes);
    free(template);
}
