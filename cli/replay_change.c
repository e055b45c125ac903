/* Commands that change what tables hold: drop, reset, set-priority, delete. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/sampler.h>
#include "core/alloc.h"
#include "core/array.h"
#include "core/flags.h"
#include "core/printable.h"
#include "core/words.h"
#include "json.h"
#include "output.h"

#include "replay_target.h"

enum { DELETE_BATCH = 1000, RPC_TIMEOUT_MS = 60000 };

/* {"done": what, "NAME": value} or a line of text; `name` is a plural in s. */
static void done_print(const struct work *work, const char *what, const char *name, int64_t value)
{
    if (!work->args->json) {
        if (name)
            print_text(stdout, "%s: %" PRId64 " %.*s\n", what, value,
                       (int)strlen(name) - (value == 1), name);
        else
            print_text(stdout, "%s\n", what);
        return;
    }
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "done", what);
    if (name)
        json_add_i64(out, name, value);
    json_print(out);
}

/* ---- tables ------------------------------------------------------------------------------ */

static trp_status size_ask(const struct work *work, int64_t *size)
{
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&work->target, work->table, &tables));
    *size = tables_find(tables, work->table)->size;
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return TRP_OK;
}

static trp_status drop_work(struct work *work)
{
    Troupe__ReplayDropTableRequest request = TROUPE__REPLAY_DROP_TABLE_REQUEST__INIT;
    int64_t size;
    request.table = (char *)(uintptr_t)work->table;
    request.only_if_empty = work->args->if_empty;
    TRP_TRY(size_ask(work, &size));
    if (size > 0 && !work->args->if_empty)
        TRP_TRY(confirm(work->args->yes, "Drop table %s and its %" PRId64 " item%s?", work->table,
                        size, plural(size)));
    TRP_TRY(target_call(&work->target, "DropTable", &request.base, NULL));
    done_print(work, "dropped", "items", work->args->if_empty ? 0 : size);
    return TRP_OK;
}

int replay_drop(const struct cli_call *call)
{
    return target_run(call, TARGET_WRITE, drop_work);
}

/* ---- items ------------------------------------------------------------------------------- */

static trp_status reset_work(struct work *work)
{
    int64_t size;
    TRP_TRY(size_ask(work, &size));
    if (size > 0)
        TRP_TRY(confirm(work->args->yes, "Remove the %" PRId64 " item%s of table %s?", size,
                        plural(size), work->table));
    TRP_TRY(trp_replay_reset(work->target.channel, work->table, RPC_TIMEOUT_MS));
    done_print(work, "reset", "items", size);
    return TRP_OK;
}

int replay_reset(const struct cli_call *call)
{
    return target_run(call, TARGET_WRITE, reset_work);
}

/* How many of these keys the table has; `missing` gets one that it has not. */
static trp_status keys_count(const struct work *work, const uint64_t *keys, size_t count,
                             size_t *there, uint64_t *missing)
{
    *there = 0;
    for (size_t at = 0; at < count; at += DELETE_BATCH) {
        Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
        Troupe__ReplayFilter filter = TROUPE__REPLAY_FILTER__INIT;
        ProtobufCMessage *reply = NULL;
        filter.keys = (uint64_t *)(uintptr_t)keys + at;
        filter.n_keys = count - at < DELETE_BATCH ? count - at : DELETE_BATCH;
        request.table = (char *)(uintptr_t)work->table;
        request.filter = &filter;
        request.count = DELETE_BATCH;
        TRP_TRY(target_call(&work->target, "Items", &request.base, &reply));
        const Troupe__ReplayItemsResponse *items = (const Troupe__ReplayItemsResponse *)reply;
        for (size_t i = 0; i < filter.n_keys; i++) {
            bool found = false;
            for (size_t j = 0; j < items->n_items && !found; j++)
                found = items->items[j]->key == filter.keys[i];
            *there += found;
            if (!found)
                *missing = filter.keys[i];
        }
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return TRP_OK;
}

/* Unknown keys are ignored by Reverb's rpcs; a person wants to know. */
static trp_status keys_check(const struct work *work, const uint64_t *keys, size_t count)
{
    size_t there;
    uint64_t missing = 0;
    TRP_TRY(keys_count(work, keys, count, &there, &missing));
    if (there < count)
        return trp_fail(TRP_NOT_FOUND,
                        "table %s has no item with key %" PRIu64
                        " (%zu of %zu are there); nothing was changed",
                        work->table, missing, there, count);
    return TRP_OK;
}

/* Any number, and inf and -inf: whether the table's selectors take it, the server knows. */
static bool parse_priority(const char *text, double *priority)
{
    *priority = *text == '-' ? -INFINITY : INFINITY;
    return strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0 || flags_decimal(text, priority);
}

/* "KEY=PRIORITY". */
static trp_status parse_update(char *word, uint64_t *key, double *priority)
{
    char *equals = strchr(word, '=');
    if (equals)
        *equals = '\0';
    bool ok = equals && flags_u64(word, 0, UINT64_MAX, key) && parse_priority(equals + 1, priority);
    if (equals)
        *equals = '=';
    return ok ? TRP_OK
              : trp_fail(TRP_INVALID_ARGUMENT,
                         "'%s' is not KEY=PRIORITY (a priority is a number, inf or -inf)", word);
}

/* How many items keys name that may come more than once; sorts them. */
static int64_t keys_distinct(uint64_t *keys, size_t count)
{
    int64_t distinct = 0;
    if (count > 1)
        qsort(keys, count, sizeof *keys, u64_compare);
    for (size_t i = 0; i < count; i++)
        distinct += i == 0 || keys[i] != keys[i - 1];
    return distinct;
}

static trp_status priorities_send(const struct work *work, const uint64_t *keys,
                                  const double *priorities, size_t count)
{
    trp_priority_writer *writer;
    TRP_TRY(trp_priority_writer_create(&writer, work->target.channel, work->table, 1));
    trp_status status = trp_priority_writer_update(writer, keys, priorities, count, RPC_TIMEOUT_MS);
    if (status == TRP_OK)
        status = trp_priority_writer_flush(writer, RPC_TIMEOUT_MS);
    trp_priority_writer_destroy(writer);
    return status;
}

static trp_status set_priority_work(struct work *work)
{
    size_t count = work->call->word_count - 2;
    uint64_t *keys = xcalloc(count, sizeof *keys);
    double *priorities = xcalloc(count, sizeof *priorities);
    trp_status status = TRP_OK;
    for (size_t i = 0; status == TRP_OK && i < count; i++)
        status = parse_update(work->call->words[2 + i], &keys[i], &priorities[i]);
    if (status == TRP_OK)
        status = keys_check(work, keys, count);
    if (status == TRP_OK)
        status = priorities_send(work, keys, priorities, count);
    int64_t items = keys_distinct(keys, count);
    free(keys);
    free(priorities);
    TRP_TRY(status);
    done_print(work, "priorities set", "items", items);
    return TRP_OK;
}

int replay_set_priority(const struct cli_call *call)
{
    uint64_t key;
    double priority;
    for (size_t i = 2; i < call->word_count; i++) {
        trp_status status = parse_update(call->words[i], &key, &priority);
        if (status != TRP_OK)
            return cli_failed(call->name, status);
    }
    return target_run(call, TARGET_WRITE, set_priority_work);
}

/* The keys that the filter passes, at most as many as one answer has. */
static trp_status matching_keys(const struct work *work, Troupe__ReplayFilter *filter,
                                uint64_t *keys, size_t *count, int64_t *matches)
{
    Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.table = (char *)(uintptr_t)work->table;
    request.count = DELETE_BATCH;
    request.order = TROUPE__REPLAY_ORDER__REPLAY_ORDER_OLDEST;
    request.filter = filter;
    TRP_TRY(target_call(&work->target, "Items", &request.base, &reply));
    const Troupe__ReplayItemsResponse *items = (const Troupe__ReplayItemsResponse *)reply;
    *matches = items->matches;
    *count = 0;
    for (size_t i = 0; i < items->n_items && i < DELETE_BATCH; i++)
        keys[(*count)++] = items->items[i]->key;
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

static trp_status delete_matching(struct work *work, int64_t *deleted)
{
    uint64_t keys[DELETE_BATCH];
    Troupe__ReplayFilter filter;
    struct progress_line progress;
    size_t count;
    int64_t matches = 0;
    *deleted = 0;
    TRP_TRY(filter_init(&filter, &work->args->filter));
    trp_status status = matching_keys(work, &filter, keys, &count, &matches);
    if (status == TRP_OK && matches == 0)
        status = trp_fail(TRP_NOT_FOUND, "no item of table %s matches", work->table);
    if (status == TRP_OK)
        status = confirm(work->args->yes, "Delete %" PRId64 " item%s of table %s?", matches,
                         plural(matches), work->table);
    progress_begin(&progress, "delete", "items", matches > 0 ? (uint64_t)matches : 0);
    while (status == TRP_OK && count > 0 && *deleted < matches) {
        status = trp_replay_delete(work->target.channel, work->table, keys, count, RPC_TIMEOUT_MS);
        *deleted += (int64_t)count;
        progress_show(&progress, (uint64_t)*deleted);
        if (status == TRP_OK)
            status = matching_keys(work, &filter, keys, &count, &(int64_t){0});
    }
    progress_end(&progress);
    filter_cleanup(&filter);
    return status;
}

static trp_status delete_keys(struct work *work, int64_t *deleted)
{
    struct cli_list list = {(const char **)work->call->words + 2, work->call->word_count - 2};
    Troupe__ReplayFilter filter;
    TRP_TRY(filter_init(&filter, &(struct filter_args){.keys = list}));
    trp_status status = keys_check(work, filter.keys, filter.n_keys);
    if (status == TRP_OK)
        status = trp_replay_delete(work->target.channel, work->table, filter.keys, filter.n_keys,
                                   RPC_TIMEOUT_MS);
    *deleted = keys_distinct(filter.keys, filter.n_keys);
    filter_cleanup(&filter);
    return status;
}

static trp_status delete_work(struct work *work)
{
    int64_t deleted;
    bool keys = work->call->word_count > 2;
    TRP_TRY(keys ? delete_keys(work, &deleted) : delete_matching(work, &deleted));
    done_print(work, "deleted", "items", deleted);
    return TRP_OK;
}

int replay_delete(const struct cli_call *call)
{
    const struct replay_args *args = call->args;
    if ((call->word_count > 2) == filter_given(&args->filter))
        return cli_wrong(call->name, "delete what? KEY... or options such as --max-priority, one "
                                     "of the two");
    for (size_t i = 2; i < call->word_count; i++)
        if (!key_check(call->name, call->words[i]))
            return EXIT_USAGE;
    return target_run(call, TARGET_WRITE, delete_work);
}
