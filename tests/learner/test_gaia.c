/* Gaia between sites: over a network that does as a script says, beside a reference in double that
 * replays the same script. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/rng.h>
#include <troupe/status.h>
#include "core/alloc.h"
#include "learner/modes/gaia_rule.h"
#include "tests/learner/coded.h"
#include "tests/learner/scripted.h"

enum { SITES = 3, FEW = 9, MESSAGES_MAX = 4096 };

/* ---- sites of a scripted network ---------------------------------------------------------------
 */

struct letter {
    bool bars; /* it has no news, but says that they are on their way */
    uint64_t clock;
    uint32_t count, words[2 * FEW + 4]; /* that are packed */
};

struct world {
    struct scripted *net;
    struct gaia_rule rules[SITES];
    float values[SITES][FEW];
    uint64_t held, letters;               /* acts in which a site had to wait; sent */
    struct compress_options compress;     /* of what is sent */
    double scale;                         /* of moves; 0: 1 */
    bool bars;                            /* who is late raises the barrier */
    uint64_t on_their_way[SITES], raised; /* letters of each; barriers */
    uint64_t barred[SITES][SITES];        /* by whom: clocks that it has to have heard */
};

/* Thirds of it are whole. */
static double move_at(uint32_t site, uint64_t clock, size_t i)
{
    return 3 * ((double)((clock * 5 + site * 3 + i * 7) % 11) - 5);
}

static double move_in(const struct world *world, uint32_t site, uint64_t clock, size_t i)
{
    return move_at(site, clock, i) * (world->scale > 0 ? world->scale : 1);
}

static void world_act(void *context, uint32_t self)
{
    struct world *world = context;
    struct gaia_rule *rule = &world->rules[self];
    if (!gaia_may_go_on(rule)) {
        world->held++;
        return;
    }
    for (uint32_t other = 0; other < SITES; other++)
        assert_true(rule->heard[other] >= world->barred[self][other]);
    struct letter letter = {.clock = rule->clock, .bars = true};
    bool late = world->bars && world->on_their_way[self] > 0;
    for (uint32_t to = 0; late && to < SITES; to++)
        if (to != self)
            scripted_send(world->net, self, to, &letter, sizeof letter);
    world->raised += late;
    letter.bars = false;
    for (size_t i = 0; i < FEW; i++)
        world->values[self][i] += (float)move_in(world, self, rule->clock, i);
    const struct gaia_news *news;
    assert_int_equal(gaia_end_clock(rule, world->values[self], &news), TRP_OK);
    letter.count = (uint32_t)news->count;
    assert_true(gaia_words(rule, news->count) <= sizeof letter.words / sizeof *letter.words);
    gaia_pack(rule, news, letter.words);
    for (uint32_t to = 0; to < SITES; to++)
        if (to != self)
            scripted_send(world->net, self, to, &letter, sizeof letter);
    world->letters += SITES - 1;
    world->on_their_way[self] += SITES - 1;
}

static void world_hear(void *context, uint32_t self, uint32_t from, const void *bytes, size_t size)
{
    struct world *world = context;
    struct letter letter;
    assert_int_equal(size, sizeof letter);
    memcpy(&letter, bytes, size);
    if (letter.bars) {
        gaia_raise_barrier(&world->rules[self], from, letter.clock);
        world->barred[self][from] = letter.clock + 1;
        return;
    }
    world->on_their_way[from]--;
    const struct gaia_news *news;
    struct gaia_rule *rule = &world->rules[self];
    assert_int_equal(gaia_unpack(rule, letter.words, letter.count, &news), TRP_OK);
    assert_int_equal(gaia_hear(rule, from, letter.clock, news, world->values[self]), TRP_OK);
}

/* Zeroed, but for how it is. */
static void world_begin_as(struct world *world, double significance, uint32_t slack)
{
    static const struct scripted_impl impl = {.act = world_act, .hear = world_hear};
    world->net = scripted_create(SITES, &impl, world);
    for (uint32_t site = 0; site < SITES; site++) {
        for (size_t i = 0; i < FEW; i++)
            world->values[site][i] = (float)(i * 20);
        gaia_create(&world->rules[site], FEW, significance, slack);
        gaia_compress(&world->rules[site], &world->compress);
        gaia_begin(&world->rules[site], site, SITES, 0, world->values[site]);
    }
}

static void world_begin(struct world *world, double significance, uint32_t slack)
{
    *world = (struct world){.held = 0};
    world_begin_as(world, significance, slack);
}

static void world_end(struct world *world)
{
    for (uint32_t site = 0; site < SITES; site++)
        gaia_destroy(&world->rules[site]);
    scripted_destroy(world->net);
}

/* ---- the reference --------------------------------------------------------------------------- */

struct reference {
    double w[SITES][FEW], unsent[SITES][FEW];
    double (*sent[SITES])[FEW]; /* by clock */
    uint64_t clock[SITES], heard[SITES][SITES];
};

static void reference_acts(struct reference *r, const struct world *world, uint32_t site,
                           double significance, uint32_t slack)
{
    bool matter[FEW];
    uint64_t clock = r->clock[site];
    for (uint32_t other = 0; other < SITES; other++)
        if (other != site && r->heard[site][other] + slack < clock)
            return;
    for (size_t i = 0; i < FEW; i++) {
        double *unsent = &r->unsent[site][i];
        r->w[site][i] += move_in(world, site, clock, i) / SITES;
        *unsent += move_in(world, site, clock, i) / SITES;
        matter[i] = fabs(r->w[site][i]) == 0
                        ? *unsent != 0
                        : fabs(*unsent / r->w[site][i]) > significance / sqrt((double)clock + 1);
    }
    coded_numbers(&world->compress, r->unsent[site], matter, FEW, r->sent[site][clock]);
    for (size_t i = 0; i < FEW; i++)
        r->unsent[site][i] -= r->sent[site][clock][i];
    r->clock[site]++;
}

static void replay_world(struct world *world, struct reference *r, double significance,
                         uint32_t slack)
{
    size_t count;
    const struct scripted_event *events = scripted_events(world->net, &count);
    *r = (struct reference){.clock = {0}};
    for (uint32_t site = 0; site < SITES; site++) {
        r->sent[site] = xcalloc(MESSAGES_MAX, sizeof *r->sent[site]);
        for (size_t i = 0; i < FEW; i++)
            r->w[site][i] = (double)(i * 20);
    }
    for (size_t n = 0; n < count; n++) {
        uint32_t from = events[n].from, to = events[n].to;
        if (events[n].kind == SCRIPTED_ACTS)
            reference_acts(r, world, from, significance, slack);
        for (size_t i = 0; events[n].kind == SCRIPTED_ARRIVES && i < FEW; i++)
            r->w[to][i] += r->sent[from][events[n].message][i];
        r->heard[to][from] += events[n].kind == SCRIPTED_ARRIVES;
    }
}

static void reference_free(struct reference *r)
{
    for (uint32_t site = 0; site < SITES; site++)
        free(r->sent[site]);
}

/* As `world` is, which is played and compared with the reference. */
static void check_sites(struct world *world, double significance, uint32_t slack, uint64_t seed)
{
    const struct scripted_odds odds = {.acts = 50};
    struct reference r;
    trp_rng rng;
    trp_rng_init(&rng, 3, seed);
    world_begin_as(world, significance, slack);
    for (size_t n = 0; n < 600; n++)
        scripted_draw(world->net, &rng, &odds);
    replay_world(world, &r, significance, slack);
    for (uint32_t site = 0; site < SITES; site++) {
        assert_int_equal(world->rules[site].clock, r.clock[site]);
        for (size_t i = 0; i < FEW; i++) {
            assert_true((double)world->values[site][i] == r.w[site][i]);
            assert_true((double)world->rules[site].unsent[i] == r.unsent[site][i]);
        }
    }
    assert_true(world->held > 0);
    reference_free(&r);
    world_end(world);
}

static const double significances[] = {0, 0.05, 0.5, 2, INFINITY};
enum { SIGNIFICANCES = sizeof significances / sizeof *significances };

static void sites_do_as_a_reference_in_double(void **state)
{
    (void)state;
    for (size_t k = 0; k < SIGNIFICANCES; k++)
        for (uint32_t slack = 0; slack < 4; slack++) {
            struct world world = {.held = 0};
            check_sites(&world, significances[k], slack, 10 * k + slack);
        }
}

/* Of more bits than codes have. */
static void sites_that_compress_do_as_a_reference_in_double(void **state)
{
    (void)state;
    const struct compress_options kinds[] = {
        {.kind = COMPRESS_BF16}, {.kind = COMPRESS_F16}, {.kind = COMPRESS_TOP_K, .ratio = 0.3}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t k = 0; k < SIGNIFICANCES; k++) {
            struct world world = {.compress = kinds[i], .scale = 977};
            check_sites(&world, significances[k], 2, 10 * i + k);
        }
}

/* ---- the filter ------------------------------------------------------------------------------ */

/* BSP: after each clock all sites have all moves. */
static void with_no_threshold_all_sites_are_equal_after_each_clock(void **state)
{
    (void)state;
    struct world world;
    double sum[FEW];
    world_begin(&world, 0, 0);
    for (size_t i = 0; i < FEW; i++)
        sum[i] = (double)(i * 20);
    for (uint64_t clock = 0; clock < 30; clock++) {
        scripted_play(world.net, "0 1 2 *");
        for (size_t i = 0; i < FEW; i++) {
            for (uint32_t site = 0; site < SITES; site++)
                sum[i] += move_at(site, clock, i) / SITES;
            for (uint32_t site = 0; site < SITES; site++) {
                assert_true((double)world.values[site][i] == sum[i]);
                assert_true(world.rules[site].unsent[i] == 0);
            }
        }
    }
    world_end(&world);
}

static void with_no_bound_nothing_goes_to_other_sites(void **state)
{
    (void)state;
    struct world world;
    world_begin(&world, INFINITY, 0);
    for (uint64_t clock = 0; clock < 30; clock++)
        scripted_play(world.net, "0 1 2 *");
    for (uint32_t site = 0; site < SITES; site++) {
        assert_int_equal(world.rules[site].counters.sent, 0);
        assert_int_equal(world.rules[site].clock, 30);
        assert_true(world.rules[site].counters.moved > 200);
    }
    world_end(&world);
}

static size_t sent_at(struct gaia_rule *rule, float values[4], const float moves[4])
{
    for (size_t i = 0; i < 4; i++)
        values[i] += 2 * moves[i]; /* of two sites each has a half */
    const struct gaia_news *news;
    assert_int_equal(gaia_end_clock(rule, values, &news), TRP_OK);
    return news->count;
}

/* v = 0.4 / sqrt(t): 0.4, 0.2828, 0.2309, 0.2. */
static void what_matters_falls_with_the_root_of_the_clock(void **state)
{
    static const float still[4] = {0};
    (void)state;
    struct gaia_rule rule;
    float values[4] = {100, -100, 0, 100};
    gaia_create(&rule, 4, 0.4, 0);
    gaia_begin(&rule, 0, 2, 0, values);
    /* 25 of 125 is 0.2, 45 of -145 is 0.31, 1 of 1, 80 of 180 is 0.44. */
    assert_int_equal(sent_at(&rule, values, (const float[4]){25, -45, 1, 80}), 2);
    assert_int_equal(rule.kept[0].places[0], 2); /* it was 0 */
    assert_int_equal(rule.kept[0].places[1], 3);
    assert_true(rule.kept[0].moves[1] == 80);
    assert_int_equal(sent_at(&rule, values, still), 1);
    assert_int_equal(rule.kept[0].places[0], 1);
    assert_true(rule.kept[0].moves[0] == -45);
    assert_int_equal(sent_at(&rule, values, still), 0);
    assert_int_equal(sent_at(&rule, values, still), 0); /* 0.2 is not more than 0.2 */
    assert_int_equal(sent_at(&rule, values, still), 1); /* than 0.1789 it is */
    assert_true(rule.kept[0].moves[0] == 25);
    assert_int_equal(rule.counters.sent, 4);
    assert_int_equal(rule.counters.moved, 4 + 2 + 1 + 1 + 1);
    gaia_begin(&rule, 0, 2, 99, values); /* at step 100 it is 0.04 */
    assert_int_equal(sent_at(&rule, values, (const float[4]){6, 0, 0, 7}), 1);
    gaia_destroy(&rule);
}

static void what_was_sent_and_what_was_not_are_all_moves(void **state)
{
    (void)state;
    struct world world;
    struct reference r;
    const struct scripted_odds odds = {.acts = 50};
    trp_rng rng;
    trp_rng_init(&rng, 4, 0);
    world_begin(&world, 0.5, 2);
    for (size_t n = 0; n < 900; n++)
        scripted_draw(world.net, &rng, &odds);
    replay_world(&world, &r, 0.5, 2);
    for (uint32_t site = 0; site < SITES; site++) {
        const struct gaia_counters *counters = &world.rules[site].counters;
        assert_true(counters->sent > 0 && counters->sent < counters->moved);
        for (size_t i = 0; i < FEW; i++) {
            double moves = 0, sent = 0;
            for (uint64_t clock = 0; clock < r.clock[site]; clock++) {
                moves += move_at(site, clock, i) / SITES;
                sent += r.sent[site][clock][i];
            }
            assert_true(sent + (double)world.rules[site].unsent[i] == moves);
        }
    }
    reference_free(&r);
    world_end(&world);
}

/* Whatever the code, what others make of it is what is not kept, and what is kept is little;
 * nothing is sent twice. Each number of a site has all moves of all sites, but for what is unsent.
 */
static void with_each_code_sites_have_all_that_is_not_unsent(void **state)
{
    (void)state;
    for (enum compression kind = COMPRESS_NONE; kind < COMPRESSIONS; kind++) {
        struct world world = {.compress = {.kind = kind, .ratio = 0.3, .bits = 6}, .scale = 977};
        if (kind == COMPRESS_POWERSGD)
            continue;
        world_begin_as(&world, 0, 0);
        for (uint64_t clock = 0; clock < 40; clock++)
            scripted_play(world.net, "0 1 2 *");
        for (size_t i = 0; i < FEW; i++) {
            double all = (double)(i * 20), moved = 0;
            for (uint32_t site = 0; site < SITES; site++)
                for (uint64_t clock = 0; clock < 40; clock++) {
                    all += move_in(&world, site, clock, i) / SITES;
                    moved += fabs(move_in(&world, site, clock, i)) / SITES;
                }
            for (uint32_t site = 0; site < SITES; site++) {
                double has = (double)world.values[site][i];
                for (uint32_t other = 0; other < SITES; other++)
                    has += other != site ? (double)world.rules[other].unsent[i] : 0;
                assert_true(fabs(has - all) <= 1e-6 * moved);
                assert_true(fabs((double)world.rules[site].unsent[i]) < moved / 4);
            }
        }
        world_end(&world);
    }
}

/* A number that is sent has a place, of one bit where they are many, and its part of a code. */
static void news_have_as_many_words_as_the_formulas_say(void **state)
{
    enum { MANY = 1000, ALL = 32 }; /* words of a bit for each number */
    static const struct {
        struct compress_options compress;
        size_t words; /* of codes of 1000 numbers */
    } rows[] = {{{.kind = COMPRESS_NONE}, 1000},
                {{.kind = COMPRESS_BF16}, 500},
                {{.kind = COMPRESS_F16}, 500},
                {{.kind = COMPRESS_TOP_K}, 1000},
                {{.kind = COMPRESS_ONE_BIT}, 2 + 16 + 2 + 16},
                {{.kind = COMPRESS_QSGD, .bits = 4}, 1 + 64 + 1 + 61}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gaia_rule rule;
        gaia_create(&rule, MANY, 0, 0);
        gaia_compress(&rule, &rows[i].compress);
        assert_int_equal(gaia_words(&rule, MANY), ALL + rows[i].words);
        assert_int_equal(gaia_words(&rule, 0), 0);
        gaia_destroy(&rule);
    }
}

/* ---- the mirror clock --------------------------------------------------------------------------
 */

/* Of two sites one gets nothing from the other: it goes on for exactly `slack` clocks more. */
static void a_site_is_ahead_by_its_slack_and_no_more(void **state)
{
    (void)state;
    for (uint32_t slack = 0; slack < 5; slack++) {
        struct world world;
        world_begin(&world, 0, slack);
        for (uint64_t n = 0; n < 10; n++)
            scripted_play(world.net, "0 1 *");
        /* None has heard of site 2. */
        assert_int_equal(world.rules[0].clock, slack + 1);
        assert_int_equal(world.rules[1].clock, slack + 1);
        assert_int_equal(gaia_awaited_clock(&world.rules[0]), 0);
        scripted_play(world.net, "2 2>0 0 0");
        assert_int_equal(world.rules[0].clock, slack + 2);
        assert_int_equal(world.rules[1].clock, slack + 1);
        world_end(&world);
    }
}

/* ---- the selective barrier ---------------------------------------------------------------------
 */

/* Slack would let it go on for long. */
static void a_barrier_holds_who_hears_of_it_until_the_news_are_there(void **state)
{
    (void)state;
    struct world world;
    world_begin(&world, 0, 5);
    world.bars = true;
    scripted_play(world.net,
                  "0 0"); /* the second clock ends, and the first one's news have not come */
    assert_int_equal(world.raised, 1);
    assert_true(gaia_may_go_on(&world.rules[1]));
    scripted_play(world.net, "0>1#1"); /* the barrier, ahead of the news */
    assert_false(gaia_may_go_on(&world.rules[1]));
    assert_true(gaia_may_go_on(&world.rules[2])); /* it has not heard of it */
    assert_true(gaia_may_go_on(&world.rules[0])); /* it is its own */
    scripted_play(world.net, "1 0>1 1");
    assert_int_equal(world.rules[1].clock, 0);
    assert_int_equal(world.held, 2);
    scripted_play(world.net, "0>1 1");
    assert_int_equal(world.rules[1].clock, 1);
    world_end(&world);
}

/* Nobody goes on past a barrier, and all do in the end. */
static void barriers_in_any_order_hold_up_nobody_for_ever(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const struct scripted_odds odds = {.acts = 30 + 2 * (uint32_t)seed, .ahead = 0};
        struct world world;
        trp_rng rng;
        trp_rng_init(&rng, 9, seed);
        world_begin(&world, 0.05, 4);
        world.bars = true;
        for (size_t n = 0; n < 600; n++)
            scripted_draw(world.net, &rng, &odds);
        assert_true(world.raised > 0);
        uint64_t held = world.held;
        assert_true(held > 0);
        scripted_play(world.net, "* 0 1 2 * 0 1 2 *");
        for (uint32_t site = 0; site < SITES; site++)
            assert_true(gaia_awaited_clock(&world.rules[site]) + 4 >= world.rules[site].clock);
        scripted_play(world.net, "0 1 2 * 0 1 2 * 0 1 2 * 0 1 2 * 0 1 2 *");
        uint64_t least = UINT64_MAX, most = 0;
        for (uint32_t site = 0; site < SITES; site++) {
            uint64_t clock = world.rules[site].clock;
            least = clock < least ? clock : least;
            most = clock > most ? clock : most;
        }
        assert_true(most - least <= 4);
        world_end(&world);
    }
}

static void a_barrier_that_says_nothing_new_is_none(void **state)
{
    (void)state;
    struct gaia_rule rule;
    float values[4] = {0};
    const struct gaia_news nothing = {.count = 0};
    gaia_create(&rule, 4, 0, 3);
    gaia_begin(&rule, 0, 2, 0, values);
    gaia_raise_barrier(&rule, 0, 7); /* its own */
    gaia_raise_barrier(&rule, 2, 7); /* of nobody */
    assert_true(gaia_may_go_on(&rule));
    assert_int_equal(gaia_hear(&rule, 1, 0, &nothing, values), TRP_OK);
    gaia_raise_barrier(&rule, 1, 0); /* these news are there */
    assert_true(gaia_may_go_on(&rule));
    gaia_raise_barrier(&rule, 1, 1);
    gaia_raise_barrier(&rule, 1, 0); /* an older one, late */
    assert_false(gaia_may_go_on(&rule));
    gaia_begin(&rule, 0, 2, 0, values); /* barriers are a generation's */
    assert_true(gaia_may_go_on(&rule));
    gaia_destroy(&rule);
}

static void news_that_are_none_are_refused(void **state)
{
    (void)state;
    struct gaia_rule rule;
    float values[4] = {0}, moves[] = {1, 2, NAN};
    uint32_t places[] = {1, 3, 3};
    gaia_create(&rule, 4, 0, 0);
    gaia_begin(&rule, 0, 2, 0, values);
    struct gaia_news news = {.places = places, .moves = moves, .count = 2};
    assert_int_equal(gaia_hear(&rule, 0, 0, &news, values), TRP_DATA_LOSS); /* itself */
    assert_int_equal(gaia_hear(&rule, 2, 0, &news, values), TRP_DATA_LOSS);
    assert_int_equal(gaia_hear(&rule, 1, 1, &news, values), TRP_DATA_LOSS);
    news.count = 5;
    assert_int_equal(gaia_hear(&rule, 1, 0, &news, values), TRP_DATA_LOSS);
    news.count = 3; /* a place comes twice */
    assert_int_equal(gaia_hear(&rule, 1, 0, &news, values), TRP_DATA_LOSS);
    news.count = 1;
    places[0] = 4;
    assert_int_equal(gaia_hear(&rule, 1, 0, &news, values), TRP_DATA_LOSS);
    news.moves = moves + 2;
    places[0] = 0;
    assert_int_equal(gaia_hear(&rule, 1, 0, &news, values), TRP_DATA_LOSS);
    assert_int_equal(rule.heard[1], 0);
    news.moves = moves;
    assert_int_equal(gaia_hear(&rule, 1, 0, &news, values), TRP_OK);
    assert_int_equal(rule.heard[1], 1);
    assert_true(values[0] == 1);
    gaia_destroy(&rule);
}

/* It would never matter more than itself, and be sent never. */
static void a_move_to_no_number_is_refused_by_its_place_and_step(void **state)
{
    static const struct {
        float before, value;
        const char *words;
    } rows[] = {{1, INFINITY, "number 2 of 4 moves by inf in step 8"},
                {1, -INFINITY, "number 2 of 4 moves by -inf in step 8"},
                {1, NAN, "number 2 of 4 moves by nan in step 8"},
                {INFINITY, INFINITY, "number 2 of 4 moves by nan in step 8"}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct gaia_rule rule;
        const struct gaia_news *news;
        float values[4] = {1, 1, rows[k].before, 1};
        gaia_create(&rule, 4, 0.1, 1);
        gaia_begin(&rule, 0, 2, 7, values);
        values[2] = rows[k].value;
        assert_int_equal(gaia_end_clock(&rule, values, &news), TRP_INTERNAL);
        assert_string_equal(trp_last_error(), rows[k].words);
        gaia_destroy(&rule);
    }
}

/* A norm of numbers that are finite and not one itself. */
static void a_move_beyond_its_code_is_refused(void **state)
{
    enum { MANY = 16 };
    const struct compress_options qsgd = {.kind = COMPRESS_QSGD};
    (void)state;
    struct gaia_rule rule;
    const struct gaia_news *news;
    float values[MANY] = {0};
    gaia_create(&rule, MANY, 0, 0);
    gaia_compress(&rule, &qsgd);
    gaia_begin(&rule, 0, 2, 7, values);
    for (size_t i = 0; i < MANY; i++)
        values[i] = 3e38F;
    assert_int_equal(gaia_end_clock(&rule, values, &news), TRP_INTERNAL);
    assert_non_null(strstr(trp_last_error(), "what it moves by in step 8 is beyond qsgd: "));
    gaia_destroy(&rule);
}

/* Places take a word each, or a bit each of all numbers: what is shorter. */
static void news_are_words_as_long_as_the_formula_says(void **state)
{
    enum { MANY = 100, BITS = 4 };
    (void)state;
    struct gaia_rule rule;
    float values[MANY] = {0};
    gaia_create(&rule, MANY, 0, 0);
    gaia_begin(&rule, 0, 2, 0, values);
    for (size_t count = 0; count <= MANY; count++) {
        uint32_t words[BITS + MANY] = {0};
        const struct gaia_news *news, *came;
        for (size_t i = 0; i < count; i++)
            values[(i * 37 + count) % MANY] += 2 * (float)(i + 1);
        assert_int_equal(gaia_end_clock(&rule, values, &news), TRP_OK);
        assert_int_equal(news->count, count);
        assert_int_equal(gaia_words(&rule, count), count + (count < BITS ? count : BITS));
        gaia_pack(&rule, news, words);
        assert_int_equal(gaia_unpack(&rule, words, count, &came), TRP_OK);
        assert_int_equal(came->count, count);
        assert_memory_equal(came->places, news->places, count * sizeof *came->places);
        assert_memory_equal(came->moves, news->moves, count * sizeof *came->moves);
        if (count <= BITS || count == MANY)
            continue;
        words[0] ^= 1; /* one more or less */
        assert_int_equal(gaia_unpack(&rule, words, count, &came), TRP_DATA_LOSS);
    }
    assert_int_equal(gaia_unpack(&rule, NULL, MANY + 1, &(const struct gaia_news *){NULL}),
                     TRP_DATA_LOSS);
    gaia_destroy(&rule);
}

/* Of what a site says blocks are sized: it is checked before. */
static void a_site_says_no_more_news_than_there_are_numbers(void **state)
{
    enum { NUMBERS_OF_RULE = 4, STRIDE = 2 };
    (void)state;
    struct gaia_rule rule;
    float values[NUMBERS_OF_RULE] = {0};
    uint64_t said[3 * STRIDE] = {1, 9, 4, 9, 3, 9};
    size_t most;
    gaia_create(&rule, NUMBERS_OF_RULE, 0, 0);
    gaia_begin(&rule, 0, 3, 0, values);
    assert_int_equal(gaia_most(&rule, said, STRIDE, &most), TRP_OK);
    assert_int_equal(most, 4);
    static const uint64_t too_many[] = {5, UINT64_C(1) << 61, UINT64_MAX};
    for (size_t i = 0; i < sizeof too_many / sizeof *too_many; i++) {
        said[2 * STRIDE] = too_many[i];
        assert_int_equal(gaia_most(&rule, said, STRIDE, &most), TRP_DATA_LOSS);
        assert_non_null(strstr(trp_last_error(), "site 2 of 3 says that it sends"));
    }
    gaia_destroy(&rule);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sites_do_as_a_reference_in_double),
        cmocka_unit_test(sites_that_compress_do_as_a_reference_in_double),
        cmocka_unit_test(with_each_code_sites_have_all_that_is_not_unsent),
        cmocka_unit_test(news_have_as_many_words_as_the_formulas_say),
        cmocka_unit_test(with_no_threshold_all_sites_are_equal_after_each_clock),
        cmocka_unit_test(with_no_bound_nothing_goes_to_other_sites),
        cmocka_unit_test(what_matters_falls_with_the_root_of_the_clock),
        cmocka_unit_test(what_was_sent_and_what_was_not_are_all_moves),
        cmocka_unit_test(a_site_is_ahead_by_its_slack_and_no_more),
        cmocka_unit_test(a_barrier_holds_who_hears_of_it_until_the_news_are_there),
        cmocka_unit_test(barriers_in_any_order_hold_up_nobody_for_ever),
        cmocka_unit_test(a_barrier_that_says_nothing_new_is_none),
        cmocka_unit_test(news_that_are_none_are_refused),
        cmocka_unit_test(a_move_to_no_number_is_refused_by_its_place_and_step),
        cmocka_unit_test(a_move_beyond_its_code_is_refused),
        cmocka_unit_test(news_are_words_as_long_as_the_formula_says),
        cmocka_unit_test(a_site_says_no_more_news_than_there_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
