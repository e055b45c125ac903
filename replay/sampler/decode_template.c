/* Decoding a sample of six small columns costs a microsecond, ten times as much as copying it; but
 * the samples of a table look all alike, because one program wrote them.
 *
 * A template is a decoded sample with gaps: in the trajectory where chunk keys are, in the chunks
 * where rows are. Another sample whose bytes are equal outside the gaps decodes in the same way,
 * because what lies in a gap is a varint of the same length, or bytes whose length was said before
 * it. So nothing is trusted that was not compared: a sample that differs anywhere is decoded and
 * checked by unpack.c. */
#include "decode_template.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/copy.h"
#include "replay/wire/tensor.h"
#include "replay/wire/parts.h"

/* ---- splitting ------------------------------------------------------------------------------- */

static bool split_item(trp_bytes bytes, struct raw_sample *sample)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, VARINT))
            sample->item.key = field.value;
        else if (field.tag == TAG(5, FIXED64))
            sample->item.priority = bits_double(field.value);
        else if (field.tag == TAG(6, VARINT))
            sample->item.times_sampled = (int32_t)field.value;
        else if (field.tag == TAG(8, LEN))
            sample->item.trajectory = field.bytes;
        else if (field.tag == TAG(POLICY_VERSION_FIELD, VARINT))
            sample->item.policy_version = field.value;
        else if (field.tag != TAG(2, LEN) && field.tag != TAG(7, LEN))
            return false;
    }
    return !reader.malformed && sample->item.trajectory.size > 0;
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
            sample->draw.probability = bits_double(field.value);
        else if (field.tag == TAG(3, VARINT))
            sample->draw.table_size = (int64_t)field.value;
        else if (field.tag == TAG(4, VARINT))
            sample->draw.rate_limited = field.value != 0;
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
    struct raw_chunk *chunk = &sample->chunks[sample->chunk_count++];
    chunk->key = field.value;
    chunk->key_bytes = (trp_bytes){field.before + 1, (size_t)(reader.at - field.before - 1)};
    if (!read_field(&reader, &field))
        return false;
    const uint8_t *body = field.tag == TAG(2, LEN) ? reader.at : field.before;
    chunk->body = (struct body){.data = body, .size = (size_t)(reader.end - body)};
    return true;
}

bool raw_sample_parse(trp_bytes entry, struct raw_sample *sample)
{
    struct reader reader = reader_of(entry);
    struct field field;
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
    size_t from, to, size, row_bytes;
};

struct decode_template {
    bool known, canonical; /* the trajectory is as in a raw sample with a shape, */
    uint64_t shape;        /* which was this one the last time; 0: never */
    struct gapped trajectory;
    struct gapped chunks[TEMPLATE_CHUNKS_MAX];
    uint32_t chunk_count;
    struct row_copy *copies;
    uint32_t copy_count, copy_capacity;
};

enum {
    TEMPLATES = 16,       /* chunks of 8 steps make items of as many kinds */
    TEMPLATE_MISSES = 16, /* samples decoded for each that is learnt from */
};

struct decode_templates {
    struct decode_template at[TEMPLATES];
    uint32_t matched; /* the one that did last */
    uint32_t learnt;  /* in all */
    uint32_t misses;  /* samples that matched none since the last was learnt */
};

static void gapped_set(struct gapped *gapped, trp_bytes bytes)
{
    gapped->bytes = xrealloc(gapped->bytes, bytes.size + 1);
    if (bytes.size)
        memcpy(gapped->bytes, bytes.data, bytes.size);
    gapped->size = bytes.size;
    gapped->gap_count = 0;
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
            memcmp(sample->item.trajectory.data + gap->at, key.data, key.size) != 0)
            return false;
    }
    return true;
}

void pieces_copy(uint8_t *to, const struct body *body, size_t at, size_t size)
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

static bool chunks_match(const struct decode_template *template, const struct raw_sample *sample)
{
    for (uint32_t i = 0; i < template->chunk_count; i++)
        if (!gapped_matches(&template->chunks[i], &sample->chunks[i].body))
            return false;
    return true;
}

static bool trajectory_matches(const struct decode_template *template,
                               const struct raw_sample *sample)
{
    if (template->shape != 0 && template->shape == sample->shape)
        return true;
    return template->canonical == (sample->shape != 0) &&
           gapped_matches(&template->trajectory,
                          &(struct body){.data = sample->item.trajectory.data,
                                         .size = sample->item.trajectory.size}) &&
           keys_match(template, sample);
}

/* The template to try first: the last one of that shape, or the last one. */
static uint32_t likely_template(const struct decode_templates *templates, uint64_t shape,
                                uint32_t count)
{
    for (uint32_t i = 0; i < count && shape != 0; i++)
        if (templates->at[i].shape == shape)
            return i;
    return templates->matched;
}

bool decode_templates_copy(struct decode_templates *templates, const struct raw_sample *sample,
                           void *const *columns, size_t row)
{
    uint32_t count = templates->learnt < TEMPLATES ? templates->learnt : TEMPLATES;
    uint32_t at = likely_template(templates, sample->shape, count);
    for (uint32_t i = 0; i < count; i++, at = (at + 1) % count) {
        struct decode_template *template = &templates->at[at];
        if (!template->known || template->chunk_count != sample->chunk_count ||
            template->chunks[0].size != sample->chunks[0].body.size ||
            !trajectory_matches(template, sample) || !chunks_match(template, sample))
            continue;
        for (uint32_t j = 0; j < template->copy_count; j++) {
            const struct row_copy *copy = &template->copies[j];
            const struct body *body = &sample->chunks[copy->chunk].body;
            uint8_t *out = (uint8_t *)columns[copy->column] + row * copy->row_bytes + copy->to;
            if (body->data)
                copy_small(out, body->data + copy->from, copy->size);
            else
                pieces_copy(out, body, copy->from, copy->size);
        }
        templates->matched = at;
        template->shape = sample->shape;
        return true;
    }
    return false;
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
        if (!block_literal(tensor.content, 0, &raw))
            return false;
        *ARRAY_PUSH(gapped->gaps, gapped->gap_count, gapped->gap_capacity) =
            (struct gap){.at = (size_t)(raw.data - body.data), .size = raw.size};
    }
}

static bool learn_slice(struct decode_template *template, const struct raw_sample *sample,
                        const struct wire_slice *slice, struct row_copy copy, size_t step_bytes)
{
    while (copy.chunk < sample->chunk_count && sample->chunks[copy.chunk].key != slice->chunk_key)
        copy.chunk++;
    if (copy.chunk == sample->chunk_count)
        return false;
    if (!template->canonical) {
        trp_bytes key = sample->chunks[copy.chunk].key_bytes, in = sample->item.trajectory;
        size_t at = slice->key_varint ? (size_t)(slice->key_varint - in.data) : in.size;
        if (at >= in.size || key.size > in.size - at ||
            memcmp(in.data + at, key.data, key.size) != 0)
            return false; /* the same number, written in another way */
        struct gapped *in_wire = &template->trajectory;
        *ARRAY_PUSH(in_wire->gaps, in_wire->gap_count, in_wire->gap_capacity) =
            (struct gap){.at = at, .size = key.size, .chunk = copy.chunk};
    }
    const struct gapped *chunk = &template->chunks[copy.chunk];
    size_t from = (size_t)slice->offset * step_bytes;
    if ((uint32_t)slice->index >= chunk->gap_count ||
        from + copy.size > chunk->gaps[slice->index].size)
        return false;
    copy.from = chunk->gaps[slice->index].at + from;
    *ARRAY_PUSH(template->copies, template->copy_count, template->copy_capacity) = copy;
    return true;
}

static bool template_learn(struct decode_template *template, const struct raw_sample *sample,
                           const struct wire_lists *lists, const struct wire_item *item,
                           const trp_tensor_spec *columns)
{
    for (uint32_t i = 0; i < sample->chunk_count; i++)
        if (!learn_chunk(&template->chunks[i],
                         (trp_bytes){sample->chunks[i].body.data, sample->chunks[i].body.size}))
            return false;
    for (uint32_t i = 0; i < item->column_count; i++) {
        const struct wire_column *column = &lists->columns[item->column_first + i];
        struct row_copy copy = {.column = i, .row_bytes = trp_tensor_bytes(&columns[i])};
        size_t steps = column->squeeze ? 1 : (size_t)columns[i].shape[0];
        size_t step_bytes = copy.row_bytes / steps;
        for (uint32_t j = 0; j < column->slice_count; j++, copy.to += copy.size) {
            const struct wire_slice *slice = &lists->slices[column->slice_first + j];
            copy.size = (size_t)slice->length * step_bytes;
            if (!learn_slice(template, sample, slice, copy, step_bytes))
                return false;
        }
    }
    return true;
}

/* Learning costs as much as decoding; samples that are all different would make it a waste. */
void decode_templates_learn(struct decode_templates *templates, const struct raw_sample *sample,
                            const struct wire_lists *lists, const struct wire_item *item,
                            const trp_tensor_spec *columns)
{
    if (sample->chunk_count > TEMPLATE_CHUNKS_MAX ||
        (templates->learnt >= TEMPLATES && templates->misses++ < TEMPLATE_MISSES))
        return;
    struct decode_template *template = &templates->at[templates->learnt++ % TEMPLATES];
    if (templates->learnt == 2 * TEMPLATES)
        templates->learnt = TEMPLATES;
    templates->misses = 0;
    template->shape = 0;
    template->canonical = sample->shape != 0;
    template->copy_count = 0;
    template->chunk_count = sample->chunk_count;
    gapped_set(&template->trajectory, sample->item.trajectory);
    template->known = template_learn(template, sample, lists, item, columns);
}

struct decode_templates *decode_templates_create(void)
{
    return xcalloc(1, sizeof(struct decode_templates));
}

static void gapped_cleanup(struct gapped *gapped)
{
    free(gapped->bytes);
    free(gapped->gaps);
}

void decode_templates_destroy(struct decode_templates *templates)
{
    for (size_t i = 0; templates && i < TEMPLATES; i++) {
        struct decode_template *template = &templates->at[i];
        gapped_cleanup(&template->trajectory);
        for (size_t j = 0; j < TEMPLATE_CHUNKS_MAX; j++)
            gapped_cleanup(&template->chunks[j]);
        free(template->copies);
    }
    free(templates);
}
