/* Learners that could never make a step as they are asked to: who begins them anyway sees each of
 * them fail of it, or everybody wait for everybody. Only agents with an option table say what their
 * optimizer and their batches are; of others the learner finds out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/learner.h>
#include "core/alloc.h"
#include "core/option_table.h"
#include "core/words.h"
#include "devices.h"
#include "graph.h"

/* As text; caller frees. NULL: the agent has no such option. */
static char *agent_option(const trp_agent *agent, const char *name)
{
    const trp_option_table *table = agent->impl ? agent->impl->options : NULL;
    const trp_option *option = table ? option_find(table, name) : NULL;
    return option ? option_value(option, &agent->options) : NULL;
}

/* Of its momentum, and of agents without such an option, the learner finds out. */
static const trp_optimizer *agent_optimizer(const trp_agent *agent, trp_optimizer *optimizer)
{
    char *name = agent_option(agent, "optimizer");
    uint32_t kind = 0;
    while (name && kind < TRP_OPTIMIZER_KINDS &&
           strcmp(name, trp_optimizer_name((trp_optimizer_kind)kind)) != 0)
        kind++;
    bool known = name && kind < TRP_OPTIMIZER_KINDS;
    if (known)
        *optimizer = (trp_optimizer){.kind = (trp_optimizer_kind)kind};
    free(name);
    return known ? optimizer : NULL;
}

trp_status learner_check_mode(const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    trp_optimizer optimizer;
    const trp_learner_mode_use use = {
        .mode = group_choice(group, "mode", options->mode),
        .alone = !group_is_gang(group),
        .device = devices_name_gpu(group) ? devices_name(group) : NULL,
        .optimizer = agent_optimizer(&group->agent, &optimizer),
        .compression = {.kind = group_choice(group, "compression", options->compression),
                        .momentum = options->compression_momentum}};
    trp_status status = trp_learner_mode_check(&use);
    return status == TRP_OK ? TRP_OK
                            : trp_fail(status, "learner '%s': %s", group->name, trp_last_error());
}

static trp_status check_servers_fit(const trp_program *program, const struct node_group *group)
{
    const struct node_group *servers = program_group(program, group->options.learner.server);
    trp_optimizer optimizer;
    if (!servers)
        return TRP_OK;
    trp_status status =
        trp_parameter_server_check(&servers->options.server, servers->count, group->count,
                                   agent_optimizer(&group->agent, &optimizer));
    return status == TRP_OK ? TRP_OK
                            : trp_fail(status, "learner '%s' at '%s': %s", group->name,
                                       servers->name, trp_last_error());
}

/* ---- actors that wait for the version of their items ----------------------------------------- */

/* Items of which each is in one batch: others may be in the next one, too. */
static bool items_go_once(const struct node_group *group)
{
    trp_agent_table_list list = {.count = 0};
    bool once = trp_agent_tables(&group->agent, group->env, &list) == TRP_OK && list.count > 0;
    for (size_t i = 0; once && i < list.count; i++)
        once = list.tables[i].max_times_sampled == 1;
    trp_agent_table_list_cleanup(&list);
    return once;
}

/* Of one: all its copies act before it looks. */
static uint64_t items_of_an_actor(const trp_actor_options *options)
{
    uint64_t items = options->sync_every_items * (options->max_lag + UINT64_C(1));
    return (items + options->envs - 1) / options->envs * options->envs;
}

/* What actors insert before all of them wait for a version of `group`; UINT64_MAX: not all do. */
static uint64_t items_before_a_wait(const trp_program *program, const struct node_group *group)
{
    const struct node_group *replay = program_group(program, group->options.learner.replay);
    uint64_t items = 0;
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *actors = program->groups[i];
        const trp_actor_options *options = &actors->options.actor;
        if (!group_uses(actors, replay) || actors->kind == NODE_LEARNER)
            continue;
        bool waits = actors->kind == NODE_ACTOR && options->sync_every_items > 0 &&
                     options->sync_every_items <= UINT32_MAX;
        if (!waits)
            return UINT64_MAX;
        items += actors->count * items_of_an_actor(options);
    }
    return items;
}

static trp_status check_waits(const trp_program *program, const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    char *own = agent_option(&group->agent, "batch_size");
    uint64_t batch = options->batch_size ? options->batch_size : own ? strtoull(own, NULL, 10) : 0;
    free(own);
    uint64_t need = batch * group->count * options->publish_every;
    uint64_t items = options->replay.id != 0 ? items_before_a_wait(program, group) : UINT64_MAX;
    if (items == 0 || items >= need || !items_go_once(group))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "learner '%s': its actors wait for a version after %" PRIu64
                    " items (sync_every_items), and one is made of %" PRIu64 " (%u learner%s, "
                    "batch_size %" PRIu64 ", publish_every %u): everybody would wait for everybody",
                    group->name, items, need, group->count, plural(group->count), batch,
                    options->publish_every);
}

/* ---- what it learns from --------------------------------------------------------------------- */

static trp_status check_normalized(const struct node_group *group)
{
    char *normalizes = agent_option(&group->agent, "normalize_states");
    bool lacks = normalizes && strcmp(normalizes, "true") == 0 && !group->options.learner.dataset;
    free(normalizes);
    if (!lacks)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "learner '%s': agent.normalize_states takes means and deviations of a dataset, "
                    "and it has no .dataset",
                    group->name);
}

trp_status learner_check(const trp_program *program, const struct node_group *group)
{
    if (group->kind != NODE_LEARNER || !group->agent.impl)
        return TRP_OK;
    TRP_TRY(check_servers_fit(program, group));
    TRP_TRY(check_normalized(group));
    return check_waits(program, group);
}

/* ---- sites ----------------------------------------------------------------------------------- */

/* Different names between commas. */
static uint32_t count_names(const char *names)
{
    uint32_t count = 0;
    for (const char *name = names; name; name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL) {
        size_t length = strcspn(name, ",");
        const char *before = names;
        while (before < name &&
               !(strcspn(before, ",") == length && strncmp(before, name, length) == 0))
            before = strchr(before, ',') + 1;
        count += before == name;
    }
    return count;
}

char *learner_remark(const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    if (group->kind != NODE_LEARNER ||
        option_is_idle(group->table, option_find(group->table, "sites"), options))
        return NULL;
    bool gaia = options->mode == TRP_LEARNERS_GAIA && group_is_gang(group);
    uint32_t sites = options->sites ? count_names(options->sites) : 1;
    if (sites == 1 && gaia)
        return xasprintf("learner '%s': the mode is gaia, and all learners are at one site%s: they "
                         "go on from their mean after every step, and nothing goes between sites",
                         group->name, options->sites ? "" : ", this host, as .sites is not set");
    if (sites == 1 && options->sites)
        return xasprintf("learner '%s': .sites is %s, which is one site: it changes nothing",
                         group->name, options->sites);
    if (sites == group->count && options->sites && !gaia)
        return xasprintf("learner '%s': .sites is %s, of which each has one learner: sums go round "
                         "one ring, as without it",
                         group->name, options->sites);
    return NULL;
}
