/* A program for tests of the launcher: two users of one base, and a scenario (the argument after
 * "--") that decides who misbehaves. Nodes append what happens to them to RUN_DIR/events. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/troupe.h>
#include "core/thread.h"
#include "params.pb-c.h"

static int *volatile nowhere = (int *)8; /* not NULL, which a sanitizer would see first */
static const char *scenario = "done";
static trp_node base;
static int lingering_fd = -1;

static bool is(const char *name)
{
    return strcmp(scenario, name) == 0;
}

static void event(const trp_context *context, const char *what)
{
    char path[4096], line[128];
    snprintf(path, sizeof path, "%s/events", trp_context_run_dir(context));
    int size = snprintf(line, sizeof line, "%s %s %d\n", trp_context_name(context), what, getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)size) != size)
        abort();
    close(fd);
}

static trp_status wait_for_stop(trp_context *context)
{
    event(context, "runs");
    trp_stop_wait(trp_context_stop(context), -1);
    event(context, "stops");
    return TRP_OK;
}

/* ---- base -------------------------------------------------------------------------------- */

static _Atomic int pulls;

static void pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                 Troupe__PullReply_Closure closure, void *data)
{
    (void)service;
    pulls++;
    Troupe__PullReply reply = TROUPE__PULL_REPLY__INIT;
    reply.version = request->version + 1;
    closure(&reply, data);
}

static Troupe__Params_Service service = {.base = TROUPE__PARAMS__BASE_INIT, .pull = pull};

static bool is_late(void)
{
    return is("served_to_the_late") || is("withdrawn_from_the_late");
}

/* As a body that frees what it serves. */
static trp_status break_down(trp_context *context, bool withdraws)
{
    trp_status status = trp_fail(TRP_DATA_LOSS, "the base broke");
    if (withdraws && trp_context_withdraw(context, status))
        return trp_fail(TRP_INTERNAL, "nobody was there to withdraw from");
    return status;
}

static trp_status base_serve(trp_context *context)
{
    TRP_TRY(trp_context_serve(context, &service.base, NULL));
    bool deaf = is("served_to_the_deaf"), withdraws = is("withdrawn_from_the_late");
    bool late = is_late();
    while ((deaf && pulls < 2) || (late && pulls == 0))
        trp_stop_wait(trp_context_stop(context), 5);
    if (is("served_then_fails") || deaf || late)
        return break_down(context, withdraws);
    return wait_for_stop(context);
}

static trp_status base_run(trp_context *context, const void *arg)
{
    (void)arg;
    if (is("segv")) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would make an exit of it */
        *nowhere = 1;
    }
    if (is("leaves"))
        return TRP_OK;
    if (is("serve") || is("served_then_fails") || is("served_to_the_deaf") || is_late() ||
        is("asks"))
        return base_serve(context);
    if (is("waits_for_silent")) {
        fputs("here, but silent\n", stdout);
        fflush(stdout);
    }
    TRP_TRY(wait_for_stop(context));
    if (is("complains") || is("breaks_first"))
        return trp_fail(TRP_DATA_LOSS, "the base broke");
    return TRP_OK;
}

/* ---- users ------------------------------------------------------------------------------- */

static trp_status call_base(trp_context *context)
{
    ProtobufCService *params;
    TRP_TRY(trp_dial(context, base, 0, &troupe__params__descriptor, &params));
    Troupe__PullRequest request = TROUPE__PULL_REQUEST__INIT;
    request.version = 41;
    ProtobufCMessage *message;
    TRP_TRY(trp_call(params, "Pull", &request.base, &message, NULL));
    uint64_t version = ((Troupe__PullReply *)message)->version;
    protobuf_c_message_free_unpacked(message, NULL);
    trp_context_report(context, "version", (double)version);
    if (version != 42)
        return trp_fail(TRP_INTERNAL, "version %llu", (unsigned long long)version);
    event(context, "called");
    return TRP_OK;
}

static void print_long_lines(void)
{
    char *dots = malloc(1 << 20);
    if (!dots)
        abort();
    memset(dots, '.', 1 << 20);
    for (int i = 0; i < 2; i++) {
        fwrite(dots, 1, 1 << 20, stdout);
        fputs("END\n", stdout);
    }
    fputs("unfinished", stdout);
    fflush(stdout);
    free(dots);
}

static void log_number(void *context)
{
    trp_log(TRP_INFO, "its thread logs number=%u", trp_context_index(context));
}

static trp_status log_twice(trp_context *context)
{
    struct thread thread = {.running = false};
    bool warns = is("warns");
    trp_log(warns ? TRP_WARN : TRP_INFO, "this is number=%u", trp_context_index(context));
    if (warns)
        fprintf(stderr, "2026 said, not logged\n");
    TRP_TRY(thread_start(&thread, "helper", log_number, context));
    thread_stop(&thread);
    return TRP_OK;
}

/* Until `line` is in a file of the run directory; a node that is stopped before it began has
 * nothing to tell. */
static trp_status await_line(trp_context *context, const char *file, const char *line)
{
    char path[4096], text[1 << 16];
    snprintf(path, sizeof path, "%s/%s", trp_context_run_dir(context), file);
    do {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text);
        if (fd >= 0)
            close(fd);
        if (size > 0 && memmem(text, (size_t)size, line, strlen(line)))
            break;
    } while (!trp_stop_wait(trp_context_stop(context), 5));
    return TRP_OK;
}

static trp_status await_event(trp_context *context, const char *line)
{
    return await_line(context, "events", line);
}

/* The launcher was told that the node failed, and has to kill it. */
static void linger(void)
{
    if (write(lingering_fd, "user/0 lingers\n", 15) != 15)
        abort();
    for (;;)
        pause();
}

static trp_status first_user(trp_context *context)
{
    if (is("lingers")) {
        char path[4096];
        snprintf(path, sizeof path, "%s/events", trp_context_run_dir(context));
        lingering_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        atexit(linger);
        return trp_fail(TRP_DATA_LOSS, "the first dog ate it");
    }
    if (is("asks")) {
        TRP_TRY(call_base(context)); /* a node that has not begun yet has nothing to stop */
        trp_context_stop_program(context, true, "enough");
    }
    if (is("asks_failure"))
        trp_context_stop_program(context, false, "it is no use");
    if (is("asks_and_ignores")) {
        TRP_TRY(await_event(context, "base/0 runs"));
        trp_context_stop_program(context, true, "enough");
    }
    if (is("asks_and_ignores") || is("ignores")) {
        event(context, "runs");
        for (;;)
            trp_stop_wait(trp_context_stop(context), 1000);
    }
    return TRP_OK;
}

static trp_status second_user(trp_context *context)
{
    if (is("lingers")) {
        TRP_TRY(await_event(context, "user/0 lingers"));
        TRP_TRY(await_line(context, "../err", "user/0 failed: the first dog ate it"));
        return trp_fail(TRP_DATA_LOSS, "the second dog ate it");
    }
    fputs("a last word\n", stderr);
    if (is("exit"))
        exit(3);
    if (is("fails"))
        return trp_fail(TRP_DATA_LOSS, "the dog ate it");
    if (is("abort"))
        abort();
    return TRP_OK;
}

static trp_status user_run(trp_context *context, const void *arg)
{
    const char *text = arg;
    if (strcmp(text, "argument") != 0)
        return trp_fail(TRP_INTERNAL, "the argument is '%s'", text);
    if (is("done"))
        return await_event(context, "base/0 runs");
    if (is("long_lines")) {
        if (trp_context_index(context) == 0)
            print_long_lines();
        return TRP_OK;
    }
    if (is("served_to_the_deaf") || is_late()) {
        if (is_late() && trp_context_index(context) == 1)
            trp_stop_wait(trp_context_stop(context), -1); /* of the base that is withdrawn */
        TRP_TRY(call_base(context));
        for (;;)
            if (is_late() && trp_stop_requested(trp_context_stop(context)))
                trp_log(TRP_ERROR, "it goes on");
            else
                poll(NULL, 0, 20);
    }
    if (is("waits_for_silent") || is("waits_for_late")) {
        event(context, "runs");
        trp_status status = call_base(context);
        trp_log(TRP_INFO, "%s", trp_last_error());
        return status;
    }
    if (is("complains") || is("breaks_first")) {
        TRP_TRY(await_event(context, "base/0 runs"));
        if (trp_context_index(context) == 1)
            return wait_for_stop(context);
        return trp_fail(is("complains") ? TRP_UNAVAILABLE : TRP_DATA_LOSS, "a user's words");
    }
    if (is("serve") || is("leaves") || is("served_then_fails"))
        return call_base(context);
    if (is("seed")) {
        char seed[32];
        snprintf(seed, sizeof seed, "seed %llu", (unsigned long long)trp_context_seed(context));
        event(context, seed);
        return TRP_OK;
    }
    if (is("logs") || is("warns") || is("prepares"))
        return log_twice(context);
    if (is("undeclared")) {
        trp_channel *channel;
        return trp_context_channel(context, base, 5, &channel);
    }
    TRP_TRY(trp_context_index(context) == 0 ? first_user(context) : second_user(context));
    return wait_for_stop(context);
}

/* ---- learners ---------------------------------------------------------------------------- */

static trp_node learners[2];

static trp_status compare_learners(trp_context *context, const void *arg)
{
    trp_params_state states[2];
    (void)arg;
    for (size_t i = 0; i < 2; i++) {
        trp_params_client *client;
        TRP_TRY(trp_context_params(context, learners[i], 0, &client));
        TRP_TRY(trp_params_client_pull(client, 0, 0, NULL));
        states[i] = trp_params_client_state(client);
    }
    bool differ = states[0].count > 0 && states[0].count == states[1].count &&
                  memcmp(states[0].params, states[1].params, states[0].count * sizeof(float)) != 0;
    trp_context_stop_program(context, differ, differ ? "their parameters differ" : "the same");
    return TRP_OK;
}

static trp_status build_learners(trp_program *program)
{
    trp_agent agent = trp_dqn(&(trp_dqn_options){.hidden = {8}});
    trp_learner_options learning = {.agent = &agent};
    learning.replay =
        trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent, .env = "Catch"});
    learning.env = "Catch";
    learners[0] = trp_add_learner(program, "first", &learning);
    learners[1] = trp_add_learner(program, "second", &learning);
    trp_add_node(program, "user",
                 &(trp_node_options){.run = compare_learners, .uses = learners, .use_count = 2});
    return TRP_OK;
}

/* ---- graph ------------------------------------------------------------------------------- */

/* True in the process that is to run `node`. */
static bool is_process_of(const char *node)
{
    char text[4096], flag[64];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    snprintf(flag, sizeof flag, "--node=%s", node);
    return size > 0 && memmem(text, (size_t)size, flag, strlen(flag) + 1);
}

static trp_status fail_alone(trp_context *context, const void *arg)
{
    (void)context;
    (void)arg;
    return trp_fail(TRP_INTERNAL, "it ate its own homework");
}

/* Two groups of actors and two evaluators around one learner; the second evaluator's target is one
 * that everybody reaches, the first one's nobody. */
static trp_status build_groups(trp_program *program, bool targets)
{
    trp_agent agent = trp_dqn(&(trp_dqn_options){
        .hidden = {16}, .batch_size = 8, .min_replay_size = 100, .samples_per_insert = -1});
    trp_actor_options acting = {.agent = &agent, .env = "Catch"};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    trp_add_actors(program, "left", 1, &acting);
    trp_add_actors(program, "right", 2, &acting);
    acting.episodes = 10;
    acting.target_return = targets ? 2 : 0;
    trp_add_evaluator(program, "first", &acting);
    acting.episodes = 20;
    acting.target_return = targets ? -2 : 0;
    trp_add_evaluator(program, "second", &acting);
    return TRP_OK;
}

static trp_status first_run(trp_context *context, const void *arg)
{
    (void)context, (void)arg;
    return TRP_OK;
}

static trp_status prepare(void)
{
    printf("prepared by %s\n", is("cannot_prepare") ? "nobody" : "a run");
    fflush(stdout);
    if (is("cannot_prepare"))
        return trp_fail(TRP_UNAVAILABLE, "there is no data");
    trp_program *program = trp_program_create("first");
    trp_add_node(program, "first", &(trp_node_options){.run = first_run});
    trp_status status = trp_run(program, &(trp_run_options){.run_dir = "first"}, NULL);
    trp_program_destroy(program);
    return status;
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    if (argc > 1)
        scenario = argv[1];
    if (is("prepares") || is("cannot_prepare") || is("prepares_learners"))
        trp_program_prepare(program, prepare);
    if (is("groups") || is("targets"))
        return build_groups(program, is("targets"));
    if (is("learners") || is("prepares_learners"))
        return build_learners(program);
    if (is("alone")) {
        trp_add_node(program, "user", &(trp_node_options){.run = fail_alone});
        return TRP_OK;
    }
    if (is("waits_for_late") && is_process_of("base/0"))
        pause();
    if (is("reads_none"))
        return trp_arguments_check(argc, argv, 0);
    if (is("refuses"))
        return trp_fail(TRP_INVALID_ARGUMENT, "build has nothing to build");
    int pid = is("differs") ? getpid() : 0;
    base = trp_add_node(program, "base",
                        &(trp_node_options){.run = base_run, .arg = &pid, .arg_size = sizeof pid});
    trp_node uses[2] = {base};
    if (is("wait_with_replay")) {
        trp_table_options table = {.name = "table", .max_size = 10};
        uses[1] = trp_add_replay(program, "store",
                                 &(trp_replay_options){.tables = &table, .table_count = 1});
    }
    trp_add_node(program, is("twice") ? "base" : "user",
                 &(trp_node_options){.run = user_run,
                                     .arg = "argument",
                                     .arg_size = sizeof "argument",
                                     .uses = uses,
                                     .use_count = uses[1].id ? 2 : 1,
                                     .count = is("many") ? 200 : 2});
    if (is("unused"))
        trp_add_node(program, "lost",
                     &(trp_node_options){.run = user_run, .uses = &(trp_node){99}, .use_count = 1});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "launch_program", build);
}
