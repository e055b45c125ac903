/* `troupe replay load`: a dump back into tables. Items keep their keys, so that a load that
 * was interrupted can be done again: what is there already is only given its priority. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/printable.h"
#include "core/status.h"
#include "core/words.h"
#include "json.h"
#include "output.h"
#include "replay_target.h"
#include "sink.h"
#include "source.h"

/* What a confirmation may take where no limiter holds it back. */
enum { CONFIRM_MS = 1000 };

struct load {
    struct work *work;
    const char *path;
    char *table; /* that is known to be there */
    trp_item_writer *writer;
    int64_t timeout_ms;
    bool begun; /* an item was sent */
    bool wrong; /* the file is: it says the same to whoever comes again */
};

/* What the tables say of keys that came again, before and after: the server confirms them alike. */
static trp_status known_count(const struct load *load, int64_t *known)
{
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&load->work->target, NULL, &tables));
    *known = 0;
    for (size_t i = 0; i < tables->n_tables; i++)
        *known += tables->tables[i]->known_inserts;
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return TRP_OK;
}

/* ---- what stands in the file ------------------------------------------------------------- */

/* The table's options as the dump has them, for a table called `name`. Caller frees. */
static char *options_named(const char *options, const char *name)
{
    const char *at = options, *word;
    size_t size;
    bool named = trp_table_options_word(&at, &word, &size) && strncmp(word, "name=", 5) == 0;
    char *quoted = trp_table_options_quote(name);
    char *line = xasprintf("name=%s %s", quoted, named ? at : options);
    free(quoted);
    return line;
}

/* Makes the table when it is wanted and missing. */
static trp_status table_take(struct load *load, const struct source_event *event)
{
    const struct work *work = load->work;
    const char *name = work->args->table ? work->args->table : event->table.name;
    if (!work->args->create)
        return TRP_OK;
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&work->target, NULL, &tables));
    bool there = tables_find(tables, name) != NULL;
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    if (there)
        return TRP_OK;
    Troupe__ReplayCreateTableRequest request = TROUPE__REPLAY_CREATE_TABLE_REQUEST__INIT;
    trp_bytes signature = event->table.signature;
    request.options = options_named(event->table.options, name);
    request.signature = (ProtobufCBinaryData){signature.size, (uint8_t *)(uintptr_t)signature.data};
    trp_status status = target_call(&work->target, "CreateTable", &request.base, NULL);
    free(request.options);
    return status;
}

/* A table that is not there is told before items go to it, with those that are. */
static trp_status item_table_check(struct load *load, const char *table)
{
    Troupe__ReplayTablesResponse *tables;
    if (load->table && strcmp(load->table, table) == 0)
        return TRP_OK;
    trp_status status = target_tables(&load->work->target, table, &tables);
    if (status == TRP_NOT_FOUND)
        return trp_fail(status, "%s; %s", trp_last_error(),
                        load->work->args->create
                            ? "the file does not describe it: make it with create"
                            : "--create makes those that the dump describes");
    TRP_TRY(status);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    free(load->table);
    load->table = xstrdup(table);
    return TRP_OK;
}

static trp_status event_load(struct load *load, const struct source_event *event)
{
    if (event->kind == SOURCE_TABLE)
        return table_take(load, event);
    TRP_TRY(item_table_check(load, event->item.table));
    trp_status status = trp_item_writer_put(load->writer, &event->item, load->timeout_ms);
    load->wrong = status == TRP_INVALID_ARGUMENT;
    if (load->wrong && event->line > 0) /* the server is asked of many at once */
        return trp_fail(TRP_FAILED_PRECONDITION, "%s:%" PRIu64 ", or a line before: %s", load->path,
                        event->line, trp_last_error());
    TRP_TRY(status);
    load->begun = true;
    return TRP_OK;
}

static trp_status source_load(struct load *load, struct source *source,
                              struct progress_line *progress)
{
    struct source_event event;
    for (;;) {
        trp_status status = source_next(source, &event);
        load->wrong = status == TRP_FAILED_PRECONDITION;
        TRP_TRY(status);
        if (event.kind == SOURCE_END)
            break;
        TRP_TRY(event_load(load, &event));
        progress_show(progress, source->done_bytes);
    }
    trp_status status = trp_item_writer_flush(load->writer, load->timeout_ms);
    load->wrong = status == TRP_INVALID_ARGUMENT;
    return status;
}

/* ---- what became of it ------------------------------------------------------------------- */

static void load_print(const struct load *load, int64_t known)
{
    int64_t items = (int64_t)trp_item_writer_confirmed(load->writer);
    known = known < items ? known : items;
    if (load->work->args->json) {
        cJSON *out = cJSON_CreateObject();
        json_add_i64(out, "items", items);
        json_add_i64(out, "inserted", items - known);
        json_add_i64(out, "already_there", known);
        cJSON_AddStringToObject(out, "file", load->path);
        json_print(out);
        return;
    }
    print_text(stdout, "%" PRId64 " item%s inserted from %s", items - known, plural(items - known),
               load->path);
    if (known > 0)
        print_text(stdout, ", %" PRId64 " %s there already", known, known == 1 ? "was" : "were");
    putchar('\n');
}

/* How far it came stands in the message, once it has begun: what is confirmed is in the table. What
 * the server refuses is the file's fault, not the command line's. */
static trp_status interrupted(const struct load *load, trp_status status)
{
    bool refused = status == TRP_INVALID_ARGUMENT;
    char *why = error_keep();
    bool sent = load->begun && load->wrong && !refused; /* what stands before goes in */
    if (sent && trp_item_writer_flush(load->writer, load->timeout_ms) != TRP_OK)
        trp_log(TRP_WARN, "not all before is confirmed reason=%s", trp_last_error());
    error_back(status, why);
    uint64_t confirmed = load->begun ? trp_item_writer_confirmed(load->writer) : 0;
    char far[128] = "";
    if (load->begun)
        snprintf(far, sizeof far, " (%" PRIu64 " item%s loaded; %s)", confirmed,
                 confirmed == 1 ? " is" : "s are",
                 load->wrong ? "the file has to be mended: to load it again does not help"
                             : "load again to go on");
    return trp_fail(refused ? TRP_FAILED_PRECONDITION : status, "%s%s%s%s",
                    refused ? load->path : "", refused ? ": " : "", trp_last_error(), far);
}

static trp_status load_all(struct load *load, struct source *source)
{
    struct progress_line progress;
    int64_t before, after = 0;
    TRP_TRY(known_count(load, &before));
    progress_begin(&progress, "load", NULL, source->total_bytes);
    trp_status status = source_load(load, source, &progress);
    progress_end(&progress);
    if (status == TRP_OK)
        status = known_count(load, &after);
    if (status == TRP_OK)
        load_print(load, after > before ? after - before : 0);
    return status;
}

static trp_status load_work(struct work *work)
{
    const struct replay_args *args = work->args;
    struct load load = {.work = work, .path = work->call->words[1]};
    struct source_options options = {.path = load.path, .table = args->table};
    struct source source;
    Troupe__ReplayTablesResponse *tables;
    load.timeout_ms = args->timeout != 0 ? seconds_ms(args->timeout) : CONFIRM_MS;
    if (args->table && !args->create)
        TRP_TRY(item_table_check(&load, args->table));
    TRP_TRY(target_tables(&work->target, NULL, &tables));
    const Troupe__ReplayTable *table = args->table ? tables_find(tables, args->table) : NULL;
    if (table) {
        options.columns = table->columns;
        options.column_count = table->n_columns;
    }
    trp_status status = source_open(&source, &options);
    if (status == TRP_OK)
        status = trp_item_writer_create(&load.writer, work->target.channel);
    if (status == TRP_OK)
        status = load_all(&load, &source);
    if (status != TRP_OK)
        status = interrupted(&load, status);
    trp_item_writer_destroy(load.writer);
    source_close(&source);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    free(load.table);
    return status;
}

int replay_load(const struct cli_call *call)
{
    if (!sink_check(call->name, call->words[1]))
        return EXIT_USAGE;
    return target_run(call, TARGET_WRITE, load_work);
}
