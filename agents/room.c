#include "room.h"

#include <assert.h>
#include <string.h>

trp_status room_add(struct room *room, size_t bytes, void *out)
{
    void *piece = NULL;
    if (bytes > 0) {
        assert(room->count < ROOM_PIECES_MAX);
        TRP_TRY(trp_device_alloc(room->device, bytes, &piece));
        room->pieces[room->count++] = piece;
    }
    memcpy(out, &piece, sizeof piece);
    return TRP_OK;
}

void room_free(struct room *room)
{
    for (size_t i = 0; i < room->count; i++)
        trp_device_free(room->device, room->pieces[i]);
    room->count = 0;
}
