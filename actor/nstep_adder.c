/* The n-step transition adder: windows (nstep.h) on one side, a sink on the other. Each item is
 * one row of its own, so the writer needs no history and an item never shares fate with another.
 * The writer is told which episode each row is of: one for all copies cannot end one of theirs.
 *
 * The environment loop must not lose an item to a table that holds inserts back, and must stay able
 * to stop. So adding never blocks: completed rows wait in `kept`, which has room for all that one
 * step of every copy can complete, and push() moves them to the sink as far as its time goes. The
 * sink's writer keeps items until they fill a message: those of a slow environment go after
 * ADDER_KEEP_MS, at the next push. */
#include <troupe/adder.h>

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "limits.h"
#include "core/limits.h"
#include "nstep.h"
#include "item_sink.h"

struct nstep_adder {
    trp_adder base;
    struct item_sink sink;
    uint32_t copies;
    struct nstep_sizes sizes;
    struct nstep_window **windows; /* copies */
    uint64_t *episodes;            /* copies: the number of the one that runs */
    uint64_t episode_count;
    uint64_t episode;      /* of the copy that adds */
    struct blob row;       /* the columns, then the episode's number */
    uint8_t *kept;         /* capacity rows, the first kept_sent of them are the sink's already */
    trp_item_column *item; /* a column each */
    bool masked;           /* there is a column of next masks */
    size_t version_column;
    size_t capacity, kept_count, kept_sent;
    bool appended; /* row kept_sent is in the sink, its item is not */
};

void trp_nstep_columns(const trp_env_spec *env, const trp_columns *extras, trp_columns *columns)
{
    trp_tensor_spec action = trp_env_action_spec(env);
    adder_add_observations(env, "observation", columns);
    trp_columns_add(columns, NULL, &action);
    trp_columns_add(columns, "reward", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    trp_columns_add(columns, "discount", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    adder_add_observations(env, "next_observation", columns);
    if (env->masked)
        trp_columns_add(
            columns, "next_mask",
            &(trp_tensor_spec){.dtype = TRP_BOOL, .rank = 1, .shape = {env->action_count}});
    trp_columns_add(columns, "version", &(trp_tensor_spec){.dtype = TRP_INT64});
    if (extras)
        trp_columns_add_all(columns, extras);
}

static void nstep_adder_first(trp_adder *base, uint32_t copy, const void *const *observations)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    assert(copy < adder->copies);
    adder->episodes[copy] = ++adder->episode_count;
    nstep_first(adder->windows[copy], observations);
}

/* In the order of trp_nstep_columns(), and the episode's number behind them. */
static void keep_item(void *context, const struct nstep_item *item)
{
    struct nstep_adder *adder = context;
    assert(adder->kept_count < adder->capacity);
    const struct nstep_sizes *sizes = &adder->sizes;
    int64_t version = (int64_t)item->version;
    const void *parts[BLOB_PARTS_MAX];
    const void **part = parts;
    const void *choice[BLOB_PARTS_MAX];
    blob_parts(&sizes->observation, item->observation, part);
    part += sizes->observation.count;
    blob_parts(&sizes->choice, item->choice, choice);
    *part++ = choice[0];
    *part++ = &item->reward;
    *part++ = &item->discount;
    for (size_t i = 0; i < sizes->observation.count; i++)
        *part++ = item->next_observations[i];
    if (adder->masked)
        *part++ = item->next_mask;
    *part++ = &version;
    for (size_t i = 1; i < sizes->choice.count; i++)
        *part++ = choice[i];
    *part++ = &adder->episode;
    blob_fill(&adder->row, adder->kept + adder->kept_count++ * adder->row.size, parts);
}

static void nstep_adder_add(trp_adder *base, uint32_t copy, const trp_transition *transition)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    assert(copy < adder->copies);
    assert(!adder->masked || transition->next_mask);
    adder->episode = adder->episodes[copy];
    nstep_add(adder->windows[copy], transition, keep_item, adder);
}

static void nstep_reseed(trp_adder *base, uint64_t seed)
{
    item_sink_reseed(&((struct nstep_adder *)base)->sink, seed);
}

static trp_status send_row(struct nstep_adder *adder, int64_t timeout_ms)
{
    size_t columns = adder->base.columns.count;
    const void *parts[BLOB_PARTS_MAX];
    blob_parts(&adder->row, adder->kept + adder->kept_sent * adder->row.size, parts);
    if (!adder->appended)
        TRP_TRY(item_sink_append(&adder->sink, *(const uint64_t *)parts[columns], parts, 1));
    adder->appended = true;
    return item_sink_create_item(&adder->sink, *(const uint64_t *)parts[adder->version_column],
                                 adder->item, columns, timeout_ms);
}

static trp_status nstep_push(trp_adder *base, int64_t timeout_ms)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(item_sink_open(&adder->sink));
    while (adder->kept_sent < adder->kept_count) {
        TRP_TRY(send_row(adder, adder_left_ms(deadline)));
        adder->appended = false;
        adder->kept_sent++;
    }
    adder->kept_sent = adder->kept_count = 0;
    return item_sink_send(&adder->sink, false);
}

static trp_status nstep_flush(trp_adder *base, int64_t timeout_ms)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(nstep_push(base, timeout_ms));
    return item_sink_flush(&adder->sink, 0, adder_left_ms(deadline));
}

static uint64_t nstep_items(const trp_adder *base)
{
    return ((const struct nstep_adder *)base)->sink.items;
}

static void nstep_adder_destroy(trp_adder *base)
{
    struct nstep_adder *adder = (struct nstep_adder *)base;
    item_sink_cleanup(&adder->sink);
    for (uint32_t i = 0; i < adder->copies; i++)
        nstep_destroy(adder->windows[i]);
    free(adder->windows);
    free(adder->episodes);
    free(adder->kept);
    free(adder->item);
    free(adder);
}

static const trp_adder_impl nstep_impl = {
    .first = nstep_adder_first,
    .add = nstep_adder_add,
    .push = nstep_push,
    .flush = nstep_flush,
    .items = nstep_items,
    .reseed = nstep_reseed,
    .destroy = nstep_adder_destroy,
};

static trp_status check_nstep(const trp_adder_options *options, const trp_nstep_options *nstep)
{
    TRP_TRY(adder_check_options(options, "n-step adder"));
    if (nstep->n_step > NSTEP_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "n-step adder: n_step %u is above %d", nstep->n_step,
                        NSTEP_MAX);
    if (!(nstep->discount >= 0 && nstep->discount <= 1))
        return trp_fail(TRP_INVALID_ARGUMENT, "n-step adder: discount %g is not in [0, 1]",
                        nstep->discount);
    return TRP_OK;
}

static void set_columns(struct nstep_adder *adder, const trp_adder_options *options)
{
    trp_columns *columns = &adder->base.columns, *extras = &adder->base.extras;
    if (options->extras)
        trp_columns_add_all(extras, options->extras);
    trp_nstep_columns(options->env, extras, columns);
    adder->masked = options->env->masked;
    adder->version_column = trp_columns_find(columns, "version");
    adder->item = xcalloc(columns->count, sizeof *adder->item);
    for (uint32_t c = 0; c < columns->count; c++) {
        blob_add(&adder->row, trp_tensor_bytes(&columns->specs[c]));
        adder->item[c] = (trp_item_column){.column = c, .length = 1, .squeeze = true};
    }
    blob_add(&adder->row, sizeof adder->episode);
}

static void set_sizes(struct nstep_sizes *sizes, const trp_adder_options *options,
                      const trp_nstep_options *nstep)
{
    trp_tensor_spec action = trp_env_action_spec(options->env);
    sizes->n_step = nstep->n_step ? nstep->n_step : 1;
    sizes->discount = nstep->discount;
    for (size_t i = 0; i < trp_env_observation_count(options->env); i++)
        blob_add(&sizes->observation, trp_tensor_bytes(&options->env->observations[i]));
    blob_add(&sizes->choice, trp_tensor_bytes(&action));
    for (size_t i = 0; options->extras && i < options->extras->count; i++)
        blob_add(&sizes->choice, trp_tensor_bytes(&options->extras->specs[i]));
}

trp_status trp_nstep_adder_create(trp_adder **out, const trp_adder_options *options,
                                  const trp_nstep_options *nstep)
{
    *out = NULL;
    TRP_TRY(check_nstep(options, nstep));
    struct nstep_adder *adder = xcalloc(1, sizeof *adder);
    adder->base.impl = &nstep_impl;
    adder->copies = options->copies ? options->copies : 1;
    set_columns(adder, options);
    set_sizes(&adder->sizes, options, nstep);
    adder->capacity = (size_t)adder->copies * adder->sizes.n_step;
    adder->windows = xcalloc(adder->copies, sizeof(struct nstep_window *));
    adder->episodes = xcalloc(adder->copies, sizeof *adder->episodes);
    adder->kept = xcalloc(adder->capacity, adder->row.size);
    for (uint32_t i = 0; i < adder->copies; i++)
        adder->windows[i] = nstep_create(&adder->sizes);
    item_sink_prepare(&adder->sink, options,
                      &(trp_writer_options){.columns = adder->base.columns.specs,
                                            .column_count = adder->base.columns.count,
                                            .history = 1,
                                            .chunk_length = 1,
                                            .max_in_flight = adder_in_flight(options),
                                            .fast_in_flight = adder_fast_in_flight(options),
                                            .batch_items = options->batch_items});
    *out = &adder->base;
    return TRP_OK;
}
