/* cuDNN for tests of nn/cuda/module/dnn.c: as a library that it opens. It computes on the host,
 * when the stream comes to it, what attributes of descriptors say, and nothing that they do not; it
 * refuses those that are missing, of another type, too many, or do not fit together. */
#include "fake_dnn.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "core/alloc.h"
#include "nn/cuda/module/dnn_api.h"

#define SHOWN __attribute__((visibility("default")))

enum { AXES = 4, WORKSPACE = 320, ATTRIBUTES = 16, VALUES = 4 };
enum { BAD_PARAM = 2000, INTERNAL_ERROR = 4000 };

extern struct fake_dnn fake_dnn;
SHOWN struct fake_dnn fake_dnn;

struct dnn_handle {
    cudaStream_t stream;
};

/* One that was set. */
struct fake_attribute {
    int name, type;
    int64_t count;
    union {
        int64_t integers[VALUES];
        int numbers[VALUES];
        float reals[VALUES];
        void *pointers[VALUES];
    } as;
};

struct fake_descriptor {
    int kind;
    bool finished;
    struct fake_attribute list[ATTRIBUTES];
    unsigned count;
    enum fake_engine engine;             /* of an engine or its configuration */
    const struct fake_descriptor *graph; /* of a configuration */
};

/* ---- statuses ------------------------------------------------------------------------------ */

static const char *last_error = "";
static struct dnn_handle the_handle;

static int says(int status, const char *words)
{
    last_error = words;
    return status;
}

static bool made_to_fail(void)
{
    return ++fake_dnn.calls == fake_dnn.fails_at;
}

#define MAY_FAIL()                                                                                 \
    do {                                                                                           \
        if (made_to_fail())                                                                        \
            return says(INTERNAL_ERROR, "made to fail");                                           \
    } while (0)

size_t cudnnGetVersion(void);
SHOWN size_t cudnnGetVersion(void)
{
    return 91203;
}

const char *cudnnGetErrorString(int status);
SHOWN const char *cudnnGetErrorString(int status)
{
    return status == 0 ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_FAKE";
}

void cudnnGetLastErrorString(char *words, size_t bytes);
SHOWN void cudnnGetLastErrorString(char *words, size_t bytes)
{
    snprintf(words, bytes, "%s", last_error);
}

#define DNN_DECLARE(NAME, TAKES) int cudnn##NAME TAKES;
DNN_FUNCTIONS(DNN_DECLARE)

SHOWN int cudnnCreate(struct dnn_handle **handle)
{
    MAY_FAIL();
    *handle = &the_handle;
    return 0;
}

SHOWN int cudnnSetStream(struct dnn_handle *handle, void *stream)
{
    MAY_FAIL();
    if (handle != &the_handle)
        return says(BAD_PARAM, "another handle");
    handle->stream = stream;
    return 0;
}

/* ---- descriptors --------------------------------------------------------------------------- */

SHOWN int cudnnBackendCreateDescriptor(int kind, dnn_descriptor *out)
{
    MAY_FAIL();
    struct fake_descriptor *descriptor = xcalloc(1, sizeof *descriptor);
    descriptor->kind = kind;
    fake_dnn.descriptors++;
    *out = descriptor;
    return 0;
}

SHOWN int cudnnBackendDestroyDescriptor(dnn_descriptor descriptor)
{
    fake_dnn.descriptors--;
    memset(descriptor, 0xee, sizeof(struct fake_descriptor));
    free(descriptor);
    return 0;
}

/* Of which kind of descriptor an attribute is, its type, and how many values it has. */
struct fake_rule {
    int kind, name, type, count;
};

static const struct fake_rule rules[] = {
    {DNN_TENSOR, DNN_TENSOR_TYPE, DNN_DATA_TYPE, 1},
    {DNN_TENSOR, DNN_TENSOR_DIMENSIONS, DNN_INT64, AXES},
    {DNN_TENSOR, DNN_TENSOR_STRIDES, DNN_INT64, AXES},
    {DNN_TENSOR, DNN_TENSOR_ID, DNN_INT64, 1},
    {DNN_TENSOR, DNN_TENSOR_ALIGNMENT, DNN_INT64, 1},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_SUMS, DNN_DATA_TYPE, 1},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_MODE, DNN_MODE_TYPE, 1},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_DIMENSIONS, DNN_INT64, 1},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_DILATIONS, DNN_INT64, 2},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_STRIDES, DNN_INT64, 2},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_PRE_PADDINGS, DNN_INT64, 2},
    {DNN_CONVOLUTION, DNN_CONVOLUTION_POST_PADDINGS, DNN_INT64, 2},
    {DNN_FORWARD, DNN_FORWARD_ALPHA, DNN_FLOAT, 1},
    {DNN_FORWARD, DNN_FORWARD_ALPHA + 1, DNN_FLOAT, 1},
    {DNN_FORWARD, DNN_FORWARD_ALPHA + 2, DNN_DESCRIPTOR, 1},
    {DNN_FORWARD, DNN_FORWARD_ALPHA + 3, DNN_DESCRIPTOR, 1},
    {DNN_FORWARD, DNN_FORWARD_ALPHA + 4, DNN_DESCRIPTOR, 1},
    {DNN_FORWARD, DNN_FORWARD_ALPHA + 5, DNN_DESCRIPTOR, 1},
    {DNN_BACKWARD_DATA, DNN_DATA_ALPHA, DNN_FLOAT, 1},
    {DNN_BACKWARD_DATA, DNN_DATA_ALPHA + 1, DNN_FLOAT, 1},
    {DNN_BACKWARD_DATA, DNN_DATA_ALPHA + 2, DNN_DESCRIPTOR, 1},
    {DNN_BACKWARD_DATA, DNN_DATA_ALPHA + 3, DNN_DESCRIPTOR, 1},
    {DNN_BACKWARD_DATA, DNN_DATA_ALPHA + 4, DNN_DESCRIPTOR, 1},
    {DNN_BACKWARD_DATA, DNN_DATA_ALPHA + 5, DNN_DESCRIPTOR, 1},
    {DNN_BACKWARD_FILTER, DNN_FILTER_ALPHA, DNN_FLOAT, 1},
    {DNN_BACKWARD_FILTER, DNN_FILTER_ALPHA + 1, DNN_FLOAT, 1},
    {DNN_BACKWARD_FILTER, DNN_FILTER_ALPHA + 2, DNN_DESCRIPTOR, 1},
    {DNN_BACKWARD_FILTER, DNN_FILTER_ALPHA + 3, DNN_DESCRIPTOR, 1},
    {DNN_BACKWARD_FILTER, DNN_FILTER_ALPHA + 4, DNN_DESCRIPTOR, 1},
    {DNN_BACKWARD_FILTER, DNN_FILTER_ALPHA + 5, DNN_DESCRIPTOR, 1},
    {DNN_GRAPH, DNN_GRAPH_HANDLE, DNN_HANDLE_TYPE, 1},
    {DNN_GRAPH, DNN_GRAPH_OPERATIONS, DNN_DESCRIPTOR, 1},
    {DNN_HEURISTIC, DNN_HEURISTIC_GRAPH, DNN_DESCRIPTOR, 1},
    {DNN_HEURISTIC, DNN_HEURISTIC_MODE, DNN_HEURISTIC_TYPE, 1},
    {DNN_PLAN, DNN_PLAN_HANDLE, DNN_HANDLE_TYPE, 1},
    {DNN_PLAN, DNN_PLAN_CONFIG, DNN_DESCRIPTOR, 1},
    {DNN_PACK, DNN_PACK_IDS, DNN_INT64, 3},
    {DNN_PACK, DNN_PACK_POINTERS, DNN_POINTER, 3},
    {DNN_PACK, DNN_PACK_WORKSPACE, DNN_POINTER, 1},
};

enum { RULES = sizeof rules / sizeof *rules };

static const struct fake_rule *rule_of(int kind, int name)
{
    for (size_t i = 0; i < RULES; i++)
        if (rules[i].kind == kind && rules[i].name == name)
            return &rules[i];
    return NULL;
}

static const struct fake_attribute *find(const struct fake_descriptor *of, int name)
{
    for (unsigned i = 0; i < of->count; i++)
        if (of->list[i].name == name)
            return &of->list[i];
    return NULL;
}

static const struct fake_descriptor *below(const struct fake_descriptor *of, int name)
{
    return find(of, name)->as.pointers[0];
}

SHOWN int cudnnBackendSetAttribute(dnn_descriptor to, int name, int type, int64_t count,
                                   const void *values)
{
    static const size_t bytes[] = {
        [DNN_HANDLE_TYPE] = sizeof(void *), [DNN_DATA_TYPE] = sizeof(int),
        [DNN_INT64] = sizeof(int64_t),      [DNN_FLOAT] = sizeof(float),
        [DNN_POINTER] = sizeof(void *),     [DNN_MODE_TYPE] = sizeof(int),
        [DNN_HEURISTIC_TYPE] = sizeof(int), [DNN_DESCRIPTOR] = sizeof(void *)};
    struct fake_descriptor *descriptor = to;
    MAY_FAIL();
    const struct fake_rule *rule = rule_of(descriptor->kind, name);
    if (descriptor->finished || !rule || rule->type != type || rule->count != count ||
        find(descriptor, name))
        return says(BAD_PARAM, "no such attribute");
    struct fake_attribute *attribute = &descriptor->list[descriptor->count++];
    *attribute = (struct fake_attribute){.name = name, .type = type, .count = count};
    memcpy(&attribute->as, values, (size_t)count * bytes[type]);
    if (type == DNN_DESCRIPTOR && !below(descriptor, name)->finished)
        return says(BAD_PARAM, "not finalized");
    return 0;
}

/* ---- what they say together ------------------------------------------------------------------ */

/* An operation: alpha is the first of its names. */
struct fake_parts {
    const struct fake_descriptor *convolution, *w, *x, *y;
    float alpha, beta;
};

static struct fake_parts parts_of(const struct fake_descriptor *operation)
{
    int alpha = operation->kind == DNN_FORWARD         ? DNN_FORWARD_ALPHA
                : operation->kind == DNN_BACKWARD_DATA ? DNN_DATA_ALPHA
                                                       : DNN_FILTER_ALPHA;
    return (struct fake_parts){.convolution = below(operation, alpha + 2),
                               .w = below(operation, alpha + 3),
                               .x = below(operation, alpha + 4),
                               .y = below(operation, alpha + 5),
                               .alpha = find(operation, alpha)->as.reals[0],
                               .beta = find(operation, alpha + 1)->as.reals[0]};
}

static const int64_t *axes_of(const struct fake_descriptor *tensor)
{
    return find(tensor, DNN_TENSOR_DIMENSIONS)->as.integers;
}

static const int64_t *pair_of(const struct fake_descriptor *convolution, int name)
{
    return find(convolution, name)->as.integers;
}

/* Channels lie together, and no element lies where another one does. */
static bool tensor_fits(const struct fake_descriptor *tensor)
{
    const int64_t *axes = axes_of(tensor), *s = find(tensor, DNN_TENSOR_STRIDES)->as.integers;
    return find(tensor, DNN_TENSOR_TYPE)->as.numbers[0] == DNN_FLOATS && s[1] == 1 &&
           s[3] >= axes[1] && s[2] >= axes[3] * s[3] && s[0] >= axes[2] * s[2] && axes[0] > 0 &&
           find(tensor, DNN_TENSOR_ALIGNMENT)->as.integers[0] == 16;
}

static bool operation_fits(const struct fake_descriptor *operation)
{
    struct fake_parts parts = parts_of(operation);
    const int64_t *x = axes_of(parts.x), *w = axes_of(parts.w), *y = axes_of(parts.y);
    bool fits = x[0] == y[0] && x[1] == w[1] && y[1] == w[0];
    for (int i = 0; i < 2; i++) {
        int64_t dilation = pair_of(parts.convolution, DNN_CONVOLUTION_DILATIONS)[i];
        int64_t padded = x[2 + i] + pair_of(parts.convolution, DNN_CONVOLUTION_PRE_PADDINGS)[i] +
                         pair_of(parts.convolution, DNN_CONVOLUTION_POST_PADDINGS)[i];
        int64_t under = dilation * (w[2 + i] - 1) + 1;
        int64_t stride = pair_of(parts.convolution, DNN_CONVOLUTION_STRIDES)[i];
        fits = fits && stride > 0 && y[2 + i] == (padded - under) / stride + 1;
    }
    return fits;
}

static bool fits(const struct fake_descriptor *descriptor)
{
    switch (descriptor->kind) {
    case DNN_TENSOR:
        return tensor_fits(descriptor);
    case DNN_CONVOLUTION:
        return pair_of(descriptor, DNN_CONVOLUTION_DIMENSIONS)[0] == 2 &&
               find(descriptor, DNN_CONVOLUTION_SUMS)->as.numbers[0] == DNN_FLOATS;
    case DNN_FORWARD:
    case DNN_BACKWARD_DATA:
    case DNN_BACKWARD_FILTER:
        return operation_fits(descriptor);
    case DNN_GRAPH:
        return find(descriptor, DNN_GRAPH_HANDLE)->as.pointers[0] == &the_handle;
    case DNN_PLAN:
        return find(descriptor, DNN_PLAN_HANDLE)->as.pointers[0] == &the_handle;
    default:
        return true;
    }
}

SHOWN int cudnnBackendFinalize(dnn_descriptor of)
{
    struct fake_descriptor *descriptor = of;
    unsigned wanted = 0;
    MAY_FAIL();
    for (size_t i = 0; i < RULES; i++)
        wanted += rules[i].kind == descriptor->kind;
    if (descriptor->finished || wanted != descriptor->count || !fits(descriptor))
        return says(BAD_PARAM, "attributes are missing, or do not fit");
    if (descriptor->kind == DNN_PLAN && the_handle.stream)
        return says(BAD_PARAM, "the handle's stream may be gone");
    descriptor->finished = true;
    fake_dnn.plans += descriptor->kind == DNN_PLAN;
    return 0;
}

/* ---- heuristics ---------------------------------------------------------------------------- */

static int results_get(const struct fake_descriptor *heuristic, int64_t most, int64_t *count,
                       dnn_descriptor *configs)
{
    int mode = find(heuristic, DNN_HEURISTIC_MODE)->as.numbers[0];
    int first = mode == DNN_HEURISTIC_A ? 0 : FAKE_PLAIN;
    int last = mode == DNN_HEURISTIC_A ? FAKE_PLAIN : FAKE_ENGINES;
    *count = 0;
    if (fake_dnn.none || (fake_dnn.only_fallback && mode == DNN_HEURISTIC_A))
        return 0;
    for (int i = first; i < last && *count < most; i++) {
        struct fake_descriptor *config = configs[(*count)++];
        if (config->kind != DNN_CONFIG)
            return says(BAD_PARAM, "no configuration");
        config->engine = (enum fake_engine)i;
        config->graph = below(heuristic, DNN_HEURISTIC_GRAPH);
        config->finished = true;
    }
    return 0;
}

static int notes_get(const struct fake_descriptor *engine, int64_t *count, int *notes)
{
    static const int of[FAKE_ENGINES] = {DNN_NOTE_NONDETERMINISTIC,
                                         DNN_NOTE_TENSOR_CORE,
                                         DNN_NOTE_DOWN_CONVERT,
                                         DNN_NOTE_WINOGRAD_LAST,
                                         -1,
                                         -1,
                                         9 /* a NaN stays one */};
    *count = of[engine->engine] >= 0;
    if (*count)
        notes[0] = of[engine->engine];
    return 0;
}

static const struct fake_descriptor *operation_of(const struct fake_descriptor *plan)
{
    return below(below(plan, DNN_PLAN_CONFIG)->graph, DNN_GRAPH_OPERATIONS);
}

static int64_t workspace_of(const struct fake_descriptor *plan)
{
    enum fake_engine engine = below(plan, DNN_PLAN_CONFIG)->engine;
    bool odd = axes_of(parts_of(operation_of(plan)).x)[0] % 2;
    if (engine == FAKE_GREEDY)
        return INT64_C(1) << 30;
    return (engine == FAKE_EXACT || engine == FAKE_TF32) && odd ? WORKSPACE : 0;
}

SHOWN int cudnnBackendGetAttribute(dnn_descriptor of, int name, int type, int64_t most,
                                   int64_t *count, void *values)
{
    struct fake_descriptor *descriptor = of;
    MAY_FAIL();
    if (!descriptor->finished)
        return says(BAD_PARAM, "not finalized");
    if (descriptor->kind == DNN_HEURISTIC && name == DNN_HEURISTIC_RESULTS &&
        type == DNN_DESCRIPTOR)
        return results_get(descriptor, most, count, values);
    if (descriptor->kind == DNN_CONFIG && name == DNN_CONFIG_ENGINE && type == DNN_DESCRIPTOR) {
        struct fake_descriptor *engine = *(dnn_descriptor *)values;
        engine->engine = descriptor->engine;
        engine->finished = engine->kind == DNN_ENGINE;
        *count = 1;
        return engine->finished ? 0 : says(BAD_PARAM, "no engine");
    }
    if (descriptor->kind == DNN_ENGINE && name == DNN_ENGINE_NOTES && type == DNN_NOTE_TYPE)
        return notes_get(descriptor, count, values);
    if (descriptor->kind == DNN_PLAN && name == DNN_PLAN_WORKSPACE && type == DNN_INT64) {
        *(int64_t *)values = workspace_of(descriptor);
        *count = 1;
        return 0;
    }
    return says(BAD_PARAM, "no such attribute");
}

/* ---- doing --------------------------------------------------------------------------------- */

struct fake_tensor {
    int64_t axes[AXES], strides[AXES];
    float *at;
};

/* A convolution of the stream. */
struct fake_convolution {
    int kind;
    enum fake_engine engine;
    struct fake_tensor x, w, y;
    int64_t strides[2], dilations[2], paddings[2];
    bool turned; /* a convolution, no cross-correlation */
    float alpha, beta;
    char *workspace;
    int64_t workspace_bytes;
    struct fake_convolution *next;
};

static struct fake_convolution *kept; /* graphs do them again and again */

static float *element(const struct fake_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return &t->at[a * t->strides[0] + b * t->strides[1] + c * t->strides[2] + d * t->strides[3]];
}

static float factor(const struct fake_convolution *f, float value)
{
    union {
        float number;
        uint32_t bits;
    } u = {value};
    if (f->engine == FAKE_TF32)
        u.bits = (u.bits + 0x1000u) & ~0x1fffu;
    return u.number;
}

/* Adds every product to what it is a part of. */
static void add_products(const struct fake_convolution *f, int64_t n, int64_t k, int64_t oy,
                         int64_t ox)
{
    float *y = element(&f->y, n, k, oy, ox);
    for (int64_t c = 0; c < f->x.axes[1]; c++)
        for (int64_t ky = 0; ky < f->w.axes[2]; ky++)
            for (int64_t kx = 0; kx < f->w.axes[3]; kx++) {
                int64_t iy = oy * f->strides[0] + ky * f->dilations[0] - f->paddings[0];
                int64_t ix = ox * f->strides[1] + kx * f->dilations[1] - f->paddings[1];
                if (iy < 0 || ix < 0 || iy >= f->x.axes[2] || ix >= f->x.axes[3])
                    continue;
                float *x = element(&f->x, n, c, iy, ix);
                float *w = element(&f->w, k, c, f->turned ? f->w.axes[2] - 1 - ky : ky,
                                   f->turned ? f->w.axes[3] - 1 - kx : kx);
                if (f->kind == DNN_FORWARD)
                    *y += f->alpha * factor(f, *x) * factor(f, *w);
                else if (f->kind == DNN_BACKWARD_DATA)
                    *x += f->alpha * factor(f, *y) * factor(f, *w);
                else
                    *w += f->alpha * factor(f, *x) * factor(f, *y);
            }
}

static void CUDART_CB convolution_do(void *context)
{
    const struct fake_convolution *f = context;
    const struct fake_tensor *to = f->kind == DNN_FORWARD         ? &f->y
                                   : f->kind == DNN_BACKWARD_DATA ? &f->x
                                                                  : &f->w;
    for (int64_t a = 0; a < to->axes[0]; a++)
        for (int64_t b = 0; b < to->axes[1]; b++)
            for (int64_t c = 0; c < to->axes[2]; c++)
                for (int64_t d = 0; d < to->axes[3]; d++) {
                    float *at = element(to, a, b, c, d);
                    *at = f->beta != 0 ? f->beta * *at : 0;
                }
    for (int64_t n = 0; n < f->y.axes[0]; n++)
        for (int64_t k = 0; k < f->y.axes[1]; k++)
            for (int64_t oy = 0; oy < f->y.axes[2]; oy++)
                for (int64_t ox = 0; ox < f->y.axes[3]; ox++)
                    add_products(f, n, k, oy, ox);
    if (f->workspace_bytes > 0)
        memset(f->workspace, 1, (size_t)f->workspace_bytes);
    fake_dnn.runs[f->engine]++;
}

/* Its memory is that of its id. */
static bool tensor_get(const struct fake_descriptor *tensor, const struct fake_descriptor *pack,
                       struct fake_tensor *out)
{
    const struct fake_attribute *ids = find(pack, DNN_PACK_IDS);
    int64_t id = find(tensor, DNN_TENSOR_ID)->as.integers[0];
    memcpy(out->axes, axes_of(tensor), sizeof out->axes);
    memcpy(out->strides, find(tensor, DNN_TENSOR_STRIDES)->as.integers, sizeof out->strides);
    out->at = NULL;
    for (int64_t i = 0; i < ids->count; i++)
        if (ids->as.integers[i] == id)
            out->at = find(pack, DNN_PACK_POINTERS)->as.pointers[i];
    return out->at && (uintptr_t)out->at % 16 == 0;
}

SHOWN int cudnnBackendExecute(struct dnn_handle *handle, dnn_descriptor of, dnn_descriptor with)
{
    const struct fake_descriptor *plan = of, *pack = with;
    MAY_FAIL();
    if (handle != &the_handle || !plan->finished || plan->kind != DNN_PLAN || !pack->finished ||
        pack->kind != DNN_PACK)
        return says(BAD_PARAM, "no plan, no pack");
    const struct fake_descriptor *operation = operation_of(plan);
    struct fake_parts parts = parts_of(operation);
    struct fake_convolution *f = xcalloc(1, sizeof *f);
    f->kind = operation->kind;
    f->engine = below(plan, DNN_PLAN_CONFIG)->engine;
    f->alpha = parts.alpha;
    f->beta = parts.beta;
    f->turned =
        find(parts.convolution, DNN_CONVOLUTION_MODE)->as.numbers[0] != DNN_CROSS_CORRELATION;
    f->workspace = find(pack, DNN_PACK_WORKSPACE)->as.pointers[0];
    f->workspace_bytes = workspace_of(plan);
    for (int i = 0; i < 2; i++) {
        f->strides[i] = pair_of(parts.convolution, DNN_CONVOLUTION_STRIDES)[i];
        f->dilations[i] = pair_of(parts.convolution, DNN_CONVOLUTION_DILATIONS)[i];
        f->paddings[i] = pair_of(parts.convolution, DNN_CONVOLUTION_PRE_PADDINGS)[i];
    }
    f->next = kept;
    kept = f;
    if (!tensor_get(parts.x, pack, &f->x) || !tensor_get(parts.w, pack, &f->w) ||
        !tensor_get(parts.y, pack, &f->y) || !f->workspace != (f->workspace_bytes == 0))
        return says(BAD_PARAM, "a tensor or the workspace has no place");
    return cudaLaunchHostFunc(handle->stream, convolution_do, f) == cudaSuccess ? 0
                                                                                : INTERNAL_ERROR;
}
