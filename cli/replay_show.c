/* `troupe replay ls` and `info`: tables, limiters, who is blocked, the store. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "replay_target.h"

static Troupe__ReplayTablesResponse *tables_get(struct target *target)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    if (target_call(target, "Tables", &request.base, &reply) != TRP_OK)
        return NULL;
    return (Troupe__ReplayTablesResponse *)reply;
}

/* The value of "key=value" in a table's options. */
static const char *option_text(const Troupe__ReplayTable *table, const char *key, char *text,
                               size_t size)
{
    size_t length = strlen(key);
    for (const char *word = table->options; *word; word += strcspn(word, " ")) {
        word += strspn(word, " ");
        if (strncmp(word, key, length) == 0 && word[length] == '=') {
            snprintf(text, size, "%.*s", (int)(strcspn(word, " ") - length - 1), word + length + 1);
            return text;
        }
    }
    return "-";
}

static const char *blocked_text(const Troupe__ReplayTable *table, char *text, size_t size)
{
    if (table->inserts_waiting && table->samples_waiting)
        snprintf(text, size, "%lld inserts, %lld samplers", (long long)table->inserts_waiting,
                 (long long)table->samples_waiting);
    else if (table->inserts_waiting)
        snprintf(text, size, "%lld inserts", (long long)table->inserts_waiting);
    else if (table->samples_waiting)
        snprintf(text, size, "%lld samplers", (long long)table->samples_waiting);
    else
        return "-";
    return text;
}

static void ls_text(const Troupe__ReplayTablesResponse *tables)
{
    static const char *const heads[] = {"NAME",    "SIZE",    "MAX",     "SAMPLER", "REMOVER",
                                        "LIMITER", "INSERTS", "SAMPLES", "BLOCKED"};
    static const bool right[] = {false, true, true, false, false, false, true, true, false};
    struct grid grid = {.columns = 9, .right = right};
    char text[128];
    for (size_t i = 0; i < grid.columns; ++i)
        grid_add(&grid, "%s", heads[i]);
    for (size_t i = 0; i < tables->n_tables; ++i) {
        const Troupe__ReplayTable *table = tables->tables[i];
        grid_add(&grid, "%s", table->name);
        grid_add(&grid, "%lld", (long long)table->size);
        grid_add(&grid, "%lld", (long long)table->max_size);
        grid_add(&grid, "%s", option_text(table, "sampler", text, sizeof text));
        grid_add(&grid, "%s", option_text(table, "remover", text, sizeof text));
        grid_add(&grid, "%s", option_text(table, "limiter", text, sizeof text));
        grid_add(&grid, "%lld", (long long)table->limiter->inserts);
        grid_add(&grid, "%lld", (long long)table->limiter->samples);
        grid_add(&grid, "%s", blocked_text(table, text, sizeof text));
    }
    grid_print(&grid);
    grid_cleanup(&grid);
}

/* ---- JSON -------------------------------------------------------------------------------- */

static cJSON *limiter_json(const Troupe__ReplayLimiter *limiter)
{
    cJSON *out = cJSON_CreateObject();
    cJSON_AddNumberToObject(out, "samples_per_insert", limiter->samples_per_insert);
    json_add_i64(out, "min_size", limiter->min_size);
    cJSON_AddNumberToObject(out, "min_diff", limiter->min_diff);
    cJSON_AddNumberToObject(out, "max_diff", limiter->max_diff);
    json_add_i64(out, "inserts", limiter->inserts);
    json_add_i64(out, "samples", limiter->samples);
    json_add_i64(out, "deletes", limiter->deletes);
    cJSON_AddNumberToObject(out, "diff", limiter->diff);
    cJSON_AddBoolToObject(out, "can_insert", limiter->can_insert);
    cJSON_AddBoolToObject(out, "can_sample", limiter->can_sample);
    return out;
}

static cJSON *table_json(const Troupe__ReplayTable *table)
{
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "name", table->name);
    cJSON_AddStringToObject(out, "options", table->options);
    json_add_i64(out, "size", table->size);
    json_add_i64(out, "max_size", table->max_size);
    json_add_i64(out, "unique_samples", table->unique_samples);
    cJSON_AddItemToObject(out, "limiter", limiter_json(table->limiter));
    json_add_i64(out, "inserts_waiting", table->inserts_waiting);
    json_add_i64(out, "samples_waiting", table->samples_waiting);
    cJSON *waiters = cJSON_AddArrayToObject(out, "waiters");
    for (size_t i = 0; i < table->n_waiters; ++i) {
        const Troupe__ReplayWaiter *waiter = table->waiters[i];
        cJSON *each = cJSON_CreateObject();
        cJSON_AddStringToObject(each, "peer", waiter->peer);
        cJSON_AddStringToObject(each, "wants", waiter->sampling ? "sample" : "insert");
        json_add_i64(each, "count", waiter->count);
        cJSON_AddNumberToObject(each, "since_seconds", waiter->since_seconds);
        cJSON_AddItemToArray(waiters, each);
    }
    json_add_i64(out, "signature_bytes", (int64_t)table->signature.len);
    cJSON_AddBoolToObject(out, "indexing", table->indexing);
    return out;
}

static cJSON *store_json(const Troupe__ReplayStore *store)
{
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "dir", store->dir);
    cJSON_AddStringToObject(out, "durability", store->durability);
    json_add_i64(out, "file_bytes", (int64_t)store->file_bytes);
    json_add_i64(out, "live_bytes", (int64_t)store->live_bytes);
    json_add_i64(out, "allocated_bytes", (int64_t)store->allocated_bytes);
    json_add_i64(out, "map_bytes", (int64_t)store->map_bytes);
    json_add_i64(out, "cache_bytes", (int64_t)store->cache_bytes);
    json_add_i64(out, "items", (int64_t)store->items);
    json_add_i64(out, "chunks", (int64_t)store->chunks);
    json_add_i64(out, "groups", (int64_t)store->groups);
    return out;
}

static void tables_json(const Troupe__ReplayTablesResponse *tables, const char *only)
{
    cJSON *out = cJSON_CreateObject();
    json_add_i64(out, "pid", tables->pid);
    cJSON_AddNumberToObject(out, "uptime_seconds", tables->uptime_seconds);
    cJSON_AddItemToObject(out, "store", store_json(tables->store));
    cJSON *array = cJSON_AddArrayToObject(out, "tables");
    for (size_t i = 0; i < tables->n_tables; ++i)
        if (!only || strcmp(only, tables->tables[i]->name) == 0)
            cJSON_AddItemToArray(array, table_json(tables->tables[i]));
    json_print(out);
}

/* ---- info -------------------------------------------------------------------------------- */

static const char *limit_text(double limit, char *text, size_t size)
{
    if (limit >= DBL_MAX || limit <= -DBL_MAX)
        return limit > 0 ? "inf" : "-inf";
    snprintf(text, size, "%g", limit);
    return text;
}

static void limiter_text(const Troupe__ReplayLimiter *limiter)
{
    char low[32], high[32];
    printf("  limiter   inserts %lld, samples %lld, deletes %lld\n", (long long)limiter->inserts,
           (long long)limiter->samples, (long long)limiter->deletes);
    printf("            diff %g (inserts * %g - samples), allowed %s to %s; min_size %lld\n",
           limiter->diff, limiter->samples_per_insert,
           limit_text(limiter->min_diff, low, sizeof low),
           limit_text(limiter->max_diff, high, sizeof high), (long long)limiter->min_size);
    printf("            inserts may %s, samples may %s\n",
           limiter->can_insert ? "go on" : "NOT go on",
           limiter->can_sample ? "go on" : "NOT go on");
}

static void waiters_text(const Troupe__ReplayTable *table)
{
    size_t shown = table->n_waiters;
    for (size_t i = 0; i < shown; ++i) {
        const Troupe__ReplayWaiter *waiter = table->waiters[i];
        printf("  blocked   %s %s %lld, for %.1f s\n", waiter->peer,
               waiter->sampling ? "wants samples:" : "inserts items:", (long long)waiter->count,
               waiter->since_seconds);
    }
    if (shown == 0)
        printf("  blocked   nobody\n");
}

static void table_text(const Troupe__ReplayTable *table)
{
    printf("table %s\n", table->name);
    printf("  options   %s\n", table->options);
    printf("  size      %lld of %lld, %lld ever sampled\n", (long long)table->size,
           (long long)table->max_size, (long long)table->unique_samples);
    limiter_text(table->limiter);
    waiters_text(table);
    if (table->signature.len)
        printf("  signature %zu bytes\n", table->signature.len);
    if (table->indexing)
        printf("  the index of keys is being built: inserts and updates wait\n");
    putchar('\n');
}

static void info_text(const Troupe__ReplayTablesResponse *tables, const char *only)
{
    char a[32], b[32], c[32];
    const Troupe__ReplayStore *store = tables->store;
    for (size_t i = 0; i < tables->n_tables; ++i)
        if (!only || strcmp(only, tables->tables[i]->name) == 0)
            table_text(tables->tables[i]);
    printf("store %s\n", store->dir);
    if (tables->pid)
        printf("  server    pid %lld, up %.0f s, durability %s\n", (long long)tables->pid,
               tables->uptime_seconds, store->durability);
    else
        printf("  server    stopped\n");
    printf("  holds     %llu items, %llu chunks, %s\n", (unsigned long long)store->items,
           (unsigned long long)store->chunks, bytes_text(store->live_bytes, a));
    printf("  file      %s", bytes_text(store->allocated_bytes, a));
    if (store->file_bytes)
        printf(", %s of it used", bytes_text(store->file_bytes, b));
    printf("; may grow to %s\n", bytes_text(store->map_bytes, c));
}

static bool has_table(const Troupe__ReplayTablesResponse *tables, const char *name)
{
    for (size_t i = 0; i < tables->n_tables; ++i)
        if (strcmp(tables->tables[i]->name, name) == 0)
            return true;
    return false;
}

static int show(const char *command, const struct show_options *options, bool info)
{
    struct target target;
    Troupe__ReplayTablesResponse *tables = NULL;
    int status = 0;
    if (target_open(&target, options->target) != TRP_OK || !(tables = tables_get(&target)))
        status = cli_failed(command);
    else if (options->table && !has_table(tables, options->table)) {
        trp_fail(TRP_NOT_FOUND, "%s has no table %s", options->target, options->table);
        status = cli_failed(command);
    } else if (options->json)
        tables_json(tables, options->table);
    else if (info)
        info_text(tables, options->table);
    else
        ls_text(tables);
    if (tables)
        troupe__replay_tables_response__free_unpacked(tables, NULL);
    target_close(&target);
    return status;
}

int replay_ls(int argc, char **argv)
{
    struct show_options options = {.usage = "TARGET"};
    int status = show_parse(
        &options, "Lists the tables of the server at an address, or in a directory.", argc, argv);
    return status ? status : show(argv[0], &options, false);
}

int replay_info(int argc, char **argv)
{
    struct show_options options = {.usage = "TARGET [TABLE]"};
    int status =
        show_parse(&options, "Says how tables, their limiters and the store are.", argc, argv);
    return status ? status : show(argv[0], &options, true);
}
