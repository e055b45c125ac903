/* The rules of parameter servers, each under the name of its system: scripts of pushes and reads in
 * an explicit order of delivery, with delays, losses, duplicates and deaths, against references in
 * double that are told what happened (scripted.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/rng.h>
#include "core/alloc.h"
#include "learner/server/limits.h"
#include "learner/server/placement.h"
#include "learner/server/shard.h"
#include "tests/learner/scripted.h"

enum { COUNT = 40, WORKERS = 3 };

static const trp_optimizer plain = {.kind = TRP_SGD, .learning_rate = 0.5};

struct world {
    struct param_shard shard;
    float values[COUNT];
};

static void begin(struct world *world, struct shard_options options)
{
    if (options.workers == 0)
        options.workers = WORKERS;
    if (options.optimizer.learning_rate == 0)
        options.optimizer = plain;
    for (size_t i = 0; i < COUNT; i++)
        world->values[i] = (float)i;
    assert_int_equal(shard_create(&world->shard, &options, world->values, COUNT), TRP_OK);
}

static void end(struct world *world)
{
    shard_destroy(&world->shard);
}

/* The gradient of a worker's push: integers, so that sums of them are exact. */
static float gradient_at(uint32_t worker, uint64_t sequence, size_t i)
{
    return (float)((worker + 1) * (sequence % 7 + 1)) - (float)(i % 5);
}

static const float *gradient_of(uint32_t worker, uint64_t sequence, float grads[COUNT])
{
    for (size_t i = 0; i < COUNT; i++)
        grads[i] = gradient_at(worker, sequence, i);
    return grads;
}

static enum shard_answer push_of(struct param_shard *shard, uint32_t worker, uint64_t sequence,
                                 uint64_t version)
{
    float grads[COUNT];
    const struct shard_range all = {0, COUNT};
    return shard_push(shard, &(struct shard_push){.worker = worker,
                                                  .sequence = sequence,
                                                  .version = version,
                                                  .scale = 1,
                                                  .ranges = &all,
                                                  .range_count = 1,
                                                  .grads = gradient_of(worker, sequence, grads)});
}

/* The next push of a worker, computed on the newest version. */
static void take(struct world *world, uint32_t worker)
{
    struct param_shard *shard = &world->shard;
    assert_int_equal(push_of(shard, worker, shard->workers[worker].clock, shard->version),
                     SHARD_TAKEN);
}

static void assert_values(const struct world *world, const double *expected)
{
    for (size_t i = 0; i < COUNT; i++)
        assert_float_equal(world->values[i], expected[i], 1e-5 + 1e-6 * fabs(expected[i]));
}

static void initial(double values[COUNT])
{
    for (size_t i = 0; i < COUNT; i++)
        values[i] = (double)i;
}

/* ---- workers and a server on a network ---------------------------------------------------------
 */

enum { CREW = 4, SERVER = CREW, SENT_MAX = 2000 };

struct crew_push {
    uint64_t sequence, version;
};

/* The endpoints 0 to 3 are workers, 4 is the server. Whoever acts pushes: the same again, until it
 * was answered. */
struct crew {
    struct world world;
    struct scripted *net;
    struct crew_push next[CREW];
    struct crew_push sent[CREW][SENT_MAX]; /* messages */
};

static void crew_act(void *context, uint32_t self)
{
    struct crew *crew = context;
    uint64_t count = scripted_sent(crew->net, self, SERVER).messages;
    if (self == SERVER)
        return;
    assert_true(count < SENT_MAX);
    crew->sent[self][count] = crew->next[self];
    scripted_send(crew->net, self, SERVER, &crew->next[self], sizeof crew->next[self]);
}

static void crew_hear(void *context, uint32_t self, uint32_t from, const void *bytes, size_t size)
{
    struct crew *crew = context;
    struct crew_push push;
    assert_int_equal(size, sizeof push);
    memcpy(&push, bytes, sizeof push);
    if (self != SERVER && push.sequence == crew->next[self].sequence)
        crew->next[self] = (struct crew_push){push.sequence + 1, push.version};
    if (self != SERVER)
        return;
    struct param_shard *shard = &crew->world.shard;
    push_of(shard, from, push.sequence, push.version);
    push.version = shard->version;
    scripted_send(crew->net, SERVER, from, &push, sizeof push);
}

static void crew_begin(struct crew *crew, struct shard_options options)
{
    static const struct scripted_impl impl = {.act = crew_act, .hear = crew_hear};
    memset(crew, 0, sizeof *crew);
    options.workers = CREW;
    begin(&crew->world, options);
    crew->net = scripted_create(CREW + 1, &impl, crew);
}

static void crew_end(struct crew *crew)
{
    end(&crew->world);
    scripted_destroy(crew->net);
}

/* Everything goes wrong that can, and after that all is answered. */
static void crew_draw(struct crew *crew, uint64_t seed)
{
    static const struct scripted_odds odds = {.acts = 30, .lost = 10, .twice = 15, .ahead = 30};
    trp_rng rng;
    trp_rng_init(&rng, seed, 1);
    for (uint32_t n = 0; n < 600; n++)
        scripted_draw(crew->net, &rng, &odds);
    scripted_play(crew->net, "0 1 2 3 *");
}

/* The pushes in the order in which they reached the server first: calls `rule` with each. */
static void crew_replay(struct crew *crew,
                        void (*rule)(void *context, uint32_t worker, struct crew_push push),
                        void *context)
{
    size_t count;
    uint64_t clocks[CREW] = {0};
    const struct scripted_event *events = scripted_events(crew->net, &count);
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind != SCRIPTED_ARRIVES || events[i].to != SERVER)
            continue;
        uint32_t worker = events[i].from;
        struct crew_push push = crew->sent[worker][events[i].message];
        if (push.sequence != clocks[worker])
            continue;
        clocks[worker]++;
        rule(context, worker, push);
    }
    for (uint32_t worker = 0; worker < CREW; worker++) {
        assert_true(clocks[worker] > 10);
        assert_int_equal(clocks[worker], crew->world.shard.workers[worker].clock);
    }
    assert_true(crew->world.shard.repeated > 10);
}

/* ---- Downpour SGD ---------------------------------------------------------------------------- */

static const trp_optimizer optimizers[] = {
    {.kind = TRP_SGD, .learning_rate = 0.1},
    {.kind = TRP_SGD, .learning_rate = 0.1, .momentum = 0.9},
    {.kind = TRP_RMSPROP, .learning_rate = 0.01},
    {.kind = TRP_ADAM, .learning_rate = 0.01},
    {.kind = TRP_ADAGRAD, .learning_rate = 0.1},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static void serial_steps(const trp_optimizer *optimizer, float values[COUNT], uint64_t steps)
{
    float grads[COUNT], state[TRP_OPTIMIZER_STATES_MAX][COUNT] = {{0}};
    float *const states[] = {state[0], state[1], state[2]};
    for (size_t i = 0; i < COUNT; i++)
        values[i] = (float)i;
    for (uint64_t step = 0; step < steps; step++)
        trp_optimizer_step(optimizer, step + 1, 1, values, gradient_of(0, step, grads), states, 0,
                           COUNT);
}

static void downpour_of_one_worker_is_serial_to_the_bit(void **state)
{
    static const trp_server_rule rules[] = {TRP_SERVER_ASYNC, TRP_SERVER_SYNC, TRP_SERVER_SSP,
                                            TRP_SERVER_SOFTSYNC};
    (void)state;
    for (size_t k = 0; k < OPTIMIZERS; k++)
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
            struct world world;
            float expected[COUNT];
            begin(&world, (struct shard_options){
                              .optimizer = optimizers[k], .rule = rules[r], .workers = 1});
            for (uint64_t step = 0; step < 20; step++)
                take(&world, 0);
            serial_steps(&optimizers[k], expected, 20);
            assert_memory_equal(world.values, expected, sizeof expected);
            end(&world);
        }
}

static void subtract_gradient(void *context, uint32_t worker, struct crew_push push)
{
    double *expected = context;
    for (size_t i = 0; i < COUNT; i++)
        expected[i] -= 0.5 * (double)gradient_at(worker, push.sequence, i);
}

static void downpour_replays_as_a_reference_in_double(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct crew crew;
        double expected[COUNT];
        crew_begin(&crew, (struct shard_options){.rule = TRP_SERVER_ASYNC});
        crew_draw(&crew, seed);
        initial(expected);
        crew_replay(&crew, subtract_gradient, expected);
        assert_values(&crew.world, expected);
        crew_end(&crew);
    }
}

/* The same script on one shard and on three, which have a part each. */
static void downpour_on_three_shards_has_the_bits_of_one(void **state)
{
    static const trp_server_rule rules[] = {TRP_SERVER_ASYNC, TRP_SERVER_SYNC, TRP_SERVER_SSP,
                                            TRP_SERVER_SOFTSYNC};
    static const size_t cuts[] = {0, 7, 23, COUNT};
    (void)state;
    for (size_t k = 0; k < OPTIMIZERS * 4; k++) {
        struct shard_options options = {
            .optimizer = optimizers[k / 4], .rule = rules[k % 4], .workers = 2, .slack = 9};
        struct world whole;
        struct param_shard parts[3];
        float values[COUNT], grads[COUNT];
        begin(&whole, options);
        memcpy(values, whole.values, sizeof values);
        for (size_t p = 0; p < 3; p++)
            assert_int_equal(
                shard_create(&parts[p], &options, values + cuts[p], cuts[p + 1] - cuts[p]), TRP_OK);
        for (uint64_t n = 0; n < 16; n++) {
            uint32_t worker = n % 4 == 1 || n % 4 == 2; /* 0 1 1 0, none twice in a clock */
            uint64_t clock = whole.shard.workers[worker].clock, version = whole.shard.version;
            push_of(&whole.shard, worker, clock, version);
            for (size_t p = 0; p < 3; p++) {
                const struct shard_range all = {0, cuts[p + 1] - cuts[p]};
                shard_push(&parts[p], &(struct shard_push){
                                          .worker = worker,
                                          .sequence = clock,
                                          .version = version,
                                          .scale = 1,
                                          .ranges = &all,
                                          .range_count = 1,
                                          .grads = gradient_of(worker, clock, grads) + cuts[p]});
            }
        }
        assert_true(whole.shard.version > 4);
        assert_memory_equal(values, whole.values, sizeof values);
        for (size_t p = 0; p < 3; p++)
            shard_destroy(&parts[p]);
        end(&whole);
    }
}

/* A push to two ranges steps the optimizer's state there, and nothing elsewhere. */
static void ranges_are_stepped_with_their_own_state(void **state)
{
    static const trp_optimizer adagrad = {.kind = TRP_ADAGRAD, .learning_rate = 0.5};
    static const struct shard_range ranges[] = {{3, 9}, {20, 37}};
    (void)state;
    struct world world;
    double expected[COUNT], sums[COUNT] = {0};
    begin(&world,
          (struct shard_options){.optimizer = adagrad, .rule = TRP_SERVER_ASYNC, .workers = 1});
    initial(expected);
    for (uint64_t n = 0; n < 8; n++) {
        const struct shard_range *range = &ranges[n % 3 == 1];
        bool both = n % 3 == 2;
        float grads[COUNT];
        size_t count = 0;
        for (const struct shard_range *r = both ? ranges : range; r <= (both ? ranges + 1 : range);
             r++)
            for (uint64_t i = r->lo; i < r->hi; i++) {
                double g = (double)gradient_at(0, n, i);
                grads[count++] = (float)g;
                sums[i] += g * g;
                expected[i] -= sums[i] > 0 ? 0.5 * g / sqrt(sums[i]) : 0;
            }
        assert_int_equal(
            shard_push(&world.shard, &(struct shard_push){.sequence = n,
                                                          .scale = 1,
                                                          .ranges = both ? ranges : range,
                                                          .range_count = both ? 2 : 1,
                                                          .grads = grads}),
            SHARD_TAKEN);
    }
    assert_values(&world, expected);
    end(&world);
}

/* ---- Project Adam ---------------------------------------------------------------------------- */

/* The order of a clock's pushes differs, what comes of them does not. */
static void adam_does_not_depend_on_the_order_of_delivery(void **state)
{
    static const trp_server_rule rules[] = {TRP_SERVER_ASYNC, TRP_SERVER_SYNC, TRP_SERVER_SSP};
    static const char *const orders[] = {"0>4 1>4 2>4 3>4 *", "3>4 2>4 1>4 0>4 *",
                                         "1>4 3>4 0>4 2>4 *", "2+4 0>4 2>4 3>4 1>4 *"};
    (void)state;
    for (size_t r = 0; r < 3; r++) {
        float first[COUNT];
        for (size_t o = 0; o < 4; o++) {
            struct crew crew;
            crew_begin(&crew, (struct shard_options){.rule = rules[r]});
            for (size_t n = 0; n < 5; n++) {
                scripted_play(crew.net, "0 1 2 3");
                scripted_play(crew.net, orders[(o + n) % 4]);
            }
            assert_int_equal(crew.world.shard.pushes, 20);
            if (o == 0)
                memcpy(first, crew.world.values, sizeof first);
            assert_memory_equal(first, crew.world.values, sizeof first);
            crew_end(&crew);
        }
    }
}

/* ---- BSP ------------------------------------------------------------------------------------- */

static void bsp_steps_with_the_exact_mean_of_a_clock(void **state)
{
    (void)state;
    struct world world;
    double expected[COUNT];
    begin(&world, (struct shard_options){.rule = TRP_SERVER_SYNC});
    initial(expected);
    for (uint64_t clock = 0; clock < 5; clock++) {
        for (uint32_t worker = 0; worker < WORKERS; worker++) {
            assert_values(&world, expected);
            take(&world, (worker + (uint32_t)clock) % WORKERS);
        }
        for (size_t i = 0; i < COUNT; i++)
            for (uint32_t worker = 0; worker < WORKERS; worker++)
                expected[i] -= 0.5 * (double)gradient_at(worker, clock, i) / WORKERS;
        assert_values(&world, expected);
        assert_int_equal(world.shard.version, clock + 1);
    }
    end(&world);
}

static void bsp_holds_who_is_ahead_and_goes_on_without_the_dead(void **state)
{
    (void)state;
    struct world world;
    begin(&world, (struct shard_options){.rule = TRP_SERVER_SYNC});
    take(&world, 0);
    assert_false(shard_may_read(&world.shard, 0));
    assert_true(shard_may_read(&world.shard, 1));
    assert_int_equal(push_of(&world.shard, 0, 1, 0), SHARD_EARLY);
    take(&world, 2);
    assert_int_equal(shard_awaited(&world.shard), 1);
    shard_leave(&world.shard, 1);
    assert_int_equal(world.shard.version, 1); /* the mean of two */
    assert_float_equal(world.values[0], -0.5 * (1 + 3) / 2, 1e-6);
    assert_true(shard_may_read(&world.shard, 0));
    take(&world, 0);
    shard_join(&world.shard, 1); /* it is waited for again, from this clock on */
    take(&world, 2);
    assert_int_equal(world.shard.version, 1);
    take(&world, 1);
    assert_int_equal(world.shard.version, 2);
    end(&world);
}

/* ---- SSP ------------------------------------------------------------------------------------- */

/* Both inequalities, at every read of a script with delays: a worker at clock c runs only if c is
 * at most s ahead of the slowest, and sees all pushes up to clock c - s - 1, and all of its own.
 * With gradients of 1 at the worker's own number the values say what is seen. */
static void ssp_bounds_hold_at_every_read(void **state)
{
    (void)state;
    for (uint32_t slack = 0; slack < 4; slack++) {
        struct world world;
        trp_rng rng;
        trp_rng_init(&rng, 7, slack);
        begin(&world, (struct shard_options){.rule = TRP_SERVER_SSP, .slack = slack});
        uint64_t clocks[WORKERS] = {0}, reads = 0, most = 0;
        memset(world.values, 0, sizeof world.values);
        for (size_t n = 0; n < 3000; n++) {
            uint32_t worker = trp_rng_u64(&rng) % 8; /* 0 often, 2 seldom */
            worker = worker < 5 ? 0 : worker < 7 ? 1 : 2;
            uint64_t clock = clocks[worker], least = clocks[0];
            for (uint32_t q = 1; q < WORKERS; q++)
                least = clocks[q] < least ? clocks[q] : least;
            assert_int_equal(shard_may_read(&world.shard, worker), clock - least <= slack);
            if (clock - least > slack)
                continue;
            for (uint32_t q = 0; q < WORKERS; q++) {
                double seen = -2 * WORKERS * (double)world.values[q];
                uint64_t pushes = (uint64_t)(seen + 0.5);
                assert_true(pushes >= (q == worker ? clock : clock > slack ? clock - slack : 0));
            }
            reads++;
            most = clock - least > most ? clock - least : most;
            const float one = 1;
            const struct shard_range own = {worker, worker + 1};
            assert_int_equal(shard_push(&world.shard, &(struct shard_push){.worker = worker,
                                                                           .sequence = clock,
                                                                           .scale = 1,
                                                                           .ranges = &own,
                                                                           .range_count = 1,
                                                                           .grads = &one}),
                             SHARD_TAKEN);
            clocks[worker]++;
        }
        assert_true(reads > 300);
        assert_int_equal(most, slack); /* and they are tight */
        end(&world);
    }
}

static void ssp_without_slack_is_bsp_to_the_bit(void **state)
{
    (void)state;
    struct world ssp, bsp;
    begin(&ssp, (struct shard_options){.rule = TRP_SERVER_SSP, .workers = 4});
    begin(&bsp, (struct shard_options){.rule = TRP_SERVER_SYNC, .workers = 4});
    for (uint32_t n = 0; n < 40; n++) {
        uint32_t worker = (n * 3 + n / 4) % 4;
        assert_int_equal(shard_may_read(&ssp.shard, worker), shard_may_read(&bsp.shard, worker));
        take(&ssp, worker);
        take(&bsp, worker);
        if (n % 4 == 3)
            assert_memory_equal(ssp.values, bsp.values, sizeof bsp.values);
    }
    end(&ssp);
    end(&bsp);
}

static void ssp_blocks_behind_the_dead_after_s_plus_1_clocks(void **state)
{
    (void)state;
    struct world world;
    begin(&world, (struct shard_options){.rule = TRP_SERVER_SSP, .slack = 2, .workers = 2});
    take(&world, 0);
    take(&world, 1); /* and dies */
    uint32_t clocks = 0;
    for (; shard_may_read(&world.shard, 0); clocks++)
        take(&world, 0);
    assert_int_equal(clocks, 2 + 1);
    assert_int_equal(shard_awaited(&world.shard), 1);
    shard_leave(&world.shard, 1);
    assert_true(shard_may_read(&world.shard, 0));
    take(&world, 0);
    take(&world, 0);
    shard_join(&world.shard, 1); /* where the slowest is: nobody waits for what it missed */
    assert_int_equal(world.shard.workers[1].clock, world.shard.workers[0].clock);
    assert_true(shard_may_read(&world.shard, 0));
    end(&world);
}

/* ---- n-softsync ------------------------------------------------------------------------------ */

/* n = 2 of 4 learners: a step after every 2 gradients. */
struct softsync {
    double expected[COUNT], sum[COUNT];
    uint64_t pushes;
    uint64_t most_stale;
};

static void take_by_staleness(void *context, uint32_t worker, struct crew_push push)
{
    struct softsync *rule = context;
    uint64_t version = rule->pushes++ / 2, staleness = version - push.version;
    rule->most_stale = staleness > rule->most_stale ? staleness : rule->most_stale;
    for (size_t i = 0; i < COUNT; i++) {
        double gradient = (double)gradient_at(worker, push.sequence, i);
        rule->sum[i] += staleness > 1 ? gradient / (double)staleness : gradient;
        if (rule->pushes % 2)
            continue;
        rule->expected[i] -= 0.5 * rule->sum[i] / 2;
        rule->sum[i] = 0;
    }
}

static void softsync_divides_rates_by_staleness(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct crew crew;
        struct softsync rule = {.pushes = 0};
        crew_begin(&crew, (struct shard_options){.rule = TRP_SERVER_SOFTSYNC, .softness = 2});
        crew_draw(&crew, seed);
        initial(rule.expected);
        crew_replay(&crew, take_by_staleness, &rule);
        assert_int_equal(crew.world.shard.version, rule.pushes / 2);
        assert_values(&crew.world, rule.expected);
        assert_true(rule.most_stale > 3);
        crew_end(&crew);
    }
}

static void softsync_of_1_steps_after_all_and_drops_beyond_its_cap(void **state)
{
    (void)state;
    struct world world;
    begin(&world,
          (struct shard_options){
              .rule = TRP_SERVER_SOFTSYNC, .workers = 4, .softness = 1, .max_staleness = 2});
    for (uint32_t n = 0; n < 16; n++) {
        take(&world, n % 4);
        assert_int_equal(world.shard.version, (n + 1) / 4); /* c = N */
    }
    float before[COUNT];
    memcpy(before, world.values, sizeof before);
    assert_int_equal(push_of(&world.shard, 0, 4, 1), SHARD_DROPPED);
    assert_int_equal(push_of(&world.shard, 1, 4, 2), SHARD_TAKEN);
    assert_int_equal(world.shard.dropped, 1);
    assert_int_equal(world.shard.summed, 1);
    assert_memory_equal(world.values, before, sizeof before);
    assert_int_equal(world.shard.workers[0].clock, 5); /* it is not sent again */
    end(&world);
}

/* ---- DynSGD ---------------------------------------------------------------------------------- */

static void dynsgd_of_equal_workers_is_the_mean(void **state)
{
    (void)state;
    struct world world;
    double expected[COUNT];
    begin(&world, (struct shard_options){.rule = TRP_SERVER_DYNSGD});
    initial(expected);
    for (uint64_t clock = 0; clock < 6; clock++) {
        for (uint32_t worker = 0; worker < WORKERS; worker++)
            assert_int_equal(push_of(&world.shard, worker, clock, clock), SHARD_TAKEN);
        for (size_t i = 0; i < COUNT; i++)
            for (uint32_t worker = 0; worker < WORKERS; worker++)
                expected[i] -= 0.5 * (double)gradient_at(worker, clock, i) / WORKERS;
        assert_values(&world, expected);
        assert_int_equal(world.shard.version, clock + 1);
    }
    end(&world);
}

/* Ten pushes of worker 0 while worker 1 is at its first: that one is the second of version 0, and
 * has half of its effect. Then it is on time. */
static void dynsgd_weighs_a_straggler_by_its_version(void **state)
{
    (void)state;
    struct world world;
    double expected[COUNT];
    begin(&world, (struct shard_options){.rule = TRP_SERVER_DYNSGD, .workers = 2});
    initial(expected);
    for (uint64_t clock = 0; clock < 10; clock++) {
        assert_int_equal(push_of(&world.shard, 0, clock, clock), SHARD_TAKEN);
        for (size_t i = 0; i < COUNT; i++)
            expected[i] -= 0.5 * (double)gradient_at(0, clock, i);
    }
    assert_values(&world, expected);
    assert_int_equal(push_of(&world.shard, 1, 0, 0), SHARD_TAKEN);
    for (size_t i = 0; i < COUNT; i++)
        expected[i] -= 0.5 * (double)(gradient_at(1, 0, i) - gradient_at(0, 0, i)) / 2;
    assert_values(&world, expected);
    assert_int_equal(world.shard.version, 10);
    assert_int_equal(push_of(&world.shard, 1, 1, 10), SHARD_TAKEN);
    for (size_t i = 0; i < COUNT; i++)
        expected[i] -= 0.5 * (double)gradient_at(1, 1, i);
    assert_values(&world, expected);
    for (uint64_t clock = 10; clock < 26; clock++)
        assert_int_equal(push_of(&world.shard, 0, clock, world.shard.version), SHARD_TAKEN);
    assert_int_equal(push_of(&world.shard, 1, 2, 5), SHARD_DROPPED); /* nothing is known of it */
    end(&world);
}

static void dynsgd_refuses_what_cannot_be_taken_back(void **state)
{
    (void)state;
    struct param_shard shard;
    float values[COUNT];
    assert_int_equal(shard_create(&shard,
                                  &(struct shard_options){.optimizer = {.kind = TRP_ADAM},
                                                          .rule = TRP_SERVER_DYNSGD,
                                                          .workers = 1},
                                  values, COUNT),
                     TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "adam"));
    assert_int_equal(shard_create(&shard,
                                  &(struct shard_options){.optimizer = {.kind = TRP_LAMB},
                                                          .rule = TRP_SERVER_ASYNC,
                                                          .workers = 1},
                                  values, COUNT),
                     TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "lamb"));
}

/* ---- messages -------------------------------------------------------------------------------- */

/* ps-lite's test_kv_app: 50 pushes, then a pull; here half of them come twice, and each out of turn
 * once. The rule "add" is SGD of rate 1 with negative numbers. */
static void fifty_pushes_then_a_pull(void **state)
{
    static const trp_optimizer add = {.kind = TRP_SGD, .learning_rate = 1};
    (void)state;
    struct world world;
    begin(&world, (struct shard_options){.optimizer = add, .rule = TRP_SERVER_ASYNC, .workers = 1});
    memset(world.values, 0, sizeof world.values);
    const struct shard_range ranges[] = {{0, 10}, {20, 21}, {30, COUNT}};
    float numbers[10 + 1 + COUNT - 30];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = -(float)i;
    struct shard_push push = {.scale = 1, .ranges = ranges, .range_count = 3, .grads = numbers};
    for (push.sequence = 0; push.sequence < 50; push.sequence++) {
        struct shard_push later = push;
        later.sequence++;
        assert_int_equal(shard_push(&world.shard, &later), SHARD_AHEAD);
        assert_int_equal(shard_push(&world.shard, &push), SHARD_TAKEN);
        if (push.sequence % 2)
            assert_int_equal(shard_push(&world.shard, &push), SHARD_REPEATED);
    }
    for (size_t i = 0; i < COUNT; i++) {
        double expected = i < 10 ? (double)i : i == 20 ? 10 : i >= 30 ? (double)(i - 30 + 11) : 0;
        assert_float_equal(world.values[i], 50 * expected, 0);
    }
    assert_int_equal(world.shard.repeated, 25);
    assert_int_equal(world.shard.pushes, 50);
    end(&world);
}

/* Of two blocks the second one is not finite by the time that it is read. */
static void what_is_not_finite_when_it_is_read_counts_as_nothing(void **state)
{
    enum { NUMBERS = SHARD_BLOCK + 7 };
    static const trp_server_rule rules[] = {TRP_SERVER_ASYNC, TRP_SERVER_SYNC, TRP_SERVER_SSP,
                                            TRP_SERVER_SOFTSYNC};
    static float values[NUMBERS], grads[NUMBERS];
    static const struct shard_range all = {0, NUMBERS};
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct param_shard shard;
        struct shard_push push = {
            .scale = 1, .ranges = &all, .range_count = 1, .grads = grads, .moves = true};
        memset(values, 0, sizeof values);
        for (size_t k = 0; k < NUMBERS; k++)
            grads[k] = 2;
        grads[NUMBERS - 2] = NAN;
        assert_int_equal(
            shard_create(&shard,
                         &(struct shard_options){
                             .optimizer = plain, .rule = rules[i], .workers = 1, .softness = 1},
                         values, NUMBERS),
            TRP_OK);
        assert_int_equal(shard_push(&shard, &push), SHARD_TAKEN);
        assert_true(shard.harmed);
        for (size_t k = 0; k < NUMBERS; k++)
            assert_true(values[k] == (k < SHARD_BLOCK ? -1 : 0));
        grads[NUMBERS - 2] = 2;
        push.sequence++;
        assert_int_equal(shard_push(&shard, &push), SHARD_TAKEN);
        assert_false(shard.harmed);
        for (size_t k = 0; k < NUMBERS; k++)
            assert_true(values[k] == (k < SHARD_BLOCK ? -2 : -1));
        shard_destroy(&shard);
    }
}

static void ranges_that_are_none_are_refused(void **state)
{
    static const struct shard_range wrong[][2] = {
        {{0, 0}, {1, 2}}, {{3, 2}, {4, 5}}, {{0, 5}, {4, 6}}, {{5, 6}, {0, 2}}, {{0, 1}, {5, 41}}};
    static const struct shard_range right[] = {{0, 5}, {5, 6}, {39, 40}};
    (void)state;
    struct world world;
    size_t numbers;
    begin(&world, (struct shard_options){.rule = TRP_SERVER_ASYNC});
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(shard_check(&world.shard, wrong[i], 2, &numbers), TRP_INVALID_ARGUMENT);
    assert_int_equal(shard_check(&world.shard, right, 3, &numbers), TRP_OK);
    assert_int_equal(numbers, 7);
    end(&world);
}

/* A life that lost the last versions of the one before: none of their numbers is used again, and a
 * gradient of one counts as of the version that this life began with. */
static void no_version_is_used_twice(void **state)
{
    (void)state;
    struct world world;
    begin(&world,
          (struct shard_options){.rule = TRP_SERVER_SOFTSYNC, .workers = 1, .max_staleness = 3});
    for (uint32_t n = 0; n < 5; n++)
        take(&world, 0);
    shard_skip_versions(&world.shard, 1000);
    assert_int_equal(world.shard.version, 1005);
    assert_int_equal(push_of(&world.shard, 0, 5, 7), SHARD_TAKEN); /* of a version that is gone */
    assert_int_equal(world.shard.version, 1006);
    end(&world);
}

/* ---- BytePS ---------------------------------------------------------------------------------- */

static void byteps_splits_over_idle_hosts(void **state)
{
    (void)state;
    struct placement even = {.servers = 3, .learners = 2};
    assert_int_equal(placement_begin(&even, 4800, 1), 1600);
    assert_int_equal(placement_begin(&even, 4800, 3), 4800);
    for (uint32_t n = 2; n <= 8; n++)
        for (uint32_t k = 1; k <= n; k++) {
            struct placement placement = {.servers = n + k, .learners = n, .idle = k};
            double all = (double)n * n + (double)k * n - 2. * k, sum = 0;
            size_t count = 1000003, at = 0;
            for (uint32_t i = 0; i < n + k; i++) {
                double part = i < n ? (n - k) / all : 2. * (n - 1) / all;
                assert_float_equal(placement_part(&placement, i), part, 1e-12);
                sum += part;
                size_t next = placement_begin(&placement, count, i + 1);
                assert_true(next >= at);
                assert_float_equal((double)(next - at), part * (double)count, 17);
                assert_true(next == count || next % 16 == 0);
                at = next;
            }
            assert_float_equal(sum, 1, 1e-12);
            assert_int_equal(at, count);
        }
    struct placement pure = {.servers = 8, .learners = 4, .idle = 4}; /* k = n: servers alone */
    assert_float_equal(placement_part(&pure, 0), 0, 0);
    assert_float_equal(placement_part(&pure, 7), 0.25, 1e-12);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(downpour_of_one_worker_is_serial_to_the_bit),
        cmocka_unit_test(downpour_replays_as_a_reference_in_double),
        cmocka_unit_test(downpour_on_three_shards_has_the_bits_of_one),
        cmocka_unit_test(ranges_are_stepped_with_their_own_state),
        cmocka_unit_test(adam_does_not_depend_on_the_order_of_delivery),
        cmocka_unit_test(bsp_steps_with_the_exact_mean_of_a_clock),
        cmocka_unit_test(bsp_holds_who_is_ahead_and_goes_on_without_the_dead),
        cmocka_unit_test(ssp_bounds_hold_at_every_read),
        cmocka_unit_test(ssp_without_slack_is_bsp_to_the_bit),
        cmocka_unit_test(ssp_blocks_behind_the_dead_after_s_plus_1_clocks),
        cmocka_unit_test(softsync_divides_rates_by_staleness),
        cmocka_unit_test(softsync_of_1_steps_after_all_and_drops_beyond_its_cap),
        cmocka_unit_test(dynsgd_of_equal_workers_is_the_mean),
        cmocka_unit_test(dynsgd_weighs_a_straggler_by_its_version),
        cmocka_unit_test(dynsgd_refuses_what_cannot_be_taken_back),
        cmocka_unit_test(fifty_pushes_then_a_pull),
        cmocka_unit_test(what_is_not_finite_when_it_is_read_counts_as_nothing),
        cmocka_unit_test(ranges_that_are_none_are_refused),
        cmocka_unit_test(no_version_is_used_twice),
        cmocka_unit_test(byteps_splits_over_idle_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
