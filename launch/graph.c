/* A launch file adds nodes one call after the other and cannot check each: so a wrong call is
 * remembered, and program_check() reports the first one by name before anything is started.
 *
 * Everything is copied: options of a caller's stack frame may be gone when the nodes run. A group
 * only refers to groups that were added before it, so there are no cycles, and the stop order
 * (users before what they use) follows from the edges alone. */
#include "graph.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/option_table.h"
#include "core/limits.h"
#include "devices.h"
#include "limits.h"

static const char *const kind_words[] = {"replay", "server",    "learner", "cache",
                                         "actor",  "evaluator", "node"};

const char *node_kind_word(enum node_kind kind)
{
    return kind_words[kind];
}

trp_program *trp_program_create(const char *name)
{
    trp_program *program = xcalloc(1, sizeof *program);
    program->name = xstrdup(name);
    program->references = 1;
    return program;
}

void trp_program_prepare(trp_program *program, trp_status (*prepare)(void))
{
    program->prepare = prepare;
}

trp_program *program_keep(trp_program *program)
{
    atomic_fetch_add(&program->references, 1);
    return program;
}

static void group_destroy(struct node_group *group)
{
    if (!group)
        return;
    if (group->kind == NODE_REPLAY) {
        for (size_t i = 0; i < group->options.replay.table_count; i++)
            trp_table_options_destroy(group->tables[i]);
        free((void *)(uintptr_t)group->options.replay.tables);
    }
    if (group->table)
        trp_options_cleanup(group->table, group_options(group));
    if (group->kind == NODE_OWN)
        free((void *)(uintptr_t)group->options.own.serves);
    if (group->kind == NODE_OWN)
        free((void *)(uintptr_t)group->options.own.arg);
    free(group->tables);
    free(group->name);
    free(group->uses);
    free(group);
}

void trp_program_destroy(trp_program *program)
{
    if (!program || atomic_fetch_sub(&program->references, 1) > 1)
        return;
    for (size_t i = 0; i < program->group_count; i++)
        group_destroy(program->groups[i]);
    free(program->groups);
    free(program->name);
    free(program->error);
    free(program);
}

/* ---- look-up ----------------------------------------------------------------------------- */

const char *group_choice(const struct node_group *group, const char *option, uint32_t value)
{
    return option_find(group->table, option)->choices[value];
}

const struct node_group *program_group(const trp_program *program, trp_node node)
{
    if (node.id == 0 || node.id > program->group_count)
        return NULL;
    return program->groups[node.id - 1];
}

const struct node_group *program_node(const trp_program *program, uint32_t number, uint32_t *index)
{
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        if (number - group->first < group->count) {
            *index = number - group->first;
            return group;
        }
    }
    return NULL;
}

struct node_group *program_find_group(const trp_program *program, const char *name, size_t length)
{
    for (size_t i = 0; i < program->group_count; i++) {
        struct node_group *group = program->groups[i];
        if (strlen(group->name) == length && memcmp(group->name, name, length) == 0)
            return group;
    }
    return NULL;
}

trp_status program_find(const trp_program *program, const char *name, uint32_t *number)
{
    const char *slash = strchr(name, '/');
    const struct node_group *group =
        slash ? program_find_group(program, name, (size_t)(slash - name)) : NULL;
    char *end = NULL;
    unsigned long index = slash ? strtoul(slash + 1, &end, 10) : 0;
    if (!group || end == slash + 1 || *end || index >= group->count)
        return trp_fail(TRP_NOT_FOUND, "program %s has no node '%s'", program->name, name);
    *number = group->first + (uint32_t)index;
    return TRP_OK;
}

void *group_options(const struct node_group *group)
{
    if (!group->table)
        return NULL;
    const void *options = group->kind == NODE_OWN ? group->options.own.arg : &group->options;
    return (void *)(uintptr_t)options;
}

bool group_uses(const struct node_group *group, const struct node_group *used)
{
    for (size_t i = 0; i < group->use_count; i++)
        if (group->uses[i].id == used->id)
            return true;
    return false;
}

bool group_is_gang(const struct node_group *group)
{
    return group->kind == NODE_LEARNER && group->count > 1;
}

static bool same_agent(const trp_agent *a, const trp_agent *b)
{
    return a->impl == b->impl && memcmp(&a->options, &b->options, sizeof a->options) == 0;
}

const struct node_group *program_common_agent(const trp_program *program)
{
    const struct node_group *first = NULL;
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        if (!group->agent.impl)
            continue;
        if (first && !same_agent(&first->agent, &group->agent))
            return NULL;
        first = first ? first : group;
    }
    return first;
}

/* ---- adding ------------------------------------------------------------------------------ */

static void TRP_PRINTF(2, 3) graph_wrong(trp_program *program, const char *format, ...)
{
    if (program->error)
        return;
    char text[ERROR_MESSAGE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    program->error = xstrdup(text);
}

static bool node_name_is_good(const char *name)
{
    if (!name || name[0] < 'a' || name[0] > 'z' || strlen(name) > GROUP_NAME_BYTES_MAX)
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(name);
}

/* A new group at the end of the program, or NULL when the call was wrong. */
static struct node_group *add_group(trp_program *program, enum node_kind kind, const char *name,
                                    uint32_t count)
{
    const char *word = kind_words[kind];
    if (name && strcmp(name, "agent") == 0)
        graph_wrong(program, "%s 'agent': --set agent.OPTION means the program's agents", word);
    else if (!node_name_is_good(name))
        graph_wrong(
            program,
            "%s '%s': a name is a lower-case letter and then at most %d more of a-z 0-9 - _", word,
            name ? name : "(null)", GROUP_NAME_BYTES_MAX - 1);
    else if (program_find_group(program, name, strlen(name)))
        graph_wrong(program, "%s '%s': this name is used twice", word, name);
    else if (count > PROGRAM_NODES_MAX - program->node_count)
        graph_wrong(program, "%s '%s': %u nodes are too many: a program has at most %d", word, name,
                    count, PROGRAM_NODES_MAX);
    if (program->error)
        return NULL;
    struct node_group *group = xcalloc(1, sizeof *group);
    group->kind = kind;
    group->name = xstrdup(name);
    group->count = count;
    group->first = program->node_count;
    group->table = trp_node_option_table(word);
    program->groups =
        xrealloc(program->groups, (program->group_count + 1) * sizeof *program->groups);
    program->groups[program->group_count++] = group;
    program->node_count += count;
    group->id = (uint32_t)program->group_count;
    return group;
}

static void add_use(struct node_group *group, trp_node node)
{
    group->uses = xrealloc(group->uses, (group->use_count + 1) * sizeof *group->uses);
    group->uses[group->use_count++] = node;
}

bool group_serves(const struct node_group *group, const char *service)
{
    if (group->kind == NODE_REPLAY)
        return strcmp(service, REPLAY_SERVICE) == 0;
    if (group->kind == NODE_SERVER)
        return strcmp(service, SERVER_SERVICE) == 0;
    if (group->kind == NODE_LEARNER || group->kind == NODE_CACHE)
        return strcmp(service, PARAMS_SERVICE) == 0;
    for (size_t i = 0; group->kind == NODE_OWN && i < group->options.own.serve_count; i++)
        if (strcmp(group->options.own.serves[i]->name, service) == 0)
            return true;
    return false;
}

/* Adds the edge of option `option` to a node that has to serve `service`. */
static void add_edge(trp_program *program, struct node_group *group, const char *option,
                     trp_node node, const char *service)
{
    const struct node_group *used = program_group(program, node);
    const char *word = kind_words[group->kind];
    if (!used || used == group)
        graph_wrong(program, "%s '%s': .%s is not set to a node of this program", word, group->name,
                    option);
    else if (!group_serves(used, service))
        graph_wrong(program, "%s '%s': .%s is %s '%s', which does not serve %s", word, group->name,
                    option, kind_words[used->kind], used->name, service);
    else
        add_use(group, node);
}

static void set_agent(trp_program *program, struct node_group *group, const trp_agent *agent)
{
    if (agent && agent->impl)
        group->agent = *agent;
    else
        graph_wrong(program, "%s '%s': .agent is not set", kind_words[group->kind], group->name);
}

static trp_node node_of(const trp_program *program, const struct node_group *group)
{
    return (trp_node){program->error ? 0 : group->id};
}

/* `options` NULL stands for the zero value, so that one message covers both. */
trp_node trp_add_replay(trp_program *program, const char *name, const trp_replay_options *options)
{
    uint32_t count = options && options->shards ? options->shards : 1;
    struct node_group *group = add_group(program, NODE_REPLAY, name, count);
    if (!group)
        return (trp_node){0};
    static const trp_replay_options none;
    const trp_replay_options *from = options ? options : &none;
    trp_replay_options *own = &group->options.replay;
    trp_options_resolve(group->table, from, own);
    group->tables = xcalloc(from->table_count + 1, sizeof(trp_table_options *));
    trp_table_options *tables = xcalloc(from->table_count + 1, sizeof *tables);
    for (size_t i = 0; i < from->table_count; i++) {
        group->tables[i] = trp_table_options_copy(&from->tables[i]);
        tables[i] = *group->tables[i];
    }
    own->tables = tables;
    own->table_count = from->table_count;
    if (from->agent || from->table_count == 0)
        set_agent(program, group, from->agent);
    return node_of(program, group);
}

trp_node trp_add_parameter_server(trp_program *program, const char *name, uint32_t count,
                                  const trp_parameter_server_options *options)
{
    struct node_group *group = add_group(program, NODE_SERVER, name, count);
    if (!group)
        return (trp_node){0};
    static const trp_parameter_server_options none;
    trp_options_resolve(group->table, options ? options : &none, &group->options.server);
    if (count == 0)
        graph_wrong(program, "server '%s': a group of 0 nodes", name);
    return node_of(program, group);
}

trp_node trp_add_learner(trp_program *program, const char *name, const trp_learner_options *options)
{
    static const trp_learner_options none;
    const trp_learner_options *from = options ? options : &none;
    struct node_group *group =
        add_group(program, NODE_LEARNER, name, from->count ? from->count : 1);
    if (!group)
        return (trp_node){0};
    trp_options_resolve(group->table, from, &group->options.learner);
    group->options.learner.replay = from->replay;
    set_agent(program, group, from->agent);
    if (from->replay.id != 0 || (!from->dataset && from->envs == 0))
        add_edge(program, group, "replay", from->replay, REPLAY_SERVICE);
    group->options.learner.server = from->server;
    if (from->server.id != 0)
        add_edge(program, group, "server", from->server, SERVER_SERVICE);
    return node_of(program, group);
}

trp_node trp_add_params_cache(trp_program *program, const char *name,
                              const trp_params_cache_options *options)
{
    struct node_group *group = add_group(program, NODE_CACHE, name, 1);
    if (!group)
        return (trp_node){0};
    static const trp_params_cache_options none;
    const trp_params_cache_options *from = options ? options : &none;
    trp_options_resolve(group->table, from, &group->options.cache);
    group->options.cache.params = from->params;
    add_edge(program, group, "params", from->params, PARAMS_SERVICE);
    return node_of(program, group);
}

static trp_node add_acting(trp_program *program, enum node_kind kind, const char *name,
                           uint32_t count, const trp_actor_options *options)
{
    struct node_group *group = add_group(program, kind, name, count);
    if (!group)
        return (trp_node){0};
    static const trp_actor_options none;
    const trp_actor_options *from = options ? options : &none;
    trp_options_resolve(group->table, from, &group->options.actor);
    group->options.actor.replay = from->replay;
    group->options.actor.params = from->params;
    set_agent(program, group, from->agent);
    if (count == 0)
        graph_wrong(program, "%s '%s': a group of 0 nodes", kind_words[kind], name);
    if (kind == NODE_ACTOR)
        add_edge(program, group, "replay", from->replay, REPLAY_SERVICE);
    add_edge(program, group, "params", from->params, PARAMS_SERVICE);
    return node_of(program, group);
}

trp_node trp_add_actors(trp_program *program, const char *name, uint32_t count,
                        const trp_actor_options *options)
{
    return add_acting(program, NODE_ACTOR, name, count, options);
}

trp_node trp_add_evaluator(trp_program *program, const char *name, const trp_actor_options *options)
{
    return add_acting(program, NODE_EVALUATOR, name, 1, options);
}

/* Bytes, or a struct with a table. */
static void take_arg(trp_program *program, struct node_group *group)
{
    trp_node_options *own = &group->options.own;
    const void *from = own->arg_size > 0 ? own->arg : NULL;
    if (own->options && own->arg_size > 0 && own->arg_size != own->options->bytes)
        graph_wrong(program, "node '%s': .arg_size is %zu, the struct of .options has %zu bytes",
                    group->name, own->arg_size, own->options->bytes);
    if (own->options)
        own->arg_size = own->options->bytes;
    void *arg = own->arg_size > 0 ? xcalloc(1, own->arg_size) : NULL;
    own->arg = arg;
    if (program->error)
        return;
    group->table = own->options;
    if (from)
        memcpy(arg, from, own->arg_size);
    if (own->options)
        trp_options_resolve(own->options, from, arg);
}

/* The list is the caller's, the descriptors are constants. */
static void copy_serves(trp_node_options *own)
{
    size_t bytes = own->serve_count * sizeof *own->serves;
    const ProtobufCServiceDescriptor **serves = xcalloc(own->serve_count + 1, sizeof *own->serves);
    if (bytes > 0)
        memcpy(serves, own->serves, bytes);
    own->serves = serves;
}

trp_node trp_add_node(trp_program *program, const char *name, const trp_node_options *options)
{
    uint32_t count = options && options->count ? options->count : 1;
    struct node_group *group = add_group(program, NODE_OWN, name, count);
    if (!group)
        return (trp_node){0};
    trp_node_options *own = &group->options.own;
    *own = options ? *options : (trp_node_options){0};
    take_arg(program, group);
    if (!own->run)
        graph_wrong(program, "node '%s': .run is not set", name);
    for (size_t i = 0; i < own->use_count; i++) {
        const struct node_group *used = program_group(program, own->uses[i]);
        if (used && used != group)
            add_use(group, own->uses[i]);
        else
            graph_wrong(program, "node '%s': .uses[%zu] is not a node of this program", name, i);
    }
    own->uses = NULL;
    copy_serves(own);
    return node_of(program, group);
}

/* ---- the whole --------------------------------------------------------------------------- */

/* Groups come after what they use, so one pass from the last to the first settles all levels. */
static void set_levels(trp_program *program)
{
    for (size_t i = program->group_count; i-- > 0;) {
        const struct node_group *group = program->groups[i];
        for (size_t k = 0; k < group->use_count; k++) {
            struct node_group *used = program->groups[group->uses[k].id - 1];
            if (used->level <= group->level)
                used->level = group->level + 1;
        }
    }
}

/* How many learners a group has may have been set since it was added. */
static trp_status number_nodes(trp_program *program)
{
    uint64_t count = 0;
    for (size_t i = 0; i < program->group_count; i++) {
        struct node_group *group = program->groups[i];
        group->first = (uint32_t)count;
        if (group->kind == NODE_LEARNER)
            group->count = group->options.learner.count;
        count += group->count;
        if (count > PROGRAM_NODES_MAX)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "%s '%s': %u nodes are too many: a program has at most %d",
                            kind_words[group->kind], group->name, group->count, PROGRAM_NODES_MAX);
    }
    program->node_count = (uint32_t)count;
    return TRP_OK;
}

/* The one that its options name; NULL: none. */
static const char *own_env(const struct node_group *group)
{
    switch (group->kind) {
    case NODE_REPLAY:
        return group->options.replay.env;
    case NODE_LEARNER:
        return group->options.learner.env;
    case NODE_SERVER:
    case NODE_CACHE:
    case NODE_OWN:
        return NULL;
    default:
        return group->options.actor.env;
    }
}

/* A learner or replay without an environment of its own has that of its first user. */
static void set_envs(trp_program *program)
{
    for (size_t i = program->group_count; i-- > 0;) {
        struct node_group *group = program->groups[i];
        group->env = own_env(group);
        for (size_t k = i + 1; k < program->group_count && !group->env; k++) {
            if (program->groups[k]->env && group_uses(program->groups[k], group))
                group->env = program->groups[k]->env;
        }
    }
}

static trp_status check_batches(const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    bool replay = options->replay.id != 0, dataset = options->dataset != NULL;
    bool envs = options->envs > 0;
    if (replay + dataset + envs == 1)
        return TRP_OK;
    if (replay + dataset + envs == 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner '%s': it has no .replay, .dataset or .envs to get batches from",
                        group->name);
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "learner '%s': %s%s%s are set: batches come from one of them", group->name,
                    replay ? ".replay" : ".dataset", replay && dataset ? " and .dataset" : "",
                    envs ? " and .envs" : "");
}

static trp_status check_strength(const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    if (options->min_learners <= options->count)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "learner '%s': .min_learners is %u, of %u learners",
                    group->name, options->min_learners, options->count);
}

static trp_status check_server(const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    bool has = options->server.id != 0;
    if (has == (options->mode == TRP_LEARNERS_SERVER))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    has ? "learner '%s': .server is set, which the mode server alone reads"
                        : "learner '%s': the mode is server, and .server is not set: the launch "
                          "file sets it, in C, to what trp_add_parameter_server() returned "
                          "(examples/ps.c); --set cannot",
                    group->name);
}

/* Commas are between them. */
static bool names_each(const char *names, uint32_t count)
{
    for (; count > 0; count--) {
        size_t length = strcspn(names, ",");
        if (length == 0 || (names[length] == '\0') != (count == 1))
            return false;
        names += length + 1;
    }
    return true;
}

static trp_status check_sites(const struct node_group *group)
{
    const char *sites = group->options.learner.sites;
    if (!sites || names_each(sites, group->count))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "learner '%s': .sites is '%s', which is not a name for each of %u learners",
                    group->name, sites, group->count);
}

static trp_status check_group(const struct node_group *group)
{
    const char *word = kind_words[group->kind];
    trp_status status = TRP_OK;
    if (group->table)
        status = trp_options_check(group->table, group_options(group));
    if (status != TRP_OK)
        return trp_fail(status, "%s '%s': %s", word, group->name, trp_last_error());
    TRP_TRY(devices_check(group));
    if (group->kind == NODE_LEARNER) {
        TRP_TRY(check_batches(group));
        TRP_TRY(check_strength(group));
        TRP_TRY(learner_check_mode(group));
        TRP_TRY(check_server(group));
        TRP_TRY(check_sites(group));
    }
    if (group->kind == NODE_REPLAY && group->count > 1 && group->options.replay.address)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s '%s': .address is set: %u shards cannot all listen at %s", word,
                        group->name, group->count, group->options.replay.address);
    if (!group->agent.impl)
        return TRP_OK;
    if (!group->env && (group->kind == NODE_ACTOR || group->kind == NODE_EVALUATOR))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s '%s': .env is not set", word, group->name);
    if (!group->env)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s '%s': no actor says which environment it is for: add one, or set .env",
                        word, group->name);
    return TRP_OK;
}

/* Of what names an environment, whoever else is to use it. */
static trp_status check_env_name(const struct node_group *group)
{
    const char *name = own_env(group);
    const trp_env_spec *spec;
    trp_status status = name ? trp_env_find(name, &spec) : TRP_OK;
    return status == TRP_OK ? TRP_OK
                            : trp_fail(status, "%s '%s': %s", kind_words[group->kind], group->name,
                                       trp_last_error());
}

static trp_status check_agent(const trp_program *program, const struct node_group *group)
{
    trp_status status = group->agent.impl ? trp_agent_check(&group->agent, group->env) : TRP_OK;
    if (status == TRP_OK)
        return TRP_OK;
    if (program_common_agent(program))
        return trp_fail(status, "the agent: %s", trp_last_error());
    return trp_fail(status, "the agent of %s '%s': %s", kind_words[group->kind], group->name,
                    trp_last_error());
}

/* The learner whose parameters a group acts with, if both say for which environment; or NULL. */
static const struct node_group *learner_of(const trp_program *program,
                                           const struct node_group *group)
{
    if (group->kind != NODE_ACTOR && group->kind != NODE_EVALUATOR)
        return NULL;
    const struct node_group *learner = program_group(program, group->options.actor.params);
    while (learner && learner->kind == NODE_CACHE)
        learner = program_group(program, learner->options.cache.params);
    return learner && learner->kind == NODE_LEARNER && learner->env ? learner : NULL;
}

/* Statistics go from actors to their learner and from there to all who act. */
static trp_status check_env_statistics(const struct node_group *group,
                                       const struct node_group *learner)
{
    size_t mine, its;
    TRP_TRY(trp_env_find_statistics(group->env, &mine));
    TRP_TRY(trp_env_find_statistics(learner->env, &its));
    if (mine == its)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s '%s': its environment '%s' normalises %zu numbers, but '%s' of learner "
                    "'%s' %zu: they need the same normalising wrappers",
                    node_kind_word(group->kind), group->name, group->env, mine, learner->env,
                    learner->name, its);
}

/* One agent's network is made for what one environment observes and lets do. */
static trp_status check_env_shapes(const struct node_group *group, const struct node_group *learner)
{
    const trp_env_spec *mine, *its;
    TRP_TRY(trp_env_find(group->env, &mine));
    TRP_TRY(trp_env_find(learner->env, &its));
    if (group->agent.impl != learner->agent.impl)
        return TRP_OK;
    if (mine->action_count != its->action_count)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s '%s': its environment '%s' has %d actions, but '%s' of learner "
                        "'%s' %d",
                        node_kind_word(group->kind), group->name, group->env,
                        (int)mine->action_count, learner->env, learner->name,
                        (int)its->action_count);
    trp_columns have = {0}, want = {0};
    trp_env_spec as_masked = *mine; /* a policy does without a mask */
    as_masked.masked = its->masked;
    trp_nstep_columns(&as_masked, NULL, &have);
    trp_nstep_columns(its, NULL, &want);
    char *who = xasprintf("%s '%s': its environment '%s' is not like '%s' of learner '%s'",
                          node_kind_word(group->kind), group->name, group->env, learner->env,
                          learner->name);
    trp_status status = trp_columns_check(&have, &want, who);
    free(who);
    trp_columns_cleanup(&have);
    trp_columns_cleanup(&want);
    return status;
}

static trp_status check_env(const trp_program *program, const struct node_group *group)
{
    const struct node_group *learner = learner_of(program, group);
    if (!learner)
        return TRP_OK;
    TRP_TRY(check_env_shapes(group, learner));
    return check_env_statistics(group, learner);
}

trp_status program_check(trp_program *program)
{
    if (program->error)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s", program->error);
    if (program->group_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "the program has no nodes");
    TRP_TRY(number_nodes(program));
    set_levels(program);
    set_envs(program);
    for (size_t i = 0; i < program->group_count; i++)
        TRP_TRY(check_env_name(program->groups[i]));
    for (size_t i = 0; i < program->group_count; i++) {
        TRP_TRY(check_group(program->groups[i]));
        TRP_TRY(check_agent(program, program->groups[i]));
    }
    for (size_t i = 0; i < program->group_count; i++) {
        TRP_TRY(check_env(program, program->groups[i]));
        TRP_TRY(learner_check(program, program->groups[i]));
    }
    return TRP_OK;
}
