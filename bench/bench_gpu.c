/* Steps of learners' networks on a device: forward, backward, Adam, with everything in its memory.
 * Microseconds a step, as the median of several runs of steps, and the host's share: the time that
 * it takes to put a step on the queue.
 *     bench_gpu [DEVICE]    cuda:0 by default; without a GPU every row says 'skipped: no GPU' */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include "bench/median.h"
#include "core/alloc.h"
#include "core/clock.h"

enum { RUNS = 7, RUN_NS = 300000000, AHEAD = 2 };

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

struct rate {
    double step_us, host_us;
};

/* Steps for a while, two of them under way. */
static struct rate run_steps(struct work_at *work)
{
    uint64_t marks[AHEAD] = {0};
    int64_t began_ns = clock_now_ns(&clock_monotonic), host_ns = 0, now_ns = began_ns;
    uint64_t steps = 0;
    for (; now_ns - began_ns < RUN_NS; steps++) {
        int64_t put_ns = clock_now_ns(&clock_monotonic);
        put_step(work);
        uint64_t mark = trp_queue_mark(work->queue);
        host_ns += clock_now_ns(&clock_monotonic) - put_ns;
        stop_on(trp_queue_sync(work->queue, marks[steps % AHEAD]));
        marks[steps % AHEAD] = mark;
        now_ns = clock_now_ns(&clock_monotonic);
    }
    stop_on(trp_queue_sync(work->queue, trp_queue_mark(work->queue)));
    now_ns = clock_now_ns(&clock_monotonic);
    return (struct rate){(double)(now_ns - began_ns) / 1e3 / (double)steps,
                         (double)host_ns / 1e3 / (double)steps};
}

static const char *const words[] = {[TRP_F32] = "f32", [TRP_BF16] = "bf16", [TRP_TF32] = "tf32"};

static void bench(const char *name, struct work_at work, trp_precision precision)
{
    const char *word = words[precision];
    double step_us[RUNS], host_us[RUNS];
    work_begin(&work, precision);
    run_steps(&work);
    for (size_t i = 0; i < RUNS; i++) {
        struct rate rate = run_steps(&work);
        step_us[i] = rate.step_us;
        host_us[i] = rate.host_us;
    }
    work_end(&work);
    printf("%s, %s\t%.4g\tus/step\t0\t\n", name, word, median(step_us, RUNS));
    printf("  host, %s, %s\t%.4g\tus/step\t0\t\n", name, word, median(host_us, RUNS));
    fflush(stdout);
}

static trp_net_spec frames(bool resnet)
{
    trp_cnn_options options = {.height = 84, .width = 84, .channels = 4, .outputs = 18};
    return resnet ? trp_impala_resnet(&options) : trp_nature_cnn(&options);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cuda:0";
    trp_device *device = NULL;
    const struct {
        const char *name;
        trp_net_spec spec;
        uint32_t rows, steps;
    } cases[] = {
        {"MLP 2x256, B=256",
         trp_mlp(&(trp_mlp_options){.inputs = 64, .hidden = {256, 256}, .outputs = 18}), 256, 1},
        {"Nature CNN, B=256", frames(false), 256, 1},
        {"IMPALA ResNet, T=20 B=32", frames(true), 640, 1},
        {"Nature CNN, B=2048", frames(false), 2048, 1},
        {"IMPALA ResNet, T=20 B=256", frames(true), 5120, 1},
        {"LSTM 512, T=80 B=64, resets",
         trp_mlp(&(trp_mlp_options){.inputs = 512,
                                    .hidden = {512},
                                    .outputs = 18,
                                    .core = TRP_CORE_LSTM,
                                    .core_size = 512}),
         80 * 64, 80},
    };
    trp_status found = trp_device_find(&device, name);
    if (found != TRP_OK)
        fprintf(stderr, "bench_gpu: %s\n", trp_last_error());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (trp_precision precision = TRP_F32; precision <= TRP_TF32; precision++)
            if (found != TRP_OK)
                printf("%s, %s\tskipped: no GPU\n", cases[i].name, words[precision]);
            else
                bench(cases[i].name,
                      (struct work_at){.device = device,
                                       .spec = cases[i].spec,
                                       .rows = cases[i].rows,
                                       .steps = cases[i].steps},
                      precision);
    return 0;
}
