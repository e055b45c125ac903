/* The modes: what each can be made of, and how it is made. Who builds a program asks the same table
 * before anything starts. */
#include "mode.h"

#include <string.h>

#include <troupe/learner.h>
#include "core/buffer.h"
#include "dogwild.h"
#include "hogwild.h"
#include "limits.h"

static trp_status create_synchronous(struct mode **out, struct vectors *vectors,
                                     const struct mode_options *options)
{
    return synchronous_create(out, vectors, options, false);
}

static trp_status create_sharded(struct mode **out, struct vectors *vectors,
                                 const struct mode_options *options)
{
    return synchronous_create(out, vectors, options, true);
}

static trp_status create_hogwild(struct mode **out, struct vectors *vectors,
                                 const struct mode_options *options)
{
    return hogwild_create(out, vectors, &options->group);
}

static trp_status create_dogwild(struct mode **out, struct vectors *vectors,
                                 const struct mode_options *options)
{
    return dogwild_create(out, vectors, &options->group, &options->compress);
}

/* PLAIN: those whose steps hogwild_numbers.c takes. */
enum optimizers { ANY_OPTIMIZER, NOT_LAYERWISE, PLAIN };

static const struct mode_row {
    const char *name;
    bool of_one;  /* one learner has it, too; else it learns alone */
    bool on_host; /* parameters are in memory of hosts */
    enum optimizers optimizers;
    /* Why nothing is compressed, or not by these; NULL: it is. */
    const char *no_compression, *no_powersgd, *no_momentum;
    trp_status (*create)(struct mode **out, struct vectors *vectors,
                         const struct mode_options *options);
} rows[] = {
    {.name = "synchronous", .create = create_synchronous},
    {.name = "sharded", .optimizers = NOT_LAYERWISE, .create = create_sharded},
    {.name = "hogwild",
     .on_host = true,
     .optimizers = PLAIN,
     .no_compression = "its learners send nothing",
     .create = create_hogwild},
    {.name = "local_sgd",
     .no_momentum = "compression_momentum is of gradients, and it sends what came of steps",
     .create = local_sgd_create},
    {.name = "gossip",
     .no_powersgd = "its factors are of a sum over all learners, and a message is one learner's",
     .no_momentum = "compression_momentum is of gradients, and it sends vectors",
     .create = gossip_create},
    {.name = "server",
     .of_one = true,
     .on_host = true,
     .no_powersgd = "its factors are of a sum over all learners, and a push is one learner's",
     .create = server_mode_create},
    {.name = "dogwild",
     .on_host = true,
     .optimizers = PLAIN,
     .no_powersgd = "the numbers of a datagram are no matrix",
     .no_momentum = "compression_momentum is of gradients, and it sends what came of steps",
     .create = create_dogwild},
    {.name = "gaia",
     .on_host = true,
     .no_powersgd = "numbers that matter are no matrix",
     .no_momentum = "compression_momentum is of gradients, and it sends what came of steps",
     .create = gaia_mode_create},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- what fits ------------------------------------------------------------------------------- */

static trp_status no_such_mode(const char *name)
{
    struct buffer names = {0};
    for (size_t i = 0; i < ROWS; i++) {
        buffer_append(&names, text_bytes(i > 0 ? ", " : ""));
        buffer_append(&names, text_bytes(rows[i].name));
    }
    trp_status status = trp_fail(TRP_INVALID_ARGUMENT, "mode is '%s', must be one of %s", name,
                                 buffer_text(&names));
    buffer_cleanup(&names);
    return status;
}

/* NULL: the first one. */
static trp_status find_row(const char *name, const struct mode_row **row)
{
    size_t i = 0;
    while (name && i < ROWS && strcmp(name, rows[i].name) != 0)
        i++;
    *row = &rows[i < ROWS ? i : 0];
    return i < ROWS ? TRP_OK : no_such_mode(name);
}

static trp_status check_compression_fits(const struct mode_row *row,
                                         const trp_compression_options *compression)
{
    enum compression kind;
    TRP_TRY(compress_find(compression->kind, &kind));
    const char *why = kind == COMPRESS_NONE ? NULL : row->no_compression;
    if (kind == COMPRESS_POWERSGD && !why)
        why = row->no_powersgd;
    if (kind == COMPRESS_TOP_K && compression->momentum > 0 && !why)
        why = row->no_momentum;
    if (!why)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "compression is %s, which the mode %s has not: %s; use synchronous",
                    compression->kind, row->name, why);
}

static trp_status check_optimizer_fits(const struct mode_row *row, const trp_optimizer *optimizer)
{
    bool plain = optimizer->kind == TRP_RMSPROP || optimizer->kind == TRP_ADAM ||
                 (optimizer->kind == TRP_SGD && optimizer->momentum == 0);
    const char *name = trp_optimizer_name(optimizer->kind);
    if (row->optimizers == NOT_LAYERWISE && trp_optimizer_is_layerwise(optimizer))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "the optimizer %s steps whole tensors, and with the mode %s each has a "
                        "range: use another one",
                        name, row->name);
    if (row->optimizers == PLAIN && !plain)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "the optimizer is %s%s, and the mode %s has rmsprop, adam, and sgd without "
                        "momentum",
                        name, optimizer->kind == TRP_SGD ? " with momentum" : "", row->name);
    return TRP_OK;
}

trp_status trp_learner_mode_check(const trp_learner_mode_use *use)
{
    const struct mode_row *row;
    TRP_TRY(find_row(use->mode, &row));
    TRP_TRY(check_compression_fits(row, &use->compression));
    if (use->alone && !row->of_one)
        return TRP_OK;
    if (use->device && row->on_host)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        ".device is %s, and learners of the mode %s keep their parameters in "
                        "memory of hosts: use cpu",
                        use->device, row->name);
    return use->optimizer ? check_optimizer_fits(row, use->optimizer) : TRP_OK;
}

static trp_status check_fixed_stay(const trp_vector_spec *spec, enum compression kind)
{
    if (!spec->learned || spec->fixed_count == 0 || compress_has_zero(kind))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "compression is %s, which moves each number with its neighbours, and the first "
                    "%zu have to stay as they are: use bf16, f16, qsgd or top-k",
                    compress_name(kind), spec->fixed_count);
}

static trp_status check_vectors_fit(const struct vectors *vectors,
                                    const struct mode_options *options)
{
    trp_learner_mode_use use = {.mode = options->name,
                                .alone = !options->group.rendezvous,
                                .device =
                                    vectors->is_host ? NULL : trp_device_name(vectors->device),
                                .compression = {.kind = compress_name(options->compress.kind),
                                                .momentum = options->compress.momentum}};
    trp_status status = trp_learner_mode_check(&use);
    if (status != TRP_OK)
        return trp_fail(status, "learner: %s", trp_last_error());
    for (size_t i = 0; i < vectors->count; i++) {
        const trp_vector_spec *spec = vectors->each[i].spec;
        use.optimizer = spec->learned ? &spec->optimizer : NULL;
        status = trp_learner_mode_check(&use);
        if (status == TRP_OK)
            status = check_fixed_stay(spec, options->compress.kind);
        if (status != TRP_OK)
            return trp_fail(status, "learner: '%s': %s", spec->name, trp_last_error());
    }
    return TRP_OK;
}

/* ---- versions -------------------------------------------------------------------------------- */

/* Who counts generations may have begun anew: then the version is no smaller, at least. */
uint64_t meeting_version(const struct mode_meeting *meeting, uint64_t generation)
{
    uint64_t before = meeting->generation;
    uint64_t since = before > 0 && before < generation ? generation - before : 0;
    return meeting->version + since * meeting->version_gap;
}

uint64_t mode_next_version(uint64_t generation, uint64_t steps, uint64_t version)
{
    uint64_t before = generation > 0 ? generation - 1 : 0; /* 0: there are no generations */
    uint64_t least = (before << MODE_STEPS_BITS) + steps + MODE_FIRST_VERSION;
    return least > version ? least : version + 1;
}

/* ---- its life -------------------------------------------------------------------------------- */

trp_status mode_create(struct mode **out, struct vectors *vectors,
                       const struct mode_options *options)
{
    const struct mode_row *row;
    *out = NULL;
    TRP_TRY(compress_check(&options->compress));
    TRP_TRY(check_vectors_fit(vectors, options));
    TRP_TRY(find_row(options->name, &row));
    if (options->group.rendezvous || row->of_one)
        return row->create(out, vectors, options);
    *out = alone_create(vectors);
    return TRP_OK;
}
