/* The graph for people (text, DOT) and for comparison (a hash). The hash covers what decides the
 * nodes' behaviour as text, option by option, so that struct padding does not enter it. The
 * argument of a node of one's own that has no option table is the exception: its bytes are hashed
 * as they are, padding included. */
#include "graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "core/option_table.h"
#include "core/printable.h"
#include "core/words.h"
#include "devices.h"
#include "settings.h"

/* ---- text -------------------------------------------------------------------------------- */

/* What each member is shown of the host's GPUs. */
static void print_devices(const struct node_group *group, FILE *out)
{
    const char *name = devices_name(group);
    if (name)
        print_text(out, "  device %s", name);
    for (uint32_t i = 0; i < group->count; i++) {
        char *gpus = devices_visible(group, i, NULL);
        if (gpus)
            fprintf(out, "%s%s", i == 0 ? " of GPUs " : " | ", gpus);
        free(gpus);
    }
}

static void print_group(const trp_program *program, const struct node_group *group, FILE *out)
{
    fprintf(out, "  %-16s %-10s %4u node%s", group->name, node_kind_word(group->kind), group->count,
            group->count == 1 ? " " : "s");
    if (group->agent.impl)
        fprintf(out, "  %s", group->agent.impl->name);
    if (group->env)
        fprintf(out, " on %s", group->env);
    print_devices(group, out);
    for (size_t i = 0; i < group->use_count; i++)
        fprintf(out, "%s%s", i == 0 ? "  uses " : ", ",
                program_group(program, group->uses[i])->name);
    fputc('\n', out);
}

static void print_level(const trp_program *program, uint32_t level, FILE *out)
{
    const char *separator = level == 0 ? "" : "; then ";
    for (size_t i = 0; i < program->group_count; i++) {
        if (program->groups[i]->level != level)
            continue;
        fprintf(out, "%s%s", separator, program->groups[i]->name);
        separator = ", ";
    }
}

/* What a user would have to set on a program without any options. */
static void print_options(const trp_program *program, FILE *out)
{
    const char *heading = "  other than by default:\n";
    struct option_set *sets = option_sets_create(program);
    for (struct option_set *set = sets; set->name; set++) {
        for (size_t i = 0; i < set->table->count; i++) {
            const trp_option *option = &set->table->options[i];
            char *value = option_value(option, set->options), *standard = option_default(option);
            if (strcmp(value, standard) != 0) {
                fputs(heading, out);
                print_text(out, "    %s.%s=%s\n", set->name, option->name, value);
                heading = "";
            }
            free(standard);
            free(value);
        }
    }
    option_sets_destroy(sets);
}

void program_print_text(const trp_program *program, FILE *out)
{
    fprintf(out, "%s: %u node%s in %zu group%s, hash %016" PRIx64 "\n", program->name,
            program->node_count, plural(program->node_count), program->group_count,
            plural((int64_t)program->group_count), program_hash(program));
    for (size_t i = 0; i < program->group_count; i++)
        print_group(program, program->groups[i], out);
    fputs("  stops in the order: ", out);
    for (uint32_t level = 0; level < program->group_count; level++)
        print_level(program, level, out);
    fputc('\n', out);
    print_options(program, out);
}

/* ---- DOT --------------------------------------------------------------------------------- */

static const char *edge_label(const struct node_group *user, const struct node_group *used)
{
    bool replay = group_serves(used, REPLAY_SERVICE);
    if (replay && user->kind == NODE_ACTOR)
        return "insert";
    if (replay && user->kind == NODE_LEARNER)
        return "sample, update priorities";
    if (group_serves(used, SERVER_SERVICE))
        return "push gradients, pull parameters";
    return group_serves(used, PARAMS_SERVICE) ? "pull parameters" : "call";
}

/* Names need no escaping: program.h allows a-z 0-9 - _ only. The program's own name is free text
 * of the launch file. */
static void print_quoted(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void program_print_dot(const trp_program *program, FILE *out)
{
    static const char *const shapes[] = {"cylinder", "cylinder", "box",    "component",
                                         "ellipse",  "ellipse",  "hexagon"};
    fputs("digraph ", out);
    print_quoted(program->name, out);
    fputs(" {\n    rankdir=LR;\n", out);
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        fprintf(out, "    \"%s\" [shape=%s, label=\"%s", group->name, shapes[group->kind],
                group->name);
        if (group->count > 1)
            fprintf(out, " x %u", group->count);
        fprintf(out, "\"];\n");
    }
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        for (size_t k = 0; k < group->use_count; k++) {
            const struct node_group *used = program_group(program, group->uses[k]);
            fprintf(out, "    \"%s\" -> \"%s\" [label=\"%s\"];\n", group->name, used->name,
                    edge_label(group, used));
        }
    }
    fputs("}\n", out);
}

/* ---- hash -------------------------------------------------------------------------------- */

/* `text` is taken. */
static void hash_text(uint64_t *hash, char *text)
{
    *hash = hash_bytes(*hash, text, strlen(text) + 1); /* the end, too: "ab" "c" is not "a" "bc" */
    free(text);
}

static void hash_options(uint64_t *hash, const struct node_group *group)
{
    for (size_t i = 0; group->kind == NODE_OWN && i < group->options.own.serve_count; i++)
        hash_text(hash, xstrdup(group->options.own.serves[i]->name));
    if (group->table)
        *hash = options_hash(*hash, group->table, group_options(group));
    else if (group->kind == NODE_OWN)
        *hash = hash_bytes(*hash, group->options.own.arg, group->options.own.arg_size);
    for (size_t i = 0; group->tables && i < group->options.replay.table_count; i++) {
        const trp_table_options *table = group->tables[i];
        hash_text(hash, trp_table_options_format(table));
        hash_text(hash, xstrdup(table->line ? table->line : ""));
        *hash = hash_bytes(*hash, table->signature.data, table->signature.size);
    }
}

uint64_t program_hash(const trp_program *program)
{
    uint64_t hash = HASH_BYTES_EMPTY;
    hash_text(&hash, xstrdup(program->name));
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        uint64_t agent = group->agent.impl ? trp_agent_hash(&group->agent) : 0;
        hash_text(&hash, xasprintf("%s %d %u %016" PRIx64, group->name, (int)group->kind,
                                   group->count, agent));
        for (size_t k = 0; k < group->use_count; k++)
            hash_text(&hash, xasprintf("%u", group->uses[k].id));
        hash_options(&hash, group);
    }
    return hash;
}
