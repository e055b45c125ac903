/* Records as they lie on disk. A file can hold anything, so a decoder takes a span and says yes
 * only when every length inside adds up to exactly that span; what it accepts can be used without
 * further checks. Encoders and decoders of one record stand next to each other. */
#include "record.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/crc32c.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");

size_t item_record_size(const struct item *item)
{
    return sizeof(struct item_record) + 2 * sizeof(uint64_t) * item->trajectory->chunk_count +
           item->trajectory->size + SUM_BYTES;
}

uint32_t item_state_sum(const struct item_record *header, uint64_t seq)
{
    uint64_t state[] = {seq, header->key, 0, (uint64_t)header->times_sampled};
    memcpy(&state[2], &header->priority, sizeof header->priority);
    uint32_t sum = crc32c(0, state, sizeof state);
    return sum ? sum : 1;
}

bool item_state_valid(const struct item_record *header, uint64_t seq)
{
    return !isnan(header->priority) && header->times_sampled >= 0 &&
           (header->state_sum == 0 || header->state_sum == item_state_sum(header, seq));
}

/* `rest` is what follows the header. */
static uint32_t item_sum(struct item_record header, const uint8_t *rest, size_t size)
{
    header.priority = 0;
    header.times_sampled = 0;
    header.state_sum = 0;
    return crc32c(crc32c(0, &header, sizeof header), rest, size);
}

void item_record_encode(struct buffer *out, uint32_t table_id, const struct item *item)
{
    const struct trajectory *trajectory = item->trajectory;
    const size_t size = item_record_size(item);
    uint8_t *at = buffer_reserve(out, size);
    struct item_record header = {
        .table_id = table_id,
        .chunk_count = trajectory->chunk_count,
        .key = item->key,
        .priority = item->priority,
        .inserted_at_ns = item->inserted_at_ns,
        .times_sampled = item->times_sampled,
        .trajectory_bytes = trajectory->size,
        .policy_version = item->policy_version,
        .fingerprint = item->fingerprint,
    };
    header.state_sum = item_state_sum(&header, item->seq);
    memcpy(at, &header, sizeof header);
    at += sizeof header;
    const uint8_t *rest = at;
    const size_t seqs_bytes = sizeof(uint64_t) * trajectory->chunk_count;
    for (uint32_t index = 0; index < trajectory->chunk_count; index++, at += sizeof(uint64_t)) {
        memcpy(at, &item->chunks[index]->seq, sizeof(uint64_t));
        memcpy(at + seqs_bytes, &item->chunks[index]->episode, sizeof(uint64_t));
    }
    at += seqs_bytes;
    memcpy(at, trajectory->bytes, trajectory->size);
    at += trajectory->size;
    uint32_t sum = item_sum(header, rest, (size_t)(at - rest));
    memcpy(at, &sum, sizeof sum);
    out->size += size;
}

/* Is it as it was written, but for what changes? */
static bool item_record_view(trp_bytes bytes, struct item_view *view)
{
    if (bytes.size < sizeof view->header)
        return false;
    memcpy(&view->header, bytes.data, sizeof view->header);
    uint64_t seqs = 2 * sizeof(uint64_t) * (uint64_t)view->header.chunk_count;
    uint64_t rest = seqs + view->header.trajectory_bytes;
    if (sizeof view->header + rest + SUM_BYTES != bytes.size)
        return false;
    uint32_t sum;
    memcpy(&sum, bytes.data + bytes.size - sizeof sum, sizeof sum);
    view->chunk_seqs = bytes.data + sizeof view->header;
    view->trajectory = (trp_bytes){view->chunk_seqs + seqs, view->header.trajectory_bytes};
    return item_sum(view->header, view->chunk_seqs, rest) == sum;
}

bool item_record_decode(trp_bytes bytes, uint64_t seq, struct item_view *view)
{
    if (item_record_view(bytes, view))
        return item_state_valid(&view->header, seq);
    view->header = (struct item_record){.key = seq};
    return false;
}

uint64_t item_view_chunk(const struct item_view *view, uint32_t index)
{
    assert(index < view->header.chunk_count);
    uint64_t seq;
    memcpy(&seq, view->chunk_seqs + sizeof seq * index, sizeof seq);
    return seq;
}

uint64_t item_view_episode(const struct item_view *view, uint32_t index)
{
    assert(index < view->header.chunk_count);
    uint64_t episode;
    memcpy(&episode, view->chunk_seqs + sizeof episode * (view->header.chunk_count + index),
           sizeof episode);
    return episode;
}

/* The end of `bytes` is the sum of all before it. */
static bool sum_matches(trp_bytes bytes)
{
    uint32_t sum;
    if (bytes.size < sizeof sum)
        return false;
    memcpy(&sum, bytes.data + bytes.size - sizeof sum, sizeof sum);
    return sum == crc32c(0, bytes.data, bytes.size - sizeof sum);
}

void records_encode(uint8_t *out, trp_bytes records)
{
    uint32_t sum = crc32c(0, records.data, records.size);
    memcpy(out, records.data, records.size);
    memcpy(out + records.size, &sum, sizeof sum);
}

bool records_decode(trp_bytes value, size_t record_bytes, trp_bytes *records)
{
    size_t rest = value.size % record_bytes;
    *records = (trp_bytes){value.data, value.size - rest};
    return records->size > 0 && (rest == 0 || (rest == SUM_BYTES && sum_matches(value)));
}

void table_record_encode(struct buffer *out, const struct table_view *view)
{
    struct table_record header = view->header;
    size_t start = out->size;
    header.name_bytes = (uint32_t)view->name.size | TABLE_SUMMED;
    header.options_bytes = (uint32_t)view->options.size;
    header.signature_bytes = (uint32_t)view->signature.size;
    header.given_bytes = (uint32_t)view->given.size;
    buffer_append(out, span_of(&header, sizeof header));
    buffer_append(out, view->name);
    buffer_append(out, view->options);
    buffer_append(out, view->signature);
    buffer_append(out, view->given);
    uint32_t sum = crc32c(0, out->data + start, out->size - start);
    buffer_append(out, span_of(&sum, sizeof sum));
}

bool table_record_decode(trp_bytes bytes, struct table_view *view)
{
    if (bytes.size < sizeof view->header)
        return false;
    memcpy(&view->header, bytes.data, sizeof view->header);
    if (view->header.name_bytes & TABLE_SUMMED) {
        if (!sum_matches(bytes))
            return false;
        bytes.size -= SUM_BYTES;
        view->header.name_bytes &= ~(uint32_t)TABLE_SUMMED;
    }
    uint64_t name = view->header.name_bytes, options = view->header.options_bytes,
             signature = view->header.signature_bytes, given = view->header.given_bytes;
    if (sizeof view->header + name + options + signature + given != bytes.size)
        return false;
    const uint8_t *at = bytes.data + sizeof view->header;
    view->name = (trp_bytes){at, name};
    view->options = (trp_bytes){at + name, options};
    view->signature = (trp_bytes){at + name + options, signature};
    view->given = (trp_bytes){at + name + options + signature, given};
    return true;
}

uint32_t meta_record_sum(const struct meta_record *record)
{
    return crc32c(0, record, offsetof(struct meta_record, sum));
}

bool meta_record_decode(trp_bytes bytes, struct meta_record *record)
{
    if (bytes.size < sizeof record->format)
        return false;
    *record = (struct meta_record){0};
    memcpy(record, bytes.data, bytes.size < sizeof *record ? bytes.size : sizeof *record);
    bool before = record->format == STORE_FORMAT_BEFORE;
    /* Another format may have another size: the caller wants to see its number. */
    if (!before && record->format != STORE_FORMAT)
        return true;
    return bytes.size == (before ? offsetof(struct meta_record, sum) : sizeof *record) &&
           (before || record->sum == meta_record_sum(record)) && record->item_ceiling <= SEQ_MAX &&
           record->chunk_ceiling <= SEQ_MAX;
}

void counters_encode(uint8_t out[COUNTERS_BYTES], const int64_t counters[COUNTERS])
{
    records_encode(out, span_of(counters, COUNTERS * sizeof *counters));
}

bool counters_decode(trp_bytes bytes, int64_t counters[COUNTERS])
{
    trp_bytes records;
    if (!records_decode(bytes, COUNTERS * sizeof *counters, &records) ||
        records.size != COUNTERS * sizeof *counters)
        return false;
    memcpy(counters, records.data, records.size);
    for (unsigned which = 0; which < COUNTERS_SIGNED; which++)
        if (counters[which] < 0)
            return false;
    return true;
}

static bool change_valid(struct change change)
{
    uint64_t seq = change_seq(change);
    double priority;
    switch (change_op(change)) {
    case CHANGE_PRIORITY:
        memcpy(&priority, &change.value, sizeof priority);
        return seq <= SEQ_MAX && !isnan(priority);
    case CHANGE_TIMES:
        return seq <= SEQ_MAX && change.value <= INT32_MAX;
    case CHANGE_DELETE:
        return seq <= SEQ_MAX && change.value > 0 && change.value <= SEQ_MAX - seq + 1;
    case CHANGE_COUNTER:
        seq = counter_index(change);
        return counter_table(change) <= UINT32_MAX && seq < COUNTERS &&
               (seq >= COUNTERS_SIGNED || change.value <= INT64_MAX);
    }
    return false;
}

bool changes_decode(trp_bytes part, struct buffer *out)
{
    trp_bytes changes;
    if (part.size > PIECE_BYTES || !records_decode(part, sizeof(struct change), &changes))
        return false;
    size_t count = changes.size / sizeof(struct change);
    for (size_t index = 0; index < count; index++) {
        struct change change;
        memcpy(&change, changes.data + index * sizeof change, sizeof change);
        if (!change_valid(change))
            return false;
    }
    buffer_append(out, changes);
    return true;
}

void changes_sort(struct change *changes, struct change *scratch, size_t count)
{
    uint64_t all_or = 0, all_and = UINT64_MAX;
    bool sorted = true;
    for (size_t index = 0; index < count; index++) {
        uint64_t seq = change_seq(changes[index]);
        all_or |= seq;
        all_and &= seq;
        sorted &= index == 0 || change_seq(changes[index - 1]) <= seq;
    }
    if (sorted)
        return;
    struct change *from = changes, *to = scratch;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (((all_or ^ all_and) >> shift & 0xff) == 0)
            continue; /* the byte is the same everywhere */
        size_t starts[257] = {0};
        for (size_t index = 0; index < count; index++)
            starts[(change_seq(from[index]) >> shift & 0xff) + 1]++;
        for (unsigned byte = 1; byte < 257; byte++)
            starts[byte] += starts[byte - 1];
        for (size_t index = 0; index < count; index++)
            to[starts[change_seq(from[index]) >> shift & 0xff]++] = from[index];
        struct change *swap = from;
        from = to;
        to = swap;
    }
    if (from != changes)
        memcpy(changes, from, count * sizeof *changes);
}
