/* A learner and DQN on a device that works late (tests/nn/late_device.h): the bits are those of the
 * host's, nobody waits for the device step by step, and what goes wrong on it ends the run. */
#include "device_run.h"

#include "tests/nn/late_device.h"

static void late_closes(trp_device *device)
{
    const struct late_device *late = (const struct late_device *)device;
    if (!late->lost)
        assert_int_equal(late->op_count, 0); /* it may still read the batches */
}

/* Every tensor of the last checkpoint: vectors, optimizer's state, counters, random numbers. */
static void assert_same_state(const char *dir, const char *other)
{
    trp_checkpoint *checkpoints[2];
    size_t count = read_both(dir, other, checkpoints);
    assert_true(count >= 6);
    for (size_t i = 0; i < count; i++) {
        const trp_checkpoint_tensor *a = trp_checkpoint_tensor_at(checkpoints[0], i);
        const trp_checkpoint_tensor *b = trp_checkpoint_tensor_at(checkpoints[1], i);
        size_t bytes = a->type == TRP_CHECKPOINT_F32 ? 4 : 8;
        for (uint32_t k = 0; k < a->rank; k++)
            bytes *= a->shape[k];
        assert_string_equal(a->name, b->name);
        if (memcmp(a->data, b->data, bytes) != 0)
            fail_msg("%s differs", a->name);
    }
    trp_checkpoint_destroy(checkpoints[0]);
    trp_checkpoint_destroy(checkpoints[1]);
}

static double reported(const trp_learner *learner, const char *name)
{
    trp_learner_counters counters = trp_learner_read(learner);
    for (size_t i = 0; i < counters.metric_count; i++)
        if (strcmp(counters.metrics[i].name, name) == 0)
            return counters.metrics[i].value;
    fail_msg("%s is not reported", name);
    return NAN;
}

static void pull(const struct run *run, trp_params_client **client)
{
    ProtobufCService *service = trp_learner_service(run->learner);
    OR_FAIL(trp_params_client_create(client, &(trp_params_client_options){.service = service}));
    OR_FAIL(trp_params_client_pull(*client, 0, 0, NULL));
}

static void assert_same_published(const struct run *a, const struct run *b)
{
    trp_params_client *clients[2];
    pull(a, &clients[0]);
    pull(b, &clients[1]);
    trp_params_state x = trp_params_client_state(clients[0]),
                     y = trp_params_client_state(clients[1]);
    assert_true(x.count > 0);
    assert_int_equal(x.count, y.count);
    assert_int_equal(x.version, y.version);
    assert_memory_equal(x.params, y.params, x.count * sizeof(float));
    trp_params_client_destroy(clients[0]);
    trp_params_client_destroy(clients[1]);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static const struct {
    const char *env;
    trp_dqn_options options;
} agents[] = {
    {"CartPole-v1", {.hidden = {16}, .target_period = 3}},
    {"CartPole-v1", {.hidden = {16}, .target_rate = 0.1F, .priority_exponent = 0.6F}},
    {"CartPole-v1",
     {.hidden = {16},
      .noisy = true,
      .dueling = true,
      .max_gradient_norm = 0.01F,
      .priority_exponent = 0.6F,
      .importance_exponent = 0.4F}},
    {"CartPole-v1", {.hidden = {16}, .loss = TRP_DQN_C51, .target_period = 3}},
    {"CartPole-v1", {.hidden = {16}, .loss = TRP_DQN_MUNCHAUSEN, .optimizer = TRP_LAMB}},
    {"Dots?frame_stack=2", {.network = TRP_TORSO_IMPALA, .target_period = 3}},
};

/* Runs it on the host and on a late device; both end with the same bits, having reported the same
 * numbers. */
static void assert_same_bits(struct wanted wanted, uint64_t lateness, const char *const names[3])
{
    struct late_device *late = late_create(lateness);
    struct run host, device;
    run_begin(&host, &wanted);
    assert_int_equal(host.status, TRP_OK);
    wanted.device = &late->base;
    wanted.closes = late_closes;
    run_begin(&device, &wanted);
    if (device.status != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_same_state(host.dir, device.dir);
    assert_int_equal(host.source.priority_count, device.source.priority_count);
    if (host.source.spec && host.source.spec->writes_priorities)
        assert_int_equal(host.source.priority_count, BATCH * wanted.steps);
    assert_memory_equal(host.source.priorities, device.source.priorities,
                        host.source.priority_count * sizeof(double));
    assert_same_published(&host, &device);
    for (size_t k = 0; k < 3; k++)
        assert_true(reported(host.learner, names[k]) == reported(device.learner, names[k]));
    remove_dir(host.dir);
    remove_dir(device.dir);
    run_end(&host);
    run_end(&device);
    late_destroy(late);
}

static void dqn_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"loss", "mean_q", "grad_norm"};
    (void)state;
    for (size_t i = 0; i < sizeof agents / sizeof *agents; i++)
        assert_same_bits((struct wanted){.env = agents[i].env,
                                         .agent = trp_dqn(&agents[i].options),
                                         .steps = strchr(agents[i].env, '?') ? 4 : STEPS,
                                         .publish_every = 7},
                         i, names);
}

static void ppo_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"policy_loss", "divergence", "grad_norm"};
    static const trp_ppo_options rows[] = {
        {.hidden = {16}, .unroll = 5},
        {.hidden = {16}, .unroll = 5, .shared = true, .target_kl = 0.01F, .max_gradient_norm = -1},
        {.network = TRP_TORSO_IMPALA, .unroll = 2, .epochs = 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool image = rows[i].network == TRP_TORSO_IMPALA;
        assert_same_bits((struct wanted){.env = image ? "Dots?frame_stack=2" : "CartPole-v1",
                                         .agent = trp_ppo(&rows[i]),
                                         .steps = image ? 2 : STEPS / 2,
                                         .publish_every = 7},
                         i, names);
    }
}

/* 20 steps and what is behind them have 24 frames, and stacks 84. */
static void frames_that_stacks_share_go_to_the_device_once(void **state)
{
    enum { UNROLL = 20, FRAMES = 4, FRAME = 20 * 24, UPDATES = 3 };
    static const trp_env_impl large = {
        .spec = {.name = "LargeDots",
                 .observations = {{.dtype = TRP_UINT8, .rank = 3, .shape = {20, 24, 1}}},
                 .action_count = 2},
        .state_bytes = 1,
        .reset = dots_reset,
        .step = dots_step,
        .observe = dots_observe,
    };
    struct wanted wanted = {.env = "LargeDots?frame_stack=4",
                            .agent = trp_ppo(&(trp_ppo_options){
                                .network = TRP_TORSO_IMPALA, .unroll = UNROLL, .epochs = 1}),
                            .steps = UPDATES,
                            .publish_every = 7};
    struct late_device *late = late_create(1);
    struct run host, device;
    (void)state;
    OR_FAIL(trp_env_register(&large));
    run_begin(&host, &wanted);
    wanted.device = &late->base;
    run_begin(&device, &wanted);
    assert_int_equal(device.status, TRP_OK);
    assert_same_state(host.dir, device.dir);
    size_t stacks = (size_t)UPDATES * BATCH * (UNROLL + 1) * FRAMES * FRAME;
    uint64_t sent = trp_learner_read(device.learner).uploaded_bytes;
    assert_true(sent > stacks / FRAMES);
    if (sent * 3 > stacks)
        fail_msg("%" PRIu64 " bytes were sent for stacks of %zu", sent, stacks);
    assert_int_equal(trp_learner_read(host.learner).uploaded_bytes, 0);
    remove_dir(host.dir);
    remove_dir(device.dir);
    run_end(&host);
    run_end(&device);
    late_destroy(late);
}

static void impala_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"policy_loss", "ratio", "grad_norm"};
    static const trp_impala_options rows[] = {
        {.hidden = {16}, .unroll = 5, .max_gradient_norm = 0.1F},
        {.hidden = {16}, .unroll = 5, .core = TRP_CORE_GRU, .core_size = 8, .c_bar = 0.9F},
        {.network = TRP_TORSO_IMPALA, .unroll = 2, .optimizer = TRP_RMSPROP, .momentum = 0.5F},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool image = rows[i].network == TRP_TORSO_IMPALA;
        assert_same_bits((struct wanted){.env = image ? "Dots?frame_stack=2" : "CartPole-v1",
                                         .agent = trp_impala(&rows[i]),
                                         .steps = image ? 2 : STEPS / 2,
                                         .publish_every = 7},
                         i, names);
    }
}

static void a3c_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"policy_loss", "entropy", "grad_norm"};
    static const trp_a3c_options rows[] = {
        {.hidden = {16}, .batch_size = 4},
        {.hidden = {16}, .batch_size = 4, .core = TRP_CORE_GRU, .core_size = 8, .adam = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_same_bits((struct wanted){.env = "CartPole-v1",
                                         .agent = trp_a3c(&rows[i]),
                                         .steps = STEPS / 2,
                                         .publish_every = 7},
                         i, names);
}

static void r2d2_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"loss", "mean_q", "grad_norm"};
    static const trp_r2d2_options rows[] = {
        {.hidden = {16}, .core_size = 8, .burn_in = 3, .trace = 4, .period = 4, .target_period = 3},
        {.network = TRP_TORSO_IMPALA,
         .core_size = 8,
         .burn_in = -1,
         .trace = 2,
         .period = 2,
         .dueling = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool image = rows[i].network == TRP_TORSO_IMPALA;
        assert_same_bits((struct wanted){.env = image ? "Dots?frame_stack=2" : "CartPole-v1",
                                         .agent = trp_r2d2(&rows[i]),
                                         .steps = image ? 2 : STEPS / 2,
                                         .publish_every = 7},
                         i, names);
    }
}

static void td3_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"critic_loss", "mean_q", "policy_loss"};
    static const trp_td3_options rows[] = {
        {.hidden = {16}, .policy_delay = 2},
        {.hidden = {16, 8}, .policy_delay = 1, .priority_exponent = 0.6F, .target_noise = -1},
        {.hidden = {16}, .policy_delay = 1, .imitation = 2.5F},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_same_bits((struct wanted){.env = "MountainCarContinuous-v0",
                                         .agent = trp_td3(&rows[i]),
                                         .steps = STEPS / 2,
                                         .publish_every = 7},
                         i, names);
}

static void sac_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"critic_loss", "temperature", "policy_loss"};
    static const trp_sac_options rows[] = {
        {.hidden = {16}},
        {.hidden = {16, 8}, .temperature = 0.2F, .priority_exponent = 0.6F},
        {.hidden = {16}, .conservative = 1, .conservative_samples = 2, .bc_steps = 5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_same_bits((struct wanted){.env = "MountainCarContinuous-v0",
                                         .agent = trp_sac(&rows[i]),
                                         .steps = STEPS / 2,
                                         .publish_every = 7},
                         i, names);
}

static void agents_of_stored_steps_make_the_bits_of_the_host_on_a_late_device(void **state)
{
    const struct {
        trp_agent agent;
        const char *names[3];
    } rows[] = {
        {trp_bc(&(trp_bc_options){.hidden = {16}}), {"loss", "log_prob", "loss"}},
        {trp_iql(&(trp_iql_options){.hidden = {16}}), {"critic_loss", "value_loss", "policy_loss"}},
        {trp_crr(&(trp_crr_options){.hidden = {16}, .critics = 2, .target_period = 5}),
         {"critic_loss", "mean_weight", "policy_loss"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_same_bits((struct wanted){.env = "MountainCarContinuous-v0",
                                         .agent = rows[i].agent,
                                         .steps = STEPS / 2,
                                         .publish_every = 7},
                         i, rows[i].names);
}

static void d4pg_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"critic_loss", "mean_q", "policy_loss"};
    static const trp_d4pg_options rows[] = {
        {.hidden = {16}, .critic_hidden = {16}, .target_period = 5},
        {.hidden = {16, 8},
         .critic_hidden = {8},
         .target_rate = 0.1F,
         .priority_exponent = 0.6F,
         .max_action_gradient = -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_same_bits((struct wanted){.env = "MountainCarContinuous-v0",
                                         .agent = trp_d4pg(&rows[i]),
                                         .steps = STEPS / 2,
                                         .publish_every = 7},
                         i, names);
}

static void mpo_on_a_late_device_makes_the_bits_of_the_host(void **state)
{
    static const char *const names[] = {"critic_loss", "temperature", "policy_loss"};
    static const trp_mpo_options rows[] = {
        {.hidden = {16}, .critic_hidden = {16}, .samples = 4, .target_period = 5},
        {.hidden = {16, 8},
         .critic_hidden = {8},
         .samples = 3,
         .target_rate = 0.1F,
         .priority_exponent = 0.6F,
         .joint_bounds = true,
         .no_action_penalty = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_same_bits((struct wanted){.env = "MountainCarContinuous-v0",
                                         .agent = trp_mpo(&rows[i]),
                                         .steps = STEPS / 2,
                                         .publish_every = 7},
                         i, names);
}

static void a_step_is_waited_for_when_the_next_one_was_put(void **state)
{
    (void)state;
    struct late_device *late = late_create(1);
    struct run run;
    run_begin(&run, &(struct wanted){.env = "CartPole-v1",
                                     .agent = trp_dqn(&(trp_dqn_options){.hidden = {16}}),
                                     .device = &late->base,
                                     .closes = late_closes,
                                     .steps = STEPS,
                                     .publish_every = STEPS});
    assert_int_equal(run.status, TRP_OK);
    /* What begins the run, one for each step, what is published, and a checkpoint. */
    assert_in_range(late->syncs, STEPS, STEPS + 5);
    assert_int_equal(run.source.held, 2);
    remove_dir(run.dir);
    run_end(&run);
    late_destroy(late);
}

static void checkpoints_go_from_one_device_to_another(void **state)
{
    (void)state;
    struct late_device *late = late_create(2);
    trp_device *const devices[][2] = {{NULL, NULL}, {&late->base, NULL}, {NULL, &late->base}};
    char *dirs[3];
    for (size_t i = 0; i < 3; i++) {
        struct wanted wanted = {.env = "CartPole-v1",
                                .agent = trp_dqn(&(trp_dqn_options){
                                    .hidden = {16}, .target_rate = 0.1F, .noisy = true}),
                                .steps = STEPS / 2,
                                .device = devices[i][0]};
        struct run run;
        run_begin(&run, &wanted);
        assert_int_equal(run.status, TRP_OK);
        dirs[i] = xstrdup(run.dir);
        run_end(&run);
        wanted.device = devices[i][1];
        wanted.steps = STEPS;
        wanted.first = STEPS / 2;
        wanted.dir = dirs[i];
        wanted.resume = true;
        run_begin(&run, &wanted);
        assert_int_equal(run.status, TRP_OK);
        assert_int_equal(trp_learner_read(run.learner).resumed_from, STEPS / 2);
        run_end(&run);
    }
    for (size_t i = 1; i < 3; i++)
        assert_same_state(dirs[0], dirs[i]);
    for (size_t i = 0; i < 3; i++) {
        remove_dir(dirs[i]);
        free(dirs[i]);
    }
    late_destroy(late);
}

static void a_loss_that_is_not_finite_ends_the_run_a_step_later_and_nothing_is_learned(void **state)
{
    (void)state;
    struct late_device *late = late_create(3);
    struct run run, before;
    struct wanted wanted = {.env = "CartPole-v1",
                            .agent = trp_dqn(&(trp_dqn_options){.hidden = {16}}),
                            .device = &late->base,
                            .closes = late_closes,
                            .steps = STEPS,
                            .nan_at = 21,
                            .publish_every = 100};
    run_begin(&run, &wanted);
    assert_int_equal(run.status, TRP_INTERNAL);
    assert_string_equal(trp_last_error(),
                        "the loss of step 21 is nan: 'reward' of item 0 of 'transitions' is nan");
    assert_int_equal(run.source.given, 22);
    char *path;
    assert_int_equal(trp_learner_checkpoint_find(run.dir, &path), TRP_NOT_FOUND);
    wanted.device = NULL;
    run_begin(&before, &wanted);
    assert_int_equal(before.status, TRP_INTERNAL);
    assert_string_equal(trp_last_error(),
                        "the loss of step 21 is nan: 'reward' of item 0 of 'transitions' is nan");
    assert_int_equal(before.source.given, 21);
    remove_dir(run.dir);
    remove_dir(before.dir);
    run_end(&run);
    run_end(&before);
    late_destroy(late);
}

/* Two steps may be on their way then, and the batches that they read go with their source. */
static void a_run_that_fails_waits_for_its_device_before_anything_goes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct late_device *late = late_create(seed);
        struct run run;
        run_begin(&run, &(struct wanted){.env = "CartPole-v1",
                                         .agent = trp_dqn(&(trp_dqn_options){
                                             .hidden = {16}, .priority_exponent = 0.6F}),
                                         .device = &late->base,
                                         .closes = late_closes,
                                         .steps = STEPS,
                                         .fails_at = 9,
                                         .publish_every = 100});
        assert_int_equal(run.status, TRP_DATA_LOSS);
        assert_true(late->op_count > 0);
        remove_dir(run.dir);
        run_end(&run);
        assert_string_equal(trp_last_error(), "batch 9 is damaged");
        late_destroy(late);
    }
}

static void a_device_that_is_lost_ends_the_run_with_its_words(void **state)
{
    (void)state;
    for (uint64_t at = 40; at < 400; at += 33) {
        struct late_device *late = late_create(at);
        late->lost_at = at;
        struct run run;
        run_begin(&run, &(struct wanted){.env = "CartPole-v1",
                                         .agent = trp_dqn(&(trp_dqn_options){
                                             .hidden = {16}, .priority_exponent = 0.6F}),
                                         .device = &late->base,
                                         .closes = late_closes,
                                         .steps = 1000,
                                         .publish_every = 3});
        assert_int_equal(run.status, TRP_UNAVAILABLE);
        assert_non_null(strstr(trp_last_error(), "device late is lost"));
        char *path; /* nothing of it is saved */
        assert_int_equal(trp_learner_checkpoint_find(run.dir, &path), TRP_NOT_FOUND);
        remove_dir(run.dir);
        run_end(&run);
        late_destroy(late);
    }
}

/* A kernel of one's own, which adds what it is given twice. */
struct doubling {
    const float *from;
    float *to;
};

static void twice(void *arguments)
{
    struct doubling *job = arguments;
    *job->to = 2 * *job->from;
}

/* Of so many allocations each may be the first one that fails. */
static void a_device_without_room_for_a_learner_is_an_error(void **state)
{
    struct wanted wanted = {
        .env = "Dots?frame_stack=4",
        .agent = trp_ppo(&(trp_ppo_options){.network = TRP_TORSO_IMPALA, .unroll = 5})};
    void *taken[LATE_ALLOCATIONS];
    trp_status status = TRP_RESOURCE_EXHAUSTED;
    (void)state;
    for (size_t room = 0; status != TRP_OK; room++) {
        struct late_device *late = late_create(1);
        struct run run;
        wanted.device = &late->base;
        for (size_t i = room; i < LATE_ALLOCATIONS; i++)
            OR_FAIL(trp_device_alloc(&late->base, 1, &taken[i]));
        status = run_create(&run, &wanted);
        if (status != TRP_OK)
            assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
        remove_dir(run.dir);
        run_end(&run);
        for (size_t i = room; i < LATE_ALLOCATIONS; i++)
            trp_device_free(&late->base, taken[i]);
        late_destroy(late);
    }
}

static void kernels_come_in_the_order_of_queues_and_waits(void **state)
{
    (void)state;
    static const trp_kernel kernel = {.name = "test.twice", .run = twice};
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct late_device *late = late_create(seed);
        trp_queue *first, *second;
        void *memory;
        OR_FAIL(trp_queue_create(&first, &late->base));
        OR_FAIL(trp_queue_create(&second, &late->base));
        OR_FAIL(trp_device_alloc(&late->base, 64, &memory));
        float *values = memory, one = 1, four = 0;
        trp_queue_copy(first, values, &one, sizeof one);
        trp_operand operands[] = {{offsetof(struct doubling, from), sizeof one, TRP_READ},
                                  {offsetof(struct doubling, to), sizeof one, TRP_WRITE}};
        for (size_t i = 0; i < 2; i++) {
            trp_queue *queue = i == 0 ? first : second;
            struct doubling job = {values + i, values + i + 1};
            if (i == 1)
                trp_queue_wait(second, first);
            trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
            job.from = NULL; /* it was copied */
        }
        trp_queue_copy(second, &four, values + 2, sizeof four);
        OR_FAIL(trp_queue_sync(second, trp_queue_mark(second)));
        assert_true(four == 4);
        trp_queue_destroy(first);
        trp_queue_destroy(second);
        trp_device_free(&late->base, memory);
        late_destroy(late);
    }
}

int main(void)
{
    OR_FAIL(trp_env_register(&dots_impl));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dqn_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(a3c_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(frames_that_stacks_share_go_to_the_device_once),
        cmocka_unit_test(impala_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(r2d2_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(ppo_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(td3_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(sac_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(agents_of_stored_steps_make_the_bits_of_the_host_on_a_late_device),
        cmocka_unit_test(d4pg_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(mpo_on_a_late_device_makes_the_bits_of_the_host),
        cmocka_unit_test(a_step_is_waited_for_when_the_next_one_was_put),
        cmocka_unit_test(checkpoints_go_from_one_device_to_another),
        cmocka_unit_test(
            a_loss_that_is_not_finite_ends_the_run_a_step_later_and_nothing_is_learned),
        cmocka_unit_test(a_run_that_fails_waits_for_its_device_before_anything_goes),
        cmocka_unit_test(a_device_that_is_lost_ends_the_run_with_its_words),
        cmocka_unit_test(a_device_without_room_for_a_learner_is_an_error),
        cmocka_unit_test(kernels_come_in_the_order_of_queues_and_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
