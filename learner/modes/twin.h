/* Memory of a device, and of the host what it was last copied to or from: the same on a host. */
#ifndef TRP_LEARNER_MODES_TWIN_H
#define TRP_LEARNER_MODES_TWIN_H

#include <stddef.h>

#include <troupe/device.h>

/* In front of the device's memory there is room for a line more. */
enum { TWIN_HEAD_BYTES = 64 };

struct twin {
    trp_device *device;
    void *there, *here; /* the device's, the host's */
    size_t bytes;
};

/* Zeroed. RESOURCE_EXHAUSTED: the device has no memory. */
TRP_MUST_USE trp_status twin_create(struct twin *twin, trp_device *device, size_t bytes);
void twin_destroy(struct twin *twin); /* zeroed is fine */

/* On a queue of the device; [at, at + bytes) of it. */
void twin_fetch(const struct twin *twin, trp_queue *queue, size_t at, size_t bytes);
void twin_store(const struct twin *twin, trp_queue *queue);

#endif
