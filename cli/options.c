/* `troupe options`: what may be set on the built-in agents and nodes of any program. A program
 * prints its own with --options. */
#include <string.h>

#include <troupe/a3c.h>
#include <troupe/bc.h>
#include <troupe/crr.h>
#include <troupe/d4pg.h>
#include <troupe/dqn.h>
#include <troupe/impala.h>
#include <troupe/iql.h>
#include <troupe/mpo.h>
#include <troupe/ppo.h>
#include <troupe/program.h>
#include <troupe/r2d2.h>
#include <troupe/sac.h>
#include <troupe/td3.h>

#include "cli.h"
#include "core/buffer.h"
#include "core/option_table.h"
#include "core/words.h"

static const trp_option_table *(*const agent_tables[])(void) = {
    trp_a3c_option_table, trp_bc_option_table,     trp_crr_option_table, trp_d4pg_option_table,
    trp_dqn_option_table, trp_impala_option_table, trp_iql_option_table, trp_mpo_option_table,
    trp_ppo_option_table, trp_r2d2_option_table,   trp_sac_option_table, trp_td3_option_table,
};

static const char *const node_kinds[] = {"replay", "server", "learner",
                                         "cache",  "actor",  "evaluator"};

enum {
    AGENTS = sizeof agent_tables / sizeof *agent_tables,
    OPTION_TABLES = AGENTS + sizeof node_kinds / sizeof *node_kinds
};

static void find_tables(const trp_option_table *tables[OPTION_TABLES])
{
    for (size_t i = 0; i < OPTION_TABLES; i++)
        tables[i] = i < AGENTS ? agent_tables[i]() : trp_node_option_table(node_kinds[i - AGENTS]);
}

static void print_table(FILE *out, const trp_option_table *table, bool of_agent)
{
    fprintf(out, of_agent ? "The agent %s:\n" : "A node of kind %s:\n", table->name);
    for (size_t i = 0; i < table->count; i++)
        option_describe(&table->options[i], of_agent ? "agent" : table->name, NULL, out);
}

void options_listing(FILE *out)
{
    const trp_option_table *tables[OPTION_TABLES];
    find_tables(tables);
    for (size_t i = 0; i < OPTION_TABLES; i++)
        print_table(out, tables[i], i < AGENTS);
}

static int no_such_kind(const struct cli_call *call, const char *word, const char *const *names)
{
    char guess[GUESS_BYTES];
    struct buffer all = {0};
    for (size_t i = 0; names[i]; i++) {
        buffer_append(&all, text_bytes(i == 0 ? "" : ", "));
        buffer_append(&all, text_bytes(names[i]));
    }
    int status = cli_wrong(call->name, "no agent or kind of node is called '%s'; there are: %s%s",
                           word, buffer_text(&all), word_guess(word, names, guess));
    buffer_cleanup(&all);
    return status;
}

static size_t find_name(const char *const *names, const char *word)
{
    size_t i = 0;
    while (names[i] && strcmp(names[i], word) != 0)
        i++;
    return i;
}

int options_command(const struct cli_call *call)
{
    const trp_option_table *tables[OPTION_TABLES];
    const char *names[OPTION_TABLES + 1] = {NULL};
    find_tables(tables);
    for (size_t i = 0; i < OPTION_TABLES; i++)
        names[i] = tables[i]->name;
    if (call->word_count == 0)
        options_listing(stdout);
    for (size_t k = 0; k < call->word_count; k++)
        if (find_name(names, call->words[k]) == OPTION_TABLES)
            return no_such_kind(call, call->words[k], names);
    for (size_t k = 0; k < call->word_count; k++) {
        size_t i = find_name(names, call->words[k]);
        print_table(stdout, tables[i], i < AGENTS);
    }
    return EXIT_DONE;
}
