/* DQN on images: which network reads what, what is refused by name, and that a movement, which only
 * several frames show, is learned through the wrappers that make them. */
#include "agents/dqn.h"
#include "core/alloc.h"
#include "learning.h"

/* ---- an environment: which way did the square go? ----------------------------------------------
 */

enum { SIDE = 72, SQUARE = 16, STEP = 12 };

struct slide {
    uint32_t row, column, shown; /* frames so far */
    int32_t direction;           /* 1: to the right */
};

static trp_status slide_reset(void *state, trp_rng *rng)
{
    struct slide *slide = state;
    slide->shown = 0;
    slide->direction = (int32_t)trp_rng_below(rng, 2);
    slide->row = (uint32_t)trp_rng_below(rng, SIDE - SQUARE);
    slide->column = STEP + (uint32_t)trp_rng_below(rng, SIDE - SQUARE - 2 * STEP);
    return TRP_OK;
}

/* The first action does nothing; the second says the direction. */
static trp_status slide_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    struct slide *slide = state;
    (void)rng;
    outcome->terminated = slide->shown == 1;
    outcome->reward = outcome->terminated && *(const int32_t *)action == slide->direction;
    if (slide->direction == 1)
        slide->column += STEP;
    else
        slide->column -= STEP;
    slide->shown++;
    return TRP_OK;
}

static void slide_observe(const void *state, void *const *observations)
{
    const struct slide *slide = state;
    uint8_t(*pixels)[SIDE][3] = observations[0];
    memset(pixels, 0, SIDE * sizeof *pixels);
    for (uint32_t row = slide->row; row < slide->row + SQUARE; row++)
        for (uint32_t i = slide->column; i < slide->column + SQUARE && i < SIDE; i++)
            memset(pixels[row][i], 255, 3);
}

static const trp_env_impl slide_impl = {
    .spec = {.name = "Slide",
             .observations = {{.dtype = TRP_UINT8, .rank = 3, .shape = {SIDE, SIDE, 3}}},
             .action_count = 2},
    .state_bytes = sizeof(struct slide),
    .reset = slide_reset,
    .step = slide_step,
    .observe = slide_observe,
};

#define SMALL "Slide?grayscale=1&resize=36,36&frame_stack=2"

/* ---- which network ------------------------------------------------------------------------------
 */

static const trp_env_spec *find(const char *name)
{
    const trp_env_spec *spec;
    assert_int_equal(trp_env_find(name, &spec), TRP_OK);
    return spec;
}

static void the_network_is_that_of_what_is_observed(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        trp_torso network;
        const char *layer; /* its first one behind the input */
        uint32_t shape[3];
    } rows[] = {
        {"Slide", TRP_TORSO_BY_SHAPE, "body.0", {72, 72, 3}},
        {"Slide?grayscale=1", TRP_TORSO_BY_SHAPE, "body.0", {72, 72, 1}},
        {SMALL, TRP_TORSO_BY_SHAPE, "body.0", {36, 36, 2}},
        {"Slide?frame_stack=4", TRP_TORSO_BY_SHAPE, "body.0", {72, 72, 12}},
        {"Slide?resize=40,60&frame_stack=2", TRP_TORSO_IMPALA, "section.0", {40, 60, 6}},
        {"Slide?resize=4,5", TRP_TORSO_IMPALA, "section.0", {4, 5, 3}},
        {"Slide", TRP_TORSO_MLP, "body.0", {72 * 72 * 3}},
        {"CartPole-v1", TRP_TORSO_BY_SHAPE, "body.0", {4}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_dqn(&(trp_dqn_options){.network = rows[i].network});
        assert_int_equal(trp_agent_check(&agent, rows[i].env), TRP_OK);
        trp_dqn_options options = dqn_options(&agent);
        struct q_net q = dqn_net(&options);
        trp_net_spec spec = q_net_spec(&q, find(rows[i].env));
        assert_memory_equal(spec.layers[0].shape, rows[i].shape, sizeof rows[i].shape);
        assert_string_equal(spec.layers[1].name, rows[i].layer);
        bool convolves = spec.layers[1].kind == TRP_CONV2D;
        assert_int_equal(convolves, rows[i].shape[1] > 0);
    }
}

static void dueling_and_noisy_are_of_every_network(void **state)
{
    (void)state;
    for (uint32_t network = TRP_TORSO_NATURE; network <= TRP_TORSO_IMPALA; network++)
        for (uint32_t how = 0; how < 4; how++) {
            trp_dqn_options options = {
                .network = network, .dueling = how & 1, .noisy = (how & 2) != 0};
            struct q_net q = dqn_net(&options);
            trp_net_spec spec = q_net_spec(&q, find(SMALL));
            uint32_t dueling = 0, linear = 0, noisy = 0;
            assert_int_equal(trp_net_spec_check(&spec), TRP_OK);
            assert_int_equal(trp_net_output_width(&spec, 0), 2);
            for (uint32_t i = 0; i < spec.layer_count; i++) {
                dueling += spec.layers[i].kind == TRP_DUELING;
                linear += spec.layers[i].kind == TRP_LINEAR;
                noisy += spec.layers[i].kind == TRP_NOISY_LINEAR;
            }
            assert_int_equal(dueling, options.dueling);
            assert_int_equal(options.noisy ? linear : noisy, 0);
            assert_int_equal(linear + noisy, options.dueling ? 3 : 2);
        }
}

static void what_a_network_cannot_read_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        trp_torso network;
        const char *words;
    } rows[] = {
        {"CartPole-v1", TRP_TORSO_NATURE,
         "dqn: CartPole-v1 observes float32 [4]; the network nature reads images of bytes"},
        {"CartPole-v1?frame_stack=3", TRP_TORSO_IMPALA,
         "observes float32 [3][4]; the network impala"},
        {"Slide?resize=35,36", TRP_TORSO_BY_SHAPE,
         "observes uint8 [35][36][3]; the network nature does not fit"},
        {"Slide?resize=35,36", TRP_TORSO_NATURE, "smaller ones network=impala or mlp"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_dqn(&(trp_dqn_options){.network = rows[i].network});
        assert_int_equal(trp_agent_check(&agent, rows[i].env), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), rows[i].words);
    }
    trp_agent agent = trp_dqn(NULL);
    assert_int_equal(
        trp_options_set(trp_dqn_option_table(), agent.options.bytes, "network", "lstm"),
        TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "nature"));
}

/* ---- frames are channels
 * -------------------------------------------------------------------------
 */

enum { ROWS = 16, FRAMES = 3, PIXELS = 40 * 37 };

/* By how much the network prefers the second action, with frames that are sorted here. */
static void judge(const trp_net_spec *spec, const float *params, const uint8_t *frames,
                  float margins[ROWS])
{
    uint8_t *pixels = xcalloc(ROWS, FRAMES * PIXELS * 3);
    float values[ROWS][2];
    trp_net *net;
    for (size_t row = 0; row < ROWS; row++)
        for (size_t frame = 0; frame < FRAMES; frame++)
            for (size_t pixel = 0; pixel < PIXELS; pixel++)
                for (size_t i = 0; i < 3; i++)
                    pixels[((row * PIXELS + pixel) * FRAMES + frame) * 3 + i] =
                        frames[((row * FRAMES + frame) * PIXELS + pixel) * 3 + i];
    assert_int_equal(trp_net_create(&net, &(trp_net_options){.spec = spec, .batch = ROWS}), TRP_OK);
    trp_net_forward(net, params,
                    &(trp_net_rows){.rows = ROWS, .inputs = {pixels}, .outputs = {values[0]}});
    for (size_t row = 0; row < ROWS; row++)
        margins[row] = values[row][1] - values[row][0];
    trp_net_destroy(net);
    free(pixels);
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Each frame of a row has a brightness of its own: what is in which channel matters. */
static uint8_t *draw_frames(trp_rng *rng)
{
    uint8_t *frames = xcalloc(ROWS, FRAMES * PIXELS * 3);
    for (size_t i = 0; i < (size_t)ROWS * FRAMES; i++)
        memset(frames + i * PIXELS * 3, (int)trp_rng_below(rng, 256), PIXELS * 3);
    return frames;
}

static void a_policy_reads_the_frames_of_a_pixel_as_its_channels(void **state)
{
    (void)state;
    trp_agent agent = trp_dqn(NULL);
    trp_net_spec spec =
        trp_nature_cnn(&(trp_cnn_options){.height = 40, .width = 37, .channels = 9, .outputs = 2});
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    size_t count = trp_net_param_count(&spec), last = trp_net_tensors(&spec, tensors) - 1;
    float *params = trp_floats_create(count), margins[ROWS], sorted[ROWS];
    trp_rng rng;
    trp_rng_init(&rng, 3, 0);
    trp_net_init(&spec, &rng, params);
    uint8_t *frames = draw_frames(&rng);
    judge(&spec, params, frames, margins);
    memcpy(sorted, margins, sizeof sorted);
    qsort(sorted, ROWS, sizeof *sorted, compare_floats);
    float middle = (sorted[ROWS / 2 - 1] + sorted[ROWS / 2]) / 2;
    assert_string_equal(tensors[last].name, "head.bias");
    params[tensors[last].offset] += middle; /* so half of the rows are for each action */

    trp_policy *policy;
    assert_int_equal(trp_agent_policy_create(&policy, &agent, "Slide?resize=40,37&frame_stack=3",
                                             &(trp_policy_options){.rows = ROWS, .greedy = true}),
                     TRP_OK);
    assert_int_equal(trp_params_use(&(trp_params_state){.params = params, .count = count}, policy),
                     TRP_OK);
    int32_t actions[ROWS];
    trp_act act = {
        .observations = (const void *[]){frames}, .rows = ROWS, .rng = &rng, .actions = actions};
    assert_int_equal(policy->impl->act(policy, &act), TRP_OK);
    for (size_t row = 0; row < ROWS; row++)
        assert_int_equal(actions[row], margins[row] > middle);
    trp_policy_destroy(policy);
    trp_floats_destroy(params);
    free(frames);
}

/* ---- a run
 * -----------------------------------------------------------------------------------------
 */

static void a_movement_is_learned_from_two_frames(void **state)
{
    (void)state;
    double seen = learning_return(
        &(struct learning){.agent = trp_dqn(&(trp_dqn_options){.n_step = 1,
                                                               .batch_size = 16,
                                                               .min_replay_size = 200,
                                                               .replay_size = 2000,
                                                               .target_period = 20,
                                                               .epsilon_steps = 300,
                                                               .learning_rate = 5e-4F}),
                           .env = SMALL,
                           .steps = 400,
                           .episodes = 300});
    print_message("%.0f %% are seen\n", 100 * seen);
    assert_true(seen > 0.9); /* guessing has 0.5 */
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    if (trp_env_register(&slide_impl) != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_network_is_that_of_what_is_observed),
        cmocka_unit_test(dueling_and_noisy_are_of_every_network),
        cmocka_unit_test(what_a_network_cannot_read_is_refused_by_name),
        cmocka_unit_test(a_policy_reads_the_frames_of_a_pixel_as_its_channels),
        cmocka_unit_test(a_movement_is_learned_from_two_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
