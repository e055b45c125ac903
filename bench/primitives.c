#include "primitives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dnnl_engine_t dnnl_on_cpu;
dnnl_stream_t dnnl_on_caller;

void dnnl_try(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "bench: %s: oneDNN status %d\n", what, (int)status);
    exit(1);
}

void dnnl_start(void)
{
    DNNL(dnnl_engine_create(&dnnl_on_cpu, dnnl_cpu, 0));
    DNNL(dnnl_stream_create(&dnnl_on_caller, dnnl_on_cpu, dnnl_stream_default_flags));
}

/* ---- one primitive ----------------------------------------------------------------------- */

static dnnl_memory_t memory_of(const dnnl_memory_desc_t *md, void *data)
{
    dnnl_memory_t memory;
    DNNL(dnnl_memory_create(&memory, md, dnnl_on_cpu, data));
    return memory;
}

static dnnl_memory_t zeros_of(const dnnl_memory_desc_t *md)
{
    dnnl_memory_t memory = memory_of(md, DNNL_MEMORY_ALLOCATE);
    void *data;
    DNNL(dnnl_memory_get_data_handle(memory, &data));
    memset(data, 0, dnnl_memory_desc_get_size(md));
    return memory;
}

enum tensor { X, W, BIAS, Y, TENSORS };

static const struct layer_arg {
    int arg;
    dnnl_query_t what;
    int index;
    enum tensor tensor;
    bool result;
} layer_args[][TENSORS] = {
    [FORWARD] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, X, false},
                 {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, W, false},
                 {DNNL_ARG_BIAS, dnnl_query_weights_md, 1, BIAS, false},
                 {DNNL_ARG_DST, dnnl_query_dst_md, 0, Y, true}},
    [WEIGHTS] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, X, false},
                 {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, Y, false},
                 {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, W, true},
                 {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1, BIAS, true}},
    [INPUT] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, Y, false},
               {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, W, false},
               {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, X, true}},
};

static void give(struct primitive *p, int arg, dnnl_memory_t memory)
{
    p->args[p->arg_count++] = (dnnl_exec_arg_t){arg, memory};
}

static void bind_zeros(struct primitive *p, dnnl_primitive_desc_t pd, int arg, dnnl_query_t what,
                       int index)
{
    give(p, arg, zeros_of(dnnl_primitive_desc_query_md(pd, what, index)));
}

void primitive_init(struct primitive *p, dnnl_primitive_desc_t pd, enum direction direction)
{
    memset(p, 0, sizeof *p);
    for (uint32_t i = 0; i < TENSORS && layer_args[direction][i].arg != 0; i++) {
        const struct layer_arg *as = &layer_args[direction][i];
        bind_zeros(p, pd, as->arg, as->what, as->index);
    }
    bind_zeros(p, pd, DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md, 0);
    DNNL(dnnl_primitive_create(&p->primitive, pd));
}

void primitive_run(const struct primitive *p)
{
    DNNL(dnnl_primitive_execute(p->primitive, dnnl_on_caller, p->arg_count, p->args));
}

void primitive_cleanup(struct primitive *p)
{
    DNNL(dnnl_primitive_destroy(p->primitive));
    for (int i = 0; i < p->arg_count; i++)
        DNNL(dnnl_memory_destroy(p->args[i].memory));
    memset(p, 0, sizeof *p);
}

/* ---- convolutions ------------------------------------------------------------------------ */

static dnnl_memory_desc_t described(int count, const int64_t *dims, dnnl_data_type_t type,
                                    dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t d = {0};
    memcpy(d, dims, (size_t)count * sizeof *dims);
    DNNL(dnnl_memory_desc_init_by_tag(&md, count, d, type, tag));
    return md;
}

/* All tensors of one convolution. */
struct conv_mds {
    dnnl_memory_desc_t x, w, bias, y;
};

static struct conv_mds mds_of(const struct window *w, uint32_t rows, dnnl_data_type_t type,
                              dnnl_format_tag_t images, dnnl_format_tag_t weights)
{
    int64_t x[] = {rows, w->channels, w->height, w->width};
    int64_t k[] = {w->filters, w->channels, w->kernel_height, w->kernel_width};
    int64_t y[] = {rows, w->filters, window_out_height(w), window_out_width(w)};
    return (struct conv_mds){.x = described(4, x, type, images),
                             .w = described(4, k, dnnl_f32, weights),
                             .bias = described(1, k, dnnl_f32, dnnl_a),
                             .y = described(4, y, dnnl_f32, images)};
}

/* Scratch is the caller's, so that other threads than the one that made it can run it. */
static dnnl_primitive_desc_t desc_of(const dnnl_convolution_desc_t *desc, bool relu,
                                     dnnl_primitive_desc_t forward)
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t after;
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_primitive_attr_create(&attr));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    DNNL(dnnl_post_ops_create(&after));
    if (relu)
        DNNL(dnnl_post_ops_append_eltwise(after, 1, dnnl_eltwise_relu, 0, 0));
    DNNL(dnnl_primitive_attr_set_post_ops(attr, after));
    DNNL(dnnl_primitive_desc_create(&pd, desc, attr, dnnl_on_cpu, forward));
    DNNL(dnnl_post_ops_destroy(after));
    DNNL(dnnl_primitive_attr_destroy(attr));
    return pd;
}

dnnl_primitive_desc_t convolution_desc(const struct window *w, uint32_t rows,
                                       enum direction direction, const struct conv_way *way)
{
    struct conv_mds md = mds_of(w, rows, dnnl_f32, way->images, dnnl_format_tag_any);
    int64_t rows_out = window_out_height(w), columns_out = window_out_width(w);
    dnnl_dims_t strides = {w->stride_height, w->stride_width}, pad = {w->pad_height, w->pad_width};
    dnnl_dims_t end = {
        (rows_out - 1) * w->stride_height + w->kernel_height - w->height - w->pad_height,
        (columns_out - 1) * w->stride_width + w->kernel_width - w->width - w->pad_width};
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t forward, pd;
    DNNL(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, way->algorithm, &md.x,
                                            &md.w, &md.bias, &md.y, strides, pad, end));
    forward = desc_of(&desc, way->relu && direction == FORWARD, NULL);
    if (direction == FORWARD)
        return forward;
    if (direction == WEIGHTS)
        DNNL(dnnl_convolution_backward_weights_desc_init(&desc, way->algorithm, &md.x, &md.w,
                                                         &md.bias, &md.y, strides, pad, end));
    else
        DNNL(dnnl_convolution_backward_data_desc_init(&desc, way->algorithm, &md.x, &md.w, &md.y,
                                                      strides, pad, end));
    pd = desc_of(&desc, false, forward);
    DNNL(dnnl_primitive_desc_destroy(forward));
    return pd;
}

/* ---- with reorders ----------------------------------------------------------------------- */

static void reorder_add(struct reordered *r, const dnnl_memory_desc_t *from_md, void *from,
                        const dnnl_memory_desc_t *to_md, void *to)
{
    struct primitive *step = &r->steps[r->count++];
    float scale = from_md->data_type == dnnl_u8 ? 1.F / 255 : 1;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_primitive_attr_create(&attr));
    DNNL(dnnl_primitive_attr_set_output_scales(attr, 1, 0, &scale));
    DNNL(dnnl_reorder_primitive_desc_create(&pd, from_md, dnnl_on_cpu, to_md, dnnl_on_cpu, attr));
    DNNL(dnnl_primitive_create(&step->primitive, pd));
    give(step, DNNL_ARG_FROM, memory_of(from_md, from));
    give(step, DNNL_ARG_TO, memory_of(to_md, to));
    DNNL(dnnl_primitive_desc_destroy(pd));
    DNNL(dnnl_primitive_attr_destroy(attr));
}

/* What `data`, which lies as `md` says, is to the primitive: itself, or memory beside it and a
 * reorder, from it or to it. */
static void bind_data(struct reordered *r, struct primitive *p, dnnl_primitive_desc_t pd,
                      const struct layer_arg *as, const dnnl_memory_desc_t *md, void *data)
{
    const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(pd, as->what, as->index);
    if (dnnl_memory_desc_equal(wanted, md)) {
        give(p, as->arg, memory_of(md, data));
        return;
    }
    dnnl_memory_t beside = zeros_of(wanted);
    void *there;
    DNNL(dnnl_memory_get_data_handle(beside, &there));
    give(p, as->arg, beside);
    if (as->result)
        reorder_add(r, wanted, there, md, data);
    else
        reorder_add(r, md, data, wanted, there);
}

static void bind_all(struct reordered *r, struct primitive *p, dnnl_primitive_desc_t pd,
                     enum direction direction, bool results, const struct conv_mds *md,
                     const struct conv_memory *memory)
{
    const dnnl_memory_desc_t *mds[] = {&md->x, &md->w, &md->bias, &md->y};
    void *datas[] = {memory->x, memory->w, memory->bias, memory->y};
    for (uint32_t i = 0; i < TENSORS; i++) {
        const struct layer_arg *as = &layer_args[direction][i];
        if (as->arg != 0 && as->result == results)
            bind_data(r, p, pd, as, mds[as->tensor], datas[as->tensor]);
    }
}

void reordered_init(struct reordered *r, const struct window *w, uint32_t rows,
                    enum direction direction, const struct conv_way *way,
                    const struct conv_memory *memory)
{
    struct conv_mds md = mds_of(w, rows, memory->bytes ? dnnl_u8 : dnnl_f32, dnnl_nhwc, dnnl_hwio);
    dnnl_primitive_desc_t pd = convolution_desc(w, rows, direction, way);
    struct primitive p = {0};
    const char *name;
    memset(r, 0, sizeof *r);
    DNNL(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name));
    snprintf(r->name, sizeof r->name, "%s", name);
    DNNL(dnnl_primitive_create(&p.primitive, pd));
    bind_all(r, &p, pd, direction, false, &md, memory);
    bind_zeros(&p, pd, DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md, 0);
    uint32_t at = r->count++;
    bind_all(r, &p, pd, direction, true, &md, memory);
    r->steps[at] = p;
    DNNL(dnnl_primitive_desc_destroy(pd));
}

void reordered_run(const struct reordered *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        primitive_run(&r->steps[i]);
}

void reordered_cleanup(struct reordered *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        primitive_cleanup(&r->steps[i]);
}
