/* Inner to server/: memory for gradients that come in parts, bounded for all workers and vectors of
 * a server together. Who has once pushed in parts keeps its memory for the next push, until another
 * one needs the room; who is in the middle of a push keeps it as long as its parts come. */
#ifndef TRP_LEARNER_SERVER_PARTS_ROOM_H
#define TRP_LEARNER_SERVER_PARTS_ROOM_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include "core/clock.h"
#include "core/list.h"

struct parts_room {
    const struct clock *clock;
    uint64_t bytes, limit;
    struct list staged; /* those that have memory */
};

/* Of one worker and vector. Zeroed: it has none. */
struct staged_parts {
    struct list_link link;
    uint64_t number;  /* of the parts that belong together; 0: none are there */
    size_t have;      /* bytes of them */
    int64_t heard_ns; /* when the last one came */
    size_t count;     /* numbers that there is memory for */
    float *numbers;
};

/* Memory for `count` numbers. RESOURCE_EXHAUSTED: others have what there is. FAILED_PRECONDITION:
 * there is never so much. */
TRP_MUST_USE trp_status parts_room_take(struct parts_room *room, struct staged_parts *staged,
                                        size_t count);

/* Gives it back; without memory it is fine. */
void parts_room_leave(struct parts_room *room, struct staged_parts *staged);

#endif
