/* The n-step transition adder: windows (nstep.h) on one side, a writer on the other. Each item is
 * one row of its own, so the writer needs no history and an item never shares fate with another.
 * The writer is told which episode each row is of: one for all copies cannot end one of theirs.
 *
 * The environment loop must not lose an item to a table that holds inserts back, and must stay able
 * to stop. So adding never blocks: completed rows wait in `kept`, which has room for all that one
 * step of every copy can complete, and push() moves them to the writer as far as its time goes. */
#include <troupe/actor.h>

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/writer.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "limits.h"
#include "core/limits.h"
#include "nstep.h"

struct nstep_adder {
    trp_adder base;
    trp_channel *replay;
    trp_writer_options writer_options;
    trp_writer *writer; /* NULL before the first push */
    char *table;
    double priority;
    uint32_t copies;
    struct nstep_window **windows; /* copies */
    uint64_t *episodes;            /* copies: the number of the one that runs */
    uint64_t episode_count;
    uint64_t episode; /* of the copy that adds */
    trp_tensor_spec columns[TRP_NSTEP_COLUMNS];
    size_t offsets[TRP_NSTEP_COLUMNS]; /* in a row */
    size_t episode_offset, row_bytes;
    uint8_t *kept; /* capacity rows, the first kept_sent of them are the writer's already */
    size_t capacity, kept_count, kept_sent;
    bool appended; /* row kept_sent is in the writer, its item is not */
    uint64_t items;
};

void trp_adder_destroy(trp_adder *adder)
{
    if (adder)
        adder->impl->destroy(adder);
}

void trp_nstep_columns(const trp_env_spec *env, trp_tensor_spec columns[TRP_NSTEP_COLUMNS])
{
    trp_tensor_spec action = {.name = "action", .dtype = TRP_INT32};
    if (env->action_kind == TRP_ACTION_BOX)
        action = (trp_tensor_spec){
            .name = "action", .dtype = TRP_FLOAT32, .rank = 1, .shape = {env->action_count}};
    columns[TRP_NSTEP_OBSERVATION] = env->observation;
    columns[TRP_NSTEP_OBSERVATION].name = "observation";
    columns[TRP_NSTEP_ACTION] = action;
    columns[TRP_NSTEP_REWARD] = (trp_tensor_spec){.name = "reward", .dtype = TRP_FLOAT32};
    columns[TRP_NSTEP_DISCOUNT] = (trp_tensor_spec){.name = "discount", .dtype = TRP_FLOAT32};
    columns[TRP_NSTEP_NEXT_OBSERVATION] = env->observation;
    columns[TRP_NSTEP_NEXT_OBSERVATION].name = "next_observation";
    columns[TRP_NSTEP_VERSION] = (trp_tensor_spec){.name = "version", .dtype = TRP_INT64};
}

static void adder_first(trp_adder *base, uint32_t copy, const void *observation)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    assert(copy < adder->copies);
    adder->episodes[copy] = ++adder->episode_count;
    nstep_first(adder->windows[copy], observation);
}

static void keep_item(void *context, const struct nstep_item *item)
{
    struct nstep_adder *adder = context;
    assert(adder->kept_count < adder->capacity);
    uint8_t *row = adder->kept + adder->kept_count++ * adder->row_bytes;
    int64_t version = (int64_t)item->version;
    const void *values[TRP_NSTEP_COLUMNS] = {
        item->observation, item->action,           &item->reward,
        &item->discount,   item->next_observation, &version,
    };
    for (size_t c = 0; c < TRP_NSTEP_COLUMNS; c++)
        memcpy(row + adder->offsets[c], values[c], trp_tensor_bytes(&adder->columns[c]));
    memcpy(row + adder->episode_offset, &adder->episode, sizeof adder->episode);
}

static void adder_add(trp_adder *base, uint32_t copy, const trp_transition *transition)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    assert(copy < adder->copies);
    adder->episode = adder->episodes[copy];
    nstep_add(adder->windows[copy], transition, keep_item, adder);
}

/* Made at the first push, when the seed of the keys is known for good. */
static trp_status open_writer(struct nstep_adder *adder)
{
    if (adder->writer)
        return TRP_OK;
    return trp_writer_create(&adder->writer, adder->replay, &adder->writer_options);
}

static void adder_reseed(trp_adder *base, uint64_t seed)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    assert(!adder->writer);
    adder->writer_options.seed = seed;
}

static trp_status append_row(struct nstep_adder *adder)
{
    const uint8_t *row = adder->kept + adder->kept_sent * adder->row_bytes;
    const void *values[TRP_NSTEP_COLUMNS];
    for (size_t c = 0; c < TRP_NSTEP_COLUMNS; c++)
        values[c] = row + adder->offsets[c];
    int64_t version;
    memcpy(&version, values[TRP_NSTEP_VERSION], sizeof version);
    trp_writer_set_policy_version(adder->writer, (uint64_t)version);
    uint64_t episode;
    memcpy(&episode, row + adder->episode_offset, sizeof episode);
    trp_writer_set_episode(adder->writer, episode);
    return trp_writer_append(adder->writer, values);
}

static int64_t left_ms(struct deadline deadline)
{
    int64_t ns = deadline_left_ns(deadline, &clock_monotonic);
    return ns == INT64_MAX ? -1 : (ns + 999999) / 1000000;
}

static trp_status adder_push(trp_adder *base, int64_t timeout_ms)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(open_writer(adder));
    trp_item_column columns[TRP_NSTEP_COLUMNS];
    for (uint32_t c = 0; c < TRP_NSTEP_COLUMNS; c++)
        columns[c] = (trp_item_column){.column = c, .length = 1, .squeeze = true};
    while (adder->kept_sent < adder->kept_count) {
        if (!adder->appended)
            TRP_TRY(append_row(adder));
        adder->appended = true;
        TRP_TRY(trp_writer_create_item(adder->writer, adder->table, adder->priority, columns,
                                       TRP_NSTEP_COLUMNS, left_ms(deadline), NULL));
        adder->appended = false;
        adder->kept_sent++;
        adder->items++;
    }
    adder->kept_sent = adder->kept_count = 0;
    return TRP_OK;
}

static trp_status adder_flush(trp_adder *base, int64_t timeout_ms)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(adder_push(base, timeout_ms));
    return trp_writer_flush(adder->writer, 0, left_ms(deadline));
}

static uint64_t adder_items(const trp_adder *base)
{
    return ((const struct nstep_adder *)base)->items;
}

static void adder_destroy(trp_adder *base)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    trp_writer_destroy(adder->writer);
    for (uint32_t i = 0; i < adder->copies; i++)
        nstep_destroy(adder->windows[i]);
    free(adder->windows);
    free(adder->episodes);
    free(adder->kept);
    free(adder->table);
    free(adder);
}

static const trp_adder_impl nstep_impl = {
    .first = adder_first,
    .add = adder_add,
    .push = adder_push,
    .flush = adder_flush,
    .items = adder_items,
    .reseed = adder_reseed,
    .destroy = adder_destroy,
};

static trp_status nstep_check_options(const trp_nstep_options *options)
{
    if (!options->table || options->table[0] == '\0')
        return trp_fail(TRP_INVALID_ARGUMENT, "n-step adder: no table");
    if (options->n_step > NSTEP_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "n-step adder: n_step %u is above %d",
                        options->n_step, NSTEP_MAX);
    if (!(options->discount >= 0 && options->discount <= 1))
        return trp_fail(TRP_INVALID_ARGUMENT, "n-step adder: discount %g is not in [0, 1]",
                        options->discount);
    if (!(options->priority >= 0) || isinf(options->priority))
        return trp_fail(TRP_INVALID_ARGUMENT, "n-step adder: priority %g", options->priority);
    if (options->copies > ACTOR_COPIES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "n-step adder: %u copies are above %d",
                        options->copies, ACTOR_COPIES_MAX);
    if (trp_tensor_bytes(&options->env->observation) == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "n-step adder: %s has empty observations",
                        options->env->name);
    return TRP_OK;
}

/* Offsets are multiples of 8, so that every column may be read in place. */
static void lay_out_row(struct nstep_adder *adder)
{
    for (size_t c = 0; c < TRP_NSTEP_COLUMNS; c++) {
        adder->offsets[c] = adder->row_bytes;
        adder->row_bytes += (trp_tensor_bytes(&adder->columns[c]) + 7) / 8 * 8;
    }
    adder->episode_offset = adder->row_bytes;
    adder->row_bytes += sizeof adder->episode;
}

static uint32_t in_flight(const trp_nstep_options *options, uint32_t copies)
{
    if (options->max_in_flight)
        return options->max_in_flight;
    uint32_t wanted = ADDER_IN_FLIGHT_PER_COPY * copies;
    return wanted < ADDER_IN_FLIGHT_MIN ? ADDER_IN_FLIGHT_MIN : wanted;
}

trp_status trp_nstep_adder_create(trp_adder **out, const trp_nstep_options *options)
{
    *out = NULL;
    TRP_TRY(nstep_check_options(options));
    struct nstep_adder *adder = xcalloc(1, sizeof *adder);
    adder->base.impl = &nstep_impl;
    adder->table = xstrdup(options->table);
    adder->priority = options->priority > 0 ? options->priority : 1;
    adder->copies = options->copies ? options->copies : 1;
    trp_nstep_columns(options->env, adder->columns);
    lay_out_row(adder);
    uint32_t n_step = options->n_step ? options->n_step : 1;
    adder->capacity = (size_t)adder->copies * n_step;
    adder->windows = xcalloc(adder->copies, sizeof *adder->windows);
    adder->episodes = xcalloc(adder->copies, sizeof *adder->episodes);
    adder->kept = xcalloc(adder->capacity, adder->row_bytes);
    struct nstep_sizes sizes = {
        .n_step = n_step,
        .observation_bytes = trp_tensor_bytes(&adder->columns[TRP_NSTEP_OBSERVATION]),
        .action_bytes = trp_tensor_bytes(&adder->columns[TRP_NSTEP_ACTION]),
        .discount = options->discount,
    };
    for (uint32_t i = 0; i < adder->copies; i++)
        adder->windows[i] = nstep_create(&sizes);
    adder->replay = options->replay;
    adder->writer_options = (trp_writer_options){.columns = adder->columns,
                                                 .column_count = TRP_NSTEP_COLUMNS,
                                                 .history = 1,
                                                 .chunk_length = 1,
                                                 .max_in_flight = in_flight(options, adder->copies),
                                                 .batch_items = options->batch_items,
                                                 .seed = options->seed};
    *out = &adder->base;
    return TRP_OK;
}
