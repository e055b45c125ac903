/* Any bytes as the messages of a SampleStream: a batch is filled only with what fits its columns,
 * and nothing is read or written outside. The first byte says where the bytes are cut in two
 * messages, and how small the parts are that they come in a second time, to the same end.
 * libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "replay/sampler/unpack.h"

#include "tests/replay/sample_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parts of `step` bytes; 0: it is in one. */
static trp_message *make_message(const uint8_t *data, size_t size, size_t step)
{
    trp_message *message = trp_message_create(size);
    if (size)
        memcpy(trp_message_data(message), data, size);
    if (step == 0 || size == 0)
        return message;
    size_t count = (size + step - 1) / step;
    trp_bytes *parts = xmalloc(count * sizeof *parts);
    for (size_t i = 0, at = 0; i < count; i++, at += step)
        parts[i] = (trp_bytes){trp_message_data(message) + at, size - at < step ? size - at : step};
    trp_message_set_parts(message, parts, count, free, parts);
    return message;
}

static trp_status feed(struct unpacker *unpacker, struct batch *batch, const uint8_t *data,
                       size_t size, size_t step)
{
    uint32_t before;
    trp_status status = unpacker_feed(unpacker, make_message(data, size, step));
    do {
        if (batch->rows == batch->capacity)
            batch->rows = 0;
        before = batch->rows;
        if (status == TRP_OK)
            status = unpacker_fill(unpacker, batch);
        assert(batch->rows <= batch->capacity);
    } while (status == TRP_OK && batch->rows > before);
    return status;
}

/* How many rows the last batch has, too. */
static trp_status unpack(const uint8_t *data, size_t size, size_t cut, size_t step, uint32_t *rows)
{
    struct batch batch;
    struct unpacker *unpacker = unpacker_create(sample_columns, SAMPLE_COLUMNS);
    trp_status status = batch_init(&batch, sample_columns, SAMPLE_COLUMNS, 2, NULL, "test");
    assert(status == TRP_OK);
    status = feed(unpacker, &batch, data, cut, step);
    if (status == TRP_OK)
        status = feed(unpacker, &batch, data + cut, size - cut, step);
    assert(status == TRP_OK || *trp_last_error());
    *rows = batch.rows;
    unpacker_destroy(unpacker);
    batch_cleanup(&batch, SAMPLE_COLUMNS);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t cut = (size - 1) * data[0] / 256;
    uint32_t rows, rows_in_parts;
    trp_status status = unpack(data + 1, size - 1, cut, 0, &rows);
    trp_status in_parts = unpack(data + 1, size - 1, cut, 1 + data[0] % 97, &rows_in_parts);
    assert(status == in_parts && rows == rows_in_parts);
    return 0;
}
