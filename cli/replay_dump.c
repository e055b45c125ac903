/* `troupe replay dump`: tables into a file, item by item, without sampling them. */
#include <stdlib.h>
#include <string.h>

#include "core/printable.h"
#include "core/status.h"
#include "core/words.h"
#include "fetch.h"
#include "interrupt.h"
#include "sink.h"

struct dump {
    const struct target *target;
    Troupe__ReplayFilter *filter; /* NULL: all items */
    struct sink sink;
    struct progress_line progress;
    uint64_t damaged; /* items of a damaged chunk, and */
    char *told;       /* what was said of the last one */
};

/* Who was told of a damaged item can ask for those behind it: it is out of its table. But for the
 * same again, of a server that is not done with its start, or of an answer that nobody can read. */
static bool damage_passed(struct dump *dump)
{
    bool again = dump->told && strcmp(dump->told, trp_last_error()) == 0;
    free(dump->told);
    dump->told = error_keep();
    dump->damaged += !again;
    return !again;
}

/* What no array can hold stops nobody from having the others. */
static trp_status dump_next(struct dump *dump, struct item_fetch *fetch, trp_item_data *item,
                            bool *more)
{
    for (;;) {
        trp_status status = fetch_next(fetch, item, more);
        if (status == TRP_DATA_LOSS && damage_passed(dump))
            continue;
        if (status != TRP_UNIMPLEMENTED || !*more)
            return status;
        sink_leave_out(&dump->sink);
    }
}

static trp_status dump_table(struct dump *dump, const Troupe__ReplayTable *table)
{
    struct item_fetch fetch;
    trp_item_data item;
    bool more = true;
    TRP_TRY(sink_table(&dump->sink, table));
    fetch_open(&fetch, dump->target, table->name, dump->filter);
    trp_status status = dump_next(dump, &fetch, &item, &more);
    while (status == TRP_OK && more) {
        status = sink_item(&dump->sink, &item);
        progress_show(&dump->progress, dump->sink.items);
        if (status == TRP_OK)
            status = interrupt_check();
        if (status == TRP_OK)
            status = dump_next(dump, &fetch, &item, &more);
    }
    fetch_close(&fetch);
    return status;
}

static trp_status dump_tables(struct dump *dump, const Troupe__ReplayTablesResponse *tables,
                              const Troupe__ReplayTable *only)
{
    uint64_t total = 0;
    for (size_t i = 0; i < tables->n_tables; i++)
        total += !only || only == tables->tables[i] ? (uint64_t)tables->tables[i]->size : 0;
    progress_begin(&dump->progress, "dump", "items", dump->filter ? 0 : total);
    trp_status status = TRP_OK;
    for (size_t i = 0; status == TRP_OK && i < tables->n_tables; i++)
        if (!only || only == tables->tables[i])
            status = dump_table(dump, tables->tables[i]);
    progress_end(&dump->progress);
    if (status == TRP_OK)
        status = dump->sink.impl->finish(dump->sink.state, &dump->progress);
    progress_end(&dump->progress);
    return status;
}

/* With items that nobody has seen, whose records were damaged when the store was opened. A server
 * that has just started knows of all of them now that the items were asked for. */
static trp_status damaged_told(struct work *work, const struct dump *dump)
{
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&work->target, NULL, &tables));
    uint64_t count = dump->damaged + tables->store->damaged_items;
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    if (count == 0)
        return TRP_OK;
    work->exit_status = EXIT_DAMAGED;
    if (dump->told) {
        print_text(stderr, "%llu damaged item%s left out, such as %s\n", (unsigned long long)count,
                   count == 1 ? " was" : "s were", dump->told);
        return TRP_OK;
    }
    char *target = shell_word(work->target.text);
    print_text(stderr,
               "%llu damaged item%s left out, of whatever table: `troupe replay verify %s` names "
               "%s\n",
               (unsigned long long)count, count == 1 ? " was" : "s were", target,
               count == 1 ? "it" : "them");
    free(target);
    return TRP_OK;
}

static trp_status dump_work(struct work *work)
{
    const char *name = work->table, *file = work->call->words[work->call->word_count - 1];
    Troupe__ReplayTablesResponse *tables;
    Troupe__ReplayFilter filter;
    TRP_TRY(target_tables(&work->target, name, &tables));
    struct dump dump = {.target = &work->target};
    trp_status status = filter_init(&filter, &work->args->filter);
    dump.filter = filter_given(&work->args->filter) ? &filter : NULL;
    if (status == TRP_OK)
        status = sink_open(&dump.sink, file, !name);
    if (status == TRP_OK)
        status = dump_tables(&dump, tables, name ? tables_find(tables, name) : NULL);
    if (status == TRP_OK)
        sink_print(&dump.sink, file, work->args->json);
    if (dump.sink.left_out > 0)
        work->exit_status = EXIT_FAILED;
    if (status == TRP_OK)
        status = damaged_told(work, &dump);
    sink_close(&dump.sink);
    free(dump.told);
    filter_cleanup(&filter);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return status;
}

int replay_dump(const struct cli_call *call)
{
    const struct replay_args *args = call->args;
    if (call->word_count != (args->all ? 2 : 3))
        return cli_wrong(call->name,
                         args->all ? "--all is of every table: %s --all TARGET FILE"
                                   : "say which table, and FILE: %s TARGET TABLE FILE, "
                                     "or --all TARGET FILE",
                         call->name);
    if (!sink_check(call->name, call->words[call->word_count - 1]))
        return EXIT_USAGE;
    interrupt_watch(); /* for a file that is not whole */
    int status = target_run(call, TARGET_READ, dump_work);
    interrupt_end();
    return status;
}
