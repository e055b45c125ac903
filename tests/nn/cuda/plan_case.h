/* A network's passes on a device beside the reference: every tensor, by number or by norm. */
#ifndef TRP_TESTS_PLAN_CASE_H
#define TRP_TESTS_PLAN_CASE_H

#include "tests/nn/graph_case.h"

/* Two convolutions on an image of floats or of bytes, the second with a gradient to the first. */
static inline trp_net_spec windows_spec(trp_rng *rng)
{
    trp_net_spec spec = {0};
    trp_layer image = {.kind = TRP_INPUT,
                       .dtype = trp_rng_below(rng, 2) ? TRP_UINT8 : TRP_FLOAT32,
                       .shape = {7 + (uint32_t)trp_rng_below(rng, 6),
                                 7 + (uint32_t)trp_rng_below(rng, 6),
                                 1 + (uint32_t)trp_rng_below(rng, 5)}};
    uint32_t last = trp_net_add(&spec, image);
    for (uint32_t i = 0; i < 2; i++) {
        trp_layer conv = {.kind = TRP_CONV2D,
                          .from = {last},
                          .size = 1 + (uint32_t)trp_rng_below(rng, 9),
                          .kernel = 1 + (uint32_t)trp_rng_below(rng, 4),
                          .stride = 1 + (uint32_t)trp_rng_below(rng, 2),
                          .activation = trp_rng_below(rng, 3) ? TRP_TANH : TRP_SILU};
        conv.padding = (uint32_t)trp_rng_below(rng, conv.kernel);
        snprintf(conv.name, sizeof conv.name, "conv%u", i);
        last = trp_net_add(&spec, conv);
    }
    spec.outputs[spec.output_count++] = last;
    return spec;
}

static inline trp_queue *queue_on(trp_device *device)
{
    trp_queue *queue;
    OR_FAIL(trp_queue_create(&queue, device));
    return queue;
}

/* ---- a case on a device ---------------------------------------------------------------------- */

/* What a pass points to, on both sides. */
struct side {
    void *here, *there;
    size_t bytes;
};

enum { SIDES_MAX = 64 };

struct sides {
    trp_queue *queue;
    struct side list[SIDES_MAX];
    size_t count;
};

/* `here` on the device; NULL stays NULL. */
static inline void *there_of(struct sides *sides, void *here, size_t bytes)
{
    if (!here || bytes == 0)
        return NULL;
    assert_true(sides->count < SIDES_MAX);
    struct side *side = &sides->list[sides->count++];
    *side = (struct side){here, NULL, bytes};
    OR_FAIL(trp_device_alloc(trp_queue_device(sides->queue), bytes, &side->there));
    return side->there;
}

static inline void move_sides(const struct sides *sides, bool back)
{
    for (size_t i = 0; i < sides->count; i++) {
        const struct side *side = &sides->list[i];
        trp_queue_copy(sides->queue, back ? side->here : side->there,
                       back ? side->there : side->here, side->bytes);
    }
}

static inline void free_sides(const struct sides *sides)
{
    for (size_t i = 0; i < sides->count; i++)
        trp_device_free(trp_queue_device(sides->queue), sides->list[i].there);
}

static inline size_t input_bytes(const struct graph_case *c, uint32_t index)
{
    size_t element = trp_dtype_size(input_dtype(&c->spec, index));
    return c->rows * trp_net_input_width(&c->spec, index) * element;
}

static inline struct pass pass_there(struct graph_case *c, struct sides *sides)
{
    struct pass pass = c->pass;
    size_t state = c->state_count * sizeof(float);
    pass.params = there_of(sides, c->params, c->count * sizeof(float));
    pass.grads = there_of(sides, c->grads, c->count * sizeof(float));
    pass.resets = there_of(sides, c->resets, c->rows);
    pass.state = there_of(sides, c->state, state);
    pass.end_state = there_of(sides, c->end_state, state);
    pass.state_grad = there_of(sides, c->state_grad, state);
    pass.end_state_grad = there_of(sides, c->end_state_grad, state);
    for (uint32_t i = 0; i < input_count(&c->spec); i++) {
        pass.external[external_index(PLACE_INPUT, i)] =
            there_of(sides, c->inputs[i], input_bytes(c, i));
        if (has_grad(&c->spec, i))
            pass.external[external_index(PLACE_INPUT_GRAD, i)] =
                there_of(sides, c->input_grads[i], input_bytes(c, i));
    }
    for (uint32_t i = 0; i < c->spec.output_count; i++) {
        size_t bytes = c->rows * trp_net_output_width(&c->spec, i) * sizeof(float);
        pass.external[external_index(PLACE_OUTPUT, i)] = there_of(sides, c->outputs[i], bytes);
        pass.external[external_index(PLACE_OUTPUT_GRAD, i)] =
            there_of(sides, c->output_grads[i], bytes);
    }
    return pass;
}

/* The pass of a fresh case, three times: the second time it becomes a graph. Returns what the queue
 * says. */
static inline trp_status run_plan(struct graph_case *c, trp_device *device, trp_precision precision,
                                  uint32_t batch)
{
    struct sides sides = {.queue = queue_on(device)};
    trp_net *net;
    OR_FAIL(trp_net_create(
        &net, &(trp_net_options){
                  .spec = &c->spec, .batch = batch, .device = device, .precision = precision}));
    struct pass pass = pass_there(c, &sides);
    net->impl->noise(net, sides.queue, c->rows > 2 ? c->net->noise : NULL);
    trp_status status = TRP_OK;
    for (int i = 0; i < 3 && status == TRP_OK; i++) {
        move_sides(&sides, false);
        net->impl->forward(net, sides.queue, &pass, c->rows);
        net->impl->backward(net, sides.queue, &pass, c->rows);
        status = trp_queue_sync(sides.queue, trp_queue_mark(sides.queue));
    }
    move_sides(&sides, true);
    if (status == TRP_OK)
        OR_FAIL(trp_queue_sync(sides.queue, trp_queue_mark(sides.queue)));
    trp_net_destroy(net);
    free_sides(&sides);
    trp_queue_destroy(sides.queue);
    return status;
}

static inline void run_there(struct graph_case *c, trp_device *device, trp_precision precision)
{
    OR_FAIL(run_plan(c, device, precision, c->rows));
}

static inline double number_of(const struct graph_case *c, const void *values, size_t i)
{
    bool wide = c->backend->element_bytes == sizeof(double);
    return wide ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

/* Two cases' results, and the most that a norm of a difference may be beside that of what is
 * wanted. */
struct compared {
    const struct graph_case *got, *want;
    double bound;
};

/* Returns how far they are apart. */
static inline double compare(const struct compared *c, const void *got, const void *want,
                             size_t first, size_t count, const char *what)
{
    double apart = 0, all = 0;
    for (size_t i = first; i < first + count; i++) {
        apart += pow(number_of(c->got, got, i) - number_of(c->want, want, i), 2);
        all += pow(number_of(c->want, want, i), 2);
    }
    if (!(sqrt(apart) <= c->bound * sqrt(all)))
        fail_msg("%s is %g off, of %g", what, sqrt(apart), sqrt(all));
    return all > 0 ? sqrt(apart / all) : 0;
}

/* Returns how far the output that differs most is off. */
static inline double compare_all(const struct compared *c)
{
    const struct graph_case *got = c->got, *want = c->want;
    double most = 0;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    size_t count = trp_net_tensors(&got->spec, tensors);
    for (size_t i = 0; i < count; i++)
        compare(c, got->grads, want->grads, tensors[i].offset, tensors[i].count, tensors[i].name);
    compare(c, got->end_state, want->end_state, 0, got->state_count, "the state at the end");
    compare(c, got->state_grad, want->state_grad, 0, got->state_count, "the state's gradient");
    for (uint32_t i = 0; i < got->spec.output_count; i++)
        most = fmax(most, compare(c, got->outputs[i], want->outputs[i], 0,
                                  got->rows * trp_net_output_width(&got->spec, i), "an output"));
    for (uint32_t i = 0; i < input_count(&got->spec); i++)
        if (has_grad(&got->spec, i))
            compare(c, got->input_grads[i], want->input_grads[i], 0,
                    got->rows * trp_net_input_width(&got->spec, i), "an input's gradient");
    return most;
}

/* Beside float32, number by number. */
static inline void check_numbers(trp_device *device, const trp_net_spec *spec, uint32_t rows)
{
    struct graph_case want, got;
    graph_case_run(&want, spec, &backend_ref_f32, rows, 1);
    graph_case_init(&got, spec, &backend_ref_f32, rows, 1);
    run_there(&got, device, TRP_F32);
    assert_same_results(&got, &want, 1e-4, false);
    graph_case_cleanup(&got);
    graph_case_cleanup(&want);
}

/* Beside float64, by norms. */
static inline void check_spec(trp_device *device, const trp_net_spec *spec, uint32_t rows)
{
    struct graph_case want, got;
    graph_case_run(&want, spec, &backend_ref_f64, rows, 1);
    graph_case_init(&got, spec, &backend_ref_f32, rows, 1);
    run_there(&got, device, TRP_F32);
    compare_all(&(struct compared){&got, &want, 1e-5});
    graph_case_cleanup(&got);
    graph_case_cleanup(&want);
}

/* What the reference makes of rounded factors. */
static inline void run_rounded(struct graph_case *want, const trp_net_spec *spec, uint32_t rows)
{
    graph_case_init(want, spec, &backend_ref_f32, rows, 1);
    trp_net_destroy(want->net);
    OR_FAIL(net_create(&want->net,
                       &(trp_net_options){.spec = spec, .batch = rows, .precision = TRP_BF16},
                       &backend_ref_f32));
    net_forward(want->net, &want->pass, rows);
    net_backward(want->net, &want->pass);
}

/* Where a library may round factors or not, product by product: not further from float64 than all
 * of that goes in these networks, and no nearer than `least`. Returns how far the output is that
 * differs most. */
static inline double check_rounding(trp_device *device, const trp_net_spec *spec, uint32_t rows,
                                    trp_precision precision, double least, double bound)
{
    struct graph_case whole, got;
    graph_case_run(&whole, spec, &backend_ref_f64, rows, 1);
    graph_case_init(&got, spec, &backend_ref_f32, rows, 1);
    run_there(&got, device, precision);
    double most = compare_all(&(struct compared){&got, &whole, bound});
    if (most < least)
        fail_msg("outputs are nearer than %g", least);
    graph_case_cleanup(&got);
    graph_case_cleanup(&whole);
    return most;
}

static inline void check_half_by_library(trp_device *device, const trp_net_spec *spec,
                                         uint32_t rows)
{
    check_rounding(device, spec, rows, TRP_BF16, 0, 3.2e-2);
}

static inline void check_tf32_by_library(trp_device *device, const trp_net_spec *spec,
                                         uint32_t rows)
{
    check_rounding(device, spec, rows, TRP_TF32, 0, 4e-3);
}

/* Beside what the reference makes of rounded factors; and they are rounded. */
static inline void check_half(trp_device *device, const trp_net_spec *spec, uint32_t rows)
{
    struct graph_case want, whole, got;
    graph_case_run(&whole, spec, &backend_ref_f64, rows, 1);
    run_rounded(&want, spec, rows);
    graph_case_init(&got, spec, &backend_ref_f32, rows, 1);
    run_there(&got, device, TRP_BF16);
    compare_all(&(struct compared){&got, &want, 1.6e-2});
    if (compare_all(&(struct compared){&got, &whole, 0.5}) < 1e-4)
        fail_msg("outputs are those of float32");
    graph_case_cleanup(&got);
    graph_case_cleanup(&want);
    graph_case_cleanup(&whole);
}

#endif
