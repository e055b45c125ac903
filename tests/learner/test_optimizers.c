/* A learner with every optimizer: one that was resumed has the bits of one that was not
 * interrupted, checkpoints of another optimizer are refused by name, and LAMB steps tensor by
 * tensor. The updater reads no batches: it pulls its parameters towards their index, with noise. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/learner.h>
#include "core/alloc.h"

enum { COUNT = 40, TENSORS = 2 };

static const trp_net_tensor tensors[TENSORS] = {{.name = "a", .offset = 0, .count = 13},
                                                {.name = "b", .offset = 16, .count = 21}};

static trp_status pull_step(trp_updater *updater, const trp_update *update)
{
    (void)updater;
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++)
            update->grads[0][i] += update->vectors[0][i] - (float)i / COUNT +
                                   0.1F * (float)trp_rng_normal(update->rng);
    return trp_update_apply(update, 0);
}

static const trp_updater_impl pull_impl = {.step = pull_step};

static trp_updater *updater_create(const trp_optimizer *optimizer)
{
    trp_updater *updater = xcalloc(1, sizeof *updater);
    updater->impl = &pull_impl;
    updater->vector_count = 1;
    updater->vectors[0] = (trp_vector_spec){.name = "params",
                                            .count = COUNT,
                                            .learned = true,
                                            .optimizer = *optimizer,
                                            .tensors = tensors,
                                            .tensor_count = TENSORS};
    return updater;
}

/* ---- directories ---------------------------------------------------------------------------- */

struct fixture {
    char dir[32];
    char *whole, *parts; /* directories for checkpoints */
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    memcpy(fixture->dir, "/tmp/test_optims.XXXXXX", sizeof "/tmp/test_optims.XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    fixture->whole = xasprintf("%s/whole", fixture->dir);
    fixture->parts = xasprintf("%s/parts", fixture->dir);
    *state = fixture;
    return 0;
}

static void remove_all(const char *dir)
{
    char *command = xasprintf("rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    remove_all(fixture->dir);
    free(fixture->whole);
    free(fixture->parts);
    free(fixture);
    return 0;
}

static void run_to(const char *dir, const trp_optimizer *optimizer, uint64_t steps, bool resume)
{
    trp_learner *learner;
    const trp_learner_loop_options options = {.updater = updater_create(optimizer),
                                              .seed = 5,
                                              .checkpoint_dir = dir,
                                              .max_steps = steps,
                                              .resume = resume};
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    trp_learner_destroy(learner);
}

static trp_checkpoint *newest(const char *dir)
{
    char *path;
    trp_checkpoint *checkpoint;
    assert_int_equal(trp_learner_checkpoint_find(dir, &path), TRP_OK);
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    free(path);
    return checkpoint;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static const trp_optimizer optimizers[] = {
    {.kind = TRP_ADAM, .max_norm = 0.5},
    {.kind = TRP_ADAMW, .weight_decay = 0.1, .schedule = TRP_RATE_COSINE, .schedule_steps = 9},
    {.kind = TRP_SGD, .momentum = 0.9, .nesterov = true, .warmup_steps = 7},
    {.kind = TRP_SGD},
    {.kind = TRP_RMSPROP, .momentum = 0.5, .centered = true, .epsilon_inside = true},
    {.kind = TRP_LAMB, .weight_decay = 0.1},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static void a_resumed_learner_has_the_bits_of_one_that_was_not_interrupted(void **state)
{
    struct fixture *fixture = *state;
    for (size_t row = 0; row < OPTIMIZERS; row++) {
        run_to(fixture->whole, &optimizers[row], 12, false);
        run_to(fixture->parts, &optimizers[row], 5, false);
        run_to(fixture->parts, &optimizers[row], 12, true);
        trp_checkpoint *whole = newest(fixture->whole), *parts = newest(fixture->parts);
        size_t count = trp_checkpoint_tensor_count(whole), compared = 0;
        assert_int_equal(trp_checkpoint_tensor_count(parts), count);
        for (size_t i = 0; i < count; i++) {
            const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(whole, i);
            float values[COUNT];
            if (tensor->type != TRP_CHECKPOINT_F32)
                continue;
            assert_int_equal(
                trp_checkpoint_get(parts, tensor->name, TRP_CHECKPOINT_F32, COUNT, values), TRP_OK);
            assert_memory_equal(tensor->data, values, sizeof values);
            compared++;
        }
        assert_int_equal(compared, 1 + trp_optimizer_states(&optimizers[row]));
        trp_checkpoint_destroy(whole);
        trp_checkpoint_destroy(parts);
        remove_all(fixture->whole);
        remove_all(fixture->parts);
    }
}

static void assert_not_resumed(const char *dir, const trp_optimizer *optimizer, const char *words)
{
    trp_learner *learner;
    const trp_learner_loop_options options = {
        .updater = updater_create(optimizer), .checkpoint_dir = dir, .resume = true};
    assert_int_equal(trp_learner_create(&learner, &options), TRP_FAILED_PRECONDITION);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' does not say '%s'", trp_last_error(), words);
}

static void a_checkpoint_of_another_optimizer_is_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    const trp_optimizer adam = {0}, sgd = {.kind = TRP_SGD}, lamb = {.kind = TRP_LAMB};
    const trp_optimizer rmsprop = {.kind = TRP_RMSPROP};
    const trp_optimizer centered = {.kind = TRP_RMSPROP, .centered = true};
    run_to(fixture->whole, &adam, 2, false);
    assert_not_resumed(fixture->whole, &lamb, "the checkpoint has 'params.adam.");
    assert_not_resumed(fixture->whole, &sgd,
                       "so adam learned 'params'; this run's optimizer is sgd");
    run_to(fixture->whole, &(trp_optimizer){.learning_rate = 1e-2}, 3, true); /* may change */
    run_to(fixture->parts, &sgd, 2, false);
    assert_not_resumed(fixture->parts, &adam, "no 'params.adam.m', which adam, this run's");
    remove_all(fixture->parts);
    run_to(fixture->parts, &centered, 2, false);
    assert_not_resumed(fixture->parts, &rmsprop, "optimizer is rmsprop with other options");
    remove_all(fixture->parts);
    run_to(fixture->parts, &rmsprop, 2, false);
    assert_not_resumed(fixture->parts, &centered, "no 'params.rmsprop.mean'");
}

static void lamb_steps_each_tensor_by_itself(void **state)
{
    struct fixture *fixture = *state;
    const trp_optimizer lamb = {.kind = TRP_LAMB, .learning_rate = 0.125};
    run_to(fixture->whole, &lamb, 1, false);
    trp_checkpoint *checkpoint = newest(fixture->whole);
    float params[COUNT];
    assert_int_equal(trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, COUNT, params),
                     TRP_OK);
    trp_checkpoint_destroy(checkpoint);
    for (size_t t = 0; t < TENSORS; t++) /* from 0: Adam's step, whose size is the rate */
        for (size_t i = 0; i < tensors[t].count; i++)
            assert_float_equal(params[tensors[t].offset + i] < 0 ? -params[tensors[t].offset + i]
                                                                 : params[tensors[t].offset + i],
                               0.125, 1e-4);
    run_to(fixture->whole, &lamb, 2, true);
    checkpoint = newest(fixture->whole);
    float after[COUNT];
    assert_int_equal(trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, COUNT, after),
                     TRP_OK);
    trp_checkpoint_destroy(checkpoint);
    for (size_t t = 0; t < TENSORS; t++) { /* |step| = rate |params|, of this tensor */
        double step = 0, norm = 0;
        for (size_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].count; i++) {
            step += (double)((after[i] - params[i]) * (after[i] - params[i]));
            norm += (double)(params[i] * params[i]);
        }
        assert_float_equal(step / norm, 0.125 * 0.125, 1e-5);
    }
    assert_true(params[14] == 0 && after[14] == 0); /* between tensors */
}

static void assert_updater_refused(trp_updater *updater, const char *words)
{
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, &(trp_learner_loop_options){.updater = updater}),
                     TRP_INVALID_ARGUMENT);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' does not say '%s'", trp_last_error(), words);
}

static void tensors_are_checked(void **state)
{
    (void)state;
    static const trp_net_tensor long_one = {.name = "long", .offset = 30, .count = 11};
    static const trp_net_tensor twice[] = {{.name = "x", .count = 4}, {.name = "y", .offset = 3}};
    const trp_optimizer lamb = {.kind = TRP_LAMB};
    trp_updater *updater = updater_create(&lamb);
    updater->vectors[0].tensor_count = 0;
    assert_updater_refused(updater, "lamb steps tensor by tensor, and 'params' names none");
    updater = updater_create(&lamb);
    updater->vectors[0].tensors = &long_one;
    updater->vectors[0].tensor_count = 1;
    assert_updater_refused(updater, "tensor 'long' lies at 30 to 41 of 'params'");
    updater = updater_create(&lamb);
    updater->vectors[0].tensors = twice;
    assert_updater_refused(updater, "tensor 'y' lies at 3 to 3");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_resumed_learner_has_the_bits_of_one_that_was_not_interrupted),
        TEST(a_checkpoint_of_another_optimizer_is_refused_by_name),
        TEST(lamb_steps_each_tensor_by_itself),
        TEST(tensors_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
