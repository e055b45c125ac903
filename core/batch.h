/* The memory of one batch: columns of rows, and what a table says of every row. Its size is what
 * the user's batch_size makes of it, so too much is a status and nothing aborts. */
#ifndef TRP_CORE_BATCH_H
#define TRP_CORE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/tensor.h>

struct batch {
    uint32_t rows, capacity;
    uint32_t server; /* which one of several it came from */
    void **columns;  /* aligned to 64 */
    uint64_t *keys;
    double *priorities, *probabilities;
    int64_t *table_sizes;
    int32_t *times_sampled;
    uint64_t *policy_versions;
    bool *rate_limited;
    trp_allocator allocator;
};

/* The C library's memory. Safe from any thread. */
extern const trp_allocator libc_allocator;

/* RESOURCE_EXHAUSTED: a batch of so many rows is more than the machine's memory. Messages begin
 * with `who`, and name batch_size and the bytes. */
trp_status batch_check(const trp_tensor_spec *columns, size_t column_count, uint32_t capacity,
                       const char *who);

/* As batch_check(), or the memory is not to be had now. `allocator` is for the columns; NULL: the C
 * library's. A batch whose init failed, or a zeroed one, may be cleaned up. */
trp_status batch_init(struct batch *batch, const trp_tensor_spec *columns, size_t column_count,
                      uint32_t capacity, const trp_allocator *allocator, const char *who);
void batch_cleanup(struct batch *batch, size_t column_count);

#endif
