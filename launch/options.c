/* argp does the work, and says nothing: with its own words come several lines and an exit status of
 * its choice. It takes --help for its own where it speaks, so that is an option of ours. */
#include "options.h"

#include <argp.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/flags.h"
#include "core/printable.h"
#include "core/words.h"
#include "devices.h"
#include "settings.h"

enum key {
    KEY_LAUNCH = 256,
    KEY_RUN_DIR,
    KEY_RESUME,
    KEY_SEED,
    KEY_DETERMINISTIC,
    KEY_MAX_SECONDS,
    KEY_MAX_STEPS,
    KEY_TARGET_RETURN,
    KEY_GRACE,
    KEY_LOG_LEVEL,
    KEY_DEVICE,
    KEY_SET,
    KEY_CONFIG,
    KEY_OPTIONS,
    KEY_FORMAT,
    KEY_PARAMS,
    KEY_EPISODES,
    KEY_STOCHASTIC,
    KEY_RETURNS,
    KEY_RECORD,
    KEY_NODE,
    KEY_SOCKET_DIR,
    KEY_PARENT,
};

static const struct argp_option argp_options[] = {
    {.doc = "Running:"},
    {"launch", KEY_LAUNCH, "MODE", 0,
     "processes (default): one per node; threads: everything in this process", 0},
    {"run-dir", KEY_RUN_DIR, "DIR", 0,
     "Directory of the run (default: a new one in $TROUPE_RUNS or ./runs)", 0},
    {"resume", KEY_RESUME, "DIR", OPTION_ARG_OPTIONAL,
     "Go on with the run in DIR or --run-dir (default: the latest)", 0},
    {"seed", KEY_SEED, "N", 0, "Seed of the run (default: random)", 0},
    {"deterministic", KEY_DETERMINISTIC, NULL, 0,
     "Repeat a run bit for bit, given its seed (needs --launch=threads; slower)", 0},
    {"log-level", KEY_LOG_LEVEL, "LEVEL", 0,
     "What nodes log, in logs/ and here: debug, info, warn or error (default: info there, warn "
     "here)",
     0},
    {"device", KEY_DEVICE, "NAME", 0,
     "Where nodes compute: cpu (default), cuda:N, or auto (a GPU if one can be used); "
     "--set NODE.device=NAME is for one",
     0},
    {.doc = "The program's options:"},
    {"set", KEY_SET, "NAME=VALUE", 0,
     "Set one, e.g. actor.envs=8 or agent.n_step=5; may be given many times", 0},
    {"config", KEY_CONFIG, "FILE", 0,
     "Set those in FILE, e.g. the config.json of a run, which repeats it", 0},
    {"options", KEY_OPTIONS, "TEXT", OPTION_ARG_OPTIONAL,
     "Print all, or those with TEXT in their names (learner, learner.count, n_step), with values, "
     "ranges and defaults",
     0},
    {.doc = "Stopping:"},
    {"max-seconds", KEY_MAX_SECONDS, "S", 0, "Stop after so many seconds (0: no limit)", 0},
    {"max-steps", KEY_MAX_STEPS, "N", 0, "Stop after so many learner steps", 0},
    {"target-return", KEY_TARGET_RETURN, "R", 0,
     "Stop when the evaluator's mean return is surely above R", 0},
    {"grace", KEY_GRACE, "S", 0,
     "Seconds that nodes get to end before they are killed (default: 20)", 0},
    {.doc = "graph:"},
    {"format", KEY_FORMAT, "FORMAT", 0, "text (default) or dot", 0},
    {.doc = "eval:"},
    {"params", KEY_PARAMS, "FILE", 0, "Saved parameters or a learner's checkpoint", 0},
    {"episodes", KEY_EPISODES, "N", 0, "Episodes to run (default: 100)", 0},
    {"stochastic", KEY_STOCHASTIC, NULL, 0,
     "The policy draws its actions, as an actor's; else it takes the best ones", 0},
    {"returns", KEY_RETURNS, "FILE", 0, "Write the returns to FILE, an .npz", 0},
    {"record", KEY_RECORD, "FILE", 0,
     "Write one episode's observations, actions, rewards and discounts to FILE, an .npz", 0},
    {"node", KEY_NODE, "GROUP/INDEX", OPTION_HIDDEN, NULL, 0},
    {"socket-dir", KEY_SOCKET_DIR, "DIR", OPTION_HIDDEN, NULL, 0},
    {"parent", KEY_PARENT, "PID", OPTION_HIDDEN, NULL, 0},
    {"help", 'h', NULL, 0, "Give this help list", -1},
    {"version", 'V', NULL, 0, "Print program version", -1},
    {0},
};

static const char doc[] =
    "Runs the program's graph of nodes.\v"
    "graph prints the graph and starts nothing; eval plays episodes with saved parameters. "
    "Arguments after -- go to the launch file's build function.\n\n"
    "Exit status: 0 done, 1 a node failed, 2 wrong usage or a thing that is not there (nothing was "
    "started), 128 + N stopped by signal N.";

static error_t TRP_PRINTF(2, 3) usage_wrong(const struct argp_state *state, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_text(stderr, "%s: ", state->name);
    vprint_text(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return FLAGS_REFUSED;
}

static error_t parse_u64(const struct argp_state *state, const char *flag, const char *text,
                         uint64_t min, uint64_t max, uint64_t *value)
{
    if (!flags_u64(text, min, max, value))
        return usage_wrong(state, "--%s=%s: not a whole number from %llu to %llu", flag, text,
                           (unsigned long long)min, (unsigned long long)max);
    return 0;
}

static error_t option_number(const struct argp_state *state, const char *flag, const char *text,
                             double min, double *value)
{
    if (!flags_decimal(text, value) || *value < min || (min == 0 && *value > LAUNCH_SECONDS_MAX))
        return usage_wrong(state, "--%s=%s: not a number%s", flag, text,
                           min == 0 ? " of seconds" : "");
    return 0;
}

static error_t option_word(const struct argp_state *state, const char *flag, const char *text,
                           const char *zero, const char *one, int *value)
{
    if (strcmp(text, zero) != 0 && strcmp(text, one) != 0)
        return usage_wrong(state, "--%s=%s: use %s or %s", flag, text, zero, one);
    *value = strcmp(text, one) == 0;
    return 0;
}

static error_t parse_launch(const struct argp_state *state, const char *text)
{
    struct launch_options *options = state->input;
    int threads = 0;
    error_t error = option_word(state, "launch", text, "processes", "threads", &threads);
    if (error == 0)
        options->mode = threads ? LAUNCH_THREADS : LAUNCH_PROCESSES;
    options->mode_set = true;
    return error;
}

static error_t parse_target(const struct argp_state *state, const char *text)
{
    struct launch_options *options = state->input;
    error_t error = option_number(state, "target-return", text, -INFINITY, &options->target_return);
    if (error == 0 && options->target_return == 0)
        return usage_wrong(state, "--target-return=%s: 0 means no target; use a number beside it",
                           text);
    options->target_set = true;
    return error;
}

static error_t parse_run_option(int key, char *text, struct argp_state *state)
{
    struct launch_options *options = state->input;
    switch (key) {
    case KEY_LAUNCH:
        return parse_launch(state, text);
    case KEY_RUN_DIR:
        options->run_dir = text;
        return 0;
    case KEY_RESUME:
        options->resume = true;
        options->resume_dir = text ? text : options->resume_dir;
        return 0;
    case KEY_SEED:
        options->seed_set = true;
        return parse_u64(state, "seed", text, 0, UINT64_MAX, &options->seed);
    case KEY_DETERMINISTIC:
        options->deterministic = true;
        return 0;
    case KEY_MAX_SECONDS:
        options->max_seconds_set = true;
        return option_number(state, "max-seconds", text, 0, &options->max_seconds);
    case KEY_MAX_STEPS:
        return parse_u64(state, "max-steps", text, 1, UINT64_MAX, &options->max_steps);
    case KEY_TARGET_RETURN:
        return parse_target(state, text);
    case KEY_GRACE:
        options->grace_set = true;
        return option_number(state, "grace", text, 0, &options->grace_seconds);
    case KEY_DEVICE:
        options->device = text;
        return 0;
    case KEY_SET:
        options->sets = xrealloc(options->sets, (options->set_count + 1) * sizeof *options->sets);
        options->sets[options->set_count++] = text;
        return 0;
    case KEY_CONFIG:
        options->config = text;
        return 0;
    case KEY_LOG_LEVEL:
        if (trp_log_level_parse(text, &options->log_level) == TRP_OK) {
            options->shown_level = options->log_level;
            return 0;
        }
        return usage_wrong(state, "--log-level=%s: use debug, info, warn or error", text);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_command_option(int key, char *text, struct argp_state *state)
{
    struct launch_options *options = state->input;
    uint64_t number = 0;
    int dot = 0;
    error_t error = 0;
    switch (key) {
    case KEY_OPTIONS:
        options->print_options = true;
        options->filter = text;
        return 0;
    case KEY_FORMAT:
        error = option_word(state, "format", text, "text", "dot", &dot);
        options->dot = dot;
        return error;
    case KEY_PARAMS:
        options->params = text;
        return 0;
    case KEY_EPISODES:
        error = parse_u64(state, "episodes", text, 1, 1000000, &number);
        options->episodes = (uint32_t)number;
        return error;
    case KEY_STOCHASTIC:
        options->stochastic = true;
        return 0;
    case KEY_RETURNS:
        options->returns = text;
        return 0;
    case KEY_RECORD:
        options->record = text;
        return 0;
    case KEY_NODE:
        options->node = text;
        return 0;
    case KEY_SOCKET_DIR:
        options->socket_dir = text;
        return 0;
    case KEY_PARENT:
        error = parse_u64(state, "parent", text, 1, INT32_MAX, &number);
        options->parent = (int64_t)number;
        return error;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_argument(char *text, struct argp_state *state)
{
    struct launch_options *options = state->input;
    if (options->print_options && !options->filter)
        options->filter = text;
    else if (options->command == COMMAND_RUN && strcmp(text, "graph") == 0)
        options->command = COMMAND_GRAPH;
    else if (options->command == COMMAND_RUN && strcmp(text, "eval") == 0)
        options->command = COMMAND_EVAL;
    else if (options->resume && !options->run_dir && !options->resume_dir)
        options->resume_dir = text;
    else
        return usage_wrong(
            state, "'%s': use graph, eval or no word (arguments for build go after --)", text);
    return 0;
}

/* Both may name it, but no two runs go on. */
static error_t settle_run_dir(const struct argp_state *state)
{
    struct launch_options *options = state->input;
    if (options->run_dir && options->resume_dir &&
        strcmp(options->run_dir, options->resume_dir) != 0)
        return usage_wrong(state, "--run-dir=%s, but --resume names %s: leave one of them out",
                           options->run_dir, options->resume_dir);
    if (options->resume_dir)
        options->run_dir = options->resume_dir;
    return 0;
}

static error_t check_together(const struct argp_state *state)
{
    const struct launch_options *options = state->input;
    if (options->deterministic && options->mode != LAUNCH_THREADS)
        return usage_wrong(state, "--deterministic needs --launch=threads");
    if (options->command == COMMAND_EVAL && !options->params)
        return usage_wrong(state, "eval needs --params=FILE");
    if (options->command != COMMAND_EVAL &&
        (options->params || options->episodes || options->stochastic || options->returns ||
         options->record))
        return usage_wrong(state,
                           "--params, --episodes, --stochastic, --returns and --record go with "
                           "eval");
    if (options->command != COMMAND_GRAPH && options->dot)
        return usage_wrong(state, "--format goes with graph");
    return settle_run_dir(state);
}

void flags_append(char **flags, const char *name, const char *value)
{
    char *word = value ? shell_word(value) : NULL;
    char *longer =
        xasprintf("%s --%s%s%s", *flags ? *flags : "", name, word ? "=" : "", word ? word : "");
    free(*flags);
    *flags = longer;
    free(word);
}

/* A flag that a resume has to repeat to be the same run. */
static void remember(struct launch_options *options, int key, const char *text)
{
    if (key == KEY_RUN_DIR || key == KEY_RESUME || key == KEY_SEED)
        return;
    const struct argp_option *option = argp_options;
    while (option->key != key)
        option++;
    flags_append(&options->flags, option->name, text);
}

static _Noreturn void print_help(const struct argp_state *state)
{
    argp_help(state->root_argp, stdout, ARGP_HELP_STD_HELP, state->name);
    exit(fflush(stdout) == 0 ? 0 : 1);
}

static _Noreturn void print_version(void)
{
    printf("troupe %s\n", trp_version());
    exit(fflush(stdout) == 0 ? 0 : 1);
}

static error_t option_parse(int key, char *text, struct argp_state *state)
{
    switch (key) {
    case 'h':
        print_help(state);
    case 'V':
        print_version();
    case ARGP_KEY_ERROR:
        ((struct launch_options *)state->input)->stopped_at = state->next;
        return 0;
    case ARGP_KEY_ARG:
        return parse_argument(text, state);
    case ARGP_KEY_END:
        return check_together(state);
    default:
        break;
    }
    error_t error = parse_run_option(key, text, state);
    if (error == 0)
        remember(state->input, key, text);
    return error == ARGP_ERR_UNKNOWN ? parse_command_option(key, text, state) : error;
}

bool launch_options_by_tool(const struct launch_options *options)
{
    size_t length = strlen(options->program);
    return strstr(options->program, " launch ") &&
           strcmp(options->program + length - 3, " --") == 0;
}

/* Argp did not understand letters that are together, of which it has not read all, or the word
 * before the one where it stopped. */
static void print_refused(const struct launch_options *options, int end, char **argv)
{
    int at = options->stopped_at;
    const char *names[sizeof argp_options / sizeof *argp_options] = {NULL};
    size_t count = 0;
    for (size_t i = 0; i + 1 < sizeof argp_options / sizeof *argp_options; i++)
        if (argp_options[i].name && !(argp_options[i].flags & OPTION_HIDDEN))
            names[count++] = argp_options[i].name;
    bool letters = at < end && argv[at][0] == '-' && argv[at][1] != '-' && strlen(argv[at]) > 2;
    char *words = flags_refusal(argv[letters ? at : at - 1], names);
    const char *slash = launch_options_by_tool(options) ? NULL : strrchr(options->program, '/');
    print_text(stderr, "%s: %s\n", slash ? slash + 1 : argv[0], words);
    free(words);
}

/* Where argv ends for us: at "--" or its end. */
static int find_end(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return i;
    return argc;
}

trp_status launch_options_parse(struct launch_options *options, int argc, char **argv)
{
    *options = (struct launch_options){
        .program = argc > 0 ? argv[0] : "troupe",
        .grace_seconds = 20,
        .log_level = TRP_INFO,
        .shown_level = TRP_WARN,
    };
    int end = find_end(argc, argv);
    options->build_argv = xcalloc((size_t)(argc - end) + 2, sizeof(char *));
    options->build_argv[options->build_argc++] = argv[0];
    for (int i = end + 1; i < argc; i++)
        options->build_argv[options->build_argc++] = argv[i];
    static const struct argp argp = {.options = argp_options,
                                     .parser = option_parse,
                                     .args_doc = "[graph|eval] [-- ARGS]",
                                     .doc = doc};
    static char launched_as[] = "troupe launch FILE.c --";
    if (launch_options_by_tool(options))
        argv[0] = launched_as; /* argp would take what follows the last slash of a command */
    error_t error = argp_parse(&argp, end, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, options);
    if (error == EINVAL)
        print_refused(options, end, argv);
    argv[0] = options->build_argv[0];
    return error == 0 ? TRP_OK : trp_fail(TRP_INVALID_ARGUMENT, "wrong usage");
}

trp_status trp_arguments_check(int argc, char **argv, int most)
{
    if (argc - 1 <= most)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "'%s': the program takes no such argument after --",
                    argv[most + 1]);
}

void launch_options_cleanup(struct launch_options *options)
{
    free(options->build_argv);
    free(options->flags);
    free(options->sets);
    options->build_argv = NULL;
    options->flags = NULL;
    options->sets = NULL;
}

char *launch_options_program(const struct launch_options *options)
{
    return launch_options_by_tool(options) ? xstrdup(options->program)
                                           : shell_word(options->program);
}

char *launch_options_arguments(const struct launch_options *options)
{
    char *text = xstrdup(options->build_argc > 1 ? " --" : "");
    for (int i = 1; i < options->build_argc; i++) {
        char *word = shell_word(options->build_argv[i]);
        char *longer = xasprintf("%s %s", text, word);
        free(text);
        free(word);
        text = longer;
    }
    return text;
}

trp_status launch_options_apply(const struct launch_options *options, trp_program *program)
{
    size_t learners = 0, evaluators = 0;
    if (options->device)
        TRP_TRY(devices_set(program, options->device));
    for (size_t i = 0; i < options->set_count; i++)
        TRP_TRY(program_set_word(program, options->sets[i]));
    for (size_t i = 0; i < program->group_count; i++) {
        struct node_group *group = program->groups[i];
        learners += group->kind == NODE_LEARNER;
        evaluators += group->kind == NODE_EVALUATOR;
        if (group->kind == NODE_LEARNER && options->max_steps > 0)
            group->options.learner.max_steps = options->max_steps;
        if (group->kind == NODE_EVALUATOR && options->target_set)
            group->options.actor.target_return = options->target_return;
    }
    if (options->max_steps > 0 && learners == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "--max-steps: the program has no learner");
    if (options->target_set && evaluators == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "--target-return: the program has no evaluator");
    return TRP_OK;
}

const char *launch_mode_word(enum launch_mode mode)
{
    return mode == LAUNCH_THREADS ? "threads" : "processes";
}

const char *log_level_word(trp_log_level level)
{
    static const char *const words[] = {"debug", "info", "warn", "error"};
    return words[level];
}
