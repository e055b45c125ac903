/* Batches from a table of a store on disk, which is only read: a pass over its items in the order
 * they were inserted, through a window of whole items out of which rows are drawn.
 *
 * A thread makes batches ahead: it takes a free one, fills it, and hands it on; the learner's
 * thread gives it back when it is held no longer. A batch whose making failed carries the failure
 * and is the last. In deterministic runs batches are made when they are asked for. */
#include <troupe/source.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/item.h>
#include <troupe/replay.h>
#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/batch.h"
#include "core/buffer.h"
#include "core/limits.h"
#include "core/queue.h"
#include "core/status.h"
#include "core/thread.h"
#include "limits.h"
#include "replay.pb-c.h"

/* What a row has besides its columns. */
struct row_facts {
    uint64_t key, policy_version;
    double priority;
    int32_t times_sampled;
};

struct dataset_batch {
    struct batch memory;
    trp_status status; /* why there is none */
    char *error;
};

struct dataset_source {
    trp_source base;
    char *dir;
    trp_dataset_source_options options;
    const trp_batch_spec *spec;
    trp_replay_files *files;
    trp_item_reader *reader;
    uint64_t after;     /* the last item that the reader was given */
    bool more;          /* the table has some behind it, or the rest of one that came in part */
    struct buffer part; /* of an item that is too large for one answer */
    Troupe__ReplayFetchRest rest; /* where its next part begins, if it is not empty */
    int64_t table_size;
    uint32_t passes; /* done */
    uint64_t items;  /* of this pass */

    uint8_t *window; /* rows of row_bytes: facts, then column by column */
    size_t row_bytes, capacity, count;
    trp_rng rng;

    struct dataset_batch *batches;
    size_t batch_count;
    struct queue *free, *ready;
    struct thread thread; /* only with batches ahead */
    bool ahead;
    struct dataset_batch **lent; /* oldest first */
    uint32_t lent_count, held;
    struct dataset_batch *last; /* the one that carries a failure */
};

/* ---- items ----------------------------------------------------------------------------------- */

static trp_status dataset_ask(struct dataset_source *source, const char *method,
                              const ProtobufCMessage *request, ProtobufCMessage **reply)
{
    return trp_call(trp_replay_files_service(source->files), method, request, reply,
                    &(trp_call_options){.timeout_ms = -1});
}

/* What an answer brought: whole items, or a part of one. One at most is kept as the store has it.
 */
static trp_status dataset_take(struct dataset_source *source, trp_bytes samples, bool whole)
{
    if (whole && source->part.size == 0)
        return trp_item_reader_feed(source->reader, samples);
    if (samples.size > SAMPLE_BYTES_MAX - source->part.size ||
        !buffer_try_reserve(&source->part, samples.size))
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "table '%s' in %s: there is no room for an item of more than %zu bytes",
                        source->spec->table, source->dir, source->part.size);
    buffer_append(&source->part, samples);
    if (!whole)
        return TRP_OK;
    trp_status status = trp_item_reader_feed(source->reader, buffer_bytes(&source->part));
    buffer_cleanup(&source->part);
    return status;
}

static trp_status read_page(struct dataset_source *source)
{
    Troupe__ReplayFetchRequest request = TROUPE__REPLAY_FETCH_REQUEST__INIT;
    request.table = (char *)(uintptr_t)source->spec->table;
    request.after = source->after;
    request.rest = source->part.size > 0 ? &source->rest : NULL;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(dataset_ask(source, "Fetch", &request.base, &reply));
    const Troupe__ReplayFetchResponse *page = (const Troupe__ReplayFetchResponse *)reply;
    trp_status status =
        dataset_take(source, (trp_bytes){page->samples.data, page->samples.len}, !page->rest);
    troupe__replay_fetch_rest__init(&source->rest);
    if (page->rest) {
        source->rest.sequence = page->rest->sequence;
        source->rest.chunks = page->rest->chunks;
        source->rest.bytes = page->rest->bytes;
    }
    source->after = page->last;
    source->more = page->more || page->rest;
    protobuf_c_message_free_unpacked(reply, NULL);
    return status;
}

static bool column_fits(const trp_item_array *array, const trp_tensor_spec *spec)
{
    return array->dtype == (int32_t)spec->dtype && array->rank == spec->rank &&
           memcmp(array->shape, spec->shape, spec->rank * sizeof *spec->shape) == 0 &&
           array->data.size == trp_tensor_bytes(spec);
}

/* Columns of an item have no names: they have those of the columns in their place. */
static trp_status item_mismatch(const struct dataset_source *source, const trp_item_data *item)
{
    trp_columns have = {0};
    for (size_t i = 0; i < item->column_count; i++) {
        trp_tensor_spec spec = {.dtype = (trp_dtype)item->columns[i].dtype,
                                .rank = item->columns[i].rank};
        memcpy(spec.shape, item->columns[i].shape, sizeof spec.shape);
        char *name = i < source->spec->columns.count ? xstrdup(source->spec->columns.specs[i].name)
                                                     : xasprintf("%zu", i);
        trp_columns_add(&have, name, &spec);
        free(name);
    }
    char *who =
        xasprintf("table '%s' in %s, item %" PRIu64, source->spec->table, source->dir, item->key);
    trp_status status = trp_columns_check(&have, &source->spec->columns, who);
    if (status == TRP_OK)
        status = trp_fail(TRP_INVALID_ARGUMENT, "%s has columns without a fixed size", who);
    free(who);
    trp_columns_cleanup(&have);
    return status;
}

static trp_status take_item(struct dataset_source *source, const trp_item_data *item)
{
    const trp_columns *columns = &source->spec->columns;
    struct row_facts facts = {.key = item->key,
                              .policy_version = item->policy_version,
                              .priority = item->priority,
                              .times_sampled = item->times_sampled};
    uint8_t *row = source->window + source->count * source->row_bytes;
    memcpy(row, &facts, sizeof facts);
    row += sizeof facts;
    bool fits = item->column_count == columns->count;
    for (size_t i = 0; i < columns->count && fits; i++) {
        fits = column_fits(&item->columns[i], &columns->specs[i]);
        if (fits && item->columns[i].data.size > 0)
            memcpy(row, item->columns[i].data.data, item->columns[i].data.size);
        row += item->columns[i].data.size;
    }
    if (!fits)
        return item_mismatch(source, item);
    source->count++;
    source->items++;
    return TRP_OK;
}

/* One item more in the window. `*more` false: the pass is at its end. */
static trp_status read_item(struct dataset_source *source, bool *more)
{
    trp_item_data item;
    for (;;) {
        TRP_TRY(trp_item_reader_next(source->reader, &item, more));
        if (*more)
            return take_item(source, &item);
        if (!source->more)
            return TRP_OK;
        TRP_TRY(read_page(source));
    }
}

/* A row in the window; OUT_OF_RANGE: all passes are over. */
static trp_status window_fill(struct dataset_source *source)
{
    for (;;) {
        bool more = true;
        while (source->count < source->capacity && more)
            TRP_TRY(read_item(source, &more));
        if (source->count > 0)
            return TRP_OK;
        if (source->items == 0)
            return trp_fail(TRP_FAILED_PRECONDITION, "table '%s' in %s has no items",
                            source->spec->table, source->dir);
        source->passes++;
        if (source->options.epochs > 0 && source->passes >= source->options.epochs)
            return trp_fail(TRP_OUT_OF_RANGE, "table '%s' in %s was read %" PRIu32 " times",
                            source->spec->table, source->dir, source->options.epochs);
        source->after = source->items = 0;
        source->more = true;
    }
}

/* ---- batches --------------------------------------------------------------------------------- */

static void take_row(struct dataset_source *source, struct batch *batch)
{
    const trp_columns *columns = &source->spec->columns;
    size_t at = source->capacity > 1 ? (size_t)trp_rng_below(&source->rng, source->count) : 0;
    uint8_t *from = source->window + at * source->row_bytes;
    const uint8_t *column = from + sizeof(struct row_facts);
    uint32_t row = batch->rows++;
    struct row_facts facts;
    memcpy(&facts, from, sizeof facts);
    batch->keys[row] = facts.key;
    batch->policy_versions[row] = facts.policy_version;
    batch->priorities[row] = facts.priority;
    batch->times_sampled[row] = facts.times_sampled;
    batch->table_sizes[row] = source->table_size;
    batch->probabilities[row] = 1 / (double)source->table_size;
    for (size_t i = 0; i < columns->count; i++) {
        size_t bytes = trp_tensor_bytes(&columns->specs[i]);
        memcpy((uint8_t *)batch->columns[i] + row * bytes, column, bytes);
        column += bytes;
    }
    source->count--;
    if (at != source->count)
        memcpy(from, source->window + source->count * source->row_bytes, source->row_bytes);
}

static void batch_make(struct dataset_source *source, struct dataset_batch *batch)
{
    struct batch *memory = &batch->memory;
    memory->rows = 0;
    do {
        batch->status = window_fill(source);
        if (batch->status == TRP_OK)
            take_row(source, memory);
    } while (batch->status == TRP_OK && memory->rows < memory->capacity);
    if (batch->status == TRP_OUT_OF_RANGE && memory->rows > 0)
        batch->status = TRP_OK; /* a last, shorter one */
    if (batch->status != TRP_OK)
        batch->error = error_keep();
}

static void dataset_run(void *arg)
{
    struct dataset_source *source = arg;
    void *item;
    bool last = false;
    while (!last && queue_pop(source->free, &item, DEADLINE_NEVER) == TRP_OK) {
        struct dataset_batch *batch = item;
        batch_make(source, batch);
        last = batch->status != TRP_OK;
        last |= queue_push(source->ready, batch, DEADLINE_NEVER) != TRP_OK;
    }
}

static trp_status batch_take(struct dataset_source *source, int64_t timeout_ms,
                             struct dataset_batch **batch)
{
    void *item;
    if (source->ahead) {
        trp_status status =
            queue_pop(source->ready, &item, deadline_in_ms(&clock_monotonic, timeout_ms));
        if (status != TRP_OK)
            return trp_fail(status,
                            "table '%s' in %s gave no batch of %" PRIu32 " in %" PRId64 " ms",
                            source->spec->table, source->dir, source->spec->batch_size, timeout_ms);
        *batch = item;
        return TRP_OK;
    }
    TRP_TRY(queue_pop(source->free, &item, DEADLINE_NEVER));
    *batch = item;
    batch_make(source, *batch);
    return TRP_OK;
}

static trp_status dataset_next(trp_source *base, trp_batch *out, int64_t timeout_ms)
{
    struct dataset_source *source = (struct dataset_source *)base;
    struct dataset_batch *batch = source->last;
    if (source->lent_count == source->held) {
        TRP_TRY(queue_try_push(source->free, source->lent[0]));
        memmove(source->lent, source->lent + 1, --source->lent_count * sizeof *source->lent);
    }
    if (!batch)
        TRP_TRY(batch_take(source, timeout_ms, &batch));
    if (batch->status != TRP_OK) {
        source->last = batch;
        return trp_fail(batch->status, "%s", batch->error);
    }
    source->lent[source->lent_count++] = batch;
    const struct batch *memory = &batch->memory;
    *out = (trp_batch){.rows = memory->rows,
                       .columns = memory->columns,
                       .keys = memory->keys,
                       .priorities = memory->priorities,
                       .probabilities = memory->probabilities,
                       .table_sizes = memory->table_sizes,
                       .times_sampled = memory->times_sampled,
                       .policy_versions = memory->policy_versions,
                       .rate_limited = memory->rate_limited};
    return TRP_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Finds the table. */
static trp_status look_up(struct dataset_source *source)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(dataset_ask(source, "Tables", &request.base, &reply));
    const Troupe__ReplayTablesResponse *tables = (const Troupe__ReplayTablesResponse *)reply;
    char *names = xstrdup("");
    source->table_size = -1;
    for (size_t i = 0; i < tables->n_tables; i++) {
        char *more = xasprintf("%s%s'%s'", names, i > 0 ? ", " : "", tables->tables[i]->name);
        free(names);
        names = more;
        if (strcmp(tables->tables[i]->name, source->spec->table) == 0)
            source->table_size = tables->tables[i]->size;
    }
    trp_status status = TRP_OK;
    if (source->table_size < 0)
        status = trp_fail(TRP_NOT_FOUND, "%s has no table '%s' (it has: %s)", source->dir,
                          source->spec->table, tables->n_tables > 0 ? names : "none");
    free(names);
    protobuf_c_message_free_unpacked(reply, NULL);
    return status;
}

static trp_status make_window(struct dataset_source *source)
{
    const trp_columns *columns = &source->spec->columns;
    source->row_bytes = sizeof(struct row_facts);
    for (size_t i = 0; i < columns->count; i++)
        source->row_bytes += trp_tensor_bytes(&columns->specs[i]);
    source->capacity = source->options.shuffle > 1 ? source->options.shuffle : 1;
    if (source->capacity > (size_t)source->table_size && source->table_size > 0)
        source->capacity = (size_t)source->table_size;
    size_t bytes;
    if (size_mul(source->capacity, source->row_bytes, &bytes))
        source->window = malloc(bytes);
    if (source->window)
        return TRP_OK;
    return trp_fail(TRP_RESOURCE_EXHAUSTED,
                    "table '%s' in %s: shuffle %" PRIu32
                    ": no memory for a window of %zu items of %zu bytes",
                    source->spec->table, source->dir, source->options.shuffle, source->capacity,
                    source->row_bytes);
}

static trp_status make_batches(struct dataset_source *source, const trp_allocator *allocator)
{
    const trp_batch_spec *spec = source->spec;
    char *who = xasprintf("table '%s' in %s", spec->table, source->dir);
    trp_status status = TRP_OK;
    source->batches = xcalloc(source->batch_count, sizeof *source->batches);
    for (size_t i = 0; i < source->batch_count && status == TRP_OK; i++) {
        status = batch_init(&source->batches[i].memory, spec->columns.specs, spec->columns.count,
                            spec->batch_size, allocator, who);
        if (status == TRP_OK)
            status = queue_try_push(source->free, &source->batches[i]);
    }
    free(who);
    return status;
}

static trp_status dataset_open(trp_source *base, const trp_source_use *use)
{
    struct dataset_source *source = (struct dataset_source *)base;
    uint32_t prefetch = source->options.prefetch ? source->options.prefetch : LEARNER_PREFETCH;
    source->spec = use->spec;
    source->held = use->held;
    source->ahead = !turns_active();
    source->batch_count = use->held + (source->ahead ? prefetch : 0);
    source->lent = xcalloc(use->held, sizeof *source->lent);
    source->free = queue_create(source->batch_count);
    source->ready = queue_create(source->batch_count);
    source->reader = trp_item_reader_create();
    source->more = true;
    trp_rng_init(&source->rng, source->options.seed, 0);
    TRP_TRY(trp_replay_files_open(&source->files, source->dir));
    TRP_TRY(look_up(source));
    TRP_TRY(make_window(source));
    TRP_TRY(make_batches(source, use->memory));
    TRP_TRY(window_fill(source)); /* here, so that wrong columns end it before the first step */
    return source->ahead ? thread_start(&source->thread, "dataset", dataset_run, source) : TRP_OK;
}

static void dataset_destroy(trp_source *base)
{
    struct dataset_source *source = (struct dataset_source *)base;
    if (source->free) {
        queue_close(source->free);
        queue_close(source->ready);
    }
    thread_stop(&source->thread);
    for (size_t i = 0; source->batches && i < source->batch_count; i++) {
        batch_cleanup(&source->batches[i].memory, source->spec->columns.count);
        free(source->batches[i].error);
    }
    queue_destroy(source->free);
    queue_destroy(source->ready);
    trp_item_reader_destroy(source->reader);
    buffer_cleanup(&source->part);
    trp_replay_files_close(source->files);
    free(source->batches);
    free(source->lent);
    free(source->window);
    free(source->dir);
    free(source);
}

static const trp_source_impl dataset_impl = {
    .open = dataset_open, .next = dataset_next, .destroy = dataset_destroy};

trp_status trp_dataset_source_create(trp_source **out, const trp_dataset_source_options *options)
{
    *out = NULL;
    if (!options->dir || !*options->dir)
        return trp_fail(TRP_INVALID_ARGUMENT, "dataset: no directory was named");
    if (options->prefetch > LEARNER_PREFETCH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "dataset %s: prefetch %" PRIu32 " is above %d",
                        options->dir, options->prefetch, LEARNER_PREFETCH_MAX);
    struct dataset_source *source = xcalloc(1, sizeof *source);
    source->base.impl = &dataset_impl;
    source->options = *options;
    source->dir = xstrdup(options->dir);
    *out = &source->base;
    return TRP_OK;
}
