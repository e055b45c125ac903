/* Options by name and range, and the memory of a vector that is compressed. */
#include "compress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compressor.h"
#include "core/alloc.h"
#include "core/hash.h"
#include "limits.h"

/* ---- options --------------------------------------------------------------------------------- */

static const char *const names[COMPRESSIONS] = {"none",    "bf16",     "f16", "top-k",
                                                "one-bit", "powersgd", "qsgd"};

const char *compress_name(enum compression kind)
{
    return names[kind];
}

trp_status compress_find(const char *name, enum compression *kind)
{
    *kind = COMPRESS_NONE;
    while (name && *kind < COMPRESSIONS && strcmp(name, names[*kind]) != 0)
        (*kind)++;
    if (*kind < COMPRESSIONS)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "compression is '%s', must be none, bf16, f16, top-k, one-bit, "
                    "powersgd or qsgd",
                    name);
}

trp_status compress_check(const struct compress_options *options)
{
    if (!(options->ratio >= 0 && options->ratio <= 1))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: compression_ratio is %g, must be more than 0 and at most 1",
                        options->ratio);
    if (!(options->momentum >= 0 && options->momentum < 1))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: compression_momentum is %g, must be at least 0 and less than 1",
                        options->momentum);
    if (options->rank > COMPRESS_RANK_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: compression_rank is %u, must be from 1 to %d", options->rank,
                        COMPRESS_RANK_MAX);
    if (options->bits > COMPRESS_BITS_MAX ||
        (options->bits > 0 && options->bits < COMPRESS_BITS_LEAST))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: compression_bits is %u, must be from %d to %d", options->bits,
                        COMPRESS_BITS_LEAST, COMPRESS_BITS_MAX);
    return TRP_OK;
}

uint64_t compress_hash(uint64_t hash, const struct compress_options *options)
{
    const double parts[] = {
        options->kind,     options->ratio,         (double)options->warmup_steps,
        options->momentum, options->keep_momentum, options->rank,
        options->bits};
    return hash_bytes(hash, parts, sizeof parts);
}

static struct compress_options with_defaults(const struct compress_options *options)
{
    struct compress_options own = *options;
    own.ratio = own.ratio > 0 ? own.ratio : COMPRESS_RATIO;
    own.rank = own.rank > 0 ? own.rank : 2;
    own.bits = own.bits > 0 ? own.bits : COMPRESS_BITS_MAX;
    return own;
}

/* ---- life ------------------------------------------------------------------------------------ */

size_t tensor_columns(const trp_net_tensor *tensor)
{
    size_t columns = 0;
    for (uint32_t i = 0; i < tensor->axis_count; i++)
        if (tensor->axes[i].stride == 1 && tensor->axes[i].count > columns)
            columns = tensor->axes[i].count;
    bool is_matrix = tensor->rank > 1 && columns > 0 && tensor->count % columns == 0;
    return is_matrix && tensor->count > columns ? columns : 0;
}

/* The rests one behind the other: a copy of them is one copy. */
static void make_rests(struct compressor *c)
{
    bool top_k = c->options.kind == COMPRESS_TOP_K, has_rest = c->options.kind != COMPRESS_QSGD;
    bool handed = has_rest && c->code && !c->one_way && !c->ranges,
         momentum = top_k && c->options.momentum > 0;
    c->own_count = ((size_t)has_rest + handed + momentum) * c->count;
    float *memory = c->own_count > 0 ? xcalloc(c->own_count, sizeof *memory) : NULL;
    c->rest = memory;
    c->handed = handed ? memory + c->count : NULL;
    c->momentum = momentum ? memory + c->count : NULL;
}

/* `as` is zeroed but for which numbers it is of, and for what. */
static struct compressor *create_as(const struct compressor *as,
                                    const struct compress_options *options,
                                    const trp_net_tensor *tensors, size_t tensor_count)
{
    struct compressor *c = xmemdup(as, sizeof *as);
    c->options = with_defaults(options);
    c->code = code_find(options->kind);
    c->impl = c->code                           ? &owners_impl
              : options->kind == COMPRESS_TOP_K ? &chosen_impl
                                                : &low_rank_impl;
    make_rests(c);
    c->impl->create(c, tensors, tensor_count);
    if (c->ranges)
        compressor_join_ranges(c, 0, 1, 0, &c->count);
    else
        compressor_join(c, 0, 1, 0);
    return c;
}

struct compressor *compressor_create(const struct compress_options *options, size_t count,
                                     const trp_net_tensor *tensors, size_t tensor_count)
{
    return create_as(&(struct compressor){.count = count}, options, tensors, tensor_count);
}

struct compressor *compressor_create_ranges(const struct compress_options *options, size_t count,
                                            const trp_net_tensor *tensors, size_t tensor_count)
{
    return create_as(&(struct compressor){.count = count, .ranges = true}, options, tensors,
                     tensor_count);
}

struct compressor *compressor_create_one_way(const struct compress_options *options, size_t lo,
                                             size_t hi, const trp_net_tensor *tensors,
                                             size_t tensor_count)
{
    if (options->kind == COMPRESS_POWERSGD)
        return NULL;
    return create_as(&(struct compressor){.first = lo, .count = hi - lo, .one_way = true}, options,
                     tensors, tensor_count);
}

void compressor_destroy(struct compressor *c)
{
    if (!c)
        return;
    free(c->shared);
    free(c->rest);
    free(c->words);
    free(c->scratch);
    free(c->cuts);
    free(c->columns);
    free(c->ends);
    free(c->firsts);
    free(c->lengths);
    free(c->matrices);
    free(c);
}

void compressor_join(struct compressor *c, uint32_t rank, uint32_t size, uint64_t step)
{
    for (size_t i = 0; c->handed && i < c->count; i++) {
        c->rest[i] += c->handed[i];
        c->handed[i] = 0;
    }
    c->rank = rank;
    c->size = size;
    c->step = step;
    c->impl->join(c);
}

void compressor_join_ranges(struct compressor *c, uint32_t rank, uint32_t size, uint64_t step,
                            const size_t *ends)
{
    free(c->ends);
    c->ends = xmemdup(ends, size * sizeof *ends);
    compressor_join(c, rank, size, step);
}

void compressor_forget(struct compressor *c)
{
    if (c->rest)
        memset(c->rest, 0, c->own_count * sizeof *c->rest);
}

struct compress_memory compressor_shared(struct compressor *c)
{
    return (struct compress_memory){c->shared, c->shared_count * sizeof *c->shared};
}

struct compress_memory compressor_own(struct compressor *c)
{
    return (struct compress_memory){c->rest, c->own_count * sizeof *c->rest};
}

/* ---- sums ------------------------------------------------------------------------------------ */

bool compress_fits(const float *values, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t end = count - i < COMPRESS_BLOCK ? count : i + COMPRESS_BLOCK;
        int beyond = 0;
        for (; i < end; i++)
            beyond |= !(fabsf(values[i]) <= COMPRESS_LARGEST);
        if (beyond)
            return false;
    }
    return true;
}

trp_status compressor_sum(struct compressor *c, const struct compress_wire *wire, float *grads,
                          float clip)
{
    for (size_t i = 0; clip < 1 && i < c->count; i++)
        grads[i] *= clip;
    TRP_TRY(c->impl->sum(c, wire, grads));
    c->step++;
    return TRP_OK;
}

struct compress_code compressor_encode(struct compressor *c, const float *grads)
{
    size_t words = c->impl->encode(c, grads);
    c->step++;
    return (struct compress_code){.kind = c->options.kind,
                                  .bits = c->options.bits,
                                  .runs = c->lengths,
                                  .run_words = c->length_words,
                                  .words = c->words,
                                  .word_count = words};
}

double compressor_part_norm(const struct compressor *c, double max_norm)
{
    return c->options.kind == COMPRESS_TOP_K ? max_norm / sqrt(c->size) : 0;
}

uint64_t compressor_bytes(const struct compressor *c)
{
    return c->impl->bytes(c);
}

void compressor_add_rest(const struct compressor *c, float *values)
{
    for (size_t i = 0; c->rest && i < c->count; i++)
        values[i] += c->rest[i] + (c->handed ? c->handed[i] : 0);
}
