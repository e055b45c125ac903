/* Learning at work: a batch can be learnt by heart, and a run resumed from a file repeats the bits
 * of one that was not interrupted. */
#include "nn_tools.h"

#include <stdio.h>
#include <unistd.h>

#include <troupe/checkpoint.h>
#include <troupe/losses.h>
#include <troupe/optimizer.h>

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
                             .actions = 3,
                             .taken = t->actions,
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

static float learner_step(struct learner *l, const struct transitions *t)
{
    const trp_q_batch *batch = &t->batch;
    float q[3][BATCH * 3], targets[BATCH], td[BATCH];
    memset(l->grads, 0, l->count * sizeof *l->grads);
    forward_one(l->net, l->target, t->next_states, BATCH, q[2]);
    forward_one(l->net, l->params, t->next_states, BATCH, q[1]);
    forward_one(l->net, l->params, t->states, BATCH, q[0]);
    trp_double_q_targets(batch, q[1], q[2], targets);
    trp_loss result = trp_q_loss(batch, 1, q[0], targets, td, q[0]);
    backward_one(l->net, l->params, t->states, q[0], l->grads);
    l->step++;
    trp_optimizer_step(&(trp_optimizer){0}, l->step, 1, l->params, l->grads,
                       (float *[]){l->m, l->v}, 0, l->count);
    if (l->step % 7 == 0)
        memcpy(l->target, l->params, l->count * sizeof *l->params);
    return result.loss;
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
    float first = learner_step(&l, &t), last = first;
    for (int i = 0; i < 3000; i++)
        last = learner_step(&l, &t);
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
        learner_step(l, &t);
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
        cmocka_unit_test(one_batch_can_be_learnt_by_heart),
        cmocka_unit_test(a_resumed_run_repeats_the_bits_of_one_that_was_not_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
