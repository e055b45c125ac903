/* Problem: whoever sends a chunk over a socket would copy it first, though it lies in memory
 * already, in pages that do not move while the chunk lives; and a transport lets go of what it
 * sends when and on which thread it likes, maybe after the store was closed.
 * Design: a pin has a reference to each chunk that a message is of. The message is parts that point
 * into a second mapping of data.mdb, which is read-only and outlives the store while anything is
 * out. A pin that is returned waits, with its references, for the thread that has the store. All
 * pins together are bounded, as no page that is out can be recycled; chunks beyond are copied.
 * Guarantee: the parts of a pin have the chunks' bytes until it is returned or the store is
 * closed; they can be read until it is returned. */
#include "internal.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/alloc.h"
#include "core/list.h"
#include "core/thread.h"

/* The part that outlives the store. */
struct pins {
    uint8_t *map; /* page 0 */
    uint64_t map_bytes;
    uint64_t bytes;     /* of pins that were not collected; the store's thread's */
    struct mutex mutex; /* guards what follows */
    struct cond changed;
    struct list out, returned; /* of struct pin */
    bool closed;               /* the store is; whoever returns the last pin frees this */
};

struct pin {
    struct pins *pins;
    struct list_link link; /* among those that are out, or were returned */
    struct buffer chunks;  /* of struct chunk *, a reference each; the store's thread's */
    struct buffer parts;   /* of trp_bytes */
    uint64_t bytes;        /* pinned */
};

/* ---- life ----------------------------------------------------------------------------------- */

static void pin_free(struct pin *pin)
{
    buffer_cleanup(&pin->chunks);
    buffer_cleanup(&pin->parts);
    free(pin);
}

/* Pins that came back, and the chunks that they had. */
static void pins_take_back(struct store *store, struct list returned)
{
    LIST_EACH (struct pin, pin, &returned, link) {
        chunks_unref(store, &pin->chunks);
        store->pins->bytes -= pin->bytes;
        pin_free(pin);
    }
}

static void pins_free(struct pins *pins)
{
    munmap(pins->map, pins->map_bytes);
    cond_cleanup(&pins->changed);
    mutex_cleanup(&pins->mutex);
    free(pins);
}

void pins_open(struct store *store)
{
    int fd;
    if (!store->map || store->page_bytes != PAGE_HEADER_BYTES + PIECE_BYTES ||
        mdb_env_get_fd(store->env, &fd) != 0)
        return;
    void *map = mmap(NULL, store->map_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED)
        return;
    madvise(map, store->map_bytes, MADV_RANDOM);
    struct pins *pins = xcalloc(1, sizeof *pins);
    pins->map = map;
    pins->map_bytes = store->map_bytes;
    mutex_init(&pins->mutex);
    cond_init(&pins->changed);
    store->pins = pins;
}

void pins_close(struct store *store)
{
    struct pins *pins = store->pins;
    if (!pins)
        return;
    mutex_lock(&pins->mutex);
    pins->closed = true; /* from here on nothing is returned to us any more */
    struct list returned = pins->returned;
    LIST_EACH (struct pin, pin, &pins->out, link)
        chunks_unref(store, &pin->chunks);
    pins_take_back(store, returned);
    bool last = !pins->out.first;
    mutex_unlock(&pins->mutex); /* else the last that is out frees them when it is returned */
    if (last)
        pins_free(pins);
    store->pins = NULL;
}

/* ---- pinning -------------------------------------------------------------------------------- */

uint64_t store_pin_room(const struct store *store)
{
    if (!store->pins)
        return 0;
    uint64_t most = store->pages.limit * store->page_bytes / STORE_PIN_SHARE;
    most = most < STORE_PIN_BYTES_MAX ? most : STORE_PIN_BYTES_MAX;
    return store->pins->bytes < most ? most - store->pins->bytes : 0;
}

size_t store_chunk_pinnable(const struct chunk *chunk)
{
    if (chunk->size < STORE_PIN_CHUNK_BYTES_MIN || stored(chunk)->bytes || stored(chunk)->borrowed)
        return 0;
    return chunk_paged_bytes(chunk);
}

struct pin *store_pin_begin(struct store *store)
{
    struct pin *pin = xcalloc(1, sizeof *pin);
    pin->pins = store->pins;
    mutex_lock(&pin->pins->mutex);
    list_push(&pin->pins->out, &pin->link);
    mutex_unlock(&pin->pins->mutex);
    return pin;
}

void pin_add(struct pin *pin, trp_bytes bytes)
{
    if (bytes.size == 0)
        return;
    trp_bytes *part = buffer_push(&pin->parts, sizeof *part);
    *part = bytes;
}

const trp_bytes *pin_parts(const struct pin *pin, size_t *count)
{
    *count = pin->parts.size / sizeof(trp_bytes);
    return (const trp_bytes *)(const void *)pin->parts.data;
}

trp_status store_pin_chunk(struct store *store, struct pin *pin, struct chunk *chunk, uint8_t *rest)
{
    size_t pinnable = store_chunk_pinnable(chunk);
    struct chunk **kept = buffer_push(&pin->chunks, sizeof(struct chunk *));
    *kept = chunk;
    pin->bytes += pinnable;
    store->pins->bytes += pinnable;
    const uint64_t *pages;
    TRP_TRY(chunk_pages(store, chunk, &pages));
    TRP_TRY(chunk_compare(store, chunk, pin->pins->map)); /* whose pages are to be read anyway */
    for (size_t at = 0; at < pinnable; at += PIECE_BYTES)
        pin_add(pin, (trp_bytes){pin->pins->map + *pages++ * store->page_bytes + PAGE_HEADER_BYTES,
                                 pinnable - at < PIECE_BYTES ? pinnable - at : PIECE_BYTES});
    return chunk_tail(store, chunk, rest);
}

/* ---- and back ------------------------------------------------------------------------------- */

void pin_return(void *arg)
{
    struct pin *pin = arg;
    struct pins *pins = pin->pins;
    mutex_lock(&pins->mutex);
    list_remove(&pins->out, &pin->link);
    bool closed = pins->closed, last = !pins->out.first;
    if (!closed) {
        list_push(&pins->returned, &pin->link);
        cond_signal(&pins->changed);
    }
    mutex_unlock(&pins->mutex);
    if (!closed)
        return;
    pin_free(pin);
    if (last)
        pins_free(pins);
}

bool store_pins_collect(struct store *store)
{
    struct pins *pins = store->pins;
    if (!pins)
        return false;
    mutex_lock(&pins->mutex);
    struct list returned = pins->returned;
    pins->returned = (struct list){0};
    bool more = pins->out.first;
    mutex_unlock(&pins->mutex);
    pins_take_back(store, returned);
    return more;
}

bool store_pins_wait(struct store *store, struct deadline deadline)
{
    struct pins *pins = store->pins;
    if (!pins)
        return true;
    mutex_lock(&pins->mutex);
    while (pins->out.first && cond_wait(&pins->changed, &pins->mutex, deadline))
        continue;
    bool all = !pins->out.first;
    mutex_unlock(&pins->mutex);
    store_pins_collect(store);
    return all;
}
