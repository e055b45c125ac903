/* The learner's step and the actor's policy, next to the same sequence of oneDNN primitives, and
 * with --peer DIR to PyTorch.
 *
 * The ceiling is what one would write with oneDNN by hand: inner products with ReLU fused into
 * them, their gradients, and our loss and Adam around them. It comes in the flat vector's plain
 * layout and in the layouts that oneDNN picks (with the reorders that those cost), on one thread
 * and on two; the best median counts. Both sides run in turns of a few steps, because the machine
 * may be shared, and the first step of a turn is not counted. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <troupe/losses.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "median.h"
#include "primitives.h"
#include "torch_peer.h"

void omp_set_num_threads(int count);

enum layout { WEIGHTS_IN_OUT, WEIGHTS_OUT_IN, PICKED_BY_ONEDNN, LAYOUTS };
enum { LAYERS = 3, THREADS_MAX = 2, TURNS = 30, TURN_STEPS = 12, TURN_MAX_US = 30000 };

/* ---- one case ---------------------------------------------------------------------------- */

struct problem {
    const char *name, *peer;
    uint32_t inputs, hidden, outputs, batch;
};

static const struct problem problems[] = {
    {"MLP 4-64-64-2, batch 128", "64", 4, 64, 2, 128},
    {"MLP 17-256-256-6, batch 256", "256", 17, 256, 6, 256},
};

/* What both sides learn from. */
struct data {
    float *states, *next_states, *targets, *rewards, *discounts, *td_errors;
    int32_t *actions;
    trp_q_batch batch;
};

static float *normal_floats(trp_rng *rng, size_t count)
{
    float *floats = trp_floats_create(count);
    for (size_t i = 0; i < count; i++)
        floats[i] = (float)trp_rng_normal(rng);
    return floats;
}

static void data_init(struct data *data, const struct problem *p)
{
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    data->states = normal_floats(&rng, (size_t)p->batch * p->inputs);
    data->next_states = normal_floats(&rng, (size_t)p->batch * p->inputs);
    data->targets = normal_floats(&rng, p->batch);
    data->rewards = normal_floats(&rng, p->batch);
    data->discounts = trp_floats_create(p->batch);
    data->td_errors = trp_floats_create(p->batch);
    data->actions = xcalloc(p->batch, sizeof *data->actions);
    for (uint32_t i = 0; i < p->batch; i++) {
        data->discounts[i] = 0.97f;
        data->actions[i] = (int32_t)trp_rng_below(&rng, p->outputs);
    }
    data->batch = (trp_q_batch){.rows = p->batch,
                                .actions = p->outputs,
                                .taken = data->actions,
                                .rewards = data->rewards,
                                .discounts = data->discounts};
}

static void data_cleanup(struct data *data)
{
    trp_floats_destroy(data->states);
    trp_floats_destroy(data->next_states);
    trp_floats_destroy(data->targets);
    trp_floats_destroy(data->rewards);
    trp_floats_destroy(data->discounts);
    trp_floats_destroy(data->td_errors);
    free(data->actions);
}

/* ---- ours -------------------------------------------------------------------------------- */

struct ours {
    trp_net *net;
    size_t count;
    float *params, *target, *grads, *m, *v, *q, *next_online, *next_target, *targets;
    uint64_t step;
};

static trp_net_spec spec_of(const struct problem *p)
{
    return trp_mlp(&(trp_mlp_options){
        .inputs = p->inputs, .hidden = {p->hidden, p->hidden}, .outputs = p->outputs});
}

static void ours_init(struct ours *o, const struct problem *p, uint32_t threads)
{
    trp_net_spec spec = spec_of(p);
    trp_net_options options = {.spec = &spec, .batch = p->batch, .threads = threads};
    if (trp_net_create(&o->net, &options) != TRP_OK) {
        fprintf(stderr, "bench_nn: %s\n", trp_last_error());
        exit(1);
    }
    trp_rng rng;
    trp_rng_init(&rng, 2, 0);
    o->count = trp_net_param_count(&spec);
    float **vectors[] = {&o->params, &o->target, &o->grads, &o->m, &o->v};
    for (size_t i = 0; i < 5; i++)
        *vectors[i] = trp_floats_create(o->count);
    float **outs[] = {&o->q, &o->next_online, &o->next_target, &o->targets};
    for (size_t i = 0; i < 4; i++)
        *outs[i] = trp_floats_create((size_t)p->batch * p->outputs);
    o->step = 0;
    trp_net_init(&spec, &rng, o->params);
    trp_net_init(&spec, &rng, o->target);
}

static void ours_cleanup(struct ours *o)
{
    trp_net_destroy(o->net);
    trp_floats_destroy(o->params);
    trp_floats_destroy(o->target);
    trp_floats_destroy(o->grads);
    trp_floats_destroy(o->m);
    trp_floats_destroy(o->v);
    trp_floats_destroy(o->q);
    trp_floats_destroy(o->next_online);
    trp_floats_destroy(o->next_target);
    trp_floats_destroy(o->targets);
}

static void ours_train(struct ours *o, const struct problem *p, struct data *d)
{
    memset(o->grads, 0, o->count * sizeof *o->grads);
    trp_net_rows rows = {.rows = p->batch, .inputs = {d->states}, .outputs = {o->q}};
    trp_net_forward(o->net, o->params, &rows);
    trp_q_loss(&d->batch, 1, o->q, d->targets, d->td_errors, o->q);
    trp_net_backward(o->net, o->params, &rows,
                     &(trp_net_grads){.outputs = {o->q}, .params = o->grads});
    trp_optimizer_step(&(trp_optimizer){0}, ++o->step, 1, o->params, o->grads,
                       (float *[]){o->m, o->v}, 0, o->count);
}

static void ours_double_q(struct ours *o, const struct problem *p, struct data *d)
{
    memset(o->grads, 0, o->count * sizeof *o->grads);
    trp_net_rows next = {.rows = p->batch, .inputs = {d->next_states}, .outputs = {o->next_target}};
    trp_net_rows now = {.rows = p->batch, .inputs = {d->states}, .outputs = {o->q}};
    trp_net_forward(o->net, o->target, &next);
    next.outputs[0] = o->next_online;
    trp_net_forward(o->net, o->params, &next);
    trp_net_forward(o->net, o->params, &now);
    trp_double_q_targets(&d->batch, o->next_online, o->next_target, o->targets);
    trp_q_loss(&d->batch, 1, o->q, o->targets, d->td_errors, o->q);
    trp_net_backward(o->net, o->params, &now,
                     &(trp_net_grads){.outputs = {o->q}, .params = o->grads});
    trp_optimizer_step(&(trp_optimizer){0}, ++o->step, 1, o->params, o->grads,
                       (float *[]){o->m, o->v}, 0, o->count);
}

/* ---- oneDNN ------------------------------------------------------------------------------ */

enum { MEMORIES_MAX = 64, OPS_MAX = 64, ARGS_MAX = 6 };

struct op {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[ARGS_MAX];
    int arg_count;
};

struct ops {
    struct op list[OPS_MAX];
    size_t count;
};

struct theirs {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_format_tag_t rows, weights; /* layouts of activations and of weights */
    dnnl_format_tag_t flat_weights;  /* of weights in the flat vectors */
    uint32_t batch;
    size_t count;
    uint64_t step;
    float *params, *target, *grads, *m, *v, *q, *dq, *next_online, *next_target, *targets;
    struct ops online, next, target_next, backward;
};

static dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {rows, columns};
    DNNL(dnnl_memory_desc_init_by_tag(&md, 2, dims, dnnl_f32, tag));
    return md;
}

static dnnl_memory_desc_t vector(int64_t count)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {count};
    DNNL(dnnl_memory_desc_init_by_tag(&md, 1, dims, dnnl_f32, dnnl_a));
    return md;
}

/* `data` NULL: oneDNN allocates. Memories live as long as the process. */
static dnnl_memory_t memory_of(struct theirs *t, const dnnl_memory_desc_t *md, void *data)
{
    dnnl_memory_t memory;
    DNNL(dnnl_memory_create(&memory, md, t->engine, data ? data : DNNL_MEMORY_ALLOCATE));
    return memory;
}

static void op_add(struct ops *ops, dnnl_primitive_desc_t pd, const dnnl_exec_arg_t *args,
                   int arg_count)
{
    struct op *op = &ops->list[ops->count++];
    DNNL(dnnl_primitive_create(&op->primitive, pd));
    memcpy(op->args, args, (size_t)arg_count * sizeof *args);
    op->arg_count = arg_count;
}

static void ops_run(struct theirs *t, const struct ops *ops)
{
    for (size_t i = 0; i < ops->count; i++)
        DNNL(dnnl_primitive_execute(ops->list[i].primitive, t->stream, ops->list[i].arg_count,
                                    ops->list[i].args));
}

static const dnnl_memory_desc_t *md_of(dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
    return dnnl_primitive_desc_query_md(pd, what, index);
}

/* `from`, or a copy in layout `md` that the ops make each time. */
static dnnl_memory_t reordered(struct theirs *t, struct ops *ops, dnnl_memory_t from,
                               const dnnl_memory_desc_t *md)
{
    const dnnl_memory_desc_t *from_md;
    DNNL(dnnl_memory_get_memory_desc(from, &from_md));
    if (dnnl_memory_desc_equal(from_md, md))
        return from;
    dnnl_memory_t to = memory_of(t, md, NULL);
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_reorder_primitive_desc_create(&pd, from_md, t->engine, md, t->engine, NULL));
    op_add(ops, pd, (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, 2);
    return to;
}

struct inner {
    uint32_t inputs, outputs;
    bool relu;
    float *weights, *bias, *dweights, *dbias; /* in the flat vectors, [inputs][outputs] */
    dnnl_primitive_desc_t forward;
    dnnl_memory_t x, w, y; /* of the pass that backward belongs to */
};

static dnnl_primitive_desc_t forward_pd(struct theirs *t, const struct inner *l)
{
    dnnl_memory_desc_t x = matrix(t->batch, l->inputs, t->rows);
    dnnl_memory_desc_t w = matrix(l->outputs, l->inputs, t->weights);
    dnnl_memory_desc_t y = matrix(t->batch, l->outputs, t->rows);
    dnnl_memory_desc_t b = vector(l->outputs);
    dnnl_inner_product_desc_t desc;
    dnnl_prop_kind_t kind = t->batch > 1 ? dnnl_forward_training : dnnl_forward_inference;
    DNNL(dnnl_inner_product_forward_desc_init(&desc, kind, &x, &w, &b, &y));
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    DNNL(dnnl_primitive_attr_create(&attr));
    DNNL(dnnl_post_ops_create(&post));
    if (l->relu)
        DNNL(dnnl_post_ops_append_eltwise(post, 1, dnnl_eltwise_relu, 0, 0));
    DNNL(dnnl_primitive_attr_set_post_ops(attr, post));
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_primitive_desc_create(&pd, &desc, attr, t->engine, NULL));
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

/* Copies `from` to plain memory. */
static void copy_out(struct theirs *t, struct ops *ops, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_memory_desc_t *from_md, *to_md;
    DNNL(dnnl_memory_get_memory_desc(from, &from_md));
    DNNL(dnnl_memory_get_memory_desc(to, &to_md));
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_reorder_primitive_desc_create(&pd, from_md, t->engine, to_md, t->engine, NULL));
    op_add(ops, pd, (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, 2);
}

static dnnl_memory_t forward_layer(struct theirs *t, struct ops *ops, struct inner *l,
                                   dnnl_memory_t x, float *params_base, float *out)
{
    dnnl_memory_desc_t w_md = matrix(l->outputs, l->inputs, t->flat_weights),
                       b_md = vector(l->outputs);
    dnnl_memory_t w = memory_of(t, &w_md, params_base + (l->weights - t->params));
    dnnl_memory_t b = memory_of(t, &b_md, params_base + (l->bias - t->params));
    l->forward = forward_pd(t, l);
    l->x = reordered(t, ops, x, md_of(l->forward, dnnl_query_src_md, 0));
    l->w = reordered(t, ops, w, md_of(l->forward, dnnl_query_weights_md, 0));
    const dnnl_memory_desc_t *y_md = md_of(l->forward, dnnl_query_dst_md, 0);
    dnnl_memory_desc_t plain = matrix(t->batch, l->outputs, dnnl_ab);
    bool direct = out && dnnl_memory_desc_equal(y_md, &plain);
    l->y = memory_of(t, y_md, direct ? out : NULL);
    op_add(ops, l->forward,
           (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, l->x},
                               {DNNL_ARG_WEIGHTS, l->w},
                               {DNNL_ARG_BIAS, b},
                               {DNNL_ARG_DST, l->y}},
           4);
    if (out && !direct)
        copy_out(t, ops, l->y, memory_of(t, &plain, out));
    return l->y;
}

static void forward_build(struct theirs *t, struct ops *ops, struct inner *layers, float *params,
                          float *in, float *out)
{
    dnnl_memory_desc_t in_md = matrix(t->batch, layers[0].inputs, dnnl_ab);
    dnnl_memory_t x = memory_of(t, &in_md, in);
    for (int i = 0; i < LAYERS; i++)
        x = forward_layer(t, ops, &layers[i], x, params, i + 1 < LAYERS ? NULL : out);
}

/* The gradient of the layer's output before its ReLU, from the one after it. */
static dnnl_memory_t relu_backward(struct theirs *t, struct inner *l, dnnl_memory_t dy)
{
    const dnnl_memory_desc_t *y_md;
    DNNL(dnnl_memory_get_memory_desc(l->y, &y_md));
    dnnl_eltwise_desc_t forward, backward;
    dnnl_primitive_desc_t hint, pd;
    dnnl_alg_kind_t relu = dnnl_eltwise_relu_use_dst_for_bwd;
    DNNL(dnnl_eltwise_forward_desc_init(&forward, dnnl_forward_training, relu, y_md, 0, 0));
    DNNL(dnnl_primitive_desc_create(&hint, &forward, NULL, t->engine, NULL));
    DNNL(dnnl_eltwise_backward_desc_init(&backward, relu, y_md, y_md, 0, 0));
    DNNL(dnnl_primitive_desc_create(&pd, &backward, NULL, t->engine, hint));
    dy = reordered(t, &t->backward, dy, y_md);
    op_add(
        &t->backward, pd,
        (dnnl_exec_arg_t[]){{DNNL_ARG_DST, l->y}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dy}},
        3);
    return dy;
}

static void weights_backward(struct theirs *t, struct inner *l, dnnl_memory_t dy)
{
    dnnl_memory_desc_t x = matrix(t->batch, l->inputs, t->rows);
    dnnl_memory_desc_t w = matrix(l->outputs, l->inputs, t->weights);
    dnnl_memory_desc_t y = matrix(t->batch, l->outputs, t->rows);
    dnnl_memory_desc_t b = vector(l->outputs);
    dnnl_memory_desc_t plain_w = matrix(l->outputs, l->inputs, t->flat_weights);
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_inner_product_backward_weights_desc_init(&desc, &x, &w, &b, &y));
    DNNL(dnnl_primitive_desc_create(&pd, &desc, NULL, t->engine, l->forward));
    dnnl_memory_t to = memory_of(t, &plain_w, l->dweights), dw = to;
    const dnnl_memory_desc_t *dw_md = md_of(pd, dnnl_query_diff_weights_md, 0);
    bool direct = dnnl_memory_desc_equal(dw_md, &plain_w);
    if (!direct)
        dw = memory_of(t, dw_md, NULL);
    dnnl_memory_t in = reordered(t, &t->backward, l->x, md_of(pd, dnnl_query_src_md, 0));
    dnnl_memory_t out = reordered(t, &t->backward, dy, md_of(pd, dnnl_query_diff_dst_md, 0));
    op_add(&t->backward, pd,
           (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, in},
                               {DNNL_ARG_DIFF_DST, out},
                               {DNNL_ARG_DIFF_WEIGHTS, dw},
                               {DNNL_ARG_DIFF_BIAS, memory_of(t, &b, l->dbias)}},
           4);
    if (!direct)
        copy_out(t, &t->backward, dw, to);
}

static dnnl_memory_t data_backward(struct theirs *t, struct inner *l, dnnl_memory_t dy)
{
    dnnl_memory_desc_t x = matrix(t->batch, l->inputs, t->rows);
    dnnl_memory_desc_t w = matrix(l->outputs, l->inputs, t->weights);
    dnnl_memory_desc_t y = matrix(t->batch, l->outputs, t->rows);
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_inner_product_backward_data_desc_init(&desc, &x, &w, &y));
    DNNL(dnnl_primitive_desc_create(&pd, &desc, NULL, t->engine, l->forward));
    dnnl_memory_t weights = reordered(t, &t->backward, l->w, md_of(pd, dnnl_query_weights_md, 0));
    dnnl_memory_t out = reordered(t, &t->backward, dy, md_of(pd, dnnl_query_diff_dst_md, 0));
    dnnl_memory_t dx = memory_of(t, md_of(pd, dnnl_query_diff_src_md, 0), NULL);
    op_add(&t->backward, pd,
           (dnnl_exec_arg_t[]){
               {DNNL_ARG_DIFF_DST, out}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_SRC, dx}},
           3);
    return dx;
}

static void backward_build(struct theirs *t, struct inner *layers, uint32_t outputs)
{
    dnnl_memory_desc_t dq_md = matrix(t->batch, outputs, dnnl_ab);
    dnnl_memory_t dy = memory_of(t, &dq_md, t->dq);
    for (int i = LAYERS; i-- > 0;) {
        if (layers[i].relu)
            dy = relu_backward(t, &layers[i], dy);
        weights_backward(t, &layers[i], dy);
        if (i > 0)
            dy = data_backward(t, &layers[i], dy);
    }
}

static void theirs_layers(struct theirs *t, const struct problem *p, struct inner layers[LAYERS])
{
    const uint32_t widths[] = {p->inputs, p->hidden, p->hidden, p->outputs};
    size_t offset = 0;
    for (int i = 0; i < LAYERS; i++) {
        size_t weights = (size_t)widths[i] * widths[i + 1], bias = offset + weights;
        layers[i] = (struct inner){.inputs = widths[i],
                                   .outputs = widths[i + 1],
                                   .relu = i + 1 < LAYERS,
                                   .weights = t->params + offset,
                                   .dweights = t->grads + offset,
                                   .bias = t->params + bias,
                                   .dbias = t->grads + bias};
        offset = bias + (widths[i + 1] + 15) / 16 * 16;
    }
}

static void theirs_init(struct theirs *t, const struct problem *p, struct data *d, uint32_t batch,
                        enum layout layout, int threads)
{
    bool picked = layout == PICKED_BY_ONEDNN;
    *t = (struct theirs){.batch = batch};
    t->flat_weights = layout == WEIGHTS_OUT_IN ? dnnl_ab : dnnl_ba;
    t->rows = picked ? dnnl_format_tag_any : dnnl_ab;
    t->weights = picked ? dnnl_format_tag_any : t->flat_weights;
    omp_set_num_threads(threads);
    DNNL(dnnl_engine_create(&t->engine, dnnl_cpu, 0));
    DNNL(dnnl_stream_create(&t->stream, t->engine, dnnl_stream_default_flags));
    t->count = (size_t)(p->inputs + 1) * p->hidden + (size_t)(p->hidden + 1) * p->hidden +
               (size_t)(p->hidden + 1) * p->outputs + 64;
    trp_rng rng;
    trp_rng_init(&rng, 2, 0);
    t->params = normal_floats(&rng, t->count);
    t->target = normal_floats(&rng, t->count);
    for (size_t i = 0; i < t->count; i++) {
        t->params[i] *= 0.1f;
        t->target[i] *= 0.1f;
    }
    t->grads = trp_floats_create(t->count);
    t->m = trp_floats_create(t->count);
    t->v = trp_floats_create(t->count);
    float **outs[] = {&t->q, &t->dq, &t->next_online, &t->next_target, &t->targets};
    for (size_t i = 0; i < 5; i++)
        *outs[i] = trp_floats_create((size_t)batch * p->outputs);
    struct inner layers[LAYERS];
    theirs_layers(t, p, layers);
    forward_build(t, &t->target_next, layers, t->target, d->next_states, t->next_target);
    forward_build(t, &t->next, layers, t->params, d->next_states, t->next_online);
    forward_build(t, &t->online, layers, t->params, d->states, t->q);
    if (batch > 1)
        backward_build(t, layers, p->outputs);
}

static void theirs_train(struct theirs *t, const struct problem *p, struct data *d)
{
    ops_run(t, &t->online);
    (void)p;
    trp_q_loss(&d->batch, 1, t->q, d->targets, d->td_errors, t->dq);
    ops_run(t, &t->backward);
    trp_optimizer_step(&(trp_optimizer){0}, ++t->step, 1, t->params, t->grads,
                       (float *[]){t->m, t->v}, 0, t->count);
}

static void theirs_double_q(struct theirs *t, const struct problem *p, struct data *d)
{
    ops_run(t, &t->target_next);
    ops_run(t, &t->next);
    ops_run(t, &t->online);
    (void)p;
    trp_double_q_targets(&d->batch, t->next_online, t->next_target, t->targets);
    trp_q_loss(&d->batch, 1, t->q, t->targets, d->td_errors, t->dq);
    ops_run(t, &t->backward);
    trp_optimizer_step(&(trp_optimizer){0}, ++t->step, 1, t->params, t->grads,
                       (float *[]){t->m, t->v}, 0, t->count);
}

/* ---- timing ------------------------------------------------------------------------------ */

struct samples {
    double us[TURNS * TURN_STEPS];
    size_t count;
};

static double samples_median(struct samples *s)
{
    return median(s->us, s->count);
}

static double now_us(void)
{
    return (double)clock_now_ns(&clock_monotonic) / 1e3;
}

/* OpenMP's workers spin for a while after their last job: not into somebody else's turn. */
static void let_spinners_sleep(int threads)
{
    if (threads > 1)
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
}

struct contest {
    const struct problem *problem;
    struct data data;
    struct ours ours[THREADS_MAX];
    struct theirs theirs[LAYOUTS][THREADS_MAX];
    struct samples our_samples[THREADS_MAX], their_samples[LAYOUTS][THREADS_MAX];
};

typedef void ours_step(struct ours *, const struct problem *, struct data *);
typedef void theirs_step(struct theirs *, const struct problem *, struct data *);

/* On a machine whose cores are taken, OpenMP's barriers can cost a hundred steps. */
static bool turn_over(double start)
{
    return now_us() - start > TURN_MAX_US;
}

static void ours_turn(struct contest *c, int threads, ours_step *step)
{
    struct samples *s = &c->our_samples[threads - 1];
    double turn = now_us();
    step(&c->ours[threads - 1], c->problem, &c->data);
    for (int i = 0; i < TURN_STEPS && (i == 0 || !turn_over(turn)); i++) {
        double start = now_us();
        step(&c->ours[threads - 1], c->problem, &c->data);
        s->us[s->count++] = now_us() - start;
    }
}

static void theirs_turn(struct contest *c, int layout, int threads, theirs_step *step)
{
    struct samples *s = &c->their_samples[layout][threads - 1];
    omp_set_num_threads(threads);
    double turn = now_us();
    step(&c->theirs[layout][threads - 1], c->problem, &c->data);
    for (int i = 0; i < TURN_STEPS && (i == 0 || !turn_over(turn)); i++) {
        double start = now_us();
        step(&c->theirs[layout][threads - 1], c->problem, &c->data);
        s->us[s->count++] = now_us() - start;
    }
    let_spinners_sleep(threads);
}

static void contest_run(struct contest *c, const char *what, ours_step *ours, theirs_step *theirs,
                        double peer)
{
    memset(c->our_samples, 0, sizeof c->our_samples);
    memset(c->their_samples, 0, sizeof c->their_samples);
    for (int turn = 0; turn < TURNS; turn++)
        for (int threads = 1; threads <= THREADS_MAX; threads++) {
            ours_turn(c, threads, ours);
            for (int layout = 0; layout < LAYOUTS; layout++)
                theirs_turn(c, layout, threads, theirs);
        }
    double best = 1e300, ceiling = 1e300;
    int best_threads = 1, ceiling_threads = 1;
    for (int t = 0; t < THREADS_MAX; t++) {
        double ours_us = samples_median(&c->our_samples[t]);
        if (ours_us < best) {
            best = ours_us;
            best_threads = t + 1;
        }
        for (int layout = 0; layout < LAYOUTS; layout++) {
            double theirs_us = samples_median(&c->their_samples[layout][t]);
            if (theirs_us < ceiling) {
                ceiling = theirs_us;
                ceiling_threads = t + 1;
            }
        }
    }
    printf("%s, %s (%d thread%s)\t%.2f\tus\t%.2f\toneDNN primitives (%d thread%s)", what,
           c->problem->name, best_threads, best_threads > 1 ? "s" : "", best, ceiling,
           ceiling_threads, ceiling_threads > 1 ? "s" : "");
    if (peer > 0)
        printf("\t%.1f\tPyTorch eager", peer);
    printf("\n");
    fflush(stdout);
}

/* ---- the policy -------------------------------------------------------------------------- */

/* oneDNN's plain matrix product, layer by layer: at one row it is faster than its primitives. */
static void product_policy(const struct theirs *t, const struct problem *p, const float *in,
                           float *hidden[2], float *out)
{
    const uint32_t widths[] = {p->inputs, p->hidden, p->hidden, p->outputs};
    const float *x = in, *w = t->params;
    for (int i = 0; i < LAYERS; i++) {
        float *y = i + 1 < LAYERS ? hidden[i] : out;
        uint32_t k = widths[i], n = widths[i + 1];
        memcpy(y, w + (size_t)k * n, n * sizeof *y);
        DNNL(dnnl_sgemm('N', 'N', 1, n, k, 1, x, k, w, n, 1, y, n));
        for (uint32_t j = 0; j < n && i + 1 < LAYERS; j++)
            y[j] = y[j] < 0 ? 0 : y[j];
        x = y;
        w += (size_t)k * n + (n + 15) / 16 * 16;
    }
}

/* Keeps the compiler from leaving out what nobody reads. */
static volatile uint32_t chosen_action;

static double product_policy_us(const struct theirs *t, const struct problem *p,
                                const struct data *d, int calls)
{
    static float first[256], second[256], out[8];
    double start = now_us();
    for (int i = 0; i < calls; i++) {
        product_policy(t, p, d->states, (float *[]){first, second}, out);
        chosen_action = trp_argmax(out, NULL, p->outputs);
    }
    return (now_us() - start) / calls;
}

static void policy_run(const struct problem *p)
{
    enum { CALLS = 500 };
    struct data d;
    struct ours o;
    struct theirs t[LAYOUTS];
    static struct samples ours, theirs[LAYOUTS], product;
    data_init(&d, p);
    ours_init(&o, p, 1);
    for (int layout = 0; layout < LAYOUTS; layout++)
        theirs_init(&t[layout], p, &d, 1, (enum layout)layout, 1);
    omp_set_num_threads(1);
    for (int turn = 0; turn < TURNS * TURN_STEPS; turn++) {
        double start = now_us();
        for (int i = 0; i < CALLS; i++) {
            trp_net_forward(o.net, o.params,
                            &(trp_net_rows){.rows = 1, .inputs = {d.states}, .outputs = {o.q}});
            chosen_action = trp_argmax(o.q, NULL, p->outputs);
        }
        ours.us[ours.count++] = (now_us() - start) / CALLS;
        if (turn % 4 != 0)
            continue;
        product.us[product.count++] = product_policy_us(&t[0], p, &d, CALLS);
        for (int layout = 0; layout < LAYOUTS; layout++) {
            start = now_us();
            for (int i = 0; i < CALLS; i++) {
                ops_run(&t[layout], &t[layout].online);
                chosen_action = trp_argmax(t[layout].q, NULL, p->outputs);
            }
            theirs[layout].us[theirs[layout].count++] = (now_us() - start) / CALLS;
        }
    }
    double ceiling = samples_median(&product);
    for (int layout = 0; layout < LAYOUTS; layout++) {
        double us = samples_median(&theirs[layout]);
        ceiling = us < ceiling ? us : ceiling;
    }
    printf("policy, batch 1, MLP 4-64-64-2\t%.3f\tus\t%.3f\toneDNN (1 thread)\n",
           samples_median(&ours), ceiling);
    fflush(stdout);
    ours_cleanup(&o);
    data_cleanup(&d);
}

/* ---- the peer ---------------------------------------------------------------------------- */

/* Microseconds that bench/peers/torch_step.py prints for `key`; 0 without a peer. */
static double peer_us(const char *dir, const char *key)
{
    static char *output; /* one run of the script for all cases */
    if (!dir)
        return 0;
    if (!output) {
        char *command = xasprintf("'%s/torch/bin/python' bench/peers/torch_step.py", dir);
        FILE *pipe = popen(command, "r");
        output = xcalloc(1, 4096);
        if (!pipe || fread(output, 1, 4095, pipe) == 0)
            fprintf(stderr, "bench_nn: %s printed nothing\n", command);
        if (pipe)
            pclose(pipe);
        free(command);
    }
    for (const char *line = output; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t length = strlen(key);
        if (strncmp(line, key, length) == 0 && line[length] == '\t')
            return strtod(line + length + 1, NULL);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *peer = torch_peer_dir(argc, argv);
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        struct contest *c = xcalloc(1, sizeof *c);
        c->problem = &problems[i];
        data_init(&c->data, c->problem);
        for (int threads = 1; threads <= THREADS_MAX; threads++) {
            ours_init(&c->ours[threads - 1], c->problem, (uint32_t)threads);
            for (int layout = 0; layout < LAYOUTS; layout++)
                theirs_init(&c->theirs[layout][threads - 1], c->problem, &c->data,
                            c->problem->batch, (enum layout)layout, threads);
        }
        contest_run(c, "train step", ours_train, theirs_train, peer_us(peer, c->problem->peer));
        contest_run(c, "double-Q step", ours_double_q, theirs_double_q, 0);
        for (int threads = 0; threads < THREADS_MAX; threads++)
            ours_cleanup(&c->ours[threads]);
        data_cleanup(&c->data);
        free(c);
    }
    policy_run(&problems[0]);
    return 0;
}
