/* `troupe replay ls` and `info`: tables, limiters, who is blocked, the store. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/printable.h"
#include "core/words.h"
#include "json.h"
#include "output.h"
#include "show.h"

const char *option_text(const Troupe__ReplayTable *table, const char *key, char *text, size_t size)
{
    size_t length = strlen(key);
    const char *at = table->options, *word;
    for (size_t all; trp_table_options_word(&at, &word, &all);) {
        if (strncmp(word, key, length) == 0 && word[length] == '=') {
            snprintf(text, size, "%.*s", (int)(all - length - 1), word + length + 1);
            return text;
        }
    }
    return "-";
}

/* Of its items or of its bytes, whatever is nearer to the limit. */
const char *fill_text(const Troupe__ReplayTable *table, char *text)
{
    double items = table->max_size > 0 ? (double)table->size / (double)table->max_size : 0;
    double bytes = table->max_bytes > 0 ? (double)table->bytes / (double)table->max_bytes : 0;
    snprintf(text, TEXT_SIZE, "%.0f%%", 100 * (bytes > items ? bytes : items));
    return text;
}

/* "1 sampler", "2 samplers". */
static int counted(char *text, size_t size, int64_t count, const char *what)
{
    return snprintf(text, size, "%lld %s%s", (long long)count, what, count == 1 ? "" : "s");
}

const char *blocked_text(const Troupe__ReplayTable *table, char *text)
{
    size_t length = 0;
    snprintf(text, TEXT_SIZE, "-");
    if (table->inserts_waiting)
        length = (size_t)counted(text, TEXT_SIZE, table->inserts_waiting, "insert");
    if (length && table->samples_waiting)
        length += (size_t)snprintf(text + length, TEXT_SIZE - length, ", ");
    if (table->samples_waiting)
        counted(text + length, TEXT_SIZE - length, table->samples_waiting, "sampler");
    return text;
}

/* Only the named table in the answer, which owns what is dropped no longer. */
static void keep_only(Troupe__ReplayTablesResponse *tables, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < tables->n_tables; i++) {
        if (strcmp(tables->tables[i]->name, name) == 0)
            tables->tables[kept++] = tables->tables[i];
        else
            troupe__replay_table__free_unpacked(tables->tables[i], NULL);
    }
    tables->n_tables = kept;
}

/* ---- ls ---------------------------------------------------------------------------------- */

static void ls_text(const Troupe__ReplayTablesResponse *tables)
{
    static const char *const heads[] = {"NAME",    "SIZE",    "MAX",     "FILL",    "BYTES",
                                        "SAMPLER", "REMOVER", "LIMITER", "INSERTS", "SAMPLES",
                                        "DELETES", "SPI",     "BLOCKED"};
    static const bool right[] = {false, true, true, true, true, false, false,
                                 false, true, true, true, true, false};
    struct grid grid = {.columns = 13, .right = right};
    char text[128], small[TEXT_SIZE];
    grid_heads(&grid, heads);
    for (size_t i = 0; i < tables->n_tables; i++) {
        const Troupe__ReplayTable *table = tables->tables[i];
        const Troupe__ReplayLimiter *limiter = table->limiter;
        grid_add(&grid, "%s", table->name);
        grid_add(&grid, "%lld", (long long)table->size);
        grid_add(&grid, "%lld", (long long)table->max_size);
        grid_add(&grid, "%s", fill_text(table, small));
        grid_add(&grid, "%s", size_text(table->bytes, small));
        grid_add(&grid, "%s", option_text(table, "sampler", text, sizeof text));
        grid_add(&grid, "%s", option_text(table, "remover", text, sizeof text));
        grid_add(&grid, "%s", option_text(table, "limiter", text, sizeof text));
        grid_add(&grid, "%lld", (long long)limiter->inserts);
        grid_add(&grid, "%lld", (long long)limiter->samples);
        grid_add(&grid, "%lld", (long long)limiter->deletes);
        if (limiter->inserts)
            grid_add(&grid, "%.3g", (double)limiter->samples / (double)limiter->inserts);
        else
            grid_add(&grid, "-");
        grid_add(&grid, "%s", blocked_text(table, small));
    }
    grid_print(&grid, stdout);
    grid_cleanup(&grid);
}

static void names_print(const Troupe__ReplayTablesResponse *tables, bool json)
{
    cJSON *out = json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < tables->n_tables; i++) {
        if (json)
            cJSON_AddItemToArray(out, cJSON_CreateString(tables->tables[i]->name));
        else
            print_text(stdout, "%s\n", tables->tables[i]->name);
    }
    if (json)
        json_print(out);
}

static trp_status ls_work(struct work *work)
{
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&work->target, NULL, &tables));
    if (work->args->names)
        names_print(tables, work->args->json);
    else if (work->args->json)
        json_print(json_message(&tables->base));
    else
        ls_text(tables);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return TRP_OK;
}

int replay_ls(const struct cli_call *call)
{
    return target_run(call, TARGET_READ, ls_work);
}

/* ---- info -------------------------------------------------------------------------------- */

/* Reverb has DBL_MAX on the wire where there is no limit. */
static const char *diff_text(double limit, char *text)
{
    return double_text(fabs(limit) == DBL_MAX ? copysign(INFINITY, limit) : limit, text);
}

static void limiter_print(const Troupe__ReplayTable *table)
{
    const Troupe__ReplayLimiter *limiter = table->limiter;
    char low[TEXT_SIZE], high[TEXT_SIZE], diff[TEXT_SIZE], spi[TEXT_SIZE];
    print_text(stdout, "  limiter   inserts %lld, samples %lld, deletes %lld\n",
               (long long)limiter->inserts, (long long)limiter->samples,
               (long long)limiter->deletes);
    print_text(stdout,
               "            diff %s (inserts * %s - samples), allowed %s to %s; min_size %lld\n",
               double_text(limiter->diff, diff), double_text(limiter->samples_per_insert, spi),
               diff_text(limiter->min_diff, low), diff_text(limiter->max_diff, high),
               (long long)limiter->min_size);
    print_text(stdout, "            inserts may %s, samples may %s\n",
               limiter->can_insert ? "go on" : "NOT go on",
               limiter->can_sample ? "go on" : "NOT go on");
    if (table->blocked && *table->blocked)
        print_text(stdout, "            %s\n", table->blocked);
    if (table->warning && *table->warning)
        print_text(stdout, "  WARNING   %s\n", table->warning);
}

static void waiters_text(const Troupe__ReplayTable *table)
{
    char since[TEXT_SIZE];
    for (size_t i = 0; i < table->n_waiters; i++) {
        const Troupe__ReplayWaiter *waiter = table->waiters[i];
        print_text(stdout, "  blocked   %s %s %lld, for %s\n", waiter->peer,
                   waiter->sampling ? "wants samples:" : "inserts items:", (long long)waiter->count,
                   duration_text(waiter->since_seconds, since));
    }
    if (table->n_waiters == 0)
        print_text(stdout, "  blocked   nobody\n");
}

static void staleness_text(const Troupe__ReplayStaleness *age)
{
    char oldest[TEXT_SIZE], newest[TEXT_SIZE], mean[TEXT_SIZE];
    print_text(stdout, "  age       oldest %s, newest %s",
               duration_text(age->oldest_seconds, oldest),
               duration_text(age->newest_seconds, newest));
    if (age->sampled_age_seconds > 0)
        print_text(stdout, ", of what was sampled of late %s",
                   duration_text(age->sampled_age_seconds, mean));
    print_text(stdout, "\n");
    if (age->newest_version)
        print_text(stdout, "  policy    newest version %llu, samples of late are %.1f behind\n",
                   (unsigned long long)age->newest_version, age->sampled_versions_behind);
    if (age->removed_times_sampled > 0)
        print_text(stdout, "  sampled   what was removed of late was sampled %.2f times\n",
                   age->removed_times_sampled);
}

static void signature_text(const Troupe__ReplayTable *table)
{
    char *text = NULL;
    trp_bytes bytes = {table->signature.data, table->signature.len};
    if (trp_signature_format(bytes, &text) == TRP_OK)
        print_text(stdout, "  signature %s\n", text);
    else
        print_text(stdout, "  signature %zu bytes: %s\n", bytes.size, trp_last_error());
    free(text);
}

static void table_text(const Troupe__ReplayTable *table)
{
    char bytes[TEXT_SIZE], max[TEXT_SIZE], fill[TEXT_SIZE];
    print_text(stdout, "table %s\n", table->name);
    print_text(stdout, "  options   %s\n", table->options);
    print_text(stdout, "  size      %lld of %lld (%s), %lld ever sampled\n", (long long)table->size,
               (long long)table->max_size, fill_text(table, fill),
               (long long)table->unique_samples);
    print_text(stdout, "  bytes     %s", size_text(table->bytes, bytes));
    if (table->max_bytes)
        print_text(stdout, " of %s", size_text(table->max_bytes, max));
    print_text(stdout, "\n  episodes  %lld, %lld gone\n", (long long)table->episodes,
               (long long)table->episodes_deleted);
    limiter_print(table);
    waiters_text(table);
    if (table->staleness)
        staleness_text(table->staleness);
    if (table->signature.len)
        signature_text(table);
    if (table->indexing)
        print_text(stdout, "  the index of keys is being built: inserts and updates wait\n");
    putchar('\n');
}

static void store_text(const Troupe__ReplayTablesResponse *tables)
{
    char a[TEXT_SIZE], b[TEXT_SIZE];
    const Troupe__ReplayStore *store = tables->store;
    print_text(stdout, "store %s\n", store->dir);
    if (tables->pid)
        print_text(stdout, "  server    pid %lld, up %s, durability %s, %lld stream%s, troupe %s\n",
                   (long long)tables->pid, duration_text(tables->uptime_seconds, a),
                   store->durability, (long long)tables->streams, plural(tables->streams),
                   tables->version);
    else
        print_text(stdout, "  server    stopped\n");
    print_text(stdout, "  holds     %llu item%s, %llu chunk%s, %s\n",
               (unsigned long long)store->items, plural((int64_t)store->items),
               (unsigned long long)store->chunks, plural((int64_t)store->chunks),
               size_text(store->live_bytes, a));
    print_text(stdout, "  file      takes %s of the disk, may grow to %s\n",
               size_text(store->allocated_bytes, a), size_text(store->map_bytes, b));
    if (tables->work)
        print_text(stdout, "  at work   %s: %s of %s\n", tables->work->what,
                   size_text(tables->work->done_bytes, a), size_text(tables->work->total_bytes, b));
}

static trp_status info_work(struct work *work)
{
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&work->target, work->table, &tables));
    if (work->table)
        keep_only(tables, work->table);
    if (work->args->json) {
        json_print(json_message(&tables->base));
    } else {
        for (size_t i = 0; i < tables->n_tables; i++)
            table_text(tables->tables[i]);
        store_text(tables);
    }
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return TRP_OK;
}

int replay_info(const struct cli_call *call)
{
    return target_run(call, TARGET_READ, info_work);
}
