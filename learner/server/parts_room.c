#include "parts_room.h"

#include <inttypes.h>
#include <stdbool.h>

#include <troupe/nn.h>
#include "limits.h"

static bool parts_are_left(const struct staged_parts *staged, int64_t now_ns)
{
    return staged->number == 0 || now_ns - staged->heard_ns > (int64_t)STAGED_SILENCE_MS * 1000000;
}

static struct staged_parts *find_left_parts(const struct parts_room *room)
{
    int64_t now_ns = clock_now_ns(room->clock);
    LIST_EACH (struct staged_parts, staged, &room->staged, link)
        if (parts_are_left(staged, now_ns))
            return staged;
    return NULL;
}

void parts_room_leave(struct parts_room *room, struct staged_parts *staged)
{
    if (!staged->numbers)
        return;
    list_remove(&room->staged, &staged->link);
    room->bytes -= staged->count * sizeof(float);
    trp_floats_destroy(staged->numbers);
    *staged = (struct staged_parts){0};
}

trp_status parts_room_take(struct parts_room *room, struct staged_parts *staged, size_t count)
{
    uint64_t bytes = count * sizeof(float);
    struct staged_parts *left;
    if (staged->numbers)
        return TRP_OK;
    if (bytes > room->limit)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "a gradient of %" PRIu64 " bytes, the server takes in %" PRIu64
                        " (in_flight_bytes)",
                        bytes, room->limit);
    while (bytes > room->limit - room->bytes && (left = find_left_parts(room)))
        parts_room_leave(room, left);
    if (bytes > room->limit - room->bytes)
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "%" PRIu64 " of %" PRIu64 " bytes (in_flight_bytes) are of pushes that are "
                        "not complete, a gradient has %" PRIu64,
                        room->bytes, room->limit, bytes);
    staged->count = count;
    staged->numbers = trp_floats_create(count);
    room->bytes += bytes;
    list_push(&room->staged, &staged->link);
    return TRP_OK;
}
