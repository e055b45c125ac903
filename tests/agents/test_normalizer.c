/* TD3 with states normalised by a dataset learns and acts as TD3 without does where states are
 * normal. */
#include <troupe/log.h>
#include <troupe/replay.h>
#include <troupe/td3.h>
#include <troupe/writer.h>
#include "paper.h"

enum { ITEMS = 1500, STEPS = 6, WAIT_MS = 20000 }; /* more than a batch of a pass */

static trp_agent agent_of(bool normalizes)
{
    return trp_td3(&(trp_td3_options){.hidden = {4},
                                      .learning_rate = 0.01F,
                                      .policy_delay = 2,
                                      .imitation = 2.5F,
                                      .normalize_states = normalizes,
                                      .random_steps = -1});
}

/* ---- a store ------------------------------------------------------------------------------- */

struct store {
    char dir[40];
    double mean[PAPER_STATE], deviation[PAPER_STATE]; /* of its states */
};

/* Far from 0, and spread unlike. */
static float state_number(trp_rng *rng, size_t i)
{
    return i == 0 ? 100 + 30 * (float)trp_rng_normal(rng) : -2 + 0.01F * (float)trp_rng_normal(rng);
}

static void note_states(struct store *store, const float (*states)[PAPER_STATE])
{
    for (size_t i = 0; i < PAPER_STATE; i++) {
        double sum = 0, squares = 0;
        for (size_t row = 0; row < ITEMS; row++)
            sum += (double)states[row][i];
        store->mean[i] = sum / ITEMS;
        for (size_t row = 0; row < ITEMS; row++)
            squares += pow((double)states[row][i] - store->mean[i], 2);
        store->deviation[i] = sqrt(squares / ITEMS);
    }
}

static void append_item(trp_writer *writer, const trp_batch_spec *source,
                        const float state[PAPER_STATE])
{
    static const float zeros[PAPER_STATE + PAPER_ACTION];
    static const trp_item_column step = {.length = 1, .squeeze = true};
    const void *values[8];
    trp_item_column columns[8];
    for (size_t i = 0; i < source->columns.count; i++) {
        bool is_state = strcmp(source->columns.specs[i].name, "observation") == 0;
        values[i] = is_state ? state : zeros;
        columns[i] = step;
        columns[i].column = (uint32_t)i;
    }
    assert_int_equal(trp_writer_append(writer, values), TRP_OK);
    assert_int_equal(trp_writer_create_item(writer, source->table, 1, columns,
                                            source->columns.count, WAIT_MS, NULL),
                     TRP_OK);
}

static void write_items(struct store *store, trp_replay_server *server,
                        const trp_batch_spec *source, float poison)
{
    static float states[ITEMS][PAPER_STATE];
    trp_writer *writer;
    trp_channel *channel = trp_channel_create_local(trp_replay_server_rpc(server));
    assert_int_equal(
        trp_writer_create(&writer, channel,
                          &(trp_writer_options){.columns = source->columns.specs,
                                                .column_count = source->columns.count}),
        TRP_OK);
    trp_rng rng;
    trp_rng_init(&rng, 8, 0);
    for (size_t row = 0; row < ITEMS; row++) {
        for (size_t i = 0; i < PAPER_STATE; i++)
            states[row][i] = state_number(&rng, i);
        if (row == ITEMS / 2)
            states[row][1] += poison;
        append_item(writer, source, states[row]);
    }
    note_states(store, (const float(*)[PAPER_STATE])states);
    assert_int_equal(trp_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    trp_writer_destroy(writer);
    trp_channel_destroy(channel);
}

/* `poison` is added to one number. */
static struct store store_create(float poison)
{
    struct store store = {.dir = "/tmp/test_normalizer.XXXXXX"};
    assert_non_null(mkdtemp(store.dir));
    trp_agent agent = agent_of(false);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    trp_agent_table_list list = {0};
    assert_int_equal(agent.impl->tables(&agent, &paper_env, &list), TRP_OK);
    list.tables[0].limiter = trp_limiter_min_size(1);
    trp_replay_server *server;
    assert_int_equal(
        trp_replay_server_create(&server, &(trp_replay_server_options){.dir = store.dir,
                                                                       .tables = list.tables,
                                                                       .table_count = list.count}),
        TRP_OK);
    write_items(&store, server, &study->updater->sources[0], poison);
    trp_replay_server_destroy(server);
    trp_agent_table_list_cleanup(&list);
    study_destroy(study);
    return store;
}

static void store_destroy(const struct store *store)
{
    char *command = xasprintf("rm -rf %s", store->dir);
    assert_int_equal(system(command), 0);
    free(command);
}

static struct study *normal_study(const struct store *store, uint64_t seed)
{
    trp_agent agent = agent_of(true);
    return study_create_with(
        &agent, &paper_env, &(trp_updater_options){.batch_size = PAPER_ROWS, .dataset = store->dir},
        seed);
}

/* ---- learning ------------------------------------------------------------------------------ */

static const float *tensor_of(struct study *study, const char *name, size_t count)
{
    const trp_vector_spec *params = &study->updater->vectors[paper_vector(study, "params")];
    for (size_t i = 0; i < params->tensor_count; i++)
        if (strcmp(params->tensors[i].name, name) == 0) {
            assert_int_equal(params->tensors[i].count, count);
            return study->run.values[paper_vector(study, "params")] + params->tensors[i].offset;
        }
    fail_msg("params have no tensor %s", name);
    return NULL;
}

/* Equation 4 of the paper. */
static void normalize(struct study *study, const char *column, struct items *items)
{
    const float *mean = tensor_of(study, "states.mean", PAPER_STATE);
    const float *deviation = tensor_of(study, "states.deviation", PAPER_STATE);
    float *states = items_column(items, column);
    for (size_t i = 0; i < PAPER_ROWS * PAPER_STATE; i++)
        states[i] = (states[i] - mean[i % PAPER_STATE]) / deviation[i % PAPER_STATE];
}

static void spread(struct items *items, uint64_t seed)
{
    const char *const columns[] = {"observation", "next_observation"};
    trp_rng rng;
    trp_rng_init(&rng, seed, 1);
    paper_fill(items, seed);
    for (size_t k = 0; k < 2; k++) {
        float *states = items_column(items, columns[k]);
        for (size_t i = 0; i < PAPER_ROWS * PAPER_STATE; i++)
            states[i] = state_number(&rng, i % PAPER_STATE);
    }
}

/* The numbers of `name` that are behind those of the normaliser are `plain`'s. */
static void assert_as_plain(struct study *normal, struct study *plain, const char *name,
                            size_t first)
{
    size_t a = paper_vector(normal, name), b = paper_vector(plain, name);
    size_t count = plain->updater->vectors[b].count;
    assert_int_equal(normal->updater->vectors[a].count, first + count);
    assert_memory_equal(normal->run.values[a] + first, plain->run.values[b], count * sizeof(float));
}

static void learn_both(struct study *normal, struct study *plain)
{
    struct items *raw = items_create(&normal->updater->sources[0], PAPER_ROWS);
    struct items *done = items_create(&plain->updater->sources[0], PAPER_ROWS);
    for (uint64_t step = 1; step <= STEPS; step++) {
        spread(raw, step);
        spread(done, step);
        normalize(normal, "observation", done);
        normalize(normal, "next_observation", done);
        assert_int_equal(study_step(normal, &raw->batch), TRP_OK);
        assert_int_equal(study_step(plain, &done->batch), TRP_OK);
    }
    items_destroy(raw);
    items_destroy(done);
}

static void it_learns_as_from_states_that_are_normal(void **state)
{
    (void)state;
    struct store store = store_create(0);
    trp_agent agent = agent_of(false);
    struct study *normal = normal_study(&store, 3);
    struct study *plain = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    learn_both(normal, plain);
    assert_int_equal(normal->updater->vectors[paper_vector(normal, "params")].fixed_count,
                     2 * PAPER_STATE);
    for (size_t i = 0; i < PAPER_STATE; i++) {
        paper_assert_close((double)tensor_of(normal, "states.mean", PAPER_STATE)[i], store.mean[i],
                           "mean");
        paper_assert_close((double)tensor_of(normal, "states.deviation", PAPER_STATE)[i],
                           store.deviation[i] + 1e-3, "deviation");
    }
    assert_as_plain(normal, plain, "params", 2 * PAPER_STATE);
    assert_as_plain(normal, plain, "target_params", 2 * PAPER_STATE);
    assert_as_plain(normal, plain, "critics", 0);
    assert_as_plain(normal, plain, "target_critics", 0);
    study_destroy(plain);
    study_destroy(normal);
    store_destroy(&store);
}

static void it_resumes_bit_for_bit_with_the_numbers_of_its_checkpoint(void **state)
{
    (void)state;
    struct store store = store_create(0), other = store_create(1e3F);
    struct study *whole = normal_study(&store, 3), *resumed = normal_study(&other, 4);
    struct items *items[STEPS];
    for (size_t i = 0; i < STEPS; i++) {
        items[i] = items_create(&whole->updater->sources[0], PAPER_ROWS);
        spread(items[i], i);
    }
    study_assert_resumes(whole, resumed, items, STEPS, 3);
    for (size_t i = 0; i < STEPS; i++)
        items_destroy(items[i]);
    study_destroy(whole);
    study_destroy(resumed);
    store_destroy(&store);
    store_destroy(&other);
}

/* ---- acting -------------------------------------------------------------------------------- */

static void act(const trp_agent *agent, const float *params, const struct items *items,
                float actions[PAPER_ROWS][PAPER_ACTION])
{
    trp_policy *policy;
    assert_int_equal(agent->impl->policy(agent, &paper_env,
                                         &(trp_policy_options){.rows = PAPER_ROWS, .greedy = true},
                                         &policy),
                     TRP_OK);
    assert_int_equal(policy->impl->load(policy, params, policy->param_count), TRP_OK);
    assert_int_equal(policy->impl->load(policy, params, policy->param_count - 1),
                     TRP_INVALID_ARGUMENT);
    assert_int_equal(policy->impl->load(policy, params, policy->param_count - 2 * PAPER_STATE),
                     TRP_INVALID_ARGUMENT); /* the network's alone */
    const void *states = items_column(items, "observation");
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    assert_int_equal(policy->impl->act(policy, &(trp_act){.rows = PAPER_ROWS,
                                                          .observations = &states,
                                                          .rng = &rng,
                                                          .actions = actions}),
                     TRP_OK);
    trp_policy_destroy(policy);
}

static void who_pulls_its_parameters_acts_as_on_states_that_are_normal(void **state)
{
    (void)state;
    struct store store = store_create(0);
    struct study *study = normal_study(&store, 3);
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    trp_agent normal = agent_of(true), plain = agent_of(false);
    const float *params = study->run.values[paper_vector(study, "params")];
    float actions[PAPER_ROWS][PAPER_ACTION], should[PAPER_ROWS][PAPER_ACTION];
    spread(items, 7);
    act(&normal, params, items, actions);
    normalize(study, "observation", items);
    act(&plain, params + 2 * PAPER_STATE, items, should);
    assert_memory_equal(actions, should, sizeof actions);
    items_destroy(items);
    study_destroy(study);
    store_destroy(&store);
}

/* ---- what it cannot do --------------------------------------------------------------------- */

static void assert_refused(const char *dir, trp_status status, const char *words)
{
    trp_agent agent = agent_of(true);
    trp_updater *updater;
    assert_int_equal(
        agent.impl->updater(&agent, &paper_env, &(trp_updater_options){.dataset = dir}, &updater),
        status);
    assert_null(updater);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' does not say '%s'", trp_last_error(), words);
}

static void what_has_no_means_is_refused_by_name(void **state)
{
    (void)state;
    struct store store = store_create(INFINITY);
    char *words = xasprintf("td3: number 1 of 'observation' has no finite mean and deviation in "
                            "table 'transitions' of %s",
                            store.dir);
    assert_refused(NULL, TRP_INVALID_ARGUMENT, "the learner has no .dataset");
    assert_refused("/tmp/test_normalizer.none", TRP_NOT_FOUND, "/tmp/test_normalizer.none");
    assert_refused(store.dir, TRP_INVALID_ARGUMENT, words);
    free(words);
    store_destroy(&store);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns_as_from_states_that_are_normal),
        cmocka_unit_test(it_resumes_bit_for_bit_with_the_numbers_of_its_checkpoint),
        cmocka_unit_test(who_pulls_its_parameters_acts_as_on_states_that_are_normal),
        cmocka_unit_test(what_has_no_means_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
