/* Memory of a device that an updater has, taken piece by piece and given back together. */
#ifndef TRP_AGENTS_ROOM_H
#define TRP_AGENTS_ROOM_H

#include <stddef.h>

#include <troupe/device.h>

enum { ROOM_PIECES_MAX = 64 };

/* Begin with {.device = ...}. */
struct room {
    trp_device *device;
    void *pieces[ROOM_PIECES_MAX];
    size_t count;
};

/* Sets the pointer that `out` points to; 0 bytes: to NULL. Fails as trp_device_alloc(); more than
 * ROOM_PIECES_MAX pieces are a bug (asserted). */
TRP_MUST_USE trp_status room_add(struct room *room, size_t bytes, void *out);

/* What is put on queues must not need it any more. */
void room_free(struct room *room);

#endif
