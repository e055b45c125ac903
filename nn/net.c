/* A plan: a program, and one arena cut into its buffers and scratch when it is made; a step then
 * only walks the operations. With several threads each takes a share of the rows through the whole
 * network, forward and backward, with buffers and a gradient of its own, so that threads meet once
 * per pass instead of once per operation; the gradients are added in the order of the parts, so the
 * bits do not depend on who was first. */
#include "net.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "limits.h"

enum { ROWS_STEP = 8 };

/* ---- planning ---------------------------------------------------------------------------- */

/* Lays out the arena: with arena NULL only counts. Everything starts at a multiple of 64 bytes. */
struct arena_cutter {
    char *arena;
    size_t used; /* bytes */
    bool overflow;
};

static void *cut(struct arena_cutter *cutter, size_t count, size_t width, size_t element_bytes)
{
    size_t bytes;
    if (!size_mul(count, width, &bytes) || !size_mul(bytes, element_bytes, &bytes) ||
        !size_add(bytes, ALIGNMENT - 1, &bytes)) {
        cutter->overflow = true;
        return NULL;
    }
    bytes -= bytes % ALIGNMENT;
    void *here = cutter->arena ? cutter->arena + cutter->used : NULL;
    if (!size_add(cutter->used, bytes, &cutter->used))
        cutter->overflow = true;
    return here;
}

static size_t scratch_elements(const trp_net *net)
{
    size_t most = 0;
    for (uint32_t i = 0; i < net->program.op_count; i++) {
        size_t need = op_scratch(net, &net->program.ops[i]);
        most = need > most ? need : most;
    }
    return most;
}

static uint32_t output_width(const trp_net *net, uint32_t index)
{
    return net->program.graph.values[net->program.spec.outputs[index]].columns;
}

static uint32_t widest_output(const trp_net *net)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < net->program.spec.output_count; i++)
        most = output_width(net, i) > most ? output_width(net, i) : most;
    return most;
}

static void net_cut(trp_net *net, struct arena_cutter *cutter, bool forward_only)
{
    size_t element = net->backend->element_bytes, scratch = scratch_elements(net);
    bool one = net->program.spec.output_count == 1 && !forward_only;
    if (!one && !forward_only)
        net->zeros = cut(cutter, net->batch, widest_output(net), element);
    for (uint32_t i = 0; i < net->threads; i++) {
        net->parts[i].arena = cut(cutter, net->share, net->program.arena_row, element);
        net->parts[i].scratch = cut(cutter, scratch, 1, element);
        net->parts[i].noisy = cut(cutter, net->program.graph.noisy_count, 1, element);
        if (!forward_only)
            net->parts[i].noisy_grads = cut(cutter, net->program.graph.noisy_most, 1, element);
        if (i > 0 && !forward_only)
            net->parts[i].grads = cut(cutter, net->program.graph.param_count, 1, element);
    }
}

static trp_status net_plan(trp_net *net, bool forward_only)
{
    struct arena_cutter count = {0};
    net_cut(net, &count, forward_only);
    if (count.overflow)
        return trp_fail(TRP_INVALID_ARGUMENT, "network plan for a batch of %u overflows",
                        net->batch);
    if (count.used <= NET_ARENA_BYTES_MAX)
        net->arena = aligned_alloc(ALIGNMENT, count.used > 0 ? count.used : ALIGNMENT);
    if (!net->arena)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "network plan for a batch of %u needs %zu bytes",
                        net->batch, count.used);
    net->arena_bytes = count.used;
    memset(net->arena, 0, count.used); /* also touches the pages before the first step */
    struct arena_cutter cutter = {.arena = net->arena};
    net_cut(net, &cutter, forward_only);
    for (uint32_t i = 0; i < net->threads; i++) {
        struct plan_part *part = &net->parts[i];
        part->bound = xcalloc(net->program.op_count, sizeof *part->bound);
        for (uint32_t j = 0; j < net->program.op_count; j++)
            op_bind(net, &net->program.ops[j], part->arena, &part->bound[j]);
    }
    if (net->threads > 1)
        TRP_TRY(team_join(&net->team, net->threads));
    return TRP_OK;
}

/* The part of the rows that one of the threads takes. */
static uint32_t part_share(uint32_t rows, uint32_t threads)
{
    size_t share = round_up(rows / threads + (rows % threads > 0), ROWS_STEP);
    return share < rows ? (uint32_t)share : rows;
}

static trp_status net_make(trp_net **out, const trp_net_options *options,
                           const struct backend *backend, bool chooses)
{
    if (options->threads > NET_THREADS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network plan wants %u threads; at most %d",
                        options->threads, NET_THREADS_MAX);
    trp_net *net = xcalloc(1, sizeof *net);
    net->backend = backend;
    net->chooses = chooses;
    net->batch = options->batch > 0 ? options->batch : 1;
    net->threads = options->threads > 0 ? options->threads : 1;
    net->share = part_share(net->batch, net->threads);
    net->parts = xcalloc(net->threads, sizeof *net->parts);
    trp_status status = program_build(&net->program, options->spec, options->forward_only);
    net->noise = xcalloc(net->program.graph.noise_count + 1, backend->element_bytes);
    if (status == TRP_OK && net->threads > 1 && net->program.graph.state_width > 0)
        status = trp_fail(TRP_INVALID_ARGUMENT,
                          "network plan wants %u threads; with recurrent layers there is one",
                          net->threads);
    if (status == TRP_OK)
        status = net_plan(net, options->forward_only);
    if (status != TRP_OK) {
        trp_net_destroy(net);
        return status;
    }
    *out = net;
    return TRP_OK;
}

trp_status net_create(trp_net **out, const trp_net_options *options, const struct backend *backend)
{
    return net_make(out, options, backend, false);
}

/* ---- passes over some rows --------------------------------------------------------------- */

struct rows net_part_rows(const trp_net *net, uint32_t rows, uint32_t part)
{
    size_t share = round_up(part_share(rows, net->threads), ROWS_STEP);
    size_t from = part * share, to = from + share;
    return (struct rows){from < rows ? (uint32_t)from : rows, to < rows ? (uint32_t)to : rows};
}

void net_forward_part(trp_net *net, const struct pass *pass, struct rows rows, uint32_t part)
{
    if (rows.from == rows.to)
        return;
    for (uint32_t i = 0; i < net->program.forward_count; i++)
        op_run(net, i, pass, rows, part);
}

void net_backward_part(trp_net *net, const struct pass *pass, struct rows rows, uint32_t part)
{
    if (rows.from == rows.to)
        return;
    const struct op *ops = net->program.ops;
    for (uint32_t i = net->program.forward_count; i < net->program.op_count; i++) {
        op_run(net, i, pass, rows, part);
        if (pass->ready && ops[i].has_params)
            pass->ready(pass->context, ops[i].params[0]);
    }
}

static void add_range(const struct backend *backend, void *to, const void *from, size_t lo,
                      size_t hi)
{
    if (backend->element_bytes == sizeof(double)) {
        double *sums = to;
        for (size_t i = lo; i < hi; i++)
            sums[i] += ((const double *)from)[i];
    } else {
        float *sums = to;
        for (size_t i = lo; i < hi; i++)
            sums[i] += ((const float *)from)[i];
    }
}

void net_reduce(trp_net *net, uint32_t rows, const struct pass *pass)
{
    size_t hi = net->program.graph.param_count;
    for (uint32_t i = net->program.forward_count; i < net->program.op_count; i++) {
        if (!net->program.ops[i].has_params)
            continue;
        size_t lo = net->program.ops[i].params[0];
        for (uint32_t part = 1; part < net->threads; part++) {
            struct rows share = net_part_rows(net, rows, part);
            if (share.from < share.to)
                add_range(net->backend, pass->grads, net->parts[part].grads, lo, hi);
        }
        hi = lo;
        if (pass->ready)
            pass->ready(pass->context, lo);
    }
}

/* ---- passes over a batch ----------------------------------------------------------------- */

struct pass_work {
    trp_net *net;
    const struct pass *pass;
};

static void forward_work(void *arg, uint32_t part)
{
    struct pass_work *work = arg;
    net_forward_part(work->net, work->pass, net_part_rows(work->net, work->net->rows, part), part);
}

static void backward_work(void *arg, uint32_t part)
{
    struct pass_work *work = arg;
    net_backward_part(work->net, work->pass, net_part_rows(work->net, work->net->rows, part), part);
}

/* Few rows are one part's, whatever the number of threads. */
static bool is_shared(const trp_net *net, uint32_t rows)
{
    return net->team && rows > ROWS_STEP;
}

void net_forward(trp_net *net, const struct pass *pass, uint32_t rows)
{
    assert(rows > 0);
    assert(rows <= net->batch);
    net->rows = rows;
    if (is_shared(net, rows))
        team_run(net->team, forward_work, &(struct pass_work){net, pass});
    else
        net_forward_part(net, pass, (struct rows){0, rows}, 0);
}

void net_backward(trp_net *net, const struct pass *pass)
{
    assert(net->rows > 0); /* a forward came before */
    if (!is_shared(net, net->rows)) {
        net_backward_part(net, pass, (struct rows){0, net->rows}, 0);
        return;
    }
    struct pass shared = *pass;
    shared.ready = NULL; /* after the sum */
    team_run(net->team, backward_work, &(struct pass_work){net, &shared});
    if (pass->grads)
        net_reduce(net, net->rows, pass);
}

/* ---- public ------------------------------------------------------------------------------ */

float *trp_floats_create(size_t count)
{
    size_t bytes;
    bool fits = size_mul(count, sizeof(float), &bytes) && bytes <= SIZE_MAX / 2;
    bytes = fits ? round_up(bytes > 0 ? bytes : 1, ALIGNMENT) : SIZE_MAX;
    float *floats = fits ? aligned_alloc(ALIGNMENT, bytes) : NULL;
    if (!floats)
        return xcalloc(SIZE_MAX, 1); /* reports the size and aborts */
    memset(floats, 0, bytes);
    return floats;
}

void trp_floats_destroy(float *floats)
{
    free(floats);
}

trp_status trp_net_create(trp_net **out, const trp_net_options *options)
{
    switch (options->backend) {
    case TRP_BACKEND_REF:
        return net_create(out, options, &backend_ref_f32);
    case TRP_BACKEND_AUTO:
    case TRP_BACKEND_CPU:
        return net_make(out, options, backend_simd(), true);
    }
    return trp_fail(TRP_INVALID_ARGUMENT, "network backend %d is unknown", (int)options->backend);
}

void trp_net_destroy(trp_net *net)
{
    if (!net)
        return;
    team_leave(net->team);
    program_cleanup(&net->program);
    free(net->arena);
    for (uint32_t i = 0; i < net->threads; i++)
        free(net->parts[i].bound);
    free(net->parts);
    free(net->noise);
    free(net);
}

/* f(x) = sign(x) sqrt|x| of normal numbers. */
void trp_net_resample(trp_net *net, trp_rng *rng)
{
    net->has_noise = rng != NULL;
    for (size_t i = 0; i < net->program.graph.noise_count && rng; i++) {
        double x = trp_rng_normal(rng), noise = copysign(sqrt(fabs(x)), x);
        if (net->backend->element_bytes == sizeof(double))
            ((double *)net->noise)[i] = noise;
        else
            ((float *)net->noise)[i] = (float)noise;
    }
}

/* What a forward reads of a pass; the rest is left alone, because a policy's one row takes no
 * longer than clearing it would. */
static void pass_begin(struct pass *pass, const trp_net *net, const float *params,
                       const trp_net_rows *rows)
{
    assert(net->backend->element_bytes == sizeof(float));
    pass->params = params;
    pass->steps = rows->steps > 0 ? rows->steps : 1;
    pass->resets = rows->resets;
    pass->state = rows->state;
    pass->end_state = rows->end_state;
    assert(pass->steps == 1 || rows->rows % pass->steps == 0);
    for (uint32_t i = 0; i < net->program.input_count; i++) /* only read */
        pass->external[external_index(PLACE_INPUT, i)] = (void *)(uintptr_t)rows->inputs[i];
    for (uint32_t i = 0; i < net->program.spec.output_count; i++)
        pass->external[external_index(PLACE_OUTPUT, i)] = rows->outputs[i];
}

void trp_net_forward(trp_net *net, const float *params, const trp_net_rows *rows)
{
    struct pass pass;
    pass_begin(&pass, net, params, rows);
    net_forward(net, &pass, rows->rows);
}

void trp_net_backward(trp_net *net, const float *params, const trp_net_rows *rows,
                      const trp_net_grads *grads)
{
    struct pass pass = {.grads = grads->params};
    pass_begin(&pass, net, params, rows);
    assert(rows->rows == net->rows);
    pass.end_state_grad = grads->end_state;
    pass.state_grad = grads->state;
    pass.ready = grads->params ? grads->ready : NULL;
    pass.context = grads->context;
    for (uint32_t i = 0; i < net->program.spec.output_count; i++) {
        void *given = (void *)(uintptr_t)grads->outputs[i]; /* only read */
        assert(given || net->zeros);
        if (!given)
            memset(net->zeros, 0, (size_t)net->rows * widest_output(net) * sizeof(float));
        pass.external[external_index(PLACE_OUTPUT_GRAD, i)] = given ? given : net->zeros;
    }
    for (size_t i = 0; i < TRP_NET_INPUTS_MAX; i++) {
        pass.external[external_index(PLACE_INPUT_GRAD, i)] = grads->inputs[i];
        pass.wants_inputs |= grads->inputs[i] != NULL;
    }
    net_backward(net, &pass);
}
