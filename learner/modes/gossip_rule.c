#include "gossip_rule.h"

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b > 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The next number after `unit`, round `size`, that has no divisor in common with it. */
static uint32_t next_unit(uint32_t unit, uint32_t size)
{
    do
        unit = unit % size + 1;
    while (common_divisor(unit, size) > 1);
    return unit;
}

static uint32_t count_units(uint32_t size)
{
    uint32_t count = 1;
    for (uint32_t unit = next_unit(1, size); unit != 1; unit = next_unit(unit, size))
        count++;
    return count;
}

void gossip_init(struct gossip *gossip, uint32_t rank, uint32_t size)
{
    *gossip = (struct gossip){.rank = rank, .size = size};
    while ((1ULL << gossip->partners) < size)
        gossip->partners++;
    /* So many rounds in a row have all of some u, wherever they begin. */
    gossip->span = gossip->partners > 1 ? 2 * gossip->partners - 1 : 1;
}

uint32_t gossip_distance(const struct gossip *gossip)
{
    uint32_t size = gossip->size, unit = 1;
    if (size == 1)
        return 0;
    uint64_t turn = gossip->head.round / gossip->partners % count_units(size);
    for (; turn > 0; turn--)
        unit = next_unit(unit, size);
    return (uint32_t)(((uint64_t)unit << gossip->head.round % gossip->partners) % size);
}

void gossip_say(struct gossip *gossip, enum gossip_flag flag)
{
    gossip->head.said[flag] |= 1;
}

bool gossip_is_said(const struct gossip *gossip, enum gossip_flag flag)
{
    return gossip->head.said[flag] != 0;
}

enum gossip_answer gossip_hear(struct gossip *gossip, const struct gossip_head *head)
{
    if (head->round > gossip->head.round)
        return GOSSIP_EARLY;
    if (head->round < gossip->head.round)
        return GOSSIP_LATE;
    for (uint32_t flag = 0; flag < GOSSIP_FLAGS; flag++)
        gossip->head.said[flag] |= head->said[flag];
    return GOSSIP_TAKEN;
}

void gossip_average(float *values, const float *others, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = 0.5F * (values[i] + others[i]);
}

bool gossip_end(struct gossip *gossip, uint32_t *flags)
{
    uint64_t oldest = 1ULL << (gossip->span - 1);
    *flags = 0;
    for (uint32_t flag = 0; flag < GOSSIP_FLAGS; flag++) {
        uint64_t *said = &gossip->head.said[flag];
        *flags |= *said & oldest ? 1U << flag : 0;
        *said = (*said & ~oldest) << 1;
    }
    return gossip->head.round++ + 1 >= gossip->span;
}
