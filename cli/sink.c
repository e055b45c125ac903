/* What the kinds of files have in common: which one a path means, and items that it cannot hold. */
#include "sink.h"

#include <inttypes.h>
#include <string.h>

#include "core/printable.h"
#include "core/words.h"
#include "json.h"
#include "replay_target.h"

static bool ends_in(const char *path, const char *end)
{
    size_t size = strlen(path), most = strlen(end);
    return size > most && strcmp(path + size - most, end) == 0;
}

bool path_is_npz(const char *path)
{
    return ends_in(path, ".npz");
}

bool sink_check(const char *name, const char *path)
{
    bool right = path_is_npz(path) || ends_in(path, ".jsonl");
    if (!right)
        cli_wrong(name, "%s: call it FILE.npz or FILE.jsonl", path);
    return right;
}

trp_status sink_open(struct sink *sink, const char *path, bool many)
{
    *sink = (struct sink){.impl = path_is_npz(path) ? &npz_sink : &jsonl_sink};
    return sink->impl->open(&sink->state, path, many);
}

trp_status sink_table(struct sink *sink, const Troupe__ReplayTable *table)
{
    sink->table = table;
    sink->told = false;
    return sink->impl ? sink->impl->table(sink->state, table) : TRP_OK;
}

trp_status sink_column(const struct sink *sink, size_t count, size_t index, int32_t dtype)
{
    char number[COLUMN_TEXT_SIZE];
    if (!sink->impl || sink->impl->holds(dtype))
        return TRP_OK;
    return trp_fail(TRP_UNIMPLEMENTED,
                    "column %s has elements of type %s, which FILE.npz cannot hold; FILE.jsonl can",
                    column_name(sink->table, count, index, number),
                    trp_dtype_name((trp_dtype)dtype));
}

void sink_leave_out(struct sink *sink)
{
    sink->left_out++;
    if (!sink->told)
        print_text(stderr, "warning: table %s: an item is left out: %s\n", sink->table->name,
                   trp_last_error());
    sink->told = true;
}

trp_status sink_item(struct sink *sink, const trp_item_data *item)
{
    for (size_t i = 0; i < item->column_count; i++) {
        if (sink_column(sink, item->column_count, i, item->columns[i].dtype) == TRP_OK)
            continue;
        sink_leave_out(sink);
        return TRP_OK;
    }
    trp_status status = sink->impl->item(sink->state, item);
    sink->items += status == TRP_OK;
    sink->broken = status != TRP_OK;
    return status;
}

void sink_print(const struct sink *sink, const char *path, bool json)
{
    if (json) {
        cJSON *out = cJSON_CreateObject();
        json_add_i64(out, "items", (int64_t)sink->items);
        json_add_i64(out, "left_out", (int64_t)sink->left_out);
        cJSON_AddStringToObject(out, "file", path);
        json_print(out);
        return;
    }
    print_text(stdout, "%" PRIu64 " item%s in %s", sink->items, plural((int64_t)sink->items), path);
    if (sink->left_out > 0)
        print_text(stdout, ", %" PRIu64 " left out", sink->left_out);
    print_text(stdout, "\n");
}

void sink_close(struct sink *sink)
{
    if (sink->state)
        sink->impl->destroy(sink->state);
    *sink = (struct sink){0};
}
