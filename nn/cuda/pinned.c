/* Some dozen ranges, the columns of batches that are lent at a time: all are looked at. */
#include "pinned.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/batch.h"

static void *pinned_allocate(void *context, size_t bytes)
{
    struct pinned *pinned = context;
    void *memory;
    if (pinned->machine->impl->pin(pinned->machine, bytes, &memory) != TRP_OK)
        return libc_allocator.allocate(libc_allocator.context, bytes);
    mutex_lock(&pinned->mutex);
    *ARRAY_PUSH(pinned->ranges, pinned->count, pinned->room) = (struct pinned_range){memory, bytes};
    mutex_unlock(&pinned->mutex);
    return memory;
}

/* False: it is not pinned. */
static bool pinned_forget(struct pinned *pinned, const void *memory)
{
    mutex_lock(&pinned->mutex);
    uint32_t i = 0;
    while (i < pinned->count && pinned->ranges[i].at != memory)
        i++;
    bool found = i < pinned->count;
    if (found)
        pinned->ranges[i] = pinned->ranges[--pinned->count];
    if (pinned->count == 0) {
        free(pinned->ranges);
        pinned->ranges = NULL;
        pinned->room = 0;
    }
    mutex_unlock(&pinned->mutex);
    return found;
}

static void pinned_release(void *context, void *memory)
{
    struct pinned *pinned = context;
    if (pinned_forget(pinned, memory))
        pinned->machine->impl->unpin(pinned->machine, memory);
    else
        libc_allocator.release(libc_allocator.context, memory);
}

void pinned_init(struct pinned *pinned, struct machine *machine)
{
    *pinned = (struct pinned){.machine = machine};
    pinned->allocator = (trp_allocator){pinned_allocate, pinned_release, pinned};
    mutex_init(&pinned->mutex);
}

bool pinned_has(struct pinned *pinned, const void *memory, size_t bytes)
{
    const char *at = memory;
    bool has = false;
    mutex_lock(&pinned->mutex);
    for (uint32_t i = 0; i < pinned->count && !has; i++) {
        const struct pinned_range *range = &pinned->ranges[i];
        has = at >= range->at && bytes <= range->bytes &&
              (size_t)(at - range->at) <= range->bytes - bytes;
    }
    mutex_unlock(&pinned->mutex);
    return has;
}
