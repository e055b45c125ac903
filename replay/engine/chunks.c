/* Streams have items and chunks before a table has them, and after; all of these are the store's.
 * Here is what streams may do with them, so that nobody above the engine needs to know a store. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#include "replay/wire/shared_wire.h"

struct item *engine_item_create(struct engine *engine, trp_bytes trajectory,
                                struct chunk *const *chunks, uint32_t count)
{
    return store_item_create(engine->store, store_trajectory(engine->store, trajectory, count),
                             chunks);
}

void engine_item_destroy(struct engine *engine, struct item *item)
{
    store_item_destroy(engine->store, item);
}

struct chunk *engine_chunk_create(struct engine *engine, const trp_bytes *spans, uint32_t count,
                                  bool shared)
{
    struct chunk *chunk = store_chunk_create(engine->store, spans, count);
    if (shared)
        store_chunk_shared(chunk);
    return chunk;
}

void engine_chunk_unref(struct engine *engine, struct chunk *chunk)
{
    store_chunk_unref(engine->store, chunk);
}

uint64_t engine_held_bytes(const struct engine *engine)
{
    return store_held_bytes(engine->store);
}

bool engine_pins_messages(const struct engine *engine)
{
    return store_has_borrowed(engine->store);
}

void engine_unpin_messages(struct engine *engine)
{
    store_borrowed_end(engine->store);
}

/* ---- out of the store ------------------------------------------------------------------------ */

trp_status engine_chunk_read(struct engine *engine, const struct chunk *chunk, uint8_t *out)
{
    return store_chunk_read(engine->store, chunk, out);
}

bool engine_chunk_prefetch(struct engine *engine, const struct chunk *chunk, struct fetch *fetch)
{
    return store_chunk_prefetch(engine->store, chunk, fetch);
}

trp_status engine_fetcher(struct engine *engine, void (*done)(void *arg), void *arg,
                          struct fetcher **out)
{
    return store_fetcher(engine->store, done, arg, out);
}

uint64_t engine_pin_room(const struct engine *engine)
{
    return store_pin_room(engine->store);
}

size_t engine_chunk_pinnable(const struct chunk *chunk)
{
    return store_chunk_pinnable(chunk);
}

/* The bytes that a slot has elsewhere become parts of their own behind those before. */
trp_status engine_message_fill(struct engine *engine, trp_message *message, bool pins,
                               const struct wire_slot *slots, struct chunk *const *chunks,
                               uint32_t count, uint32_t *damaged)
{
    const uint8_t *done = trp_message_data(message), *end = done + trp_message_size(message);
    struct store *store = engine->store;
    struct pin *pin = pins ? store_pin_begin(store) : NULL;
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i < count; i++) {
        bool pinned = status == TRP_OK && slots[i].elsewhere > 0, failed = status != TRP_OK;
        if (pinned) {
            pin_add(pin, (trp_bytes){done, (size_t)(slots[i].bytes - done)});
            done = slots[i].bytes;
            status = store_pin_chunk(store, pin, chunks[i], slots[i].bytes);
        } else if (!failed) {
            status = store_chunk_read(store, chunks[i], slots[i].bytes);
        }
        if (!pinned)
            store_chunk_unref(store, chunks[i]);
        if (status != TRP_OK && !failed)
            *damaged = i;
    }
    if (!pin)
        return status;
    size_t part_count;
    pin_add(pin, (trp_bytes){done, (size_t)(end - done)});
    const trp_bytes *parts = pin_parts(pin, &part_count);
    trp_message_set_parts(message, parts, part_count, pin_return, pin);
    return status;
}

bool engine_unpin_chunks(struct engine *engine)
{
    return store_pins_collect(engine->store);
}

bool engine_wait_unpinned(struct engine *engine, struct deadline deadline)
{
    return store_pins_wait(engine->store, deadline);
}

/* ---- readers on this host -------------------------------------------------------------------- */

trp_status engine_share(struct engine *engine)
{
    return store_share(engine->store);
}

trp_status engine_lease_begin(struct engine *engine, struct shared_welcome *welcome)
{
    const struct store_share *share = store_shared(engine->store);
    uint64_t lease = trp_rng_entropy() | 1;
    uint32_t index;
    if (!share)
        return trp_fail(TRP_FAILED_PRECONDITION, "this server's files are not for others to read");
    TRP_TRY(store_lease_begin(engine->store, lease, &index));
    *welcome = (struct shared_welcome){
        .layout = {.page_bytes = share->page_bytes,
                   .map_bytes = share->map_bytes,
                   .piece_offset = share->piece_offset,
                   .piece_bytes = share->piece_bytes,
                   .device = share->device,
                   .inode = share->inode,
                   .nonce_at = share->nonce_at,
                   .lease_index = index,
                   .lease = lease},
        .data_path = text_bytes(share->data_path),
        .lease_path = text_bytes(share->lease_path),
    };
    memcpy(welcome->layout.nonce, share->nonce, sizeof welcome->layout.nonce);
    return TRP_OK;
}

void engine_lease_end(struct engine *engine, uint32_t index)
{
    store_lease_end(engine->store, index);
}

trp_status engine_chunk_locate(struct engine *engine, const struct chunk *chunk,
                               struct buffer *pages, struct buffer *rest)
{
    return store_chunk_locate(engine->store, chunk, pages, rest);
}

/* ---- the store as a whole -------------------------------------------------------------------- */

void engine_identity(const struct engine *engine, char text[ENGINE_IDENTITY_BYTES])
{
    const uint8_t *nonce = store_identity(engine->store);
    for (size_t i = 0; 2 * i + 1 < ENGINE_IDENTITY_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", nonce[i]);
}

struct store_stats engine_usage(const struct engine *engine)
{
    struct store_stats stats;
    store_stats(engine->store, &stats);
    return stats;
}
