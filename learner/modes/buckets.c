#include "buckets.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"

enum { LINE_NUMBERS = 16 }; /* 64 bytes */

void buckets_create(struct buckets *buckets, size_t numbers, size_t bytes)
{
    size_t each = bytes / (LINE_NUMBERS * sizeof(float)) * LINE_NUMBERS;
    *buckets = (struct buckets){.numbers = numbers, .each = each};
    assert(each > 0);
    buckets->count = (uint32_t)((numbers + each - 1) / each);
    buckets->missing = xcalloc(buckets->count, sizeof *buckets->missing);
    buckets->tickets = xcalloc(buckets->count, sizeof *buckets->tickets);
    buckets_reset(buckets);
}

void buckets_destroy(struct buckets *buckets)
{
    free(buckets->missing);
    free(buckets->tickets);
}

/* They are cut at multiples of `each` from the front: alignment is that of the vector, and the one
 * at the end has what is left. */
struct range buckets_at(const struct buckets *buckets, uint32_t index)
{
    size_t lo = (buckets->count - 1 - index) * buckets->each;
    size_t hi = index == 0 ? buckets->numbers : lo + buckets->each;
    return (struct range){lo, hi};
}

void buckets_reset(struct buckets *buckets)
{
    buckets->started = 0;
    for (uint32_t i = 0; i < buckets->count; i++) {
        struct range range = buckets_at(buckets, i);
        buckets->missing[i] = range.hi - range.lo;
    }
}

void buckets_ready(struct buckets *buckets, struct range range)
{
    for (uint32_t i = 0; i < buckets->count; i++) {
        struct range own = buckets_at(buckets, i);
        size_t lo = own.lo > range.lo ? own.lo : range.lo;
        size_t hi = own.hi < range.hi ? own.hi : range.hi;
        if (lo >= hi)
            continue;
        assert(hi - lo <= buckets->missing[i]);
        buckets->missing[i] -= hi - lo;
    }
}

bool buckets_may_start(const struct buckets *buckets)
{
    uint32_t next = buckets->started;
    return next + 1 < buckets->count && buckets->missing[next] == 0;
}
