/* What comes in batches is from a peer: it is looked at before it indexes anything. DATA_LOSS names
 * the item's key and what is wrong with it. */
#ifndef TRP_AGENTS_RECEIVED_H
#define TRP_AGENTS_RECEIVED_H

#include <troupe/updater.h>

struct received {
    const char *who; /* "dqn": begins messages */
    const trp_update *update;
    size_t source;
    uint32_t steps; /* rows of an item; 0: 1 */
};

/* A column of bool says nothing but 0 and 1. */
TRP_MUST_USE trp_status received_flags(const struct received *received, const char *column);

/* int32 in [0, sizes[i]), `parts` of them a row. */
TRP_MUST_USE trp_status received_choices(const struct received *received, const char *column,
                                         const int32_t *sizes, uint32_t parts);

/* Flags of `choices`, of which one at least is set in rows that are `valid` (NULL: all). A column
 * that is not declared passes. */
TRP_MUST_USE trp_status received_mask(const struct received *received, const char *column,
                                      uint32_t choices, const uint8_t *valid);

#endif
