/* The parts that several of Reverb's hot messages share: chunks, items, growing arrays. Private to
 * the wire codec. Inner decoders return a code and leave the message of the failure to the caller
 * who knows which message it is. */
#ifndef TRP_REPLAY_WIRE_PARTS_H
#define TRP_REPLAY_WIRE_PARTS_H

#include "core/array.h"
#include "wire.h"
#include "bytes.h"

/* Room for one more zeroed element at `*out`; the array, which may have moved. */
static inline void *array_push(void *array, uint32_t *count, uint32_t *capacity, size_t size,
                               void **out)
{
    if (*count == *capacity)
        array = array_grow(array, capacity, size);
    *out = (char *)array + *count * size;
    memset(*out, 0, size);
    ++*count;
    return array;
}

static inline trp_status reader_status(const struct reader *reader)
{
    return reader->malformed ? TRP_INVALID_ARGUMENT : TRP_OK;
}

/* Inner decoders return a code without a message; this makes the message, once. */
trp_status decode_end(const char *what, size_t size, trp_status status);

/* One step of wire_tensor_next(). ABORTED: something else than a tensor's content goes on in the
 * next part of the message; only what was not decoded from parts is without such. */
trp_status tensors_step(struct wire_tensor_reader *reader, struct wire_tensor *tensor, bool *given,
                        bool *end);

/* A field of an InsertStreamRequest. */
trp_status insert_request_field(const struct field *field, struct wire_insert_request *request);

/* ---- bytes in several parts (spans.c) ------------------------------------------------ */

/* Goes to the next part that is not empty; false: there is none, or it is not to be looked at (it
 * has no address). `now` is used up. */
bool spans_advance(struct spans *rest);

/* A field that goes on in the next part: its bytes in this one, and those beyond. ABORTED:
 * its header goes on there, or it is none that may; INVALID_ARGUMENT: it ends nowhere. */
trp_status spans_field(struct spans *rest, struct field *field, struct wire_more *beyond);

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
    struct spans rest;    /* its part that is read, and those behind it */
    struct reader reader; /* the rest of that part */
    join_memory *memory;
    void *arg;
};

struct assembler assembler_of(const trp_bytes *parts, size_t count, join_memory *memory, void *arg);

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

/* A chunk as field `number`; an item with its lists' trajectory as field `number`. */
void put_chunk(struct writer *writer, uint32_t number, const struct wire_chunk *chunk);
void put_item(struct writer *writer, uint32_t number, const struct wire_lists *lists,
              const struct wire_item *item);

/* Everything of a chunk but its key; NULL: all of it here. */
struct referring;
void put_steps(struct writer *writer, const struct wire_steps *steps, struct referring *referring);

/* Where the content is, instead of it (shm_reference.c). */
void put_reference(struct writer *writer, trp_bytes content, struct referring *referring);

/* An item around an already encoded trajectory of `trajectory` bytes; and the fields before it. */
size_t item_content_size(const struct wire_item *item, size_t trajectory);
void put_item_head(struct writer *writer, const struct wire_item *item);

#endif
