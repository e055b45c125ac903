/* A writer's side of a segment: memory that the server sees too, and chunks are made in. It stays
 * while chunks lie in it, whatever became of the server. One thread. */
#ifndef TRP_REPLAY_WRITER_SHM_ARENA_H
#define TRP_REPLAY_WRITER_SHM_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include "replay/wire/shared_wire.h"

struct shm_arena;

/* With one reference. Any status: the memory is not here, not ours to use, or not the server's. */
trp_status shm_arena_open(struct shm_arena **out, const struct shared_segment *segment);

const uint8_t *shm_arena_memory(const struct shm_arena *arena);

/* `size` bytes and a reference; NULL: there are not so many in a row. */
uint8_t *shm_arena_take(struct shm_arena *arena, size_t size);
void shm_arena_give(struct shm_arena *arena, uint8_t *bytes, size_t size);

void shm_arena_ref(struct shm_arena *arena);
void shm_arena_unref(struct shm_arena *arena); /* NULL is fine */

#endif
