#include "sequence.h"

bool sequence_is_due(const struct sequence_rule *rule, uint64_t rows)
{
    return rows >= rule->length && (rows - rule->length) % rule->period == 0;
}

/* Rows that are missing until the next item would be due. */
static uint64_t missing(const struct sequence_rule *rule, uint64_t rows)
{
    if (rows <= rule->length)
        return rule->length - rows;
    return (rule->period - (rows - rule->length) % rule->period) % rule->period;
}

bool sequence_end(const struct sequence_rule *rule, uint64_t rows, uint32_t *length,
                  uint32_t *padding)
{
    uint64_t left = missing(rule, rows);
    *padding = 0;
    *length = rule->length;
    if (left == 0 || rule->end == TRP_END_CONTINUE)
        return false;
    if (rule->end == TRP_END_WRITE)
        return rows >= rule->length;
    if (left >= rule->length)
        return false; /* the next item would begin behind the last row */
    *length = rule->length - (uint32_t)left;
    *padding = rule->end == TRP_END_PAD ? (uint32_t)left : 0;
    return true;
}
