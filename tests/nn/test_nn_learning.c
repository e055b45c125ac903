/* The loss against rows worked out by hand, and at work: a step equals its pieces, a batch can be
 * learnt by heart, and a run resumed from a file repeats the bits of one that was not
 * interrupted. */
#include "nn_tools.h"

#include <stdio.h>
#include <unistd.h>

#include <troupe/checkpoint.h>
#include <troupe/optimizer.h>

/* ---- the loss ---------------------------------------------------------------------------- */

enum { ROWS = 5, ACTIONS = 3 };

/*                                    next online best   r + d * target   td error
 * row 0  q[1] = 2                    2                  1 + .5 * 4       1
 * row 1  q[0] = -1, terminal         0                  -1 + 0           0
 * row 2  q[2] = 5                    1 (first equal)    0 + .9 * 2       -3.2
 * row 3  q[1] = 0.25                 0                  0.5 + 1 * 0      0.25
 * row 4  q[0] = 10                   2                  2 + .25 * -4     -9 */
static const float q_rows[ROWS * ACTIONS] = {0, 2, 7, -1, 3, 3, 1, 1, 5, 9, 0.25f, 9, 10, 0, 0};
static const float online_rows[ROWS * ACTIONS] = {1, 2, 3, 9, 1, 1, 0, 6, 6, 1, 0, 0, -5, -4, -3};
static const float target_rows[ROWS * ACTIONS] = {9, 9, 4, 100, 0, 0, 7, 2, 8, 0, 5, 5, 1, 1, -4};
static const int32_t action_rows[ROWS] = {1, 0, 2, 1, 0};
static const float reward_rows[ROWS] = {1, -1, 0, 0.5f, 2};
static const float discount_rows[ROWS] = {0.5f, 0, 0.9f, 1, 0.25f};
static const float weight_rows[ROWS] = {1, 1, 0.5f, 2, 0.25f};

static trp_q_batch row_batch(bool weights)
{
    return (trp_q_batch){
        .rows = ROWS,
        .actions = action_rows,
        .rewards = reward_rows,
        .discounts = discount_rows,
        .weights = weights ? weight_rows : NULL,
    };
}

static void double_q_agrees_with_rows_worked_out_by_hand(void **state)
{
    (void)state;
    trp_q_batch batch = row_batch(true);
    float td[ROWS], dq[ROWS * ACTIONS];
    trp_q_result result =
        trp_q_loss(NULL, &batch, ACTIONS, q_rows, online_rows, target_rows, td, dq);
    assert_close(td, (float[]){1, 0, -3.2f, 0.25f, -9}, ROWS, 1e-6, "td error");
    /* Huber: 0.5, 0, 2.7, 0.03125, 8.5; times the weights: 0.5, 0, 1.35, 0.0625, 2.125. */
    assert_close(&result.loss, &(float){4.0375f / 5}, 1, 1e-6, "loss");
    assert_close(&result.mean_q, &(float){16.25f / 5}, 1, 1e-6, "mean q");
    /* -weight * clamp(td error) / 5 at the action, nothing elsewhere */
    static const float want[ROWS * ACTIONS] = {0,    -0.2f, 0,     0, 0,     0, 0, 0,
                                               0.1f, 0,     -0.1f, 0, 0.05f, 0, 0};
    assert_close(dq, want, ROWS * ACTIONS, 1e-7, "dq");
}

static void single_q_takes_the_targets_own_maximum(void **state)
{
    (void)state;
    trp_q_batch batch = row_batch(false);
    float td[ROWS], dq[ROWS * ACTIONS];
    memcpy(dq, q_rows, sizeof dq); /* in place */
    trp_q_result result = trp_q_loss(&(trp_q_options){.single_q = true, .huber_delta = 3}, &batch,
                                     ACTIONS, dq, NULL, target_rows, td, dq);
    /* targets 1 + 4.5, -1, .9 * 8, .5 + 5, 2 + .25 */
    assert_close(td, (float[]){3.5f, 0, 2.2f, 5.25f, -7.75f}, ROWS, 1e-6, "td error");
    /* |td| > 3: 3 (|td| - 1.5) = 6, 11.25, 18.75; 2.2^2 / 2 = 2.42 */
    assert_close(&result.loss, &(float){38.42f / 5}, 1, 1e-6, "loss");
    static const float want[ROWS * ACTIONS] = {0,      -0.6f, 0,     0, 0,    0, 0, 0,
                                               -0.44f, 0,     -0.6f, 0, 0.6f, 0, 0};
    assert_close(dq, want, ROWS * ACTIONS, 1e-6, "dq");
}

static void given_targets_are_taken_as_they_are(void **state)
{
    (void)state;
    trp_q_batch batch = {.rows = 2, .actions = (int32_t[]){1, 0}};
    float td[2], dq[4];
    trp_q_result result =
        trp_q_loss_to(NULL, &batch, 2, (float[]){0, 1, 2, 3}, (float[]){1.5f, -8}, td, dq);
    assert_close(td, (float[]){0.5f, -10}, 2, 1e-7, "td error");
    assert_close(&result.loss, &(float){(0.125f + 9.5f) / 2}, 1, 1e-7, "loss");
    assert_close(dq, (float[]){0, -0.25f, 0.5f, 0}, 4, 1e-7, "dq");
}

/* ---- both at work ------------------------------------------------------------------------ */

enum { BATCH = 48 };
static const trp_mlp_options learner_mlp = {
    .inputs = 4, .hidden = {32, 32}, .outputs = 3, .dueling = true};

/* A learner in small: everything that a resumed run needs. */
struct learner {
    trp_net *net;
    size_t count;
    float *params, *target, *m, *v, *grads;
    uint64_t step;
    trp_rng rng;
};

static void learner_init(struct learner *l, uint32_t threads, uint64_t seed)
{
    trp_net_spec spec = trp_mlp(&learner_mlp);
    *l = (struct learner){.count = trp_net_param_count(&spec)};
    OR_FAIL(trp_net_create(&l->net,
                           &(trp_net_options){.spec = &spec, .batch = BATCH, .threads = threads}));
    float **vectors[] = {&l->params, &l->target, &l->m, &l->v, &l->grads};
    for (size_t i = 0; i < 5; i++)
        *vectors[i] = trp_floats_create(l->count);
    trp_rng_init(&l->rng, seed, 0);
    trp_net_init(&spec, &l->rng, l->params);
    memcpy(l->target, l->params, l->count * sizeof *l->params);
}

static void learner_cleanup(struct learner *l)
{
    trp_net_destroy(l->net);
    trp_floats_destroy(l->params);
    trp_floats_destroy(l->target);
    trp_floats_destroy(l->m);
    trp_floats_destroy(l->v);
    trp_floats_destroy(l->grads);
}

struct transitions {
    float *states, *next_states, *rewards, *discounts, *weights;
    int32_t actions[BATCH];
    trp_q_batch batch;
};

static void transitions_init(struct transitions *t, trp_rng *rng)
{
    t->states = random_floats(rng, BATCH * 4, 1);
    t->next_states = random_floats(rng, BATCH * 4, 1);
    t->rewards = random_floats(rng, BATCH, 1);
    t->discounts = random_floats(rng, BATCH, 0.1);
    t->weights = random_floats(rng, BATCH, 1);
    for (int i = 0; i < BATCH; i++) {
        t->actions[i] = (int32_t)trp_rng_below(rng, 3);
        t->weights[i] = fabsf(t->weights[i]);
    }
    t->batch = (trp_q_batch){.rows = BATCH,
                             .states = t->states,
                             .next_states = t->next_states,
                             .actions = t->actions,
                             .rewards = t->rewards,
                             .discounts = t->discounts,
                             .weights = t->weights};
}

static void transitions_cleanup(struct transitions *t)
{
    free(t->states);
    free(t->next_states);
    free(t->rewards);
    free(t->discounts);
    free(t->weights);
}

static float learner_step(struct learner *l, const trp_q_batch *batch)
{
    float td[BATCH];
    memset(l->grads, 0, l->count * sizeof *l->grads);
    trp_q_result result = trp_q_step(l->net, NULL, l->params, l->target, batch, l->grads, td);
    l->step++;
    trp_optimizer_step(&(trp_optimizer){0}, l->step, 1, l->params, l->grads,
                       (float *[]){l->m, l->v}, 0, l->count);
    if (l->step % 7 == 0)
        memcpy(l->target, l->params, l->count * sizeof *l->params);
    return result.loss;
}

static void a_step_is_the_sum_of_its_pieces(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (int single = 0; single < 2; single++) {
            struct learner l;
            struct transitions t;
            learner_init(&l, threads, 5);
            transitions_init(&t, &l.rng);
            for (size_t i = 0; i < l.count; i++)
                l.target[i] *= 0.9f;
            trp_q_options options = {.single_q = single};
            float td[2][BATCH], q[3][BATCH * 3];
            float *pieces = trp_floats_create(l.count);
            poison(l.net);
            forward_one(l.net, l.target, t.next_states, BATCH, q[2]);
            forward_one(l.net, l.params, t.next_states, BATCH, q[1]);
            forward_one(l.net, l.params, t.states, BATCH, q[0]);
            trp_q_result want = trp_q_loss(&options, &t.batch, 3, q[0], q[1], q[2], td[0], q[0]);
            for (uint32_t i = 1; i < threads; i++)
                memset(l.net->parts[i].grads, 0, l.count * sizeof(float));
            backward_one(l.net, l.params, t.states, q[0], pieces);
            trp_q_result got =
                trp_q_step(l.net, &options, l.params, l.target, &t.batch, l.grads, td[1]);
            assert_memory_equal(td[0], td[1], sizeof td[0]);
            assert_memory_equal(pieces, l.grads, l.count * sizeof(float));
            assert_close(&got.loss, &want.loss, 1, 1e-6, "loss");
            assert_close(&got.mean_q, &want.mean_q, 1, 1e-6, "mean q");
            trp_floats_destroy(pieces);
            transitions_cleanup(&t);
            learner_cleanup(&l);
        }
}

static void one_batch_can_be_learnt_by_heart(void **state)
{
    (void)state;
    struct learner l;
    struct transitions t;
    learner_init(&l, 1, 6);
    transitions_init(&t, &l.rng);
    for (int i = 0; i < BATCH; i++) {
        t.weights[i] = 1;
        t.discounts[i] = 0; /* fixed targets */
    }
    float first = learner_step(&l, &t.batch), last = first;
    for (int i = 0; i < 3000; i++)
        last = learner_step(&l, &t.batch);
    assert_true(first > 0.1f);
    assert_true(last < 1e-5f);
    transitions_cleanup(&t);
    learner_cleanup(&l);
}

/* Steps on batches drawn from the learner's own generator, as a seeded run does. */
static void learner_run(struct learner *l, int steps)
{
    for (int i = 0; i < steps; i++) {
        struct transitions t;
        transitions_init(&t, &l->rng);
        learner_step(l, &t.batch);
        transitions_cleanup(&t);
    }
}

static void learner_save(const struct learner *l, const char *path)
{
    const trp_checkpoint_tensor tensors[] = {
        {"step", TRP_CHECKPOINT_U64, .rank = 0, .data = &l->step},
        {"params", TRP_CHECKPOINT_F32, .rank = 1, .shape = {l->count}, .data = l->params},
        {"target", TRP_CHECKPOINT_F32, .rank = 1, .shape = {l->count}, .data = l->target},
        {"adam.m", TRP_CHECKPOINT_F32, .rank = 1, .shape = {l->count}, .data = l->m},
        {"adam.v", TRP_CHECKPOINT_F32, .rank = 1, .shape = {l->count}, .data = l->v},
        {"rng", TRP_CHECKPOINT_U64, .rank = 1, .shape = {4}, .data = l->rng.state},
    };
    OR_FAIL(trp_checkpoint_write(path, tensors, 6, NULL, 0));
}

static void learner_load(struct learner *l, const char *path)
{
    trp_checkpoint *c;
    OR_FAIL(trp_checkpoint_read(&c, path));
    OR_FAIL(trp_checkpoint_get(c, "step", TRP_CHECKPOINT_U64, 1, &l->step));
    OR_FAIL(trp_checkpoint_get(c, "params", TRP_CHECKPOINT_F32, l->count, l->params));
    OR_FAIL(trp_checkpoint_get(c, "target", TRP_CHECKPOINT_F32, l->count, l->target));
    OR_FAIL(trp_checkpoint_get(c, "adam.m", TRP_CHECKPOINT_F32, l->count, l->m));
    OR_FAIL(trp_checkpoint_get(c, "adam.v", TRP_CHECKPOINT_F32, l->count, l->v));
    OR_FAIL(trp_checkpoint_get(c, "rng", TRP_CHECKPOINT_U64, 4, l->rng.state));
    trp_checkpoint_destroy(c);
}

static void a_resumed_run_repeats_the_bits_of_one_that_was_not_interrupted(void **state)
{
    (void)state;
    char dir[] = "/tmp/troupe-nn-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = xasprintf("%s/learner.safetensors", dir);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct learner whole, before, after;
        learner_init(&whole, threads, 9);
        learner_init(&before, threads, 9);
        learner_init(&after, threads, 1234); /* all of it is to come from the file */
        learner_run(&whole, 40);
        learner_run(&before, 17);
        learner_save(&before, path);
        learner_load(&after, path);
        learner_run(&after, 23);
        assert_int_equal(after.step, whole.step);
        assert_memory_equal(&after.rng, &whole.rng, sizeof whole.rng);
        assert_memory_equal(after.params, whole.params, whole.count * sizeof(float));
        assert_memory_equal(after.target, whole.target, whole.count * sizeof(float));
        assert_memory_equal(after.m, whole.m, whole.count * sizeof(float));
        assert_memory_equal(after.v, whole.v, whole.count * sizeof(float));
        assert_memory_not_equal(after.params, before.params, whole.count * sizeof(float));
        learner_cleanup(&whole);
        learner_cleanup(&before);
        learner_cleanup(&after);
    }
    unlink(path);
    free(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(double_q_agrees_with_rows_worked_out_by_hand),
        cmocka_unit_test(single_q_takes_the_targets_own_maximum),
        cmocka_unit_test(given_targets_are_taken_as_they_are),
        cmocka_unit_test(a_step_is_the_sum_of_its_pieces),
        cmocka_unit_test(one_batch_can_be_learnt_by_heart),
        cmocka_unit_test(a_resumed_run_repeats_the_bits_of_one_that_was_not_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
