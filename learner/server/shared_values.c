#include "shared_values.h"

#include <inttypes.h>
#include <sys/mman.h>

#include "rpc/shared_params.h"

trp_status shared_values_map(const struct shared_values **values, const Troupe__SharedParams *from,
                             size_t count)
{
    const uint8_t *memory;
    struct sealed_place place;
    *values = NULL;
    TRP_TRY(shared_params_take(from, &place));
    if (place.bytes != shared_values_bytes(count))
        return trp_fail(TRP_FAILED_PRECONDITION, "%" PRIu64 " bytes for %zu numbers", place.bytes,
                        count);
    TRP_TRY(sealed_map(&memory, &place));
    *values = (const struct shared_values *)(const void *)memory;
    return TRP_OK;
}

void shared_values_unmap(const struct shared_values *values, size_t count)
{
    if (values)
        munmap((void *)(uintptr_t)values, shared_values_bytes(count));
}
