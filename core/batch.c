/* The size of a batch is known before any of it is asked for, and compared with the memory that the
 * machine has: an allocation that is too large may well succeed, and kill the process much
 * later. */
#include "core/batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/alloc.h"

enum {
    BATCH_ALIGNMENT = 64,
    ROW_FACT_BYTES = 5 * sizeof(uint64_t) + sizeof(int32_t) + sizeof(bool),
};

static void *libc_allocate(void *context, size_t bytes)
{
    (void)context;
    if (bytes > SIZE_MAX - BATCH_ALIGNMENT)
        return NULL;
    return aligned_alloc(BATCH_ALIGNMENT,
                         (bytes + BATCH_ALIGNMENT - 1) & ~(size_t)(BATCH_ALIGNMENT - 1));
}

static void libc_release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

const trp_allocator libc_allocator = {.allocate = libc_allocate, .release = libc_release};

/* SIZE_MAX: more than can be said. */
static size_t batch_bytes(const trp_tensor_spec *columns, size_t column_count, uint32_t capacity)
{
    size_t row = ROW_FACT_BYTES, bytes;
    for (size_t i = 0; i < column_count; i++)
        if (!size_add(row, trp_tensor_bytes(&columns[i]), &row))
            return SIZE_MAX;
    return size_mul(row, capacity, &bytes) ? bytes : SIZE_MAX;
}

static size_t machine_bytes(void)
{
    size_t bytes;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && size_mul((size_t)pages, (size_t)page, &bytes) ? bytes
                                                                                  : SIZE_MAX;
}

trp_status batch_check(const trp_tensor_spec *columns, size_t column_count, uint32_t capacity,
                       const char *who)
{
    size_t bytes = batch_bytes(columns, column_count, capacity), most = machine_bytes();
    if (bytes <= most)
        return TRP_OK;
    return trp_fail(TRP_RESOURCE_EXHAUSTED,
                    "%s: batch_size %" PRIu32
                    " makes batches of %zu bytes; this machine has %zu: make batch_size smaller",
                    who, capacity, bytes, most);
}

static bool columns_init(struct batch *batch, const trp_tensor_spec *columns, size_t column_count)
{
    batch->columns = xcalloc(column_count + 1, sizeof *batch->columns);
    for (size_t i = 0; i < column_count; i++) {
        size_t bytes = trp_tensor_bytes(&columns[i]) * batch->capacity;
        bytes = (bytes + BATCH_ALIGNMENT) & ~(size_t)(BATCH_ALIGNMENT - 1);
        batch->columns[i] = batch->allocator.allocate(batch->allocator.context, bytes);
        if (!batch->columns[i])
            return false;
    }
    return true;
}

static bool facts_init(struct batch *batch)
{
    size_t rows = (size_t)batch->capacity + 1;
    batch->keys = calloc(rows, sizeof *batch->keys);
    batch->priorities = calloc(rows, sizeof *batch->priorities);
    batch->probabilities = calloc(rows, sizeof *batch->probabilities);
    batch->table_sizes = calloc(rows, sizeof *batch->table_sizes);
    batch->times_sampled = calloc(rows, sizeof *batch->times_sampled);
    batch->policy_versions = calloc(rows, sizeof *batch->policy_versions);
    batch->rate_limited = calloc(rows, sizeof *batch->rate_limited);
    return batch->keys && batch->priorities && batch->probabilities && batch->table_sizes &&
           batch->times_sampled && batch->policy_versions && batch->rate_limited;
}

trp_status batch_init(struct batch *batch, const trp_tensor_spec *columns, size_t column_count,
                      uint32_t capacity, const trp_allocator *allocator, const char *who)
{
    *batch =
        (struct batch){.capacity = capacity, .allocator = allocator ? *allocator : libc_allocator};
    TRP_TRY(batch_check(columns, column_count, capacity, who));
    if (columns_init(batch, columns, column_count) && facts_init(batch))
        return TRP_OK;
    return trp_fail(TRP_RESOURCE_EXHAUSTED,
                    "%s: batch_size %" PRIu32 ": no memory for a batch of %zu bytes", who, capacity,
                    batch_bytes(columns, column_count, capacity));
}

void batch_cleanup(struct batch *batch, size_t column_count)
{
    for (size_t i = 0; batch->columns && i < column_count; i++)
        if (batch->columns[i])
            batch->allocator.release(batch->allocator.context, batch->columns[i]);
    free(batch->columns);
    free(batch->keys);
    free(batch->priorities);
    free(batch->probabilities);
    free(batch->table_sizes);
    free(batch->times_sampled);
    free(batch->policy_versions);
    free(batch->rate_limited);
    *batch = (struct batch){0};
}
