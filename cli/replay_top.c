/* `troupe replay top`: what a server does now, again and again.
 *
 * On a terminal the text is redrawn in place; TERM and INT are taken with sigtimedwait(), which is
 * also the pause between two looks, so that the cursor is always put right. Otherwise lines are
 * appended, and with -o json one object a look. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "json.h"
#include "output.h"
#include "show.h"

struct top {
    struct work *work;
    Troupe__ReplayTablesResponse *now, *before; /* `before` NULL: the first look */
    int64_t now_ns, before_ns;
    bool terminal;
};

struct rates {
    double inserts, samples, deletes; /* a second */
};

static struct rates rates_of(const struct top *top, const Troupe__ReplayTable *table)
{
    const Troupe__ReplayTable *old = top->before ? tables_find(top->before, table->name) : NULL;
    double seconds = (double)(top->now_ns - top->before_ns) * 1e-9;
    if (!old || seconds <= 0)
        return (struct rates){0};
    const Troupe__ReplayLimiter *a = old->limiter, *b = table->limiter;
    return (struct rates){(double)(b->inserts - a->inserts) / seconds,
                          (double)(b->samples - a->samples) / seconds,
                          (double)(b->deletes - a->deletes) / seconds};
}

/* What the limiter does, in a few words. */
static const char *limiter_words(const Troupe__ReplayTable *table)
{
    const Troupe__ReplayLimiter *limiter = table->limiter;
    if (table->indexing)
        return "building its index";
    if (!limiter->can_insert && !limiter->can_sample)
        return "holds back both";
    if (!limiter->can_insert)
        return "holds back inserts";
    if (!limiter->can_sample)
        return table->size == 0                  ? "empty"
               : table->size < limiter->min_size ? "fills up to min_size"
                                                 : "holds back samples";
    return "lets all go on";
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void look_json(const struct top *top)
{
    cJSON *out = json_message(&top->now->base);
    cJSON *tables = cJSON_GetObjectItem(out, "tables");
    for (size_t i = 0; i < top->now->n_tables; ++i) {
        struct rates rates = rates_of(top, top->now->tables[i]);
        cJSON *table = cJSON_GetArrayItem(tables, (int)i);
        cJSON_AddNumberToObject(table, "inserts_per_second", rates.inserts);
        cJSON_AddNumberToObject(table, "samples_per_second", rates.samples);
        cJSON_AddNumberToObject(table, "deletes_per_second", rates.deletes);
    }
    json_line(stdout, out);
}

/* ---- text -------------------------------------------------------------------------------- */

static void head_text(const struct top *top)
{
    const Troupe__ReplayTablesResponse *now = top->now;
    char a[TEXT_SIZE], b[TEXT_SIZE], c[TEXT_SIZE];
    printf("%s  up %s  %lld streams  store %s in %s of file, %llu items", top->work->target.text,
           duration_text(now->uptime_seconds, a), (long long)now->streams,
           bytes_text(now->store->live_bytes, b), bytes_text(now->store->allocated_bytes, c),
           (unsigned long long)now->store->items);
    if (now->work && now->work->total_bytes)
        printf("  %s %.0f %%", now->work->what,
               100.0 * (double)now->work->done_bytes / (double)now->work->total_bytes);
    printf("\n");
}

static void tables_text(const struct top *top)
{
    static const char *const heads[] = {"TABLE",    "SIZE",     "FILL",    "BYTES",  "INSERT/S",
                                        "SAMPLE/S", "DELETE/S", "BLOCKED", "LIMITER"};
    static const bool right[] = {false, true, true, true, true, true, true, false, false};
    struct grid grid = {.columns = 9, .right = right};
    char text[TEXT_SIZE];
    grid_heads(&grid, heads);
    for (size_t i = 0; i < top->now->n_tables; ++i) {
        const Troupe__ReplayTable *table = top->now->tables[i];
        struct rates rates = rates_of(top, table);
        grid_add(&grid, "%s", table->name);
        grid_add(&grid, "%lld", (long long)table->size);
        grid_add(&grid, "%s", fill_text(table, text));
        grid_add(&grid, "%s", bytes_text(table->bytes, text));
        grid_add(&grid, "%.0f", rates.inserts);
        grid_add(&grid, "%.0f", rates.samples);
        grid_add(&grid, "%.0f", rates.deletes);
        grid_add(&grid, "%s", blocked_text(table, text));
        grid_add(&grid, "%s", limiter_words(table));
    }
    grid_print(&grid);
    grid_cleanup(&grid);
}

static void waiting_text(const struct top *top)
{
    char since[TEXT_SIZE];
    for (size_t i = 0; i < top->now->n_tables; ++i) {
        const Troupe__ReplayTable *table = top->now->tables[i];
        for (size_t j = 0; j < table->n_waiters && j < 5; ++j)
            printf("  %s: %s %s %lld, for %s\n", table->name, table->waiters[j]->peer,
                   table->waiters[j]->sampling ? "waits for samples:" : "waits to insert:",
                   (long long)table->waiters[j]->count,
                   duration_text(table->waiters[j]->since_seconds, since));
    }
}

static void look_text(const struct top *top)
{
    if (top->terminal)
        fputs("\033[H\033[J", stdout); /* home, and clear from there on */
    head_text(top);
    tables_text(top);
    if (top->terminal)
        waiting_text(top);
}

/* ---- looking ----------------------------------------------------------------------------- */

static trp_status look(struct top *top)
{
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&top->work->target, NULL, &tables));
    if (top->before)
        troupe__replay_tables_response__free_unpacked(top->before, NULL);
    top->before = top->now;
    top->before_ns = top->now_ns;
    top->now = tables;
    top->now_ns = clock_now_ns(&clock_monotonic);
    if (top->work->args->json)
        look_json(top);
    else
        look_text(top);
    fflush(stdout);
    return TRP_OK;
}

/* False: a signal came. */
static bool pause_for(const sigset_t *signals, double seconds)
{
    struct timespec time = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
    int number;
    do
        number = sigtimedwait(signals, NULL, &time);
    while (number < 0 && errno == EINTR);
    return number < 0;
}

static sigset_t top_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
}

static trp_status top_work(struct work *work)
{
    struct top top = {.work = work, .terminal = isatty(STDOUT_FILENO) && !work->args->json};
    uint64_t rounds = work->args->rounds;
    sigset_t signals = top_signals();
    if (top.terminal)
        fputs("\033[?1049h\033[?25l", stdout); /* another screen, no cursor */
    trp_status status = look(&top);
    for (uint64_t i = 1; status == TRP_OK && (rounds == 0 || i < rounds); ++i) {
        if (!pause_for(&signals, work->args->seconds))
            break;
        status = look(&top);
    }
    if (top.terminal) {
        fputs("\033[?25h\033[?1049l", stdout);
        top.terminal = false;
        if (status == TRP_OK && !work->args->json)
            look_text(&top);
    }
    fflush(stdout);
    if (top.now)
        troupe__replay_tables_response__free_unpacked(top.now, NULL);
    if (top.before)
        troupe__replay_tables_response__free_unpacked(top.before, NULL);
    return status;
}

int replay_top(const struct cli_call *call)
{
    /* Before there are other threads, which would take them. */
    sigset_t signals = top_signals();
    sigprocmask(SIG_BLOCK, &signals, NULL);
    return target_run(call, TARGET_READ, top_work);
}
