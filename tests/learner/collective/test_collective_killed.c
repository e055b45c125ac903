/* Ranks that are processes, one of which is killed, stopped or slow in the middle of operations:
 * every other one says in time who it was. The test starts itself as the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <troupe/collective.h>

#include "../../core/patience.h"
#include "core/alloc.h"

enum { SIZE = 3, VICTIM = 1, TIMEOUT_MS = 600, LARGE = 1200000, SMALL = 10, LINE_BYTES = 1100 };

extern char **environ;

/* ---- a rank --------------------------------------------------------------------------------- */

/* Of two sites the victim is the first rank of the second one. */
static const char *const two_sites[SIZE] = {"west", "east", "east"};

static uint64_t start_operation(trp_collective *group, const char *name, float *values)
{
    if (strncmp(name, "allreduce", 9) == 0)
        return trp_collective_allreduce(group, NULL, values, LARGE, TRP_COLLECTIVE_F32,
                                        TRP_COLLECTIVE_SUM);
    if (strncmp(name, "small allreduce", 15) == 0)
        return trp_collective_allreduce(group, NULL, values, SMALL, TRP_COLLECTIVE_F32,
                                        TRP_COLLECTIVE_SUM);
    if (strcmp(name, "reduce-scatter") == 0)
        return trp_collective_reduce_scatter(group, NULL, values, LARGE, TRP_COLLECTIVE_F32,
                                             TRP_COLLECTIVE_SUM);
    if (strcmp(name, "all-gather") == 0)
        return trp_collective_all_gather(group, NULL, values, LARGE, TRP_COLLECTIVE_F32);
    if (strcmp(name, "broadcast") == 0)
        return trp_collective_broadcast(group, NULL, values, LARGE, TRP_COLLECTIVE_F32, 0);
    if (strcmp(name, "all-to-all") == 0)
        return trp_collective_all_to_all(group, values, LARGE / SIZE / 2, TRP_COLLECTIVE_F32);
    if (strcmp(name, "shift") == 0)
        return trp_collective_shift(group, values, LARGE / 2, TRP_COLLECTIVE_F32, 1);
    return trp_collective_barrier(group);
}

static const char *const operations[] = {
    "allreduce",  "small allreduce", "reduce-scatter", "all-gather",         "broadcast",
    "all-to-all", "shift",           "barrier",        "allreduce in sites",
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static void say(const char *line)
{
    printf("%s\n", line);
    fflush(stdout);
}

/* Says where it listens, and is told where all do. */
static trp_status listen_with_others(trp_collective_listener **listener, const char *address,
                                     char *addresses[SIZE])
{
    TRP_TRY(trp_collective_listener_create(listener, address, false));
    say(trp_collective_listener_address(*listener));
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        char line[LINE_BYTES];
        if (!fgets(line, sizeof line, stdin))
            return trp_fail(TRP_UNAVAILABLE, "the test is gone");
        line[strcspn(line, "\n")] = '\0';
        addresses[rank] = xstrdup(line);
    }
    return TRP_OK;
}

/* Does the operation again and again until that fails, and says why. */
static int rank_main(char **arguments)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    char *addresses[SIZE];
    trp_collective_listener *listener;
    trp_collective *group = NULL;
    trp_collective_options options = {.rank = (uint32_t)atoi(arguments[1]),
                                      .size = SIZE,
                                      .addresses = (const char *const *)addresses,
                                      .timeout_ms = (uint32_t)atoi(arguments[3]),
                                      .no_share = strcmp(arguments[4], "sockets") == 0,
                                      .sites = strstr(arguments[2], "sites") ? two_sites : NULL,
                                      .connect_timeout_ms = PATIENCE_MS};
    trp_status status = listen_with_others(&listener, arguments[0], addresses);
    if (status == TRP_OK)
        status = trp_collective_connect(&group, listener, &options);
    float *values = xcalloc(LARGE, sizeof *values);
    if (group && trp_collective_wait(group, trp_collective_barrier(group)) == TRP_OK)
        say(trp_collective_read(group).shared_ranks > 0 ? "shared memory" : "sockets");
    while (group && status == TRP_OK)
        status = trp_collective_wait(group, start_operation(group, arguments[2], values));
    char *words = xasprintf("%d %s", status, trp_last_error());
    say(words);
    trp_collective_destroy(group);
    trp_collective_listener_destroy(listener);
    return 0;
}

/* ---- the test ------------------------------------------------------------------------------- */

/* Over which ranks reach each other. */
struct way {
    const char *lanes; /* "sockets" or "shared memory" */
    bool tcp;          /* else unix sockets */
};

struct process {
    pid_t pid;
    FILE *input, *output;
};

struct group {
    char folder[32];
    const struct way *way;
    struct process ranks[SIZE];
};

static void spawn_rank(struct group *group, uint32_t rank, const char *operation,
                       uint32_t timeout_ms)
{
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    char number[8], ms[16], address[64] = "127.0.0.1:0";
    snprintf(number, sizeof number, "%u", rank);
    snprintf(ms, sizeof ms, "%u", timeout_ms);
    if (!group->way->tcp)
        snprintf(address, sizeof address, "unix:%s/%u", group->folder, rank);
    char *arguments[] = {"/proc/self/exe",          "rank", address, number, (char *)operation, ms,
                         (char *)group->way->lanes, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    assert_int_equal(
        posix_spawn(&group->ranks[rank].pid, arguments[0], &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    group->ranks[rank].input = fdopen(in[1], "w");
    group->ranks[rank].output = fdopen(out[0], "r");
}

static void read_line(struct group *group, uint32_t rank, char line[LINE_BYTES])
{
    struct pollfd fd = {.fd = fileno(group->ranks[rank].output), .events = POLLIN};
    if (poll(&fd, 1, PATIENCE_MS) != 1 || !fgets(line, LINE_BYTES, group->ranks[rank].output))
        fail_msg("rank %u said nothing", rank);
    line[strcspn(line, "\n")] = '\0';
}

static void start_group(struct group *group, void **state, const char *operation,
                        uint32_t timeout_ms)
{
    group->way = *state;
    strcpy(group->folder, "/tmp/troupe-killed-XXXXXX");
    assert_non_null(mkdtemp(group->folder));
    for (uint32_t rank = 0; rank < SIZE; rank++)
        spawn_rank(group, rank, operation, timeout_ms);
    char line[LINE_BYTES];
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        read_line(group, rank, line);
        for (uint32_t to = 0; to < SIZE; to++)
            fprintf(group->ranks[to].input, "%s\n", line);
    }
    for (uint32_t rank = 0; rank < SIZE; rank++)
        fflush(group->ranks[rank].input);
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        read_line(group, rank, line);
        assert_string_equal(line, group->way->lanes);
    }
}

static void end_group(struct group *group)
{
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        char *path = xasprintf("%s/%u", group->folder, rank);
        kill(group->ranks[rank].pid, SIGKILL);
        waitpid(group->ranks[rank].pid, NULL, 0);
        fclose(group->ranks[rank].input);
        fclose(group->ranks[rank].output);
        unlink(path);
        free(path);
    }
    rmdir(group->folder);
}

/* The rank's last words, which are the same as `words` when those are there. */
static void expect_words(struct group *group, uint32_t rank, trp_status status,
                         char words[LINE_BYTES])
{
    char line[LINE_BYTES];
    read_line(group, rank, line);
    char *end;
    assert_int_equal(strtol(line, &end, 10), status);
    if (words[0])
        assert_string_equal(end + 1, words);
    strcpy(words, end + 1);
}

static int64_t now_ms(void)
{
    return clock_now_ns(&clock_monotonic) / 1000000;
}

static void a_rank_that_is_killed_is_named_at_once(void **state)
{
    for (size_t i = 0; i < OPERATIONS; i++) {
        struct group group;
        char words[LINE_BYTES] = "";
        start_group(&group, state, operations[i], PATIENCE_MS);
        poll(NULL, 0, 3 * (int)i); /* anywhere in it */
        int64_t before = now_ms();
        kill(group.ranks[VICTIM].pid, SIGKILL);
        for (uint32_t rank = 0; rank < SIZE; rank++)
            if (rank != VICTIM)
                expect_words(&group, rank, TRP_UNAVAILABLE, words);
        assert_string_equal(words, "rank 1 of 3 is gone");
        assert_in_range(now_ms() - before, 0, PATIENCE_MS / 10);
        end_group(&group);
    }
}

/* Of "...operation 7, shift of 600000 f32" that is the shift. */
static bool names_operation(const char *words, const char *operation)
{
    const char *comma = strchr(words, ',');
    if (!comma || strncmp(words, "rank 1 of 3 is waited for in operation ", 39) != 0)
        return false;
    char *kind = xasprintf("%.*s", (int)strcspn(comma + 2, " ,"), comma + 2);
    bool is_there = strstr(operation, kind) != NULL;
    free(kind);
    return is_there;
}

/* Groups run one after the other until their rank is stopped, and wait for it together. */
static void a_rank_that_is_stopped_is_named_at_the_deadline(void **state)
{
    struct group groups[OPERATIONS];
    int64_t before[OPERATIONS];
    for (size_t i = 0; i < OPERATIONS; i++) {
        start_group(&groups[i], state, operations[i], TIMEOUT_MS);
        poll(NULL, 0, 3 * (int)i);
        before[i] = now_ms();
        kill(groups[i].ranks[VICTIM].pid, SIGSTOP);
    }
    for (size_t i = 0; i < OPERATIONS; i++) {
        char words[LINE_BYTES] = "";
        for (uint32_t rank = 0; rank < SIZE; rank++)
            if (rank != VICTIM)
                expect_words(&groups[i], rank, TRP_DEADLINE_EXCEEDED, words);
        if (!names_operation(words, operations[i]))
            fail_msg("%s: %s", operations[i], words);
        assert_in_range(now_ms() - before[i], 0, 10 * TIMEOUT_MS);
        kill(groups[i].ranks[VICTIM].pid, SIGCONT); /* it hears why the others are gone */
        expect_words(&groups[i], VICTIM, TRP_DEADLINE_EXCEEDED, words);
        end_group(&groups[i]);
    }
}

/* It comes back before the deadline: nothing happened. */
static void a_rank_that_is_slow_is_waited_for(void **state)
{
    struct group group;
    start_group(&group, state, "allreduce", PATIENCE_MS);
    for (int i = 0; i < 5; i++) {
        kill(group.ranks[VICTIM].pid, SIGSTOP);
        poll(NULL, 0, 150);
        kill(group.ranks[VICTIM].pid, SIGCONT);
        poll(NULL, 0, 20);
    }
    struct pollfd fds[SIZE];
    for (uint32_t rank = 0; rank < SIZE; rank++)
        fds[rank] = (struct pollfd){.fd = fileno(group.ranks[rank].output), .events = POLLIN};
    assert_int_equal(poll(fds, SIZE, 0), 0); /* nobody gave up */
    end_group(&group);
}

int main(int argc, char **argv)
{
    if (argc == 7)
        return rank_main(argv + 2);
    static const struct way tcp = {"sockets", true}, local = {"sockets", false},
                            shared = {"shared memory", false};
#define OVER(way)                                                                                  \
    cmocka_unit_test_prestate(a_rank_that_is_killed_is_named_at_once, (void *)&(way)),             \
        cmocka_unit_test_prestate(a_rank_that_is_stopped_is_named_at_the_deadline,                 \
                                  (void *)&(way)),                                                 \
        cmocka_unit_test_prestate(a_rank_that_is_slow_is_waited_for, (void *)&(way))
    const struct CMUnitTest tests[] = {OVER(tcp), OVER(local), OVER(shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
