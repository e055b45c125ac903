/* Problem: samples have to be in memory before their turn to be sent, or the thread that owns all
 * tables waits for the disk. Design: a turn's draws are a batch: a few large messages, of which a
 * slow client keeps one here. A draw keeps references to its chunks. Chunks that are on the disk
 * only are fetched (disk/fetcher.c) while other streams and the inserts go on; meanwhile the stream
 * may have further turns, up to SAMPLE_AHEAD_BYTES_MAX, so that the disk always has many reads to
 * choose from. Batches leave in the order of their draws. A stream that ends leaves a batch to the
 * fetcher, without the chunks. Guarantee: a batch that is ready was in memory a moment ago. */
#include "sample_stream.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/array.h"
#include "limits.h"

/* ---- drawing ----------------------------------------------------------------------------- */

/* One sample behind the others; its bytes. */
static size_t push_sample(struct sample_stream *stream, struct draws *draws,
                          const struct table_sample *sample, bool rate_limited, uint64_t handed)
{
    const struct engine_table *table = stream->lane->table;
    const struct item *item = sample->item;
    size_t before = draws->trajectories.size, bytes = 0;
    struct drawn *drawn = ARRAY_PUSH(draws->drawn, draws->drawn_count, draws->drawn_capacity);
    *drawn = (struct drawn){.info = {.key = item->key,
                                     .table = {(const uint8_t *)table->name, table->name_size},
                                     .priority = item->priority,
                                     .times_sampled = sample->times_sampled,
                                     .inserted_at_ns = item->inserted_at_ns,
                                     .policy_version = item->policy_version},
                            .draw = {sample->probability, sample->table_size, rate_limited},
                            .chunk_first = draws->chunk_count,
                            .chunk_count = item->trajectory->chunk_count,
                            .handed = handed};
    stream->transport->put_trajectory(item, &draws->trajectories);
    drawn->info.trajectory.size = draws->trajectories.size - before;
    for (uint32_t i = 0; i < drawn->chunk_count; i++) {
        struct chunk *chunk = item->chunks[i];
        chunk_ref(chunk);
        *ARRAY_PUSH(draws->chunks, draws->chunk_count, draws->chunk_capacity) = chunk;
        draws->unknown |= !engine_chunk_prefetch(stream->service->engine, chunk, &draws->fetch);
        bytes += chunk->size;
    }
    return bytes + drawn->info.trajectory.size;
}

/* Up to `count` draws, whose chunks the processor fetches while it goes on drawing: they are
 * anywhere in memory. Their bytes; `*drawn` is how many there were. */
static size_t draw_block(struct sample_stream *stream, struct draws *draws, uint32_t count,
                         bool rate_limited, uint32_t *drawn)
{
    struct table_sample samples[SAMPLE_BLOCK_ITEMS_MAX];
    struct engine_table *table = stream->lane->table;
    uint64_t handed = delivery_end(&stream->delivery);
    size_t bytes = 0;
    uint32_t n =
        engine_sample_many(stream->service->engine, table, count, samples, &stream->delivery);
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(samples[i].item->chunks[0]);
    for (uint32_t i = 0; i < n; i++) {
        handed += samples[i].removed;
        bytes += push_sample(stream, draws, &samples[i], rate_limited, handed);
    }
    *drawn = n;
    return bytes;
}

static void draw_batch(struct sample_stream *stream, struct draws *draws)
{
    bool rate_limited = stream->queued_in != stream->service->group;
    size_t bytes = 0, typical = SAMPLE_BATCH_BYTES_MAX;
    for (uint32_t total = 0, drawn; total < SAMPLE_BATCH_ITEMS_MAX &&
                                    stream->request.remaining > 0 && bytes < SAMPLE_BATCH_BYTES_MAX;
         total += drawn) {
        /* Blocks only of items that the batch has room for, going by those before. */
        size_t count = (SAMPLE_BATCH_BYTES_MAX - bytes) / (typical + 1);
        if (count < 1 || count > SAMPLE_BLOCK_ITEMS_MAX)
            count = count < 1 ? 1 : SAMPLE_BLOCK_ITEMS_MAX;
        if ((int64_t)count > stream->request.remaining)
            count = (size_t)stream->request.remaining;
        size_t more = draw_block(stream, draws, (uint32_t)count, rate_limited, &drawn);
        if (drawn == 0)
            return;
        typical = more / drawn;
        bytes += more;
        stream->request.remaining -= drawn;
    }
}

/* ---- batches ----------------------------------------------------------------------------- */

static void draws_free(struct draws *draws)
{
    buffer_cleanup(&draws->trajectories);
    fetch_cleanup(&draws->fetch);
    free(draws->drawn);
    free(draws->chunks);
    free(draws);
}

static void draws_fetch(struct sample_stream *stream, struct draws *draws)
{
    draws->fetching = draws->fetch.count > 0 && stream->service->fetcher;
    if (!draws->fetching)
        return;
    stream->fetching_bytes += draws->fetch.bytes;
    fetcher_start(stream->service->fetcher, &draws->fetch);
}

/* The disk has said more of where the chunks are. Probes are bounded: pages may be gone again. */
static void draws_probe(struct sample_stream *stream, struct draws *draws)
{
    struct engine *engine = stream->service->engine;
    bool again = draws->unknown && ++draws->probes < SAMPLE_PROBES_MAX;
    fetch_clear(&draws->fetch);
    draws->unknown = false;
    for (uint32_t i = 0; again && i < draws->chunk_count; i++)
        draws->unknown |= !engine_chunk_prefetch(engine, draws->chunks[i], &draws->fetch);
    draws_fetch(stream, draws);
}

void sample_stream_draw(struct sample_stream *stream)
{
    struct draws *draws = stream->spare ? stream->spare : xcalloc(1, sizeof *draws);
    stream->spare = draws->next;
    draws->next = NULL;
    draws->stream = stream;
    if (stream->first)
        stream->last->next = draws;
    else
        stream->first = draws;
    stream->last = draws;
    draw_batch(stream, draws);
    const uint8_t *trajectory = draws->trajectories.data; /* they stay there from here on */
    for (uint32_t i = 0; i < draws->drawn_count; i++) {
        draws->drawn[i].info.trajectory.data = trajectory;
        trajectory += draws->drawn[i].info.trajectory.size;
    }
    draws_fetch(stream, draws);
    draws->cold = draws->fetching;
}

static void draws_unref(struct service *service, struct draws *draws)
{
    for (uint32_t i = draws->chunk_next; i < draws->chunk_count; i++)
        engine_chunk_unref(service->engine, draws->chunks[i]);
    draws->drawn_count = draws->drawn_next = 0;
    draws->chunk_count = draws->chunk_next = 0;
    draws->probes = 0;
    draws->unknown = false;
}

void sample_stream_drop_first(struct sample_stream *stream)
{
    struct draws *draws = stream->first;
    draws_unref(stream->service, draws);
    buffer_clear(&draws->trajectories);
    fetch_clear(&draws->fetch);
    stream->first = draws->next;
    draws->next = stream->spare;
    stream->spare = draws;
}

void sample_stream_drop_draws(struct sample_stream *stream)
{
    for (struct draws *draws = stream->first, *next; draws; draws = next) {
        next = draws->next;
        draws_unref(stream->service, draws);
        draws->stream = NULL;
        if (!draws->fetching)
            draws_free(draws);
    }
    for (struct draws *draws = stream->spare, *next; draws; draws = next) {
        next = draws->next;
        draws_free(draws);
    }
    stream->first = stream->spare = NULL;
}

void service_fetched(void *arg)
{
    struct service *service = arg;
    struct fetch *fetch;
    while (service->fetcher && (fetch = fetcher_take(service->fetcher))) {
        struct draws *draws =
            (struct draws *)(void *)((char *)fetch - offsetof(struct draws, fetch));
        struct sample_stream *stream = draws->stream;
        service->worked = true;
        draws->fetching = false;
        if (!stream) {
            draws_free(draws);
            continue;
        }
        stream->fetching_bytes -= fetch->bytes;
        draws_probe(stream, draws);
        sample_stream_continue(stream);
    }
}
