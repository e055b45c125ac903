/* The body of an evaluator: it plays whole episodes with the newest parameters, keeps those of the
 * best ones, and ends the program when they reach its target. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "best.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/words.h"
#include "host.h"

enum {
    EVALUATOR_COPIES = 100, /* of the environment, where nobody says */
    /* Other nodes may need the processor more: an evaluator rests three times as long as it
     * worked. */
    EVALUATOR_REST_FACTOR = 3,
    EVALUATOR_REST_MIN_MS = 50,
    EVALUATOR_REST_MAX_MS = 10000,
    /* In deterministic runs time decides nothing: learner steps between two evaluations. */
    EVALUATOR_STEPS = 500,
    /* A version that reached the target is played this much longer; its mean has to be so many
     * standard errors of one evaluation above it. */
    CONFIRM_FACTOR = 2,
    CONFIRM_ERRORS = 3,
    /* A full disk takes something of every evaluation, of which there may be twenty a second. */
    EVALUATOR_TELL_MS = 60000,
};

enum loss { LOST_ROW, LOST_BEST, LOST_REACHED, LOSSES };

struct evaluator {
    trp_context *context;
    const trp_actor_options *options;
    trp_policy *policy;
    trp_params_client *params;
    char *best_dir;
    uint32_t episodes, copies;
    size_t statistic_count;                /* that its environment needs */
    bool waits;                            /* for statistics, as it has said */
    uint64_t evaluations, evaluated_steps; /* learner steps of the last one */
    bool reached;
    struct deadline told[LOSSES]; /* until then a loss like it is not told again */
};

static bool is_to_be_told(struct evaluator *evaluator, enum loss loss)
{
    if (!deadline_passed(evaluator->told[loss], &clock_monotonic))
        return false;
    evaluator->told[loss] = deadline_in_ms(&clock_monotonic, EVALUATOR_TELL_MS);
    return true;
}

static void put_row(FILE *file, const trp_params_state *state, const trp_evaluation *result)
{
    const double numbers[] = {result->mean, result->std, result->min, result->max, result->lower};
    char digits[DECIMAL_BYTES];
    fprintf(file, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%u", state->version, state->learner_steps,
            state->total_steps, result->episodes);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        fprintf(file, ",%s", double_decimal(numbers[i], digits));
    fputc('\n', file);
}

/* EVALUATOR.csv: no times, so that deterministic runs can be compared. */
static void write_row(struct evaluator *evaluator, const trp_params_state *state,
                      const trp_evaluation *result)
{
    char *path = xasprintf("%s/%s.csv", trp_context_run_dir(evaluator->context),
                           evaluator->context->group->name);
    file_cut_torn_line(path);
    FILE *file = own_file_stream(path, "a");
    if (file && ftell(file) == 0)
        fputs("version,learner_steps,actor_steps,episodes,mean,std,min,max,lower\n", file);
    if (file)
        put_row(file, state, result);
    bool lost = !file || fclose(file) != 0; /* all of it is written there */
    if (lost && is_to_be_told(evaluator, LOST_ROW))
        trp_log(TRP_WARN, "a row is lost path=%s reason=%s", path, file_errno_words(errno));
    free(path);
}

/* A full disk ends no run: what is lost is said, and the next evaluation tries again. */
static trp_status go_on_without(struct evaluator *evaluator, trp_status status, enum loss loss,
                                double mean, const trp_params_state *state)
{
    static const char *const words[LOSSES] = {
        [LOST_BEST] = "parameters among the best are not kept",
        [LOST_REACHED] =
            "the target is reached by parameters that are not kept, so the run goes on",
    };
    if (status == TRP_RESOURCE_EXHAUSTED && is_to_be_told(evaluator, loss))
        trp_log(TRP_WARN, "%s version=%" PRIu64 " mean_return=%.2f reason=%s", words[loss],
                state->version, mean, trp_last_error());
    return status == TRP_RESOURCE_EXHAUSTED ? TRP_OK : status;
}

static trp_status evaluator_reach(struct evaluator *evaluator, const trp_params_state *state,
                                  const trp_evaluation *result)
{
    trp_context *context = evaluator->context;
    char *path = xasprintf("%s/params.safetensors", trp_context_run_dir(context));
    trp_status status = trp_params_write(path, state, evaluator->policy);
    free(path);
    /* Another evaluator is just saving what reached the target, and stops the program. */
    if (status == TRP_ABORTED)
        return TRP_OK;
    if (status != TRP_OK)
        return go_on_without(evaluator, status, LOST_REACHED, result->mean, state);
    evaluator->reached = true;
    char reason[256];
    snprintf(reason, sizeof reason,
             "version %" PRIu64 " has a mean return of %.2f +- %.2f over %u fresh episodes, played "
             "to confirm its first %u: the target of %g is reached",
             state->version, result->mean, result->mean - result->lower, result->episodes,
             evaluator->episodes, evaluator->options->target_return);
    trp_context_stop_program(context, true, reason);
    return TRP_OK;
}

static trp_status evaluator_play(struct evaluator *evaluator, uint32_t episodes,
                                 const trp_params_state *state, trp_evaluation *result)
{
    uint64_t draw = evaluator->evaluations++;
    TRP_TRY(trp_evaluate(evaluator->policy,
                         &(trp_evaluate_options){
                             .env = evaluator->context->group->env,
                             .episodes = episodes,
                             .copies = evaluator->copies,
                             .seed = node_seed(evaluator->context, draw),
                             .stop = trp_context_stop(evaluator->context),
                             .statistics = state->statistics,
                             .statistic_count = state->statistic_count,
                         },
                         result));
    write_row(evaluator, state, result);
    return TRP_OK;
}

/* Of many versions the one that reaches the target is also a lucky one: it has to be good again, so
 * that a user who tries it will see the target reached. */
static trp_status evaluator_confirm(struct evaluator *evaluator, const trp_params_state *state)
{
    trp_evaluation result;
    TRP_TRY(evaluator_play(evaluator, CONFIRM_FACTOR * evaluator->episodes, state, &result));
    double one_evaluation = result.std / sqrt(evaluator->episodes);
    /* A comparison with NaN is false: what is no number reaches nothing. */
    if (result.mean - CONFIRM_ERRORS * one_evaluation >= evaluator->options->target_return)
        return evaluator_reach(evaluator, state, &result);
    return TRP_OK;
}

/* Evaluates the version that the client has. */
static trp_status evaluator_evaluate(struct evaluator *evaluator)
{
    trp_params_state state = trp_params_client_state(evaluator->params);
    TRP_TRY(trp_params_use(&state, evaluator->policy));
    trp_evaluation result;
    TRP_TRY(evaluator_play(evaluator, evaluator->episodes, &state, &result));
    evaluator->evaluated_steps = state.learner_steps;
    trp_status kept = best_offer(evaluator->best_dir, evaluator->options->best, result.mean, &state,
                                 evaluator->policy);
    TRP_TRY(go_on_without(evaluator, kept, LOST_BEST, result.mean, &state));
    trp_context_report(evaluator->context, "eval_return", result.mean);
    trp_context_report(evaluator->context, "eval_version", (double)state.version);
    double target = evaluator->options->target_return;
    if (target != 0 && result.lower >= target)
        return evaluator_confirm(evaluator, &state);
    return TRP_OK;
}

/* The first versions are made before any actor has reported: what its policy would do with numbers
 * that are not normalised says nothing. */
static bool can_normalise(struct evaluator *evaluator)
{
    trp_params_state state = trp_params_client_state(evaluator->params);
    if (evaluator->statistic_count == 0 || state.statistic_count > 0)
        return true;
    if (!evaluator->waits)
        trp_log(TRP_INFO, "version %" PRIu64 " came without statistics, waiting for one with them",
                state.version);
    evaluator->waits = true;
    return false;
}

static bool evaluation_is_due(const struct evaluator *evaluator)
{
    if (!evaluator->context->host->options.deterministic || evaluator->evaluations == 0)
        return true;
    trp_params_state state = trp_params_client_state(evaluator->params);
    return state.learner_steps >= evaluator->evaluated_steps + EVALUATOR_STEPS;
}

static int64_t rest_ms(const struct evaluator *evaluator, int64_t worked_ns)
{
    if (evaluator->context->host->options.deterministic)
        return 0;
    int64_t rest = worked_ns / 1000000 * EVALUATOR_REST_FACTOR;
    if (rest < EVALUATOR_REST_MIN_MS)
        return EVALUATOR_REST_MIN_MS;
    return rest > EVALUATOR_REST_MAX_MS ? EVALUATOR_REST_MAX_MS : rest;
}

static trp_status evaluator_loop(struct evaluator *evaluator)
{
    trp_stop *stop = trp_context_stop(evaluator->context);
    TRP_TRY(trp_params_client_wait(evaluator->params, -1));
    bool newer = true;
    while (!trp_stop_requested(stop) && !evaluator->reached) {
        int64_t start_ns = clock_now_ns(&clock_monotonic);
        if (newer && can_normalise(evaluator) && evaluation_is_due(evaluator)) {
            newer = false;
            TRP_TRY(evaluator_evaluate(evaluator));
        }
        turns_pass();
        trp_stop_wait(stop, rest_ms(evaluator, clock_now_ns(&clock_monotonic) - start_ns));
        trp_params_state before = trp_params_client_state(evaluator->params);
        TRP_TRY(trp_params_client_sync(evaluator->params, 0, 0, NULL)); /* the actors' steps, too */
        newer |= trp_params_client_state(evaluator->params).version != before.version;
    }
    return TRP_OK;
}

trp_status evaluator_run(trp_context *context)
{
    const struct node_group *group = context->group;
    const trp_actor_options *options = &group->options.actor;
    struct evaluator evaluator = {.context = context, .options = options};
    evaluator.episodes = options->episodes;
    evaluator.copies = options->envs ? options->envs : EVALUATOR_COPIES;
    if (evaluator.copies > evaluator.episodes)
        evaluator.copies = evaluator.episodes;
    ProtobufCService *service;
    trp_device *device;
    TRP_TRY(trp_context_device(context, &device));
    TRP_TRY(trp_env_find_statistics(group->env, &evaluator.statistic_count));
    TRP_TRY(trp_dial(context, options->params, 0, trp_params_descriptor(), &service));
    evaluator.best_dir = node_dir(context);
    trp_status status = trp_agent_policy_create(
        &evaluator.policy, &group->agent, group->env,
        &(trp_policy_options){
            .rows = evaluator.copies, .greedy = !options->stochastic, .device = device});
    trp_log(TRP_INFO, "evaluator plays episodes=%u at_once=%u", evaluator.episodes,
            evaluator.copies);
    if (status == TRP_OK)
        context_log_device(context, device);
    if (status == TRP_OK)
        status = trp_params_client_create(
            &evaluator.params,
            &(trp_params_client_options){.service = service,
                                         .stop = trp_context_stop(context),
                                         .precision = options->params_precision});
    if (status == TRP_OK)
        status = evaluator_loop(&evaluator);
    trp_params_client_destroy(evaluator.params);
    trp_policy_destroy(evaluator.policy);
    free(evaluator.best_dir);
    return status;
}
