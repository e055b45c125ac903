/* What nodes do with an agent, whatever its algorithm: look up the environment, check that they
 * fit, make the parts, and give every part a random stream of its own.
 *
 * Streams are drawn from the run's seed and the place of the node (its name and index), so that a
 * run has one seed, no two nodes draw the same numbers, and adding an actor changes no other
 * one. */
#include <troupe/agent.h>

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/thread.h"

enum stream { STREAM_ENV = 1, STREAM_EXPLORATION, STREAM_KEYS, STREAM_PARAMS };

static uint64_t stream_seed(uint64_t seed, enum stream stream, const char *name, uint32_t index)
{
    uint64_t place = hash_bytes(HASH_BYTES_EMPTY, name ? name : "", name ? strlen(name) : 0);
    trp_rng rng;
    trp_rng_init(&rng, seed, place ^ ((uint64_t)stream << 32 | index));
    return trp_rng_u64(&rng);
}

void trp_agent_table_list_cleanup(trp_agent_table_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free((void *)list->tables[i].signature.data);
    list->count = 0;
}

uint64_t trp_agent_hash(const trp_agent *agent)
{
    uint64_t hash = hash_bytes(HASH_BYTES_EMPTY, agent->impl->name, strlen(agent->impl->name));
    return hash_bytes(hash, agent->options.bytes, sizeof agent->options.bytes);
}

static trp_status find_and_check(const trp_agent *agent, const char *env, const trp_env_spec **spec)
{
    TRP_TRY(trp_env_find(env, spec));
    return agent->impl->check(agent, *spec);
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

static trp_status make_parts(const trp_agent *agent, const trp_env_spec *spec,
                             const trp_agent_actor_options *options, trp_actor_loop_options *loop)
{
    uint32_t copies = options->copies ? options->copies : 1;
    uint64_t env_seed = stream_seed(options->seed, STREAM_ENV, options->name, options->index);
    /* Keys of items must differ between runs on one store; only a repeatable run needs them to be
     * the same. */
    uint64_t key_seed =
        turns_active() ? stream_seed(options->seed, STREAM_KEYS, options->name, options->index) : 0;
    TRP_TRY(trp_env_create(&loop->env, options->env,
                           &(trp_env_options){.count = copies, .seed = env_seed}));
    TRP_TRY(agent->impl->policy(agent, spec,
                                &(trp_policy_options){.rows = copies,
                                                      .index = options->index,
                                                      .count = options->count ? options->count : 1},
                                &loop->policy));
    return agent->impl->adder(
        agent, spec,
        &(trp_adder_options){.replay = options->replay, .copies = copies, .seed = key_seed},
        &loop->adder);
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
    };
    trp_status status = make_parts(agent, spec, options, &loop);
    if (status == TRP_OK)
        return trp_actor_create(out, &loop);
    trp_adder_destroy(loop.adder);
    trp_policy_destroy(loop.policy);
    trp_env_destroy(loop.env);
    return status;
}

trp_status trp_agent_learner_create(trp_learner **out, const trp_agent *agent,
                                    const trp_agent_learner_options *options)
{
    *out = NULL;
    const trp_env_spec *spec;
    TRP_TRY(find_and_check(agent, options->env, &spec));
    trp_learner_loop_options loop = options->loop;
    TRP_TRY(agent->impl->updater(
        agent, spec,
        &(trp_updater_options){.batch_size = options->batch_size,
                               .seed = stream_seed(options->seed, STREAM_PARAMS, NULL, 0)},
        &loop.updater));
    return trp_learner_create(out, &loop);
}

trp_status trp_agent_policy_create(trp_policy **out, const trp_agent *agent, const char *env,
                                   uint32_t rows)
{
    *out = NULL;
    const trp_env_spec *spec;
    TRP_TRY(find_and_check(agent, env, &spec));
    return agent->impl->policy(
        agent, spec, &(trp_policy_options){.rows = rows, .count = 1, .greedy = true}, out);
}
