#include "twin.h"

#include <stdlib.h>

#include "core/alloc.h"

trp_status twin_create(struct twin *twin, trp_device *device, size_t bytes)
{
    *twin = (struct twin){.device = device, .bytes = bytes};
    TRP_TRY(trp_device_alloc(device, TWIN_HEAD_BYTES + bytes, &twin->there));
    twin->there = (char *)twin->there + TWIN_HEAD_BYTES;
    twin->here = trp_device_is_host(device) ? twin->there : xcalloc(1, bytes);
    return TRP_OK;
}

void twin_destroy(struct twin *twin)
{
    if (!twin->there)
        return;
    if (twin->here != twin->there)
        free(twin->here);
    trp_device_free(twin->device, (char *)twin->there - TWIN_HEAD_BYTES);
    *twin = (struct twin){0};
}

void twin_fetch(const struct twin *twin, trp_queue *queue, size_t at, size_t bytes)
{
    if (twin->here != twin->there)
        trp_queue_copy(queue, (char *)twin->here + at, (const char *)twin->there + at, bytes);
}

void twin_store(const struct twin *twin, trp_queue *queue)
{
    if (twin->here != twin->there)
        trp_queue_copy(queue, twin->there, twin->here, twin->bytes);
}
