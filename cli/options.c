/* `troupe options`: what may be set on the built-in agents and nodes of any program. A program
 * prints its own with --options. */
#include <string.h>

#include <troupe/dqn.h>
#include <troupe/ppo.h>
#include <troupe/program.h>

#include "cli.h"
#include "core/option_table.h"
#include "core/words.h"

enum { AGENTS = 2, OPTION_TABLES = AGENTS + 4 };

static void find_tables(const trp_option_table *tables[OPTION_TABLES])
{
    static const char *const kinds[] = {"replay", "learner", "actor", "evaluator"};
    tables[0] = trp_dqn_option_table();
    tables[1] = trp_ppo_option_table();
    for (size_t i = AGENTS; i < OPTION_TABLES; i++)
        tables[i] = trp_node_option_table(kinds[i - AGENTS]);
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

int options_command(const struct cli_call *call)
{
    const trp_option_table *tables[OPTION_TABLES];
    const char *names[OPTION_TABLES + 1] = {NULL};
    char guess[GUESS_BYTES];
    find_tables(tables);
    for (size_t i = 0; i < OPTION_TABLES; i++)
        names[i] = tables[i]->name;
    if (call->word_count == 0)
        options_listing(stdout);
    for (size_t k = 0; k < call->word_count; k++) {
        size_t i = 0;
        while (i < OPTION_TABLES && strcmp(names[i], call->words[k]) != 0)
            i++;
        if (i == OPTION_TABLES)
            return cli_wrong(call->name, "no agent or kind of node is called '%s'%s",
                             call->words[k], word_guess(call->words[k], names, guess));
        print_table(stdout, tables[i], i < AGENTS);
    }
    return EXIT_DONE;
}
