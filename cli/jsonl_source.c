/* A .jsonl dump, line by line; jsonl.c says what stands in it. It may come from anywhere: a line
 * that is not as it should be is named. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/flags.h"
#include "json.h"
#include "sink.h"
#include "source.h"

struct jsonl_lines {
    const struct source_options *options;
    FILE *file;
    char *text;
    size_t capacity;
    cJSON *json; /* the line that was given last */
    uint64_t line;
    trp_item_array *columns;
    struct buffer *strings; /* what stands in "values" of each */
    size_t column_capacity;
};

static trp_status TRP_PRINTF(2, 3)
    wrong_line(const struct jsonl_lines *jsonl, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return trp_fail(TRP_FAILED_PRECONDITION, "%s:%" PRIu64 ": %s", jsonl->options->path,
                    jsonl->line, what);
}

/* Strings as a TensorProto has them: all lengths, then all bytes. */
static bool strings_read(const cJSON *values, struct buffer *strings)
{
    struct buffer texts = {0};
    const cJSON *each;
    trp_bytes bytes;
    bool right = cJSON_IsArray(values);
    buffer_clear(strings);
    cJSON_ArrayForEach(each, values)
    {
        right = right && json_read_bytes(each, &bytes);
        if (!right)
            break;
        size_t length = bytes.size;
        for (; length > 127; length >>= 7)
            buffer_append(strings, (trp_bytes){&(uint8_t){(uint8_t)(length | 128)}, 1});
        buffer_append(strings, (trp_bytes){&(uint8_t){(uint8_t)length}, 1});
        buffer_append(&texts, bytes);
    }
    buffer_append(strings, buffer_bytes(&texts));
    buffer_cleanup(&texts);
    return right;
}

static trp_status shape_read(const struct jsonl_lines *jsonl, const cJSON *shape, size_t number,
                             trp_item_array *column)
{
    const cJSON *each;
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > TRP_RANK_MAX)
        return wrong_line(jsonl, "columns[%zu].shape: not an array of at most %d sizes", number,
                          TRP_RANK_MAX);
    cJSON_ArrayForEach(each, shape)
    {
        double size = cJSON_IsNumber(each) ? each->valuedouble : -1;
        if (!(size >= 0 && size < 9e15 && size == floor(size)))
            return wrong_line(jsonl, "columns[%zu].shape[%u]: not a size (a number from 0 on)",
                              number, column->rank);
        column->shape[column->rank++] = (int64_t)size;
    }
    return TRP_OK;
}

static trp_status column_read(const struct jsonl_lines *jsonl, const cJSON *json, size_t number)
{
    trp_item_array *column = &jsonl->columns[number];
    struct buffer *strings = &jsonl->strings[number];
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(json, "dtype"));
    char *data = cJSON_GetStringValue(cJSON_GetObjectItem(json, "data"));
    const cJSON *values = cJSON_GetObjectItem(json, "values");
    *column = (trp_item_array){.squeezed = cJSON_IsTrue(cJSON_GetObjectItem(json, "squeezed"))};
    column->dtype = name ? trp_dtype_parse(name) : 0;
    if (!name || (column->dtype == 0 && strcmp(name, "?") != 0))
        return wrong_line(jsonl, "columns[%zu].dtype: not a known dtype, such as \"float32\"",
                          number);
    if (values && column->dtype != TRP_STRING)
        return wrong_line(jsonl, "columns[%zu].values: only strings have them, %s has data", number,
                          name);
    if (values && !strings_read(values, strings))
        return wrong_line(
            jsonl, "columns[%zu].values: not an array of strings or {\"base64\": ...}", number);
    if (values)
        column->data = buffer_bytes(strings);
    else if (!data || !base64_decode(data, &column->data))
        return wrong_line(jsonl, "columns[%zu].data: not base64 of the elements' bytes", number);
    return shape_read(jsonl, cJSON_GetObjectItem(json, "shape"), number, column);
}

static trp_status item_parse(struct jsonl_lines *jsonl, const cJSON *json, trp_item_data *item)
{
    const char *key = cJSON_GetStringValue(cJSON_GetObjectItem(json, "key"));
    const char *version = cJSON_GetStringValue(cJSON_GetObjectItem(json, "policy_version"));
    const cJSON *columns = cJSON_GetObjectItem(json, "columns"), *each;
    *item = (trp_item_data){.table = cJSON_GetStringValue(cJSON_GetObjectItem(json, "table"))};
    if (jsonl->options->table)
        item->table = jsonl->options->table;
    if (!item->table)
        return wrong_line(jsonl, "table: not the name of one, and there is no --table");
    if (!key || !flags_u64(key, 0, UINT64_MAX, &item->key))
        return wrong_line(jsonl, "key: not a number as text, such as \"7\"");
    if (!json_read_number(cJSON_GetObjectItem(json, "priority"), &item->priority))
        return wrong_line(jsonl, "priority: not a number, \"Infinity\" or \"NaN\"");
    if (!cJSON_IsArray(columns))
        return wrong_line(jsonl, "columns: not an array");
    if (version && !flags_u64(version, 0, UINT64_MAX, &item->policy_version))
        return wrong_line(jsonl, "policy_version: not a number as text");
    size_t count = (size_t)cJSON_GetArraySize(columns);
    if (count > jsonl->column_capacity) {
        jsonl->columns = xrealloc(jsonl->columns, count * sizeof *jsonl->columns);
        jsonl->strings = xrealloc(jsonl->strings, count * sizeof *jsonl->strings);
        for (; jsonl->column_capacity < count; jsonl->column_capacity++)
            jsonl->strings[jsonl->column_capacity] = (struct buffer){0};
    }
    cJSON_ArrayForEach(each, columns)
    {
        TRP_TRY(column_read(jsonl, each, item->column_count));
        item->column_count++;
    }
    item->columns = jsonl->columns;
    return TRP_OK;
}

static trp_status table_read(const struct jsonl_lines *jsonl, const cJSON *json,
                             struct source_event *event)
{
    cJSON *given = cJSON_GetObjectItem(json, "signature");
    char *signature = cJSON_GetStringValue(given);
    event->table.name = cJSON_GetStringValue(cJSON_GetObjectItem(json, "table"));
    event->table.options = cJSON_GetStringValue(cJSON_GetObjectItem(json, "options"));
    if (!event->table.name)
        return wrong_line(jsonl, "table: not the name of one");
    if (!event->table.options)
        return wrong_line(jsonl, "options: not text, such as \"name=t sampler=fifo\"");
    if (given && (!signature || !base64_decode(signature, &event->table.signature)))
        return wrong_line(jsonl, "signature: not base64 (leave it out for none)");
    return TRP_OK;
}

static trp_status line_read(struct jsonl_lines *jsonl, struct source_event *event)
{
    const char *end = jsonl->text;
    cJSON_Delete(jsonl->json);
    jsonl->json = cJSON_ParseWithOpts(jsonl->text, &end, true); /* nothing follows */
    if (!jsonl->json)
        return wrong_line(jsonl, "not a JSON object: wrong near byte %zu",
                          (size_t)(end - jsonl->text) + 1);
    if (!cJSON_IsObject(jsonl->json))
        return wrong_line(jsonl, "not a JSON object");
    if (cJSON_GetObjectItem(jsonl->json, "troupe_dump")) {
        event->kind = SOURCE_TABLE;
        return table_read(jsonl, jsonl->json, event);
    }
    event->kind = SOURCE_ITEM;
    event->line = jsonl->line;
    return item_parse(jsonl, jsonl->json, &event->item);
}

static trp_status jsonl_next(struct source *source, struct source_event *event)
{
    struct jsonl_lines *jsonl = source->state;
    ssize_t size;
    *event = (struct source_event){.kind = SOURCE_END};
    while ((size = getline(&jsonl->text, &jsonl->capacity, jsonl->file)) >= 0) {
        jsonl->line++;
        source->done_bytes += (uint64_t)size;
        if (strlen(jsonl->text) != (size_t)size)
            return wrong_line(jsonl, "not a JSON object: it has a NUL");
        if (jsonl->text[strspn(jsonl->text, " \t\r\n")] != '\0')
            return line_read(jsonl, event);
    }
    if (!feof(jsonl->file)) /* also a line beyond memory */
        return trp_fail(TRP_INTERNAL, "%s: %s", jsonl->options->path, strerror(errno));
    return TRP_OK;
}

static trp_status jsonl_source_open(struct source *source, const struct source_options *options)
{
    struct jsonl_lines *jsonl = xcalloc(1, sizeof *jsonl);
    struct stat stat_of;
    source->state = jsonl;
    jsonl->options = options;
    jsonl->file = fopen(options->path, "re");
    if (!jsonl->file || fstat(fileno(jsonl->file), &stat_of) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: %s", options->path, strerror(errno));
    source->total_bytes = (uint64_t)stat_of.st_size;
    return TRP_OK;
}

static void jsonl_source_destroy(void *state)
{
    struct jsonl_lines *jsonl = state;
    if (jsonl->file)
        fclose(jsonl->file);
    cJSON_Delete(jsonl->json);
    for (size_t i = 0; i < jsonl->column_capacity; i++)
        buffer_cleanup(&jsonl->strings[i]);
    free(jsonl->strings);
    free(jsonl->text);
    free(jsonl->columns);
    free(jsonl);
}

const struct source_impl jsonl_source = {jsonl_source_open, jsonl_next, jsonl_source_destroy};

trp_status source_open(struct source *source, const struct source_options *options)
{
    *source = (struct source){.impl = path_is_npz(options->path) ? &npz_source : &jsonl_source};
    return source->impl->open(source, options);
}

trp_status source_next(struct source *source, struct source_event *event)
{
    return source->impl->next(source, event);
}

void source_close(struct source *source)
{
    if (source->state)
        source->impl->destroy(source->state);
    *source = (struct source){0};
}
