/* A writer's side of an inbox: memory that the server sees too, and chunks are made in. It stays
 * while chunks lie in it, whatever became of the server. One thread. */
#ifndef TRP_REPLAY_WRITER_ROOM_H
#define TRP_REPLAY_WRITER_ROOM_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include "replay/wire/shared_wire.h"

struct room;

/* With one reference. Any status: the memory is not here, not ours to use, or not the server's. */
trp_status room_open(struct room **out, const struct shared_inbox *inbox);

const uint8_t *room_memory(const struct room *room);

/* `size` bytes and a reference; NULL: there are not so many in a row. */
uint8_t *room_take(struct room *room, size_t size);
void room_give(struct room *room, uint8_t *bytes, size_t size);

void room_ref(struct room *room);
void room_unref(struct room *room); /* NULL is fine */

#endif
