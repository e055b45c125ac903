/* Host memory through which vectors of a device travel. What was copied back to the device from it
 * may not have arrived yet: it is used again when its queue has come so far. */
#ifndef TRP_LEARNER_STAGING_H
#define TRP_LEARNER_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/device.h>

struct staging {
    struct staging *next;
    void *memory;
    size_t bytes;
    trp_queue *queue; /* that uses it until `mark`; NULL: none does */
    uint64_t mark;
    bool taken; /* by an operation */
};

/* One of at least so many bytes that nothing uses, from the list or new in it. */
struct staging *staging_take(struct staging **list, size_t bytes);

/* The operation is done; what is on the queue up to now is the last to use it. */
void staging_give(struct staging *staging, trp_queue *queue);

/* `queue` has come to `mark`. */
void staging_passed(struct staging *list, const trp_queue *queue, uint64_t mark);

/* Waits for the queues. */
void staging_destroy(struct staging *list);

#endif
