/* The graph says which agent acts in which environment, so the launch file that trained parameters
 * can also show what they are worth. Nothing else of the graph is started. */
#include "eval.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/printable.h"

/* The first evaluator, or else the first group of actors; NULL: there is none. */
static const struct node_group *find_acting(const trp_program *program)
{
    const struct node_group *actors = NULL;
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        if (group->kind == NODE_EVALUATOR)
            return group;
        if (group->kind == NODE_ACTOR && !actors)
            actors = group;
    }
    return actors;
}

/* The statistics in the file, if the environment has wrappers that use some. */
static trp_status load_statistics(const char *env_name, const char *path, trp_moments **statistics,
                                  size_t *count)
{
    size_t needed;
    TRP_TRY(trp_params_load_statistics(path, statistics, count));
    TRP_TRY(trp_env_find_statistics(env_name, &needed));
    if (needed > 0 && *count == 0)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s has no statistics, but %s normalises %zu numbers", path, env_name,
                        needed);
    return TRP_OK;
}

static trp_status evaluate(const struct node_group *group, const struct launch_options *options,
                           trp_evaluation *result, uint64_t *version)
{
    trp_policy *policy = NULL;
    uint32_t episodes = options->episodes ? options->episodes : 100;
    uint32_t copies = episodes < 100 ? episodes : 100;
    TRP_TRY(trp_agent_policy_create(&policy, &group->agent, group->env, copies));
    trp_status status = trp_params_load(options->params, policy, version);
    trp_moments *statistics = NULL;
    size_t statistic_count = 0;
    if (status == TRP_OK)
        status = load_statistics(group->env, options->params, &statistics, &statistic_count);
    if (status == TRP_OK)
        status = trp_evaluate(policy,
                              &(trp_evaluate_options){
                                  .env = group->env,
                                  .episodes = episodes,
                                  .copies = copies,
                                  .seed = options->seed_set ? options->seed : trp_rng_entropy(),
                                  .statistics = statistics,
                                  .statistic_count = statistic_count,
                              },
                              result);
    free(statistics);
    trp_policy_destroy(policy);
    return status;
}

int eval_run(const trp_program *program, const struct launch_options *options)
{
    const struct node_group *group = find_acting(program);
    if (!group) {
        fprintf(stderr, "%s: eval: the program has no actor and no evaluator\n", program->name);
        return 2;
    }
    trp_evaluation result;
    uint64_t version;
    if (evaluate(group, options, &result, &version) != TRP_OK) {
        print_text(stderr, "%s: eval: %s\n", program->name, trp_last_error());
        return 1;
    }
    printf("%s, version %" PRIu64 " of %s\n", group->env, version, options->params);
    printf("mean return %.2f +- %.2f (2 standard errors) over %u episodes, min %g, max %g\n",
           result.mean, result.mean - result.lower, result.episodes, result.min, result.max);
    return 0;
}
