/* A plan on the host: a program, and one arena cut into its buffers and scratch when it is made; a
 * step then only walks the operations. With several threads each takes a share of the rows through
 * the whole network, forward and backward, with buffers and a gradient of its own, so that threads
 * meet once per pass instead of once per operation; the gradients are added in the order of the
 * parts, so the bits do not depend on who was first. With recurrent layers the shares are of the
 * sequences. */
#include "net.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "flush.h"
#include "limits.h"
#include "sequences.h"

enum {
    ROWS_STEP = 8,
    PART_SEQUENCES = 2, /* of a call with several parts, at least on average */
};

static const struct plan_impl host_net_impl;

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

static size_t scratch_elements(const struct host_net *net)
{
    size_t most = 0;
    for (uint32_t i = 0; i < net->base.program.op_count; i++) {
        size_t need = op_scratch(net, &net->base.program.ops[i]);
        most = need > most ? need : most;
    }
    return most;
}

static uint32_t output_width(const struct host_net *net, uint32_t index)
{
    return net->base.program.graph.values[net->base.program.spec.outputs[index]].columns;
}

static uint32_t widest_output(const struct host_net *net)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < net->base.program.spec.output_count; i++)
        most = output_width(net, i) > most ? output_width(net, i) : most;
    return most;
}

static bool is_recurrent(const struct host_net *net)
{
    return net->base.program.graph.state_width > 0;
}

static void cut_copies(struct host_net *net, struct plan_part *part, struct arena_cutter *cutter)
{
    for (uint32_t i = 0; i < net->base.program.buffer_count; i++) {
        const struct net_buffer *buffer = &net->base.program.buffers[i];
        if (buffer->place != PLACE_ARENA)
            part->external[external_index(buffer->place, buffer->index)] =
                cut(cutter, part->rows, buffer->width, buffer_element(net, buffer));
    }
    part->resets = cut(cutter, part->rows, 1, 1);
}

static void net_cut(struct host_net *net, struct arena_cutter *cutter, bool forward_only)
{
    size_t element = net->backend->element_bytes, scratch = scratch_elements(net);
    bool one = net->base.program.spec.output_count == 1 && !forward_only;
    if (!one && !forward_only)
        net->zeros = cut(cutter, net->base.batch, widest_output(net), element);
    for (uint32_t i = 0; i < net->threads; i++) {
        net->parts[i].arena = cut(cutter, net->parts[i].rows, net->base.program.arena_row, element);
        net->parts[i].scratch = cut(cutter, scratch, 1, element);
        net->parts[i].noisy = cut(cutter, net->base.program.graph.noisy_count, 1, element);
        if (!forward_only)
            net->parts[i].noisy_grads = cut(cutter, net->base.program.graph.noisy_most, 1, element);
        if (i > 0 && !forward_only)
            net->parts[i].grads = cut(cutter, net->base.program.graph.param_count, 1, element);
        if (net->threads > 1 && is_recurrent(net))
            cut_copies(net, &net->parts[i], cutter);
    }
}

static trp_status net_plan(struct host_net *net, bool forward_only)
{
    struct arena_cutter count = {0};
    net_cut(net, &count, forward_only);
    if (count.overflow)
        return trp_fail(TRP_INVALID_ARGUMENT, "network plan for a batch of %u overflows",
                        net->base.batch);
    if (count.used <= NET_ARENA_BYTES_MAX)
        net->arena = aligned_alloc(ALIGNMENT, count.used > 0 ? count.used : ALIGNMENT);
    if (!net->arena)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "network plan for a batch of %u needs %zu bytes",
                        net->base.batch, count.used);
    net->arena_bytes = count.used;
    memset(net->arena, 0, count.used); /* also touches the pages before the first step */
    struct arena_cutter cutter = {.arena = net->arena};
    net_cut(net, &cutter, forward_only);
    for (uint32_t i = 0; i < net->threads; i++) {
        struct plan_part *part = &net->parts[i];
        part->bound = xcalloc(net->base.program.op_count, sizeof *part->bound);
        for (uint32_t j = 0; j < net->base.program.op_count; j++)
            op_bind(net, &net->base.program.ops[j], part, &part->bound[j]);
    }
    if (net->threads > 1)
        TRP_TRY(team_join(&net->team, net->threads));
    return TRP_OK;
}

/* The part of the rows, or sequences, that one of the threads takes. */
static uint32_t part_share(const struct host_net *net, uint32_t rows)
{
    size_t share = rows / net->threads + (rows % net->threads > 0);
    share = is_recurrent(net) ? share : round_up(share, ROWS_STEP);
    return share < rows ? (uint32_t)share : rows;
}

/* A call of few sequences is the first part's. Of S >= PART_SEQUENCES * T others take at most
 * (S + T - 1) / T, so of all rows less than 1 / T + 1 / (PART_SEQUENCES * T). */
static uint32_t part_rows_most(const struct host_net *net, uint32_t part)
{
    if (!is_recurrent(net))
        return net->share;
    uint64_t parts = (uint64_t)PART_SEQUENCES * net->threads;
    uint64_t most = (uint64_t)net->base.batch * (PART_SEQUENCES + 1) / parts + 1;
    return part == 0 || most > net->base.batch ? net->base.batch : (uint32_t)most;
}

static void net_destroy(trp_net *base)
{
    struct host_net *net = host_net(base);
    team_leave(net->team);
    free(net->arena);
    for (uint32_t i = 0; i < net->threads; i++)
        free(net->parts[i].bound);
    free(net->parts);
    free(net->noise);
    net_cleanup(base);
    free(net);
}

static trp_status net_make(struct host_net *net, const trp_net_options *options)
{
    if (options->threads > NET_THREADS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network plan wants %u threads; at most %d",
                        options->threads, NET_THREADS_MAX);
    if (options->precision > TRP_TF32)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "network plan wants precision %d; it is TRP_F32, TRP_BF16 or TRP_TF32",
                        (int)options->precision);
    TRP_TRY(net_init(&net->base, &host_net_impl, options));
    net->threads = options->threads > 0 ? options->threads : 1;
    net->share = part_share(net, net->base.batch);
    net->parts = xcalloc(net->threads, sizeof *net->parts);
    for (uint32_t i = 0; i < net->threads; i++)
        net->parts[i].rows = part_rows_most(net, i);
    net->noise = xcalloc(net->base.program.graph.noise_count + 1, net->backend->element_bytes);
    return net_plan(net, options->forward_only);
}

trp_status host_net_create(trp_net **out, const trp_net_options *options,
                           const struct backend *backend, bool chooses)
{
    struct host_net *net = xcalloc(1, sizeof *net);
    net->backend = backend;
    net->chooses = chooses;
    net->bf16 = options->precision == TRP_BF16;
    trp_status status = net_make(net, options);
    if (status != TRP_OK) {
        net_destroy(&net->base);
        return status;
    }
    *out = &net->base;
    return TRP_OK;
}

/* ---- passes over some rows --------------------------------------------------------------- */

/* How many of what parts take shares of: rows, or sequences. */
static uint32_t to_share(const struct host_net *net, const struct pass *pass, uint32_t rows)
{
    return is_recurrent(net) ? rows / pass->steps : rows;
}

struct rows net_part_rows(const struct host_net *net, uint32_t rows, uint32_t part)
{
    size_t share = part_share(net, rows), from = part * share, to = from + share;
    return (struct rows){from < rows ? (uint32_t)from : rows, to < rows ? (uint32_t)to : rows};
}

void net_forward_part(struct host_net *net, const struct pass *pass, struct rows rows,
                      uint32_t part)
{
    if (rows.from == rows.to)
        return;
    uint32_t before = flush_begin();
    for (uint32_t i = 0; i < net->base.program.forward_count; i++)
        op_run(net, i, pass, rows, part);
    flush_end(before);
}

void net_backward_part(struct host_net *net, const struct pass *pass, struct rows rows,
                       uint32_t part)
{
    if (rows.from == rows.to)
        return;
    const struct op *ops = net->base.program.ops;
    uint32_t before = flush_begin();
    for (uint32_t i = net->base.program.forward_count; i < net->base.program.op_count; i++) {
        op_run(net, i, pass, rows, part);
        if (!pass->ready || !ops[i].has_params)
            continue;
        flush_end(before); /* what is called computes as its caller does */
        pass->ready(pass->context, ops[i].params[0]);
        before = flush_begin();
    }
    flush_end(before);
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

/* A range of what parts 1.. have for so many rows or sequences. */
struct reduction {
    struct host_net *net;
    void *grads;
    uint32_t shared;
    size_t lo, hi;
};

static void reduce_range(const struct reduction *r, size_t lo, size_t hi)
{
    for (uint32_t part = 1; part < r->net->threads; part++) {
        struct rows share = net_part_rows(r->net, r->shared, part);
        if (share.from < share.to)
            add_range(r->net->backend, r->grads, r->net->parts[part].grads, lo, hi);
    }
}

static void reduce_share(void *arg, uint32_t share)
{
    const struct reduction *r = arg;
    size_t count = r->hi - r->lo;
    reduce_range(r, r->lo + team_share(count, share, r->net->threads),
                 r->lo + team_share(count, share + 1, r->net->threads));
}

/* Adds what parts 1.. have computed for `rows` rows to the gradient, in order. */
static void net_reduce(struct host_net *net, uint32_t rows, const struct pass *pass)
{
    struct reduction r = {.net = net, .grads = pass->grads, .shared = to_share(net, pass, rows)};
    r.hi = net->base.program.graph.param_count;
    for (uint32_t i = net->base.program.forward_count; i < net->base.program.op_count; i++) {
        if (!net->base.program.ops[i].has_params)
            continue;
        r.lo = net->base.program.ops[i].params[0];
        if ((r.hi - r.lo) * net->threads * net->backend->element_bytes >= SHARED_BYTES_MIN)
            team_run(net->team, reduce_share, &r);
        else
            reduce_range(&r, r.lo, r.hi);
        r.hi = r.lo;
        if (pass->ready)
            pass->ready(pass->context, r.lo);
    }
}

/* ---- passes over a batch ----------------------------------------------------------------- */

struct pass_work {
    struct host_net *net;
    const struct pass *pass;
    uint32_t rows;
    bool backward;
};

static void run_part(const struct pass_work *work, const struct pass *pass, struct rows rows,
                     uint32_t part)
{
    if (work->backward)
        net_backward_part(work->net, pass, rows, part);
    else
        net_forward_part(work->net, pass, rows, part);
}

static void part_work(void *arg, uint32_t part)
{
    const struct pass_work *work = arg;
    struct host_net *net = work->net;
    uint32_t shared = to_share(net, work->pass, work->rows);
    struct rows share = net_part_rows(net, shared, part);
    if (!is_recurrent(net)) {
        run_part(work, work->pass, share, part);
        return;
    }
    struct rows rows = {0, (share.to - share.from) * work->pass->steps};
    if (rows.to == 0)
        return;
    struct pass own = sequences_take(net, work->pass, shared, share, part, work->backward);
    run_part(work, &own, rows, part);
    sequences_give(net, work->pass, shared, share, part, work->backward);
}

/* Few rows are one part's, whatever the number of threads. */
static bool is_shared(const struct host_net *net, const struct pass *pass, uint32_t rows)
{
    if (!net->team)
        return false;
    uint32_t shared = to_share(net, pass, rows);
    return is_recurrent(net) ? shared >= PART_SEQUENCES * net->threads : shared > ROWS_STEP;
}

static void net_forward(trp_net *base, trp_queue *queue, const struct pass *pass, uint32_t rows)
{
    struct host_net *net = host_net(base);
    (void)queue; /* at once */
    if (is_shared(net, pass, rows))
        team_run(net->team, part_work, &(struct pass_work){net, pass, rows, .backward = false});
    else
        net_forward_part(net, pass, (struct rows){0, rows}, 0);
}

/* Zeros in place of the gradients of outputs that are not given. */
static void fill_output_grads(const struct host_net *net, struct pass *pass, uint32_t rows)
{
    size_t bytes = rows * widest_output(net) * net->backend->element_bytes;
    for (uint32_t i = 0; i < net->base.program.spec.output_count; i++) {
        void **given = &pass->external[external_index(PLACE_OUTPUT_GRAD, i)];
        assert(*given || net->zeros);
        if (!*given)
            *given = memset(net->zeros, 0, bytes);
    }
}

static void net_backward(trp_net *base, trp_queue *queue, const struct pass *given, uint32_t rows)
{
    struct host_net *net = host_net(base);
    struct pass pass = *given;
    (void)queue;
    fill_output_grads(net, &pass, rows);
    if (!is_shared(net, &pass, rows)) {
        net_backward_part(net, &pass, (struct rows){0, rows}, 0);
        return;
    }
    pass.ready = NULL; /* after the sum */
    team_run(net->team, part_work, &(struct pass_work){net, &pass, rows, .backward = true});
    if (pass.grads)
        net_reduce(net, rows, given);
}

static void net_noise(trp_net *base, trp_queue *queue, const double *noise)
{
    struct host_net *net = host_net(base);
    (void)queue;
    net->has_noise = noise != NULL;
    for (size_t i = 0; i < base->program.graph.noise_count && noise; i++)
        if (net->backend->element_bytes == sizeof(double))
            ((double *)net->noise)[i] = noise[i];
        else
            ((float *)net->noise)[i] = (float)noise[i];
}

static const struct plan_impl host_net_impl = {
    .forward = net_forward,
    .backward = net_backward,
    .noise = net_noise,
    .destroy = net_destroy,
};
