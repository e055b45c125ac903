/* `troupe replay load`: a .jsonl dump back into tables. Items keep their keys, so that a load that
 * was interrupted can be done again: what is there already is only given its priority. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <troupe/item.h>
#include "core/alloc.h"
#include "core/flags.h"
#include "json.h"
#include "output.h"
#include "replay_target.h"

struct load {
    struct work *work;
    const char *path;
    char *table; /* that is known to be there */
    uint64_t line, items;
    trp_item_writer *writer;
    trp_item_array *columns;
    size_t column_capacity;
    int64_t timeout_ms;
};

static trp_status wrong_line(const struct load *load, const char *what)
{
    return trp_fail(TRP_FAILED_PRECONDITION, "%s:%" PRIu64 ": %s", load->path, load->line, what);
}

/* ---- a line of an item ------------------------------------------------------------------- */

static trp_status column_read(const struct load *load, const cJSON *json, trp_item_array *column)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(json, "dtype"));
    char *data = cJSON_GetStringValue(cJSON_GetObjectItem(json, "data"));
    const cJSON *shape = cJSON_GetObjectItem(json, "shape"), *each;
    *column = (trp_item_array){.squeezed = cJSON_IsTrue(cJSON_GetObjectItem(json, "squeezed"))};
    column->dtype = name ? trp_element_parse(name) : 0;
    if (!name || (column->dtype == 0 && strcmp(name, "?") != 0))
        return wrong_line(load, "a column without a known dtype");
    if (!data || !base64_decode(data, &column->data))
        return wrong_line(load, "a column whose data is not base64");
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > TRP_RANK_MAX)
        return wrong_line(load, "a column without a shape of at most 8 dimensions");
    cJSON_ArrayForEach(each, shape)
    {
        double size = cJSON_IsNumber(each) ? each->valuedouble : -1;
        if (!(size >= 0 && size < 9e15))
            return wrong_line(load, "a column with a dimension that is no size");
        column->shape[column->rank++] = (int64_t)size;
    }
    return TRP_OK;
}

static trp_status item_read(struct load *load, const cJSON *json, trp_item_data *item)
{
    const char *key = cJSON_GetStringValue(cJSON_GetObjectItem(json, "key"));
    const char *version = cJSON_GetStringValue(cJSON_GetObjectItem(json, "policy_version"));
    const cJSON *priority = cJSON_GetObjectItem(json, "priority");
    const cJSON *columns = cJSON_GetObjectItem(json, "columns"), *each;
    *item = (trp_item_data){.table = cJSON_GetStringValue(cJSON_GetObjectItem(json, "table"))};
    if (load->work->args->table)
        item->table = load->work->args->table;
    if (!item->table)
        return wrong_line(load, "an item without a table");
    if (!key || !flags_u64(key, 0, UINT64_MAX, &item->key))
        return wrong_line(load, "an item without a key (a number as text)");
    if (!cJSON_IsNumber(priority))
        return wrong_line(load, "an item without a priority");
    if (!cJSON_IsArray(columns))
        return wrong_line(load, "an item without columns");
    if (version && !flags_u64(version, 0, UINT64_MAX, &item->policy_version))
        return wrong_line(load, "an item whose policy_version is no number as text");
    item->priority = priority->valuedouble;
    size_t count = (size_t)cJSON_GetArraySize(columns);
    if (count > load->column_capacity) {
        load->columns = xrealloc(load->columns, count * sizeof *load->columns);
        load->column_capacity = count;
    }
    cJSON_ArrayForEach(each, columns)
        TRP_TRY(column_read(load, each, &load->columns[item->column_count++]));
    item->columns = load->columns;
    return TRP_OK;
}

/* ---- a line of a table ------------------------------------------------------------------- */

/* Makes the table when it is wanted and missing. */
static trp_status table_line(struct load *load, const cJSON *json)
{
    const struct work *work = load->work;
    char *options = cJSON_GetStringValue(cJSON_GetObjectItem(json, "options"));
    char *signature = cJSON_GetStringValue(cJSON_GetObjectItem(json, "signature"));
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(json, "table"));
    trp_bytes bytes;
    if (!options || !name || !signature || !base64_decode(signature, &bytes))
        return wrong_line(load, "a table without name, options and signature");
    if (!work->args->create || work->args->table)
        return TRP_OK;
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&work->target, NULL, &tables));
    bool there = tables_find(tables, name) != NULL;
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    if (there)
        return TRP_OK;
    Troupe__ReplayCreateTableRequest request = TROUPE__REPLAY_CREATE_TABLE_REQUEST__INIT;
    request.options = options;
    request.signature = (ProtobufCBinaryData){bytes.size, (uint8_t *)(uintptr_t)bytes.data};
    return target_call(&work->target, "CreateTable", &request.base, NULL);
}

/* ---- the file ---------------------------------------------------------------------------- */

/* A table that is not there is told before items go to it, with those that are. */
static trp_status item_table_check(struct load *load, const char *table)
{
    Troupe__ReplayTablesResponse *tables;
    if (load->table && strcmp(load->table, table) == 0)
        return TRP_OK;
    trp_status status = target_tables(&load->work->target, table, &tables);
    if (status == TRP_NOT_FOUND && !load->work->args->create) {
        char *why = xstrdup(trp_last_error());
        trp_fail(status, "%s; --create makes those that the dump describes", why);
        free(why);
    }
    TRP_TRY(status);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    free(load->table);
    load->table = xstrdup(table);
    return TRP_OK;
}

static trp_status load_line(struct load *load, const char *line)
{
    cJSON *json = cJSON_Parse(line);
    trp_status status;
    trp_item_data item;
    if (!cJSON_IsObject(json)) {
        status = wrong_line(load, "not a JSON object");
    } else if (cJSON_GetObjectItem(json, "troupe_dump")) {
        status = table_line(load, json);
    } else {
        status = item_read(load, json, &item);
        if (status == TRP_OK)
            status = item_table_check(load, item.table);
        if (status == TRP_OK)
            status = trp_item_writer_put(load->writer, &item, load->timeout_ms);
        load->items += status == TRP_OK;
    }
    cJSON_Delete(json);
    return status;
}

static trp_status load_lines(struct load *load, FILE *file, struct progress *progress)
{
    char *line = NULL;
    size_t capacity = 0;
    uint64_t bytes = 0;
    ssize_t size;
    trp_status status = TRP_OK;
    while (status == TRP_OK && (size = getline(&line, &capacity, file)) >= 0) {
        load->line++;
        bytes += (uint64_t)size;
        if (line[strspn(line, " \t\r\n")] != '\0')
            status = load_line(load, line);
        progress_show(progress, bytes);
    }
    free(line);
    if (status == TRP_OK && ferror(file))
        status = trp_fail(TRP_INTERNAL, "%s: %s", load->path, strerror(errno));
    return status == TRP_OK ? trp_item_writer_flush(load->writer, load->timeout_ms) : status;
}

static void load_print(const struct load *load)
{
    uint64_t confirmed = trp_item_writer_confirmed(load->writer);
    if (load->work->args->json) {
        cJSON *out = cJSON_CreateObject();
        json_add_i64(out, "items", (int64_t)confirmed);
        cJSON_AddStringToObject(out, "file", load->path);
        json_print(out);
        return;
    }
    printf("%" PRIu64 " items from %s\n", confirmed, load->path);
}

/* How far it came stands in the message: what is confirmed is in the table. */
static trp_status interrupted(const struct load *load, trp_status status)
{
    char *why = xstrdup(trp_last_error());
    if (status == TRP_INVALID_ARGUMENT) /* of the file, not of the command line */
        status = TRP_FAILED_PRECONDITION;
    uint64_t confirmed = load->writer ? trp_item_writer_confirmed(load->writer) : 0;
    trp_fail(status, "%s (%" PRIu64 " item%s loaded; load again to go on)", why, confirmed,
             confirmed == 1 ? " is" : "s are");
    free(why);
    return status;
}

static trp_status load_work(struct work *work)
{
    struct load load = {.work = work, .path = work->call->words[1]};
    struct stat stat_of;
    struct progress progress;
    load.timeout_ms = work->args->timeout > 0 ? (int64_t)(work->args->timeout * 1000) : -1;
    if (work->args->table) {
        Troupe__ReplayTablesResponse *tables;
        TRP_TRY(target_tables(&work->target, work->args->table, &tables));
        troupe__replay_tables_response__free_unpacked(tables, NULL);
    }
    FILE *file = fopen(load.path, "re");
    if (!file || fstat(fileno(file), &stat_of) != 0) {
        trp_status failed = trp_fail(TRP_FAILED_PRECONDITION, "%s: %s", load.path, strerror(errno));
        if (file)
            fclose(file);
        return failed;
    }
    trp_status status = trp_item_writer_create(&load.writer, work->target.channel);
    progress_begin(&progress, "load", NULL, (uint64_t)stat_of.st_size);
    if (status == TRP_OK)
        status = load_lines(&load, file, &progress);
    progress_end(&progress);
    if (status == TRP_OK)
        load_print(&load);
    else
        status = interrupted(&load, status);
    trp_item_writer_destroy(load.writer);
    free(load.columns);
    free(load.table);
    fclose(file);
    return status;
}

int replay_load(const struct cli_call *call)
{
    size_t size = strlen(call->words[1]);
    if (size > 4 && strcmp(call->words[1] + size - 4, ".npz") == 0)
        return cli_wrong(call->name, "%s: load takes FILE.jsonl, which dump writes, too",
                         call->words[1]);
    return target_run(call, TARGET_WRITE, load_work);
}
