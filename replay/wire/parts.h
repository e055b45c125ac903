/* The parts that several of Reverb's hot messages share: chunks, items, growing arrays. Private to
 * the wire codec. Inner decoders return a code and leave the message of the failure to the caller
 * who knows which message it is. */
#ifndef TRP_REPLAY_WIRE_PARTS_H
#define TRP_REPLAY_WIRE_PARTS_H

#include "core/array.h"
#include "core/protobuf.h"
#include "wire.h"

/* Extensions of ours that Reverb's peers skip. */
enum {
    POLICY_VERSION_FIELD = 1000, /* uint64 PrioritizedItem.policy_version */
    SHM_REFERENCE_FIELD = 1001,  /* repeated InsertStreamRequest.shm_references: shm_reference.c */
    SHM_HELLO_FIELD = 1002,      /* bytes InsertStreamRequest.hello: shared_wire.h */
    SHM_SEGMENT_FIELD = 1001,    /* bytes InsertStreamResponse.segment: shared_wire.h */
};

static inline trp_status reader_status(const struct reader *reader)
{
    return reader->malformed ? TRP_INVALID_ARGUMENT : TRP_OK;
}

/* The varint fields 1 to `count` of a message; those that it has not stay as they are. */
static inline trp_status read_varints(trp_bytes bytes, uint64_t *values, uint32_t count)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    while (read_field(&reader, &field))
        if ((field.tag & 7) == VARINT && field.tag >> 3 <= count)
            values[(field.tag >> 3) - 1] = field.value;
    return reader_status(&reader);
}

/* Inner decoders return a code without a message; this makes the message, once. */
trp_status decode_end(const char *what, size_t size, trp_status status);

/* A message of the bytes that `put` puts, both times it is called: one time they are counted.
 * RESOURCE_EXHAUSTED: no memory. Inlined, the first time is additions only, of twenty fields. */
typedef void put_message(struct writer *writer, const void *of);
static inline __attribute__((always_inline)) trp_status
message_encode(put_message *put, const void *of, trp_message **message)
{
    struct writer count = {0};
    put(&count, of);
    *message = trp_message_create(count.size);
    if (!*message)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", count.size);
    struct writer writer = writer_of(trp_message_data(*message), count.size);
    put(&writer, of);
    assert(writer.size == writer.room); /* it put the same both times */
    return TRP_OK;
}

/* ---- bytes in several parts (spans.c) ------------------------------------------------ */

/* Goes to the next part that is not empty; false: there is none, or it is not to be looked at (it
 * has no address). `now` is used up. */
bool spans_advance(struct spans *rest);

/* A field that goes on in the next part: its bytes in this one, and those beyond. ABORTED:
 * its header goes on there, or it is none that may; INVALID_ARGUMENT: it ends nowhere. */
trp_status spans_field(struct spans *rest, struct field *field, struct wire_more *beyond);

/* The next field of a message whose rest is in `rest`; `beyond` are its bytes in the next parts.
 * False: there is none, or `status` says why it cannot be read, as spans_field() does. */
static inline bool rest_field(struct spans *rest, struct field *field, struct wire_more *beyond,
                              trp_status *status)
{
    *status = TRP_OK;
    beyond->count = 0;
    if (rest->now.size == 0 && !spans_advance(rest)) {
        if (rest->more.count > 0)
            *status = TRP_ABORTED; /* it is not to be looked at */
        return false;
    }
    struct reader reader = reader_of(rest->now);
    bool found = read_field(&reader, field);
    if (!found && rest->more.count > 0)
        return (*status = spans_field(rest, field, beyond)) == TRP_OK;
    *status = reader_status(&reader);
    rest->now = (trp_bytes){reader.at, (size_t)(reader.end - reader.at)};
    return found;
}

uint64_t more_size(const struct wire_more *more);

/* All of a message's parts; nothing is copied. */
struct spans spans_of(const trp_bytes *parts, size_t count);
size_t spans_size(const struct spans *spans);

/* Memory to join so many bytes in; NULL: there is none. */
typedef uint8_t *join_memory(void *arg, size_t size);

/* All of it in one piece. RESOURCE_EXHAUSTED: no memory. */
trp_status spans_join(const struct spans *spans, join_memory *memory, void *arg, trp_bytes *bytes);

/* Memory that the request `arg` keeps. */
uint8_t *insert_request_memory(void *arg, size_t size);

/* The fields of a message in parts, which stay. Where the header of a field is cut, all that is
 * left of the message is joined. */
struct assembler {
    struct spans rest; /* begins as spans_of() the message */
    join_memory *memory;
    void *arg;
};

/* The next field; `beyond` are its bytes in the next parts. `*more` false: there is
 * none. INVALID_ARGUMENT: malformed, RESOURCE_EXHAUSTED: no memory; both without a text. */
trp_status assembler_next(struct assembler *assembler, struct field *field,
                          struct wire_more *beyond, bool *more);

/* Puts a field that goes on in the next parts in one place, its header included. */
trp_status assembler_join(struct assembler *assembler, struct field *field,
                          const struct wire_more *beyond);

/* A ChunkData in parts. ABORTED: something else than contents that are one literal goes on in
 * another part, and it has to be joined. */
trp_status chunk_in_parts(const struct spans *spans, struct wire_chunk *chunk);

/* ---- parts --------------------------------------------------------------------------------- */

/* A ChunkData; the same and a PrioritizedItem, pushed to the lists. */
trp_status chunk_read(trp_bytes bytes, struct wire_chunk *chunk);
trp_status chunk_decode(trp_bytes bytes, struct wire_lists *lists);
trp_status item_decode(trp_bytes bytes, struct wire_lists *lists);

/* Keys, packed, and a chunk as field `number`; the columns that an item has in the lists. */
void put_keys(struct writer *writer, uint32_t number, const struct wire_keys *keys);
void put_chunk(struct writer *writer, uint32_t number, const struct wire_chunk *chunk);
void put_columns(struct writer *writer, const struct wire_lists *lists,
                 const struct wire_item *item);

/* Everything of a chunk but its key; NULL: all of it here. */
struct referring;
void put_steps(struct writer *writer, const struct wire_steps *steps, struct referring *referring);

/* Where the content is, instead of it; and a chunk, which has `steps`, as a referenced one of a
 * request, its large contents, which lie behind `memory`, as their offsets there. */
void put_reference(struct writer *writer, trp_bytes content, struct referring *referring);
void put_chunk_reference(struct writer *writer, const struct wire_chunk *chunk,
                         const uint8_t *memory);

/* The fields of an item before its trajectory, which is field 8. */
static inline __attribute__((always_inline)) void put_item_head(struct writer *writer,
                                                                const struct wire_item *item)
{
    if (item->inserted_at_ns) {
        size_t end = writer_mark(writer);
        put_varint_field(writer, 2, (uint64_t)(item->inserted_at_ns % 1000000000));
        put_varint_field(writer, 1, (uint64_t)(item->inserted_at_ns / 1000000000));
        put_len_header(writer, 7, end);
    }
    put_varint_field(writer, POLICY_VERSION_FIELD, item->policy_version);
    put_varint_field(writer, 6, (uint64_t)item->times_sampled);
    put_double_field(writer, 5, item->priority);
    put_bytes_field(writer, 2, item->table);
    put_varint_field(writer, 1, item->key);
}

/* All of it, as field `number`; `lists`: NULL: its columns are not looked at, and the writer need
 * not be in memory. */
static inline __attribute__((always_inline)) void put_item(struct writer *writer, uint32_t number,
                                                           const struct wire_lists *lists,
                                                           const struct wire_item *item)
{
    size_t end = writer_mark(writer);
    if (lists)
        put_columns(writer, lists, item);
    put_bytes(writer, item->trajectory);
    put_len_header(writer, 8, end);
    put_item_head(writer, item);
    put_len_header(writer, number, end);
}

#endif
