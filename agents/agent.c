/* What nodes do with an agent, whatever its algorithm: look up the environment, check that they
 * fit, make the parts, and give every part a random stream of its own.
 *
 * Streams are drawn from the run's seed and the place of the node (its name and index), so that a
 * run has one seed, no two nodes draw the same numbers, and adding an actor changes no other
 * one. */
#include <troupe/agent.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/option_table.h"
#include "core/thread.h"

enum stream { STREAM_ENV = 1, STREAM_EXPLORATION, STREAM_KEYS, STREAM_PARAMS, STREAM_DATASET };

static uint64_t stream_seed(uint64_t seed, enum stream stream, const char *name, uint32_t index)
{
    uint64_t place = hash_bytes(HASH_BYTES_EMPTY, name ? name : "", name ? strlen(name) : 0);
    trp_rng rng;
    trp_rng_init(&rng, seed, place ^ ((uint64_t)stream << 32 | index));
    return trp_rng_u64(&rng);
}

trp_status trp_agent_table_list_add(trp_agent_table_list *list, const trp_table_options *table,
                                    trp_columns *columns)
{
    assert(list->count < TRP_AGENT_TABLES_MAX);
    trp_table_options *added = &list->tables[list->count];
    *added = *table;
    trp_status status = trp_signature_encode(columns->specs, columns->count, &added->signature);
    trp_columns_cleanup(columns);
    list->count += status == TRP_OK;
    return status;
}

void trp_agent_table_list_cleanup(trp_agent_table_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free((void *)list->tables[i].signature.data);
    list->count = 0;
}

trp_agent trp_agent_make(const trp_agent_impl *impl, const void *options)
{
    trp_agent agent;
    memset(&agent, 0, sizeof agent);
    agent.impl = impl;
    if (!impl->options)
        return agent;
    assert(impl->options->bytes <= TRP_AGENT_OPTION_BYTES);
    for (size_t i = 0; i < impl->options->count; i++)
        assert(impl->options->options[i].type != TRP_OPTION_TEXT);
    trp_options_resolve(impl->options, options, agent.options.bytes);
    return agent;
}

uint64_t trp_agent_hash(const trp_agent *agent)
{
    const trp_agent_impl *impl = agent->impl;
    uint64_t hash = hash_bytes(HASH_BYTES_EMPTY, impl->name, strlen(impl->name) + 1);
    if (impl->options)
        return options_hash(hash, impl->options, agent->options.bytes);
    return hash_bytes(hash, agent->options.bytes, sizeof agent->options.bytes);
}

static trp_status find_and_check(const trp_agent *agent, const char *env, const trp_env_spec **spec)
{
    const trp_agent_impl *impl = agent->impl;
    TRP_TRY(trp_env_find(env, spec));
    trp_status status =
        impl->options ? trp_options_check(impl->options, agent->options.bytes) : TRP_OK;
    if (status != TRP_OK)
        return trp_fail(status, "%s: %s", impl->name, trp_last_error());
    return impl->check ? impl->check(agent, *spec) : TRP_OK;
}

trp_status trp_agent_check(const trp_agent *agent, const char *env)
{
    const trp_env_spec *spec;
    return find_and_check(agent, env, &spec);
}

trp_status trp_agent_tables(const trp_agent *agent, const char *env, trp_agent_table_list *list)
{
    const trp_env_spec *spec;
    *list = (trp_agent_table_list){0};
    TRP_TRY(find_and_check(agent, env, &spec));
    return agent->impl->tables(agent, spec, list);
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* Policies and updaters of one's own may know nothing of devices: whether `its` is `wanted`. */
static trp_status check_device(const trp_agent *agent, const char *does, trp_device *wanted,
                               trp_device *its)
{
    trp_device *cpu;
    TRP_TRY(trp_device_find(&cpu, NULL));
    if ((its ? its : cpu) == (wanted ? wanted : cpu))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "%s %s on device %s, not on %s", agent->impl->name, does,
                    trp_device_name(its ? its : cpu), trp_device_name(wanted ? wanted : cpu));
}

static trp_status make_policy(const trp_agent *agent, const trp_env_spec *spec,
                              const trp_policy_options *options, trp_policy **out)
{
    TRP_TRY(agent->impl->policy(agent, spec, options, out));
    trp_status status = check_device(agent, "acts", options->device, (*out)->device);
    if (status == TRP_OK)
        return TRP_OK;
    trp_policy_destroy(*out);
    *out = NULL;
    return status;
}

static trp_status make_parts(const trp_agent *agent, const trp_env_spec *spec,
                             const trp_agent_actor_options *options, trp_actor_loop_options *loop)
{
    uint64_t env_seed = stream_seed(options->seed, STREAM_ENV, options->name, options->index);
    /* Keys of items must differ between runs on one store; only a repeatable run needs them to be
     * the same. */
    uint64_t key_seed =
        turns_active() ? stream_seed(options->seed, STREAM_KEYS, options->name, options->index) : 0;
    TRP_TRY(trp_env_create(&loop->env, options->env,
                           &(trp_env_options){.count = options->copies, .seed = env_seed}));
    TRP_TRY(make_policy(agent, spec,
                        &(trp_policy_options){.rows = options->copies,
                                              .index = options->index,
                                              .count = options->count,
                                              .device = options->device},
                        &loop->policy));
    TRP_TRY(agent->impl->adder(agent,
                               &(trp_adder_options){.replay = options->replay,
                                                    .rollout = options->rollout,
                                                    .env = spec,
                                                    .extras = &loop->policy->extras,
                                                    .copies = options->copies,
                                                    .seed = key_seed},
                               &loop->adder));
    TRP_TRY(trp_columns_check(&loop->policy->extras, &loop->adder->extras, "extras of the policy"));
    return options->rollout
               ? trp_columns_check(&loop->adder->columns, trp_rollout_columns(options->rollout),
                                   "items of the adder")
               : TRP_OK;
}

trp_status trp_agent_actor_create(trp_actor **out, const trp_agent *agent,
                                  const trp_agent_actor_options *options)
{
    *out = NULL;
    const trp_env_spec *spec;
    TRP_TRY(find_and_check(agent, options->env, &spec));
    trp_actor_loop_options loop = {
        .name = options->name,
        .params = options->params,
        .stop = options->stop,
        .seed = stream_seed(options->seed, STREAM_EXPLORATION, options->name, options->index),
        .max_steps = options->max_steps,
        .max_episodes = options->max_episodes,
        .pull_every_steps = options->pull_every_steps,
        .sync_every_items = options->sync_every_items,
        .max_lag = options->max_lag,
        .max_age_s = options->max_age_s,
        .params_precision = options->params_precision,
        .stepped = options->rollout != NULL,
    };
    trp_status status = make_parts(agent, spec, options, &loop);
    if (status == TRP_OK && loop.pull_every_steps == 0 && loop.sync_every_items == 0)
        loop.pull_every_steps = loop.adder->pull_every_steps;
    if (status == TRP_OK)
        return trp_actor_create(out, &loop);
    trp_adder_destroy(loop.adder);
    trp_policy_destroy(loop.policy);
    trp_env_destroy(loop.env);
    return status;
}

static trp_status make_source(const trp_agent *agent, const trp_agent_learner_options *options,
                              trp_source **source)
{
    trp_dataset_source_options dataset = options->dataset;
    if (options->rollout.copies > 0)
        return trp_agent_rollout_source_create(source, agent, options->env, options->seed,
                                               &options->rollout);
    if (!dataset.dir)
        return trp_sampler_source_create(
            source, &(trp_sampler_source_options){.shards = options->replays,
                                                  .shard_count = options->replay_count,
                                                  .prefetch = options->prefetch});
    dataset.prefetch = options->prefetch;
    dataset.seed =
        stream_seed(options->seed + options->member, STREAM_DATASET, NULL, options->index);
    return trp_dataset_source_create(source, &dataset);
}

/* Every source is a table of the replay servers or of the store, or what is in its place. */
static trp_status make_sources(const trp_agent *agent, const trp_agent_learner_options *options,
                               const trp_updater *updater, trp_source **sources)
{
    if (options->rollout.copies > 0 && updater->source_count != 1)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s reads %zu tables: rollouts stand in place of one",
                        agent->impl->name, updater->source_count);
    for (size_t i = 0; i < updater->source_count; i++) {
        trp_status status = make_source(agent, options, &sources[i]);
        if (status == TRP_OK)
            continue;
        while (i-- > 0)
            trp_source_destroy(sources[i]);
        return status;
    }
    return TRP_OK;
}

trp_status trp_agent_learner_create(trp_learner **out, const trp_agent *agent,
                                    const trp_agent_learner_options *options)
{
    *out = NULL;
    const trp_env_spec *spec;
    TRP_TRY(find_and_check(agent, options->env, &spec));
    size_t statistic_count;
    TRP_TRY(trp_env_find_statistics(options->env, &statistic_count));
    trp_learner_loop_options loop = options->loop;
    loop.statistic_count = &statistic_count;
    loop.seed = stream_seed(options->seed, STREAM_PARAMS, NULL, options->index);
    trp_updater_options wanted = {.batch_size = options->batch_size,
                                  .device = options->device,
                                  .threads = options->threads,
                                  .dataset = options->dataset.dir};
    TRP_TRY(agent->impl->updater(agent, spec, &wanted, &loop.updater));
    trp_source *sources[TRP_UPDATER_SOURCES_MAX];
    trp_status status = check_device(agent, "learns", options->device, loop.updater->device);
    if (status == TRP_OK)
        status = make_sources(agent, options, loop.updater, sources);
    if (status != TRP_OK) {
        trp_updater_destroy(loop.updater);
        return status;
    }
    loop.sources = sources;
    loop.source_count = loop.updater->source_count;
    return trp_learner_create(out, &loop);
}

trp_status trp_agent_policy_create(trp_policy **out, const trp_agent *agent, const char *env,
                                   const trp_policy_options *options)
{
    *out = NULL;
    const trp_env_spec *spec;
    TRP_TRY(find_and_check(agent, env, &spec));
    return make_policy(agent, spec, options, out);
}
