/* Some ranks of a generation among themselves, beside the group. What ends a circle ends the
 * generation. One that is alone in it has nobody to wait for: all of it is done at once. */
#ifndef TRP_LEARNER_MODES_CIRCLE_H
#define TRP_LEARNER_MODES_CIRCLE_H

#include "learners.h"

enum { CIRCLE_ADDRESS_BYTES = 256 };

struct circle {
    struct learners *group;
    const char *name; /* of it in the group: "sites" */
    trp_collective_listener *listener;
    char address[CIRCLE_ADDRESS_BYTES];
    trp_collective *collective; /* NULL: this one is alone, or not in it */
    uint32_t rank, size;        /* size 0: it is not in it */
    uint64_t sent_bytes;        /* in circles that it has left */
};

/* Listens beside the group, which listens at `listen`: on another port, or at another path. Zeroed;
 * `name` is borrowed. Fails as trp_collective_listener_create(). */
TRP_MUST_USE trp_status circle_listen(struct circle *circle, struct learners *group,
                                      const char *name, const struct learners_options *options);
void circle_cleanup(struct circle *circle); /* leaves; zeroed is fine */

/* All ranks of the group call it; those of in[rank] are in the circle then, in their order. Fails
 * as learners_connect() and learners_wait(). */
TRP_MUST_USE trp_status circle_join(struct circle *circle, const bool *in);
void circle_leave(struct circle *circle);

/* Operations of those who are in it, as trp_collective_...(); blocks are multiples of
 * TRP_COLLECTIVE_RANGE_VALUES. */
uint64_t circle_sum(const struct circle *circle, uint64_t *words, size_t count);
uint64_t circle_gather(const struct circle *circle, uint32_t *blocks, size_t each);
uint64_t circle_broadcast(const struct circle *circle, void *values, size_t count,
                          trp_collective_type type);
uint64_t circle_barrier(const struct circle *circle);
TRP_MUST_USE trp_status circle_wait(const struct circle *circle, uint64_t ticket);
bool circle_is_done(const struct circle *circle, uint64_t ticket);

#endif
