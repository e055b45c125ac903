/* A dump as text that `troupe replay load` reads back to the same items: a line for each table with
 * its options, then one for each item. Elements are base64 of their bytes, so nothing is rounded.
 *
 *   {"troupe_dump":1,"table":"t","options":"name=t ...","signature":"BASE64",
 *    "columns":["NAME"]}
 *   {"table":"t","key":"7","priority":1,"times_sampled":0,"inserted_at_ns":1,
 *    "policy_version":"0","columns":[
 *     {"dtype":"float32","shape":[2],"squeezed":true,"data":"BASE64"}]}
 *
 * Written by hand (docs/replay.md has an example), a column of strings may have them as "values"
 * instead of "data", as `sample -o json` prints them, and a table no "signature". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "json.h"
#include "sink.h"

struct jsonl_file {
    char *path, *part; /* the file, and what it is called until it is whole */
    FILE *file;
};

static trp_status write_broken(const struct jsonl_file *jsonl)
{
    return trp_fail(TRP_INTERNAL, "%s: %s", jsonl->part, strerror(errno));
}

static trp_status jsonl_sink_open(void **state, const char *path, bool many)
{
    struct jsonl_file *jsonl = xcalloc(1, sizeof *jsonl);
    (void)many;
    jsonl->path = xstrdup(path);
    jsonl->part = xasprintf("%s.part", path);
    jsonl->file = fopen(jsonl->part, "we");
    *state = jsonl;
    return jsonl->file ? TRP_OK : write_broken(jsonl);
}

static trp_status jsonl_table(void *state, const Troupe__ReplayTable *table)
{
    struct jsonl_file *jsonl = state;
    cJSON *out = cJSON_CreateObject();
    json_add_i64(out, "troupe_dump", 1);
    cJSON_AddStringToObject(out, "table", table->name);
    cJSON_AddStringToObject(out, "options", table->options);
    cJSON_AddItemToObject(out, "signature",
                          json_base64((trp_bytes){table->signature.data, table->signature.len}));
    cJSON *names = cJSON_AddArrayToObject(out, "columns");
    for (size_t i = 0; i < table->n_columns; i++)
        cJSON_AddItemToArray(names, cJSON_CreateString(table->columns[i]));
    json_line(jsonl->file, out);
    return ferror(jsonl->file) ? write_broken(jsonl) : TRP_OK;
}

static bool jsonl_holds(int32_t dtype)
{
    (void)dtype;
    return true;
}

static cJSON *column_json(const trp_item_array *column)
{
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "dtype", trp_dtype_name((trp_dtype)column->dtype));
    cJSON *shape = cJSON_AddArrayToObject(out, "shape");
    for (uint32_t i = 0; i < column->rank; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)column->shape[i]));
    cJSON_AddBoolToObject(out, "squeezed", column->squeezed);
    cJSON_AddItemToObject(out, "data", json_base64(column->data));
    return out;
}

static trp_status jsonl_item(void *state, const trp_item_data *item)
{
    struct jsonl_file *jsonl = state;
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "table", item->table);
    json_add_key(out, "key", item->key);
    cJSON_AddItemToObject(out, "priority", json_number(item->priority));
    json_add_i64(out, "times_sampled", item->times_sampled);
    json_add_i64(out, "inserted_at_ns", item->inserted_at_ns);
    json_add_key(out, "policy_version", item->policy_version);
    cJSON *columns = cJSON_AddArrayToObject(out, "columns");
    for (size_t i = 0; i < item->column_count; i++)
        cJSON_AddItemToArray(columns, column_json(&item->columns[i]));
    json_line(jsonl->file, out);
    return ferror(jsonl->file) ? write_broken(jsonl) : TRP_OK;
}

static trp_status jsonl_finish(void *state, struct progress_line *progress)
{
    struct jsonl_file *jsonl = state;
    (void)progress;
    bool ok = fflush(jsonl->file) == 0 && fsync(fileno(jsonl->file)) == 0;
    ok = fclose(jsonl->file) == 0 && ok;
    jsonl->file = NULL;
    if (!ok)
        return write_broken(jsonl);
    if (rename(jsonl->part, jsonl->path) != 0)
        return trp_fail(TRP_INTERNAL, "%s: %s", jsonl->path, strerror(errno));
    free(jsonl->part);
    jsonl->part = NULL;
    return TRP_OK;
}

static void jsonl_sink_destroy(void *state)
{
    struct jsonl_file *jsonl = state;
    if (jsonl->file)
        fclose(jsonl->file);
    if (jsonl->part)
        unlink(jsonl->part);
    free(jsonl->part);
    free(jsonl->path);
    free(jsonl);
}

const struct sink_impl jsonl_sink = {jsonl_sink_open, jsonl_table,  jsonl_holds,
                                     jsonl_item,      jsonl_finish, jsonl_sink_destroy};
