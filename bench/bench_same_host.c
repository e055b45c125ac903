/* Samples on one host: from a server in this process, over a unix socket and over TCP from a server
 * in a process of its own. Tables are full and nobody inserts.
 *
 *   bench_same_host [--dir PATH]    where the store goes (default /dev/shm)
 *
 * The ceiling is a memcpy of the same bytes, rows of a large table in random order into the rows of
 * a batch, on one thread.
 *
 * Views are batches that are not copied: what is measured is all that a sampler does for them.
 *
 * Prints: case, measured, unit, ceiling, its name. */
#include <troupe/replay.h>
#include <troupe/rng.h>
#include <troupe/sampler.h>
#include <troupe/writer.h>

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"

extern char **environ;

enum { SEGMENTS = 5, BATCH = 256, COLUMNS_MAX = 6, PREFETCH = 2, INSERT_BATCH = 64 };

static const int64_t SEGMENT_NS = 500000000;

struct load {
    const char *name; /* also the table's */
    size_t column_count;
    trp_tensor_spec columns[COLUMNS_MAX];
    size_t items;
};

static const struct load loads[] = {
    {.name = "52B",
     .column_count = 6,
     .columns = {{.name = "action", .dtype = TRP_INT32},
                 {.name = "discount", .dtype = TRP_FLOAT32},
                 {.name = "extra", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}},
                 {.name = "next", .dtype = TRP_FLOAT32, .rank = 1, .shape = {4}},
                 {.name = "obs", .dtype = TRP_FLOAT32, .rank = 1, .shape = {4}},
                 {.name = "reward", .dtype = TRP_FLOAT32}},
     .items = 100000},
    {.name = "28KB",
     .column_count = 4,
     .columns = {{.name = "action", .dtype = TRP_INT32},
                 {.name = "discount", .dtype = TRP_FLOAT32},
                 {.name = "obs", .dtype = TRP_UINT8, .rank = 3, .shape = {84, 84, 4}},
                 {.name = "reward", .dtype = TRP_FLOAT32}},
     .items = 8192},
};

enum { LOADS = sizeof loads / sizeof *loads };

static void fail(const char *what)
{
    fprintf(stderr, "bench_same_host: %s\n", what);
    exit(1);
}

static void check(trp_status status)
{
    if (status != TRP_OK)
        fail(trp_last_error());
}

static int64_t now(void)
{
    return clock_now_ns(&clock_monotonic);
}

/* ---- the server ------------------------------------------------------------------------------ */

static trp_replay_server *open_server(const char *dir, const char *address)
{
    trp_table_options *tables[LOADS], copies[LOADS];
    trp_replay_server *server;
    for (size_t i = 0; i < LOADS; i++) {
        char line[128];
        snprintf(line, sizeof line, "name=%s sampler=uniform max_size=%zu limiter=min_size(1)",
                 loads[i].name, loads[i].items);
        check(trp_table_options_parse(line, &tables[i]));
        copies[i] = *tables[i];
    }
    check(trp_replay_server_create(&server, &(trp_replay_server_options){.dir = dir,
                                                                         .server.address = address,
                                                                         .tables = copies,
                                                                         .table_count = LOADS}));
    for (size_t i = 0; i < LOADS; i++)
        trp_table_options_destroy(tables[i]);
    return server;
}

static void fill_table(const struct load *load, trp_channel *channel)
{
    trp_writer *writer;
    trp_rng rng;
    trp_item_column item[COLUMNS_MAX];
    void *step[COLUMNS_MAX];
    trp_rng_init(&rng, 1, 1);
    check(trp_writer_create(&writer, channel,
                            &(trp_writer_options){.columns = load->columns,
                                                  .column_count = load->column_count,
                                                  .batch_items = INSERT_BATCH}));
    for (size_t c = 0; c < load->column_count; c++) {
        item[c] = (trp_item_column){.column = (uint32_t)c, .length = 1, .squeeze = true};
        step[c] = xmalloc(trp_tensor_bytes(&load->columns[c]));
    }
    for (size_t i = 0; i < load->items; i++) {
        for (size_t c = 0; c < load->column_count; c++)
            for (size_t at = 0, end = trp_tensor_bytes(&load->columns[c]); at < end; at += 4)
                memcpy((char *)step[c] + at, &(uint32_t){(uint32_t)trp_rng_u64(&rng)}, 4);
        check(trp_writer_append(writer, (const void *const *)step));
        check(trp_writer_create_item(writer, load->name, 1, item, load->column_count, -1, NULL));
    }
    check(trp_writer_flush(writer, 0, -1));
    trp_writer_destroy(writer);
    for (size_t c = 0; c < load->column_count; c++)
        free(step[c]);
}

/* Serves `dir` at `address` until stdin ends. */
static int serve(const char *dir, const char *address)
{
    char byte;
    trp_replay_server *server = open_server(dir, address);
    check(trp_replay_server_start(server));
    printf("%s\n", trp_server_address(trp_replay_server_rpc(server)));
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    trp_replay_server_destroy(server);
    return 0;
}

struct process {
    pid_t pid;
    int in;
    FILE *out;
    char address[256];
};

static struct process start(const char *dir, const char *address)
{
    struct process process;
    char *arguments[] = {"/proc/self/exe", "--serve", (char *)dir, (char *)address, NULL};
    posix_spawn_file_actions_t actions;
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0)
        fail("no pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    if (posix_spawn(&process.pid, arguments[0], &actions, NULL, arguments, environ) != 0)
        fail("no process");
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    process.in = in[1];
    process.out = fdopen(out[0], "r");
    if (!process.out || !fgets(process.address, sizeof process.address, process.out))
        fail("the server did not start");
    process.address[strcspn(process.address, "\n")] = 0;
    return process;
}

static void stop(struct process *process)
{
    close(process->in);
    fclose(process->out);
    waitpid(process->pid, NULL, 0);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static size_t item_bytes(const struct load *load)
{
    size_t bytes = 0;
    for (size_t c = 0; c < load->column_count; c++)
        bytes += trp_tensor_bytes(&load->columns[c]);
    return bytes;
}

static double best_rate(double best, double count, int64_t since)
{
    double rate = count / ((double)(now() - since) * 1e-9);
    return rate > best ? rate : best;
}

/* As many batches as a sampler with PREFETCH has. */
static double gather_rate(const struct load *load)
{
    size_t bytes = item_bytes(load);
    uint8_t *table = aligned_alloc(64, load->items * ((bytes + 63) & ~(size_t)63)), *batch;
    trp_rng rng;
    double best = 0;
    batch = aligned_alloc(64, (PREFETCH + 1) * BATCH * ((bytes + 63) & ~(size_t)63));
    if (!table || !batch)
        fail("no memory");
    trp_rng_init(&rng, 2, 2);
    memset(table, 1, load->items * bytes);
    memset(batch, 1, (PREFETCH + 1) * BATCH * bytes);
    for (int segment = 0; segment < SEGMENTS; segment++) {
        double count = 0;
        size_t turn = 0;
        int64_t begin = now();
        for (; now() < begin + SEGMENT_NS; count += BATCH, turn = (turn + 1) % (PREFETCH + 1))
            for (size_t i = 0; i < BATCH; i++)
                memcpy(batch + (turn * BATCH + i) * bytes,
                       table + trp_rng_u64(&rng) % load->items * bytes, bytes);
        best = best_rate(best, count, begin);
    }
    free(table);
    free(batch);
    return best;
}

/* Processor time of this process, which other programs disturb less. */
static double cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* What a learner would do at least with a view: nothing is read of pages but their addresses. */
static void next(trp_sampler *sampler, bool views)
{
    trp_batch batch;
    trp_views seen;
    check(views ? trp_sampler_next_views(sampler, &seen, 30000)
                : trp_sampler_next(sampler, &batch, 30000));
    if (views && !trp_sampler_views_valid(sampler))
        fail("the server took views back");
}

static double sample_rate(const struct load *load, trp_channel *channel, uint32_t prefetch,
                          bool views, double *ns_per_item)
{
    trp_sampler *sampler;
    double best = 0;
    check(trp_sampler_create(&sampler, channel,
                             &(trp_sampler_options){.table = load->name,
                                                    .columns = load->columns,
                                                    .column_count = load->column_count,
                                                    .batch_size = BATCH,
                                                    .prefetch = prefetch,
                                                    .limiter_timeout_ms = -1,
                                                    .views = views}));
    for (size_t i = 0; i < 4 * load->items; i += BATCH) /* pages are mapped, caches warm */
        next(sampler, views);
    for (int segment = 0; segment < SEGMENTS; segment++) {
        double count = 0, cpu = cpu_ns();
        int64_t begin = now();
        for (; now() < begin + SEGMENT_NS; count += BATCH)
            next(sampler, views);
        best = best_rate(best, count, begin);
        cpu = (cpu_ns() - cpu) / count;
        *ns_per_item = segment == 0 || cpu < *ns_per_item ? cpu : *ns_per_item;
    }
    trp_sampler_destroy(sampler);
    return best;
}

static void print_row(const char *place, const struct load *load, trp_channel *channel,
                      uint32_t prefetch, bool views, double ceiling)
{
    double ns_per_item = 0, per_s = sample_rate(load, channel, prefetch, views, &ns_per_item);
    printf("%s %s, batches of %d, %s%s\t%.4g\titems/s\t%.4g\tmemcpy gather\n",
           views ? "view" : "sample", load->name, BATCH, place, prefetch ? ", prefetch" : "", per_s,
           ceiling);
    printf("  processor time of the sampler's process\t%.4g\tns/item\t0\t\n", ns_per_item);
    fflush(stdout);
}

static void print_rows(const char *place, trp_channel *channel, const double *ceilings)
{
    for (size_t i = 0; i < LOADS; i++)
        for (uint32_t prefetch = 0; prefetch <= PREFETCH; prefetch += PREFETCH) {
            print_row(place, &loads[i], channel, prefetch, false, ceilings[i]);
            print_row(place, &loads[i], channel, prefetch, true, ceilings[i]);
        }
}

static void bench_process(const char *dir, const char *address, const char *place,
                          const double *ceilings)
{
    trp_channel *channel;
    struct process server = start(dir, address);
    check(trp_channel_create(&channel, server.address, NULL));
    print_rows(place, channel, ceilings);
    trp_channel_destroy(channel);
    stop(&server);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--serve") == 0)
        return serve(argv[2], argv[3]);
    if (argc != 1 && (argc != 3 || strcmp(argv[1], "--dir") != 0))
        fail("usage: bench_same_host [--dir PATH]");
    char *dir = xasprintf("%s/bench_same_host-XXXXXX", argc == 3 ? argv[2] : "/dev/shm");
    double ceilings[LOADS];
    if (!mkdtemp(dir))
        fail(dir);
    for (size_t i = 0; i < LOADS; i++)
        ceilings[i] = gather_rate(&loads[i]);
    trp_replay_server *server = open_server(dir, NULL);
    trp_channel *channel = trp_channel_create_local(trp_replay_server_rpc(server));
    for (size_t i = 0; i < LOADS; i++)
        fill_table(&loads[i], channel);
    print_rows("same process", channel, ceilings);
    trp_channel_destroy(channel);
    trp_replay_server_destroy(server);
    char *socket = xasprintf("unix:%s.sock", dir), *command = xasprintf("rm -rf '%s'", dir);
    bench_process(dir, socket, "unix socket", ceilings);
    bench_process(dir, "127.0.0.1:0", "TCP", ceilings);
    if (system(command) != 0)
        fail(dir);
    free(command);
    free(socket);
    free(dir);
    return 0;
}
