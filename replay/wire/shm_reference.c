/* Problem: a writer on this host has its chunks in memory that we see too, and can write to it
 * while we look.
 * Design: a referenced chunk travels in the message, all but the contents of its tensors, which
 * stay where they are; of a content that is one literal, the header travels, too. So bytes in
 * shared memory describe nothing. It has no address while the chunk is taken apart: a part to step
 * over, never to look at. Everything else that a
 * chunk has there (compressed contents, or a malicious writer's inventions) is copied once, and
 * only the copy is read.
 *
 *   InsertStreamRequest.shm_references   a ChunkData in pieces, in order; each of them
 *     1 bytes     bytes of it
 *     2 fixed64   where they are: offset << 32 | size
 *
 * Guarantee: as in wire.c, and nothing outside of the memory is named to anybody. */
#include "parts.h"

#include <inttypes.h>

#include "tensor.h"

/* ---- writing ------------------------------------------------------------------------------- */

struct referring {
    const uint8_t *memory;
    size_t mark; /* where the piece that is being written ends */
};

static void put_piece(struct writer *writer, const struct referring *referring)
{
    if (writer_mark(writer) > referring->mark)
        put_len_header(writer, 1, referring->mark);
}

void put_reference(struct writer *writer, trp_bytes content, struct referring *referring)
{
    trp_bytes raw;
    if (!block_literal(content, 0, &raw))
        raw = content;
    size_t mark = writer_mark(writer);
    put_piece(writer, referring);
    put_fixed64(writer, (uint64_t)(raw.data - referring->memory) << 32 | raw.size);
    put_varint(writer, TAG(2, FIXED64));
    writer->elsewhere += raw.size - (writer_mark(writer) - mark); /* for the tensor around it */
    referring->mark = writer_mark(writer);
    put_bytes(writer, (trp_bytes){content.data, (size_t)(raw.data - content.data)});
}

void put_chunk_reference(struct writer *writer, const struct wire_chunk *chunk,
                         const uint8_t *memory)
{
    struct referring referring = {memory, writer_mark(writer)};
    size_t end = writer->size, elsewhere = writer->elsewhere;
    put_steps(writer, chunk->steps, &referring);
    put_varint_field(writer, 1, chunk->key);
    put_piece(writer, &referring);
    writer->elsewhere = elsewhere;
    put_len_header(writer, SHM_REFERENCE_FIELD, end + elsewhere);
}

/* ---- finding ------------------------------------------------------------------------------- */

static void push_piece(struct wire_insert_request *request, trp_bytes bytes, bool hidden)
{
    if (bytes.size == 0)
        return;
    uint32_t count = request->resolved_count;
    *ARRAY_PUSH(request->visible, count, request->visible_capacity) =
        (trp_bytes){hidden ? NULL : bytes.data, bytes.size};
    *ARRAY_PUSH(request->resolved, request->resolved_count, request->resolved_capacity) = bytes;
}

static trp_status pieces_read(struct wire_insert_request *request, trp_bytes memory,
                              trp_bytes bytes)
{
    struct reader reader = reader_of(bytes);
    struct field field;
    request->resolved_count = 0;
    while (read_field(&reader, &field)) {
        if (field.tag == TAG(1, LEN))
            push_piece(request, field.bytes, false);
        if (field.tag != TAG(2, FIXED64))
            continue;
        uint64_t offset = field.value >> 32, size = (uint32_t)field.value;
        request->referenced_bytes += size;
        if (offset > memory.size || size > memory.size - offset ||
            request->referenced_bytes > memory.size)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "a chunk at %" PRIu64 ", %" PRIu64
                            " bytes, is beyond the %zu bytes of memory that this stream has",
                            offset, size, memory.size);
        push_piece(request, (trp_bytes){memory.data + offset, (size_t)size}, true);
    }
    return decode_end("a referenced chunk", bytes.size, reader_status(&reader));
}

trp_status wire_chunk_resolve(struct wire_insert_request *request, trp_bytes memory,
                              struct wire_chunk *chunk)
{
    trp_bytes pieces = chunk->tail, bytes;
    TRP_TRY(pieces_read(request, memory, pieces));
    struct spans seen = spans_of(request->visible, request->resolved_count);
    struct spans whole = spans_of(request->resolved, request->resolved_count);
    if (seen.now.data && chunk_in_parts(&seen, chunk) == TRP_OK) {
        chunk->resolved = request->resolved + 1;
        return TRP_OK;
    }
    *chunk = (struct wire_chunk){.key = 0};
    trp_status status = spans_join(&whole, insert_request_memory, request, &bytes);
    if (status == TRP_OK)
        status = chunk_read(bytes, chunk);
    return decode_end("a referenced chunk", pieces.size, status);
}
