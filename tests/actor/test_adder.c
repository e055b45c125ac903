/* The n-step transition adder: rows of known items, and every item of random episodes against the
 * definition. Observations are the numbers 1, 2, ... so that an item says where it begins and
 * ends. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/adder.h>
#include <troupe/replay.h>
#include <troupe/sampler.h>
#include "actor/nstep.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "actor/limits.h"
#include "core/limits.h"
#include "replay.pb-c.h"
#include "tests/actor/table_server.h"

enum { STEPS_MAX = 16, ITEMS_MAX = 64 };

struct item {
    float from, reward, discount, to;
};

struct collected {
    struct item items[ITEMS_MAX];
    int32_t actions[ITEMS_MAX];
    uint64_t versions[ITEMS_MAX];
    size_t count;
};

static void collect(void *context, const struct nstep_item *item)
{
    struct collected *collected = context;
    assert_true(collected->count < ITEMS_MAX);
    struct item *out = &collected->items[collected->count];
    memcpy(&out->from, item->observation, sizeof out->from);
    memcpy(&out->to, item->next_observations[0], sizeof out->to);
    memcpy(&collected->actions[collected->count], item->choice, sizeof(int32_t));
    out->reward = item->reward;
    out->discount = item->discount;
    collected->versions[collected->count++] = item->version;
}

static struct nstep_window *make(uint32_t n_step, double discount)
{
    static struct nstep_sizes sizes; /* of the only window at a time */
    sizes = (struct nstep_sizes){.n_step = n_step, .discount = discount};
    blob_add(&sizes.observation, sizeof(float));
    blob_add(&sizes.choice, sizeof(int32_t));
    return nstep_create(&sizes);
}

/* Steps `count` times from observation 1 on; action t and version 100 + t belong to step t. */
static void play(struct nstep_window *window, const float *rewards, const float *discounts,
                 size_t count, bool last, struct collected *collected)
{
    float first = 1;
    nstep_first(window, (const void *[]){&first});
    for (size_t t = 0; t < count; t++) {
        int32_t action = (int32_t)t;
        float next = (float)t + 2;
        nstep_add(window,
                  &(trp_transition){.action = &action,
                                    .reward = rewards[t],
                                    .discount = discounts[t],
                                    .next_observations = (const void *[]){&next},
                                    .last = last && t + 1 == count,
                                    .version = 100 + t},
                  collect, collected);
    }
}

struct vector {
    const char *what;
    uint32_t n_step;
    double discount;
    size_t steps;
    float rewards[STEPS_MAX], discounts[STEPS_MAX];
    bool running; /* the episode goes on */
    size_t count;
    struct item items[ITEMS_MAX];
};

static const struct vector vectors[] = {
    {"Acme's vector for n = 2",
     2,
     1,
     3,
     {1, 1, 1},
     {.5, .5, 0},
     false,
     4,
     {{1, 1, .5, 2}, {1, 1.5, .25, 3}, {2, 1.5, 0, 4}, {3, 1, 0, 4}}},
    {"n = 1 gives the transitions themselves",
     1,
     .5,
     3,
     {1, 2, 4},
     {1, 1, 0},
     false,
     3,
     {{1, 1, 1, 2}, {2, 2, 1, 3}, {3, 4, 0, 4}}},
    {"n = 1, an episode of one step", 1, .5, 1, {3}, {0}, false, 1, {{1, 3, 0, 2}}},
    {"n = 3, terminated",
     3,
     .5,
     4,
     {1, 2, 4, 8},
     {1, 1, 1, 0},
     false,
     6,
     {{1, 1, 1, 2}, {1, 2, .5, 3}, {1, 3, .25, 4}, {2, 6, 0, 5}, {3, 8, 0, 5}, {4, 8, 0, 5}}},
    {"n = 3, truncated: every item bootstraps",
     3,
     .5,
     4,
     {1, 2, 4, 8},
     {1, 1, 1, 1},
     false,
     6,
     {{1, 1, 1, 2}, {1, 2, .5, 3}, {1, 3, .25, 4}, {2, 6, .25, 5}, {3, 8, .5, 5}, {4, 8, 1, 5}}},
    {"n = 5, terminated before n steps: 2T - 1 items",
     5,
     .5,
     3,
     {1, 2, 4},
     {1, 1, 0},
     false,
     5,
     {{1, 1, 1, 2}, {1, 2, .5, 3}, {1, 3, 0, 4}, {2, 4, 0, 4}, {3, 4, 0, 4}}},
    {"n = 5, truncated after one step", 5, .5, 1, {7}, {1}, false, 1, {{1, 7, 1, 2}}},
    {"n = 3, exactly n steps",
     3,
     1,
     3,
     {1, 1, 1},
     {1, 1, 0},
     false,
     5,
     {{1, 1, 1, 2}, {1, 2, 1, 3}, {1, 3, 0, 4}, {2, 2, 0, 4}, {3, 1, 0, 4}}},
    {"n = 3, an episode that goes on emits one item a step",
     3,
     .5,
     4,
     {1, 2, 4, 8},
     {1, 1, 1, 1},
     true,
     4,
     {{1, 1, 1, 2}, {1, 2, .5, 3}, {1, 3, .25, 4}, {2, 6, .25, 5}}},
    {"a discount of 0 in the middle cuts rewards behind it",
     3,
     1,
     3,
     {1, 2, 4},
     {1, 0, 1},
     false,
     5,
     {{1, 1, 1, 2}, {1, 3, 0, 3}, {1, 3, 0, 4}, {2, 2, 0, 4}, {3, 4, 1, 4}}},
};

static void assert_item(const struct item *got, const struct item *wanted)
{
    assert_float_equal(got->from, wanted->from, 0);
    assert_float_equal(got->to, wanted->to, 0);
    assert_float_equal(got->reward, wanted->reward, 1e-6);
    assert_float_equal(got->discount, wanted->discount, 1e-6);
}

static void known_episodes_give_the_known_items(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const struct vector *vector = &vectors[i];
        struct nstep_window *window = make(vector->n_step, vector->discount);
        struct collected collected = {0};
        play(window, vector->rewards, vector->discounts, vector->steps, !vector->running,
             &collected);
        print_message("%s\n", vector->what);
        assert_int_equal(collected.count, vector->count);
        for (size_t k = 0; k < vector->count; k++)
            assert_item(&collected.items[k], &vector->items[k]);
        nstep_destroy(window);
    }
}

/* The definition in include/troupe/adder.h for the window of `m` steps from `t` on. */
static struct item defined(const float *rewards, const float *discounts, double gamma, size_t t,
                           size_t m)
{
    double reward = 0, product = 1;
    for (size_t k = 0; k < m; k++) {
        reward += pow(gamma, (double)k) * product * (double)rewards[t + k];
        product *= (double)discounts[t + k];
    }
    return (struct item){.from = (float)t + 1,
                         .reward = (float)reward,
                         .discount = (float)(pow(gamma, (double)m - 1) * product),
                         .to = (float)(t + m) + 1};
}

static void check_episode(uint32_t n, size_t steps, trp_rng *rng)
{
    float rewards[STEPS_MAX], discounts[STEPS_MAX];
    for (size_t t = 0; t < steps; t++) {
        rewards[t] = (float)trp_rng_normal(rng);
        discounts[t] = (float)trp_rng_below(rng, 5) / 4;
    }
    double gamma = trp_rng_double(rng);
    struct nstep_window *window = make(n, gamma);
    struct collected collected = {0};
    play(window, rewards, discounts, steps, true, &collected);
    assert_int_equal(collected.count, steps >= n ? steps + n - 1 : 2 * steps - 1);
    for (size_t k = 0; k < collected.count; k++) {
        size_t end = k < steps ? k + 1 : steps; /* one item a step, then the tail */
        size_t begin =
            k < steps ? (end > n ? end - n : 0) : (steps > n ? steps - n : 0) + (k - steps) + 1;
        struct item wanted = defined(rewards, discounts, gamma, begin, end - begin);
        assert_item(&collected.items[k], &wanted);
        assert_int_equal(collected.actions[k], begin);
        assert_int_equal(collected.versions[k], 100 + begin);
    }
    nstep_destroy(window);
}

static void random_episodes_agree_with_the_definition(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (uint32_t n = 1; n <= 7; n++)
        for (size_t steps = 1; steps <= STEPS_MAX; steps++)
            check_episode(n, steps, &rng);
}

static void a_new_episode_forgets_the_unfinished_one(void **state)
{
    (void)state;
    struct nstep_window *window = make(3, .5);
    struct collected collected = {0};
    float rewards[] = {1, 2}, discounts[] = {1, 1};
    play(window, rewards, discounts, 2, false, &collected);
    collected.count = 0;
    play(window, rewards, discounts, 1, true, &collected);
    assert_int_equal(collected.count, 1);
    assert_item(&collected.items[0], &(struct item){1, 1, 1, 2});
    nstep_destroy(window);
}

static const trp_env_spec discrete = {
    .name = "test",
    .observations = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 2, .shape = {2, 3}}},
    .action_kind = TRP_ACTION_DISCRETE,
    .action_count = 4};

static void assert_columns(const trp_columns *columns, const char *const *wanted)
{
    for (size_t i = 0; i < columns->count; i++) {
        assert_non_null(wanted[i]);
        assert_string_equal(columns->specs[i].name, wanted[i]);
    }
    assert_null(wanted[columns->count]);
}

static void columns_are_those_of_the_environment(void **state)
{
    (void)state;
    trp_columns columns = {0};
    trp_nstep_columns(&discrete, NULL, &columns);
    assert_columns(&columns, (const char *[]){"observation", "action", "reward", "discount",
                                              "next_observation", "version", NULL});
    assert_int_equal(trp_tensor_bytes(&columns.specs[0]), 24);
    assert_int_equal(trp_tensor_bytes(&columns.specs[4]), 24);
    assert_int_equal(columns.specs[1].dtype, TRP_INT32);
    assert_int_equal(columns.specs[1].rank, 0);
    assert_int_equal(columns.specs[5].dtype, TRP_INT64);
    trp_columns_cleanup(&columns);
    trp_env_spec box = discrete;
    box.action_kind = TRP_ACTION_BOX;
    trp_nstep_columns(&box, NULL, &columns);
    assert_int_equal(columns.specs[1].dtype, TRP_FLOAT32);
    assert_int_equal(columns.specs[1].shape[0], 4);
    trp_columns_cleanup(&columns);
}

/* An observation of two tensors and a policy that writes two extras. */
static const trp_env_spec two = {
    .name = "two",
    .observations = {{.name = "eye", .dtype = TRP_UINT8, .rank = 1, .shape = {3}},
                     {.name = "ear", .dtype = TRP_FLOAT32}},
    .action_kind = TRP_ACTION_DISCRETE,
    .action_count = 4};

static void add_extras(trp_columns *extras)
{
    trp_columns_add(extras, "value", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    trp_columns_add(extras, "core",
                    &(trp_tensor_spec){.dtype = TRP_FLOAT32, .rank = 1, .shape = {2}});
}

static void every_tensor_and_every_extra_has_a_column(void **state)
{
    (void)state;
    trp_columns extras = {0}, columns = {0};
    add_extras(&extras);
    trp_nstep_columns(&two, &extras, &columns);
    assert_columns(&columns,
                   (const char *[]){"observation/eye", "observation/ear", "action", "reward",
                                    "discount", "next_observation/eye", "next_observation/ear",
                                    "version", "value", "core", NULL});
    trp_columns_cleanup(&columns);
    trp_columns_cleanup(&extras);
}

/* Step t of an episode: eye {t, t, t}, ear 10 t, value 100 t, core {t, -t}. */
static void step_two(trp_adder *adder, int t, bool last)
{
    uint8_t eye[3] = {(uint8_t)(t + 1), (uint8_t)(t + 1), (uint8_t)(t + 1)};
    float ear = 10 * (float)(t + 1), value = 100 * (float)t, core[2] = {(float)t, -(float)t};
    int32_t action = t;
    adder->impl->add(adder, 0,
                     &(trp_transition){.action = &action,
                                       .reward = 1,
                                       .discount = 1,
                                       .next_observations = (const void *[]){eye, &ear},
                                       .extras = (const void *[]){&value, core},
                                       .last = last});
}

static void play_two(trp_adder *adder)
{
    uint8_t eye[3] = {0};
    float ear = 0;
    adder->impl->first(adder, 0, (const void *[]){eye, &ear});
    for (int t = 0; t < 3; t++) {
        step_two(adder, t, t == 2);
        assert_int_equal(adder->impl->push(adder, 10000), TRP_OK);
    }
}

static void items_have_the_extras_of_their_first_step(void **state)
{
    (void)state;
    enum { ITEMS = 4 }; /* n = 2: steps 0, 0-1, 1-2, 2 */
    static const int firsts[ITEMS] = {0, 0, 1, 2}, ends[ITEMS] = {1, 2, 3, 3};
    struct table_server at;
    trp_columns extras = {0};
    add_extras(&extras);
    table_server_start(&at, true, NULL);
    trp_adder *adder;
    trp_adder_options options = {
        .replay = at.channel, .table = "t", .env = &two, .extras = &extras};
    assert_int_equal(
        trp_nstep_adder_create(&adder, &options, &(trp_nstep_options){.n_step = 2, .discount = 1}),
        TRP_OK);
    play_two(adder);
    assert_int_equal(adder->impl->flush(adder, 10000), TRP_OK);
    trp_sampler *sampler;
    trp_batch batch;
    assert_int_equal(trp_sampler_create(&sampler, at.channel,
                                        &(trp_sampler_options){.table = "t",
                                                               .columns = adder->columns.specs,
                                                               .column_count = adder->columns.count,
                                                               .batch_size = ITEMS}),
                     TRP_OK);
    assert_int_equal(trp_sampler_next(sampler, &batch, 10000), TRP_OK);
    for (int i = 0; i < ITEMS; i++) {
        assert_int_equal(((const uint8_t(*)[3])batch.columns[0])[i][2], firsts[i]);
        assert_float_equal(((const float *)batch.columns[1])[i], 10 * firsts[i], 0);
        assert_int_equal(((const uint8_t(*)[3])batch.columns[5])[i][0], ends[i]);
        assert_float_equal(((const float *)batch.columns[6])[i], 10 * ends[i], 0);
        assert_float_equal(((const float *)batch.columns[8])[i], 100 * firsts[i], 0);
        assert_float_equal(((const float(*)[2])batch.columns[9])[i][1], -firsts[i], 0);
    }
    trp_sampler_destroy(sampler);
    trp_adder_destroy(adder);
    table_server_end(&at);
    trp_columns_cleanup(&extras);
}

/* "It holds back" would be waited for without an end and without a word. */
static void a_server_that_was_never_there_is_not_a_table_that_holds_back(void **state)
{
    (void)state;
    static const trp_env_spec env = {
        .name = "Walk",
        .observations = {{.name = "position", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
        .action_kind = TRP_ACTION_DISCRETE,
        .action_count = 2,
    };
    trp_adder *adder;
    trp_channel *channel;
    float position = 1;
    int32_t action = 0;
    struct table_server server;
    table_server_start(&server, false, NULL);
    char *address = xasprintf("unix:%s/nobody", server.dir);
    assert_int_equal(trp_channel_create(&channel, address, NULL), TRP_OK);
    trp_adder_options options = {.replay = channel, .table = "t", .env = &env};
    assert_int_equal(trp_nstep_adder_create(&adder, &options, &(trp_nstep_options){.discount = 1}),
                     TRP_OK);
    adder->impl->first(adder, 0, (const void *[]){&position});
    adder->impl->add(adder, 0,
                     &(trp_transition){.action = &action,
                                       .next_observations = (const void *[]){&position},
                                       .last = true});
    assert_int_equal(adder->impl->push(adder, 0), TRP_OK);
    assert_int_equal(adder->impl->flush(adder, 50), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "cannot be reached"));
    assert_non_null(strstr(trp_last_error(), address));
    trp_adder_destroy(adder);
    trp_channel_destroy(channel);
    free(address);
    table_server_end(&server);
}

static void wrong_options_are_refused_by_name(void **state)
{
    (void)state;
    trp_env_spec empty = discrete;
    empty.observations[0].shape[0] = 0;
    const struct {
        trp_adder_options options;
        trp_nstep_options nstep;
        const char *word;
    } rows[] = {
        {{.table = NULL, .env = &discrete}, {0}, "table"},
        {{.table = "", .env = &discrete}, {0}, "table"},
        {{.table = "t", .env = &discrete}, {.n_step = NSTEP_MAX + 1}, "n_step"},
        {{.table = "t", .env = &discrete}, {.discount = 1.5}, "discount"},
        {{.table = "t", .env = &discrete}, {.discount = NAN}, "discount"},
        {{.table = "t", .env = &discrete, .priority = -1}, {0}, "priority"},
        {{.table = "t", .env = &discrete, .priority = INFINITY}, {0}, "priority"},
        {{.table = "t", .env = &discrete, .copies = ACTOR_COPIES_MAX + 1}, {0}, "copies"},
        {{.table = "t", .env = &empty}, {0}, "empty observations"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_adder *adder;
        assert_int_equal(trp_nstep_adder_create(&adder, &rows[i].options, &rows[i].nstep),
                         TRP_INVALID_ARGUMENT);
        assert_null(adder);
        assert_non_null(strstr(trp_last_error(), rows[i].word));
    }
}

/* What a real server tells of the table that an adder wrote. */
static Troupe__ReplayTablesResponse *told_after(uint32_t copies, void (*run)(trp_adder *adder))
{
    struct table_server at;
    trp_adder *adder;
    ProtobufCService *service;
    ProtobufCMessage *reply;
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    table_server_start(&at, false, NULL);
    trp_adder_options common = {
        .replay = at.channel, .table = "t", .env = &discrete, .copies = copies};
    assert_int_equal(trp_nstep_adder_create(&adder, &common, &(trp_nstep_options){0}), TRP_OK);
    run(adder);
    assert_int_equal(adder->impl->flush(adder, 10000), TRP_OK);
    assert_int_equal(trp_channel_service(at.channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    assert_int_equal(trp_call(service, "Tables", &request.base, &reply, NULL), TRP_OK);
    trp_adder_destroy(adder);
    table_server_end(&at);
    return (Troupe__ReplayTablesResponse *)reply;
}

/* Nothing follows for minutes, as from an environment whose steps take so long. */
static void a_row_is_kept_for_a_moment_only(void **state)
{
    (void)state;
    struct table_server at;
    trp_adder *adder;
    const float observation[6] = {0};
    int32_t action = 0;
    trp_table_info info = {.size = 0};
    size_t count;
    table_server_start(&at, false, NULL);
    trp_adder_options options = {.replay = at.channel, .table = "t", .env = &discrete};
    assert_int_equal(trp_nstep_adder_create(&adder, &options, &(trp_nstep_options){0}), TRP_OK);
    adder->impl->first(adder, 0, (const void *[]){observation});
    adder->impl->add(adder, 0,
                     &(trp_transition){.action = &action,
                                       .discount = 1,
                                       .next_observations = (const void *[]){observation}});
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 20000);
    while (info.size == 0) {
        assert_false(deadline_passed(deadline, &clock_monotonic));
        assert_int_equal(adder->impl->push(adder, 0), TRP_OK);
        assert_int_equal(trp_replay_info(at.channel, &info, 1, &count, 10000), TRP_OK);
    }
    assert_int_equal(info.size, 1);
    assert_int_equal(adder->impl->items(adder), 1);
    trp_adder_destroy(adder);
    table_server_end(&at);
}

/* ---- rows that a table holds back -------------------------------------------------------------
 */

enum { WAITING_COPIES = 3, WAITING_STEPS = 400 };

struct drawn {
    trp_adder *adder;
    trp_sampler *sampler;
    uint64_t items;
    float next[WAITING_COPIES]; /* step of each copy's next item */
};

static void draw(struct drawn *drawn)
{
    trp_batch batch;
    assert_int_equal(trp_sampler_next(drawn->sampler, &batch, 10000), TRP_OK);
    const float *observation = batch.columns[0];
    assert_true(observation[0] >= 0 && observation[0] < WAITING_COPIES);
    assert_float_equal(observation[1], drawn->next[(int)observation[0]]++, 0);
    drawn->items++;
}

/* Tries without waiting for the table, and draws so that it has room, until it works. */
static void draw_until_done(struct drawn *drawn, trp_status (*try)(trp_adder *, int64_t))
{
    while (try(drawn->adder, 0) != TRP_OK)
        draw(drawn);
}

static void add_waiting(struct drawn *drawn, trp_rng *rng)
{
    int32_t action = 0;
    for (int t = 0; t < WAITING_STEPS; t++) {
        for (uint32_t copy = 0; copy < WAITING_COPIES; copy++) {
            const float observation[6] = {(float)copy, (float)t};
            bool last = trp_rng_below(rng, 3) == 0;
            if (t == 0)
                drawn->adder->impl->first(drawn->adder, copy, (const void *[]){observation});
            const float next[6] = {(float)copy, (float)(t + 1)};
            drawn->adder->impl->add(drawn->adder, copy,
                                    &(trp_transition){.action = &action,
                                                      .discount = 1,
                                                      .next_observations = (const void *[]){next},
                                                      .last = last});
            if (last)
                drawn->adder->impl->first(drawn->adder, copy, (const void *[]){next});
        }
        draw_until_done(drawn, drawn->adder->impl->push);
        assert_int_equal(drawn->adder->impl->items(drawn->adder), (t + 1) * WAITING_COPIES);
        if (trp_rng_below(rng, 2) == 0)
            (void)!drawn->adder->impl->flush(drawn->adder, 0); /* may stop in the middle */
    }
}

static void rows_that_a_table_holds_back_come_once_and_in_their_copys_order(void **state)
{
    (void)state;
    struct table_server at;
    table_server_start_with_room(&at, true, 5, NULL);
    trp_adder_options common = {.replay = at.channel,
                                .table = "t",
                                .env = &discrete,
                                .copies = WAITING_COPIES,
                                .max_in_flight = 6};
    struct drawn drawn = {0};
    trp_rng rng;
    trp_rng_init(&rng, 3, 0);
    assert_int_equal(trp_nstep_adder_create(&drawn.adder, &common, &(trp_nstep_options){0}),
                     TRP_OK);
    const trp_columns *columns = &drawn.adder->columns;
    trp_sampler_options options = {
        .table = "t", .columns = columns->specs, .column_count = columns->count, .batch_size = 1};
    assert_int_equal(trp_sampler_create(&drawn.sampler, at.channel, &options), TRP_OK);
    add_waiting(&drawn, &rng);
    draw_until_done(&drawn, drawn.adder->impl->flush);
    while (drawn.items < WAITING_STEPS * WAITING_COPIES)
        draw(&drawn);
    trp_adder_destroy(drawn.adder);
    trp_sampler_destroy(drawn.sampler);
    table_server_end(&at);
}

static void add_step(trp_adder *adder, uint32_t copy, uint64_t version, bool last)
{
    const float observation[6] = {0};
    int32_t action = 1;
    adder->impl->add(adder, copy,
                     &(trp_transition){.action = &action,
                                       .discount = 1,
                                       .next_observations = (const void *[]){observation},
                                       .version = version,
                                       .last = last});
}

static void run_versions(trp_adder *adder)
{
    const float observation[6] = {0};
    adder->impl->first(adder, 0, (const void *[]){observation});
    for (uint64_t version = 7; version <= 9; version++) {
        add_step(adder, 0, version, false);
        assert_int_equal(adder->impl->push(adder, 10000), TRP_OK);
    }
}

static void items_carry_the_version_to_the_server(void **state)
{
    (void)state;
    Troupe__ReplayTablesResponse *told = told_after(1, run_versions);
    assert_int_equal(told->tables[0]->size, 3);
    assert_int_equal(told->tables[0]->staleness->newest_version, 9);
    troupe__replay_tables_response__free_unpacked(told, NULL);
}

/* Three copies in turn: one is in its third episode, one in its second, one in its first. */
static void run_episodes(trp_adder *adder)
{
    enum { COPIES = 3, STEPS = 12 };
    const float observation[6] = {0};
    for (uint32_t copy = 0; copy < COPIES; copy++)
        adder->impl->first(adder, copy, (const void *[]){observation});
    for (uint32_t step = 1; step <= STEPS; step++) {
        for (uint32_t copy = 0; copy < COPIES; copy++) {
            bool last = copy < 2 && step % (copy == 0 ? 5 : 7) == 0;
            add_step(adder, copy, 1, last);
            if (last)
                adder->impl->first(adder, copy, (const void *[]){observation});
        }
        assert_int_equal(adder->impl->push(adder, 10000), TRP_OK);
    }
}

static void the_server_counts_the_episodes_of_all_copies(void **state)
{
    (void)state;
    Troupe__ReplayTablesResponse *told = told_after(3, run_episodes);
    assert_int_equal(told->tables[0]->episodes, 3 + 2 + 1);
    troupe__replay_tables_response__free_unpacked(told, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_carry_the_version_to_the_server),
        cmocka_unit_test(the_server_counts_the_episodes_of_all_copies),
        cmocka_unit_test(rows_that_a_table_holds_back_come_once_and_in_their_copys_order),
        cmocka_unit_test(known_episodes_give_the_known_items),
        cmocka_unit_test(random_episodes_agree_with_the_definition),
        cmocka_unit_test(a_new_episode_forgets_the_unfinished_one),
        cmocka_unit_test(columns_are_those_of_the_environment),
        cmocka_unit_test(every_tensor_and_every_extra_has_a_column),
        cmocka_unit_test(items_have_the_extras_of_their_first_step),
        cmocka_unit_test(a_row_is_kept_for_a_moment_only),
        cmocka_unit_test(a_server_that_was_never_there_is_not_a_table_that_holds_back),
        cmocka_unit_test(wrong_options_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
