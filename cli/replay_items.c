/* `troupe replay items` and `peek`: what the sampler likes best, and what is in one item. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <troupe/tensor.h>
#include "core/alloc.h"
#include "replay_target.h"

enum { VALUES_SHOWN = 16 };

static const char *time_text(int64_t ns, char *text, size_t size)
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm parts;
    if (!localtime_r(&seconds, &parts))
        return "-";
    size_t length = strftime(text, size, "%Y-%m-%d %H:%M:%S", &parts);
    snprintf(text + length, size - length, ".%03lld", (long long)(ns / 1000000 % 1000));
    return text;
}

static cJSON *item_json(const Troupe__ReplayItem *item)
{
    cJSON *out = cJSON_CreateObject();
    json_add_key(out, "key", item->key);
    cJSON_AddNumberToObject(out, "priority", item->priority);
    json_add_i64(out, "times_sampled", item->times_sampled);
    json_add_i64(out, "inserted_at_ns", item->inserted_at_ns);
    json_add_i64(out, "chunks", item->chunk_count);
    json_add_i64(out, "bytes", (int64_t)item->bytes);
    return out;
}

/* ---- items ------------------------------------------------------------------------------- */

static void items_text(const Troupe__ReplayItemsResponse *items)
{
    static const char *const heads[] = {"KEY",    "PRIORITY", "SAMPLED",
                                        "CHUNKS", "BYTES",    "INSERTED"};
    static const bool right[] = {true, true, true, true, true, false};
    struct grid grid = {.columns = 6, .right = right};
    char text[64];
    for (size_t i = 0; i < grid.columns; ++i)
        grid_add(&grid, "%s", heads[i]);
    for (size_t i = 0; i < items->n_items; ++i) {
        const Troupe__ReplayItem *item = items->items[i];
        grid_add(&grid, "%" PRIu64, item->key);
        grid_add(&grid, "%g", item->priority);
        grid_add(&grid, "%d", item->times_sampled);
        grid_add(&grid, "%u", item->chunk_count);
        grid_add(&grid, "%" PRIu64, item->bytes);
        grid_add(&grid, "%s", time_text(item->inserted_at_ns, text, sizeof text));
    }
    grid_print(&grid);
    grid_cleanup(&grid);
    printf("%zu of %lld items, %s\n", items->n_items, (long long)items->table_size, items->order);
}

static void items_json(const Troupe__ReplayItemsResponse *items)
{
    cJSON *out = cJSON_CreateObject();
    json_add_i64(out, "table_size", items->table_size);
    cJSON_AddStringToObject(out, "order", items->order);
    cJSON *array = cJSON_AddArrayToObject(out, "items");
    for (size_t i = 0; i < items->n_items; ++i)
        cJSON_AddItemToArray(array, item_json(items->items[i]));
    json_print(out);
}

static int items_show(const char *command, const struct show_options *options)
{
    struct target target;
    Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.table = (char *)options->table;
    request.count = (uint32_t)options->count;
    trp_status status = target_open(&target, options->target);
    if (status == TRP_OK)
        status = target_call(&target, "Items", &request.base, &reply);
    int exit_status = status == TRP_OK ? 0 : cli_failed(command);
    if (status == TRP_OK && options->json)
        items_json((const Troupe__ReplayItemsResponse *)reply);
    else if (status == TRP_OK)
        items_text((const Troupe__ReplayItemsResponse *)reply);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    target_close(&target);
    return exit_status;
}

int replay_items(int argc, char **argv)
{
    struct show_options options = {
        .usage = "TARGET TABLE", .table_needed = true, .with_count = true, .count = 10};
    int status = show_parse(&options, "Lists the items of a table, the sampler's favourites first.",
                            argc, argv);
    return status ? status : items_show(argv[0], &options);
}

/* ---- peek -------------------------------------------------------------------------------- */

static double value_at(const uint8_t *data, trp_dtype dtype, size_t index)
{
#define VALUE(type)                                                                                \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, data + index * sizeof value, sizeof value);                                 \
        return (double)value;                                                                      \
    }
    switch (dtype) {
    case TRP_FLOAT32:
        VALUE(float)
    case TRP_FLOAT64:
        VALUE(double)
    case TRP_INT32:
        VALUE(int32_t)
    case TRP_UINT8:
    case TRP_BOOL:
        VALUE(uint8_t)
    case TRP_INT16:
        VALUE(int16_t)
    case TRP_INT8:
        VALUE(int8_t)
    case TRP_INT64:
        VALUE(int64_t)
    case TRP_UINT16:
        VALUE(uint16_t)
    case TRP_UINT32:
        VALUE(uint32_t)
    case TRP_UINT64:
        VALUE(uint64_t)
    }
#undef VALUE
    return 0;
}

/* "float32", or TensorFlow's number where C has no such type. */
static const char *dtype_text(int32_t dtype, char *text, size_t size)
{
    if (trp_dtype_size((trp_dtype)dtype))
        return trp_dtype_name((trp_dtype)dtype);
    if (dtype == 0)
        return "?";
    snprintf(text, size, "DataType %d", dtype);
    return text;
}

static size_t value_count(const Troupe__ReplayColumn *column)
{
    size_t size = trp_dtype_size((trp_dtype)column->dtype);
    return column->has_values && size ? column->values.len / size : 0;
}

static void shape_text(const Troupe__ReplayColumn *column, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "[");
    for (size_t i = 0; i < column->n_shape && length + 24 < size; ++i)
        length += (size_t)snprintf(text + length, size - length, "%s%lld", i ? "," : "",
                                   (long long)column->shape[i]);
    snprintf(text + length, size - length, "]");
}

static void column_text(struct grid *grid, size_t index, const Troupe__ReplayColumn *column)
{
    char shape[256], name[32], values[512] = "";
    size_t count = value_count(column), length = 0;
    shape_text(column, shape, sizeof shape);
    for (size_t i = 0; i < count && i < VALUES_SHOWN; ++i)
        length += (size_t)snprintf(values + length, sizeof values - length, "%s%.9g", i ? " " : "",
                                   value_at(column->values.data, (trp_dtype)column->dtype, i));
    grid_add(grid, "%zu", index);
    grid_add(grid, "%s", dtype_text(column->dtype, name, sizeof name));
    grid_add(grid, "%s", column->dtype ? shape : "?");
    grid_add(grid, "%s%s", column->has_values ? values : "(not shown)",
             count > VALUES_SHOWN ? " ..." : "");
}

static void peek_text(const Troupe__ReplayPeekResponse *peek)
{
    static const char *const heads[] = {"COLUMN", "TYPE", "SHAPE", "VALUES"};
    struct grid grid = {.columns = 4};
    char text[64];
    const Troupe__ReplayItem *item = peek->item;
    printf("key %" PRIu64 "  priority %g  sampled %d times  inserted %s  %u chunks, %" PRIu64
           " bytes\n",
           item->key, item->priority, item->times_sampled,
           time_text(item->inserted_at_ns, text, sizeof text), item->chunk_count, item->bytes);
    for (size_t i = 0; i < grid.columns; ++i)
        grid_add(&grid, "%s", heads[i]);
    for (size_t i = 0; i < peek->n_columns; ++i)
        column_text(&grid, i, peek->columns[i]);
    grid_print(&grid);
    grid_cleanup(&grid);
}

static cJSON *column_json(const Troupe__ReplayColumn *column)
{
    char name[32];
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "dtype", dtype_text(column->dtype, name, sizeof name));
    cJSON *shape = cJSON_AddArrayToObject(out, "shape");
    for (size_t i = 0; i < column->n_shape; ++i)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)column->shape[i]));
    json_add_i64(out, "slices", column->slices);
    cJSON_AddBoolToObject(out, "squeezed", column->squeezed);
    if (!column->has_values)
        return out;
    cJSON *values = cJSON_AddArrayToObject(out, "values");
    for (size_t i = 0; i < value_count(column); ++i)
        cJSON_AddItemToArray(
            values, cJSON_CreateNumber(value_at(column->values.data, (trp_dtype)column->dtype, i)));
    return out;
}

static void peek_json(const Troupe__ReplayPeekResponse *peek)
{
    cJSON *out = item_json(peek->item);
    cJSON *columns = cJSON_AddArrayToObject(out, "columns");
    for (size_t i = 0; i < peek->n_columns; ++i)
        cJSON_AddItemToArray(columns, column_json(peek->columns[i]));
    json_print(out);
}

static int peek_show(const char *command, const struct show_options *options)
{
    struct target target;
    Troupe__ReplayPeekRequest request = TROUPE__REPLAY_PEEK_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.table = (char *)options->table;
    request.has_key = options->has_key;
    request.key = options->key;
    trp_status status = target_open(&target, options->target);
    if (status == TRP_OK)
        status = target_call(&target, "Peek", &request.base, &reply);
    int exit_status = status == TRP_OK ? 0 : cli_failed(command);
    if (status == TRP_OK && options->json)
        peek_json((const Troupe__ReplayPeekResponse *)reply);
    else if (status == TRP_OK)
        peek_text((const Troupe__ReplayPeekResponse *)reply);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    target_close(&target);
    return exit_status;
}

int replay_peek(int argc, char **argv)
{
    struct show_options options = {.usage = "TARGET TABLE", .table_needed = true, .with_key = true};
    int status = show_parse(&options, "Shows one item: its columns, and values where they are few.",
                            argc, argv);
    return status ? status : peek_show(argv[0], &options);
}
