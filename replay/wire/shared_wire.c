/* Problem: 256 samples of 52 bytes take as long to describe as to copy, so the description has to
 * cost next to nothing, and it comes from a peer all the same.
 * Design: arrays of fixed structs, copied in and out; trajectories, which samples have in
 * common, are sent once a message.
 * Guarantee: no span leaves the message, whatever the message says. */
#include "shared_wire.h"

#include <limits.h>
#include <string.h>

#include "limits.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are copied to the wire");

/* A message of so many pieces. */
static trp_status message_join(const trp_bytes *pieces, size_t count, trp_message **message)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += pieces[i].size;
    *message = trp_message_create(size);
    if (!*message)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes", size);
    uint8_t *at = trp_message_data(*message);
    for (size_t i = 0; i < count; at += pieces[i++].size)
        if (pieces[i].size)
            memcpy(at, pieces[i].data, pieces[i].size);
    return TRP_OK;
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
    const trp_bytes pieces[] = {span_of(&head, sizeof head), hello->table};
    return message_join(pieces, 2, message);
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
    const trp_bytes pieces[] = {span_of(&layout, sizeof layout), span_of(sizes, sizeof sizes),
                                welcome->data_path, welcome->lease_path};
    return message_join(pieces, 4, message);
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
    if (sizes[0] > PATH_MAX || sizes[1] > PATH_MAX || layout->piece_bytes == 0 ||
        layout->page_bytes == 0 || layout->page_bytes > SHARED_PAGE_BYTES_MAX ||
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

trp_status shared_segment_decode(trp_bytes bytes, struct shared_segment *segment)
{
    if (bytes.size < sizeof *segment)
        return trp_fail(TRP_INVALID_ARGUMENT, "a shared memory segment described in %zu bytes",
                        bytes.size);
    memcpy(segment, bytes.data, sizeof *segment);
    TRP_TRY(check_version("segment", segment->magic, segment->version));
    if (segment->bytes < SHARED_NONCE_BYTES || segment->bytes > UINT32_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "a shared memory segment that makes no sense");
    return TRP_OK;
}

trp_status shared_ask_encode(const struct shared_ask *ask, trp_message **message)
{
    const trp_bytes piece = span_of(ask, sizeof *ask);
    return message_join(&piece, 1, message);
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

static const size_t element_bytes[] = {sizeof(struct shared_trajectory),
                                       sizeof(struct shared_entry), sizeof(struct shared_chunk),
                                       sizeof(uint64_t), 1};

void shared_builder_clear(struct shared_builder *builder)
{
    for (size_t i = 0; i < SHARED_ARRAYS; i++)
        buffer_clear(&builder->arrays[i]);
}

void shared_builder_cleanup(struct shared_builder *builder)
{
    for (size_t i = 0; i < SHARED_ARRAYS; i++)
        buffer_cleanup(&builder->arrays[i]);
}

uint32_t shared_builder_trajectory(struct shared_builder *builder, trp_bytes trajectory,
                                   uint32_t chunk_count)
{
    struct buffer *trajectories = &builder->arrays[SHARED_TRAJECTORIES];
    struct buffer *bytes = &builder->arrays[SHARED_BYTES];
    const struct shared_trajectory *known = (const void *)trajectories->data;
    uint32_t count = (uint32_t)(trajectories->size / sizeof *known);
    uint32_t oldest =
        count > SHARED_TRAJECTORIES_LOOKED_AT ? count - SHARED_TRAJECTORIES_LOOKED_AT : 0;
    for (uint32_t i = count; i-- > oldest;)
        if (known[i].size == trajectory.size && known[i].chunk_count == chunk_count &&
            memcmp(bytes->data + known[i].at, trajectory.data, trajectory.size) == 0)
            return i;
    struct shared_trajectory more = {
        .at = (uint32_t)bytes->size, .size = (uint32_t)trajectory.size, .chunk_count = chunk_count};
    buffer_append(bytes, trajectory);
    buffer_append(trajectories, span_of(&more, sizeof more));
    return count;
}

trp_status shared_samples_encode(const struct shared_builder *builder, uint32_t flags,
                                 uint64_t round, trp_message **message)
{
    struct shared_header header = {.magic = SHARED_MAGIC, .flags = flags, .round = round};
    trp_bytes pieces[1 + SHARED_ARRAYS] = {span_of(&header, sizeof header)};
    if (builder->arrays[SHARED_BYTES].size > UINT32_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "samples of %zu bytes in one message",
                        builder->arrays[SHARED_BYTES].size);
    for (size_t i = 0; i < SHARED_ARRAYS; i++) {
        pieces[1 + i] = buffer_bytes(&builder->arrays[i]);
        header.counts[i] = (uint32_t)(pieces[1 + i].size / element_bytes[i]);
    }
    return message_join(pieces, 1 + SHARED_ARRAYS, message);
}

/* ---- reading samples --------------------------------------------------------------------- */

trp_status shared_samples_decode(trp_bytes bytes, struct shared_samples *samples)
{
    struct shared_header *header = &samples->header;
    if (bytes.size < sizeof *header)
        return trp_fail(TRP_INVALID_ARGUMENT, "SampleShared: an answer of %zu bytes", bytes.size);
    memcpy(header, bytes.data, sizeof *header);
    uint64_t size = sizeof *header;
    for (size_t i = 0; i < SHARED_ARRAYS; i++) {
        samples->arrays[i] = bytes.data + (size < bytes.size ? size : bytes.size);
        size += (uint64_t)header->counts[i] * element_bytes[i];
    }
    if (header->magic != SHARED_MAGIC || size != bytes.size)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "SampleShared: an answer of %zu bytes that should have %llu", bytes.size,
                        (unsigned long long)size);
    return TRP_OK;
}

static trp_bytes samples_bytes(const struct shared_samples *samples)
{
    return (trp_bytes){samples->arrays[SHARED_BYTES], samples->header.counts[SHARED_BYTES]};
}

bool shared_samples_trajectory(const struct shared_samples *samples, uint32_t index,
                               trp_bytes *trajectory, uint32_t *chunk_count)
{
    struct shared_trajectory at;
    trp_bytes bytes = samples_bytes(samples);
    memcpy(&at, samples->arrays[SHARED_TRAJECTORIES] + index * sizeof at, sizeof at);
    if (at.at > bytes.size || at.size > bytes.size - at.at)
        return false;
    *trajectory = (trp_bytes){bytes.data + at.at, at.size};
    *chunk_count = at.chunk_count;
    return true;
}

void shared_samples_entry(const struct shared_samples *samples, uint32_t index,
                          struct shared_entry *entry)
{
    memcpy(entry, samples->arrays[SHARED_ENTRIES] + index * sizeof *entry, sizeof *entry);
}

bool shared_samples_chunk(const struct shared_samples *samples, uint64_t index,
                          uint64_t piece_bytes, struct shared_chunk_view *chunk)
{
    struct shared_chunk at;
    trp_bytes bytes = samples_bytes(samples);
    uint32_t pages = samples->header.counts[SHARED_PAGES];
    if (index >= samples->header.counts[SHARED_CHUNKS])
        return false;
    memcpy(&at, samples->arrays[SHARED_CHUNKS] + index * sizeof at, sizeof at);
    uint64_t paged = at.pages * piece_bytes, size = at.size + (at.unchecked ? sizeof(uint32_t) : 0);
    uint64_t rest = paged < size ? size - paged : 0;
    if (paged > size && paged - size >= piece_bytes)
        return false;
    if (at.page_first > pages || at.pages > pages - at.page_first)
        return false;
    if (at.bytes_at > bytes.size || rest > bytes.size - at.bytes_at)
        return false;
    chunk->size = at.size;
    chunk->page_count = at.pages;
    chunk->sum_bytes = (uint32_t)(size - at.size);
    chunk->pages = samples->arrays[SHARED_PAGES] + (size_t)at.page_first * sizeof(uint64_t);
    chunk->rest = (trp_bytes){bytes.data + at.bytes_at, rest};
    return true;
}
