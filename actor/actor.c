/* The environment loop: act, step, add, push, and now and then pull.
 *
 * Everything happens on the thread that calls run(): the copies are stepped together, and what one
 * vector step completed is handed to the writer before the next. When the replay table holds
 * inserts back the loop waits there, in short pieces so that a stop is seen; that is how the rate
 * limiter slows actors down. A replay server that is away is waited for with a bound, because it
 * may be restarting, and its writer sends again what was not confirmed.
 *
 * Other threads see counters only: they are copied under a mutex once per vector step. */
#include <troupe/actor.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "limits.h"
#include "core/thread.h"

struct trp_actor {
    trp_actor_loop_options options;
    char *name;
    trp_params_client *client;
    trp_rng rng;
    uint32_t copies;
    size_t observation_bytes, action_bytes;
    uint8_t *observations, *finals, *actions;
    float *rewards;
    bool *terminated, *truncated;
    double *running; /* return of each copy's episode so far */
    double returns[ACTOR_RETURNS];
    int64_t pulled_at_ns;
    uint64_t pulled_at_steps; /* own steps that the learner's total_steps includes */
    trp_actor_counters own;   /* the loop's; `shared` is what others read */
    struct mutex mutex;
    trp_actor_counters shared;
};

static void allocate_rows(trp_actor *actor)
{
    uint32_t copies = actor->copies;
    actor->observations = xcalloc(copies, actor->observation_bytes);
    actor->finals = xcalloc(copies, actor->observation_bytes);
    actor->actions = xcalloc(copies, actor->action_bytes);
    actor->rewards = xcalloc(copies, sizeof *actor->rewards);
    actor->terminated = xcalloc(copies, sizeof *actor->terminated);
    actor->truncated = xcalloc(copies, sizeof *actor->truncated);
    actor->running = xcalloc(copies, sizeof *actor->running);
}

trp_status trp_actor_create(trp_actor **out, const trp_actor_loop_options *options)
{
    *out = NULL;
    trp_actor *actor = xcalloc(1, sizeof *actor);
    mutex_init(&actor->mutex);
    actor->options = *options;
    actor->name = xstrdup(options->name ? options->name : "");
    trp_rng_init(&actor->rng, options->seed, 0);
    actor->copies = trp_env_count(options->env);
    actor->observation_bytes = trp_env_observation_bytes(options->env);
    actor->action_bytes = trp_env_action_bytes(options->env);
    allocate_rows(actor);
    actor->own.last_return = actor->own.mean_return = NAN;
    actor->shared = actor->own;
    trp_status status = TRP_OK;
    if (options->params)
        status = trp_params_client_create(&actor->client,
                                          &(trp_params_client_options){.service = options->params,
                                                                       .name = actor->name,
                                                                       .stop = options->stop});
    if (status == TRP_OK)
        *out = actor;
    else
        trp_actor_destroy(actor);
    return status;
}

/* ---- parameters ---------------------------------------------------------------------------- */

/* Of all actors: what the learner last said, and what this one did since. */
static uint64_t actor_progress(const trp_actor *actor)
{
    return actor->own.total_steps + (actor->own.steps - actor->pulled_at_steps);
}

static trp_status pull(trp_actor *actor)
{
    bool newer;
    TRP_TRY(trp_params_client_pull(actor->client, actor->own.steps, actor->own.episodes, &newer));
    trp_params_state state = trp_params_client_state(actor->client);
    actor->own.total_steps = state.total_steps;
    actor->own.earlier_steps = state.base_steps;
    actor->own.earlier_episodes = state.base_episodes;
    actor->own.version = state.version;
    actor->pulled_at_steps = actor->own.steps;
    actor->pulled_at_ns = clock_now_ns(&clock_monotonic);
    if (!newer)
        return TRP_OK;
    trp_policy *policy = actor->options.policy;
    return policy->impl->load(policy, state.params, state.count);
}

static bool pull_is_due(const trp_actor *actor)
{
    const trp_actor_loop_options *options = &actor->options;
    uint64_t steps = actor->own.steps - actor->pulled_at_steps;
    if (turns_active())
        return steps >= (options->pull_every_steps ? options->pull_every_steps : ACTOR_PULL_STEPS);
    if (options->pull_every_steps && steps >= options->pull_every_steps)
        return true;
    int64_t every_ms = options->pull_every_ms ? options->pull_every_ms : ACTOR_PULL_MS;
    return clock_now_ns(&clock_monotonic) - actor->pulled_at_ns >= every_ms * 1000000;
}

static trp_status first_parameters(trp_actor *actor)
{
    if (!actor->client)
        return TRP_OK;
    TRP_TRY(trp_params_client_wait(actor->client, PARAMS_GIVE_UP_MS));
    trp_params_state state = trp_params_client_state(actor->client);
    trp_policy *policy = actor->options.policy;
    TRP_TRY(policy->impl->load(policy, state.params, state.count));
    return pull(actor);
}

static trp_status pull_if_due(trp_actor *actor)
{
    if (!actor->client) {
        actor->own.total_steps = actor->own.steps;
        actor->pulled_at_steps = actor->own.steps;
    } else if (pull_is_due(actor)) {
        TRP_TRY(pull(actor));
    }
    uint64_t limit = actor->options.max_steps;
    actor->own.finished = limit > 0 && actor->own.total_steps >= limit;
    return TRP_OK;
}

/* ---- one vector step ----------------------------------------------------------------------- */

static void count_return(trp_actor *actor, uint32_t copy)
{
    trp_actor_counters *own = &actor->own;
    own->last_return = actor->running[copy];
    actor->running[copy] = 0;
    actor->returns[own->episodes % ACTOR_RETURNS] = own->last_return;
    own->episodes++;
    uint64_t count = own->episodes < ACTOR_RETURNS ? own->episodes : ACTOR_RETURNS;
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += actor->returns[i];
    own->mean_return = sum / (double)count;
}

static void add_copy(trp_actor *actor, uint32_t copy)
{
    const uint8_t *next = actor->observations + copy * actor->observation_bytes;
    const uint8_t *final = actor->finals + copy * actor->observation_bytes;
    bool last = actor->terminated[copy] || actor->truncated[copy];
    actor->own.steps++;
    actor->running[copy] += actor->rewards[copy];
    trp_adder *adder = actor->options.adder;
    if (adder) {
        trp_transition transition = {
            .action = actor->actions + copy * actor->action_bytes,
            .reward = actor->rewards[copy],
            .discount = actor->terminated[copy] ? 0 : 1,
            .next_observation = last ? final : next,
            .last = last,
            .version = actor->own.version,
        };
        adder->impl->add(adder, copy, &transition);
        if (last)
            adder->impl->first(adder, copy, next);
    }
    if (last)
        count_return(actor, copy);
}

static trp_status step_copies(trp_actor *actor)
{
    trp_act act = {.observations = actor->observations,
                   .rows = actor->copies,
                   .steps = actor_progress(actor),
                   .rng = &actor->rng,
                   .actions = actor->actions};
    trp_env_buffers buffers = {.observations = actor->observations,
                               .final_observations = actor->finals,
                               .rewards = actor->rewards,
                               .terminated = actor->terminated,
                               .truncated = actor->truncated};
    TRP_TRY(actor->options.policy->impl->act(actor->options.policy, &act));
    TRP_TRY(trp_env_step(actor->options.env, actor->actions, &buffers));
    for (uint32_t copy = 0; copy < actor->copies; copy++)
        add_copy(actor, copy);
    return TRP_OK;
}

/* ---- the replay table ---------------------------------------------------------------------- */

/* The slow path of push: the table holds back, or its server is away. */
static trp_status push_waiting(trp_actor *actor, trp_status status)
{
    trp_adder *adder = actor->options.adder;
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    struct deadline give_up = DEADLINE_NEVER;
    while (status == TRP_DEADLINE_EXCEEDED || status == TRP_UNAVAILABLE) {
        if (trp_stop_requested(actor->options.stop))
            return TRP_OK;
        if (status == TRP_DEADLINE_EXCEEDED) {
            give_up = DEADLINE_NEVER;
        } else if (give_up.at_ns == DEADLINE_NEVER.at_ns) {
            int64_t ms = actor->options.replay_give_up_ms;
            give_up = deadline_in_ms(&clock_monotonic, ms ? ms : ACTOR_REPLAY_GIVE_UP_MS);
            trp_log(TRP_WARN, "replay server is away, waiting reason=%s", trp_last_error());
        } else if (deadline_passed(give_up, &clock_monotonic)) {
            return status;
        } else if (!turns_active()) {
            trp_stop_wait(actor->options.stop, ACTOR_RETRY_MS);
        }
        turns_pass();
        status = adder->impl->push(adder, turns_active() ? 0 : ACTOR_PUSH_MS);
    }
    actor->own.blocked_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    return status;
}

static trp_status push_items(trp_actor *actor)
{
    trp_adder *adder = actor->options.adder;
    if (!adder)
        return TRP_OK;
    trp_status status = adder->impl->push(adder, 0);
    if (status != TRP_OK)
        status = push_waiting(actor, status);
    actor->own.items = adder->impl->items(adder);
    return status;
}

/* A stop must not take long: what a table still holds back by then is lost, and it is said. Where
 * threads take turns everything that can be confirmed already is, and what is held back is the same
 * in every repetition. */
static void flush_at_end(trp_actor *actor)
{
    trp_adder *adder = actor->options.adder;
    if (!adder)
        return;
    trp_status status = adder->impl->flush(adder, turns_active() ? 0 : ACTOR_FLUSH_MS);
    bool as_always = turns_active() && status == TRP_DEADLINE_EXCEEDED;
    if (status != TRP_OK && !as_always)
        trp_log(status == TRP_DEADLINE_EXCEEDED ? TRP_INFO : TRP_WARN,
                "items not confirmed at the end reason=%s", trp_last_error());
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void actor_share_counters(trp_actor *actor)
{
    mutex_lock(&actor->mutex);
    actor->shared = actor->own;
    mutex_unlock(&actor->mutex);
}

static void report_epsilon(trp_actor *actor)
{
    trp_policy *policy = actor->options.policy;
    if (policy->impl->epsilon)
        actor->own.epsilon = policy->impl->epsilon(policy, actor_progress(actor));
}

/* A later life of an actor must not repeat what an earlier one drew, least of all its item keys:
 * the table would take the new items for known ones. Two lives may begin with the same checkpoint,
 * so only a run that has to repeat tells them apart by what the learner remembers. */
static void begin_life(trp_actor *actor)
{
    uint64_t life = actor->client ? trp_params_client_state(actor->client).base_steps : 0;
    if (life == 0)
        return;
    if (!turns_active())
        life = trp_rng_entropy();
    trp_rng_init(&actor->rng, actor->options.seed, life);
    for (uint32_t copy = 0; copy < actor->copies; copy++)
        trp_env_seed(actor->options.env, copy, trp_rng_u64(&actor->rng));
    trp_adder *adder = actor->options.adder;
    if (adder && adder->impl->reseed)
        adder->impl->reseed(adder, trp_rng_u64(&actor->rng));
}

static trp_status begin(trp_actor *actor)
{
    TRP_TRY(first_parameters(actor));
    begin_life(actor);
    TRP_TRY(trp_env_reset(actor->options.env, actor->observations));
    trp_adder *adder = actor->options.adder;
    for (uint32_t copy = 0; adder && copy < actor->copies; copy++)
        adder->impl->first(adder, copy, actor->observations + copy * actor->observation_bytes);
    return TRP_OK;
}

static trp_status actor_loop(trp_actor *actor)
{
    TRP_TRY(begin(actor));
    while (!trp_stop_requested(actor->options.stop) && !actor->own.finished) {
        TRP_TRY(step_copies(actor));
        TRP_TRY(push_items(actor));
        TRP_TRY(pull_if_due(actor));
        report_epsilon(actor);
        actor_share_counters(actor);
        turns_pass();
    }
    return TRP_OK;
}

trp_status trp_actor_run(trp_actor *actor)
{
    trp_status status = actor_loop(actor);
    if (status == TRP_CANCELLED && trp_stop_requested(actor->options.stop))
        status = TRP_OK; /* a pull or a wait was cut short */
    if (status == TRP_OK)
        flush_at_end(actor);
    actor_share_counters(actor);
    return status;
}

trp_actor_counters trp_actor_read(const trp_actor *actor)
{
    struct mutex *mutex = (struct mutex *)&actor->mutex; /* the lock is no part of the value */
    mutex_lock(mutex);
    trp_actor_counters counters = actor->shared;
    mutex_unlock(mutex);
    return counters;
}

void trp_actor_destroy(trp_actor *actor)
{
    if (!actor)
        return;
    trp_params_client_destroy(actor->client);
    trp_adder_destroy(actor->options.adder);
    trp_policy_destroy(actor->options.policy);
    trp_env_destroy(actor->options.env);
    free(actor->observations);
    free(actor->finals);
    free(actor->actions);
    free(actor->rewards);
    free(actor->terminated);
    free(actor->truncated);
    free(actor->running);
    free(actor->name);
    mutex_cleanup(&actor->mutex);
    free(actor);
}
