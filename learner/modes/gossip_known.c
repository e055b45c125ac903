#include "gossip_known.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

void gossip_known_create(struct gossip_known *known, size_t count,
                         const struct compress_options *compress)
{
    *known = (struct gossip_known){.compress = *compress,
                                   .count = count,
                                   .base = xcalloc(count, sizeof(float)),
                                   .decoded = xcalloc(count, sizeof(float))};
}

static void forget_said(struct gossip_known *known)
{
    for (uint32_t i = 0; i < known->size; i++) {
        free(known->said[i]);
        free(known->heard[i]);
    }
    free(known->said);
    free(known->heard);
    known->said = known->heard = NULL;
    known->size = 0;
}

void gossip_known_destroy(struct gossip_known *known)
{
    forget_said(known);
    free(known->base);
    free(known->decoded);
    *known = (struct gossip_known){.count = 0};
}

void gossip_known_begin(struct gossip_known *known, uint32_t size, const float *values)
{
    forget_said(known);
    known->size = size;
    known->said = xcalloc(size, sizeof *known->said);
    known->heard = xcalloc(size, sizeof *known->heard);
    memcpy(known->base, values, known->count * sizeof *values);
}

size_t gossip_known_words(const struct gossip_known *known, uint64_t step)
{
    return compress_loose_words(&known->compress, step, known->count);
}

/* `h` += what came of the words, of which as much as does not overshoot. */
static trp_status take_words(struct gossip_known *known, uint64_t step, const uint32_t *words,
                             float **h)
{
    float part = compress_loose_scale(&known->compress, known->count);
    if (!*h)
        *h = xmemdup(known->base, known->count * sizeof **h);
    TRP_TRY(compress_loose_decode(&known->compress, words, gossip_known_words(known, step),
                                  known->decoded, known->count));
    for (size_t i = 0; i < known->count; i++)
        (*h)[i] += part * known->decoded[i];
    return TRP_OK;
}

trp_status gossip_known_say(struct gossip_known *known, uint32_t distance, uint64_t step,
                            uint64_t key, const float *values, uint32_t *words)
{
    const float *h = known->said[distance] ? known->said[distance] : known->base;
    float *difference = known->decoded;
    for (size_t i = 0; i < known->count; i++)
        difference[i] = values[i] - h[i];
    if (!compress_fits(difference, known->count))
        return trp_fail(TRP_INVALID_ARGUMENT, "a number is not finite, or beyond all codes");
    compress_loose(&known->compress, step, key, difference, known->count, words);
    return take_words(known, step, words, &known->said[distance]);
}

trp_status gossip_known_hear(struct gossip_known *known, uint32_t distance, uint64_t step,
                             const uint32_t *words, float *values)
{
    float half = (float)(compress_loose_share(&known->compress, step, known->count) / 2);
    TRP_TRY(take_words(known, step, words, &known->heard[distance]));
    const float *said = known->said[distance], *heard = known->heard[distance];
    for (size_t i = 0; i < known->count; i++)
        values[i] += half * (heard[i] - said[i]);
    return TRP_OK;
}
