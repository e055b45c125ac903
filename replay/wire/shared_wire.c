/* Problem: 256 samples of 52 bytes take as long to describe as to copy, so the description has to
 * cost next to nothing, and it comes from a peer all the same.
 * Design: arrays of fixed structs, copied in and out; what samples have in common (trajectories)
 * is said once a message.
 * Guarantee: no span leaves the message, whatever the message says. */
#include "shared_wire.h"

#include <string.h>

#include "limits.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are copied to the wire");

static trp_status message_create(size_t size, trp_message **message)
{
    *message = trp_message_create(size);
    if (!*message)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", size);
    return TRP_OK;
}

static uint8_t *put(uint8_t *at, const void *data, size_t size)
{
    if (size)
        memcpy(at, data, size);
    return at + size;
}

/* ---- the beginning ----------------------------------------------------------------------- */

struct hello_head {
    uint32_t magic, version;
    uint64_t window;
    char boot_id[BOOT_ID_BYTES];
    uint32_t table_bytes, reserved;
};
_Static_assert(sizeof(struct hello_head) == 64, "on the wire: change SHARED_VERSION with this");

trp_status shared_hello_encode(const struct shared_hello *hello, trp_message **message)
{
    struct hello_head head = {.magic = SHARED_MAGIC,
                              .version = SHARED_VERSION,
                              .window = hello->window,
                              .table_bytes = (uint32_t)hello->table.size};
    memcpy(head.boot_id, hello->boot_id, sizeof head.boot_id);
    TRP_TRY(message_create(sizeof head + hello->table.size, message));
    uint8_t *at = put(trp_message_data(*message), &head, sizeof head);
    put(at, hello->table.data, hello->table.size);
    return TRP_OK;
}

static trp_status check_version(const char *what, uint32_t magic, uint32_t version)
{
    if (magic != SHARED_MAGIC)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: no %s", what);
    if (version != SHARED_VERSION)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "SampleShared: the peer speaks version %u, we speak %d", version,
                        SHARED_VERSION);
    return TRP_OK;
}

trp_status shared_hello_decode(trp_bytes bytes, struct shared_hello *hello)
{
    struct hello_head head;
    if (bytes.size < sizeof head)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a hello of %zu bytes", bytes.size);
    memcpy(&head, bytes.data, sizeof head);
    TRP_TRY(check_version("hello", head.magic, head.version));
    if (head.table_bytes != bytes.size - sizeof head)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a hello with a table of %u bytes",
                        head.table_bytes);
    memcpy(hello->boot_id, head.boot_id, sizeof hello->boot_id);
    hello->window = head.window;
    hello->table = (trp_bytes){bytes.data + sizeof head, head.table_bytes};
    return TRP_OK;
}

trp_status shared_welcome_encode(const struct shared_welcome *welcome, trp_message **message)
{
    uint32_t sizes[2] = {(uint32_t)welcome->data_path.size, (uint32_t)welcome->lease_path.size};
    struct shared_layout layout = welcome->layout;
    layout.magic = SHARED_MAGIC;
    layout.version = SHARED_VERSION;
    TRP_TRY(message_create(sizeof layout + sizeof sizes + (size_t)sizes[0] + sizes[1], message));
    uint8_t *at = put(trp_message_data(*message), &layout, sizeof layout);
    at = put(at, sizes, sizeof sizes);
    at = put(at, welcome->data_path.data, sizes[0]);
    put(at, welcome->lease_path.data, sizes[1]);
    return TRP_OK;
}

trp_status shared_welcome_decode(trp_bytes bytes, struct shared_welcome *welcome)
{
    uint32_t sizes[2];
    size_t head = sizeof welcome->layout + sizeof sizes;
    if (bytes.size < head)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a welcome of %zu bytes", bytes.size);
    memcpy(&welcome->layout, bytes.data, sizeof welcome->layout);
    memcpy(sizes, bytes.data + sizeof welcome->layout, sizeof sizes);
    TRP_TRY(check_version("welcome", welcome->layout.magic, welcome->layout.version));
    if (bytes.size - head != (uint64_t)sizes[0] + sizes[1])
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a welcome with paths of %u, %u bytes",
                        sizes[0], sizes[1]);
    const struct shared_layout *layout = &welcome->layout;
    if (layout->page_bytes == 0 || layout->piece_bytes == 0 ||
        layout->piece_offset >= layout->page_bytes ||
        layout->piece_bytes > layout->page_bytes - layout->piece_offset ||
        layout->map_bytes > STORE_MAP_BYTES_MAX || layout->map_bytes < SHARED_NONCE_BYTES ||
        layout->nonce_at > layout->map_bytes - SHARED_NONCE_BYTES ||
        layout->lease_index >= SHARED_LEASES_MAX || layout->lease == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a welcome that makes no sense");
    welcome->data_path = (trp_bytes){bytes.data + head, sizes[0]};
    welcome->lease_path = (trp_bytes){bytes.data + head + sizes[0], sizes[1]};
    return TRP_OK;
}

trp_status shared_inbox_decode(trp_bytes bytes, struct shared_inbox *inbox)
{
    if (bytes.size < sizeof *inbox)
        return trp_fail(TRP_INVALID_ARGUMENT, "an inbox described in %zu bytes", bytes.size);
    memcpy(inbox, bytes.data, sizeof *inbox);
    TRP_TRY(check_version("inbox", inbox->magic, inbox->version));
    if (inbox->bytes < SHARED_NONCE_BYTES || inbox->bytes > UINT32_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "an inbox that makes no sense");
    return TRP_OK;
}

trp_status shared_ask_encode(const struct shared_ask *ask, trp_message **message)
{
    TRP_TRY(message_create(sizeof *ask, message));
    put(trp_message_data(*message), ask, sizeof *ask);
    return TRP_OK;
}

trp_status shared_ask_decode(trp_bytes bytes, struct shared_ask *ask)
{
    if (bytes.size != sizeof *ask)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a request of %zu bytes", bytes.size);
    memcpy(ask, bytes.data, sizeof *ask);
    if (ask->samples < 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: a request for a negative number");
    return TRP_OK;
}

/* ---- building samples -------------------------------------------------------------------- */

void shared_builder_clear(struct shared_builder *builder)
{
    buffer_clear(&builder->trajectories);
    buffer_clear(&builder->entries);
    buffer_clear(&builder->chunks);
    buffer_clear(&builder->pages);
    buffer_clear(&builder->bytes);
}

void shared_builder_cleanup(struct shared_builder *builder)
{
    buffer_cleanup(&builder->trajectories);
    buffer_cleanup(&builder->entries);
    buffer_cleanup(&builder->chunks);
    buffer_cleanup(&builder->pages);
    buffer_cleanup(&builder->bytes);
}

uint32_t shared_builder_trajectory(struct shared_builder *builder, trp_bytes trajectory,
                                   uint32_t chunk_count)
{
    const struct shared_trajectory *known =
        (const struct shared_trajectory *)(void *)builder->trajectories.data;
    uint32_t count = (uint32_t)(builder->trajectories.size / sizeof *known);
    uint32_t oldest =
        count > SHARED_TRAJECTORIES_LOOKED_AT ? count - SHARED_TRAJECTORIES_LOOKED_AT : 0;
    for (uint32_t i = count; i-- > oldest;)
        if (known[i].size == trajectory.size && known[i].chunk_count == chunk_count &&
            memcmp(builder->bytes.data + known[i].at, trajectory.data, trajectory.size) == 0)
            return i;
    struct shared_trajectory more = {.at = (uint32_t)builder->bytes.size,
                                     .size = (uint32_t)trajectory.size,
                                     .chunk_count = chunk_count};
    buffer_append(&builder->bytes, trajectory);
    buffer_append(&builder->trajectories, (trp_bytes){(const uint8_t *)&more, sizeof more});
    return count;
}

trp_status shared_samples_encode(const struct shared_builder *builder, uint32_t flags,
                                 uint64_t round, trp_message **message)
{
    if (builder->bytes.size > UINT32_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "samples of %zu bytes in one message",
                        builder->bytes.size);
    struct shared_header header = {
        .magic = SHARED_MAGIC,
        .flags = flags,
        .round = round,
        .trajectories = (uint32_t)(builder->trajectories.size / sizeof(struct shared_trajectory)),
        .entries = (uint32_t)(builder->entries.size / sizeof(struct shared_entry)),
        .chunks = (uint32_t)(builder->chunks.size / sizeof(struct shared_chunk)),
        .pages = (uint32_t)(builder->pages.size / sizeof(uint64_t)),
        .bytes = (uint32_t)builder->bytes.size,
    };
    TRP_TRY(message_create(sizeof header + builder->trajectories.size + builder->entries.size +
                               builder->chunks.size + builder->pages.size + builder->bytes.size,
                           message));
    uint8_t *at = put(trp_message_data(*message), &header, sizeof header);
    at = put(at, builder->trajectories.data, builder->trajectories.size);
    at = put(at, builder->entries.data, builder->entries.size);
    at = put(at, builder->chunks.data, builder->chunks.size);
    at = put(at, builder->pages.data, builder->pages.size);
    put(at, builder->bytes.data, builder->bytes.size);
    return TRP_OK;
}

/* ---- reading samples --------------------------------------------------------------------- */

trp_status shared_samples_decode(trp_bytes bytes, struct shared_samples *samples)
{
    struct shared_header *header = &samples->header;
    if (bytes.size < sizeof *header)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: an answer of %zu bytes", bytes.size);
    memcpy(header, bytes.data, sizeof *header);
    uint64_t size = sizeof *header +
                    (uint64_t)header->trajectories * sizeof(struct shared_trajectory) +
                    (uint64_t)header->entries * sizeof(struct shared_entry) +
                    (uint64_t)header->chunks * sizeof(struct shared_chunk) +
                    (uint64_t)header->pages * sizeof(uint64_t) + header->bytes;
    if (header->magic != SHARED_MAGIC || size != bytes.size)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "SampleShared: an answer of %zu bytes that should have %llu", bytes.size,
                        (unsigned long long)size);
    samples->trajectories = bytes.data + sizeof *header;
    samples->entries =
        samples->trajectories + (size_t)header->trajectories * sizeof(struct shared_trajectory);
    samples->chunks = samples->entries + (size_t)header->entries * sizeof(struct shared_entry);
    samples->pages = samples->chunks + (size_t)header->chunks * sizeof(struct shared_chunk);
    samples->bytes =
        (trp_bytes){samples->pages + (size_t)header->pages * sizeof(uint64_t), header->bytes};
    return TRP_OK;
}

bool shared_samples_trajectory(const struct shared_samples *samples, uint32_t index,
                               trp_bytes *trajectory, uint32_t *chunk_count)
{
    struct shared_trajectory at;
    memcpy(&at, samples->trajectories + index * sizeof at, sizeof at);
    if (at.at > samples->bytes.size || at.size > samples->bytes.size - at.at)
        return false;
    *trajectory = (trp_bytes){samples->bytes.data + at.at, at.size};
    *chunk_count = at.chunk_count;
    return true;
}

void shared_samples_entry(const struct shared_samples *samples, uint32_t index,
                          struct shared_entry *entry)
{
    memcpy(entry, samples->entries + index * sizeof *entry, sizeof *entry);
}

bool shared_samples_chunk(const struct shared_samples *samples, uint64_t index,
                          uint64_t piece_bytes, struct shared_chunk_view *chunk)
{
    struct shared_chunk at;
    if (index >= samples->header.chunks)
        return false;
    memcpy(&at, samples->chunks + index * sizeof at, sizeof at);
    uint64_t paged = at.pages * piece_bytes;
    uint64_t rest = paged < at.size ? at.size - paged : 0;
    if (paged > at.size && paged - at.size >= piece_bytes)
        return false;
    if (at.page_first > samples->header.pages || at.pages > samples->header.pages - at.page_first)
        return false;
    if (at.bytes_at > samples->bytes.size || rest > samples->bytes.size - at.bytes_at)
        return false;
    chunk->size = at.size;
    chunk->page_count = at.pages;
    chunk->pages = samples->pages + (size_t)at.page_first * sizeof(uint64_t);
    chunk->rest = (trp_bytes){samples->bytes.data + at.bytes_at, rest};
    return true;
}
