/* A spec is walked once: every kind of layer is one row of a table, which says how many it reads,
 * what shape comes out, and which tensors it has. */
#include "graph.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "limits.h"

/* One layer while its graph is built. */
struct layer_step {
    const trp_net_spec *spec;
    const trp_layer *layer;
    uint32_t index;
    const struct value *from[TRP_LAYER_FROM_MAX];
    struct value *to;
};

struct layer_class {
    const char *name;
    uint32_t from_min, from_max;
    bool fuses; /* has an activation of its own */
    trp_status (*shape)(const struct layer_step *step);
    size_t (*tensors)(const struct layer_step *step, trp_net_tensor *tensors); /* NULL: has none */
};

/* ---- words --------------------------------------------------------------------------------- */

static TRP_PRINTF(2, 3) trp_status refuse(const struct layer_step *step, const char *format, ...)
{
    char words[160];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    bool named = step->layer->name[0] && memchr(step->layer->name, 0, TRP_LAYER_NAME_BYTES);
    return trp_fail(TRP_INVALID_ARGUMENT, "network layer %u%s%s%s: %s", step->index,
                    named ? " (" : "", named ? step->layer->name : "", named ? ")" : "", words);
}

static trp_status width_check(const struct layer_step *step, const char *what, uint64_t width)
{
    if (width == 0 || width > NET_WIDTH_MAX)
        return refuse(step, "%s is %llu; it must be 1 to %d", what, (unsigned long long)width,
                      NET_WIDTH_MAX);
    return TRP_OK;
}

static struct value columns_value(uint32_t columns)
{
    return (struct value){.shape = {columns}, .rank = 1, .columns = columns, .dtype = TRP_FLOAT32};
}

/* ---- shapes, kind by kind ------------------------------------------------------------------ */

static trp_status input_shape(const struct layer_step *step)
{
    const trp_layer *layer = step->layer;
    uint64_t columns = 1;
    uint32_t rank = 0;
    for (; rank < TRP_LAYER_RANK_MAX && layer->shape[rank] > 0; rank++) {
        TRP_TRY(width_check(step, "a dimension of the input", layer->shape[rank]));
        columns *= layer->shape[rank];
    }
    for (uint32_t i = rank; i < TRP_LAYER_RANK_MAX; i++)
        if (layer->shape[i] != 0)
            return refuse(step, "dimension %u of the input follows one of 0, which ends the list",
                          layer->shape[i]);
    if (rank == 0)
        return refuse(step, "the input has no shape");
    if (rank == 2)
        return refuse(step, "the input has a shape of 2; it must be columns, or height, width and "
                            "channels");
    if (columns > NET_INPUT_MAX)
        return refuse(step, "the input has %llu columns; at most %d are possible",
                      (unsigned long long)columns, NET_INPUT_MAX);
    trp_dtype dtype = layer->dtype ? layer->dtype : TRP_FLOAT32;
    if (dtype != TRP_FLOAT32 && dtype != TRP_UINT8 && dtype != TRP_INT32)
        return refuse(step, "the input is %s; it must be float32, uint8 or int32",
                      trp_dtype_name(dtype));
    *step->to = (struct value){.rank = rank, .columns = (uint32_t)columns, .dtype = dtype};
    memcpy(step->to->shape, layer->shape, sizeof layer->shape);
    return TRP_OK;
}

static trp_status linear_shape(const struct layer_step *step)
{
    TRP_TRY(width_check(step, "size", step->layer->size));
    *step->to = columns_value(step->layer->size);
    return TRP_OK;
}

static trp_status activation_shape(const struct layer_step *step)
{
    if (step->layer->activation == TRP_NO_ACTIVATION)
        return refuse(step, "an activation layer without an activation");
    *step->to = *step->from[0];
    step->to->dtype = TRP_FLOAT32;
    return TRP_OK;
}

static trp_status concat_shape(const struct layer_step *step)
{
    uint64_t columns = 0;
    for (uint32_t i = 0; i < layer_from_count(step->layer); i++)
        columns += step->from[i]->columns;
    if (columns > NET_INPUT_MAX)
        return refuse(step, "%llu columns together; at most %d are possible",
                      (unsigned long long)columns, NET_INPUT_MAX);
    *step->to = columns_value((uint32_t)columns);
    return TRP_OK;
}

static trp_status slice_shape(const struct layer_step *step)
{
    const trp_layer *layer = step->layer;
    uint32_t columns = step->from[0]->columns;
    if (layer->size == 0 || layer->first >= columns || layer->size > columns - layer->first)
        return refuse(step, "columns %u and %u more of %u", layer->first, layer->size, columns);
    *step->to = columns_value(layer->size);
    return TRP_OK;
}

static trp_status add_shape(const struct layer_step *step)
{
    const struct value *a = step->from[0], *b = step->from[1];
    if (a->rank != b->rank || memcmp(a->shape, b->shape, sizeof a->shape) != 0)
        return refuse(step, "adds %u columns to %u, or other shapes", b->columns, a->columns);
    *step->to = *a;
    step->to->dtype = TRP_FLOAT32;
    return TRP_OK;
}

uint32_t graph_atoms(const trp_layer *layer)
{
    return layer->size > 0 ? layer->size : 1;
}

static trp_status dueling_shape(const struct layer_step *step)
{
    uint32_t columns = step->from[0]->columns, atoms = graph_atoms(step->layer);
    if (columns / 2 < atoms || columns % atoms > 0)
        return refuse(step,
                      "a dueling head of %u columns; it needs a value and advantages, each of %u",
                      columns, atoms);
    *step->to = columns_value(columns - atoms);
    return TRP_OK;
}

struct window graph_window(const trp_layer *layer, const struct value *from)
{
    uint32_t stride = layer->stride > 0 ? layer->stride : 1;
    return (struct window){
        .height = from->shape[0],
        .width = from->shape[1],
        .channels = from->shape[2],
        .kernel_height = layer->kernel,
        .kernel_width = layer->kernel,
        .stride_height = stride,
        .stride_width = stride,
        .pad_height = layer->padding,
        .pad_width = layer->padding,
        .filters = layer->kind == TRP_CONV2D ? layer->size : from->shape[2],
    };
}

struct cell_shape graph_cell(const trp_layer *layer, const struct value *from)
{
    return (struct cell_shape){.kind = layer->kind == TRP_LSTM ? CELL_LSTM : CELL_GRU,
                               .inputs = from->columns,
                               .hidden = layer->size};
}

static trp_status window_shape(const struct layer_step *step)
{
    const trp_layer *layer = step->layer;
    const struct value *from = step->from[0];
    if (from->rank != 3)
        return refuse(step, "reads %u columns, not an image", from->columns);
    if (layer->kernel == 0 || layer->kernel > NET_KERNEL_MAX)
        return refuse(step, "kernel is %u; it must be 1 to %d", layer->kernel, NET_KERNEL_MAX);
    if (layer->padding >= layer->kernel)
        return refuse(step, "padding is %u; it must be less than the kernel", layer->padding);
    struct window window = graph_window(layer, from);
    uint32_t least = from->shape[0] < from->shape[1] ? from->shape[0] : from->shape[1];
    if (layer->kernel > least + 2 * layer->padding)
        return refuse(step, "kernel is %u, more than the image of %u x %u", layer->kernel,
                      from->shape[0], from->shape[1]);
    if (layer->stride > NET_WIDTH_MAX)
        return refuse(step, "stride is %u; at most %d is possible", layer->stride, NET_WIDTH_MAX);
    if (layer->kind == TRP_MAX_POOL && layer->kernel * layer->kernel > POOL_WINDOW_MAX)
        return refuse(step, "a pool of %u x %u; at most %d positions are possible", layer->kernel,
                      layer->kernel, POOL_WINDOW_MAX);
    TRP_TRY(width_check(step, "size", window.filters));
    uint64_t pixels = (uint64_t)window_out_height(&window) * window_out_width(&window);
    if (pixels * window.filters > NET_INPUT_MAX)
        return refuse(step, "the result has %llu columns; at most %d are possible",
                      (unsigned long long)(pixels * window.filters), NET_INPUT_MAX);
    *step->to = (struct value){
        .shape = {window_out_height(&window), window_out_width(&window), window.filters},
        .rank = 3,
        .columns = (uint32_t)(pixels * window.filters),
        .dtype = TRP_FLOAT32};
    return TRP_OK;
}

static trp_status norm_shape(const struct layer_step *step)
{
    *step->to = *step->from[0];
    step->to->dtype = TRP_FLOAT32;
    return TRP_OK;
}

static trp_status embedding_shape(const struct layer_step *step)
{
    const trp_layer *layer = step->layer;
    TRP_TRY(width_check(step, "size", layer->size));
    if (layer->vocabulary == 0 || layer->vocabulary > NET_INPUT_MAX)
        return refuse(step, "vocabulary is %u; it must be 1 to %d", layer->vocabulary,
                      NET_INPUT_MAX);
    if (step->from[0]->dtype != TRP_INT32)
        return refuse(step, "an embedding reads an input of int32");
    uint64_t columns = (uint64_t)step->from[0]->columns * layer->size;
    if (columns > NET_INPUT_MAX)
        return refuse(step, "the result has %llu columns; at most %d are possible",
                      (unsigned long long)columns, NET_INPUT_MAX);
    *step->to = columns_value((uint32_t)columns);
    return TRP_OK;
}

/* ---- tensors, kind by kind ----------------------------------------------------------------- */

static void tensor_name(trp_net_tensor *tensor, const struct layer_step *step, const char *what)
{
    snprintf(tensor->name, sizeof tensor->name, "%s.%s", step->layer->name, what);
}

static void tensor_axis(trp_net_tensor *tensor, size_t count, size_t stride)
{
    tensor->axes[tensor->axis_count].count = count;
    tensor->axes[tensor->axis_count++].stride = stride;
}

static trp_net_tensor vector_tensor(const struct layer_step *step, const char *what, uint32_t count)
{
    trp_net_tensor tensor = {.rank = 1, .shape = {count}, .count = count};
    tensor_name(&tensor, step, what);
    tensor_axis(&tensor, count, 1);
    return tensor;
}

/* PyTorch's [outputs][inputs], which lies as [inputs][outputs]. An image is flattened channels
 * first there, channels last here. */
static trp_net_tensor matrix_tensor(const struct layer_step *step, const char *what,
                                    uint32_t outputs)
{
    const struct value *from = step->from[0];
    trp_net_tensor tensor = {
        .rank = 2, .shape = {outputs, from->columns}, .count = (size_t)outputs * from->columns};
    tensor_name(&tensor, step, what);
    tensor_axis(&tensor, outputs, 1);
    if (from->rank == 3) {
        size_t channels = from->shape[2], width = from->shape[1];
        tensor_axis(&tensor, channels, outputs);
        tensor_axis(&tensor, from->shape[0], width * channels * outputs);
        tensor_axis(&tensor, width, channels * outputs);
    } else {
        tensor_axis(&tensor, from->columns, outputs);
    }
    return tensor;
}

static size_t linear_tensors(const struct layer_step *step, trp_net_tensor *tensors)
{
    tensors[0] = matrix_tensor(step, "weight", step->layer->size);
    tensors[1] = vector_tensor(step, "bias", step->layer->size);
    return 2;
}

static size_t noisy_tensors(const struct layer_step *step, trp_net_tensor *tensors)
{
    tensors[0] = matrix_tensor(step, "weight_mu", step->layer->size);
    tensors[1] = matrix_tensor(step, "weight_sigma", step->layer->size);
    tensors[2] = vector_tensor(step, "bias_mu", step->layer->size);
    tensors[3] = vector_tensor(step, "bias_sigma", step->layer->size);
    return 4;
}

static size_t conv_tensors(const struct layer_step *step, trp_net_tensor *tensors)
{
    size_t kernel = step->layer->kernel, filters = step->layer->size;
    size_t channels = step->from[0]->shape[2];
    tensors[0] = (trp_net_tensor){.rank = 4,
                                  .shape = {filters, channels, kernel, kernel},
                                  .count = filters * channels * kernel * kernel};
    tensor_name(&tensors[0], step, "weight");
    tensor_axis(&tensors[0], filters, 1);
    tensor_axis(&tensors[0], channels, filters);
    tensor_axis(&tensors[0], kernel, kernel * channels * filters);
    tensor_axis(&tensors[0], kernel, channels * filters);
    tensors[1] = vector_tensor(step, "bias", step->layer->size);
    return 2;
}

static size_t norm_tensors(const struct layer_step *step, trp_net_tensor *tensors)
{
    tensors[0] = vector_tensor(step, "weight", step->from[0]->columns);
    tensors[1] = vector_tensor(step, "bias", step->from[0]->columns);
    return 2;
}

static size_t embedding_tensors(const struct layer_step *step, trp_net_tensor *tensors)
{
    size_t rows = step->layer->vocabulary, columns = step->layer->size;
    tensors[0] = (trp_net_tensor){.rank = 2, .shape = {rows, columns}, .count = rows * columns};
    tensor_name(&tensors[0], step, "weight");
    tensor_axis(&tensors[0], rows, columns);
    tensor_axis(&tensors[0], columns, 1);
    return 1;
}

static size_t cell_tensors(const struct layer_step *step, trp_net_tensor *tensors)
{
    struct cell_shape cell = graph_cell(step->layer, step->from[0]);
    uint32_t gates = cell_gates(cell.kind) * cell.hidden;
    tensors[0] = matrix_tensor(step, "weight_ih_l0", gates);
    tensors[1] = (trp_net_tensor){
        .rank = 2, .shape = {gates, cell.hidden}, .count = (size_t)gates * cell.hidden};
    tensor_name(&tensors[1], step, "weight_hh_l0");
    tensor_axis(&tensors[1], gates, 1);
    tensor_axis(&tensors[1], cell.hidden, gates);
    tensors[2] = vector_tensor(step, "bias_ih_l0", gates);
    tensors[3] = vector_tensor(step, "bias_hh_l0", gates);
    return 4;
}

static size_t parameter_tensors(const struct layer_step *step, trp_net_tensor *tensors)
{
    tensors[0] = vector_tensor(step, "", step->layer->size);
    snprintf(tensors[0].name, sizeof tensors[0].name, "%s", step->layer->name);
    return 1;
}

static const struct layer_class classes[] = {
    [TRP_INPUT] = {"input", 0, 0, false, input_shape, NULL},
    [TRP_LINEAR] = {"linear", 1, 1, true, linear_shape, linear_tensors},
    [TRP_ACTIVATION] = {"activation", 1, 1, true, activation_shape, NULL},
    [TRP_CONCAT] = {"concat", 1, TRP_LAYER_FROM_MAX, false, concat_shape, NULL},
    [TRP_SLICE] = {"slice", 1, 1, false, slice_shape, NULL},
    [TRP_ADD] = {"add", 2, 2, false, add_shape, NULL},
    [TRP_DUELING] = {"dueling", 1, 1, false, dueling_shape, NULL},
    [TRP_CONV2D] = {"conv2d", 1, 1, true, window_shape, conv_tensors},
    [TRP_MAX_POOL] = {"max pool", 1, 1, false, window_shape, NULL},
    [TRP_MEAN_POOL] = {"mean pool", 1, 1, false, window_shape, NULL},
    [TRP_LAYER_NORM] = {"layer norm", 1, 1, false, norm_shape, norm_tensors},
    [TRP_EMBEDDING] = {"embedding", 1, 1, false, embedding_shape, embedding_tensors},
    [TRP_LSTM] = {"lstm", 1, 1, false, linear_shape, cell_tensors},
    [TRP_GRU] = {"gru", 1, 1, false, linear_shape, cell_tensors},
    [TRP_NOISY_LINEAR] = {"noisy linear", 1, 1, true, linear_shape, noisy_tensors},
    [TRP_PARAMETER] = {"parameter", 0, 0, false, linear_shape, parameter_tensors},
};
enum { CLASSES = sizeof classes / sizeof classes[0] };

/* ---- checks -------------------------------------------------------------------------------- */

static trp_status layer_name_check(const struct layer_step *step)
{
    const char *name = step->layer->name;
    if (!memchr(name, 0, TRP_LAYER_NAME_BYTES))
        return refuse(step, "the name has more than %d bytes", TRP_LAYER_NAME_BYTES - 1);
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            return refuse(step, "the name has a byte that is no letter of a tensor's name");
    if (!classes[step->layer->kind].tensors)
        return TRP_OK;
    if (!name[0])
        return refuse(step, "has parameters and no name");
    for (uint32_t i = 0; i < step->index; i++)
        if (classes[step->spec->layers[i].kind].tensors &&
            strcmp(step->spec->layers[i].name, name) == 0)
            return refuse(step, "layer %u has the same name", i);
    return TRP_OK;
}

/* What would be left alone silently. */
static trp_status kind_check(const struct layer_step *step)
{
    enum {
        INPUT = 1U << TRP_INPUT,
        SLICE = 1U << TRP_SLICE,
        CONV = 1U << TRP_CONV2D,
        WINDOWS = CONV | 1U << TRP_MAX_POOL | 1U << TRP_MEAN_POOL,
        NOISY = 1U << TRP_NOISY_LINEAR,
        EMBEDDING = 1U << TRP_EMBEDDING,
        PARAMETER = 1U << TRP_PARAMETER,
        SIZED = 1U << TRP_LINEAR | SLICE | 1U << TRP_DUELING | CONV | EMBEDDING | 1U << TRP_LSTM |
                1U << TRP_GRU | NOISY | PARAMETER,
    };
    const trp_layer *layer = step->layer;
    const struct layer_class *class = &classes[layer->kind];
    const struct {
        const char *name;
        bool given;
        uint32_t kinds; /* that have it */
    } fields[] = {
        {"size", layer->size != 0, SIZED},
        {"first", layer->first != 0, SLICE},
        {"kernel", layer->kernel != 0, WINDOWS},
        {"stride", layer->stride != 0, WINDOWS},
        {"padding", layer->padding != 0, WINDOWS},
        {"vocabulary", layer->vocabulary != 0, EMBEDDING},
        {"dtype", layer->dtype != 0, INPUT},
        {"shape", layer->shape[0] != 0, INPUT},
        {"scale", layer->scale != 0, INPUT},
        {"sigma", layer->sigma != 0, NOISY},
        {"value", layer->value != 0, PARAMETER | 1U << TRP_LSTM},
        {"activation", layer->activation != TRP_NO_ACTIVATION, class->fuses ? ~0U : 0},
        {"initialiser", layer->init != TRP_INIT_DEFAULT, class->tensors ? ~0U : 0},
        {"gain", layer->gain != 0, class->tensors ? ~0U : 0},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].given && !(fields[i].kinds >> layer->kind & 1))
            return refuse(step, "a layer of kind %s has no %s", class->name, fields[i].name);
    return TRP_OK;
}

static trp_status options_check(const struct layer_step *step)
{
    const trp_layer *layer = step->layer;
    if ((unsigned)layer->activation > TRP_GELU_TANH)
        return refuse(step, "activation %d is unknown", (int)layer->activation);
    if ((unsigned)layer->init > TRP_INIT_VARIANCE)
        return refuse(step, "initialiser %d is unknown", (int)layer->init);
    if (!(layer->gain >= 0 && layer->gain <= 1e6F))
        return refuse(step, "gain is %g, must be in [0, 1e6]", (double)layer->gain);
    if (!(layer->sigma >= 0 && layer->sigma <= 1e6F))
        return refuse(step, "sigma is %g, must be in [0, 1e6]", (double)layer->sigma);
    if (!(layer->scale >= 0 && layer->scale <= 1e6F))
        return refuse(step, "scale is %g, must be in [0, 1e6]", (double)layer->scale);
    if (!(layer->value >= -1e6F && layer->value <= 1e6F))
        return refuse(step, "value is %g, must be in [-1e6, 1e6]", (double)layer->value);
    return TRP_OK;
}

static trp_status from_check(struct layer_step *step, const struct graph *graph)
{
    const trp_layer *layer = step->layer;
    const struct layer_class *class = &classes[layer->kind];
    uint32_t count = layer_from_count(layer);
    if (count < class->from_min || count > class->from_max)
        return refuse(step, "a layer of kind %s reads %u others; it must be %u to %u", class->name,
                      count, class->from_min, class->from_max);
    for (uint32_t i = 0; i < count; i++) {
        if (layer->from[i] >= step->index)
            return refuse(step, "reads layer %u, which does not come before it", layer->from[i]);
        step->from[i] = &graph->values[layer->from[i]];
        if (step->from[i]->dtype == TRP_INT32 && layer->kind != TRP_EMBEDDING)
            return refuse(step, "reads tokens; only an embedding does");
    }
    return TRP_OK;
}

static struct layer_step step_of(struct graph *graph, const trp_net_spec *spec, uint32_t index)
{
    return (struct layer_step){
        .spec = spec, .layer = &spec->layers[index], .index = index, .to = &graph->values[index]};
}

static void noisy_build(struct graph *graph, const struct layer_step *step)
{
    size_t inputs = step->from[0]->columns, outputs = step->layer->size;
    size_t weights = round_up(inputs * outputs, ALIGNMENT_FLOATS);
    size_t noisy = weights + round_up(outputs, ALIGNMENT_FLOATS);
    graph->noise[step->index] = graph->noise_count;
    graph->noise_count += inputs + outputs;
    graph->noisy[step->index] = graph->noisy_count;
    graph->noisy_count += noisy;
    graph->noisy_most = noisy > graph->noisy_most ? noisy : graph->noisy_most;
}

/* A parameter's name is the tensor's: it may be what another layer calls one of its own. */
static trp_status tensor_names_check(const struct layer_step *step, const struct graph *graph,
                                     const trp_net_tensor *tensors, size_t count)
{
    for (uint32_t i = 0; i < step->index; i++) {
        const trp_layer *other = &step->spec->layers[i];
        if (step->layer->kind != TRP_PARAMETER && other->kind != TRP_PARAMETER)
            continue;
        trp_net_tensor others[LAYER_TENSORS_MAX];
        size_t other_count = graph_tensors(step->spec, graph, i, others);
        for (size_t j = 0; j < count * other_count; j++)
            if (strcmp(tensors[j % count].name, others[j / count].name) == 0)
                return refuse(step, "layer %u has a tensor %s, too", i, tensors[j % count].name);
    }
    return TRP_OK;
}

static trp_status layer_build(struct graph *graph, const trp_net_spec *spec, uint32_t index)
{
    struct layer_step step = step_of(graph, spec, index);
    if ((unsigned)step.layer->kind >= CLASSES)
        return trp_fail(TRP_INVALID_ARGUMENT, "network layer %u: kind %d is unknown", index,
                        (int)step.layer->kind);
    TRP_TRY(layer_name_check(&step));
    TRP_TRY(options_check(&step));
    TRP_TRY(kind_check(&step));
    TRP_TRY(from_check(&step, graph));
    TRP_TRY(classes[step.layer->kind].shape(&step));
    graph->state[index] = graph->state_width;
    if (is_cell(step.layer)) {
        struct cell_shape cell = graph_cell(step.layer, step.from[0]);
        graph->state_width += cell_state(&cell);
    }
    if (step.layer->kind == TRP_NOISY_LINEAR)
        noisy_build(graph, &step);
    trp_net_tensor tensors[LAYER_TENSORS_MAX];
    size_t count = graph_tensors(spec, graph, index, tensors);
    TRP_TRY(tensor_names_check(&step, graph, tensors, count));
    for (size_t i = 0; i < count; i++) {
        graph->params[index][i] = graph->param_count;
        graph->param_count += round_up(tensors[i].count, ALIGNMENT_FLOATS);
    }
    if (graph->param_count > NET_PARAMS_MAX)
        return refuse(&step, "%zu parameters up to here; at most %d are possible",
                      graph->param_count, NET_PARAMS_MAX);
    return TRP_OK;
}

static trp_status outputs_check(const trp_net_spec *spec)
{
    if (spec->output_count == 0 || spec->output_count > TRP_NET_OUTPUTS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network has %u outputs; it must be 1 to %d",
                        spec->output_count, TRP_NET_OUTPUTS_MAX);
    for (uint32_t i = 0; i < spec->output_count; i++)
        if (spec->outputs[i] >= spec->layer_count)
            return trp_fail(TRP_INVALID_ARGUMENT, "network output %u is layer %u of %u", i,
                            spec->outputs[i], spec->layer_count);
        else if (spec->layers[spec->outputs[i]].kind == TRP_INPUT)
            return trp_fail(TRP_INVALID_ARGUMENT, "network output %u is an input", i);
    return TRP_OK;
}

trp_status graph_build(struct graph *graph, const trp_net_spec *spec)
{
    *graph = (struct graph){0};
    if (spec->layer_count == 0 || spec->layer_count > TRP_NET_LAYERS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network has %u layers; it must be 1 to %d",
                        spec->layer_count, TRP_NET_LAYERS_MAX);
    uint32_t inputs = 0;
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        TRP_TRY(layer_build(graph, spec, i));
        inputs += spec->layers[i].kind == TRP_INPUT;
    }
    if (inputs == 0 || inputs > TRP_NET_INPUTS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network has %u inputs; it must be 1 to %d", inputs,
                        TRP_NET_INPUTS_MAX);
    return outputs_check(spec);
}

trp_status trp_net_spec_check(const trp_net_spec *spec)
{
    struct graph graph;
    return graph_build(&graph, spec);
}

/* ---- what a valid spec has ------------------------------------------------------------------ */

struct graph graph_of(const trp_net_spec *spec)
{
    struct graph graph;
    trp_status status = graph_build(&graph, spec);
    assert(status == TRP_OK);
    (void)status;
    return graph;
}

size_t graph_tensors(const trp_net_spec *spec, const struct graph *graph, uint32_t index,
                     trp_net_tensor *tensors)
{
    const trp_layer *layer = &spec->layers[index];
    if (!classes[layer->kind].tensors)
        return 0;
    struct layer_step step = {.spec = spec, .layer = layer, .index = index};
    for (uint32_t i = 0; i < layer_from_count(layer); i++)
        step.from[i] = &graph->values[layer->from[i]];
    size_t count = classes[layer->kind].tensors(&step, tensors);
    for (size_t i = 0; i < count; i++)
        tensors[i].offset = graph->params[index][i];
    return count;
}

size_t trp_net_param_count(const trp_net_spec *spec)
{
    return graph_of(spec).param_count;
}

uint32_t trp_net_input_width(const trp_net_spec *spec, uint32_t index)
{
    struct graph graph = graph_of(spec);
    for (uint32_t i = 0; i < spec->layer_count; i++)
        if (spec->layers[i].kind == TRP_INPUT && index-- == 0)
            return graph.values[i].columns;
    return 0;
}

uint32_t trp_net_output_width(const trp_net_spec *spec, uint32_t index)
{
    struct graph graph = graph_of(spec);
    assert(index < spec->output_count);
    return graph.values[spec->outputs[index]].columns;
}

/* Whether the result of a layer depends on parameters. */
static bool is_trained(const trp_net_spec *spec, uint32_t index)
{
    bool trained[TRP_NET_LAYERS_MAX] = {false};
    for (uint32_t i = 0; i <= index; i++) {
        const trp_layer *layer = &spec->layers[i];
        trained[i] = classes[layer->kind].tensors != NULL;
        for (uint32_t j = 0; j < layer_from_count(layer); j++)
            trained[i] |= trained[layer->from[j]];
    }
    return trained[index];
}

/* Multiplications of one row. */
static double layer_products(const trp_layer *layer, const struct value *from)
{
    if (is_linear(layer))
        return (double)from->columns * layer->size;
    if (layer->kind == TRP_CONV2D) {
        struct window w = graph_window(layer, from);
        return (double)window_patch(&w) * window_out_height(&w) * window_out_width(&w) * w.filters;
    }
    if (!is_cell(layer))
        return 0;
    struct cell_shape cell = graph_cell(layer, from);
    return ((double)cell.inputs + cell.hidden) * cell_gates(cell.kind) * cell.hidden;
}

double trp_net_step_flops(const trp_net_spec *spec, uint32_t rows)
{
    struct graph graph = graph_of(spec);
    double flops = 0;
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        const trp_layer *layer = &spec->layers[i];
        if (layer_from_count(layer) == 0)
            continue;
        double products = is_trained(spec, layer->from[0]) ? 3 : 2; /* inputs have no gradient */
        flops += products * 2 * rows * layer_products(layer, &graph.values[layer->from[0]]);
    }
    return flops;
}

uint32_t trp_net_state_width(const trp_net_spec *spec)
{
    return graph_of(spec).state_width;
}

size_t trp_net_tensors(const trp_net_spec *spec, trp_net_tensor tensors[TRP_NET_TENSORS_MAX])
{
    struct graph graph = graph_of(spec);
    size_t count = 0;
    for (uint32_t i = 0; i < spec->layer_count; i++)
        count += graph_tensors(spec, &graph, i, tensors + count);
    return count;
}

/* The place in the flat vector of element `index` in PyTorch's order. */
static size_t tensor_place(const trp_net_tensor *tensor, size_t index)
{
    size_t place = tensor->offset;
    for (uint32_t axis = tensor->axis_count; axis-- > 0;) {
        place += index % tensor->axes[axis].count * tensor->axes[axis].stride;
        index /= tensor->axes[axis].count;
    }
    return place;
}

void trp_net_tensor_get(const trp_net_tensor *tensor, const float *params, float *values)
{
    for (size_t i = 0; i < tensor->count; i++)
        values[i] = params[tensor_place(tensor, i)];
}

void trp_net_tensor_set(const trp_net_tensor *tensor, const float *values, float *params)
{
    for (size_t i = 0; i < tensor->count; i++)
        params[tensor_place(tensor, i)] = values[i];
}

uint32_t trp_net_add(trp_net_spec *spec, trp_layer layer)
{
    if (spec->layer_count < TRP_NET_LAYERS_MAX)
        spec->layers[spec->layer_count] = layer;
    return spec->layer_count++;
}

void trp_net_output(trp_net_spec *spec, uint32_t layer)
{
    if (spec->output_count < TRP_NET_OUTPUTS_MAX)
        spec->outputs[spec->output_count] = layer;
    spec->output_count++;
}
