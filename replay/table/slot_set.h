/* A set of slots with a uniform draw: a dense vector of members and each member's place in it.
 * A zeroed struct is an empty set. */
#ifndef TRP_REPLAY_TABLE_SLOT_SET_H
#define TRP_REPLAY_TABLE_SLOT_SET_H

#include <stdbool.h>
#include <stdint.h>

struct slot_set {
    uint32_t *members; /* `count` slots, no order */
    uint32_t *places;  /* by slot: index into members; SLOT_NONE when not inside */
    uint32_t count, capacity;
};

void slot_set_insert(struct slot_set *set, uint32_t slot); /* not inside */
void slot_set_remove(struct slot_set *set, uint32_t slot); /* inside */
bool slot_set_has(const struct slot_set *set, uint32_t slot);
void slot_set_clear(struct slot_set *set); /* keeps the memory */
void slot_set_cleanup(struct slot_set *set);

#endif
