#include "dogwild_stream.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/finite.h"

#define STREAM_MAGIC UINT64_C(0x33646c6977676f64) /* "dogwild3" */

/* ---- numbers --------------------------------------------------------------------------------- */

static size_t pairs_of(const struct stream_chunk *chunk)
{
    return (chunk->count + 1) / 2;
}

/* A learner that leaves blocks without a gradient alone sees by the count that it has to load. */
static void count_change(const struct stream_chunk *chunk)
{
    if (chunk->changes)
        atomic_fetch_add_explicit(chunk->changes, 1, memory_order_release);
}

/* What is in the chunk moves by `to` - `from`; a number that is `from` becomes `to`. */
static void move_chunk(const struct stream_chunk *chunk, const float *from, const float *to)
{
    float after[DOGWILD_NUMBERS];
    memcpy(after, to, 2 * pairs_of(chunk) * sizeof *after);
    if (memcmp(from, to, 2 * pairs_of(chunk) * sizeof *to) == 0)
        return;
    add_block_step(chunk->values, from, after, pairs_of(chunk));
    count_change(chunk);
}

static void load_base(const struct stream_chunk *chunk)
{
    load_shared(chunk->values, chunk->base, 2 * pairs_of(chunk));
}

/* ---- life ------------------------------------------------------------------------------------ */

void stream_create(struct stream *stream, const struct stream_chunk *chunks, size_t count,
                   uint64_t layout, _Atomic uint64_t *steps)
{
    *stream = (struct stream){.magic = STREAM_MAGIC ^ layout,
                              .chunks = xmemdup(chunks, count * sizeof *chunks),
                              .chunk_count = count,
                              .next = count,
                              .steps = steps};
    for (size_t i = 0; i < count; i++)
        stream->chunks[i].base = xcalloc(2 * pairs_of(&chunks[i]), sizeof(float));
}

void stream_compress(struct stream *stream, const struct compress_options *options)
{
    stream->compress = *options;
    stream->magic = compress_hash(stream->magic, options);
}

static void destroy_peers(struct stream *stream)
{
    for (uint32_t i = 0; stream->peers && i < stream->size; i++)
        free(stream->peers[i].sequences);
    free(stream->peers);
    stream->peers = NULL;
}

void stream_destroy(struct stream *stream)
{
    destroy_peers(stream);
    for (size_t i = 0; i < stream->chunk_count; i++)
        free(stream->chunks[i].base);
    free(stream->chunks);
    *stream = (struct stream){0};
}

/* Of rank `rank` on, the first that may know. */
static void stream_ask_rank(struct stream *stream, uint32_t rank)
{
    stream->followed = rank == stream->rank && !stream->knows ? rank + 1 : rank;
    for (uint32_t i = 0; stream_is_followed(stream) && i < stream->size; i++)
        if (!stream->peers[i].sequences)
            stream->peers[i].sequences = xcalloc(stream->chunk_count, sizeof(uint64_t));
}

void stream_begin(struct stream *stream, const struct stream_place *place)
{
    bool worked = !stream_is_followed(stream) && !place->fresh;
    destroy_peers(stream);
    stream->generation = place->generation;
    stream->nonce = place->nonce;
    stream->rank = place->rank;
    stream->size = place->size;
    stream->knows = place->knows;
    stream->misses = false;
    stream->peers = xcalloc(stream->size, sizeof *stream->peers);
    for (size_t i = 0; i < stream->chunk_count; i++) {
        struct stream_chunk *chunk = &stream->chunks[i];
        chunk->waits = 0;
        chunk->answered = false;
        if (!worked)
            load_base(chunk); /* it has no steps that others do not know */
    }
    stream->next = stream->chunk_count;
    stream->awaited = 0;
    stream->own_steps = 0;
    stream_ask_rank(stream, 0);
}

void stream_note_step(struct stream *stream, uint64_t steps)
{
    stream->own_steps += steps;
    stream->beat++;
    atomic_fetch_add(stream->steps, steps);
}

bool stream_has_all(const struct stream *stream)
{
    for (size_t i = 0; i < stream->chunk_count && !stream_is_followed(stream); i++)
        if (!stream->chunks[i].answered)
            return false;
    return true;
}

/* ---- a worker -------------------------------------------------------------------------------- */

void stream_begin_pass(struct stream *stream)
{
    for (size_t i = 0; i < stream->chunk_count; i++) {
        struct stream_chunk *chunk = &stream->chunks[i];
        if (chunk->waits == 0 || chunk->waits++ <= DOGWILD_PATIENCE)
            continue;
        chunk->waits = 0;
        stream->awaited--;
        stream->counters.unanswered++;
    }
    if (stream->next == stream->chunk_count)
        stream->next = 0;
}

/* Numbers of a message on the wire, or words of their code. */
static size_t message_words(const struct stream *stream, const struct stream_message *message)
{
    bool coded = stream->compress.kind != COMPRESS_NONE && message->kind != STREAM_ANSWER &&
                 !stream->chunks[message->chunk].once;
    size_t words =
        coded ? compress_loose_words(&stream->compress, message->sequence - 1, message->count)
              : message->count;
    return words < message->count ? words : message->count;
}

static bool has_code(const struct stream *stream, const struct stream_message *message)
{
    return message_words(stream, message) < message->count;
}

/* False: they are no code, or not finite. */
static bool read_numbers(const struct stream *stream, const struct stream_message *message,
                         float numbers[DOGWILD_NUMBERS])
{
    uint32_t words[DOGWILD_NUMBERS];
    if (!has_code(stream, message)) {
        memcpy(numbers, message->numbers, message->count * sizeof *numbers);
        return floats_are_finite(numbers, message->count);
    }
    memcpy(words, message->numbers, sizeof words);
    return compress_loose_decode(&stream->compress, words, message_words(stream, message), numbers,
                                 message->count) == TRP_OK;
}

/* No other delta of the learners has it: what is rounded at random is never rounded alike twice. */
static uint64_t delta_key(const struct stream *stream, const struct stream_message *message)
{
    return (message->sequence * stream->chunk_count + message->chunk) * stream->size + stream->rank;
}

/* What came of the steps since b, and what others make of it; b moves by that. */
static void put_delta(const struct stream *stream, const struct stream_chunk *chunk,
                      const float *now, struct stream_message *message)
{
    float delta[DOGWILD_NUMBERS];
    uint32_t words[2 * DOGWILD_NUMBERS];
    uint64_t key = delta_key(stream, message);
    for (size_t i = 0; i < chunk->count; i++)
        delta[i] = now[i] - chunk->base[i];
    if (!has_code(stream, message)) {
        memcpy(message->numbers, delta, chunk->count * sizeof *delta);
        memcpy(chunk->base, now, 2 * pairs_of(chunk) * sizeof *now);
        return;
    }
    compress_loose(&stream->compress, message->sequence - 1, key, delta, chunk->count, words);
    memcpy(message->numbers, words, message_words(stream, message) * sizeof *words);
    if (!read_numbers(stream, message, delta))
        return; /* whoever gets it does not take it */
    for (size_t i = 0; i < chunk->count; i++)
        chunk->base[i] += delta[i];
}

static size_t stream_bytes(struct stream *stream, struct stream_message *message)
{
    size_t bytes =
        offsetof(struct stream_message, numbers) + message_words(stream, message) * sizeof(float);
    message->magic = stream->magic;
    message->generation = stream->generation;
    message->nonce = stream->nonce;
    message->rank = stream->rank;
    message->beat = stream->beat;
    message->misses = stream->misses;
    stream->counters.bytes += bytes;
    return bytes;
}

size_t stream_ask(struct stream *stream, struct stream_message *message)
{
    if (stream_is_followed(stream) || stream_is_lost(stream) || stream->awaited == DOGWILD_WINDOW)
        return 0;
    while (stream->next < stream->chunk_count) {
        struct stream_chunk *chunk = &stream->chunks[stream->next++];
        if (chunk->waits > 0 || (chunk->once && chunk->answered))
            continue;
        float now[DOGWILD_NUMBERS];
        load_shared(chunk->values, now, 2 * pairs_of(chunk));
        *message = (struct stream_message){.kind = STREAM_DELTA,
                                           .count = (uint32_t)chunk->count,
                                           .chunk = (uint64_t)(chunk - stream->chunks),
                                           .sequence = ++chunk->sequence,
                                           .steps = stream->own_steps};
        put_delta(stream, chunk, now, message);
        chunk->waits = 1;
        stream->awaited++;
        stream->counters.sent++;
        return stream_bytes(stream, message);
    }
    return 0;
}

/* It is to the last delta of its chunk. */
static bool is_awaited(const struct stream *stream, const struct stream_message *message)
{
    const struct stream_chunk *chunk = &stream->chunks[message->chunk];
    return chunk->waits > 0 && message->sequence == chunk->sequence;
}

static void take_stream_answer(struct stream *stream, const struct stream_message *message,
                               const float *numbers)
{
    struct stream_chunk *chunk = &stream->chunks[message->chunk];
    uint64_t steps = atomic_load(stream->steps);
    stream->misses |= message->rank == stream->followed && message->misses != 0;
    if (message->rank != stream->followed || !is_awaited(stream, message)) {
        stream->counters.old++;
        return;
    }
    float values[DOGWILD_NUMBERS] = {0};
    memcpy(values, numbers, chunk->count * sizeof *values);
    move_chunk(chunk, chunk->base, values);
    memcpy(chunk->base, values, 2 * pairs_of(chunk) * sizeof *values);
    chunk->waits = 0;
    chunk->answered = true;
    stream->awaited--;
    stream->counters.answers++;
    while (steps < message->steps &&
           !atomic_compare_exchange_weak(stream->steps, &steps, message->steps))
        ;
}

/* The delta is what has not been sent yet again. */
static void take_refusal(struct stream *stream, const struct stream_message *message,
                         const float *numbers)
{
    struct stream_chunk *chunk = &stream->chunks[message->chunk];
    bool awaited = is_awaited(stream, message);
    for (size_t i = 0; awaited && i < chunk->count; i++)
        chunk->base[i] -= numbers[i];
    if (awaited) {
        chunk->waits = 0;
        stream->awaited--;
        stream->counters.refused++;
    }
    if (message->rank == stream->followed)
        stream_ask_rank(stream, stream->followed + 1);
}

/* ---- who is followed ------------------------------------------------------------------------- */

/* Its sender asks the next rank. */
static size_t refuse_delta(struct stream *stream, const struct stream_message *message,
                           struct stream_message *answer)
{
    *answer = *message;
    answer->kind = STREAM_REFUSAL;
    return stream_bytes(stream, answer);
}

static size_t take_delta(struct stream *stream, const struct stream_message *message,
                         const float *numbers, struct stream_message *answer)
{
    struct stream_chunk *chunk = &stream->chunks[message->chunk];
    struct stream_peer *peer = &stream->peers[message->rank];
    float from[DOGWILD_NUMBERS], to[DOGWILD_NUMBERS] = {0};
    if (message->sequence <= peer->sequences[message->chunk]) {
        stream->counters.old++;
        return 0;
    }
    load_shared(chunk->values, from, 2 * pairs_of(chunk));
    for (size_t i = 0; i < chunk->count; i++)
        to[i] = from[i] + numbers[i];
    if (!chunk->once &&
        !floats_are_finite(to, chunk->count)) { /* it would be everybody's for ever */
        stream->counters.strange++;
        return 0;
    }
    peer->sequences[message->chunk] = message->sequence;
    if (!chunk->once)
        move_chunk(chunk, from, to);
    if (message->steps > peer->steps) {
        atomic_fetch_add(stream->steps, message->steps - peer->steps);
        peer->steps = message->steps;
    }
    stream->counters.taken++;
    *answer = (struct stream_message){.kind = STREAM_ANSWER,
                                      .count = message->count,
                                      .chunk = message->chunk,
                                      .sequence = message->sequence,
                                      .steps = atomic_load(stream->steps)};
    load_shared(chunk->values, to, 2 * pairs_of(chunk));
    memcpy(answer->numbers, to, chunk->count * sizeof *to);
    return stream_bytes(stream, answer);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Whether it is another one's message of this generation. */
static bool is_of_stream(const struct stream *stream, const struct stream_message *message,
                         size_t size)
{
    const size_t head = offsetof(struct stream_message, numbers);
    if (size < head || message->magic != stream->magic || message->nonce != stream->nonce ||
        message->generation != stream->generation || message->rank >= stream->size ||
        message->rank == stream->rank || message->kind > STREAM_REFUSAL ||
        message->chunk >= stream->chunk_count)
        return false;
    return message->count == stream->chunks[message->chunk].count &&
           size == head + message_words(stream, message) * sizeof(float);
}

size_t stream_take(struct stream *stream, const void *bytes, size_t size,
                   struct stream_message *answer)
{
    struct stream_message message = {0};
    float numbers[DOGWILD_NUMBERS];
    memcpy(&message, bytes, size < sizeof message ? size : sizeof message);
    if (!is_of_stream(stream, &message, size) || !read_numbers(stream, &message, numbers)) {
        stream->counters.strange++;
        return 0;
    }
    stream->peers[message.rank].beat = message.beat;
    if (message.kind == STREAM_ANSWER)
        take_stream_answer(stream, &message, numbers);
    if (message.kind == STREAM_REFUSAL)
        take_refusal(stream, &message, numbers);
    if (message.kind != STREAM_DELTA)
        return 0;
    if (!stream->knows || stream->followed > stream->rank)
        return refuse_delta(stream, &message, answer);
    if (!stream_is_followed(stream))
        stream_ask_rank(stream, stream->rank); /* all before it have refused */
    return take_delta(stream, &message, numbers, answer);
}
