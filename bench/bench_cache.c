/* A new version of parameters from a learner elsewhere to the actors of a host, through a cache
 * there and sent to each: real programs of this file, with a process for each node. Their learner
 * keeps its memory to itself, as if it was on another host, and counts what it sends. Copies of the
 * same bytes by as many processes, the ceiling, are taken in turns with that. */
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <troupe/troupe.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "median.h"
#include "params.pb-c.h"
#include "scratch.h"

extern char **environ;

enum {
    ACTORS = 16,
    TURNS = 15,
    NUMBERS = 1700000, /* 6.8 MB, the network of Mnih et al. (2015) */
    NUMBERS_BYTES = NUMBERS * sizeof(float),
    POLL_MS = 1,      /* of the cache */
    LOOK_NS = 500000, /* between two looks of an actor */
    SLEEP_NS = 100000000,
    PAGE = 4096,
};

enum order { COPY, PULL };

struct found {
    double copy_s, pull_s; /* of all actors */
    double learner_s;      /* of processor time */
    double sent_bytes;     /* by the learner */
};

/* What the nodes of a program have in common: a file of its run directory. */
struct board {
    _Atomic uint32_t orders, done; /* the newest; actors that have obeyed it */
    _Atomic uint32_t order;
    struct found found;
    _Alignas(PAGE) uint8_t bytes[NUMBERS_BYTES];
};

static const char *board_path; /* from the environment: nodes have it, too */
static trp_node learner, params;

static struct board *open_board(void)
{
    int fd = open(board_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct board *board = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof *board) == 0)
        board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED) {
        perror(board_path);
        exit(1);
    }
    close(fd);
    return board;
}

/* Until the word is another one, or for a moment. */
static void sleep_at(_Atomic uint32_t *word, uint32_t value)
{
    struct timespec moment = {.tv_nsec = SLEEP_NS};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &moment, NULL, 0);
}

static void wake_at(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, ACTORS, NULL, NULL, 0);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- an actor -------------------------------------------------------------------------------- */

static trp_status obey(trp_context *context, trp_params_client *client, const struct board *board,
                       void *copy)
{
    bool newer = false;
    if (atomic_load(&board->order) == COPY) {
        memcpy(copy, board->bytes, NUMBERS_BYTES);
        return TRP_OK;
    }
    for (;;) {
        TRP_TRY(trp_params_client_pull(client, 0, 0, &newer));
        if (newer || trp_stop_requested(trp_context_stop(context)))
            return TRP_OK;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

static trp_status actor_run(trp_context *context, const void *arg)
{
    struct board *board = open_board();
    void *copy = xcalloc(1, NUMBERS_BYTES);
    trp_params_client *client;
    (void)arg;
    trp_status status = trp_context_params(context, params, 0, &client);
    if (status == TRP_OK)
        status = trp_params_client_wait(client, 60000);
    uint32_t obeyed = 0;
    while (status == TRP_OK && !trp_stop_requested(trp_context_stop(context))) {
        uint32_t orders = atomic_load(&board->orders);
        if (orders == obeyed) {
            sleep_at(&board->orders, orders);
            continue;
        }
        status = obey(context, client, board, copy);
        obeyed = orders;
        if (atomic_fetch_add(&board->done, 1) + 1 == ACTORS)
            wake_at(&board->done);
    }
    free(copy);
    return status;
}

/* ---- the learner ----------------------------------------------------------------------------- */

/* In front of the publisher's service: what goes out is counted. */
struct counting {
    Troupe__Params_Service service;
    Troupe__Params_Service *counted;
    _Atomic uint64_t bytes;
};

struct counted_call {
    struct counting *counting;
    Troupe__PullReply_Closure closure;
    void *data;
};

static void count_reply(const Troupe__PullReply *reply, void *data)
{
    const struct counted_call *call = data;
    if (reply)
        atomic_fetch_add(&call->counting->bytes, reply->params.len);
    call->closure(reply, call->data);
}

static void counting_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                          Troupe__PullReply_Closure closure, void *data)
{
    struct counting *counting = (struct counting *)service;
    struct counted_call call = {counting, closure, data};
    counting->counted->pull(counting->counted, request, count_reply, &call);
}

/* All actors do it: seconds until the last one has. */
static double give_order(trp_context *context, struct board *board, enum order order)
{
    double since = seconds(CLOCK_MONOTONIC);
    atomic_store(&board->done, 0);
    atomic_store(&board->order, order);
    atomic_fetch_add(&board->orders, 1);
    wake_at(&board->orders);
    for (uint32_t done; (done = atomic_load(&board->done)) < ACTORS;) {
        if (trp_stop_requested(trp_context_stop(context)))
            break;
        sleep_at(&board->done, done);
    }
    return seconds(CLOCK_MONOTONIC) - since;
}

static void measure(trp_context *context, trp_publisher *publisher, struct counting *counting)
{
    struct board *board = open_board();
    float *numbers = xcalloc(NUMBERS, sizeof *numbers);
    double copies[TURNS], pulls[TURNS], own[TURNS];
    uint64_t version = 0, before = 0;
    memset(board->bytes, 1, NUMBERS_BYTES);
    trp_publisher_publish(publisher, numbers, ++version, 0);
    give_order(context, board, COPY); /* all are there */
    for (int turn = -2; turn < TURNS; turn++) {
        int at = turn < 0 ? 0 : turn; /* the first ones warm up */
        copies[at] = give_order(context, board, COPY);
        if (turn == 0)
            before = atomic_load(&counting->bytes);
        numbers[version % NUMBERS]++;
        double busy = seconds(CLOCK_PROCESS_CPUTIME_ID), since = seconds(CLOCK_MONOTONIC);
        trp_publisher_publish(publisher, numbers, ++version, 0);
        double published = seconds(CLOCK_MONOTONIC) - since;
        pulls[at] = published + give_order(context, board, PULL);
        own[at] = seconds(CLOCK_PROCESS_CPUTIME_ID) - busy;
    }
    board->found =
        (struct found){.copy_s = median(copies, TURNS),
                       .pull_s = median(pulls, TURNS),
                       .learner_s = median(own, TURNS),
                       .sent_bytes = (double)(atomic_load(&counting->bytes) - before) / TURNS};
    free(numbers);
}

static trp_status learner_run(trp_context *context, const void *arg)
{
    trp_publisher *publisher = trp_publisher_create(NUMBERS);
    struct counting *counting = xcalloc(1, sizeof *counting);
    (void)arg;
    trp_publisher_keep_private(publisher);
    counting->service =
        (Troupe__Params_Service){.base = TROUPE__PARAMS__BASE_INIT, .pull = counting_pull};
    counting->counted = (Troupe__Params_Service *)trp_publisher_service(publisher);
    trp_status status = trp_context_serve(context, &counting->service.base, NULL);
    if (status == TRP_OK)
        measure(context, publisher, counting);
    if (status == TRP_OK && !trp_stop_requested(trp_context_stop(context)))
        trp_context_stop_program(context, true, "all turns were taken");
    while (status == TRP_OK && !trp_stop_wait(trp_context_stop(context), 100))
        ; /* the others come to their end */
    if (!trp_context_withdraw(context, status))
        return status; /* somebody may still call */
    trp_publisher_destroy(publisher);
    free(counting);
    return status;
}

/* ---- programs -------------------------------------------------------------------------------- */

static trp_status build(trp_program *program, int argc, char **argv)
{
    static const ProtobufCServiceDescriptor *serves[2];
    bool cached = argc > 1 && strcmp(argv[1], "cached") == 0;
    serves[0] = trp_params_descriptor();
    learner = params =
        trp_add_node(program, "learner",
                     &(trp_node_options){.run = learner_run, .serves = serves, .serve_count = 1});
    if (cached)
        params = trp_add_params_cache(
            program, "cache", &(trp_params_cache_options){.params = learner, .poll_ms = POLL_MS});
    trp_add_node(
        program, "actor",
        &(trp_node_options){.run = actor_run, .uses = &params, .use_count = 1, .count = ACTORS});
    return TRP_OK;
}

static struct found run_program(const char *scenario)
{
    char *dir = make_dir("/tmp"), *run_dir = xasprintf("--run-dir=%s/run", dir);
    char *board = xasprintf("%s/board", dir);
    char *arguments[] = {
        "/proc/self/exe", "--launch=processes", run_dir, "--", (char *)scenario, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    setenv("BENCH_CACHE_BOARD", board, 1);
    board_path = board;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, arguments[0], &actions, NULL, arguments, environ) != 0 ||
        waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "bench_cache: %s failed\n", scenario);
        exit(1);
    }
    posix_spawn_file_actions_destroy(&actions);
    struct board *read = open_board();
    struct found found = read->found;
    munmap(read, sizeof *read);
    free(board);
    free(run_dir);
    remove_dir(dir);
    return found;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        board_path = getenv("BENCH_CACHE_BOARD");
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        return trp_main(argc, argv, "bench_cache", build);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct found sent = run_program("sent"), cached = run_program("cached");
    double all = (double)ACTORS * NUMBERS_BYTES / 1e9;
    printf("params: a new version of %.1f MB from another host's learner to %d actors, through a "
           "cache\t%.6g\tGB/s\t%.6g\t%d memcpys\t%.6g\tsent to each\n",
           NUMBERS_BYTES / 1e6, ACTORS, all / cached.pull_s, all / cached.copy_s, ACTORS,
           all / sent.pull_s);
    printf("params: of that, what the learner sends\t%.6g\tMB\t\t\t%.6g\tsent to each\n",
           cached.sent_bytes / 1e6, sent.sent_bytes / 1e6);
    printf("params: of that, the learner's processor time\t%.6g\tms\t\t\t%.6g\tsent to each\n",
           cached.learner_s * 1e3, sent.learner_s * 1e3);
    return 0;
}
