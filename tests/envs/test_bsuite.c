/* The environments of bsuite do what bsuite's own do in every setting, and its scores are bsuite's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/bsuite.h>
#include <troupe/env.h>
#include "tests/golden/bsuite.h"

enum { NUMBERS_MAX = 50 * 50, STATE_BYTES_MAX = 256, COUNT_BYTES = 32, EPISODES = 4 };

struct run {
    trp_env *env;
    const trp_env_spec *spec;
    float observation[NUMBERS_MAX], last[NUMBERS_MAX], reward;
    bool terminated, truncated;
    void *rows[1], *lasts[1];
    size_t numbers; /* of an observation */
};

static void run_open(struct run *run, const char *experiment, uint32_t setting)
{
    char name[64];
    snprintf(name, sizeof name, "bsuite/%s?setting=%u", experiment, setting);
    *run = (struct run){.rows = {run->observation}, .lasts = {run->last}};
    if (trp_env_create(&run->env, name, NULL) != TRP_OK)
        fail_msg("%s", trp_last_error());
    run->spec = trp_env_get_spec(run->env);
    run->numbers = trp_tensor_bytes(&run->spec->observations[0]) / sizeof(float);
    assert_true(run->numbers <= NUMBERS_MAX);
    assert_true(trp_env_state_bytes(run->env) <= STATE_BYTES_MAX);
    assert_int_equal(trp_env_reset(run->env, run->rows), TRP_OK);
}

static void run_step(struct run *run, int32_t action)
{
    const trp_env_buffers buffers = {run->rows,       run->lasts, &run->reward, &run->terminated,
                                     &run->truncated, NULL,       NULL};
    assert_int_equal(trp_env_step(run->env, &action, &buffers), TRP_OK);
    assert_false(run->truncated);
}

static double run_info(const struct run *run, const char *name)
{
    for (size_t i = 0; i < trp_env_info_count(run->spec); i++)
        if (strcmp(run->spec->infos[i].name, name) == 0)
            return trp_env_infos(run->env)[i];
    fail_msg("%s says no %s", run->spec->name, name);
    return NAN;
}

static bool is_of(const char *experiment, const char *word)
{
    return strstr(experiment, word) != NULL;
}

/* ---- what is fixed at the start of an episode, behind what is counted ------------------------ */

static void state_read(const struct run *run, uint8_t bytes[STATE_BYTES_MAX])
{
    memset(bytes, 0, STATE_BYTES_MAX);
    assert_int_equal(trp_env_get_state(run->env, 0, NULL, bytes), TRP_OK);
}

static void fix_start(struct run *run, const char *experiment, int episode)
{
    static const double poles[EPISODES][4] = {{0.01, -0.02, 0.03, -0.04},
                                              {-0.5, 0.7, 0.11, -0.2},
                                              {0.3, 0.1, -0.0625, 0.05},
                                              {2.9, 1.5, 0.2, 0.4}};
    static const double positions[EPISODES] = {-0.51234, -0.45, -0.59, -0.55};
    uint8_t bytes[STATE_BYTES_MAX], *own = bytes + COUNT_BYTES;
    int32_t bits = (int32_t)run->numbers - 2;
    state_read(run, bytes);
    if (is_of(experiment, "cartpole")) {
        double pole[5] = {0};
        memcpy(pole, poles[episode], sizeof poles[episode]);
        pole[2] += is_of(experiment, "swingup") ? M_PI : 0;
        memcpy(own, pole, sizeof pole);
    } else if (is_of(experiment, "mountain_car")) {
        memcpy(own, &positions[episode], sizeof(double));
    } else if (is_of(experiment, "catch")) {
        memcpy(own, (int32_t[]){(3 * episode + 1) % 5}, sizeof(int32_t));
    } else if (is_of(experiment, "memory")) {
        memcpy(own, (int32_t[]){0, 0, (7 * episode + 2) % bits}, 3 * sizeof(int32_t));
        for (int32_t i = 0; i < bits; i++)
            own[3 * sizeof(int32_t) + (size_t)i] = (uint8_t)((i * i + episode + i / 3) % 2);
    } else if (is_of(experiment, "umbrella")) {
        memcpy(own, (int32_t[]){0, episode % 2, episode / 2}, 3 * sizeof(int32_t));
    }
    assert_int_equal(trp_env_set_state(run->env, 0, NULL, bytes, run->rows), TRP_OK);
}

/* How many bytes of the state are compared, too. */
static size_t compared_bytes(const char *experiment)
{
    if (is_of(experiment, "cartpole"))
        return 5 * sizeof(double);
    return is_of(experiment, "mountain_car") ? 2 * sizeof(double) : 0;
}

/* ---- what is done ---------------------------------------------------------------------------- */

/* The action that goes right in the cell of deep_sea where the diver is: found by trying. */
static int32_t action_to_the_right(struct run *run)
{
    uint8_t before[STATE_BYTES_MAX], after[STATE_BYTES_MAX];
    int32_t place[2], next[2];
    trp_env_progress progress;
    int32_t size = run->spec->observations[0].shape[0];
    state_read(run, before);
    assert_int_equal(trp_env_get_state(run->env, 0, &progress, before), TRP_OK);
    memcpy(place, before + COUNT_BYTES, sizeof place);
    if (place[0] == size - 1) { /* a step ends the episode: the cell above pays, too */
        run_step(run, 0);
        int32_t action = run->reward > -0.02F && run->reward != 0 ? 0 : 1;
        assert_int_equal(trp_env_set_state(run->env, 0, &progress, before, run->rows), TRP_OK);
        return action;
    }
    run_step(run, 0);
    state_read(run, after);
    memcpy(next, after + COUNT_BYTES, sizeof next);
    assert_int_equal(trp_env_set_state(run->env, 0, &progress, before, run->rows), TRP_OK);
    return next[1] > place[1] ? 0 : 1;
}

static int32_t act(struct run *run, const char *experiment, int32_t k, int32_t episode,
                   int32_t setting)
{
    const float *seen = run->observation;
    if (episode % 2 == 1) {
        if (is_of(experiment, "cartpole"))
            return (double)seen[2] + 0.3 * (double)seen[4] > 0 ? 2 : 0;
        if (is_of(experiment, "mountain_car"))
            return seen[1] >= 0 ? 2 : 0;
        if (is_of(experiment, "deep_sea"))
            return action_to_the_right(run);
    }
    int32_t held = k / (1 + episode);
    return (held * held * 7 + held * 2 + k / 8 + setting + episode) % run->spec->action_count;
}

/* ---- every setting --------------------------------------------------------------------------- */

static void hash_add(uint64_t *hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++)
        *hash = (*hash ^ bytes[i]) * UINT64_C(0x100000001b3);
}

static void hash_step(uint64_t *hash, const struct run *run, const char *experiment)
{
    bool umbrella = is_of(experiment, "umbrella");
    size_t numbers = umbrella ? 3 : run->numbers;
    const uint8_t ended = run->terminated;
    uint8_t bytes[STATE_BYTES_MAX];
    hash_add(hash, ended ? run->last : run->observation, numbers * sizeof(float));
    if (!is_of(experiment, "_noise") && (!umbrella || ended))
        hash_add(hash, &run->reward, sizeof run->reward);
    hash_add(hash, &ended, 1);
    if (ended)
        return;
    state_read(run, bytes);
    hash_add(hash, bytes + COUNT_BYTES, compared_bytes(experiment));
}

static void assert_plays_as(const struct bsuite_episodes *golden)
{
    struct run run;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    int64_t steps = 0;
    const trp_bsuite_experiment *experiment;
    assert_int_equal(trp_bsuite_find(golden->experiment, &experiment), TRP_OK);
    run_open(&run, golden->experiment, golden->setting);
    assert_int_equal(run.spec->action_count, golden->actions);
    assert_int_equal(run.spec->observations[0].rank, 2);
    assert_int_equal(run.spec->observations[0].shape[0], golden->shape[0]);
    assert_int_equal(run.spec->observations[0].shape[1], golden->shape[1]);
    assert_int_equal(experiment->episodes, golden->episodes);
    for (int episode = 0; episode < EPISODES; episode++) {
        int32_t k = 0;
        fix_start(&run, golden->experiment, episode);
        do {
            run_step(&run, act(&run, golden->experiment, k++, episode, (int32_t)golden->setting));
            hash_step(&hash, &run, golden->experiment);
        } while (!run.terminated);
        steps += k;
    }
    assert_int_equal(steps, golden->steps);
    assert_true(run_info(&run, "episode") == EPISODES);
    if (golden->hash != 0) {
        if (hash != golden->hash)
            fail_msg("%s is not as bsuite's", run.spec->name);
        assert_true(run_info(&run, experiment->total) == golden->total);
        if (is_of(golden->experiment, "cartpole"))
            assert_true(run_info(&run, experiment->best) == golden->best);
    }
    trp_env_destroy(run.env);
}

static void every_setting_of_every_experiment_is_bsuites(void **state)
{
    (void)state;
    enum { COUNT = sizeof golden_episodes / sizeof golden_episodes[0] };
    const trp_bsuite_experiment *experiment;
    size_t settings = 0;
    for (size_t i = 0; (experiment = trp_bsuite_at(i)); i++)
        settings += experiment->settings;
    assert_int_equal(settings, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_plays_as(&golden_episodes[i]);
}

static void a_setting_beyond_the_last_is_refused(void **state)
{
    (void)state;
    const trp_env_spec *spec;
    const trp_bsuite_experiment *experiment;
    for (size_t i = 0; (experiment = trp_bsuite_at(i)); i++) {
        char name[64];
        snprintf(name, sizeof name, "bsuite/%s?setting=%u", experiment->name, experiment->settings);
        assert_int_equal(trp_env_find(name, &spec), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), "setting is"));
    }
    assert_int_equal(trp_bsuite_find("memory", &experiment), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "memory_size"));
}

/* ---- what is drawn --------------------------------------------------------------------------- */

enum { DRAWS = 20000 };

struct moments {
    double sum, squares, count;
};

static void moments_add(struct moments *moments, double value)
{
    moments->sum += value;
    moments->squares += value * value;
    moments->count++;
}

static void assert_moments(const struct moments *moments, double mean, double deviation)
{
    double its_mean = moments->sum / moments->count;
    double its_deviation = sqrt(moments->squares / moments->count - its_mean * its_mean);
    assert_true(moments->count >= DRAWS / 8.0);
    assert_true(fabs(its_mean - mean) <= 5 * deviation / sqrt(moments->count) + 1e-9);
    assert_true(fabs(its_deviation - deviation) <= 0.05 * deviation + 1e-9);
}

/* Rewards of the variants with noise, around those without: 1 step of bandit, -1 of mountain_car.
 */
static void noise_is_normal_with_the_settings_deviation(void **state)
{
    (void)state;
    static const double deviations[] = {0.1, 0.3, 1, 3, 10};
    static const char *const experiments[] = {"bandit_noise", "catch_noise", "cartpole_noise",
                                              "mountain_car_noise"};
    for (size_t i = 0; i < 4 * 5; i++) {
        struct run run;
        struct moments moments = {0};
        const char *experiment = experiments[i % 4];
        run_open(&run, experiment, (uint32_t)(i / 4 * 4 + i % 4));
        int32_t arm = i % 4 == 0 ? 2 : 0; /* arm 2 of mapping_seed 0 pays 0.2 */
        for (int k = 0; k < DRAWS; k++) {
            run_step(&run, arm);
            if (i % 4 == 0)
                moments_add(&moments, (double)run.reward - 0.2);
            else if (i % 4 == 3)
                moments_add(&moments, (double)run.reward + 1);
            else if (i % 4 == 1 && !run.terminated)
                moments_add(&moments, (double)run.reward);
            else if (i % 4 == 2 && !run.terminated)
                moments_add(&moments, (double)run.reward - 1);
        }
        assert_moments(&moments, 0, deviations[i / 4]);
        trp_env_destroy(run.env);
    }
}

static void episodes_start_as_bsuites(void **state)
{
    (void)state;
    struct run run;
    struct moments pole = {0}, swing = {0}, car = {0}, ball = {0}, bit = {0}, query = {0},
                   need = {0}, has = {0};
    static const char *const names[] = {"cartpole", "cartpole_swingup", "mountain_car",
                                        "catch",    "memory_size",      "umbrella_distract"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        run_open(&run, names[i], 5);
        for (int k = 0; k < DRAWS; k++) {
            uint8_t bytes[STATE_BYTES_MAX];
            double numbers[4];
            int32_t integers[3];
            assert_int_equal(trp_env_reset(run.env, run.rows), TRP_OK);
            state_read(&run, bytes);
            memcpy(numbers, bytes + COUNT_BYTES, sizeof numbers);
            memcpy(integers, bytes + COUNT_BYTES, sizeof integers);
            if (i == 0)
                moments_add(&pole, numbers[k % 4]);
            else if (i == 1)
                moments_add(&swing, numbers[2]);
            else if (i == 2)
                moments_add(&car, numbers[0]);
            else if (i == 3)
                moments_add(&ball, integers[0]);
            else if (i == 4)
                moments_add(&bit, bytes[COUNT_BYTES + 12 + k % 6]);
            if (i == 4)
                moments_add(&query, integers[2]);
            if (i == 5) {
                moments_add(&need, integers[1]);
                moments_add(&has, integers[2]);
            }
        }
        trp_env_destroy(run.env);
    }
    double uniform = 1 / sqrt(12);
    assert_moments(&pole, 0, 0.1 * uniform);
    assert_moments(&swing, M_PI, 0.1 * uniform);
    assert_moments(&car, -0.5, 0.2 * uniform);
    assert_moments(&ball, 2, sqrt(2));
    assert_moments(&bit, 0.5, 0.5);
    assert_moments(&query, 2.5, sqrt(35.0 / 12));
    assert_moments(&need, 0.5, 0.5);
    assert_moments(&has, 0.5, 0.5);
}

static void an_umbrellas_distractors_and_rewards_on_the_way_are_coins(void **state)
{
    (void)state;
    struct run run;
    struct moments coins = {0}, rewards = {0}, pairs = {0};
    run_open(&run, "umbrella_distract", 22);
    assert_int_equal(run.numbers, 103);
    for (int k = 0; k < DRAWS; k++) {
        const float *noise = run.observation + 3;
        run_step(&run, k % 2);
        moments_add(&coins, (double)noise[k % 100]);
        moments_add(&pairs, noise[k % 100] == noise[(k + 64) % 100]);
        if (!run.terminated)
            moments_add(&rewards, (double)run.reward);
    }
    assert_moments(&coins, 0.5, 0.5);
    assert_moments(&pairs, 0.5, 0.5);
    assert_moments(&rewards, 0, 1);
    trp_env_destroy(run.env);
}

/* Of 10 steps to the right one fails; at both ends of the bottom there is noise. */
static void the_stochastic_sea_has_wind_and_noise(void **state)
{
    (void)state;
    struct run run;
    struct moments fails = {0}, left = {0}, middle = {0};
    run_open(&run, "deep_sea_stochastic", 0);
    uint8_t bytes[STATE_BYTES_MAX], after[STATE_BYTES_MAX];
    int32_t right = -1, place[3];
    for (int k = 0; k < DRAWS; k++) {
        state_read(&run, bytes);
        memcpy(bytes + COUNT_BYTES, (int32_t[]){4, 2, 0}, sizeof place);
        assert_int_equal(trp_env_set_state(run.env, 0, NULL, bytes, run.rows), TRP_OK);
        run_step(&run, right >= 0 ? right : k % 2);
        state_read(&run, after);
        memcpy(place, after + COUNT_BYTES, sizeof place);
        if (right < 0 && place[1] == 3)
            right = k % 2;
        else if (right >= 0)
            moments_add(&fails, place[1] == 2);
    }
    assert_moments(&fails, 0.1, 0.3);
    for (int k = 0; k < 2 * DRAWS; k++) {
        state_read(&run, bytes);
        memcpy(bytes + COUNT_BYTES, (int32_t[]){9, k % 2 ? 5 : 0, 1}, sizeof place);
        assert_int_equal(trp_env_set_state(run.env, 0, NULL, bytes, run.rows), TRP_OK);
        run_step(&run, 0);
        moments_add(k % 2 ? &middle : &left, (double)run.reward);
    }
    assert_true(middle.sum / middle.count == 0 || fabs(middle.sum / middle.count + 0.001) <= 1e-8);
    assert_true(fabs(left.sum / left.count) <= 0.05);
    assert_true(fabs(left.squares / left.count - 1) <= 0.05);
    trp_env_destroy(run.env);
}

static void states_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *experiment;
        int32_t numbers[3]; /* at the beginning of its own part */
    } cases[] = {
        {"catch", {5, 0, 2}},           {"catch", {0, 9, 2}},
        {"memory_len", {7, 6, 0}},      {"memory_len", {2, 0, 0}},
        {"memory_len", {0, 0, 1}},      {"umbrella_length", {6, 0, 0}},
        {"umbrella_length", {0, 2, 0}}, {"discounting_chain", {100, 0, 0}},
        {"discounting_chain", {1, -1}}, {"discounting_chain", {0, 2}},
        {"deep_sea", {20, 0, 0}},       {"deep_sea", {3, 4, 0}},
        {"deep_sea_stochastic", {-1}},
    };
    struct run run;
    uint8_t bytes[STATE_BYTES_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_open(&run, cases[i].experiment, 5);
        state_read(&run, bytes);
        memcpy(bytes + COUNT_BYTES, cases[i].numbers, sizeof cases[i].numbers);
        assert_int_equal(trp_env_set_state(run.env, 0, NULL, bytes, run.rows),
                         TRP_INVALID_ARGUMENT);
        trp_env_destroy(run.env);
    }
    static const struct {
        const char *experiment;
        double numbers[2];
    } moving[] = {{"cartpole", {3.1, 0}},         {"cartpole_scale", {0, NAN}},
                  {"cartpole_swingup", {NAN, 0}}, {"mountain_car", {0.7, 0}},
                  {"mountain_car", {0, 0.08}},    {"mountain_car_noise", {NAN, 0}}};
    for (size_t i = 0; i < sizeof moving / sizeof moving[0]; i++) {
        run_open(&run, moving[i].experiment, 5);
        state_read(&run, bytes);
        memcpy(bytes + COUNT_BYTES, moving[i].numbers, sizeof moving[i].numbers);
        assert_int_equal(trp_env_set_state(run.env, 0, NULL, bytes, run.rows),
                         TRP_INVALID_ARGUMENT);
        trp_env_destroy(run.env);
    }
    const trp_bsuite_experiment *experiment;
    for (size_t i = 0; (experiment = trp_bsuite_at(i)); i++) {
        run_open(&run, experiment->name, 5);
        state_read(&run, bytes);
        memcpy(bytes + sizeof(int64_t), (double[]){NAN}, sizeof(double));
        assert_int_equal(trp_env_set_state(run.env, 0, NULL, bytes, run.rows),
                         TRP_INVALID_ARGUMENT);
        trp_env_destroy(run.env);
    }
}

/* ---- what is counted ------------------------------------------------------------------------- */

static void the_sea_is_solved_when_bsuites_log_says_so(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_solved / sizeof golden_solved[0]; i++) {
        const struct bsuite_solved *golden = &golden_solved[i];
        struct run run;
        run_open(&run, golden->experiment, golden->setting);
        uint8_t start[STATE_BYTES_MAX];
        for (int64_t episode = 0; episode < 10000; episode++) {
            bool bad = episode < golden->bad_first ||
                       (golden->bad_every && episode % golden->bad_every == 0);
            state_read(&run, start); /* the last step of an episode that went so */
            int32_t size = run.spec->observations[0].shape[0];
            memcpy(start + COUNT_BYTES, (int32_t[]){size - 1, 0, bad}, 3 * sizeof(int32_t));
            assert_int_equal(trp_env_set_state(run.env, 0, NULL, start, NULL), TRP_OK);
            run_step(&run, 0);
        }
        assert_true(run_info(&run, "solved_episode") == golden->solved);
        assert_true(run_info(&run, "bsuite_score") == golden->score);
        trp_env_destroy(run.env);
    }
}

static void nothing_is_counted_beyond_an_experiments_episodes(void **state)
{
    (void)state;
    struct run run;
    run_open(&run, "discounting_chain", 3);
    for (int i = 0; i < 1000 * 100; i++)
        run_step(&run, 3);
    double total = run_info(&run, "total_return");
    assert_true(run_info(&run, "episode") == 1000);
    assert_true(fabs(total - 1100) <= 1e-6);
    assert_true(run_info(&run, "bsuite_score") >= 1 - 1e-9);
    for (int i = 0; i < 500 * 100; i++)
        run_step(&run, 0);
    assert_true(run_info(&run, "episode") == 1000);
    assert_true(run_info(&run, "total_return") == total);
    assert_true(run_info(&run, "bsuite_score") >= 1 - 1e-9);
    trp_env_destroy(run.env);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static double share(uint32_t setting, uint32_t which, uint32_t what)
{
    return (setting * 7919 + which * 104729 + what * 1299709 + 13) % 1009 / 1009.0;
}

/* The episodes of bsuite's log. */
static int64_t logged(size_t index)
{
    static const int64_t tenths[] = {12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100};
    enum { DECADE = sizeof tenths / sizeof tenths[0] };
    if (index < 10)
        return (int64_t)index + 1;
    int64_t power = 1;
    for (size_t i = (index - 10) / DECADE; i > 0; i--)
        power *= 10;
    return tenths[(index - 10) % DECADE] * power;
}

static trp_bsuite_run recorded(const struct bsuite_scores *golden,
                               const trp_bsuite_experiment *experiment, uint32_t setting)
{
    enum { LOGGED = 10 + 3 * 13 };
    uint32_t which = golden->which;
    int64_t episodes =
        golden->partial && setting % 3 == 0 ? experiment->episodes / 2 : experiment->episodes;
    double rate = golden->low + share(setting, which, 0) * (golden->high - golden->low);
    double best =
        golden->best_low + share(setting, which, 1) * (golden->best_high - golden->best_low);
    trp_bsuite_run run = {setting, episodes, rint(rate * (double)episodes), rint(best)};
    if (!is_of(experiment->name, "deep_sea"))
        return run;
    int64_t at = logged((size_t)(share(setting, which, 2) * LOGGED));
    int64_t from = is_of(experiment->name, "stochastic") ? 100 : 1;
    run.best = (double)(at > from ? at : from);
    if (share(setting, which, 3) <= 0.2 || run.best > (double)episodes)
        run.best = 0;
    return run;
}

static void scores_are_those_of_bsuites_analysis(void **state)
{
    (void)state;
    int different = 0;
    for (size_t i = 0; i < sizeof golden_scores / sizeof golden_scores[0]; i++) {
        const struct bsuite_scores *golden = &golden_scores[i];
        const trp_bsuite_experiment *experiment;
        trp_bsuite_run runs[32];
        assert_int_equal(trp_bsuite_find(golden->experiment, &experiment), TRP_OK);
        for (uint32_t k = 0; k < experiment->settings; k++)
            runs[k] = recorded(golden, experiment, k);
        double score = trp_bsuite_score(experiment, runs, experiment->settings);
        if (!(fabs(score - golden->score) <= 1e-12))
            fail_msg("%s, %u: %.17g, bsuite has %.17g", golden->experiment, golden->which, score,
                     golden->score);
        different += golden->score > 0 && golden->score < 1;
        assert_true(trp_bsuite_score(experiment, runs, 0) == 0);
    }
    assert_true(different >= 45);
}

static void a_run_is_read_from_an_actors_metrics(void **state)
{
    (void)state;
    trp_bsuite_run run;
    const trp_metric metrics[] = {
        {"epsilon", 0.1}, {"raw_return", 1234}, {"best_episode", 600}, {"episode", 20}};
    assert_int_equal(
        trp_bsuite_read("bsuite/cartpole_noise?setting=7&frame_stack=2", metrics, 4, &run), TRP_OK);
    assert_int_equal(run.setting, 7);
    assert_int_equal(run.episodes, 20);
    assert_true(run.total == 1234 && run.best == 600);
    assert_int_equal(trp_bsuite_read("bsuite/cartpole", metrics, 3, &run), TRP_FAILED_PRECONDITION);
    assert_int_equal(trp_bsuite_read("bsuite/bandit", metrics, 4, &run), TRP_FAILED_PRECONDITION);
    assert_int_equal(trp_bsuite_read("CartPole-v1", metrics, 4, &run), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "CartPole-v1"));
    assert_int_equal(trp_bsuite_read("bsuite/cartpole?setting=20", metrics, 4, &run),
                     TRP_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_of_every_experiment_is_bsuites),
        cmocka_unit_test(a_setting_beyond_the_last_is_refused),
        cmocka_unit_test(noise_is_normal_with_the_settings_deviation),
        cmocka_unit_test(episodes_start_as_bsuites),
        cmocka_unit_test(an_umbrellas_distractors_and_rewards_on_the_way_are_coins),
        cmocka_unit_test(the_stochastic_sea_has_wind_and_noise),
        cmocka_unit_test(states_that_cannot_be_are_refused),
        cmocka_unit_test(the_sea_is_solved_when_bsuites_log_says_so),
        cmocka_unit_test(nothing_is_counted_beyond_an_experiments_episodes),
        cmocka_unit_test(scores_are_those_of_bsuites_analysis),
        cmocka_unit_test(a_run_is_read_from_an_actors_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
