/* Whole networks against PyTorch's numbers, forward and backward: the parameters are set by the
 * names that a module of the same layers has, and gradients are found by them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/nn.h>
#include "core/alloc.h"

struct golden_tensor {
    const char *name;
    uint32_t seed; /* of its numbers */
    double scale;
    double sum, length; /* of its gradient: sum with number(300, .) */
};

struct golden_net {
    const char *name;
    const struct golden_tensor *tensors;
    size_t tensor_count;
    const double *outputs; /* one behind the other */
    size_t output_count;
    const double *state; /* at the end, and the gradient of that at the start */
    size_t state_width;
};

#include "tests/nn/golden_networks.h"

enum { NETS = sizeof golden_nets / sizeof golden_nets[0] };
enum { STEPS = 3, SEQUENCES = 2, ROWS = STEPS * SEQUENCES };
enum { HEIGHT = 36, WIDTH = 40, CHANNELS = 2, OUTPUTS = 3, NUMBERS = 5, SMALL_WIDTH = 11 };
enum { ATOMS = 4, SAID = ROWS * OUTPUTS * ATOMS };

/* As make_networks.py has it. */
static float number(uint32_t seed, uint32_t index)
{
    uint32_t h = index * 2654435761u + seed * 2246822519u + 374761393u;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    h ^= h >> 16;
    return (float)((double)(h >> 8) / (1 << 23) - 1);
}

/* The networks of make_networks.py, in its words. */
static trp_net_spec network(const char *name)
{
    bool dueling = strstr(name, "dueling"), value = name[0] != 'm' && !dueling;
    trp_core core = strstr(name, "lstm")  ? TRP_CORE_LSTM
                    : strstr(name, "gru") ? TRP_CORE_GRU
                                          : TRP_NO_CORE;
    uint32_t atoms = strstr(name, "atoms") ? ATOMS : 1;
    if (name[0] == 'm')
        return trp_mlp(
            &(trp_mlp_options){.inputs = NUMBERS,
                               .hidden = {7, 6},
                               .outputs = OUTPUTS * atoms,
                               .dueling = dueling,
                               .atoms = atoms,
                               .activation = strcmp(name, "mlp_dueling") == 0 ? TRP_TANH : TRP_RELU,
                               .core = core,
                               .core_size = 5});
    bool nature = name[0] == 'n';
    trp_cnn_options options = {.height = nature ? HEIGHT : 12,
                               .width = nature ? WIDTH : SMALL_WIDTH,
                               .channels = CHANNELS,
                               .outputs = OUTPUTS * atoms,
                               .value = value,
                               .dueling = dueling,
                               .atoms = atoms,
                               .core = core,
                               .core_size = 5};
    return nature ? trp_nature_cnn(&options) : trp_impala_resnet(&options);
}

/* ---- one pass ------------------------------------------------------------------------------- */

struct pass {
    trp_net_spec spec;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    size_t tensor_count;
    float *params, *grads;
    uint8_t pixels[ROWS * HEIGHT * WIDTH * CHANNELS];
    float numbers[ROWS * NUMBERS];
    uint8_t resets[ROWS];
    float state[SEQUENCES * 10], end_state[SEQUENCES * 10], state_grads[SEQUENCES * 10];
    float outputs[2][SAID];
};

static const trp_net_tensor *find(const struct pass *pass, const char *name)
{
    for (size_t i = 0; i < pass->tensor_count; i++)
        if (strcmp(pass->tensors[i].name, name) == 0)
            return &pass->tensors[i];
    fail_msg("no tensor is called %s", name);
    return NULL;
}

static void pass_prepare(struct pass *pass, const struct golden_net *golden)
{
    memset(pass, 0, sizeof *pass);
    pass->spec = network(golden->name);
    pass->tensor_count = trp_net_tensors(&pass->spec, pass->tensors);
    assert_int_equal(pass->tensor_count, golden->tensor_count);
    assert_int_equal(trp_net_state_width(&pass->spec), golden->state_width);
    pass->params = trp_floats_create(trp_net_param_count(&pass->spec));
    pass->grads = trp_floats_create(trp_net_param_count(&pass->spec));
    for (size_t i = 0; i < golden->tensor_count; i++) {
        const struct golden_tensor *row = &golden->tensors[i];
        const trp_net_tensor *tensor = find(pass, row->name);
        float *values = xcalloc(tensor->count, sizeof *values);
        for (uint32_t k = 0; k < tensor->count; k++)
            values[k] = (float)(row->scale * (double)number(row->seed, k));
        trp_net_tensor_set(tensor, values, pass->params);
        free(values);
    }
    for (uint32_t i = 0; i < sizeof pass->pixels; i++)
        pass->pixels[i] = (uint8_t)(128 * (1 + number(9, i)));
    for (uint32_t i = 0; i < ROWS * NUMBERS; i++)
        pass->numbers[i] = number(10, i);
    for (uint32_t i = 0; i < ROWS; i++)
        pass->resets[i] = number(11, i) > 0.5F;
    for (uint32_t i = 0; i < SEQUENCES * golden->state_width; i++)
        pass->state[i] = number(6, i);
}

static void pass_run(struct pass *pass, const struct golden_net *golden, const char *device)
{
    float slopes[2][SAID], end_slopes[SEQUENCES * 10];
    for (uint32_t i = 0; i < 2 * SAID; i++)
        slopes[i / SAID][i % SAID] = number(100 + i / SAID, i % SAID);
    for (uint32_t i = 0; i < SEQUENCES * golden->state_width; i++)
        end_slopes[i] = number(104, i);
    trp_net *net;
    trp_device *found;
    assert_int_equal(trp_device_find(&found, device), TRP_OK);
    assert_int_equal(
        trp_net_create(&net,
                       &(trp_net_options){.spec = &pass->spec, .batch = ROWS, .device = found}),
        TRP_OK);
    bool sees = pass->spec.layers[0].dtype == TRP_UINT8, remembers = golden->state_width > 0;
    trp_net_rows rows = {
        .rows = ROWS,
        .inputs = {sees ? (const void *)pass->pixels : pass->numbers},
        .outputs = {pass->outputs[0], pass->spec.output_count > 1 ? pass->outputs[1] : NULL},
        .steps = remembers ? STEPS : 0,
        .resets = remembers ? pass->resets : NULL,
        .state = remembers ? pass->state : NULL,
        .end_state = remembers ? pass->end_state : NULL};
    trp_net_forward(net, pass->params, &rows);
    trp_net_backward(
        net, pass->params, &rows,
        &(trp_net_grads){.outputs = {slopes[0], pass->spec.output_count > 1 ? slopes[1] : NULL},
                         .params = pass->grads,
                         .end_state = remembers ? end_slopes : NULL,
                         .state = remembers ? pass->state_grads : NULL});
    trp_net_destroy(net);
}

/* ---- comparisons ------------------------------------------------------------------------------
 */

/* Rounding of float32 through up to 17 layers, against numbers of a size of 1. */
static void compare(const char *net, const char *what, const float *got, const double *want,
                    size_t count)
{
    double length = 0;
    for (size_t i = 0; i < count; i++)
        length += want[i] * want[i] / (double)count;
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i]) <= 2e-5 * sqrt(length)))
            fail_msg("%s: %s %zu is %.9g, PyTorch's is %.9g", net, what, i, (double)got[i],
                     want[i]);
}

static void compare_gradient(const char *net, const struct pass *pass,
                             const struct golden_tensor *row)
{
    const trp_net_tensor *tensor = find(pass, row->name);
    float *values = xcalloc(tensor->count, sizeof *values);
    double sum = 0, squares = 0;
    trp_net_tensor_get(tensor, pass->grads, values);
    for (uint32_t i = 0; i < tensor->count; i++) {
        sum += (double)values[i] * (double)number(300, i);
        squares += (double)values[i] * (double)values[i];
    }
    free(values);
    if (!(fabs(sum - row->sum) <= 5e-5 * row->length) ||
        !(fabs(sqrt(squares) - row->length) <= 5e-5 * row->length))
        fail_msg("%s: the gradient of %s has sum %.9g and length %.9g, PyTorch's %.9g and %.9g",
                 net, row->name, sum, sqrt(squares), row->sum, row->length);
}

static void check(const char *device)
{
    struct pass *pass = xcalloc(1, sizeof *pass);
    for (size_t n = 0; n < NETS; n++) {
        const struct golden_net *golden = &golden_nets[n];
        pass_prepare(pass, golden);
        pass_run(pass, golden, device);
        size_t first = (size_t)ROWS * trp_net_output_width(&pass->spec, 0);
        compare(golden->name, "output", pass->outputs[0], golden->outputs, first);
        compare(golden->name, "value", pass->outputs[1], golden->outputs + first,
                golden->output_count - first);
        size_t states = SEQUENCES * golden->state_width;
        if (states > 0) {
            compare(golden->name, "state", pass->end_state, golden->state, states);
            compare(golden->name, "gradient of the state", pass->state_grads,
                    golden->state + states, states);
        }
        for (size_t i = 0; i < golden->tensor_count; i++)
            compare_gradient(golden->name, pass, &golden->tensors[i]);
        trp_floats_destroy(pass->params);
        trp_floats_destroy(pass->grads);
    }
    free(pass);
}

static void the_reference_has_pytorchs_numbers(void **state)
{
    (void)state;
    check("ref");
}

static void the_processor_has_pytorchs_numbers(void **state)
{
    (void)state;
    check("cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_has_pytorchs_numbers),
        cmocka_unit_test(the_processor_has_pytorchs_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
