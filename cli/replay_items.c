/* `troupe replay items`, `peek` and `sample`: which items there are, and what is in them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/flags.h"
#include "core/clock.h"
#include "core/printable.h"
#include "core/status.h"
#include "core/words.h"
#include "fetch.h"
#include "interrupt.h"
#include "json.h"
#include "output.h"
#include "sink.h"
#include "values.h"

/* ---- items ------------------------------------------------------------------------------- */

/* "-": nobody knows; "3+": at least so often. */
static const char *sampled_text(const Troupe__ReplayItem *item, char text[TEXT_SIZE])
{
    if (item->counted_in_this_life && item->times_sampled == 0)
        return "-";
    snprintf(text, TEXT_SIZE, "%d%s", item->times_sampled, item->counted_in_this_life ? "+" : "");
    return text;
}

static void items_text(const Troupe__ReplayItemsResponse *items, uint64_t offset)
{
    static const char *const heads[] = {"KEY",   "PRIORITY", "SAMPLED", "CHUNKS",
                                        "BYTES", "VERSION",  "INSERTED"};
    static const bool right[] = {true, true, true, true, true, true, false};
    struct grid grid = {.columns = 7, .right = right};
    char text[TEXT_SIZE];
    grid_heads(&grid, heads);
    for (size_t i = 0; i < items->n_items; i++) {
        const Troupe__ReplayItem *item = items->items[i];
        grid_add(&grid, "%" PRIu64, item->key);
        grid_add(&grid, "%s", double_text(item->priority, text));
        grid_add(&grid, "%s", sampled_text(item, text));
        grid_add(&grid, "%u", item->chunk_count);
        grid_add(&grid, "%" PRIu64, item->bytes);
        grid_add(&grid, "%" PRIu64, item->policy_version);
        grid_add(&grid, "%s", time_text(item->inserted_at_ns, text));
    }
    grid_print(&grid, stdout);
    grid_cleanup(&grid);
    print_text(stdout, "%zu of %lld item%s, %s", items->n_items, (long long)items->table_size,
               plural(items->table_size), items->order);
    if (items->matches != items->table_size)
        print_text(stdout, "; %lld match", (long long)items->matches);
    if (offset && items->n_items == 0)
        print_text(stdout, "; number %" PRIu64 " is beyond the end", offset);
    else if (offset)
        print_text(stdout, "; from number %" PRIu64 " on", offset);
    putchar('\n');
}

/* Keys that were asked for, whose items nobody can have. */
static void damaged_keys_told(struct work *work, const Troupe__ReplayItemsResponse *items)
{
    if (items->n_damaged_keys == 0)
        return;
    work->exit_status = EXIT_DAMAGED;
    print_text(stderr, "%zu damaged item%s left out, such as table %s, key %" PRIu64 "\n",
               items->n_damaged_keys, items->n_damaged_keys == 1 ? " was" : "s were", work->table,
               items->damaged_keys[0]);
}

static trp_status items_work(struct work *work)
{
    Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    Troupe__ReplayFilter filter;
    ProtobufCMessage *reply = NULL;
    TRP_TRY(filter_init(&filter, &work->args->filter));
    request.table = (char *)(uintptr_t)work->table;
    request.count = (uint32_t)work->args->count;
    request.order = (Troupe__ReplayOrder)work->args->order;
    request.offset = work->args->offset;
    request.filter = filter_given(&work->args->filter) ? &filter : NULL;
    trp_status status = target_call(&work->target, "Items", &request.base, &reply);
    bool filtered = request.filter != NULL;
    filter_cleanup(&filter);
    TRP_TRY(status);
    const Troupe__ReplayItemsResponse *items = (const Troupe__ReplayItemsResponse *)reply;
    if (work->args->json)
        json_print(json_message(reply));
    else
        items_text(items, request.offset);
    if (filtered && items->matches == 0)
        work->exit_status = EXIT_NOTHING;
    damaged_keys_told(work, items);
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

int replay_items(const struct cli_call *call)
{
    return target_run(call, TARGET_READ, items_work);
}

/* ---- the columns of an item -------------------------------------------------------------- */

static void columns_text(const struct work *work, const trp_item_array *columns, size_t count)
{
    static const char *const heads[] = {"COLUMN", "TYPE", "SHAPE", "VALUES"};
    struct grid grid = {.columns = 4};
    char name[COLUMN_TEXT_SIZE];
    grid_heads(&grid, heads);
    for (size_t i = 0; i < count; i++) {
        const trp_item_array *column = &columns[i];
        char *shape = shape_text(column->shape, column->rank), *values = values_text(column);
        grid_add(&grid, "%s", column_name(work->info, count, i, name));
        grid_add(&grid, "%s", trp_dtype_name((trp_dtype)column->dtype));
        grid_add(&grid, "%s", column->dtype ? shape : "?");
        grid_add(&grid, "%s", values);
        free(shape);
        free(values);
    }
    grid_print(&grid, stdout);
    grid_cleanup(&grid);
}

static void columns_json(const struct work *work, cJSON *out, const trp_item_array *columns,
                         size_t count)
{
    cJSON *array = cJSON_AddArrayToObject(out, "columns");
    for (size_t i = 0; i < count; i++) {
        cJSON *column = values_json(&columns[i]);
        if (work->info && work->info->n_columns == count)
            cJSON_AddStringToObject(column, "name", work->info->columns[i]);
        cJSON_AddItemToArray(array, column);
    }
}

/* ---- peek -------------------------------------------------------------------------------- */

/* One item, without sampling it. */
struct look {
    ProtobufCMessage *reply;
    const Troupe__ReplayItem *item;
    uint64_t key;
    Troupe__ReplayFilter filter;
    struct item_fetch fetch;
    trp_item_data data; /* what of it no array can hold has none: see trp_item_reader_next() */
};

static void look_close(struct look *look)
{
    if (look->fetch.reader)
        fetch_close(&look->fetch);
    if (look->reply)
        protobuf_c_message_free_unpacked(look->reply, NULL);
}

static void look_filter(struct look *look, uint64_t key)
{
    look->key = key;
    troupe__replay_filter__init(&look->filter);
    look->filter.keys = &look->key;
    look->filter.n_keys = 1;
}

/* With its key, or what the sampler would take first. */
static trp_status look_find(struct look *look, const struct work *work, const char *table,
                            const uint64_t *key)
{
    Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    request.table = (char *)(uintptr_t)table;
    request.count = 1;
    if (key) {
        look_filter(look, *key);
        request.filter = &look->filter;
    }
    TRP_TRY(target_call(&work->target, "Items", &request.base, &look->reply));
    const Troupe__ReplayItemsResponse *items = (const Troupe__ReplayItemsResponse *)look->reply;
    if (items->n_items > 0) {
        look->item = items->items[0];
        return TRP_OK;
    }
    return key ? trp_fail(TRP_NOT_FOUND, "table %s has no item with key %" PRIu64, table, *key)
               : trp_fail(TRP_NOT_FOUND, "table %s is empty", table);
}

static trp_status look_fetch(struct look *look, const struct work *work, const char *table)
{
    bool more;
    look_filter(look, look->item->key);
    fetch_open(&look->fetch, &work->target, table, &look->filter);
    trp_status status = fetch_next(&look->fetch, &look->data, &more);
    if (status == TRP_UNIMPLEMENTED && more)
        return TRP_OK;
    if (status == TRP_OK && !more)
        return trp_fail(TRP_NOT_FOUND, "table %s has no item with key %" PRIu64 " any more", table,
                        look->key);
    return status;
}

/* The favourite of a busy queue may be gone before it is fetched: then there is another one. */
static trp_status look_open(struct look *look, const struct work *work, const char *table,
                            const uint64_t *key)
{
    enum { TRIES = 3 };
    trp_status status = TRP_NOT_FOUND;
    *look = (struct look){0};
    for (int try = 0; status == TRP_NOT_FOUND && try < (key ? 1 : TRIES); try++) {
        look_close(look);
        *look = (struct look){0};
        TRP_TRY(look_find(look, work, table, key));
        status = look_fetch(look, work, table);
    }
    return status;
}

static void peek_print(const struct work *work, const Troupe__ReplayItem *item,
                       const trp_item_array *columns, size_t count)
{
    char priority[TEXT_SIZE], inserted[TEXT_SIZE], sampled[TEXT_SIZE];
    if (work->args->json) {
        cJSON *out = json_message(&item->base);
        columns_json(work, out, columns, count);
        json_print(out);
        return;
    }
    print_text(stdout,
               "key %" PRIu64 "  priority %s  sampled %s time%s  inserted %s  %u chunk%s, %" PRIu64
               " bytes\n",
               item->key, double_text(item->priority, priority), sampled_text(item, sampled),
               plural(item->times_sampled), time_text(item->inserted_at_ns, inserted),
               item->chunk_count, plural(item->chunk_count), item->bytes);
    columns_text(work, columns, count);
}

static trp_status peek_work(struct work *work)
{
    const struct cli_call *call = work->call;
    struct look look;
    uint64_t key;
    bool has_key = call->word_count > 2;
    if (has_key)
        flags_u64(call->words[2], 0, UINT64_MAX, &key);
    trp_status status = look_open(&look, work, work->table, has_key ? &key : NULL);
    if (status == TRP_OK)
        peek_print(work, look.item, look.data.columns, look.data.column_count);
    look_close(&look);
    return status;
}

int replay_peek(const struct cli_call *call)
{
    if (call->word_count > 2 && !key_check(call->name, call->words[2]))
        return EXIT_USAGE;
    return target_run(call, TARGET_READ, peek_work);
}

/* ---- sample ------------------------------------------------------------------------------ */

enum { LOOK_MS = 100 };

static void sample_print(const struct work *work, const trp_item_data *item, uint64_t number)
{
    char priority[TEXT_SIZE];
    if (work->args->json) {
        cJSON *out = cJSON_CreateObject();
        json_add_key(out, "key", item->key);
        cJSON_AddItemToObject(out, "priority", json_number(item->priority));
        cJSON_AddItemToObject(out, "probability", json_number(item->probability));
        json_add_i64(out, "times_sampled", item->times_sampled);
        json_add_i64(out, "table_size", item->table_size);
        columns_json(work, out, item->columns, item->column_count);
        json_line(stdout, out);
        return;
    }
    if (number > 0)
        putchar('\n');
    print_text(stdout, "key %" PRIu64 "  priority %s  probability %.6g  sampled %d time%s\n",
               item->key, double_text(item->priority, priority), item->probability,
               item->times_sampled, plural(item->times_sampled));
    columns_text(work, item->columns, item->column_count);
}

/* Everything that the reader holds; what no array can hold stops nobody from having the others. */
static trp_status samples_take(struct work *work, trp_item_reader *reader, struct sink *sink,
                               uint64_t *taken)
{
    trp_item_data item;
    bool more;
    for (;;) {
        trp_status status = trp_item_reader_next(reader, &item, &more);
        status = target_malformed(&work->target, status);
        if (status == TRP_UNIMPLEMENTED)
            sink_leave_out(sink);
        else if (status != TRP_OK || !more)
            return status;
        else if (sink->impl)
            TRP_TRY(sink_item(sink, &item));
        else
            sample_print(work, &item, *taken);
        ++*taken;
    }
}

/* Says what the limiter waits for. */
static trp_status samples_missing(const struct work *work, uint64_t taken)
{
    char waited[TEXT_SIZE], time[TEXT_SIZE];
    Troupe__ReplayTablesResponse *tables;
    uint64_t wanted = work->args->count;
    bool stopped = work->target.server != NULL;
    TRP_TRY(target_tables(&work->target, work->table, &tables));
    const char *why = tables_find(tables, work->table)->limiter->sample_waits;
    snprintf(waited, sizeof waited, "for %s", duration_text(work->args->timeout, time));
    trp_fail(TRP_DEADLINE_EXCEEDED,
             "%" PRIu64 " of %" PRIu64 " item%s came: %s the limiter of table %s allowed no "
             "more%s%s",
             taken, wanted, plural((int64_t)wanted),
             stopped ? "nobody inserts into a stopped store, and" : waited, work->table,
             *why ? "; " : "", why);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return TRP_DEADLINE_EXCEEDED;
}

/* CANCELLED: a signal came first. */
static trp_status sample_receive(trp_stream *stream, trp_message **message)
{
    trp_status status = interrupt_check();
    while (status == TRP_OK) {
        status = trp_stream_receive(stream, message, LOOK_MS);
        if (status != TRP_DEADLINE_EXCEEDED || trp_stream_ended(stream))
            return status;
        status = interrupt_check();
    }
    return status;
}

static trp_status samples_draw(struct work *work, struct sink *sink, trp_item_reader *reader,
                               trp_stream *stream)
{
    struct progress_line progress;
    uint64_t taken = 0, wanted = work->args->count;
    trp_status status = TRP_OK;
    progress_begin(&progress, "sample", "items", wanted);
    while (status == TRP_OK && taken < wanted) {
        trp_message *message = NULL;
        status = sample_receive(stream, &message);
        if (status == TRP_OK)
            status = target_malformed(
                &work->target,
                trp_item_reader_feed(
                    reader, (trp_bytes){trp_message_data(message), trp_message_size(message)}));
        trp_message_destroy(message);
        if (status == TRP_OK)
            status = samples_take(work, reader, sink, &taken);
        if (sink->impl)
            progress_show(&progress, taken);
    }
    progress_end(&progress);
    if (status == TRP_DEADLINE_EXCEEDED)
        status = samples_missing(work, taken);
    if (status == TRP_OUT_OF_RANGE)
        status = trp_fail(TRP_UNAVAILABLE, "%s ended the stream", work->target.text);
    return status;
}

/* Where no signature says what the columns are, an item does; a table without items says nothing.
 */
static trp_status first_check(const struct work *work, const struct sink *sink)
{
    struct look look;
    trp_status status = look_open(&look, work, work->info->name, NULL);
    for (size_t i = 0; status == TRP_OK && i < look.data.column_count; i++)
        status = sink_column(sink, look.data.column_count, i, look.data.columns[i].dtype);
    look_close(&look);
    return status == TRP_NOT_FOUND ? TRP_OK : status;
}

/* What is drawn may be gone from the table: a column that the file cannot hold is told before. */
static trp_status sink_begin(struct work *work, struct sink *sink)
{
    const char *file = work->args->file;
    if (file)
        TRP_TRY(sink_open(sink, file, false));
    TRP_TRY(sink_table(sink, work->info));
    if (!file)
        return TRP_OK;
    const Troupe__ReplayTable *table = work->info;
    trp_status status = table->n_column_types == 0 ? first_check(work, sink) : TRP_OK;
    for (size_t i = 0; status == TRP_OK && i < table->n_column_types; i++)
        status = sink_column(sink, table->n_column_types, i, table->column_types[i]);
    if (status != TRP_UNIMPLEMENTED)
        return status;
    return trp_fail(status, "table %s: %s; nothing was drawn", work->table, trp_last_error());
}

/* What came is written, also when more was wanted: it may be nowhere else. */
static trp_status samples_save(const struct work *work, struct sink *sink, trp_status drawn)
{
    const char *file = work->args->file;
    struct progress_line progress;
    if (!file || sink->broken || (drawn != TRP_OK && sink->items == 0))
        return drawn;
    interrupt_put_off();
    char *kept = error_keep();
    progress_begin(&progress, "sample", "items", 0);
    trp_status status = sink->impl->finish(sink->state, &progress);
    progress_end(&progress);
    if (status == TRP_OK)
        sink_print(sink, file, work->args->json);
    if (drawn != TRP_OK && status == TRP_OK)
        status = trp_fail(drawn, "%s; what came is in %s", kept, file);
    else if (drawn != TRP_OK)
        status = trp_fail(drawn, "%s; what came is not saved: %s", kept, trp_last_error());
    free(kept);
    return status;
}

static trp_status sample_work(struct work *work)
{
    struct sink sink = {0};
    trp_stream *stream = NULL;
    trp_item_reader *reader = trp_item_reader_create();
    /* Nobody else comes to a store that this process serves to itself. */
    int64_t timeout_ms = work->target.server ? 0 : seconds_ms(work->args->timeout);
    trp_status status = sink_begin(work, &sink);
    if (status == TRP_OK)
        status = trp_item_sample(&stream, work->target.channel, work->table,
                                 (int64_t)work->args->count, timeout_ms);
    if (status == TRP_OK)
        status = samples_save(work, &sink, samples_draw(work, &sink, reader, stream));
    if (sink.left_out > 0)
        work->exit_status = EXIT_FAILED;
    sink_close(&sink);
    trp_stream_destroy(stream);
    trp_item_reader_destroy(reader);
    return status;
}

int replay_sample(const struct cli_call *call)
{
    const struct replay_args *args = call->args;
    if (args->file && !sink_check(call->name, args->file))
        return EXIT_USAGE;
    if (args->file)
        interrupt_watch(); /* for what was drawn */
    int status = target_run(call, TARGET_WRITE, sample_work);
    interrupt_end();
    return status;
}
