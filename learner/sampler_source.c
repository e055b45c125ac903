/* Batches from replay servers: a sampler for each, and a writer of priorities when they are wanted.
 *
 * Several servers with the same tables (shards) are one table to the learner. They are asked in
 * turn, so each gives the same share of the batches, and a row's probability is what its server
 * says times that share. One that has nothing for now, or is away, is passed over until it has:
 * nobody waits for it, and the shares of the others grow.
 *
 * So a server that is away at the start does not keep the others waiting: all of them are asked for
 * their tables within LEARNER_SHARD_FIND_MS, and who did not answer by then is sampled unchecked,
 * which means that the columns of its samples are checked instead. */
#include <troupe/source.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/thread.h"
#include "limits.h"

struct shard {
    trp_channel *channel; /* borrowed */
    trp_sampler *sampler;
    trp_priority_writer *priorities; /* NULL: none are written */
    int64_t table_size;              /* as its last batch said */
    bool passed_over;
    bool away; /* and it was said */
};

/* What rows of several shards are told in place of what their shard says. */
struct union_facts {
    double *probabilities;
    int64_t *table_sizes;
};

struct sampler_source {
    trp_source base;
    uint32_t prefetch;
    struct shard *shards;
    uint32_t shard_count, turn;
    struct union_facts *facts; /* a ring, one for each batch that is held */
    uint32_t held, given;
};

void trp_source_destroy(trp_source *source)
{
    if (source)
        source->impl->destroy(source);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void pass_over(struct shard *shard, trp_status status)
{
    if (!shard->passed_over && status == TRP_UNAVAILABLE) {
        trp_log(TRP_WARN, "a replay server is away, it is passed over until it answers reason=%s",
                trp_last_error());
        shard->away = true;
    }
    shard->passed_over = true;
}

/* Until its first batch says it. */
static trp_status read_table_size(struct shard *shard, const char *table, int64_t timeout_ms)
{
    trp_table_info *tables;
    size_t count;
    trp_status status = trp_replay_tables(shard->channel, &tables, &count, timeout_ms);
    for (size_t i = 0; status == TRP_OK && i < count; i++)
        if (strcmp(tables[i].name, table) == 0)
            shard->table_size = tables[i].size;
    free(tables);
    return status;
}

/* In turns the server itself answers at once that it has nothing (limiter_timeout_ms is 0), so
 * that no clock decides whose turn it is; the wait is only for a server that is away. */
static trp_status shard_open(struct shard *shard, const trp_source_use *use, uint32_t prefetch,
                             bool is_there)
{
    const trp_batch_spec *spec = use->spec;
    TRP_TRY(trp_sampler_create(&shard->sampler, shard->channel,
                               &(trp_sampler_options){.table = spec->table,
                                                      .columns = spec->columns.specs,
                                                      .column_count = spec->columns.count,
                                                      .batch_size = spec->batch_size,
                                                      .prefetch = turns_active() ? 0 : prefetch,
                                                      .limiter_timeout_ms = turns_active() ? 0 : -1,
                                                      .held = use->held,
                                                      .allocator = use->memory,
                                                      .unchecked = !is_there}));
    if (!spec->writes_priorities)
        return TRP_OK;
    return trp_priority_writer_create(&shard->priorities, shard->channel, spec->table,
                                      LEARNER_PRIORITY_WINDOW);
}

/* The server is looked for until `deadline`, and for a moment where others used up the time. */
static trp_status shard_find_and_open(struct sampler_source *source, struct shard *shard,
                                      const trp_source_use *use, struct deadline deadline)
{
    int64_t wait_ms = deadline_left_ms(deadline, &clock_monotonic);
    if (wait_ms < LEARNER_SHARD_WAIT_MS)
        wait_ms = LEARNER_SHARD_WAIT_MS;
    trp_status status = read_table_size(shard, use->spec->table, turns_active() ? 0 : wait_ms);
    bool is_there = !status_is_transient(status);
    if (!is_there && source->shard_count > 1)
        pass_over(shard, TRP_UNAVAILABLE);
    if (is_there)
        TRP_TRY(status);
    return shard_open(shard, use, source->prefetch, is_there);
}

static trp_status sampler_source_open(trp_source *base, const trp_source_use *use)
{
    struct sampler_source *source = (struct sampler_source *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, LEARNER_SHARD_FIND_MS);
    uint32_t rows = use->spec->batch_size;
    for (uint32_t i = 0; i < source->shard_count; i++)
        TRP_TRY(shard_find_and_open(source, &source->shards[i], use, deadline));
    source->held = use->held;
    if (source->shard_count == 1)
        return TRP_OK;
    source->facts = xcalloc(use->held, sizeof *source->facts);
    for (uint32_t i = 0; i < use->held; i++) {
        source->facts[i].probabilities = xcalloc(rows, sizeof(double));
        source->facts[i].table_sizes = xcalloc(rows, sizeof(int64_t));
    }
    return TRP_OK;
}

/* ---- batches --------------------------------------------------------------------------------- */

static trp_status shard_next(struct shard *shard, trp_batch *batch, int64_t timeout_ms)
{
    return trp_sampler_next(shard->sampler, batch,
                            turns_active() ? LEARNER_REPLAY_GIVE_UP_MS : timeout_ms);
}

/* Of the shards that take their turns: how many, and how many items they have. */
static uint32_t present_shards(const struct sampler_source *source, int64_t *table_size)
{
    uint32_t count = 0;
    *table_size = 0;
    for (uint32_t i = 0; i < source->shard_count; i++) {
        count += !source->shards[i].passed_over;
        *table_size += source->shards[i].passed_over ? 0 : source->shards[i].table_size;
    }
    return count;
}

/* What the batch's shard says becomes true of all of them. */
static void unite(struct sampler_source *source, uint32_t index, trp_batch *batch)
{
    struct shard *shard = &source->shards[index];
    if (shard->away)
        trp_log(TRP_INFO, "a replay server is there server=%s",
                trp_channel_address(shard->channel));
    shard->passed_over = shard->away = false;
    if (batch->rows > 0)
        shard->table_size = batch->table_sizes[batch->rows - 1];
    int64_t others;
    double share = 1 / (double)present_shards(source, &others);
    others -= shard->table_size;
    struct union_facts *facts = &source->facts[source->given++ % source->held];
    for (uint32_t row = 0; row < batch->rows; row++) {
        facts->probabilities[row] = batch->probabilities[row] * share;
        facts->table_sizes[row] = batch->table_sizes[row] + others;
    }
    batch->probabilities = facts->probabilities;
    batch->table_sizes = facts->table_sizes;
    batch->server = index;
}

/* Asks each once, beginning with whose turn it is; whoever is passed over only gets `brief_ms`. */
static trp_status ask_round(struct sampler_source *source, trp_batch *batch, int64_t each_ms,
                            int64_t brief_ms)
{
    trp_status status = TRP_DEADLINE_EXCEEDED;
    for (uint32_t i = 0; i < source->shard_count; i++) {
        uint32_t index = source->turn;
        struct shard *shard = &source->shards[index];
        status = shard_next(shard, batch, shard->passed_over ? brief_ms : each_ms);
        if (status == TRP_OK)
            unite(source, index, batch);
        else if (!status_is_transient(status))
            return status;
        else if (!shard->passed_over && each_ms == 0 && !turns_active())
            return status; /* it may only be late: it keeps its turn */
        else
            pass_over(shard, status);
        source->turn = (index + 1) % source->shard_count;
        if (status == TRP_OK)
            return TRP_OK;
    }
    return status;
}

/* While nobody has anything, each is waited for so briefly that whoever has something first is
 * soon found. */
static trp_status next_of_shards(struct sampler_source *source, trp_batch *batch,
                                 int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    int64_t table_size, each_ms = timeout_ms / source->shard_count;
    trp_status status;
    if (each_ms == 0 && timeout_ms > 0)
        each_ms = 1; /* 0 would mean: only look */
    do {
        bool nobody = present_shards(source, &table_size) == 0;
        status =
            ask_round(source, batch, each_ms, nobody && timeout_ms > 0 ? LEARNER_SHARD_WAIT_MS : 0);
    } while (status_is_transient(status) && !turns_active() && timeout_ms > 0 &&
             !deadline_passed(deadline, &clock_monotonic));
    return status;
}

static trp_status sampler_source_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    struct sampler_source *source = (struct sampler_source *)base;
    return source->shard_count == 1 ? shard_next(source->shards, batch, timeout_ms)
                                    : next_of_shards(source, batch, timeout_ms);
}

/* ---- priorities ------------------------------------------------------------------------------ */

static trp_status sampler_source_update(trp_source *base, const trp_batch *batch,
                                        const double *priorities, int64_t timeout_ms)
{
    struct sampler_source *source = (struct sampler_source *)base;
    return trp_priority_writer_update(source->shards[batch->server].priorities, batch->keys,
                                      priorities, batch->rows, timeout_ms);
}

static trp_status sampler_source_flush(trp_source *base, int64_t timeout_ms)
{
    struct sampler_source *source = (struct sampler_source *)base;
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i < source->shard_count; i++) {
        struct shard *shard = &source->shards[i];
        trp_status flushed =
            shard->priorities ? trp_priority_writer_flush(shard->priorities, timeout_ms) : TRP_OK;
        status = status == TRP_OK ? flushed : status;
    }
    return status;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void sampler_source_destroy(trp_source *base)
{
    struct sampler_source *source = (struct sampler_source *)base;
    for (uint32_t i = 0; i < source->shard_count; i++) {
        trp_priority_writer_destroy(source->shards[i].priorities);
        trp_sampler_destroy(source->shards[i].sampler);
    }
    for (uint32_t i = 0; source->facts && i < source->held; i++) {
        free(source->facts[i].probabilities);
        free(source->facts[i].table_sizes);
    }
    free(source->facts);
    free(source->shards);
    free(source);
}

static const trp_source_impl sampler_source_impl = {
    .open = sampler_source_open,
    .next = sampler_source_next,
    .update_priorities = sampler_source_update,
    .flush = sampler_source_flush,
    .destroy = sampler_source_destroy,
};

trp_status trp_sampler_source_create(trp_source **out, const trp_sampler_source_options *options)
{
    *out = NULL;
    if (options->prefetch > LEARNER_PREFETCH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: prefetch %" PRIu32 " is above %d",
                        options->prefetch, LEARNER_PREFETCH_MAX);
    if (options->shard_count == 0 || options->shard_count > LEARNER_SHARDS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: %zu replay servers, not 1 to %d",
                        options->shard_count, LEARNER_SHARDS_MAX);
    struct sampler_source *source = xcalloc(1, sizeof *source);
    source->base.impl = &sampler_source_impl;
    source->prefetch = options->prefetch ? options->prefetch : LEARNER_PREFETCH;
    source->shard_count = (uint32_t)options->shard_count;
    source->shards = xcalloc(options->shard_count, sizeof *source->shards);
    for (uint32_t i = 0; i < source->shard_count; i++)
        source->shards[i].channel = options->shards[i];
    *out = &source->base;
    return TRP_OK;
}
