/* Any bytes into every decoder of Reverb's hot messages: nothing is read outside them, and what
 * decodes also encodes to a message that decodes to the same. libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replay/wire/tensor.h"
#include "replay/wire/wire.h"
#include "tests/replay/wire/wire_dump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the server lets in, a client can unpack. */
static void check_tensor(const struct wire_tensor *tensor)
{
    enum { BYTES_MAX = 1 << 20 };
    size_t element = tensor_element_bytes(tensor->dtype);
    if (tensor->elements < BYTES_MAX && strings_check(tensor->content, tensor->elements) == TRP_OK)
        assert(tensor->content.size >= tensor->elements);
    if (element == 0 || tensor->elements > BYTES_MAX / element || tensor->content.size == 0)
        return;
    size_t size = tensor->elements * element;
    uint8_t *out = malloc(size + 1);
    trp_status checked = block_check(tensor->content, size);
    trp_status status = block_decompress(tensor->content, out, size);
    assert((checked == TRP_OK) == (status == TRP_OK));
    free(out);
}

static void walk_tensors(const struct wire_lists *lists)
{
    for (uint32_t i = 0; i < lists->chunk_count; ++i) {
        struct wire_tensor_reader reader;
        struct wire_tensor tensor;
        bool more = true;
        wire_tensors_open(&reader, &lists->chunks[i]);
        while (wire_tensor_next(&reader, &tensor, &more) == TRP_OK && more)
            check_tensor(&tensor);
    }
}

/* What it is does not depend on what is in the memory, where all of it is. */
static void walk_placed(struct wire_chunk *chunk, trp_bytes memory)
{
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more = true;
    for (uint32_t i = 0; i < chunk->more.count; ++i) {
        const trp_bytes *place = &chunk->resolved[i];
        assert(place->data >= memory.data);
        assert(place->data + place->size <= memory.data + memory.size);
    }
    wire_tensors_open(&reader, chunk);
    while (more) {
        trp_status status = wire_tensor_next(&reader, &tensor, &more);
        assert(status == TRP_OK);
    }
    *chunk = (struct wire_chunk){.key = chunk->key};
}

/* Placed chunks are looked for in the message itself; false: some are not there. */
static bool find_placed(struct wire_insert_request *request, trp_bytes memory)
{
    for (uint32_t i = 0; i < request->lists.chunk_count; ++i) {
        struct wire_chunk *chunk = &request->lists.chunks[i];
        if (chunk->by_reference && wire_chunk_resolve(request, memory, chunk) != TRP_OK)
            return false;
        if (chunk->resolved)
            walk_placed(chunk, memory);
    }
    return true;
}

/* An item's columns encode to those that they are. */
static void walk_columns(struct wire_lists *lists, const struct wire_item *item)
{
    struct wire_insert_request again = {0}, one = {.lists = *lists};
    struct wire_item alone = *item;
    trp_message *message;
    one.lists.items = &alone;
    one.lists.item_count = 1;
    one.lists.chunk_count = 0;
    trp_status status = wire_item_columns(&one.lists, &alone);
    alone.trajectory.size = 0;
    if (status == TRP_OK && wire_insert_request_encode(&one, &message) == TRP_OK) {
        status = wire_insert_request_decode((const trp_bytes[]){message_bytes(message)}, 1, &again);
        assert(status == TRP_OK);
        status = wire_item_columns(&again.lists, &again.lists.items[0]);
        assert(status == TRP_OK);
        assert(again.lists.items[0].column_count == alone.column_count);
        assert(again.lists.slice_count == one.lists.slice_count);
        for (uint32_t i = 0; i < one.lists.slice_count; ++i)
            assert(again.lists.slices[i].chunk_key == one.lists.slices[i].chunk_key);
        trp_message_destroy(message);
    }
    lists->columns = one.lists.columns;
    lists->column_capacity = one.lists.column_capacity;
    lists->slices = one.lists.slices;
    lists->slice_capacity = one.lists.slice_capacity;
    wire_insert_request_cleanup(&again);
}

static void insert_request(trp_bytes bytes)
{
    struct wire_insert_request first = {0}, second = {0};
    if (wire_insert_request_decode(&bytes, 1, &first) == TRP_OK && find_placed(&first, bytes)) {
        walk_tensors(&first.lists);
        trp_message *message;
        if (wire_insert_request_encode(&first, &message) == TRP_OK) {
            trp_status status =
                wire_insert_request_decode((const trp_bytes[]){message_bytes(message)}, 1, &second);
            assert(status == TRP_OK);
            assert(second.lists.item_count == first.lists.item_count);
            assert(second.lists.chunk_count == first.lists.chunk_count);
            assert(second.keep.count == first.keep.count);
            for (uint32_t i = 0; i < first.lists.item_count; ++i) {
                const struct wire_item *a = &first.lists.items[i], *b = &second.lists.items[i];
                assert(a->key == b->key);
                assert(memcmp(&a->priority, &b->priority, sizeof a->priority) == 0);
                assert(a->table.size == b->table.size);
                assert(a->trajectory.size == b->trajectory.size);
                walk_columns(&first.lists, a);
            }
            trp_message_destroy(message);
        }
    }
    wire_insert_request_cleanup(&first);
    wire_insert_request_cleanup(&second);
}

/* Cut where the bytes themselves say. */
static void insert_parts(trp_bytes bytes)
{
    if (bytes.size < 2)
        return;
    struct wire_insert_request request = {0};
    struct buffer whole = {0}, cut = {0};
    size_t first = bytes.data[0] * bytes.size / 256, second = bytes.data[1] * bytes.size / 256;
    if (first > second)
        first = second;
    const trp_bytes parts[] = {{bytes.data, first},
                               {bytes.data + first, second - first},
                               {bytes.data + second, bytes.size - second}};
    trp_status expected = wire_insert_request_decode(&bytes, 1, &request);
    dump_request(&whole, &request);
    trp_status status = wire_insert_request_decode(parts, 3, &request);
    dump_request(&cut, &request);
    assert(status == expected);
    assert(status != TRP_OK ||
           (cut.size == whole.size &&
            (whole.size == 0 || memcmp(cut.data, whole.data, whole.size) == 0)));
    buffer_cleanup(&whole);
    buffer_cleanup(&cut);
    wire_insert_request_cleanup(&request);
}

static void insert_response(trp_bytes bytes)
{
    struct wire_keys keys = {0};
    trp_status status = wire_insert_response_decode(bytes, &keys);
    trp_message *message;
    if (status == TRP_OK && wire_insert_response_encode(&keys, &message) == TRP_OK) {
        struct wire_keys again = {0};
        status = wire_insert_response_decode(message_bytes(message), &again);
        assert(status == TRP_OK);
        assert(again.count == keys.count);
        wire_keys_cleanup(&again);
        trp_message_destroy(message);
    }
    wire_keys_cleanup(&keys);
}

static void mutate_request(trp_bytes bytes)
{
    struct wire_mutate_request request = {0};
    trp_message *message;
    if (wire_mutate_request_decode(bytes, &request) == TRP_OK &&
        wire_mutate_request_encode(&request, &message) == TRP_OK) {
        uint32_t updates = request.update_count;
        trp_status status = wire_mutate_request_decode(message_bytes(message), &request);
        assert(status == TRP_OK);
        assert(request.update_count == updates);
        trp_message_destroy(message);
    }
    wire_mutate_request_cleanup(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trp_bytes bytes = {data, size};
    insert_request(bytes);
    insert_parts(bytes);
    insert_response(bytes);
    mutate_request(bytes);
    struct wire_sample_request request;
    if (wire_sample_request_decode(bytes, &request) == TRP_OK)
        assert(request.has_timeout || request.timeout_ms == 0);
    struct wire_sample_response response = {0};
    if (wire_sample_response_decode(bytes, &response) == TRP_OK) {
        walk_tensors(&response.lists);
        for (uint32_t i = 0; i < response.entry_count; ++i)
            assert(!response.entries[i].has_info ||
                   response.entries[i].item < response.lists.item_count);
    }
    wire_sample_response_cleanup(&response);
    return 0;
}
