/* Who may be set is found by walking the graph each time: a program has a handful of structs of
 * options, and nobody asks twice. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/option_table.h"
#include "core/words.h"

static const char agent_name[] = "agent";

static const trp_option_table *agent_table(const struct node_group *group)
{
    return group->agent.impl ? group->agent.impl->options : NULL;
}

static void *agent_options(const struct node_group *group)
{
    return (void *)(uintptr_t)group->agent.options.bytes;
}

static void add_agent(struct option_set **end, const struct node_group *group, char *name)
{
    *(*end)++ = (struct option_set){group, true, name, agent_table(group), agent_options(group)};
}

struct option_set *option_sets_create(const trp_program *program)
{
    struct option_set *sets = xcalloc(2 * program->group_count + 2, sizeof *sets), *end = sets;
    const struct node_group *common = program_common_agent(program);
    if (common && agent_table(common))
        add_agent(&end, common, xstrdup(agent_name));
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        if (group->table)
            *end++ = (struct option_set){group, false, xstrdup(group->name), group->table,
                                         group_options(group)};
        if (!common && agent_table(group))
            add_agent(&end, group, xasprintf("%s.%s", group->name, agent_name));
    }
    return sets;
}

void option_sets_destroy(struct option_set *sets)
{
    for (struct option_set *set = sets; set->name; set++)
        free(set->name);
    free(sets);
}

/* ---- setting ----------------------------------------------------------------------------- */

/* Fails with the last error behind what was set. */
static trp_status set_failed(const char *source, const char *target)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s.%s", source, target, trp_last_error());
}

trp_status program_check_target(const trp_program *program, const char *source, const char *target)
{
    if (strcmp(target, agent_name) == 0 || program_find_group(program, target, strlen(target)))
        return TRP_OK;
    const char **names = xcalloc(program->group_count + 2, sizeof *names);
    char guess[GUESS_BYTES];
    size_t count = 0;
    for (size_t i = 0; i < program->group_count; i++)
        names[count++] = program->groups[i]->name;
    names[count] = agent_name;
    word_guess(target, names, guess);
    free(names);
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s has no nodes '%s'%s", source, program->name,
                    target, guess);
}

/* No option of `table`: another one of the program's has it, or what its name is like. */
static trp_status no_such_option_of(const trp_program *program, const char *source,
                                    const trp_option_table *table, const char *option)
{
    struct option_set *sets = option_sets_create(program), *set = sets;
    while (set->name && !option_find(set->table, option))
        set++;
    trp_status status;
    if (set->name) {
        status = trp_fail(TRP_INVALID_ARGUMENT, "%s: %s has no option '%s'; %s.%s is one", source,
                          table->name, option, set->name, option);
    } else {
        status = trp_options_set(table, NULL, option, ""); /* says what the name is like */
        status = trp_fail(status, "%s: %s (--options lists them)", source, trp_last_error());
    }
    option_sets_destroy(sets);
    return status;
}

/* Of every agent that has it. */
static trp_status set_agents(trp_program *program, const char *source, const char *option,
                             const char *value)
{
    const trp_option_table *table = NULL;
    bool found = false;
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        if (!agent_table(group))
            continue;
        table = table ? table : agent_table(group);
        if (!option_find(agent_table(group), option))
            continue;
        found = true;
        if (trp_options_set(agent_table(group), agent_options(group), option, value) != TRP_OK)
            return set_failed(source, agent_name);
    }
    if (found)
        return TRP_OK;
    if (table)
        return no_such_option_of(program, source, table, option);
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s has no agent with options", source,
                    program->name);
}

static const trp_option *option_of(const trp_option_table *table, const char *name)
{
    return table ? option_find(table, name) : NULL;
}

/* Whose "OPTION" or "agent.OPTION" of a group is, and what it is called there. */
struct option_place {
    const trp_option_table *table; /* NULL: it has no options */
    void *options;
    const char *name;
    bool of_agent;
};

static struct option_place place_of(const struct node_group *group, const char *option)
{
    static const char prefix[] = "agent.";
    bool of_agent = strncmp(option, prefix, strlen(prefix)) == 0;
    return of_agent ? (struct option_place){agent_table(group), agent_options(group),
                                            option + strlen(prefix), true}
                    : (struct option_place){group->table, group_options(group), option, false};
}

const trp_option *program_option_set(const trp_program *program, const char *target,
                                     const char *option)
{
    if (strcmp(target, agent_name) == 0) {
        const trp_option *found = NULL;
        for (size_t i = 0; i < program->group_count && !found; i++)
            found = option_of(agent_table(program->groups[i]), option);
        return found;
    }
    const struct node_group *group = program_find_group(program, target, strlen(target));
    if (!group)
        return NULL;
    struct option_place place = place_of(group, option);
    return option_of(place.table, place.name);
}

trp_status program_set(trp_program *program, const char *source, const char *target,
                       const char *option, const char *value)
{
    if (strcmp(target, agent_name) == 0)
        return set_agents(program, source, option, value);
    const struct node_group *group = program_find_group(program, target, strlen(target));
    if (!group)
        return program_check_target(program, source, target);
    struct option_place place = place_of(group, option);
    if (!place.table)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s '%s' has no options%s", source,
                        node_kind_word(group->kind), target, place.of_agent ? " of an agent" : "");
    if (!option_find(place.table, place.name))
        return no_such_option_of(program, source, place.table, place.name);
    char *shown = xasprintf("%s%s", target, place.of_agent ? ".agent" : "");
    trp_status status = trp_options_set(place.table, place.options, place.name, value);
    if (status != TRP_OK)
        status = set_failed(source, shown);
    free(shown);
    return status;
}

/* What an option without its group is, or is like: "; agent.n_step is an option"; or the group that
 * the word is like. Caller frees. */
static char *describe_likely(const trp_program *program, const char *option)
{
    struct option_set *sets = option_sets_create(program);
    const char **names = NULL;
    size_t count = 0;
    char guess[GUESS_BYTES], *text = NULL;
    for (struct option_set *set = sets; set->name && !text; set++) {
        if (option_find(set->table, option))
            text = xasprintf("; %s.%s is an option", set->name, option);
        names = xrealloc(names, (count + set->table->count + 2) * sizeof *names);
        names[count++] = set->name;
        for (size_t i = 0; i < set->table->count; i++)
            names[count++] = set->table->options[i].name;
        names[count] = NULL;
    }
    if (!text)
        text = xstrdup(names ? word_guess(option, names, guess) : "");
    option_sets_destroy(sets);
    free(names);
    return text;
}

/* "n_step=5": its group is to be said. */
static trp_status no_group_in(const trp_program *program, const char *word)
{
    char *option = xasprintf("%.*s", (int)strcspn(word, "="), word);
    char *likely = describe_likely(program, option);
    trp_status status =
        trp_fail(TRP_INVALID_ARGUMENT, "--set %s: use GROUP.OPTION=VALUE%s", word, likely);
    free(likely);
    free(option);
    return status;
}

trp_status program_set_word(trp_program *program, const char *word)
{
    const char *equals = strchr(word, '='), *dot = strchr(word, '.');
    if (!equals || !dot || dot > equals)
        return no_group_in(program, word);
    char *source = xasprintf("--set %s", word);
    char *target = xasprintf("%.*s", (int)(dot - word), word);
    char *option = xasprintf("%.*s", (int)(equals - dot - 1), dot + 1);
    trp_status status = program_set(program, source, target, option, equals + 1);
    free(option);
    free(target);
    free(source);
    return status;
}

const char *setting_within(const char *name, const char *setting)
{
    size_t length = strlen(name);
    return strncmp(setting, name, length) == 0 && setting[length] == '.' ? setting + length + 1
                                                                         : NULL;
}

const trp_option *program_option(const trp_program *program, const char *path)
{
    struct option_set *sets = option_sets_create(program);
    const trp_option *found = NULL;
    for (struct option_set *set = sets; set->name && !found; set++) {
        const char *name = setting_within(set->name, path);
        found = name ? option_find(set->table, name) : NULL;
    }
    option_sets_destroy(sets);
    return found;
}

/* ---- printing ---------------------------------------------------------------------------- */

static bool is_looked_for(const struct option_set *set, const trp_option *option,
                          const char *filter)
{
    char *path = xasprintf("%s.%s", set->name, option->name);
    bool wanted = strcasestr(path, filter);
    free(path);
    return wanted;
}

trp_status program_print_options(const trp_program *program, const char *filter, FILE *out)
{
    struct option_set *sets = option_sets_create(program);
    const struct option_set *shown = NULL; /* whose heading was the last */
    for (const struct option_set *set = sets; set->name; set++)
        for (size_t i = 0; i < set->table->count; i++) {
            const trp_option *option = &set->table->options[i];
            if (filter && !is_looked_for(set, option, filter))
                continue;
            if (!shown)
                fprintf(out, "%s: with --set NAME=VALUE, or in a file for --config\n",
                        program->name);
            if (shown != set)
                fprintf(out, "\n%s (%s)\n", set->name, set->table->name);
            shown = set;
            option_describe(option, set->name, set->options, out);
        }
    option_sets_destroy(sets);
    if (!shown && !filter)
        fprintf(out, "%s has no options\n", program->name);
    if (shown || !filter)
        return TRP_OK;
    char *likely = describe_likely(program, filter);
    trp_status status =
        trp_fail(TRP_NOT_FOUND, "no option has that in its name%s (--options lists all)", likely);
    free(likely);
    return status;
}
