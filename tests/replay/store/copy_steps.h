/* A store's copy, step by step, and a sink's parts for a copy that goes nowhere. */
#ifndef TEST_COPY_STEPS_H
#define TEST_COPY_STEPS_H

#include "tests/replay/store_fixture.h"

#include "replay/store/copy.h"

static inline trp_status any_item(void *arg, uint64_t seq, trp_bytes record, bool doubtful)
{
    (void)arg, (void)seq, (void)record, (void)doubtful;
    return TRP_OK;
}

static inline trp_status any_piece(void *arg, uint64_t seq, uint32_t piece, trp_bytes bytes)
{
    (void)arg, (void)seq, (void)piece, (void)bytes;
    return TRP_OK;
}

static inline void copy_step(struct store *store, struct store_copy *copy)
{
    assert_int_equal(store_copy_find(store, copy), TRP_OK);
    assert_int_equal(store_copy_give(copy), TRP_OK);
}

static inline void copy_rest(struct store *store, struct store_copy *copy)
{
    while (!store_copy_done(copy))
        copy_step(store, copy);
}

#endif
