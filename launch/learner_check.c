/* Learners that could never make a step as they are asked to: who begins them anyway sees each of
 * them fail of it, or everybody wait for everybody. Only agents with an option table say what their
 * optimizer and their batches are; of others the learner finds out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/option_table.h"
#include "core/words.h"
#include "devices.h"
#include "graph.h"

/* As text; caller frees. NULL: the agent has no such option. */
static char *agent_option(const trp_agent *agent, const char *name)
{
    const trp_option_table *table = agent->impl->options;
    const trp_option *option = table ? option_find(table, name) : NULL;
    return option ? option_value(option, &agent->options) : NULL;
}

static trp_status check_optimizer_fits(const trp_program *program, const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    const struct node_group *server = program_group(program, options->server);
    bool dynsgd = server && server->options.server.rule == TRP_SERVER_DYNSGD;
    bool cuts = server || (options->mode == TRP_LEARNERS_SHARDED && group_is_gang(group));
    char *optimizer = agent_option(&group->agent, "optimizer");
    trp_status status = TRP_OK;
    if (optimizer && cuts && strcmp(optimizer, "lamb") == 0)
        status = trp_fail(TRP_INVALID_ARGUMENT,
                          "learner '%s': the optimizer lamb steps whole tensors, and with the mode "
                          "%s each has a range: use another one",
                          group->name, server ? "server" : "sharded");
    else if (optimizer && dynsgd && strcmp(optimizer, "sgd") != 0)
        status = trp_fail(TRP_INVALID_ARGUMENT,
                          "learner '%s': the rule dynsgd of server '%s' takes steps back, which %s "
                          "cannot: use sgd",
                          group->name, server->name, optimizer);
    free(optimizer);
    return status;
}

static bool shares_by_steps(const struct node_group *group)
{
    uint32_t mode = group->options.learner.mode;
    return group_is_gang(group) && (mode == TRP_LEARNERS_HOGWILD || mode == TRP_LEARNERS_DOGWILD);
}

/* As the modes themselves refuse them, who know of momentum, too. */
static trp_status check_mode_fits(const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    const char *mode = option_find(group->table, "mode")->choices[options->mode];
    bool shares = shares_by_steps(group);
    bool on_hosts = shares || options->server.id != 0 ||
                    (options->mode == TRP_LEARNERS_GAIA && group_is_gang(group));
    if (on_hosts && devices_name_gpu(group))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner '%s': .device is %s, and learners of the mode %s keep their "
                        "parameters in memory of hosts: use cpu",
                        group->name, devices_name(group), mode);
    char *optimizer = shares ? agent_option(&group->agent, "optimizer") : NULL;
    trp_status status = TRP_OK;
    if (optimizer && strcmp(optimizer, "sgd") != 0 && strcmp(optimizer, "rmsprop") != 0 &&
        strcmp(optimizer, "adam") != 0)
        status = trp_fail(TRP_INVALID_ARGUMENT,
                          "learner '%s': the optimizer is %s, and the mode %s has rmsprop, adam, "
                          "and sgd without momentum",
                          group->name, optimizer, mode);
    free(optimizer);
    return status;
}

/* The hosts of learners and idle ones have a server each. */
static trp_status check_servers_fit(const trp_program *program, const struct node_group *group)
{
    const struct node_group *servers = program_group(program, group->options.learner.server);
    uint32_t idle = servers ? servers->options.server.idle_hosts : 0;
    if (idle == 0 || (idle <= group->count && servers->count == group->count + idle))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "learner '%s': %u learner%s, %u server%s and %s.idle_hosts=%u do not go "
                    "together: there is one server for each learner and each idle host, and no "
                    "more idle hosts than learners",
                    group->name, group->count, plural(group->count), servers->count,
                    plural(servers->count), servers->name, idle);
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
                    group->name, items, need, group->count, group->count == 1 ? "" : "s", batch,
                    options->publish_every);
}

trp_status learner_check(const trp_program *program, const struct node_group *group)
{
    if (group->kind != NODE_LEARNER || !group->agent.impl)
        return TRP_OK;
    TRP_TRY(check_optimizer_fits(program, group));
    TRP_TRY(check_mode_fits(group));
    TRP_TRY(check_servers_fit(program, group));
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
