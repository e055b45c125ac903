#include "values.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/nn.h>
#include <troupe/rpc.h>
#include "core/alloc.h"

struct values_block {
    _Atomic uint32_t users; /* its table, and replies */
    float *numbers;
};

static struct values_block *block_create(size_t count)
{
    struct values_block *block = xcalloc(1, sizeof *block);
    atomic_init(&block->users, 1);
    block->numbers = trp_floats_create(count);
    return block;
}

/* On any thread. */
static void block_leave(void *arg)
{
    struct values_block *block = arg;
    if (!block || atomic_fetch_sub(&block->users, 1) > 1)
        return;
    trp_floats_destroy(block->numbers);
    free(block);
}

void values_block_leave(struct values_block *block)
{
    block_leave(block);
}

const float *values_block_numbers(const struct values_block *block)
{
    return block->numbers;
}

static bool is_on_its_way(const struct values_block *block)
{
    return atomic_load(&block->users) > 1;
}

static void leave_blocks(struct table_values *values)
{
    for (size_t i = 0; i < 2; i++) {
        block_leave(values->blocks[i]);
        values->blocks[i] = NULL;
    }
}

static struct shared_values *shared_part(const struct table_values *values)
{
    return (struct shared_values *)(void *)values->shared.memory;
}

void table_values_init(struct table_values *values, size_t count)
{
    *values = (struct table_values){.count = count, .blocks[0] = block_create(count)};
    values->numbers = values->blocks[0]->numbers;
}

void table_values_cleanup(struct table_values *values)
{
    leave_blocks(values);
    sealed_cleanup(&values->shared);
    *values = (struct table_values){0};
}

void table_values_share(struct table_values *values, struct shared_state state)
{
    if (values->shared.memory)
        return;
    if (sealed_create(&values->shared, "troupe-shard", shared_values_bytes(values->count)) !=
        TRP_OK) {
        trp_log(TRP_DEBUG, "values are sent reason=%s", trp_last_error());
        return;
    }
    memcpy(shared_part(values)->numbers, values->numbers, values->count * sizeof(float));
    values->numbers = shared_part(values)->numbers;
    leave_blocks(values);
    table_values_begin(values);
    table_values_end(values, state);
}

/* There is one that is free, or nothing would have been lent. */
static void go_on_in_the_other(struct table_values *values)
{
    struct values_block *lent = values->blocks[0];
    values->blocks[0] = values->blocks[1];
    values->blocks[1] = lent;
    memcpy(values->blocks[0]->numbers, lent->numbers, values->count * sizeof(float));
    values->numbers = values->blocks[0]->numbers;
}

void table_values_begin(struct table_values *values)
{
    if (values->shared.memory)
        shared_values_begin(shared_part(values));
    else if (is_on_its_way(values->blocks[0]))
        go_on_in_the_other(values);
}

void table_values_end(struct table_values *values, struct shared_state state)
{
    if (values->shared.memory)
        shared_values_end(shared_part(values), state);
}

struct values_block *table_values_hold(struct table_values *values)
{
    if (values->shared.memory)
        return NULL;
    if (!values->blocks[1])
        values->blocks[1] = block_create(values->count);
    if (is_on_its_way(values->blocks[1]))
        return NULL;
    atomic_fetch_add(&values->blocks[0]->users, 1);
    return values->blocks[0];
}

void values_block_lend(struct values_block *block, size_t count)
{
    atomic_fetch_add(&block->users, 1);
    trp_bytes bytes = {(const uint8_t *)block->numbers, count * sizeof(float)};
    if (!trp_call_lend(bytes, block_leave, block))
        block_leave(block);
}

void table_values_lend(struct table_values *values)
{
    struct values_block *block = table_values_hold(values);
    if (block)
        values_block_lend(block, values->count);
    values_block_leave(block);
}
