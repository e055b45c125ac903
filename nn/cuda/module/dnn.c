/* Convolutions by cuDNN. For each shape its heuristics are asked once, and the
 * first engine is kept that is exact enough, sums in a fixed order and takes no
 * more workspace than there is; nothing of it is ever given back, for a graph
 * may have its kernels. What has none is left to the caller.
 *
 * cuDNN names axes [n][c][h][w] in whatever order their strides say; weights
 * are [filters][c][h][w]. It is opened for the first convolution, since it
 * takes memory and a while. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "core/nvidia.h"
#include "dnn_api.h"
#include "gpu.h"
#include "nn/cuda/limits.h"

#define DNN_FILE "libcudnn.so.9"

/* Kept: a configuration, and the six descriptors of a graph. */
enum { X_ID = 1, W_ID, Y_ID, AXES = 4, DNN_KEPT_MAX = 7 };

/* All that decides which way is the best. */
struct dnn_shape {
    struct window window;
    uint32_t makes, precision, images, fill;
    uint64_t x_stride, y_stride, workspace_most;
};

struct dnn_way {
    struct dnn_shape shape;
    dnn_descriptor plan;               /* NULL: there is none */
    dnn_descriptor kept[DNN_KEPT_MAX]; /* what it was made of, which it may need */
    size_t workspace_bytes;
    bool known;
};

struct dnn {
    struct dnn_api calls;
    struct dnn_handle *handle; /* NULL: it cannot be used */
    struct mutex mutex;        /* of all of it: a handle is one thread's at a time */
    struct dnn_way ways[DNN_WAYS_MAX];
    bool told; /* that something has no way */
};

/* Descriptors of one search or call, which end with it, and the first failure
 * in words. */
struct dnn_session {
    struct dnn *dnn;
    dnn_descriptor made[DNN_DESCRIPTORS_MAX];
    uint32_t made_count;
    char failed[300];
};

/* ---- opening ----------------------------------------------------------------------------- */

static bool dnn_find_calls(struct dnn_api *calls, void *library)
{
#define DNN_FIND(NAME, TAKES)                                                                      \
    calls->NAME = (__typeof__(calls->NAME))dlsym(library, "cudnn" #NAME);                          \
    if (!calls->NAME)                                                                              \
        return false;
    DNN_FUNCTIONS(DNN_FIND)
    DNN_FIND(GetVersion, )
    DNN_FIND(GetErrorString, )
    DNN_FIND(GetLastErrorString, )
#undef DNN_FIND
    return true;
}

/* Says which one it is, or why there is none. */
static void dnn_open(struct gpu *gpu, struct dnn *dnn)
{
    struct nvidia_library library;
    char why[1100];
    nvidia_open(&library, DNN_FILE);
    snprintf(why, sizeof why, "%s", library.path);
    if (library.handle && !dnn_find_calls(&dnn->calls, library.handle)) {
        snprintf(why, sizeof why, "%s does not work", library.path);
    } else if (library.handle) {
        int status = dnn->calls.Create(&dnn->handle);
        if (status != DNN_SUCCESS)
            dnn->handle = NULL;
        snprintf(why, sizeof why, "%s: cudnnCreate: %s", library.path,
                 dnn->calls.GetErrorString(status));
    }
    if (!dnn->handle) {
        gpu->host->log(TRP_INFO, "device %s: convolutions: products of patches (%s)",
                       gpu->machine.name, why);
        return;
    }
    size_t version = dnn->calls.GetVersion();
    gpu->host->log(TRP_INFO, "device %s: convolutions: cuDNN %zu.%zu.%zu (%s)", gpu->machine.name,
                   version / 10000, version / 100 % 100, version % 100, library.path);
}

/* ---- descriptors ------------------------------------------------------------------------- */

static bool dnn_check(struct dnn_session *session, int status, const char *call, const char *of)
{
    char why[160] = "";
    if (status == DNN_SUCCESS)
        return true;
    session->dnn->calls.GetLastErrorString(why, sizeof why - 1);
    if (!*session->failed)
        snprintf(session->failed, sizeof session->failed, "%s of %s: %s%s%s", call, of,
                 session->dnn->calls.GetErrorString(status), *why ? ": " : "", why);
    return false;
}

/* NULL: it failed. */
static dnn_descriptor dnn_make(struct dnn_session *session, enum dnn_kind kind, const char *of)
{
    dnn_descriptor descriptor = NULL;
    int status = session->made_count < DNN_DESCRIPTORS_MAX
                     ? session->dnn->calls.BackendCreateDescriptor(kind, &descriptor)
                     : -1;
    if (!dnn_check(session, status, "cudnnBackendCreateDescriptor", of))
        return NULL;
    session->made[session->made_count++] = descriptor;
    return descriptor;
}

static bool dnn_set(struct dnn_session *session, dnn_descriptor descriptor, int name,
                    enum dnn_type type, int64_t count, const void *values, const char *of)
{
    return descriptor &&
           dnn_check(session,
                     session->dnn->calls.BackendSetAttribute(descriptor, name, type, count, values),
                     "cudnnBackendSetAttribute", of);
}

static bool dnn_set_one(struct dnn_session *session, dnn_descriptor to, int name,
                        dnn_descriptor value, const char *of)
{
    return value && dnn_set(session, to, name, DNN_DESCRIPTOR, 1, &value, of);
}

static bool dnn_finish(struct dnn_session *session, dnn_descriptor descriptor, const char *of)
{
    return descriptor && dnn_check(session, session->dnn->calls.BackendFinalize(descriptor),
                                   "cudnnBackendFinalize", of);
}

/* It does not end with the session. */
static void dnn_keep(struct dnn_session *session, dnn_descriptor descriptor)
{
    for (uint32_t i = 0; i < session->made_count; i++)
        if (session->made[i] == descriptor)
            session->made[i] = NULL;
}

/* Of those that were made behind `first`. */
static void dnn_end(struct dnn_session *session, uint32_t first)
{
    while (session->made_count > first) {
        dnn_descriptor last = session->made[--session->made_count];
        if (last)
            session->dnn->calls.BackendDestroyDescriptor(last);
    }
}

/* ---- a convolution as a graph of one operation ------------------------------------------- */

/* Channels lie together; `image` elements from one image or filter to the next.
 */
static dnn_descriptor make_tensor(struct dnn_session *session, int64_t id, const int64_t axes[AXES],
                                  uint64_t image)
{
    int64_t strides[AXES] = {(int64_t)image, 1, axes[3] * axes[1], axes[1]};
    int64_t alignment = CONV_ALIGNMENT;
    int type = DNN_FLOATS;
    const char *of = "a tensor";
    dnn_descriptor tensor = dnn_make(session, DNN_TENSOR, of);
    bool made = dnn_set(session, tensor, DNN_TENSOR_TYPE, DNN_DATA_TYPE, 1, &type, of) &&
                dnn_set(session, tensor, DNN_TENSOR_DIMENSIONS, DNN_INT64, AXES, axes, of) &&
                dnn_set(session, tensor, DNN_TENSOR_STRIDES, DNN_INT64, AXES, strides, of) &&
                dnn_set(session, tensor, DNN_TENSOR_ID, DNN_INT64, 1, &id, of) &&
                dnn_set(session, tensor, DNN_TENSOR_ALIGNMENT, DNN_INT64, 1, &alignment, of) &&
                dnn_finish(session, tensor, of);
    return made ? tensor : NULL;
}

static dnn_descriptor make_convolution(struct dnn_session *session, const struct window *w)
{
    int64_t axes = 2, dilations[] = {1, 1}, strides[] = {w->stride_height, w->stride_width};
    int64_t paddings[] = {w->pad_height, w->pad_width};
    int sums = DNN_FLOATS, mode = DNN_CROSS_CORRELATION;
    const char *of = "a convolution";
    dnn_descriptor to = dnn_make(session, DNN_CONVOLUTION, of);
    bool made = dnn_set(session, to, DNN_CONVOLUTION_SUMS, DNN_DATA_TYPE, 1, &sums, of) &&
                dnn_set(session, to, DNN_CONVOLUTION_MODE, DNN_MODE_TYPE, 1, &mode, of) &&
                dnn_set(session, to, DNN_CONVOLUTION_DIMENSIONS, DNN_INT64, 1, &axes, of) &&
                dnn_set(session, to, DNN_CONVOLUTION_DILATIONS, DNN_INT64, 2, dilations, of) &&
                dnn_set(session, to, DNN_CONVOLUTION_STRIDES, DNN_INT64, 2, strides, of) &&
                dnn_set(session, to, DNN_CONVOLUTION_PRE_PADDINGS, DNN_INT64, 2, paddings, of) &&
                dnn_set(session, to, DNN_CONVOLUTION_POST_PADDINGS, DNN_INT64, 2, paddings, of) &&
                dnn_finish(session, to, of);
    return made ? to : NULL;
}

static dnn_descriptor make_operation(struct dnn_session *session, const struct dnn_shape *shape)
{
    static const struct {
        enum dnn_kind kind;
        int alpha;
    } kinds[] = {[CONV_FORWARD] = {DNN_FORWARD, DNN_FORWARD_ALPHA},
                 [CONV_DATA] = {DNN_BACKWARD_DATA, DNN_DATA_ALPHA},
                 [CONV_WEIGHTS] = {DNN_BACKWARD_FILTER, DNN_FILTER_ALPHA}};
    const struct window *w = &shape->window;
    int64_t x[AXES] = {shape->images, w->channels, w->height, w->width};
    int64_t filters[AXES] = {w->filters, w->channels, w->kernel_height, w->kernel_width};
    int64_t y[AXES] = {shape->images, w->filters, window_out_height(w), window_out_width(w)};
    float alpha = 1, beta = 0;
    int name = kinds[shape->makes].alpha;
    const char *of = "an operation";
    dnn_descriptor to = dnn_make(session, kinds[shape->makes].kind, of);
    bool made =
        dnn_set(session, to, name, DNN_FLOAT, 1, &alpha, of) &&
        dnn_set(session, to, name + 1, DNN_FLOAT, 1, &beta, of) &&
        dnn_set_one(session, to, name + 2, make_convolution(session, w), of) &&
        dnn_set_one(session, to, name + 3, make_tensor(session, W_ID, filters, window_patch(w)),
                    of) &&
        dnn_set_one(session, to, name + 4, make_tensor(session, X_ID, x, shape->x_stride), of) &&
        dnn_set_one(session, to, name + 5, make_tensor(session, Y_ID, y, shape->y_stride), of) &&
        dnn_finish(session, to, of);
    return made ? to : NULL;
}

static dnn_descriptor make_operations(struct dnn_session *session, const struct dnn_shape *shape)
{
    const char *of = "a graph";
    dnn_descriptor operation = make_operation(session, shape), to = NULL;
    if (operation)
        to = dnn_make(session, DNN_GRAPH, of);
    bool made =
        dnn_set(session, to, DNN_GRAPH_HANDLE, DNN_HANDLE_TYPE, 1, &session->dnn->handle, of) &&
        dnn_set_one(session, to, DNN_GRAPH_OPERATIONS, operation, of) &&
        dnn_finish(session, to, of);
    return made ? to : NULL;
}

/* ---- the best way ------------------------------------------------------------------------ */

/* Sums in a fixed order, of what the factors are: with TF32 their first ten
 * bits. */
static bool note_suits(int note, uint32_t precision)
{
    if (note == DNN_NOTE_TENSOR_CORE)
        return precision == TRP_TF32;
    return !(note == DNN_NOTE_DOWN_CONVERT || note == DNN_NOTE_REDUCED_SUMS ||
             note == DNN_NOTE_FFT || note == DNN_NOTE_NONDETERMINISTIC ||
             (note >= DNN_NOTE_WINOGRAD && note <= DNN_NOTE_WINOGRAD_LAST));
}

static bool engine_suits(struct dnn_session *session, dnn_descriptor config, uint32_t precision)
{
    enum { NOTES_MAX = 32 };
    const struct dnn_api *calls = &session->dnn->calls;
    const char *call = "cudnnBackendGetAttribute", *of = "an engine";
    int notes[NOTES_MAX];
    int64_t count = 0;
    dnn_descriptor engine = dnn_make(session, DNN_ENGINE, of);
    if (!engine || !dnn_check(session,
                              calls->BackendGetAttribute(config, DNN_CONFIG_ENGINE, DNN_DESCRIPTOR,
                                                         1, &count, &engine),
                              call, of))
        return false;
    if (!dnn_check(session,
                   calls->BackendGetAttribute(engine, DNN_ENGINE_NOTES, DNN_NOTE_TYPE, NOTES_MAX,
                                              &count, notes),
                   call, of))
        return false;
    for (int64_t i = 0; i < count && i < NOTES_MAX; i++)
        if (!note_suits(notes[i], precision))
            return false;
    return true;
}

/* NULL: not this one. */
static dnn_descriptor make_plan(struct dnn_session *session, dnn_descriptor config,
                                struct dnn_way *way)
{
    int64_t bytes = 0, count = 0;
    const char *of = "a plan";
    if (!engine_suits(session, config, way->shape.precision))
        return NULL;
    dnn_descriptor plan = dnn_make(session, DNN_PLAN, of);
    if (!dnn_set(session, plan, DNN_PLAN_HANDLE, DNN_HANDLE_TYPE, 1, &session->dnn->handle, of) ||
        !dnn_set_one(session, plan, DNN_PLAN_CONFIG, config, of) || !dnn_finish(session, plan, of))
        return NULL;
    if (!dnn_check(session,
                   session->dnn->calls.BackendGetAttribute(plan, DNN_PLAN_WORKSPACE, DNN_INT64, 1,
                                                           &count, &bytes),
                   "cudnnBackendGetAttribute", of))
        return NULL;
    if (bytes < 0 || (uint64_t)bytes > way->shape.workspace_most)
        return NULL;
    way->workspace_bytes = (size_t)bytes;
    return plan;
}

/* The first that suits of what the heuristic recommends, best first. */
static dnn_descriptor ask_heuristic(struct dnn_session *session, dnn_descriptor graph, int mode,
                                    struct dnn_way *way)
{
    const char *of = "a heuristic";
    dnn_descriptor configs[DNN_CONFIGS_MAX], plan = NULL;
    int64_t count = 0;
    dnn_descriptor heuristic = dnn_make(session, DNN_HEURISTIC, of);
    if (!dnn_set_one(session, heuristic, DNN_HEURISTIC_GRAPH, graph, of) ||
        !dnn_set(session, heuristic, DNN_HEURISTIC_MODE, DNN_HEURISTIC_TYPE, 1, &mode, of) ||
        !dnn_finish(session, heuristic, of))
        return NULL;
    for (int i = 0; i < DNN_CONFIGS_MAX; i++)
        if (!(configs[i] = dnn_make(session, DNN_CONFIG, "an engine's configuration")))
            return NULL;
    if (!dnn_check(session,
                   session->dnn->calls.BackendGetAttribute(heuristic, DNN_HEURISTIC_RESULTS,
                                                           DNN_DESCRIPTOR, DNN_CONFIGS_MAX, &count,
                                                           configs),
                   "cudnnBackendGetAttribute", of))
        return NULL;
    for (int64_t i = 0; i < count && i < DNN_CONFIGS_MAX && !plan; i++) {
        uint32_t first = session->made_count;
        plan = make_plan(session, configs[i], way);
        if (plan) {
            dnn_keep(session, plan);
            dnn_keep(session, configs[i]);
            way->kept[0] = configs[i];
        }
        dnn_end(session, first);
    }
    return plan;
}

static void dnn_search(struct gpu *gpu, struct dnn *dnn, struct dnn_way *way)
{
    static const char *const parts[] = {"", ", for the gradient of its input",
                                        ", for that of its weights"};
    struct dnn_session session = {.dnn = dnn};
    const struct window *w = &way->shape.window;
    dnn_descriptor graph = NULL;
    /* The handle's is that of the last convolution, which was a graph's, or is gone. */
    if (dnn_check(&session, dnn->calls.SetStream(dnn->handle, NULL), "cudnnSetStream", "a search"))
        graph = make_operations(&session, &way->shape);
    uint32_t of_graph = session.made_count;
    if (graph)
        way->plan = ask_heuristic(&session, graph, DNN_HEURISTIC_A, way);
    if (graph && !way->plan)
        way->plan = ask_heuristic(&session, graph, DNN_HEURISTIC_FALLBACK, way);
    dnn_end(&session, of_graph);
    for (uint32_t i = 0; i < of_graph && way->plan; i++) {
        way->kept[1 + i] = session.made[i];
        session.made[i] = NULL;
    }
    dnn_end(&session, 0);
    if (way->plan || dnn->told)
        return;
    dnn->told = true;
    gpu->host->log(TRP_INFO,
                   "device %s: cuDNN has no way for a convolution of %u images %ux%ux%u by "
                   "%u "
                   "filters %ux%u%s, with at most %.1f MiB of workspace (%s): it is done as "
                   "products "
                   "of patches, and so are others of which nothing is said",
                   gpu->machine.name, way->shape.images, w->height, w->width, w->channels,
                   w->filters, w->kernel_height, w->kernel_width, parts[way->shape.makes],
                   (double)way->shape.workspace_most / (1 << 20),
                   *session.failed ? session.failed : "none of its engines suits");
}

/* ---- ways that are known ----------------------------------------------------------------- */

static struct dnn_shape conv_shape_of(const struct conv_job *job)
{
    return (struct dnn_shape){.window = job->window,
                              .makes = job->makes,
                              .precision = job->precision,
                              .images = job->images,
                              .x_stride = job->x_stride,
                              .y_stride = job->y_stride,
                              .workspace_most = job->workspace_most};
}

_Static_assert(sizeof(struct dnn_shape) == 14 * 4 + 3 * 8, "it is compared by its bytes");

/* NULL: it is not known, and there is no room for one more. With the mutex. */
static struct dnn_way *conv_way_of(struct dnn *dnn, const struct dnn_shape *shape)
{
    uint64_t hash = hash_bytes(HASH_BYTES_EMPTY, shape, sizeof *shape);
    for (uint32_t i = 0; i < DNN_WAYS_MAX; i++) {
        struct dnn_way *way = &dnn->ways[(hash + i) % DNN_WAYS_MAX];
        if (!way->known) {
            way->shape = *shape;
            return way;
        }
        if (memcmp(&way->shape, shape, sizeof *shape) == 0)
            return way;
    }
    return NULL;
}

/* Nobody captures meanwhile: cuDNN may wait for the GPU. */
bool dnn_convolves(struct machine *machine, const struct conv_job *job, size_t *workspace_bytes)
{
    struct gpu *gpu = gpu_enter(machine);
    struct dnn_shape shape = conv_shape_of(job);
    struct dnn_way *way = NULL;
    mutex_lock(&gpu->still);
    if (!gpu->dnn) {
        gpu->dnn = xcalloc(1, sizeof *gpu->dnn);
        mutex_init(&gpu->dnn->mutex);
        dnn_open(gpu, gpu->dnn);
    }
    mutex_lock(&gpu->dnn->mutex);
    if (gpu->dnn->handle)
        way = conv_way_of(gpu->dnn, &shape);
    if (way && !way->known) {
        dnn_search(gpu, gpu->dnn, way);
        way->known = true;
    }
    *workspace_bytes = way && way->plan ? way->workspace_bytes : 0;
    mutex_unlock(&gpu->dnn->mutex);
    mutex_unlock(&gpu->still);
    return way && way->plan;
}

/* ---- doing ------------------------------------------------------------------------------- */

static bool dnn_run(struct dnn_session *session, const struct conv_job *job, dnn_descriptor plan,
                    cudaStream_t stream)
{
    struct dnn *dnn = session->dnn;
    int64_t ids[] = {X_ID, W_ID, Y_ID};
    void *pointers[] = {job->x, job->w, job->y};
    void *workspace = job->workspace;
    const char *of = "a variant pack";
    dnn_descriptor pack = dnn_make(session, DNN_PACK, of);
    return dnn_set(session, pack, DNN_PACK_IDS, DNN_INT64, 3, ids, of) &&
           dnn_set(session, pack, DNN_PACK_POINTERS, DNN_POINTER, 3, pointers, of) &&
           dnn_set(session, pack, DNN_PACK_WORKSPACE, DNN_POINTER, 1, &workspace, of) &&
           dnn_finish(session, pack, of) &&
           dnn_check(session, dnn->calls.SetStream(dnn->handle, stream), "cudnnSetStream",
                     "a lane") &&
           dnn_check(session, dnn->calls.BackendExecute(dnn->handle, plan, pack),
                     "cudnnBackendExecute", "a convolution");
}

void dnn_conv(struct gpu *gpu, struct gpu_lane *lane, const struct conv_job *job)
{
    struct dnn *dnn = gpu->dnn;
    struct dnn_session session = {.dnn = dnn};
    struct dnn_shape shape = conv_shape_of(job);
    mutex_lock(&dnn->mutex);
    struct dnn_way *way = conv_way_of(dnn, &shape);
    bool done = way && way->plan && dnn_run(&session, job, way->plan, lane->stream);
    dnn_end(&session, 0);
    mutex_unlock(&dnn->mutex);
    if (!done)
        lane_fail(gpu, lane, TRP_INTERNAL,
                  *session.failed ? session.failed : "a convolution that nobody asked for first");
}
