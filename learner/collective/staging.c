/* A list: there are as many as operations on devices are on their way, and one or two more. */
#include "staging.h"

#include <stdlib.h>

#include "core/alloc.h"

enum { STAGING_ALIGNMENT = 64 };

struct staging *staging_take(struct staging **list, size_t bytes)
{
    struct staging *found = *list;
    while (found && (found->taken || found->queue || found->bytes < bytes))
        found = found->next;
    if (!found) {
        found = xcalloc(1, sizeof *found);
        *found = (struct staging){
            .next = *list, .memory = xaligned(STAGING_ALIGNMENT, bytes), .bytes = bytes};
        *list = found;
    }
    found->taken = true;
    return found;
}

void staging_give(struct staging *staging, trp_queue *queue)
{
    staging->taken = false;
    staging->queue = queue;
    staging->mark = trp_queue_mark(queue);
}

void staging_passed(struct staging *list, const trp_queue *queue, uint64_t mark)
{
    for (struct staging *each = list; each; each = each->next)
        if (each->queue == queue && !each->taken && each->mark <= mark)
            each->queue = NULL;
}

void staging_destroy(struct staging *list)
{
    while (list) {
        struct staging *next = list->next;
        /* A queue that failed does not use it any more, either. */
        trp_status passed = list->queue ? trp_queue_sync(list->queue, list->mark) : TRP_OK;
        (void)passed;
        free(list->memory);
        free(list);
        list = next;
    }
}
