/* The environment loop: act, step, add, push, and now and then pull.
 *
 * Acting happens on the thread that calls run(), pulling on another (feed.h): the copies are
 * stepped together, and what one vector step completed is handed to the writer before the next.
 * When the replay table holds inserts back the loop waits there, in short pieces so that a stop is
 * seen; that is how the rate limiter slows actors down. A replay server that is away is waited for
 * with a bound, because it may be restarting, and its writer sends again what was not confirmed.
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
#include "core/status.h"
#include "limits.h"
#include "core/thread.h"
#include "copies.h"
#include "feed.h"
#include "infos.h"
#include "params_use.h"

struct trp_actor {
    trp_actor_loop_options options;
    char *name;
    struct feed *feed; /* NULL: the policy stays as it is */
    struct params_fit fit;
    trp_rng rng;
    struct copies copies;
    struct infos infos;
    double *running; /* return of each copy's episode so far */
    double returns[ACTOR_RETURNS];
    int64_t asked_at_ns;
    uint64_t asked_at_steps;
    uint64_t pulled_at_steps; /* own steps that the learner's total_steps includes */
    int64_t confirmed_ns;     /* when its parameters were last known to be the newest */
    bool asking;              /* for an answer that was not taken */
    bool begun;               /* episodes run */
    bool kept;                /* the adder has items of the last trp_actor_step() */
    bool held_back;           /* by the table, at the last push */
    uint64_t matched_items;   /* of own.items: those that versions came for since the first */
    trp_actor_counters own;   /* the loop's; `shared` is what others read */
    struct mutex mutex;
    trp_actor_counters shared;
};

static trp_status check_options(const trp_actor_loop_options *options)
{
    if (options->sync_every_items > 0 && (!options->params || !options->adder))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "actor: sync_every_items %" PRIu64 " needs parameters and an adder",
                        options->sync_every_items);
    if ((options->max_lag > 0 || options->max_age_s > 0) && !options->params)
        return trp_fail(TRP_INVALID_ARGUMENT, "actor: %s needs parameters",
                        options->max_lag > 0 ? "max_lag" : "max_age_s");
    return TRP_OK;
}

trp_status trp_actor_create(trp_actor **out, const trp_actor_loop_options *options)
{
    *out = NULL;
    trp_actor *actor = xcalloc(1, sizeof *actor);
    mutex_init(&actor->mutex);
    actor->options = *options;
    actor->name = xstrdup(options->name ? options->name : "");
    trp_rng_init(&actor->rng, options->seed, 0);
    copies_prepare(&actor->copies, options->env, options->policy);
    infos_prepare(&actor->infos, options->env);
    actor->running = xcalloc(actor->copies.count, sizeof *actor->running);
    actor->own.last_return = actor->own.mean_return = NAN;
    actor->shared = actor->own;
    trp_status status = check_options(options);
    if (status == TRP_OK && options->params)
        status = feed_create(&actor->feed,
                             &(trp_params_client_options){.service = options->params,
                                                          .name = actor->name,
                                                          .stop = options->stop,
                                                          .precision = options->params_precision},
                             options->stepped);
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

static bool has_played_all(const trp_actor *actor)
{
    uint64_t limit = actor->options.max_episodes;
    return limit > 0 && actor->own.earlier_episodes + actor->own.episodes >= limit;
}

/* `now`: the counts are to arrive with it. */
static trp_status ask_for_parameters(trp_actor *actor, bool now)
{
    actor->asking = true;
    actor->asked_at_steps = actor->own.steps;
    actor->asked_at_ns = clock_now_ns(&clock_coarse);
    const trp_env *env = actor->options.env;
    feed_report(actor->feed, trp_env_statistics(env), trp_env_statistics_count(env));
    return feed_ask(actor->feed, actor->own.steps, actor->own.episodes, now);
}

/* Of the parameters that it acted with until now. */
static void note_staleness(trp_actor *actor, const trp_params_state *state)
{
    int64_t now_ns = clock_now_ns(&clock_monotonic);
    uint64_t had = actor->own.version;
    if (had > 0) {
        if (state->first_version > had + 1)
            had = state->first_version - 1; /* those of another life are not known */
        actor->own.params_lag = state->version + state->lag - had;
        actor->own.params_age_ns = (uint64_t)(now_ns - actor->confirmed_ns);
    }
    actor->confirmed_ns = now_ns - state->age_ns;
}

/* A learner makes a version of every sync_every_items items, or of more when some were missed. */
static void match_items(trp_actor *actor, uint64_t version)
{
    uint64_t ahead = actor->own.items - actor->matched_items;
    uint64_t every = actor->options.sync_every_items, versions = version - actor->own.version;
    if (every > 0 && actor->own.version > 0)
        actor->matched_items += versions > ahead / every ? ahead : versions * every;
}

static trp_status use_parameters(trp_actor *actor, const trp_params_state *state)
{
    if (state->statistic_count > 0 && trp_env_use_statistics(actor->options.env, state->statistics,
                                                             state->statistic_count) != TRP_OK)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: version %" PRIu64 ": %s", actor->name,
                        state->version, trp_last_error());
    return params_fit_use(&actor->fit, state, actor->options.policy);
}

/* `*whole`: false: the policy has loaded two versions in one, and has to get another. */
static trp_status take_answer(trp_actor *actor, bool *whole)
{
    bool newer;
    trp_params_state state;
    actor->asking = false;
    *whole = true;
    TRP_TRY(feed_take(actor->feed, &state, &newer));
    note_staleness(actor, &state);
    match_items(actor, state.version);
    actor->pulled_at_steps = state.own_steps;
    actor->own.total_steps = state.total_steps;
    actor->own.earlier_steps = state.base_steps;
    actor->own.earlier_episodes = state.base_episodes;
    actor->own.version = state.version;
    if (!newer)
        return TRP_OK;
    TRP_TRY(use_parameters(actor, &state));
    *whole = feed_is_whole(actor->feed);
    return TRP_OK;
}

/* The answer to the question that was asked. CANCELLED: stop. */
static trp_status await_answer(trp_actor *actor)
{
    for (bool whole = false; !whole;) {
        while (!feed_is_answered(actor->feed) && !feed_wait(actor->feed))
            if (trp_stop_requested(actor->options.stop))
                return trp_fail(TRP_CANCELLED, "pull of parameters: stop");
        TRP_TRY(take_answer(actor, &whole));
        if (!whole)
            TRP_TRY(ask_for_parameters(actor, true));
    }
    return TRP_OK;
}

/* An answer that includes every step. */
static trp_status pull(trp_actor *actor)
{
    if (actor->asking)
        TRP_TRY(await_answer(actor));
    TRP_TRY(ask_for_parameters(actor, true));
    return await_answer(actor);
}

static bool pull_is_due(const trp_actor *actor)
{
    const trp_actor_loop_options *options = &actor->options;
    uint64_t steps = actor->own.steps - actor->asked_at_steps;
    if (turns_active())
        return steps >= (options->pull_every_steps ? options->pull_every_steps : ACTOR_PULL_STEPS);
    if (options->pull_every_steps && steps >= options->pull_every_steps)
        return true;
    int64_t every_ms = options->pull_every_ms ? options->pull_every_ms : ACTOR_PULL_MS;
    return clock_now_ns(&clock_coarse) - actor->asked_at_ns >= every_ms * 1000000;
}

static bool lag_is_bounded(const trp_actor *actor)
{
    return actor->options.max_lag > 0 && actor->options.sync_every_items == 0;
}

/* Who bounds the lag acts with what is the newest when it is asked for. */
static trp_status keep_up(trp_actor *actor)
{
    if (pull_is_due(actor) || feed_look(actor->feed).lag > actor->options.max_lag)
        return pull(actor);
    return TRP_OK;
}

/* Takes an answer if there is one, and asks for the next. The last steps before the limit are
 * reported before it is decided whether they were the last. */
static trp_status exchange(trp_actor *actor)
{
    uint64_t limit = actor->options.max_steps;
    if (actor->asking && feed_is_answered(actor->feed))
        TRP_TRY(await_answer(actor));
    if (lag_is_bounded(actor))
        TRP_TRY(keep_up(actor));
    else if (!actor->asking && pull_is_due(actor))
        TRP_TRY(ask_for_parameters(actor, actor->options.pull_every_steps > 0));
    if (turns_active())
        return actor->asking ? await_answer(actor) : TRP_OK;
    bool done = (limit > 0 && actor_progress(actor) >= limit) || has_played_all(actor);
    return done ? pull(actor) : TRP_OK;
}

static double age_s(const trp_actor *actor)
{
    return (double)(clock_now_ns(&clock_monotonic) - actor->confirmed_ns) / 1e9;
}

/* Waits while it has not been known for too long that there is nothing newer. Deterministic runs
 * know no time. */
static trp_status wait_for_fresh(trp_actor *actor)
{
    double max_s = actor->options.max_age_s;
    if (max_s <= 0 || turns_active() || age_s(actor) <= max_s)
        return TRP_OK;
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    trp_log(TRP_WARN,
            "parameters are older than max_age_s, waiting version=%" PRIu64
            " age_s=%.1f max_age_s=%g",
            actor->own.version, age_s(actor), max_s);
    trp_status status = pull(actor);
    actor->own.stale_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    if (status == TRP_OK || status == TRP_CANCELLED)
        return status;
    return trp_fail(status,
                    "%s: parameters of version %" PRIu64 " were the newest %.1f s ago (max_age_s "
                    "%g), and since then: %s",
                    actor->name, actor->own.version, age_s(actor), max_s, trp_last_error());
}

static trp_status pull_if_due(trp_actor *actor)
{
    if (actor->feed) {
        TRP_TRY(exchange(actor));
        TRP_TRY(wait_for_fresh(actor));
    } else {
        actor->own.total_steps = actor->own.steps;
        actor->pulled_at_steps = actor->own.steps;
    }
    uint64_t limit = actor->options.max_steps;
    actor->own.finished = (limit > 0 && actor->own.total_steps >= limit) || has_played_all(actor);
    return TRP_OK;
}

/* ---- one vector step ----------------------------------------------------------------------- */

static void begin_episode(trp_actor *actor, uint32_t copy)
{
    const void *row[TRP_OBSERVATIONS_MAX];
    copies_observations(&actor->copies, copy, row);
    if (actor->options.adder)
        actor->options.adder->impl->first(actor->options.adder, copy, row);
}

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
    const void *next[TRP_OBSERVATIONS_MAX];
    trp_transition transition = copies_transition(&actor->copies, copy, actor->own.version, next);
    actor->own.steps++;
    actor->running[copy] += transition.reward;
    if (actor->options.adder)
        actor->options.adder->impl->add(actor->options.adder, copy, &transition);
    if (actor->infos.count > 0)
        infos_add(&actor->infos, actor->options.env, copy, transition.last);
    if (!transition.last)
        return;
    begin_episode(actor, copy);
    count_return(actor, copy);
}

static trp_status step_copies(trp_actor *actor)
{
    TRP_TRY(copies_step(&actor->copies, actor_progress(actor), &actor->rng));
    for (uint32_t copy = 0; copy < actor->copies.count; copy++)
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
    bool away = false;
    while (status == TRP_DEADLINE_EXCEEDED || status == TRP_UNAVAILABLE) {
        actor->held_back = true;
        if (trp_stop_requested(actor->options.stop))
            return TRP_OK;
        if (status == TRP_DEADLINE_EXCEEDED) {
            give_up = DEADLINE_NEVER;
        } else if (give_up.at_ns == DEADLINE_NEVER.at_ns) {
            int64_t ms = actor->options.replay_give_up_ms;
            ms = ms ? ms : ACTOR_REPLAY_GIVE_UP_MS;
            give_up = deadline_in_ms(&clock_monotonic, ms);
            away = true;
            trp_log(TRP_WARN, "replay server is away, waiting at_most_s=%" PRId64 " reason=%s",
                    ms / 1000, trp_last_error());
        } else if (deadline_passed(give_up, &clock_monotonic)) {
            return status;
        } else if (!turns_active()) {
            trp_stop_wait(actor->options.stop, ACTOR_RETRY_MS);
        }
        turns_pass();
        status = adder->impl->push(adder, turns_active() ? 0 : ACTOR_PUSH_MS);
    }
    if (away && status == TRP_OK)
        trp_log(TRP_INFO, "replay server is there");
    actor->held_back = false;
    actor->own.blocked_ns += (uint64_t)(clock_now_ns(&clock_monotonic) - since_ns);
    return status;
}

static trp_status push_items(trp_actor *actor)
{
    trp_adder *adder = actor->options.adder;
    if (!adder)
        return TRP_OK;
    trp_status status = adder->impl->push(adder, 0);
    actor->held_back = false;
    if (status != TRP_OK)
        status = push_waiting(actor, status);
    actor->own.items = adder->impl->items(adder);
    return status;
}

static bool is_too_far_ahead(const trp_actor *actor)
{
    uint64_t every = actor->options.sync_every_items;
    uint64_t ahead = actor->own.items - actor->matched_items;
    return every > 0 && ahead / every > actor->options.max_lag;
}

/* Waits for the version that is made of the items so far. They must not wait for company on the
 * way to who makes it. */
static trp_status wait_for_version(trp_actor *actor)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, ACTOR_SYNC_GIVE_UP_MS);
    while (is_too_far_ahead(actor) && !trp_stop_requested(actor->options.stop)) {
        trp_adder *adder = actor->options.adder;
        trp_status status = adder->impl->flush(adder, turns_active() ? 0 : ACTOR_PUSH_MS);
        if (!status_is_transient(status))
            TRP_TRY(status);
        TRP_TRY(pull(actor));
        if (!is_too_far_ahead(actor))
            break;
        if (deadline_passed(deadline, &clock_monotonic))
            return trp_fail(TRP_DEADLINE_EXCEEDED,
                            "actor: no version after %" PRIu64 " within %d s, although %" PRIu64
                            " items are ahead of it (sync_every_items %" PRIu64 ")",
                            actor->own.version, ACTOR_SYNC_GIVE_UP_MS / 1000,
                            actor->own.items - actor->matched_items,
                            actor->options.sync_every_items);
        turns_pass();
        if (!turns_active())
            trp_stop_wait(actor->options.stop, ACTOR_SYNC_MS);
    }
    return TRP_OK;
}

static int64_t last_flush_ms(const trp_actor *actor)
{
    if (actor->held_back)
        return ACTOR_PUSH_MS;
    return actor->own.finished ? ACTOR_FLUSH_MS : ACTOR_STOPPED_FLUSH_MS;
}

/* A stop must not take long: what a table still holds back by then is lost. Of an actor that is
 * stopped that is as always, and nobody is told: it is so in every run that reaches its target. */
static void flush_at_end(trp_actor *actor)
{
    trp_adder *adder = actor->options.adder;
    if (!adder)
        return;
    trp_status status = adder->impl->flush(adder, turns_active() ? 0 : last_flush_ms(actor));
    bool held_back = status == TRP_DEADLINE_EXCEEDED;
    bool as_always = held_back && (turns_active() || !actor->own.finished);
    if (status != TRP_OK && !as_always)
        trp_log(held_back ? TRP_INFO : TRP_WARN, "items not confirmed at the end reason=%s",
                trp_last_error());
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void actor_share_counters(trp_actor *actor)
{
    mutex_lock(&actor->mutex);
    actor->shared = actor->own;
    mutex_unlock(&actor->mutex);
}

static void read_metrics(trp_actor *actor)
{
    const trp_policy *policy = actor->options.policy;
    trp_actor_counters *own = &actor->own;
    own->metric_count = policy->impl->metrics
                            ? policy->impl->metrics(policy, actor_progress(actor), own->metrics)
                            : 0;
    own->metric_count += infos_metrics(&actor->infos, own->metrics + own->metric_count);
}

/* A later life of an actor must not repeat what an earlier one drew, least of all its item keys:
 * the table would take the new items for known ones. Two lives may begin with the same checkpoint,
 * so only a run that has to repeat tells them apart by what the learner remembers. */
static void begin_life(trp_actor *actor)
{
    uint64_t life = actor->own.earlier_steps;
    if (life == 0)
        return;
    if (!turns_active())
        life = trp_rng_entropy();
    trp_rng_init(&actor->rng, actor->options.seed, life);
    for (uint32_t copy = 0; copy < actor->copies.count; copy++)
        trp_env_seed(actor->options.env, copy, trp_rng_u64(&actor->rng));
    trp_adder *adder = actor->options.adder;
    if (adder && adder->impl->reseed)
        adder->impl->reseed(adder, trp_rng_u64(&actor->rng));
}

static trp_status begin(trp_actor *actor)
{
    if (actor->feed)
        TRP_TRY(pull(actor));
    begin_life(actor);
    TRP_TRY(copies_reset(&actor->copies));
    for (uint32_t copy = 0; copy < actor->copies.count; copy++)
        begin_episode(actor, copy);
    actor->begun = true;
    return TRP_OK;
}

static trp_status actor_loop(trp_actor *actor)
{
    TRP_TRY(begin(actor));
    while (!trp_stop_requested(actor->options.stop) && !actor->own.finished) {
        TRP_TRY(step_copies(actor));
        TRP_TRY(push_items(actor));
        TRP_TRY(pull_if_due(actor));
        TRP_TRY(wait_for_version(actor));
        read_metrics(actor);
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

/* What the adder has goes on its way; `kept`: not all of it. */
static trp_status push_now(trp_actor *actor)
{
    trp_adder *adder = actor->options.adder;
    trp_status status = adder ? adder->impl->push(adder, 0) : TRP_OK;
    actor->kept = status == TRP_DEADLINE_EXCEEDED;
    if (adder)
        actor->own.items = adder->impl->items(adder);
    return status;
}

trp_status trp_actor_step(trp_actor *actor)
{
    if (actor->kept)
        return push_now(actor);
    if (!actor->begun)
        TRP_TRY(begin(actor));
    TRP_TRY(step_copies(actor));
    trp_status status = push_now(actor);
    read_metrics(actor);
    actor_share_counters(actor);
    return actor->kept ? TRP_OK : status;
}

trp_status trp_actor_pull(trp_actor *actor)
{
    return actor->feed ? pull(actor) : TRP_OK;
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
    feed_destroy(actor->feed);
    params_fit_cleanup(&actor->fit);
    trp_adder_destroy(actor->options.adder);
    copies_cleanup(&actor->copies);
    infos_cleanup(&actor->infos);
    trp_policy_destroy(actor->options.policy);
    trp_env_destroy(actor->options.env);
    free(actor->running);
    free(actor->name);
    mutex_cleanup(&actor->mutex);
    free(actor);
}
