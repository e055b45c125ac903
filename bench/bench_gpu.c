/* Steps of learners' networks on a device: forward, backward, Adam, with everything in its memory.
 * Microseconds a step, as the median of several runs of steps, beside what its products and
 * convolutions alone take and, by turns, what the same step takes PyTorch. And the host's share:
 * the time to put one step, of which its calls of CUDA are a part.
 *     bench_gpu [DEVICE] [--only TEXT] [--peer PYTHON]
 *                           cuda:0 by default; without a GPU every row says 'skipped: no GPU'
 *         --only TEXT       cases that have this in their name
 *         --peer PYTHON     with PyTorch */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include "bench/gpu_peer.h"
#include "bench/median.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/nvidia.h"
#include "nn/cuda/device.h"

enum { RUNS = 5, RUN_NS = 300000000, AHEAD = 2, HOST_SAMPLES = 1 << 16 };

static void stop_on(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_gpu: %s\n", trp_last_error());
    exit(1);
}

/* A network at work. */
struct work_at {
    trp_device *device;
    trp_queue *queue;
    trp_net *net;
    trp_net_spec spec;
    uint32_t rows, steps;
    size_t count;
    float *params, *grads, *state[TRP_OPTIMIZER_STATES_MAX];
    trp_phases *phases;
    void *inputs[TRP_NET_INPUTS_MAX], *outputs[TRP_NET_OUTPUTS_MAX], *resets;
};

static void *room(const struct work_at *work, size_t bytes)
{
    void *memory;
    stop_on(trp_device_alloc(work->device, bytes, &memory));
    return memory;
}

static void fill_inputs(struct work_at *work, trp_rng *rng)
{
    uint32_t input = 0;
    for (uint32_t i = 0; i < work->spec.layer_count; i++) {
        const trp_layer *layer = &work->spec.layers[i];
        if (layer->kind != TRP_INPUT)
            continue;
        bool bytes = layer->dtype == TRP_UINT8;
        size_t count = (size_t)work->rows * trp_net_input_width(&work->spec, input);
        float *values = xcalloc(count, sizeof *values);
        for (size_t k = 0; k < count; k++)
            if (bytes)
                ((uint8_t *)values)[k] = (uint8_t)trp_rng_below(rng, 256);
            else
                values[k] = (float)trp_rng_normal(rng);
        work->inputs[input] = room(work, count * (bytes ? 1 : sizeof *values));
        trp_queue_copy(work->queue, work->inputs[input], values,
                       count * (bytes ? 1 : sizeof *values));
        stop_on(trp_queue_sync(work->queue, trp_queue_mark(work->queue)));
        free(values);
        input++;
    }
}

static void work_begin(struct work_at *work, trp_precision precision)
{
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    stop_on(trp_queue_create(&work->queue, work->device));
    stop_on(trp_net_create(&work->net, &(trp_net_options){.spec = &work->spec,
                                                          .batch = work->rows,
                                                          .device = work->device,
                                                          .precision = precision}));
    work->count = trp_net_param_count(&work->spec);
    float *params = trp_floats_create(work->count);
    trp_net_init(&work->spec, &rng, params);
    work->params = room(work, work->count * sizeof *params);
    work->grads = room(work, work->count * sizeof *params);
    work->phases = room(work, sizeof *work->phases);
    for (size_t i = 0; i < 2; i++)
        work->state[i] = room(work, work->count * sizeof *params);
    trp_queue_copy(work->queue, work->params, params, work->count * sizeof *params);
    stop_on(trp_queue_sync(work->queue, trp_queue_mark(work->queue)));
    trp_floats_destroy(params);
    fill_inputs(work, &rng);
    for (uint32_t i = 0; i < work->spec.output_count; i++)
        work->outputs[i] =
            room(work, work->rows * trp_net_output_width(&work->spec, i) * sizeof(float));
    if (trp_net_state_width(&work->spec) > 0)
        work->resets = room(work, work->rows);
}

static void work_end(struct work_at *work)
{
    trp_net_destroy(work->net);
    trp_queue_destroy(work->queue);
    void *const all[] = {work->params,     work->grads,      work->phases,
                         work->state[0],   work->state[1],   work->inputs[0],
                         work->outputs[0], work->outputs[1], work->resets};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        trp_device_free(work->device, all[i]);
}

/* The loss is half the square of what comes out. */
static void put_step(struct work_at *work)
{
    static const trp_optimizer adam = {.kind = TRP_ADAM, .learning_rate = 1e-4};
    trp_net_rows rows = {.rows = work->rows,
                         .steps = work->steps,
                         .inputs = {work->inputs[0]},
                         .resets = work->resets,
                         .queue = work->queue};
    trp_net_grads grads = {.params = work->grads};
    for (uint32_t i = 0; i < work->spec.output_count; i++) {
        rows.outputs[i] = work->outputs[i];
        grads.outputs[i] = work->outputs[i];
    }
    trp_net_forward(work->net, work->params, &rows);
    trp_net_backward(work->net, work->params, &rows, &grads);
    trp_phase_measure(work->queue, &adam, work->grads, work->count, NULL, work->phases);
    trp_phase_step(work->queue, &adam, work->params, work->grads, work->state, 0, work->count,
                   work->phases);
    trp_phase_end(work->queue, work->grads, work->count, work->phases);
}

/* Of what was put, leaves products and convolutions. */
static void keep_products(trp_queue *queue)
{
    struct cuda_list *list = cuda_queue_list(queue);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->works[i].kind == WORK_GEMM || list->works[i].kind == WORK_CONV)
            list->works[kept++] = list->works[i];
    list->count = kept;
}

static void put_products(struct work_at *work)
{
    put_step(work);
    keep_products(work->queue);
}

/* How long it took to put a step, of the first ones of all runs. */
struct host_times {
    double us[HOST_SAMPLES];
    size_t count;
};

/* Steps for a while, two of them under way: microseconds a step. */
static double run_steps(struct work_at *work, void (*put)(struct work_at *),
                        struct host_times *host)
{
    uint64_t marks[AHEAD] = {0};
    int64_t began_ns = clock_now_ns(&clock_monotonic), now_ns = began_ns;
    uint64_t steps = 0;
    for (; now_ns - began_ns < RUN_NS; steps++) {
        put(work);
        uint64_t mark = trp_queue_mark(work->queue);
        int64_t put_ns = clock_now_ns(&clock_monotonic) - now_ns;
        if (host && host->count < HOST_SAMPLES)
            host->us[host->count++] = (double)put_ns / 1e3;
        stop_on(trp_queue_sync(work->queue, marks[steps % AHEAD]));
        marks[steps % AHEAD] = mark;
        now_ns = clock_now_ns(&clock_monotonic);
    }
    stop_on(trp_queue_sync(work->queue, trp_queue_mark(work->queue)));
    now_ns = clock_now_ns(&clock_monotonic);
    return (double)(now_ns - began_ns) / 1e3 / (double)steps;
}

static const char *const words[] = {[TRP_F32] = "f32", [TRP_BF16] = "bf16", [TRP_TF32] = "tf32"};

struct bench_case {
    const char *name;
    trp_net_spec spec;
    uint32_t rows, steps;
    const char *beside; /* of the peer alone; NULL: nothing */
};

/* NULL: there is none, or it cannot. */
static struct gpu_peer *peer_for(struct gpu_peer *peer, const char *name, const char *precision,
                                 char *how, size_t bytes)
{
    if (!peer || gpu_peer_prepare(peer, name, precision, how, bytes))
        return peer;
    printf("  PyTorch: %s, %s\tskipped: %s\n", name, precision, how);
    return NULL;
}

static void bench_beside(struct gpu_peer *peer, const char *name, const char *precision)
{
    char how[300];
    double times[RUNS];
    if (!name || !peer_for(peer, name, precision, how, sizeof how) || !peer)
        return;
    for (size_t i = 0; i < RUNS; i++)
        times[i] = gpu_peer_run(peer);
    printf("  %s: %s, %s\t%.4g\tus/step\t0\t\n", how, name, precision, median(times, RUNS));
}

static void bench(const struct bench_case *what, trp_device *device, trp_precision precision,
                  struct gpu_peer *with)
{
    static struct host_times host;
    const char *word = words[precision];
    char how[300] = "";
    double step_us[RUNS], floor_us[RUNS] = {0}, peer_us[RUNS] = {0};
    bool lists = !trp_device_is_host(device);
    struct work_at work = {
        .device = device, .spec = what->spec, .rows = what->rows, .steps = what->steps};
    struct gpu_peer *peer = peer_for(with, what->name, word, how, sizeof how);
    work_begin(&work, precision);
    run_steps(&work, put_step, NULL);
    host.count = 0;
    for (size_t i = 0; i < RUNS; i++) {
        step_us[i] = run_steps(&work, put_step, &host);
        if (lists)
            floor_us[i] = run_steps(&work, put_products, NULL);
        if (peer)
            peer_us[i] = gpu_peer_run(peer);
    }
    work_end(&work);
    printf("%s, %s\t%.4g\tus/step\t%.4g\tproducts and convolutions alone\t%.4g\t%s\n", what->name,
           word, median(step_us, RUNS), median(floor_us, RUNS), median(peer_us, RUNS), how);
    double middle = median(host.us, host.count); /* sorts them */
    printf("  host, %s, %s\t%.4g\tus/step, p99 %.4g\t0\t\n", what->name, word, middle,
           host.us[host.count * 99 / 100]);
    bench_beside(with, what->beside, word);
    fflush(stdout);
}

static trp_net_spec frames(bool resnet)
{
    trp_cnn_options options = {.height = 84, .width = 84, .channels = 4, .outputs = 18};
    return resnet ? trp_impala_resnet(&options) : trp_nature_cnn(&options);
}

static void bench_all(const struct bench_case *cases, size_t count, const char *only,
                      trp_device *device, struct gpu_peer *peer)
{
    for (size_t i = 0; i < count; i++)
        for (trp_precision precision = TRP_F32; precision <= TRP_TF32; precision++)
            if (!strstr(cases[i].name, only))
                continue;
            else if (device)
                bench(&cases[i], device, precision, peer);
            else
                printf("%s, %s\tskipped: no GPU\n", cases[i].name, words[precision]);
}

struct gpu_arguments {
    const char *device, *only, *python;
};

static struct gpu_arguments parse_arguments(int argc, char **argv)
{
    struct gpu_arguments found = {.device = "cuda:0", .only = ""};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            found.only = argv[++i];
        else if (strcmp(argv[i], "--peer") == 0 && i + 1 < argc)
            found.python = argv[++i];
        else if (*argv[i] != '-')
            found.device = argv[i];
        else {
            fprintf(stderr, "usage: bench_gpu [DEVICE] [--only TEXT] [--peer PYTHON]\n");
            exit(2);
        }
    return found;
}

int main(int argc, char **argv)
{
    struct gpu_arguments arguments = parse_arguments(argc, argv);
    trp_device *device = NULL;
    const struct bench_case cases[] = {
        {"MLP 2x256, B=256",
         trp_mlp(&(trp_mlp_options){.inputs = 64, .hidden = {256, 256}, .outputs = 18}), 256, 1,
         NULL},
        {"Nature CNN, B=256", frames(false), 256, 1, NULL},
        {"IMPALA ResNet, T=20 B=32", frames(true), 640, 1, NULL},
        {"Nature CNN, B=2048", frames(false), 2048, 1, NULL},
        {"IMPALA ResNet, T=20 B=256", frames(true), 5120, 1, NULL},
        {"LSTM 512, T=80 B=64, resets",
         trp_mlp(&(trp_mlp_options){.inputs = 512,
                                    .hidden = {512},
                                    .outputs = 18,
                                    .core = TRP_CORE_LSTM,
                                    .core_size = 512}),
         80 * 64, 80, "LSTM 512, T=80 B=64, no resets"},
    };
    nvidia_look_about(getenv);
    if (trp_device_find(&device, arguments.device) != TRP_OK)
        fprintf(stderr, "bench_gpu: %s\n", trp_last_error());
    struct gpu_peer *peer =
        device && arguments.python ? gpu_peer_start(arguments.python, arguments.device) : NULL;
    bench_all(cases, sizeof cases / sizeof *cases, arguments.only, device, peer);
    gpu_peer_stop(peer);
    return 0;
}
