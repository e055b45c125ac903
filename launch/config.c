/* One shape for what is written and what is read, so that the configuration of a run repeats it and
 * may be edited. Values go through the text form of their option table in both directions: a number
 * that was written is the number that is read, bit for bit, and a wrong one is refused in the same
 * words as on the command line. Numbers that a double cannot hold are texts. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/file.h"
#include "core/flags.h"
#include "core/hash.h"
#include "core/option_table.h"
#include "core/printable.h"
#include "core/words.h"
#include "limits.h"
#include "settings.h"

static const char *const members[] = {
    "name",   "version", "command",       "arguments",  "launch",  "deterministic", "seed",
    "life",   "started", "grace_seconds", "graph_hash", "sockets", "max_seconds",   "options",
    "groups", NULL,
};

static const cJSON *member(const struct config *config, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(config->json, name);
}

/* ---- values ------------------------------------------------------------------------------ */

static bool is_number(const trp_option *option)
{
    return !option->choices && option->type != TRP_OPTION_BOOL && option->type != TRP_OPTION_TEXT &&
           option->type != TRP_OPTION_LIST;
}

static cJSON *list_json(const char *text)
{
    cJSON *array = cJSON_CreateArray();
    while (*text) {
        char *end;
        cJSON_AddItemToArray(array, cJSON_CreateNumber((double)strtoul(text, &end, 10)));
        text = end + (*end == ',');
    }
    return array;
}

/* cJSON's own text of a number may lose the last bit. */
static cJSON *option_json(const trp_option *option, const void *options)
{
    char *text = option_value(option, options);
    cJSON *json;
    bool exact = strlen(text) < 16 || option->type == TRP_OPTION_F64;
    if (option->type == TRP_OPTION_LIST)
        json = list_json(text);
    else if (option->type == TRP_OPTION_TEXT && !*text)
        json = cJSON_CreateNull();
    else if (option->type == TRP_OPTION_BOOL)
        json = cJSON_CreateBool(strcmp(text, "true") == 0);
    else if (is_number(option) && exact)
        json = cJSON_CreateRaw(text);
    else
        json = cJSON_CreateString(text);
    free(text);
    return json;
}

/* As an option's table takes it, or what stands there; caller frees. */
static char *json_text(const cJSON *json)
{
    char number[DECIMAL_BYTES];
    if (cJSON_IsString(json))
        return xstrdup(json->valuestring);
    if (cJSON_IsNumber(json))
        return xstrdup(double_decimal(json->valuedouble, number));
    if (!json || cJSON_IsNull(json))
        return xstrdup("");
    if (!cJSON_IsArray(json)) {
        char *printed = cJSON_PrintUnformatted(json), *text = xstrdup(printed ? printed : "{}");
        free(printed);
        return text;
    }
    struct buffer text = {0};
    for (const cJSON *each = json->child; each; each = each->next) {
        char *one = json_text(each);
        buffer_append(&text, (trp_bytes){(const uint8_t *)one, strlen(one)});
        buffer_append(&text, (trp_bytes){(const uint8_t *)",", each->next ? 1 : 0});
        free(one);
    }
    buffer_append(&text, (trp_bytes){(const uint8_t *)"", 1});
    return (char *)text.data;
}

/* ---- writing ----------------------------------------------------------------------------- */

static cJSON *child_object(cJSON *json, const char *name)
{
    cJSON *child = cJSON_GetObjectItemCaseSensitive(json, name);
    return child ? child : cJSON_AddObjectToObject(json, name);
}

static cJSON *options_json(const trp_program *program)
{
    cJSON *json = cJSON_CreateObject();
    struct option_set *sets = option_sets_create(program);
    for (struct option_set *set = sets; set->name; set++) {
        cJSON *object = child_object(
            json, set->of_agent && strcmp(set->name, "agent") == 0 ? "agent" : set->group->name);
        if (strchr(set->name, '.'))
            object = child_object(object, "agent");
        for (size_t i = 0; i < set->table->count; i++)
            cJSON_AddItemToObject(object, set->table->options[i].name,
                                  option_json(&set->table->options[i], set->options));
    }
    option_sets_destroy(sets);
    return json;
}

static void add_strings(cJSON *json, const char *key, int count, char **strings)
{
    cJSON *array = cJSON_AddArrayToObject(json, key);
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(array, cJSON_CreateString(strings[i]));
}

/* What the graph is beside its options. */
static cJSON *group_json(const trp_program *program, const struct node_group *group)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "kind", node_kind_word(group->kind));
    if (group->kind != NODE_LEARNER) /* of which it is an option */
        cJSON_AddNumberToObject(json, "count", group->count);
    if (group->agent.impl)
        cJSON_AddStringToObject(json, "agent", group->agent.impl->name);
    cJSON *uses = cJSON_AddArrayToObject(json, "uses");
    for (size_t i = 0; i < group->use_count; i++)
        cJSON_AddItemToArray(uses,
                             cJSON_CreateString(program_group(program, group->uses[i])->name));
    cJSON *tables = group->tables ? cJSON_AddArrayToObject(json, "tables") : NULL;
    for (size_t i = 0; tables && i < group->options.replay.table_count; i++) {
        char *line = trp_table_options_format(group->tables[i]);
        cJSON_AddItemToArray(tables, cJSON_CreateString(line));
        free(line);
    }
    if (group->kind == NODE_OWN && !group->table && group->options.own.arg_size > 0) {
        char hash[32];
        snprintf(hash, sizeof hash, "%016" PRIx64,
                 hash_bytes(HASH_BYTES_EMPTY, group->options.own.arg, group->options.own.arg_size));
        cJSON_AddStringToObject(json, "arg_hash", hash);
    }
    return json;
}

static cJSON *groups_json(const trp_program *program)
{
    cJSON *json = cJSON_CreateObject();
    for (size_t i = 0; i < program->group_count; i++)
        cJSON_AddItemToObject(json, program->groups[i]->name,
                              group_json(program, program->groups[i]));
    return json;
}

/* Text: JSON numbers are doubles to most readers. */
static void add_u64(cJSON *json, const char *key, const char *format, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, format, value);
    cJSON_AddStringToObject(json, key, text);
}

char *config_text(const trp_program *program, const struct launch_options *options,
                  const struct config_facts *facts)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", program->name);
    cJSON_AddStringToObject(json, "version", trp_version());
    add_strings(json, "command", facts->argc, facts->argv);
    add_strings(json, "arguments", options->build_argc - 1, options->build_argv + 1);
    cJSON_AddStringToObject(json, "launch", launch_mode_word(options->mode));
    cJSON_AddBoolToObject(json, "deterministic", options->deterministic);
    add_u64(json, "seed", "%" PRIu64, options->seed);
    cJSON_AddNumberToObject(json, "max_seconds", options->max_seconds);
    cJSON_AddNumberToObject(json, "grace_seconds", options->grace_seconds);
    add_u64(json, "life", "%" PRIu64, facts->life);
    add_u64(json, "graph_hash", "%016" PRIx64, program_hash(program));
    cJSON_AddStringToObject(json, "sockets", facts->socket_dir);
    cJSON_AddNumberToObject(json, "started", (double)facts->started);
    cJSON_AddItemToObject(json, "options", options_json(program));
    cJSON_AddItemToObject(json, "groups", groups_json(program));
    char *printed = cJSON_Print(json);
    cJSON_Delete(json);
    return printed ? printed : xstrdup("{}");
}

/* ---- reading ----------------------------------------------------------------------------- */

static trp_status wrong_member(const struct config *config, const char *name, const char *needed)
{
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s is %s, must be %s", config->path, name,
                    member(config, name) ? "something else" : "missing", needed);
}

/* Readers of JSON differ in which one counts. */
static trp_status check_once(const struct config *config, const cJSON *object, const cJSON *each)
{
    if (cJSON_GetObjectItemCaseSensitive(object, each->string) == each)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: '%s' stands there twice", config->path,
                    each->string);
}

static trp_status check_members(const struct config *config, const char *program)
{
    const char *name = cJSON_GetStringValue(member(config, "name"));
    if (!name)
        return wrong_member(config, "name", "the name of a program");
    if (strcmp(name, program) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s: the configuration of a run of program '%s', not of '%s'", config->path,
                        name, program);
    for (const cJSON *each = config->json->child; each; each = each->next) {
        const char *const *known = members;
        char guess[GUESS_BYTES];
        while (*known && strcmp(*known, each->string) != 0)
            known++;
        if (!*known)
            return trp_fail(TRP_INVALID_ARGUMENT, "%s: a configuration has no '%s'%s", config->path,
                            each->string, word_guess(each->string, members, guess));
        TRP_TRY(check_once(config, config->json, each));
    }
    if (!cJSON_IsObject(member(config, "options")))
        return wrong_member(config, "options", "an object");
    return TRP_OK;
}

trp_status config_parse(struct config *config, const char *path, const char *text, size_t size,
                        const char *program)
{
    const char *end = text;
    *config = (struct config){.path = xstrdup(path)};
    config->json = cJSON_ParseWithLengthOpts(text, size, &end, true);
    if (!config->json) {
        size_t line = 1;
        for (const char *at = text; at < end; at++)
            line += *at == '\n';
        return trp_fail(TRP_DATA_LOSS, "%s: line %zu: this is not JSON", path, line);
    }
    if (!cJSON_IsObject(config->json))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: not an object", path);
    return check_members(config, program);
}

/* `file` NULL: errno says why. */
static trp_status read_stream(struct config *config, FILE *file, const char *path,
                              const char *program)
{
    *config = (struct config){0};
    if (!file)
        return trp_fail(file_errno_status(errno, TRP_UNAVAILABLE), "%s: %s", path,
                        file_errno_words(errno));
    char *text = xcalloc(1, RUN_CONFIG_BYTES_MAX + 2);
    size_t size = fread(text, 1, RUN_CONFIG_BYTES_MAX + 1, file);
    trp_status status = TRP_OK;
    if (ferror(file))
        status = trp_fail(file_errno_status(errno, TRP_UNAVAILABLE), "%s: %s", path,
                          file_errno_words(errno));
    else if (size > RUN_CONFIG_BYTES_MAX)
        status = trp_fail(TRP_INVALID_ARGUMENT, "%s: a configuration has at most %d bytes", path,
                          RUN_CONFIG_BYTES_MAX);
    fclose(file);
    if (status == TRP_OK) /* with its final 0, which has to be the first one */
        status = config_parse(config, path, text, size + 1, program);
    free(text);
    return status;
}

trp_status config_read(struct config *config, const char *path, const char *program)
{
    return read_stream(config, fopen(path, "re"), path, program);
}

trp_status config_read_own(struct config *config, const char *path, const char *program)
{
    return read_stream(config, own_file_stream(path, "r"), path, program);
}

void config_cleanup(struct config *config)
{
    cJSON_Delete(config->json);
    free(config->path);
    *config = (struct config){0};
}

trp_status config_u64(const struct config *config, const char *name, uint64_t *value)
{
    const cJSON *json = member(config, name);
    char *text = json_text(json);
    bool exact = cJSON_IsString(json) || (cJSON_IsNumber(json) && json->valuedouble < 0x1p53);
    bool good = exact && flags_u64(text, 0, UINT64_MAX, value);
    free(text);
    return good ? TRP_OK
                : wrong_member(config, name, "a whole number, from 2^53 on a text in quotes");
}

static trp_status take_seconds(const struct config *config, const char *name, double *seconds)
{
    const cJSON *json = member(config, name);
    if (!json)
        return TRP_OK;
    if (!cJSON_IsNumber(json) ||
        !(json->valuedouble >= 0 && json->valuedouble <= LAUNCH_SECONDS_MAX))
        return wrong_member(config, name, "a number of seconds");
    *seconds = json->valuedouble;
    return TRP_OK;
}

static trp_status take_mode(const struct config *config, struct launch_options *options)
{
    const cJSON *launch = member(config, "launch"), *same = member(config, "deterministic");
    const char *word = cJSON_GetStringValue(launch);
    const char *threads = launch_mode_word(LAUNCH_THREADS);
    if (launch && (!word || (strcmp(word, threads) != 0 &&
                             strcmp(word, launch_mode_word(LAUNCH_PROCESSES)) != 0)))
        return wrong_member(config, "launch", "processes or threads");
    if (same && !cJSON_IsBool(same))
        return wrong_member(config, "deterministic", "true or false");
    if (options->mode_set)
        return TRP_OK;
    options->mode = word && strcmp(word, threads) == 0 ? LAUNCH_THREADS : LAUNCH_PROCESSES;
    options->deterministic = cJSON_IsTrue(same) && options->mode == LAUNCH_THREADS;
    return TRP_OK;
}

static trp_status take_arguments(const struct config *config, struct launch_options *options)
{
    const cJSON *json = member(config, "arguments");
    if (json && !cJSON_IsArray(json))
        return wrong_member(config, "arguments", "an array of strings");
    if (!json || options->build_argc > 1)
        return TRP_OK;
    size_t count = (size_t)cJSON_GetArraySize(json);
    options->build_argv = xrealloc(options->build_argv, (count + 2) * sizeof(char *));
    for (const cJSON *each = json->child; each; each = each->next) {
        if (!cJSON_IsString(each))
            return wrong_member(config, "arguments", "an array of strings");
        options->build_argv[options->build_argc++] = each->valuestring;
    }
    options->build_argv[options->build_argc] = NULL;
    return TRP_OK;
}

trp_status config_launch(const struct config *config, struct launch_options *options)
{
    if (!options->seed_set && !options->resume && member(config, "seed")) {
        TRP_TRY(config_u64(config, "seed", &options->seed));
        options->seed_set = true;
    }
    if (!options->max_seconds_set)
        TRP_TRY(take_seconds(config, "max_seconds", &options->max_seconds));
    if (!options->grace_set)
        TRP_TRY(take_seconds(config, "grace_seconds", &options->grace_seconds));
    TRP_TRY(take_mode(config, options));
    return take_arguments(config, options);
}

/* ---- shapes ------------------------------------------------------------------------------ */

/* A whole number beyond may be another one by now: 2^53 + 1 is read as 2^53. */
static bool is_exact(const trp_option *option, const cJSON *json)
{
    bool real = option->type == TRP_OPTION_F32 || option->type == TRP_OPTION_F64;
    return cJSON_IsNumber(json) && (real || fabs(json->valuedouble) < 0x1p53);
}

static bool is_list_of_numbers(const trp_option *option, const cJSON *json)
{
    for (const cJSON *each = json->child; each; each = each->next)
        if (!is_exact(option, each))
            return false;
    return cJSON_IsArray(json);
}

/* Whether it is of a kind that the option can have: json_text() does not tell [1] from 1. Any value
 * may be a text. */
static bool has_shape(const trp_option *option, const cJSON *json)
{
    if (cJSON_IsString(json))
        return true;
    if (option->choices)
        return false;
    if (option->type == TRP_OPTION_TEXT)
        return cJSON_IsNull(json);
    if (option->type == TRP_OPTION_LIST)
        return cJSON_IsNull(json) || is_exact(option, json) || is_list_of_numbers(option, json);
    return option->type == TRP_OPTION_BOOL ? cJSON_IsBool(json) : is_exact(option, json);
}

static trp_status wrong_shape(const struct config *config, const char *path,
                              const trp_option *option, const cJSON *json)
{
    char *printed = cJSON_PrintUnformatted(json), *range = option_range(option);
    bool inexact = cJSON_IsNumber(json) && is_number(option);
    trp_status status =
        trp_fail(TRP_INVALID_ARGUMENT, "%s: %s is %.200s, must be %s%s", config->path, path,
                 printed ? printed : "something else", range,
                 inexact ? "; as a text in quotes, JSON's numbers are not exact from 2^53 on" : "");
    free(range);
    free(printed);
    return status;
}

/* ---- applying ---------------------------------------------------------------------------- */

static trp_status apply_option(const struct config *config, trp_program *program,
                               const char *target, const char *name, const cJSON *json)
{
    char *path = xasprintf("%s.%s", target, name), *text = json_text(json);
    const trp_option *option = program_option_set(program, target, name);
    trp_status status = option && !has_shape(option, json)
                            ? wrong_shape(config, path, option, json)
                            : program_set(program, config->path, target, name, text);
    free(path);
    free(text);
    return status;
}

static trp_status apply_target(const struct config *config, trp_program *program,
                               const char *target, const cJSON *json, const char *prefix)
{
    if (!cJSON_IsObject(json))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: options.%s is not an object", config->path,
                        target);
    for (const cJSON *each = json->child; each; each = each->next) {
        TRP_TRY(check_once(config, json, each));
        char *name = xasprintf("%s%s", prefix, each->string);
        trp_status status = *prefix == '\0' && strcmp(name, "agent") == 0
                                ? apply_target(config, program, target, each, "agent.")
                                : apply_option(config, program, target, name, each);
        free(name);
        TRP_TRY(status);
    }
    return TRP_OK;
}

trp_status config_apply(const struct config *config, trp_program *program)
{
    const cJSON *options = member(config, "options");
    for (const cJSON *each = options->child; each; each = each->next) {
        TRP_TRY(program_check_target(program, config->path, each->string));
        TRP_TRY(check_once(config, options, each));
        TRP_TRY(apply_target(config, program, each->string, each, ""));
    }
    return TRP_OK;
}

/* ---- comparing --------------------------------------------------------------------------- */

/* What differs between the run's configuration and the program's. */
struct comparison {
    const struct config *config;
    const trp_program *program;
    bool tells;    /* prints it */
    char *refused; /* what may not differ; NULL: nothing does */
    bool graph;    /* of that: which no option says */
};

/* The servers whose files are made for the count at `path`: of them, or of their learners. NULL: it
 * is another number. */
static const struct node_group *counted_by(const trp_program *program, const char *path)
{
    static const char groups[] = "groups.";
    bool of_group = strncmp(path, groups, strlen(groups)) == 0;
    const char *name = of_group ? path + strlen(groups) : path;
    size_t length = strcspn(name, ".");
    const struct node_group *group = program_find_group(program, name, length);
    if (!group || strcmp(name + length, ".count") != 0)
        return NULL;
    if (of_group)
        return group->kind == NODE_SERVER ? group : NULL;
    return group->kind == NODE_LEARNER ? program_group(program, group->options.learner.server)
                                       : NULL;
}

/* Who gave their directories up may have other numbers. */
static bool servers_have_files(const struct config *config, const struct node_group *servers)
{
    const char *slash = strrchr(config->path, '/');
    int length = slash ? (int)(slash - config->path) + 1 : 0;
    char *one = xasprintf("%.*s%s", length, config->path, servers->name);
    char *first = xasprintf("%s.0", one);
    bool have = access(one, F_OK) == 0 || access(first, F_OK) == 0;
    free(first);
    free(one);
    return have;
}

/* What a node is, and the agent that it is of. */
static bool is_of_graph(const char *path)
{
    const char *end = strrchr(path, '.');
    return strncmp(path, "groups.", strlen("groups.")) == 0 &&
           (strcmp(end, ".kind") == 0 || strcmp(end, ".agent") == 0);
}

static bool may_not_differ(const struct comparison *comparison, const char *path)
{
    const struct node_group *servers = counted_by(comparison->program, path);
    if (servers)
        return servers_have_files(comparison->config, servers);
    if (is_of_graph(path))
        return true;
    const trp_option *option = program_option(comparison->program, path);
    return option && option->fixed;
}

static void compare_values(struct comparison *comparison, const char *path, const cJSON *before,
                           const cJSON *now)
{
    char *old = json_text(before), *fresh = json_text(now);
    const char *shown_old = *old ? old : "none", *shown = *fresh ? fresh : "none";
    if (strcmp(old, fresh) != 0 && before && now && may_not_differ(comparison, path)) {
        char *longer =
            xasprintf("%s%s%s is %s, was %s", comparison->refused ? comparison->refused : "",
                      comparison->refused ? "; " : "", path, shown, shown_old);
        free(comparison->refused);
        comparison->refused = longer;
        comparison->graph |= is_of_graph(path);
    } else if (strcmp(old, fresh) != 0 && comparison->tells) {
        print_text(stderr, "%s: resumed with %s=%s, it was %s\n", comparison->program->name, path,
                   shown, shown_old);
    }
    free(old);
    free(fresh);
}

static void compare_configs(struct comparison *comparison, const char *path, const cJSON *before,
                            const cJSON *now)
{
    if (!cJSON_IsObject(before) || !cJSON_IsObject(now)) {
        compare_values(comparison, path, before, now);
        return;
    }
    for (int missing = 0; missing < 2; missing++) {
        for (const cJSON *each = missing ? before->child : now->child; each; each = each->next) {
            const cJSON *old = cJSON_GetObjectItemCaseSensitive(before, each->string);
            const cJSON *fresh = cJSON_GetObjectItemCaseSensitive(now, each->string);
            char *name = xasprintf("%s%s%s", path, *path ? "." : "", each->string);
            if (!missing || !fresh)
                compare_configs(comparison, name, old, fresh);
            free(name);
        }
    }
}

/* As it will be read: numbers that are read are not written alike. */
static cJSON *reread(cJSON *json)
{
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    json = cJSON_Parse(text);
    free(text);
    return json;
}

static struct comparison compare_with_run(const struct config *config, const trp_program *program,
                                          bool tells)
{
    struct comparison comparison = {.config = config, .program = program, .tells = tells};
    cJSON *options = reread(options_json(program)), *groups = reread(groups_json(program));
    compare_configs(&comparison, "", member(config, "options"), options);
    compare_configs(&comparison, "groups", member(config, "groups"), groups);
    cJSON_Delete(options);
    cJSON_Delete(groups);
    return comparison;
}

trp_status config_compare(const struct config *config, const trp_program *program)
{
    if (!cJSON_IsObject(member(config, "groups")))
        return wrong_member(config, "groups", "an object");
    struct comparison comparison = compare_with_run(config, program, false);
    if (!comparison.refused)
        return TRP_OK;
    trp_status status = trp_fail(
        TRP_FAILED_PRECONDITION,
        "%s: the run cannot go on with other values of what it has stored: %s: %s, or start a new "
        "run",
        config->path, comparison.refused,
        comparison.graph ? "use the program that it was started with, and its arguments"
                         : "give the old ones with --set");
    free(comparison.refused);
    return status;
}

void config_tell_changes(const struct config *config, const trp_program *program)
{
    free(compare_with_run(config, program, true).refused);
}
