#include "native.h"

#include <inttypes.h>

/* Who is gone is known by its line soon, and then said in better words. */
static void fail_native(struct trp_collective *c)
{
    int64_t now = clock_now_ns(&clock_monotonic);
    if (c->carrier_failed_ns == 0)
        c->carrier_failed_ns = now;
    if (now < c->carrier_failed_ns + COLLECTIVE_GRACE_MS * INT64_C(1000000))
        return;
    collective_give_up(c, 0, TRP_UNAVAILABLE, "rank %" PRIu32 " of %" PRIu32 ": %s", c->rank,
                       c->size, c->carrier->impl->words(c->carrier));
}

/* False: it is not on its queue yet. */
static bool put_one(struct trp_collective *c, struct operation *operation)
{
    enum carrier_state state;
    if (operation->asked)
        state = c->carrier->impl->look(c->carrier);
    else
        state = c->carrier->impl->call(c->carrier, operation->queue, operation->device_values,
                                       &operation->transfer.schedule.call);
    operation->asked = true;
    if (state == CARRIER_FAILED)
        fail_native(c);
    if (state != CARRIER_READY)
        return false;
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
    if (!operation->put || !operation->marked)
        return false;
    bool passed = trp_queue_done(operation->queue, operation->mark);
    trp_status status = passed ? trp_queue_sync(operation->queue, operation->mark) : TRP_OK;
    if (status != TRP_OK)
        collective_fail_alone(c, status);
    else if (c->carrier->impl->look(c->carrier) == CARRIER_FAILED)
        fail_native(c); /* it may have been put nowhere */
    else
        return passed;
    return false;
}

bool native_is_last(const struct trp_collective *c)
{
    return c->first && c->first->native && transfer_is_done(&c->first->transfer);
}
