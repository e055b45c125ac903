/* Integers from an environment to a policy and an updater of one's own: a network that embeds them
 * learns what they mean. */
#include "learning.h"

enum { WORDS = 3, VOCABULARY = 12, ACTIONS = 4, BATCH = 32 };

/* ---- the environment: a question of three words, the right answer is that of the middle one ----
 */

/* Tokens are far apart and say nothing as numbers: what 7, 3 and 11 have in common must be learnt.
 */
static const int32_t answers[VOCABULARY] = {2, 0, 3, 1, 3, 2, 0, 1, 1, 0, 2, 3};

struct question {
    int64_t asked; /* so far: also an observation, beyond what an int32 holds */
    int32_t words[WORDS];
};

static trp_status question_reset(void *state, trp_rng *rng)
{
    struct question *question = state;
    question->asked++;
    for (size_t i = 0; i < WORDS; i++)
        question->words[i] = (int32_t)trp_rng_below(rng, VOCABULARY);
    return TRP_OK;
}

static trp_status question_step(void *state, trp_rng *rng, const void *action,
                                trp_env_outcome *outcome)
{
    const struct question *question = state;
    (void)rng;
    outcome->reward = *(const int32_t *)action == answers[question->words[1]];
    outcome->terminated = true;
    return TRP_OK;
}

static void question_observe(const void *state, void *const *observations)
{
    const struct question *question = state;
    memcpy(observations[0], question->words, sizeof question->words);
    *(int64_t *)observations[1] = -(question->asked << 40);
}

static const trp_env_impl question_impl = {
    .spec = {.name = "Question",
             .observations = {{.name = "words", .dtype = TRP_INT32, .rank = 1, .shape = {WORDS}},
                              {.name = "asked", .dtype = TRP_INT64}},
             .action_count = ACTIONS},
    .state_bytes = sizeof(struct question),
    .reset = question_reset,
    .step = question_step,
    .observe = question_observe,
};

/* ---- the agent: a value for each answer, made of embedded words ---------------------------------
 */

static trp_net_spec network(void)
{
    trp_net_spec spec = {0};
    uint32_t words =
        trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .dtype = TRP_INT32, .shape = {WORDS}});
    uint32_t meaning = trp_net_add(&spec, (trp_layer){.kind = TRP_EMBEDDING,
                                                      .name = "meaning",
                                                      .from = {words},
                                                      .vocabulary = VOCABULARY,
                                                      .size = 8});
    uint32_t values = trp_net_add(
        &spec,
        (trp_layer){.kind = TRP_LINEAR, .name = "values", .from = {meaning}, .size = ACTIONS});
    trp_net_output(&spec, values);
    return spec;
}

static trp_net *plan(uint32_t rows)
{
    trp_net *net;
    trp_net_spec spec = network();
    if (trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = rows}) != TRP_OK)
        fail_msg("%s", trp_last_error());
    return net;
}

struct policy {
    trp_policy base;
    bool greedy;
    trp_net *net;
    float *params, *values;
};

static trp_status policy_act(trp_policy *base, const trp_act *act)
{
    struct policy *policy = (struct policy *)base;
    trp_net_forward(policy->net, policy->params,
                    &(trp_net_rows){.rows = act->rows,
                                    .inputs = {act->observations[0]},
                                    .outputs = {policy->values}});
    for (uint32_t row = 0; row < act->rows; row++) {
        bool best = policy->greedy || trp_rng_below(act->rng, 2) == 0;
        ((int32_t *)act->actions)[row] =
            best ? (int32_t)trp_argmax(policy->values + row * ACTIONS, NULL, ACTIONS)
                 : (int32_t)trp_rng_below(act->rng, ACTIONS);
    }
    return TRP_OK;
}

static trp_status policy_load(trp_policy *base, const float *params, size_t count)
{
    memcpy(((struct policy *)base)->params, params, count * sizeof *params);
    return TRP_OK;
}

static void policy_destroy(trp_policy *base)
{
    struct policy *policy = (struct policy *)base;
    trp_net_destroy(policy->net);
    trp_floats_destroy(policy->params);
    trp_floats_destroy(policy->values);
    free(policy);
}

static trp_status make_policy(const trp_agent *agent, const trp_env_spec *env,
                              const trp_policy_options *options, trp_policy **out)
{
    static const trp_policy_impl impl = {
        .act = policy_act, .load = policy_load, .destroy = policy_destroy};
    (void)agent, (void)env;
    uint32_t rows = options->rows ? options->rows : 1;
    trp_net_spec spec = network();
    struct policy *policy = calloc(1, sizeof *policy);
    *policy = (struct policy){.base = {.impl = &impl},
                              .greedy = options->greedy,
                              .net = plan(rows),
                              .params = trp_floats_create(trp_net_param_count(&spec)),
                              .values = trp_floats_create((size_t)rows * ACTIONS)};
    *out = &policy->base;
    return TRP_OK;
}

struct updater {
    trp_updater base;
    trp_net *net;
};

static trp_status updater_step(trp_updater *base, const trp_update *update)
{
    float values[BATCH * ACTIONS], errors[BATCH];
    const trp_batch *batch = update->batches;
    trp_net_rows rows = {.rows = batch->rows,
                         .inputs = {trp_update_column(update, 0, "observation/words")},
                         .outputs = {values}};
    const int64_t *asked = trp_update_column(update, 0, "observation/asked");
    for (uint32_t row = 0; row < batch->rows; row++)
        if (asked[row] >= 0 || asked[row] % ((int64_t)1 << 40) != 0)
            return trp_fail(TRP_DATA_LOSS, "asked is %lld", (long long)asked[row]);
    trp_q_batch q = {
        .rows = batch->rows, .actions = ACTIONS, .taken = trp_update_column(update, 0, "action")};
    trp_net *net = ((struct updater *)base)->net;
    trp_net_forward(net, update->vectors[0], &rows);
    trp_q_loss(&q, 1, values, trp_update_column(update, 0, "reward"), errors, values);
    trp_net_backward(net, update->vectors[0], &rows,
                     &(trp_net_grads){.outputs = {values}, .params = update->grads[0]});
    return trp_update_apply(update, 0);
}

static void updater_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    trp_net_spec spec = network();
    (void)base;
    trp_net_init(&spec, rng, vectors[0]);
}

static void updater_destroy(trp_updater *base)
{
    trp_net_destroy(((struct updater *)base)->net);
    free(base);
}

static trp_status make_updater(const trp_agent *agent, const trp_env_spec *env,
                               const trp_updater_options *options, trp_updater **out)
{
    static const trp_updater_impl impl = {
        .init = updater_init, .step = updater_step, .destroy = updater_destroy};
    (void)agent, (void)options;
    trp_net_spec spec = network();
    struct updater *updater = calloc(1, sizeof *updater);
    *updater = (struct updater){.base = {.impl = &impl, .source_count = 1, .vector_count = 1},
                                .net = plan(BATCH)};
    updater->base.sources[0] = (trp_batch_spec){.table = "asked", .batch_size = BATCH};
    trp_nstep_columns(env, NULL, &updater->base.sources[0].columns);
    updater->base.vectors[0] = (trp_vector_spec){.name = "params",
                                                 .count = trp_net_param_count(&spec),
                                                 .learned = true,
                                                 .optimizer = {.learning_rate = 0.02}};
    *out = &updater->base;
    return TRP_OK;
}

static trp_status make_tables(const trp_agent *agent, const trp_env_spec *env,
                              trp_agent_table_list *list)
{
    (void)agent;
    trp_table_options asked = {.name = "asked",
                               .sampler = {.kind = TRP_UNIFORM},
                               .max_size = 2000,
                               .limiter = trp_limiter_min_size(200)};
    trp_columns columns = {0};
    trp_nstep_columns(env, NULL, &columns);
    return trp_agent_table_list_add(list, &asked, &columns);
}

static trp_status make_adder(const trp_agent *agent, const trp_adder_options *options,
                             trp_adder **out)
{
    (void)agent;
    trp_adder_options own = *options;
    own.table = "asked";
    return trp_nstep_adder_create(out, &own, &(trp_nstep_options){.n_step = 1, .discount = 1});
}

static const trp_agent_impl reader_impl = {.name = "reader",
                                           .tables = make_tables,
                                           .policy = make_policy,
                                           .adder = make_adder,
                                           .updater = make_updater};

/* ---- tests -------------------------------------------------------------------------------------
 */

static void words_are_understood(void **state)
{
    (void)state;
    double right = learning_return(&(struct learning){.agent = trp_agent_make(&reader_impl, NULL),
                                                      .env = "Question",
                                                      .copies = 8,
                                                      .steps = 600,
                                                      .episodes = 300});
    print_message("%.0f %% are answered well\n", 100 * right);
    assert_true(right > 0.95); /* guessing has 0.25 */
}

static void dqn_says_that_it_has_no_embedding(void **state)
{
    (void)state;
    static trp_env_impl one;
    one = question_impl;
    one.spec.name = "OneQuestion";
    one.spec.observations[1] = (trp_tensor_spec){0};
    assert_int_equal(trp_env_register(&one), TRP_OK);
    trp_agent agent = trp_dqn(NULL);
    assert_int_equal(trp_agent_check(&agent, "OneQuestion"), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "OneQuestion observes integers"));
}

static void no_token_is_the_larger_one(void **state)
{
    (void)state;
    const trp_env_spec *spec;
    assert_int_equal(trp_env_find("Question?frame_stack=3", &spec), TRP_OK);
    assert_int_equal(spec->observations[0].dtype, TRP_INT32);
    assert_int_equal(trp_env_find("Question?frame_skip=2", &spec), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "'words' is neither float32 nor uint8"));
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    if (trp_env_register(&question_impl) != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_understood),
        cmocka_unit_test(dqn_says_that_it_has_no_embedding),
        cmocka_unit_test(no_token_is_the_larger_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
