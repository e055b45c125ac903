/* The graph says which agent acts in which environment, so the launch file that trained parameters
 * can also show what they are worth. Nothing else of the graph is started. */
#include "eval.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/printable.h"
#include "devices.h"
#include "npz.h"
#include "places.h"
#include "settings.h"

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

/* Whether prepare_play() has another policy, environment or device by this word of --set. */
static bool eval_reads(const struct node_group *acting, const char *word)
{
    static const char *const prefixes[] = {"agent.", "env=", "device=", "gpus="};
    const char *setting = setting_within(acting->name, word);
    if (setting_within("agent", word))
        return true;
    for (size_t i = 0; setting && i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(setting, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* Of any node: the graph is one of agents and environments that fit each other. */
static bool sets_env(const trp_program *program, const char *word)
{
    for (size_t i = 0; i < program->group_count; i++) {
        const char *setting = setting_within(program->groups[i]->name, word);
        if (setting && strncmp(setting, "env=", strlen("env=")) == 0)
            return true;
    }
    return false;
}

char *eval_settings(const trp_program *program, const struct launch_options *options)
{
    const struct node_group *acting = find_acting(program);
    if (!acting)
        return NULL;
    char *flags = xstrdup("");
    if (options->config)
        flags_append(&flags, "config", options->config);
    for (size_t i = 0; i < options->set_count; i++)
        if (eval_reads(acting, options->sets[i]) || sets_env(program, options->sets[i]))
            flags_append(&flags, "set", options->sets[i]);
    return flags;
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

/* What is played, and what comes of it. */
struct play {
    const struct node_group *group;
    const struct launch_options *options;
    uint32_t episodes, copies;
    trp_policy *policy;
    trp_moments *statistics;
    size_t statistic_count;
    uint64_t version;
    double *returns; /* [episodes] */
    trp_episode episode;
    trp_evaluation result;
};

/* Of what is read, and of what would be written when all episodes have been played. */
static trp_status check_files(const struct launch_options *options)
{
    struct stat info;
    if (stat(options->params, &info) == 0 && S_ISDIR(info.st_mode))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "--params=%s is a directory: name a file of it, such as "
                        "params.safetensors or one of learner/ where it is a run's",
                        options->params);
    if (options->returns)
        TRP_TRY(place_is_writable(options->returns));
    return options->record ? place_is_writable(options->record) : TRP_OK;
}

/* All that can be refused before an episode begins. */
static trp_status prepare_play(struct play *play)
{
    const struct launch_options *options = play->options;
    trp_device *device;
    TRP_TRY(check_files(options));
    TRP_TRY(devices_find(play->group, 0, true, &device));
    TRP_TRY(trp_agent_policy_create(&play->policy, &play->group->agent, play->group->env,
                                    &(trp_policy_options){.rows = play->copies,
                                                          .greedy = !options->stochastic,
                                                          .device = device}));
    TRP_TRY(trp_params_load(options->params, play->policy, &play->version));
    return load_statistics(play->group->env, options->params, &play->statistics,
                           &play->statistic_count);
}

static trp_status evaluate(struct play *play)
{
    const struct launch_options *options = play->options;
    return trp_evaluate(play->policy,
                        &(trp_evaluate_options){
                            .env = play->group->env,
                            .episodes = play->episodes,
                            .copies = play->copies,
                            .seed = options->seed_set ? options->seed : trp_rng_entropy(),
                            .statistics = play->statistics,
                            .statistic_count = play->statistic_count,
                            .returns = play->returns,
                            .episode = options->record ? &play->episode : NULL,
                        },
                        &play->result);
}

static trp_status write_record(const char *path, const trp_episode *episode)
{
    struct npz_array *arrays = xcalloc(episode->columns.count, sizeof *arrays);
    for (size_t i = 0; i < episode->columns.count; i++)
        arrays[i] = (struct npz_array){
            .spec = &episode->columns.specs[i], .rows = episode->rows, .data = episode->data[i]};
    trp_status status = npz_write(path, arrays, episode->columns.count);
    free(arrays);
    return status;
}

static trp_status write_files(const struct play *play)
{
    static const trp_tensor_spec spec = {.name = "returns", .dtype = TRP_FLOAT64};
    const struct launch_options *options = play->options;
    if (options->returns)
        TRP_TRY(npz_write(options->returns,
                          &(struct npz_array){&spec, play->episodes, play->returns}, 1));
    return options->record ? write_record(options->record, &play->episode) : TRP_OK;
}

static void print_spread(const trp_evaluation *result)
{
    printf("mean return %.2f +- %.2f (2 standard errors) over %u episodes, min %g, max %g\n",
           result->mean, result->mean - result->lower, result->episodes, result->min, result->max);
    printf("percentiles: 5 %% %g, 25 %% %g, median %g, 75 %% %g, 95 %% %g\n", result->p5,
           result->p25, result->median, result->p75, result->p95);
}

static void print_result(const struct play *play)
{
    const trp_evaluation *result = &play->result;
    printf("%s, version %" PRIu64 " of %s%s\n", play->group->env, play->version,
           play->options->params, play->options->stochastic ? ", stochastic" : "");
    if (result->episodes == 1) /* says nothing of errors or percentiles */
        printf("return %.2f in one episode\n", result->mean);
    else
        print_spread(result);
    fflush(stdout); /* before a file that cannot be written */
}

static void print_files(const struct play *play)
{
    if (play->options->returns)
        print_text(stdout, "returns: %s\n", play->options->returns);
    if (play->options->record)
        print_text(stdout, "an episode of %" PRIu64 " steps: %s\n", play->episode.rows - 1,
                   play->options->record);
}

int eval_run(const trp_program *program, const struct launch_options *options)
{
    struct play play = {.group = find_acting(program), .options = options};
    if (!play.group) {
        fprintf(stderr, "%s: eval: the program has no actor and no evaluator\n", program->name);
        return PROGRAM_REFUSED;
    }
    play.episodes = options->episodes ? options->episodes : 100;
    play.copies = play.episodes < 100 ? play.episodes : 100;
    play.returns = xcalloc(play.episodes, sizeof *play.returns);
    int exit_status = PROGRAM_REFUSED;
    trp_status status = prepare_play(&play);
    if (status == TRP_OK) {
        exit_status = PROGRAM_FAILED;
        status = evaluate(&play);
    }
    if (status == TRP_OK) {
        print_result(&play);
        status = write_files(&play);
    }
    if (status == TRP_OK)
        print_files(&play);
    else
        print_text(stderr, "%s: eval: %s\n", program->name, trp_last_error());
    trp_policy_destroy(play.policy);
    free(play.statistics);
    free(play.returns);
    trp_episode_cleanup(&play.episode);
    return status == TRP_OK ? 0 : exit_status;
}
