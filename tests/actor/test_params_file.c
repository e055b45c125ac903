/* Files of parameters between Troupe and PyTorch: a module's file, as safetensors wrote it, gives
 * the network that makes of a batch what the module makes of it, and is written back with the same
 * names, shapes and bytes. tests/golden/make_params.py has the module, and loads what is written.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/checkpoint.h>
#include <troupe/params.h>
#include "core/alloc.h"
#include "tests/actor/golden_params.h"

enum { STEPS = 2, SEQUENCES = 2, ROWS = STEPS * SEQUENCES, OUTPUTS = 2, TOKENS = 2, WORDS = 4 };
enum { HEIGHT = 4, WIDTH = 5, CHANNELS = 2, PIXELS = HEIGHT * WIDTH * CHANNELS };

static trp_net_spec module(void)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t image =
        trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {HEIGHT, WIDTH, CHANNELS}});
    uint32_t words =
        trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {TOKENS}, .dtype = TRP_INT32});
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_CONV2D,
                                                .name = "eye",
                                                .from = {image},
                                                .size = 3,
                                                .kernel = 2,
                                                .activation = TRP_RELU});
    x = trp_net_add(
        &spec,
        (trp_layer){
            .kind = TRP_LINEAR, .name = "body.0", .from = {x}, .size = 5, .activation = TRP_TANH});
    words = trp_net_add(&spec, (trp_layer){.kind = TRP_EMBEDDING,
                                           .name = "table",
                                           .from = {words},
                                           .size = 2,
                                           .vocabulary = WORDS});
    x = trp_net_add(&spec, (trp_layer){.kind = TRP_CONCAT, .from = {x, words}, .from_count = 2});
    x = trp_net_add(&spec, (trp_layer){.kind = TRP_LAYER_NORM, .name = "norm", .from = {x}});
    x = trp_net_add(&spec, (trp_layer){.kind = TRP_LSTM, .name = "core", .from = {x}, .size = 3});
    x = trp_net_add(&spec, (trp_layer){.kind = TRP_GRU, .name = "memory", .from = {x}, .size = 4});
    x = trp_net_add(
        &spec, (trp_layer){.kind = TRP_NOISY_LINEAR, .name = "head", .from = {x}, .size = OUTPUTS});
    uint32_t shift =
        trp_net_add(&spec, (trp_layer){.kind = TRP_PARAMETER, .name = "shift", .size = OUTPUTS});
    trp_net_output(
        &spec,
        trp_net_add(&spec, (trp_layer){.kind = TRP_ADD, .from = {x, shift}, .from_count = 2}));
    return spec;
}

/* As make_params.py has it. */
static double number(uint32_t seed, uint32_t index)
{
    uint32_t h = index * 2654435761u + seed * 2246822519u + 374761393u;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    h ^= h >> 16;
    return (double)(h >> 8) / (1 << 23) - 1;
}

/* ---- a policy that keeps what it is given ------------------------------------------------------
 */

struct keeper {
    trp_policy base;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    float *params;
};

static trp_status keeper_load(trp_policy *base, const float *params, size_t count)
{
    assert_int_equal(count, base->param_count);
    memcpy(((struct keeper *)base)->params, params, count * sizeof *params);
    return TRP_OK;
}

static const trp_policy_impl keeper_impl = {.load = keeper_load};

static void keeper_init(struct keeper *keeper, const trp_net_spec *spec)
{
    memset(keeper, 0, sizeof *keeper);
    keeper->base.impl = &keeper_impl;
    keeper->base.tensors = keeper->tensors;
    keeper->base.tensor_count = trp_net_tensors(spec, keeper->tensors);
    keeper->base.param_count = trp_net_param_count(spec);
    keeper->params = trp_floats_create(keeper->base.param_count);
}

struct fixture {
    char dir[40];
    char *golden, *written; /* paths */
    trp_net_spec spec;
    struct keeper keeper;
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    memcpy(fixture->dir, "/tmp/test_params_file.XXXXXX", sizeof "/tmp/test_params_file.XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    fixture->golden = xasprintf("%s/golden", fixture->dir);
    fixture->written = xasprintf("%s/written", fixture->dir);
    FILE *file = fopen(fixture->golden, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(golden_file, 1, sizeof golden_file, file), sizeof golden_file);
    assert_int_equal(fclose(file), 0);
    fixture->spec = module();
    keeper_init(&fixture->keeper, &fixture->spec);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    unlink(fixture->golden);
    unlink(fixture->written);
    assert_int_equal(rmdir(fixture->dir), 0);
    free(fixture->golden);
    free(fixture->written);
    trp_floats_destroy(fixture->keeper.params);
    free(fixture);
    return 0;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void a_file_of_pytorch_gives_the_outputs_of_its_module(void **state)
{
    struct fixture *fixture = *state;
    uint64_t version = 7;
    assert_int_equal(trp_params_load(fixture->golden, &fixture->keeper.base, &version), TRP_OK);
    assert_int_equal(version, 0);
    float image[ROWS * PIXELS], outputs[ROWS * OUTPUTS];
    int32_t tokens[ROWS * TOKENS];
    for (uint32_t i = 0; i < ROWS * PIXELS; i++)
        image[i] = (float)number(100, i);
    for (uint32_t i = 0; i < ROWS * TOKENS; i++)
        tokens[i] = (int32_t)(WORDS * (1 + number(101, i)) / 2);
    trp_net *net;
    assert_int_equal(
        trp_net_create(&net, &(trp_net_options){.spec = &fixture->spec, .batch = ROWS}), TRP_OK);
    trp_net_forward(
        net, fixture->keeper.params,
        &(trp_net_rows){
            .rows = ROWS, .steps = STEPS, .inputs = {image, tokens}, .outputs = {outputs}});
    assert_int_equal(sizeof golden_outputs, sizeof outputs);
    for (size_t i = 0; i < ROWS * OUTPUTS; i++)
        assert_float_equal(outputs[i], golden_outputs[i], 1e-6);
    trp_net_destroy(net);
}

static void what_is_written_has_pytorchs_names_shapes_and_bytes(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(trp_params_load(fixture->golden, &fixture->keeper.base, NULL), TRP_OK);
    trp_params_state saved = {
        .params = fixture->keeper.params, .count = fixture->keeper.base.param_count, .version = 3};
    assert_int_equal(trp_params_write(fixture->written, &saved, &fixture->keeper.base), TRP_OK);
    trp_checkpoint *golden, *written;
    assert_int_equal(trp_checkpoint_read(&golden, fixture->golden), TRP_OK);
    assert_int_equal(trp_checkpoint_read(&written, fixture->written), TRP_OK);
    size_t count = trp_checkpoint_tensor_count(golden);
    assert_int_equal(trp_checkpoint_tensor_count(written), count);
    assert_int_equal(count, fixture->keeper.base.tensor_count);
    for (size_t i = 0; i < count; i++) {
        const trp_checkpoint_tensor *want = trp_checkpoint_tensor_at(golden, i), *got = NULL;
        for (size_t k = 0; k < count && !got; k++)
            if (strcmp(trp_checkpoint_tensor_at(written, k)->name, want->name) == 0)
                got = trp_checkpoint_tensor_at(written, k);
        if (!got)
            fail_msg("%s was not written", want->name);
        size_t values = 1;
        assert_int_equal(got->rank, want->rank);
        for (uint32_t axis = 0; axis < want->rank; axis++) {
            assert_int_equal(got->shape[axis], want->shape[axis]);
            values *= want->shape[axis];
        }
        assert_memory_equal(got->data, want->data, values * sizeof(float));
    }
    trp_checkpoint_destroy(golden);
    trp_checkpoint_destroy(written);
    float *before = trp_floats_create(saved.count);
    memcpy(before, fixture->keeper.params, saved.count * sizeof *before);
    memset(fixture->keeper.params, 0xff, saved.count * sizeof *before);
    uint64_t version;
    assert_int_equal(trp_params_load(fixture->written, &fixture->keeper.base, &version), TRP_OK);
    assert_int_equal(version, 3);
    assert_memory_equal(fixture->keeper.params, before, saved.count * sizeof *before);
    trp_floats_destroy(before);
}

static void a_file_of_another_network_is_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        uint32_t layer; /* of the module, from the end */
        trp_layer other;
        const char *words;
    } rows[] = {
        {3,
         {.kind = TRP_LINEAR, .name = "head", .size = 2},
         "neither params nor a tensor head.wei"},
        {4,
         {.kind = TRP_GRU, .name = "memory", .size = 5},
         "tensor memory.weight_ih_l0 is [12][3], the network's is [15][3]"},
        {4, {.kind = TRP_GRU, .name = "other", .size = 4}, "nor a tensor other.weight_ih_l0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trp_net_spec spec = module();
        trp_layer *layer = &spec.layers[spec.layer_count - rows[i].layer];
        uint32_t from = layer->from[0];
        *layer = rows[i].other;
        layer->from[0] = from;
        struct keeper keeper;
        keeper_init(&keeper, &spec);
        assert_int_equal(trp_params_load(fixture->golden, &keeper.base, NULL),
                         TRP_FAILED_PRECONDITION);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), rows[i].words);
        trp_floats_destroy(keeper.params);
    }
}

static void a_tensor_too_many_is_refused_in_a_file_of_ours_alone(void **state)
{
    struct fixture *fixture = *state;
    struct keeper *keeper = &fixture->keeper;
    assert_int_equal(trp_params_load(fixture->golden, &keeper->base, NULL), TRP_OK);
    trp_params_state saved = {.params = keeper->params, .count = keeper->base.param_count};
    assert_int_equal(trp_params_write(fixture->written, &saved, &keeper->base), TRP_OK);
    const char *last = keeper->tensors[--keeper->base.tensor_count].name;
    char *words =
        xasprintf("%s has a tensor %s, which the network has not", fixture->written, last);
    assert_int_equal(trp_params_load(fixture->written, &keeper->base, NULL),
                     TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), words));
    assert_int_equal(trp_params_load(fixture->golden, &keeper->base, NULL), TRP_OK);
    free(words);
}

static void a_tensor_that_is_not_finite_is_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    struct keeper *keeper = &fixture->keeper;
    assert_int_equal(trp_params_load(fixture->golden, &keeper->base, NULL), TRP_OK);
    size_t last = keeper->base.tensor_count - 1;
    keeper->params[keeper->tensors[last].offset + 1] = INFINITY;
    trp_params_state saved = {.params = keeper->params, .count = keeper->base.param_count};
    assert_int_equal(trp_params_write(fixture->written, &saved, &keeper->base), TRP_OK);
    assert_int_equal(trp_params_load(fixture->written, &keeper->base, NULL), TRP_OUT_OF_RANGE);
    assert_non_null(strstr(trp_last_error(), fixture->written));
    assert_non_null(strstr(trp_last_error(), "number 1 of the parameters is inf, in shift [2]"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_file_of_pytorch_gives_the_outputs_of_its_module),
        TEST(what_is_written_has_pytorchs_names_shapes_and_bytes),
        TEST(a_file_of_another_network_is_refused_by_name),
        TEST(a_tensor_too_many_is_refused_in_a_file_of_ours_alone),
        TEST(a_tensor_that_is_not_finite_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
