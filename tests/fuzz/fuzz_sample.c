/* Any bytes as the messages of a SampleStream: a batch is filled only with what fits its columns,
 * and nothing is read or written outside. The first byte says where the bytes are cut in two
 * messages. libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "replay/unpack.h"

#include "../sample_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static trp_status feed(struct unpacker *unpacker, struct batch *batch, const uint8_t *data,
                       size_t size)
{
    uint32_t before;
    trp_message *message = trp_message_create(size);
    if (size)
        memcpy(trp_message_data(message), data, size);
    trp_status status = unpacker_feed(unpacker, message);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t cut = (size - 1) * data[0] / 256;
    struct batch batch;
    struct unpacker *unpacker = unpacker_create(sample_columns, SAMPLE_COLUMNS);
    trp_status status = batch_init(&batch, sample_columns, SAMPLE_COLUMNS, 2);
    assert(status == TRP_OK);
    status = feed(unpacker, &batch, data + 1, cut);
    if (status == TRP_OK)
        status = feed(unpacker, &batch, data + 1 + cut, size - 1 - cut);
    assert(status == TRP_OK || *trp_last_error());
    unpacker_destroy(unpacker);
    batch_cleanup(&batch, SAMPLE_COLUMNS);
    return 0;
}
