#include "gaia_rule.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/finite.h"

static struct gaia_news news_create(size_t count)
{
    return (struct gaia_news){.places = xcalloc(count, sizeof(uint32_t)),
                              .moves = xcalloc(count, sizeof(float))};
}

void gaia_create(struct gaia_rule *rule, size_t count, double significance, uint32_t slack)
{
    *rule = (struct gaia_rule){.count = count,
                               .slack = slack,
                               .significance = significance,
                               .before = xcalloc(count, sizeof(float)),
                               .unsent = xcalloc(count, sizeof(float)),
                               .kept = xcalloc(slack + 1, sizeof(struct gaia_news))};
    for (uint32_t i = 0; i <= slack; i++)
        rule->kept[i] = news_create(count);
    rule->unpacked = news_create(count);
}

/* Of top-k the moves travel as they are. */
static bool has_codes(const struct gaia_rule *rule)
{
    return rule->compress.kind != COMPRESS_NONE && rule->compress.kind != COMPRESS_TOP_K;
}

/* Of top-k there are no more words than of all moves and their places. */
void gaia_compress(struct gaia_rule *rule, const struct compress_options *compress)
{
    rule->compress = *compress;
    for (uint32_t i = 0; compress->kind != COMPRESS_NONE && i <= rule->slack; i++)
        rule->kept[i].codes = xcalloc(2 * rule->count + 2, sizeof(uint32_t));
}

void gaia_destroy(struct gaia_rule *rule)
{
    for (uint32_t i = 0; rule->kept && i <= rule->slack; i++) {
        free(rule->kept[i].codes);
        free(rule->kept[i].places);
        free(rule->kept[i].moves);
    }
    free(rule->unpacked.places);
    free(rule->unpacked.moves);
    free(rule->kept);
    free(rule->heard);
    free(rule->barred);
    free(rule->before);
    free(rule->unsent);
    *rule = (struct gaia_rule){0};
}

void gaia_begin(struct gaia_rule *rule, uint32_t site, uint32_t sites, uint64_t steps,
                const float *values)
{
    rule->site = site;
    rule->sites = sites;
    rule->share = 1.0 / sites;
    rule->steps = steps;
    rule->clock = 0;
    free(rule->heard);
    rule->heard = xcalloc(sites, sizeof *rule->heard);
    free(rule->barred);
    rule->barred = xcalloc(sites, sizeof *rule->barred);
    memset(rule->unsent, 0, rule->count * sizeof *rule->unsent);
    if (rule->count > 0)
        memcpy(rule->before, values, rule->count * sizeof *values);
}

/* ---- the filter ------------------------------------------------------------------------------ */

/* Not a quotient: a number may be 0. An infinite threshold times 0 is NaN, of which nothing is
 * more.
 */
static bool matters(double moves, double value, double threshold)
{
    return fabs(moves) > threshold * fabs(value);
}

static size_t code_words(const struct gaia_rule *rule, size_t count)
{
    return has_codes(rule) ? compress_loose_words(&rule->compress, 0, count) : count;
}

/* Those that are chosen of the news, in their order. */
static void choose_news(const struct gaia_rule *rule, struct gaia_news *news)
{
    uint64_t step = rule->steps + rule->clock;
    size_t chosen = compress_loose_words(&rule->compress, step, news->count) / 2;
    compress_loose(&rule->compress, step, 0, news->moves, news->count, news->codes);
    for (size_t i = 0; i < chosen; i++)
        news->places[i] = news->places[news->codes[i]];
    memcpy(news->moves, news->codes + chosen, chosen * sizeof *news->moves);
    news->count = chosen;
}

/* What others make of the codes are the moves. */
static trp_status code_news(const struct gaia_rule *rule, struct gaia_news *news)
{
    uint64_t key = (rule->steps + rule->clock) * rule->sites + rule->site;
    compress_loose(&rule->compress, 0, key, news->moves, news->count, news->codes);
    if (compress_loose_decode(&rule->compress, news->codes, code_words(rule, news->count),
                              news->moves, news->count) == TRP_OK)
        return TRP_OK;
    return trp_fail(TRP_INTERNAL, "what it moves by in step %" PRIu64 " is beyond %s: %s",
                    rule->steps + rule->clock, compress_name(rule->compress.kind),
                    trp_last_error());
}

static trp_status compress_news(const struct gaia_rule *rule, struct gaia_news *news)
{
    if (news->count == 0 || rule->compress.kind == COMPRESS_NONE)
        return TRP_OK;
    if (has_codes(rule))
        return code_news(rule, news);
    choose_news(rule, news);
    return TRP_OK;
}

/* It would matter never, and stay unsent whatever comes. */
static trp_status refuse_move(const struct gaia_rule *rule)
{
    size_t place = 0;
    while (isfinite(rule->unsent[place]))
        place++;
    double unsent = (double)rule->unsent[place];
    return trp_fail(TRP_INTERNAL, "number %zu of %zu moves by %g in step %" PRIu64, place,
                    rule->count, isnan(unsent) ? fabs(unsent) : unsent, rule->steps + rule->clock);
}

trp_status gaia_end_clock(struct gaia_rule *rule, float *values, const struct gaia_news **out)
{
    struct gaia_news *news = &rule->kept[rule->clock % (rule->slack + 1)];
    double threshold = rule->significance / sqrt((double)(rule->steps + ++rule->clock));
    news->count = 0;
    *out = news;
    for (size_t i = 0; i < rule->count; i++) {
        float move = (float)(rule->share * ((double)values[i] - (double)rule->before[i]));
        float unsent = rule->unsent[i] + move;
        rule->unsent[i] = unsent;
        values[i] = rule->sites > 1 ? rule->before[i] + move : values[i];
        rule->before[i] = values[i];
        rule->counters.moved += unsent != 0;
        if (!matters((double)unsent, (double)values[i], threshold))
            continue;
        news->places[news->count] = (uint32_t)i;
        news->moves[news->count++] = unsent;
    }
    if (!floats_are_finite(rule->unsent, rule->count))
        return refuse_move(rule);
    TRP_TRY(compress_news(rule, news));
    for (size_t i = 0; i < news->count; i++)
        rule->unsent[news->places[i]] -= news->moves[i];
    rule->counters.sent += news->count;
    return TRP_OK;
}

const struct gaia_news *gaia_kept(const struct gaia_rule *rule, uint64_t clock)
{
    return &rule->kept[clock % (rule->slack + 1)];
}

/* ---- other sites ----------------------------------------------------------------------------- */

trp_status gaia_hear(struct gaia_rule *rule, uint32_t site, uint64_t clock,
                     const struct gaia_news *news, float *values)
{
    uint64_t next = 0; /* that a place may be */
    if (site >= rule->sites || site == rule->site || clock != rule->heard[site] ||
        news->count > rule->count)
        return trp_fail(TRP_DATA_LOSS,
                        "site %" PRIu32 " of %" PRIu32 " sent %zu numbers of %zu of clock %" PRIu64,
                        site, rule->sites, news->count, rule->count, clock);
    for (size_t i = 0; i < news->count; i++) {
        uint32_t place = news->places[i];
        if (place < next || place >= rule->count || !isfinite(news->moves[i]))
            return trp_fail(TRP_DATA_LOSS, "site %" PRIu32 " sent %g for number %" PRIu32 " of %zu",
                            site, (double)news->moves[i], place, rule->count);
        values[place] += news->moves[i];
        rule->before[place] = values[place]; /* it is no step of this site */
        next = (uint64_t)place + 1;
    }
    rule->heard[site]++;
    return TRP_OK;
}

uint64_t gaia_awaited_clock(const struct gaia_rule *rule)
{
    uint64_t least = rule->clock;
    for (uint32_t site = 0; site < rule->sites; site++)
        if (site != rule->site && rule->heard[site] < least)
            least = rule->heard[site];
    return least;
}

void gaia_raise_barrier(struct gaia_rule *rule, uint32_t site, uint64_t clock)
{
    if (site < rule->sites && site != rule->site && rule->barred[site] <= clock)
        rule->barred[site] = clock + 1;
}

bool gaia_may_go_on(const struct gaia_rule *rule)
{
    for (uint32_t site = 0; site < rule->sites; site++)
        if (rule->heard[site] < rule->barred[site])
            return false;
    return rule->clock - gaia_awaited_clock(rule) <= rule->slack;
}

/* ---- as words -------------------------------------------------------------------------------- */

enum { WORD_BITS = 32 };

static size_t bitmap_words(const struct gaia_rule *rule)
{
    return (rule->count + WORD_BITS - 1) / WORD_BITS;
}

static size_t place_words(const struct gaia_rule *rule, size_t count)
{
    return count < bitmap_words(rule) ? count : bitmap_words(rule);
}

size_t gaia_words(const struct gaia_rule *rule, size_t count)
{
    return place_words(rule, count) + code_words(rule, count);
}

trp_status gaia_most(const struct gaia_rule *rule, const uint64_t *said, size_t stride,
                     size_t *most)
{
    *most = 0;
    for (uint32_t site = 0; site < rule->sites; site++) {
        uint64_t count = said[site * stride];
        if (count > rule->count)
            return trp_fail(TRP_DATA_LOSS,
                            "site %" PRIu32 " of %" PRIu32 " says that it sends %" PRIu64
                            " numbers of %zu",
                            site, rule->sites, count, rule->count);
        *most = count > *most ? (size_t)count : *most;
    }
    return TRP_OK;
}

void gaia_pack(const struct gaia_rule *rule, const struct gaia_news *news, uint32_t *words)
{
    size_t places = place_words(rule, news->count);
    bool in_bits = places < news->count;
    if (news->count == 0)
        return;
    memset(words, 0, places * sizeof *words);
    for (size_t i = 0; i < news->count; i++)
        if (in_bits)
            words[news->places[i] / WORD_BITS] |= UINT32_C(1) << news->places[i] % WORD_BITS;
        else
            words[i] = news->places[i];
    const void *moves = has_codes(rule) ? (const void *)news->codes : news->moves;
    memcpy(words + places, moves, code_words(rule, news->count) * sizeof *words);
}

/* So many bits are set, or at least one more than `count`. */
static size_t places_of_bits(const struct gaia_rule *rule, const uint32_t *words, size_t count,
                             uint32_t *places)
{
    size_t found = 0;
    for (uint32_t i = 0; i < bitmap_words(rule) * WORD_BITS && found <= count; i++)
        if (words[i / WORD_BITS] >> i % WORD_BITS & 1) {
            if (found < count)
                places[found] = i;
            found++;
        }
    return found;
}

trp_status gaia_unpack(struct gaia_rule *rule, const uint32_t *words, size_t count,
                       const struct gaia_news **news)
{
    struct gaia_news *own = &rule->unpacked;
    size_t places = place_words(rule, count), found = count;
    *news = own;
    own->count = count <= rule->count ? count : 0;
    if (own->count > 0 && places < count)
        found = places_of_bits(rule, words, count, own->places);
    else if (own->count > 0)
        memcpy(own->places, words, count * sizeof *words);
    if (own->count > 0 && has_codes(rule) &&
        compress_loose_decode(&rule->compress, words + places, code_words(rule, count), own->moves,
                              count) != TRP_OK)
        return trp_fail(TRP_DATA_LOSS, "numbers that matter: %s", trp_last_error());
    if (own->count > 0 && !has_codes(rule))
        memcpy(own->moves, words + places, count * sizeof *words);
    if (own->count == count && found == count)
        return TRP_OK;
    return trp_fail(TRP_DATA_LOSS, "%zu numbers of %zu came with %zu places", count, rule->count,
                    found);
}
