#include "native.h"

#include <inttypes.h>

/* Who is gone is known by its line soon, and then said in better words. */
static void fail_native(struct trp_collective *c)
{
    int64_t now = clock_now_ns(&clock_monotonic);
    if (c->nccl_failed_ns == 0)
        c->nccl_failed_ns = now;
    if (now < c->nccl_failed_ns + COLLECTIVE_GRACE_MS * INT64_C(1000000))
        return;
    collective_give_up(c, 0, TRP_UNAVAILABLE, "rank %" PRIu32 " of %" PRIu32 ": %s", c->rank,
                       c->size, nccl_group_words(c->nccl));
}

/* False: it is not on its queue yet. */
static bool put_one(struct trp_collective *c, struct operation *operation)
{
    enum nccl_state state;
    if (operation->asked)
        state = nccl_group_look(c->nccl);
    else
        state = nccl_group_call(c->nccl, operation->queue, operation->device_values,
                                &operation->transfer.schedule.call);
    operation->asked = true;
    if (state == NCCL_FAILED)
        fail_native(c);
    if (state != NCCL_READY)
        return false;
    operation->mark = trp_queue_mark(operation->queue);
    operation->put = true;
    return true;
}

void native_put(struct trp_collective *c)
{
    for (struct operation *each = c->first; each && c->status == TRP_OK; each = each->next)
        if (each->native && !each->put && !put_one(c, each))
            return;
}

bool native_is_done(struct trp_collective *c)
{
    struct operation *operation = c->first;
    if (!operation->put)
        return false;
    if (trp_queue_done(operation->queue, operation->mark)) {
        trp_status status = trp_queue_sync(operation->queue, operation->mark);
        if (status != TRP_OK)
            collective_fail(c, status, "rank %" PRIu32 ": %s", c->rank, trp_last_error());
        return status == TRP_OK;
    }
    if (nccl_group_look(c->nccl) == NCCL_FAILED)
        fail_native(c);
    return false;
}

bool native_is_last(const struct trp_collective *c)
{
    return c->first && c->first->native && transfer_is_done(&c->first->transfer);
}
