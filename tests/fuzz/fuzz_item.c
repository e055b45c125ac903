/* Any bytes as the messages of a SampleStream, read as whole items of any columns: sizes agree with
 * shapes, every byte of them is there, and nothing is read outside. The first byte says where the
 * bytes are cut in two messages. libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include <troupe/item.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned bytes_read; /* so that nothing is optimized away */

/* Sums up every byte, so that a sanitizer sees them read. */
static unsigned item_read(const trp_item_data *item)
{
    unsigned sum = (unsigned)strlen(item->table);
    for (size_t i = 0; i < item->column_count; ++i) {
        const trp_item_array *column = &item->columns[i];
        size_t bytes = trp_dtype_size((trp_dtype)column->dtype);
        assert(column->rank <= TRP_RANK_MAX);
        for (uint32_t d = 0; d < column->rank; ++d)
            bytes *= (size_t)column->shape[d];
        assert(column->dtype == TRP_STRING || column->dtype == 0 || bytes == column->data.size);
        for (size_t j = 0; j < column->data.size; ++j)
            sum += column->data.data[j];
    }
    return sum;
}

static trp_status feed(trp_item_reader *reader, const uint8_t *data, size_t size)
{
    trp_item_data item;
    bool more = true;
    trp_status status = trp_item_reader_feed(reader, (trp_bytes){data, size});
    while (status == TRP_OK && more) {
        status = trp_item_reader_next(reader, &item, &more);
        if (status == TRP_OK && more)
            bytes_read += item_read(&item);
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t cut = (size - 1) * data[0] / 256;
    trp_item_reader *reader = trp_item_reader_create();
    trp_status status = feed(reader, data + 1, cut);
    if (status == TRP_OK)
        status = feed(reader, data + 1 + cut, size - 1 - cut);
    assert(status == TRP_OK || *trp_last_error());
    trp_item_reader_destroy(reader);
    return 0;
}
