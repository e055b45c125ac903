/* Streams of Dogwild on a scripted network, and a reference in double that replays what happened.
 */
#ifndef TRP_TESTS_LEARNER_WEB_H
#define TRP_TESTS_LEARNER_WEB_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "learner/modes/dogwild_stream.h"
#include "tests/learner/coded.h"
#include "tests/learner/scripted.h"

enum {
    PEERS = 4,
    NUMBERS_HERE = 2 * DOGWILD_NUMBERS + 7,
    CHUNKS = 3,
    MESSAGES_MAX = 8192,
    LAYOUT = 5
};

/* ---- streams of a scripted network -------------------------------------------------------------
 */

struct web {
    struct scripted *net;
    struct stream streams[PEERS];
    shared_pair pairs[PEERS][NUMBERS_HERE / 2 + 1];
    _Atomic uint64_t steps[PEERS];
    uint64_t acts[PEERS];
    size_t numbers;
    /* What a learner's step adds to number i; NULL: it rests. */
    double (*step)(struct web *web, uint32_t self, size_t i);
    bool fresh[PEERS];                /* it takes no step before it has all */
    struct compress_options compress; /* of deltas */
    trp_rng noise;
};

static inline void enter(struct stream *stream, uint64_t generation, uint32_t rank, uint32_t size)
{
    stream_begin(stream, &(struct stream_place){.generation = generation,
                                                .nonce = 76 + generation,
                                                .rank = rank,
                                                .size = size,
                                                .knows = true});
}

static inline float number_of(const struct web *web, uint32_t self, size_t i)
{
    float numbers[NUMBERS_HERE + 1];
    load_shared(web->pairs[self], numbers, web->numbers);
    return numbers[i];
}

static inline void step_of(struct web *web, uint32_t self)
{
    float numbers[NUMBERS_HERE];
    load_shared(web->pairs[self], numbers, web->numbers);
    for (size_t i = 0; i < web->numbers; i++)
        numbers[i] += (float)web->step(web, self, i);
    put_shared(web->pairs[self], numbers, web->numbers);
    stream_note_step(&web->streams[self], 1);
    web->acts[self]++;
}

static inline void web_act(void *context, uint32_t self)
{
    struct web *web = context;
    struct stream_message message;
    size_t bytes;
    if (web->step && (!web->fresh[self] || stream_has_all(&web->streams[self])))
        step_of(web, self);
    stream_begin_pass(&web->streams[self]);
    while ((bytes = stream_ask(&web->streams[self], &message)) > 0)
        scripted_send(web->net, self, web->streams[self].followed, &message, bytes);
}

static inline void web_hear(void *context, uint32_t self, uint32_t from, const void *bytes,
                            size_t size)
{
    struct web *web = context;
    struct stream_message answer;
    size_t answer_bytes = stream_take(&web->streams[self], bytes, size, &answer);
    if (answer_bytes > 0)
        scripted_send(web->net, self, from, &answer, answer_bytes);
}

/* Each begins with numbers of its own. */
static inline void web_begin_as(struct web *web, size_t numbers,
                                const struct compress_options *compress)
{
    static const struct scripted_impl impl = {.act = web_act, .hear = web_hear};
    *web = (struct web){.numbers = numbers, .compress = *compress};
    web->net = scripted_create(PEERS, &impl, web);
    for (uint32_t self = 0; self < PEERS; self++) {
        struct stream_chunk chunks[CHUNKS];
        size_t count = 0;
        float first[NUMBERS_HERE];
        for (size_t at = 0; at < numbers; at += DOGWILD_NUMBERS)
            chunks[count++] = (struct stream_chunk){
                .values = web->pairs[self] + at / 2,
                .count = numbers - at < DOGWILD_NUMBERS ? numbers - at : DOGWILD_NUMBERS};
        for (size_t i = 0; i < numbers; i++)
            first[i] = (float)(i % 13) - 5 * (float)self;
        put_shared(web->pairs[self], first, numbers);
        stream_create(&web->streams[self], chunks, count, LAYOUT, &web->steps[self]);
        if (compress->kind != COMPRESS_NONE)
            stream_compress(&web->streams[self], compress);
        enter(&web->streams[self], 1, self, PEERS);
    }
}

static inline void web_begin(struct web *web, size_t numbers)
{
    web_begin_as(web, numbers, &(struct compress_options){0});
}

static inline void web_end(struct web *web)
{
    for (uint32_t self = 0; self < PEERS; self++)
        stream_destroy(&web->streams[self]);
    scripted_destroy(web->net);
}

static inline double integer_step(struct web *web, uint32_t self, size_t i)
{
    return (double)((web->acts[self] * 7 + self * 3 + i) % 9) - 4;
}

/* Of more bits than codes have. */
static inline double long_step(struct web *web, uint32_t self, size_t i)
{
    return 977 * integer_step(web, self, i);
}

static inline void assert_all_equal(const struct web *web)
{
    for (uint32_t self = 1; self < PEERS; self++)
        for (size_t i = 0; i < web->numbers; i++)
            assert_true(number_of(web, self, i) == number_of(web, 0, i));
}

/* ---- the reference --------------------------------------------------------------------------- */

enum { FEW = 7 }; /* numbers: one chunk */

struct told {
    bool answers;
    uint64_t sequence;
    double numbers[FEW];
};

/* By the rule, one event after the other, in double. */
struct reference {
    double w[PEERS][FEW], b[PEERS][FEW];
    uint64_t sequence[PEERS], taken[PEERS], acts[PEERS];
    uint32_t waits[PEERS];
    size_t sent[PEERS][PEERS];
    struct told *told[PEERS][PEERS];
};

static inline void tell(struct reference *r, uint32_t from, uint32_t to, struct told told)
{
    assert_true(r->sent[from][to] < MESSAGES_MAX);
    r->told[from][to][r->sent[from][to]++] = told;
}

static inline void reference_acts(struct reference *r, struct web *web, uint32_t self)
{
    struct told told = {0};
    struct web at = {.acts = {0}};
    double deltas[FEW];
    at.acts[self] = r->acts[self]++;
    for (size_t i = 0; i < FEW; i++)
        r->w[self][i] += web->step(&at, self, i);
    if (self == 0)
        return;
    if (r->waits[self] > 0 && r->waits[self]++ > DOGWILD_PATIENCE)
        r->waits[self] = 0;
    if (r->waits[self] > 0)
        return;
    for (size_t i = 0; i < FEW; i++)
        deltas[i] = r->w[self][i] - r->b[self][i];
    coded_numbers(&web->compress, deltas, NULL, FEW, told.numbers);
    for (size_t i = 0; i < FEW; i++)
        r->b[self][i] += told.numbers[i];
    told.sequence = ++r->sequence[self];
    r->waits[self] = 1;
    tell(r, self, 0, told);
}

static inline void reference_hears(struct reference *r, uint32_t from, uint32_t to,
                                   uint64_t message)
{
    struct told told = r->told[from][to][message];
    if (told.answers) {
        if (r->waits[to] == 0 || told.sequence != r->sequence[to])
            return;
        for (size_t i = 0; i < FEW; i++) {
            r->w[to][i] += told.numbers[i] - r->b[to][i];
            r->b[to][i] = told.numbers[i];
        }
        r->waits[to] = 0;
        return;
    }
    if (told.sequence <= r->taken[from])
        return;
    r->taken[from] = told.sequence;
    for (size_t i = 0; i < FEW; i++)
        r->w[0][i] += told.numbers[i];
    told.answers = true;
    memcpy(told.numbers, r->w[0], sizeof told.numbers);
    tell(r, to, from, told);
}

static inline struct reference *replay_web(struct web *web)
{
    struct reference *r = xcalloc(1, sizeof *r);
    size_t count;
    const struct scripted_event *events = scripted_events(web->net, &count);
    for (uint32_t i = 0; i < PEERS; i++)
        for (uint32_t k = 0; k < PEERS; k++)
            r->told[i][k] = xcalloc(MESSAGES_MAX, sizeof **r->told[i]);
    for (uint32_t self = 0; self < PEERS; self++)
        for (size_t i = 0; i < FEW; i++)
            r->w[self][i] = r->b[self][i] = (double)(i % 13) - 5 * (double)self;
    for (size_t n = 0; n < count; n++)
        if (events[n].kind == SCRIPTED_ACTS)
            reference_acts(r, web, events[n].from);
        else if (events[n].kind == SCRIPTED_ARRIVES)
            reference_hears(r, events[n].from, events[n].to, events[n].message);
    return r;
}

static inline void reference_free(struct reference *r)
{
    for (uint32_t i = 0; i < PEERS; i++)
        for (uint32_t k = 0; k < PEERS; k++)
            free(r->told[i][k]);
    free(r);
}

static inline void assert_as_reference(struct web *web)
{
    struct reference *r = replay_web(web);
    for (uint32_t self = 0; self < PEERS; self++)
        for (size_t i = 0; i < FEW; i++)
            assert_true((double)number_of(web, self, i) == r->w[self][i]);
    reference_free(r);
}

static const struct compress_options codes[] = {{.kind = COMPRESS_BF16},
                                                {.kind = COMPRESS_F16},
                                                {.kind = COMPRESS_TOP_K, .ratio = 0.3},
                                                {.kind = COMPRESS_ONE_BIT},
                                                {.kind = COMPRESS_QSGD, .bits = 6}};
enum { EXACT_CODES = 3, CODES = sizeof codes / sizeof *codes };

/* ---- a loss ---------------------------------------------------------------------------------- */

/* SGD on half the square of the distance to i % 5, with noise. */
static inline double falls(struct web *web, uint32_t self, size_t i)
{
    double w = (double)number_of(web, self, i);
    return -0.05 * (w - (double)(i % 5) + 0.5 * trp_rng_normal(&web->noise));
}

static inline double loss_with(uint32_t lost, const struct compress_options *compress)
{
    const struct scripted_odds odds = {.acts = 40, .lost = lost, .twice = 10, .ahead = 30};
    struct web web;
    trp_rng rng;
    double loss = 0;
    trp_rng_init(&rng, 8, lost);
    web_begin_as(&web, FEW, compress);
    trp_rng_init(&web.noise, 9, 0);
    web.step = falls;
    for (size_t n = 0; n < 5000; n++)
        scripted_draw(web.net, &rng, &odds);
    for (size_t i = 0; i < FEW; i++)
        loss += pow((double)number_of(&web, 0, i) - (double)(i % 5), 2) / 2 / FEW;
    web_end(&web);
    return loss;
}

#endif
