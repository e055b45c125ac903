/* Arbitrary bytes as each of the store's records: a decoder says no, or everything it hands out
 * lies inside the record and makes the same record again. The first byte says which record. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "replay/disk/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct buffer *again, trp_bytes bytes)
{
    if (again->size != bytes.size || memcmp(again->data, bytes.data, bytes.size) != 0)
        abort();
}

static void try_item(trp_bytes bytes)
{
    struct item_view view;
    const uint64_t seq = 1;
    if (!item_record_decode(bytes, seq, &view))
        return;
    struct buffer again = {0};
    uint32_t count = view.header.chunk_count;
    struct trajectory *trajectory = xmalloc(sizeof *trajectory + view.trajectory.size);
    *trajectory = (struct trajectory){.size = (uint32_t)view.trajectory.size, .chunk_count = count};
    if (view.trajectory.size)
        memcpy(trajectory->bytes, view.trajectory.data, view.trajectory.size);
    struct item *item = xcalloc(1, sizeof *item + count * sizeof(struct chunk *));
    struct chunk *chunks = xcalloc(count + 1, sizeof *chunks);
    *item = (struct item){.key = view.header.key,
                          .seq = seq,
                          .priority = view.header.priority,
                          .inserted_at_ns = view.header.inserted_at_ns,
                          .times_sampled = view.header.times_sampled,
                          .trajectory = trajectory};
    for (uint32_t index = 0; index < count; index++) {
        chunks[index].seq = item_view_chunk(&view, index);
        item->chunks[index] = &chunks[index];
    }
    item_record_encode(&again, view.header.table_id, item);
    if (view.header.state_sum == 0) /* of format 2 */
        memset(again.data + offsetof(struct item_record, state_sum), 0, SUM_BYTES);
    check_same(&again, bytes);
    buffer_cleanup(&again);
    free(chunks);
    free(item);
    free(trajectory);
}

static void try_table(trp_bytes bytes)
{
    struct table_view view;
    if (!table_record_decode(bytes, &view))
        return;
    struct buffer again = {0};
    table_record_encode(&again, &view);
    if (again.size != bytes.size) { /* of format 2: without its sum */
        again.size -= SUM_BYTES;
        memcpy(again.data, bytes.data, sizeof view.header.name_bytes);
    }
    check_same(&again, bytes);
    buffer_cleanup(&again);
}

static void try_changes(trp_bytes bytes)
{
    struct buffer changes = {0}, scratch = {0};
    if (changes_decode(bytes, &changes)) {
        check_same(&changes,
                   (trp_bytes){bytes.data, bytes.size - bytes.size % sizeof(struct change)});
        struct change *all = (struct change *)(void *)changes.data;
        size_t count = changes.size / sizeof *all;
        buffer_reserve(&scratch, changes.size);
        changes_sort(all, (struct change *)(void *)scratch.data, count);
        for (size_t index = 1; index < count; index++)
            if (change_seq(all[index - 1]) > change_seq(all[index]))
                abort();
    }
    buffer_cleanup(&changes);
    buffer_cleanup(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    trp_bytes bytes = {data + 1, size - 1};
    struct meta_record meta;
    int64_t counters[COUNTERS];
    switch (data[0] % 5) {
    case 0:
        try_item(bytes);
        break;
    case 1:
        try_table(bytes);
        break;
    case 2:
        try_changes(bytes);
        break;
    case 3:
        if (meta_record_decode(bytes, &meta) && meta.format == STORE_FORMAT &&
            (bytes.size != sizeof meta || meta.item_ceiling > SEQ_MAX))
            abort();
        break;
    default:
        if (counters_decode(bytes, counters) && counters[0] < 0)
            abort();
    }
    return 0;
}
