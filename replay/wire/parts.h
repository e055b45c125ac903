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

/* A field that goes on in the next part: what of it is in this one, and what lies beyond. ABORTED:
 * its header goes on there, or it is none that may; INVALID_ARGUMENT: it ends nowhere. */
trp_status spans_field(struct spans *rest, struct field *field, struct wire_more *beyond);

uint64_t more_size(const struct wire_more *more);

/* All of a message's parts; nothing is copied. */
struct spans spans_of(const trp_bytes *parts, size_t count);
size_t spans_size(const struct spans *spans);

/* `to`: spans_size() bytes. */
void spans_copy(struct spans spans, uint8_t *to);

/* All of it in one piece, which the request keeps. */
trp_status spans_join(const struct spans *spans, struct wire_insert_request *request,
                      trp_bytes *bytes);

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
struct placing;
void put_steps(struct writer *writer, const struct wire_steps *steps, struct placing *placing);

/* Where the content is, instead of it (places.c). */
void put_place(struct writer *writer, trp_bytes content, struct placing *placing);

/* An item around an already encoded trajectory of `trajectory` bytes; and the fields before it. */
size_t item_content_size(const struct wire_item *item, size_t trajectory);
void put_item_head(struct writer *writer, const struct wire_item *item);

#endif
