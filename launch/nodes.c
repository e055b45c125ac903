/* The bodies of the built-in nodes. All they do is join what the lower folders make to the run:
 * where it keeps its files, whom it talks to, when it stops, and what it reports. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/words.h"
#include "host.h"
#include "params.pb-c.h"
#include "places.h"
#include "run_dir.h"
#include "server_watch.h"

enum {
    REPLAY_REPORT_MS = 500,
    REPLAY_GRACE_MS = 1000,
};

/* Members of the group `node`, which is an edge of this one. */
static uint32_t member_count(const trp_context *context, trp_node node)
{
    return program_group(context->host->options.program, node)->count;
}

/* ---- replay ------------------------------------------------------------------------------ */

static char *shard_dir(const trp_context *context, const char *dir)
{
    return place_of_shard(dir, trp_context_index(context), context->group->count);
}

/* What is restored is there at the first start only: later lives go on with what came of it. */
static trp_status restore_store(const char *from, const char *dir)
{
    if (!from)
        return TRP_OK;
    trp_status status = trp_replay_restore(from, dir, false);
    if (status != TRP_FAILED_PRECONDITION)
        return status;
    trp_log(TRP_INFO, "not restored, the store goes on dir=%s", dir);
    return TRP_OK;
}

static trp_status replay_node_create(trp_context *context, trp_replay_server **server)
{
    const struct node_group *group = context->group;
    const trp_replay_options *options = &group->options.replay;
    trp_agent_table_list list = {.count = 0};
    if (options->table_count == 0)
        TRP_TRY(trp_agent_tables(&group->agent, group->env, &list));
    char *own = node_dir(context);
    char *dir = shard_dir(context, options->dir ? options->dir : own);
    char *checkpoint_dir = shard_dir(context, options->checkpoint_dir);
    char *restore = shard_dir(context, options->restore);
    trp_replay_server_options server_options = {
        .dir = dir,
        .durability = options->durability,
        .max_bytes = options->max_bytes,
        .tables = options->table_count > 0 ? options->tables : list.tables,
        .table_count = options->table_count > 0 ? options->table_count : list.count,
        .seed = node_seed(context, 0),
        .checkpoint_dir = checkpoint_dir,
        .keep_checkpoints = options->keep_checkpoints,
        .shrink = options->shrink,
        .verify = options->verify,
        .lease_ms = options->lease_ms,
        .no_share = options->no_share,
        .server = {.address = options->address ? options->address : trp_context_address(context),
                   .insecure = options->insecure,
                   .in_flight_bytes = options->in_flight_bytes},
    };
    trp_status status = restore_store(restore, dir);
    if (status == TRP_OK)
        status = trp_replay_server_create(server, &server_options);
    free(restore);
    free(checkpoint_dir);
    free(dir);
    free(own);
    trp_agent_table_list_cleanup(&list);
    return status;
}

/* Of all tables, also those that clients made. */
static void report_tables(trp_context *context, trp_channel *channel)
{
    trp_table_info *tables;
    size_t count;
    trp_status status = trp_replay_tables(channel, &tables, &count, 1000);
    double items = 0, inserts = 0, samples = 0;
    for (size_t i = 0; status == TRP_OK && i < count; i++) {
        items += (double)tables[i].size;
        inserts += (double)tables[i].inserts;
        samples += (double)tables[i].samples;
    }
    free(tables);
    if (status != TRP_OK)
        return;
    trp_context_report(context, "items", items);
    trp_context_report(context, "inserts", inserts);
    trp_context_report(context, "samples", samples);
}

static trp_status replay_run(trp_context *context)
{
    trp_replay_server *server = NULL;
    TRP_TRY(replay_node_create(context, &server));
    trp_status status = trp_replay_server_start(server);
    if (status == TRP_OK) {
        trp_server *rpc = trp_replay_server_rpc(server);
        context_publish(context, rpc, trp_server_address(rpc));
        trp_channel *self = trp_channel_create_local(rpc);
        do
            report_tables(context, self);
        while (!trp_stop_wait(trp_context_stop(context), REPLAY_REPORT_MS));
        trp_channel_destroy(self);
        if (!trp_context_withdraw(context, status))
            return status;
        trp_replay_server_stop(server, REPLAY_GRACE_MS);
    }
    trp_replay_server_destroy(server);
    return status;
}

/* ---- parameter server -------------------------------------------------------------------- */

/* Learners that may wait at it: each blocks a handler. */
static uint32_t count_learners(const trp_context *context)
{
    const trp_program *program = context->host->options.program;
    uint32_t count = 0;
    for (size_t i = 0; i < program->group_count; i++)
        if (group_uses(program->groups[i], context->group))
            count += program->groups[i]->count;
    return count;
}

static void poll_server(struct metrics *metrics, void *polled)
{
    trp_parameter_server_counters counters = trp_parameter_server_read(polled);
    metrics_set(metrics, "pushes", (double)counters.pushes);
    metrics_set(metrics, "server_steps", (double)counters.versions);
    metrics_set(metrics, "dropped_pushes", (double)counters.dropped);
    metrics_set(metrics, "clocks_behind", (double)counters.most_behind);
    metrics_set(metrics, "push_bytes", (double)counters.push_bytes);
    metrics_set(metrics, "pull_bytes", (double)counters.pull_bytes);
}

static void print_bound(const trp_context *context, trp_parameter_server *server)
{
    const trp_parameter_server_options *options = &context->group->options.server;
    trp_parameter_server_counters counters = trp_parameter_server_read(server);
    flockfile(stdout); /* others of this process print theirs at the same time */
    if (context->host->options.launcher == 0) /* it says whose a line of a process is */
        printf("%s: ", trp_context_name(context));
    printf("%" PRIu64 " push%s; no learner read more than %" PRIu64 " clock%s ahead of the slowest",
           counters.pushes, counters.pushes == 1 ? "" : "es", counters.most_behind,
           plural((int64_t)counters.most_behind));
    if (options->rule == TRP_SERVER_SSP)
        printf(", its slack is %" PRIu32, options->slack);
    if (counters.push_bytes + counters.pull_bytes > 0)
        printf("; sent: %" PRIu64 " bytes of gradients, %" PRIu64 " of values", counters.push_bytes,
               counters.pull_bytes);
    printf("\n");
    fflush(stdout);
    funlockfile(stdout);
}

static trp_status server_run(trp_context *context)
{
    static const char *const blocking[] = {"Pull", NULL};
    const trp_parameter_server_options *options = &context->group->options.server;
    char *own = node_dir(context), *dir = shard_dir(context, own);
    trp_parameter_server *server;
    trp_status status =
        trp_parameter_server_create(&server, trp_context_name(context), options, dir);
    free(dir);
    free(own);
    TRP_TRY(status);
    status = trp_context_serve(
        context, trp_parameter_server_service(server),
        &(trp_serve_options){.blocking = blocking, .threads = count_learners(context) + 2});
    context_set_poll(context, poll_server, server);
    if (status == TRP_OK)
        trp_stop_wait(trp_context_stop(context), -1);
    context_set_poll(context, NULL, NULL);
    if (status == TRP_OK)
        status = trp_parameter_server_save(server);
    print_bound(context, server);
    if (trp_context_withdraw(context, status))
        trp_parameter_server_destroy(server);
    return status;
}

/* ---- learner ----------------------------------------------------------------------------- */

/* How many groups of learners were added before this one. */
static uint32_t learner_index(const trp_context *context)
{
    const trp_program *program = context->host->options.program;
    uint32_t index = 0;
    for (size_t i = 0; program->groups[i] != context->group; i++)
        index += program->groups[i]->kind == NODE_LEARNER;
    return index;
}

/* Channels to the shards that this learner samples from; without a replay node there are none.
 * Learners of a group share them out, but each has one at least. */
static trp_status dial_shards(trp_context *context, trp_channel ***channels, size_t *count)
{
    const trp_learner_options *options = &context->group->options.learner;
    uint32_t shards = options->replay.id ? member_count(context, options->replay) : 0;
    uint32_t learners = context->group->count < shards ? context->group->count : shards;
    *channels = xcalloc(shards + 1, sizeof **channels);
    *count = 0;
    for (uint32_t i = 0; i < shards; i++)
        if (i % learners == context->index % learners)
            TRP_TRY(trp_context_channel(context, options->replay, i, &(*channels)[(*count)++]));
    return TRP_OK;
}

/* The parameter servers of this learner; without some, count is 0. Their list is for free(). */
static trp_status dial_servers(trp_context *context, trp_learner_servers *servers,
                               ProtobufCService ***services)
{
    const trp_learner_options *options = &context->group->options.learner;
    const struct node_group *group = program_group(context->host->options.program, options->server);
    *servers = (trp_learner_servers){.worker = context->index,
                                     .workers = context->group->count,
                                     .goes_on = options->on_failure == TRP_ON_FAILURE_CONTINUE,
                                     .watch = server_watch(context)};
    *services = xcalloc(group ? group->count : 1, sizeof **services);
    if (!group)
        return TRP_OK;
    servers->name = group->name;
    servers->services = *services;
    servers->options = group->options.server;
    for (; servers->count < group->count; servers->count++)
        TRP_TRY(trp_dial(context, options->server, (uint32_t)servers->count,
                         trp_parameter_server_descriptor(), &(*services)[servers->count]));
    return TRP_OK;
}

static char *ring_address(const trp_context *context)
{
    char *path =
        run_dir_ring_path(context->host->options.socket_dir, context->group, context->index);
    char *address = xasprintf("unix:%s", path);
    free(path);
    return address;
}

/* With whom this learner learns. `ring` is where the others reach it. */
static trp_learner_group_options learner_group(const trp_context *context, const char *ring,
                                               const trp_learner_servers *servers)
{
    const trp_learner_options *options = &context->group->options.learner;
    return (trp_learner_group_options){
        .rendezvous = context_rendezvous(context),
        .name = context->group->name,
        .mode = group_choice(context->group, "mode", options->mode),
        .listen = ring,
        .sites = options->sites,
        .count = options->count,
        .local_steps = options->local_steps,
        .outer_momentum = options->outer_momentum,
        .significance = options->significance,
        .site_slack = options->site_slack,
        .bucket_bytes = (size_t)options->bucket_bytes,
        .timeout_ms = (uint32_t)options->collective_timeout_ms,
        .compression = {.kind = group_choice(context->group, "compression", options->compression),
                        .ratio = options->compression_ratio,
                        .warmup_steps = options->compression_warmup_steps,
                        .momentum = options->compression_momentum,
                        .keep_momentum = options->compression_keep_momentum,
                        .rank = options->compression_rank,
                        .bits = options->compression_bits},
        .servers = servers,
    };
}

static trp_status learner_create(trp_context *context, trp_learner **learner)
{
    const struct node_group *group = context->group;
    const trp_learner_options *options = &group->options.learner;
    trp_channel **replays;
    size_t replay_count;
    trp_device *device = NULL;
    trp_learner_servers servers;
    ProtobufCService **services = NULL;
    trp_status status = dial_shards(context, &replays, &replay_count);
    if (status == TRP_OK)
        status = dial_servers(context, &servers, &services);
    if (status == TRP_OK)
        status = trp_context_device(context, &device);
    char *dir = node_dir(context), *ring = ring_address(context);
    trp_agent_learner_options learner_options = {
        .env = group->env,
        .batch_size = options->batch_size,
        .device = device,
        .threads = options->threads,
        .replays = replays,
        .replay_count = replay_count,
        .dataset = {.dir = options->dataset,
                    .shuffle = options->dataset_shuffle,
                    .epochs = options->dataset_epochs},
        .rollout = {.name = trp_context_name(context),
                    .copies = options->envs,
                    .index = trp_context_index(context)},
        .prefetch = options->prefetch,
        .seed = trp_context_seed(context),
        .index = learner_index(context),
        .member = context->index,
        .loop = {.stop = trp_context_stop(context),
                 .publish_every = options->publish_every,
                 .checkpoint_dir = dir,
                 .checkpoint_every_s = options->checkpoint_every_s,
                 .resume = trp_context_resume(context),
                 .max_steps = options->max_steps,
                 .no_share = options->no_share,
                 .group = learner_group(context, ring, &servers)},
    };
    if (status == TRP_OK)
        status = trp_agent_learner_create(learner, &group->agent, &learner_options);
    free(services);
    free(ring);
    free(dir);
    free(replays);
    return status;
}

/* One that began again has no steps until it has those of others: what was said of it stays. */
static void poll_learner(struct metrics *metrics, void *polled)
{
    trp_learner_counters counters = trp_learner_read(polled);
    if (counters.steps > 0) {
        metrics_set(metrics, "learner_steps", (double)counters.steps);
        metrics_set(metrics, "version", (double)counters.version);
    }
    metrics_set(metrics, "total_actor_steps", (double)counters.actor_steps);
    for (size_t i = 0; i < counters.metric_count; i++)
        metrics_set(metrics, counters.metrics[i].name, counters.metrics[i].value);
    metrics_set(metrics, "wait_seconds", (double)counters.wait_ns / 1e9);
    metrics_set(metrics, "update_seconds", (double)counters.update_ns / 1e9);
    metrics_set(metrics, "publish_seconds", (double)counters.publish_ns / 1e9);
    if (counters.uploaded_bytes > 0)
        metrics_set(metrics, "uploaded_mib", (double)counters.uploaded_bytes / (1 << 20));
}

/* Learns, then goes on handing out parameters until nobody pulls them any more. */
static trp_status learner_learn(trp_context *context, trp_learner *learner)
{
    context_set_poll(context, poll_learner, learner);
    trp_status status = trp_learner_run(learner);
    trp_learner_counters counters = trp_learner_read(learner);
    if (status == TRP_OK && counters.finished && !trp_stop_requested(trp_context_stop(context))) {
        char reason[128];
        snprintf(reason, sizeof reason, "%" PRIu64 " learner steps done", counters.steps);
        trp_context_stop_program(context, true, reason);
        trp_stop_wait(trp_context_stop(context), -1);
    }
    context_set_poll(context, NULL, NULL);
    return status;
}

static trp_status learner_run(trp_context *context)
{
    trp_learner *learner = NULL;
    trp_status status = learner_create(context, &learner);
    if (status == TRP_OK)
        status = trp_context_serve(context, trp_learner_service(learner), NULL);
    if (status == TRP_OK)
        status = learner_learn(context, learner);
    if (trp_context_withdraw(context, status))
        trp_learner_destroy(learner);
    return status;
}

/* ---- actor ------------------------------------------------------------------------------- */

/* Counts of earlier lives come with its first parameters. */
static void poll_actor(struct metrics *metrics, void *polled)
{
    trp_actor_counters counters = trp_actor_read(polled);
    if (counters.version == 0)
        return;
    metrics_set(metrics, "actor_steps", (double)(counters.earlier_steps + counters.steps));
    metrics_set(metrics, "episodes", (double)(counters.earlier_episodes + counters.episodes));
    for (size_t i = 0; i < counters.metric_count; i++)
        metrics_set(metrics, counters.metrics[i].name, counters.metrics[i].value);
    if (!isnan(counters.mean_return))
        metrics_set(metrics, "return", counters.mean_return);
    metrics_set(metrics, "blocked_seconds", (double)counters.blocked_ns / 1e9);
    metrics_set(metrics, "params_lag", (double)counters.params_lag);
    metrics_set(metrics, "params_age_s", (double)counters.params_age_ns / 1e9);
    metrics_set(metrics, "stale_seconds", (double)counters.stale_ns / 1e9);
}

static trp_status actor_run(trp_context *context)
{
    const struct node_group *group = context->group;
    const trp_actor_options *options = &group->options.actor;
    trp_channel *replay;
    ProtobufCService *params;
    uint32_t shard = trp_context_index(context) % member_count(context, options->replay);
    TRP_TRY(trp_context_channel(context, options->replay, shard, &replay));
    TRP_TRY(trp_dial(context, options->params, 0, trp_params_descriptor(), &params));
    trp_actor *actor;
    trp_device *device;
    TRP_TRY(trp_context_device(context, &device));
    TRP_TRY(trp_agent_actor_create(&actor, &group->agent,
                                   &(trp_agent_actor_options){
                                       .name = trp_context_name(context),
                                       .env = group->env,
                                       .copies = options->envs,
                                       .index = trp_context_index(context),
                                       .count = trp_context_group_size(context),
                                       .device = device,
                                       .replay = replay,
                                       .params = params,
                                       .stop = trp_context_stop(context),
                                       .seed = trp_context_seed(context),
                                       .max_steps = options->max_steps,
                                       .max_episodes = options->max_episodes,
                                       .pull_every_steps = options->pull_every_steps,
                                       .sync_every_items = options->sync_every_items,
                                       .max_lag = options->max_lag,
                                       .max_age_s = options->max_age_s,
                                       .params_precision = options->params_precision,
                                   }));
    context_log_device(context, device);
    context_set_poll(context, poll_actor, actor);
    trp_status status = trp_actor_run(actor);
    context_set_poll(context, NULL, NULL);
    trp_actor_counters counters = trp_actor_read(actor);
    if (status == TRP_OK && counters.finished) {
        uint64_t episodes = counters.earlier_episodes + counters.episodes;
        bool all = options->max_episodes > 0 && episodes >= options->max_episodes;
        char reason[128];
        snprintf(reason, sizeof reason, "%" PRIu64 " %s done",
                 all ? episodes : counters.total_steps, all ? "episodes" : "actor steps");
        trp_context_stop_program(context, true, reason);
    }
    trp_actor_destroy(actor);
    return status;
}

/* ---- all --------------------------------------------------------------------------------- */

trp_status node_run(trp_context *context)
{
    const struct node_group *group = context->group;
    switch (group->kind) {
    case NODE_REPLAY:
        return replay_run(context);
    case NODE_SERVER:
        return server_run(context);
    case NODE_LEARNER:
        return learner_run(context);
    case NODE_ACTOR:
        return actor_run(context);
    case NODE_EVALUATOR:
        return evaluator_run(context);
    case NODE_CACHE:
        return cache_run(context);
    case NODE_OWN:
        break;
    }
    return group->options.own.run(context, group->options.own.arg);
}
