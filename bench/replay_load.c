/* See replay_load.h. */
#include "replay_load.h"

#include <troupe/rng.h>
#include <troupe/sampler.h>
#include <troupe/writer.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "median.h"
#include "scratch.h"

enum { SERVE_ARGUMENTS_MAX = 64 };

const int64_t SEGMENT_NS = 1000000000;

uint8_t *frames[FRAMES];

const struct load loads[LOADS] = {
    {.name = "52B",
     .column_count = 6,
     .columns = {{.name = "action", .dtype = TRP_INT32},
                 {.name = "discount", .dtype = TRP_FLOAT32},
                 {.name = "extra", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}},
                 {.name = "next", .dtype = TRP_FLOAT32, .rank = 1, .shape = {4}},
                 {.name = "obs", .dtype = TRP_FLOAT32, .rank = 1, .shape = {4}},
                 {.name = "reward", .dtype = TRP_FLOAT32}},
     .table_size = 100000,
     .batch_items = 256,
     .wire_bytes = 360},
    {.name = "28KB",
     .column_count = 4,
     .columns = {{.name = "action", .dtype = TRP_INT32},
                 {.name = "discount", .dtype = TRP_FLOAT32},
                 {.name = "obs", .dtype = TRP_UINT8, .rank = 3, .shape = {84, 84, 4}},
                 {.name = "reward", .dtype = TRP_FLOAT32}},
     .table_size = 5000,
     .wire_bytes = 28500},
};

void fail(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

void dir_and_peer(int argc, char **argv, const char **dir, const char **peer)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--dir") == 0)
            *dir = argv[i + 1];
        else if (i + 1 < argc && strcmp(argv[i], "--peer") == 0)
            *peer = argv[i + 1];
        else
            fail("the arguments are [--dir PATH] [--peer DIR]");
    }
}

void check(trp_status status)
{
    if (status != TRP_OK)
        fail(trp_last_error());
}

int64_t now(void)
{
    return clock_now_ns(&clock_monotonic);
}

double rate(double count, int64_t since_ns)
{
    return count / ((double)(now() - since_ns) * 1e-9);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Dies with this process: the check is for one that died before the wish was known. Between fork
 * and exec only what may be called in a signal handler. */
_Noreturn static void become(char *const *arguments, int out, pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
        dup2(out, STDOUT_FILENO) == STDOUT_FILENO)
        execv(arguments[0], arguments);
    _exit(127);
}

struct process start(char *const *arguments)
{
    struct process process;
    pid_t parent = getpid();
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0)
        fail("no pipe");
    process.pid = fork();
    if (process.pid < 0)
        fail("no process");
    if (process.pid == 0)
        become(arguments, pipes[1], parent);
    close(pipes[1]);
    process.out = fdopen(pipes[0], "r");
    return process;
}

void stop(struct process *process, int signal_number)
{
    kill(process->pid, signal_number);
    waitpid(process->pid, NULL, 0);
    fclose(process->out);
}

/* It has said why on stderr, which is ours; a signal is told by nobody else. */
void finish(struct process *process, const char *what)
{
    int status;
    waitpid(process->pid, &status, 0);
    fclose(process->out);
    if (WIFSIGNALED(status))
        fprintf(stderr, "bench: %s was killed by signal %d\n", what, WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        fprintf(stderr, "bench: %s ended with status %d\n", what, WEXITSTATUS(status));
    if (status != 0)
        exit(1);
}

double cpu_us(pid_t pid)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec * 1e-3;
}

void beside_this_program(char *path, size_t size, const char *name)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length < 0)
        fail("/proc/self/exe");
    path[length] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash + 1, size - (size_t)(slash + 1 - path), "%s", name);
}

double own_cpu_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

double resident_bytes(pid_t pid)
{
    char path[64];
    unsigned long pages = 0, shared = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*u %lu %lu", &pages, &shared) != 2)
        pages = shared = 0;
    if (file)
        fclose(file);
    return (double)(pages - shared) * (double)sysconf(_SC_PAGESIZE);
}

struct process serve(const char *listen, const char *dir, const char *const *tables,
                     size_t table_count, const char *const *more, char **address)
{
    char program[512], line[512];
    const char *arguments[SERVE_ARGUMENTS_MAX] = {
        program, "replay", "serve", "--listen", listen, "--dir", dir, "--log-level", "warn"};
    size_t count = 9;
    beside_this_program(program, sizeof program, "troupe");
    for (size_t i = 0; i < table_count; i++) {
        arguments[count++] = "--table";
        arguments[count++] = tables[i];
    }
    for (; more && *more; more++)
        arguments[count++] = *more;
    struct process process = start((char *const *)arguments);
    if (!fgets(line, sizeof line, process.out) || strncmp(line, "listening on ", 13) != 0)
        fail("troupe replay serve did not start");
    line[strcspn(line, "\n")] = 0;
    *address = xstrdup(line + 13);
    return process;
}

struct served serve_load(const struct load *load, size_t table_size, const char *parent,
                         const char *listen, const char *more)
{
    struct served served = {.dir = make_dir(parent)};
    char *socket = xasprintf("unix:%s/socket", served.dir), line[160];
    const char *table = line, *const further[] = {more, NULL};
    snprintf(line, sizeof line, "name=%s sampler=uniform max_size=%zu limiter=min_size(1)",
             load->name, table_size);
    served.process = serve(strcmp(listen, "unix") == 0 ? socket : listen, served.dir, &table, 1,
                           further, &served.address);
    check(trp_channel_create(&served.channel, served.address, NULL));
    free(socket);
    return served;
}

void served_stop(struct served *served)
{
    trp_channel_destroy(served->channel);
    stop(&served->process, SIGTERM);
    remove_dir(served->dir);
    free(served->address);
}

/* ---- work ------------------------------------------------------------------------------------ */

void make_frames(void)
{
    trp_rng rng;
    trp_rng_init(&rng, 1, 1);
    for (size_t i = 0; i < FRAMES; i++) {
        frames[i] = xmalloc(1 << 15);
        for (size_t at = 0; at < 1 << 15; at += 8) {
            uint64_t bits = trp_rng_u64(&rng);
            memcpy(frames[i] + at, &bits, 8);
        }
    }
}

void free_frames(void)
{
    for (size_t i = 0; i < FRAMES; i++)
        free(frames[i]);
}

void segment_begin(struct segments *segments, pid_t server)
{
    segments->server = server;
    segments->own_us = own_cpu_us();
    segments->their_us = server ? cpu_us(server) : 0;
    segments->begin_ns = now();
}

void segment_end(struct segments *segments, double items)
{
    segments_add(segments,
                 (struct measured){
                     .per_s = rate(items, segments->begin_ns),
                     .client_us = (own_cpu_us() - segments->own_us) / items,
                     .server_us = segments->server
                                      ? (cpu_us(segments->server) - segments->their_us) / items
                                      : 0,
                 });
}

void segments_add(struct segments *segments, struct measured measured)
{
    if (segments->count == SEGMENTS_MAX)
        fail("more segments than expected");
    segments->per_s[segments->count] = measured.per_s;
    segments->client_us[segments->count] = measured.client_us;
    segments->server_us[segments->count] = measured.server_us;
    segments->count++;
}

struct measured segments_median(struct segments *segments)
{
    size_t count = (size_t)segments->count;
    return (struct measured){median(segments->per_s, count), median(segments->client_us, count),
                             median(segments->server_us, count)};
}

struct worker {
    const struct load *load;
    const char *table;
    trp_channel *channel;
    int64_t until_ns; /* 0: until `items` */
    uint64_t items;   /* confirmed in the end */
    struct thread thread;
};

static void insert(void *arg)
{
    struct worker *worker = arg;
    const struct load *load = worker->load;
    const void *columns[COLUMNS_MAX];
    trp_item_column item[COLUMNS_MAX];
    trp_writer *writer;
    check(trp_writer_create(&writer, worker->channel,
                            &(trp_writer_options){.columns = load->columns,
                                                  .column_count = load->column_count,
                                                  .batch_items = load->batch_items,
                                                  .max_in_flight = 8 * load->batch_items}));
    for (size_t c = 0; c < load->column_count; c++)
        item[c] = (trp_item_column){.column = (uint32_t)c, .length = 1, .squeeze = true};
    uint64_t count = 0;
    while (worker->until_ns ? count % 64 != 0 || now() < worker->until_ns : count < worker->items) {
        for (size_t c = 0; c < load->column_count; c++)
            columns[c] = frames[count % FRAMES] + 64 * c;
        check(trp_writer_append(writer, columns));
        check(trp_writer_create_item(writer, worker->table, 1, item, load->column_count, 60000,
                                     NULL));
        count++;
    }
    check(trp_writer_flush(writer, 0, 60000));
    worker->items = trp_writer_confirmed(writer);
    trp_writer_destroy(writer);
}

void insert_items(trp_channel *channel, const char *table, const struct load *load, uint64_t items)
{
    insert(&(struct worker){.load = load, .table = table, .channel = channel, .items = items});
}

/* One segment: all writers, each on a connection of its own. */
static double insert_segment(const struct load *load, trp_channel **channels, uint32_t writers)
{
    struct worker workers[WRITERS_MAX];
    double items = 0;
    for (uint32_t i = 0; i < writers; i++) {
        workers[i] = (struct worker){.load = load,
                                     .table = load->name,
                                     .channel = channels[i],
                                     .until_ns = now() + SEGMENT_NS};
        check(thread_start(&workers[i].thread, "writer", insert, &workers[i]));
    }
    for (uint32_t i = 0; i < writers; i++) {
        thread_stop(&workers[i].thread);
        items += (double)workers[i].items;
    }
    return items;
}

struct measured measure_inserts(const struct load *load, const char *address, pid_t server,
                                uint32_t writers)
{
    struct segments segments = {.count = 0};
    trp_channel *channels[WRITERS_MAX];
    for (uint32_t i = 0; i < writers; i++)
        check(trp_channel_create(&channels[i], address, NULL));
    insert_segment(load, channels, writers); /* warms up */
    while (segments.count < SEGMENTS) {
        segment_begin(&segments, server);
        segment_end(&segments, insert_segment(load, channels, writers));
    }
    for (uint32_t i = 0; i < writers; i++)
        trp_channel_destroy(channels[i]);
    return segments_median(&segments);
}

struct measured measure_samples(const struct load *load, trp_channel *channel, pid_t server,
                                uint32_t prefetch)
{
    struct segments segments = {.count = 0};
    trp_sampler *sampler;
    trp_batch batch;
    check(trp_sampler_create(&sampler, channel,
                             &(trp_sampler_options){.table = load->name,
                                                    .columns = load->columns,
                                                    .column_count = load->column_count,
                                                    .batch_size = BATCH,
                                                    .prefetch = prefetch,
                                                    .limiter_timeout_ms = -1}));
    for (size_t i = 0; i < 4 * load->table_size; i += BATCH) /* pages are mapped, caches warm */
        check(trp_sampler_next(sampler, &batch, 30000));
    while (segments.count < SEGMENTS) {
        double count = 0;
        segment_begin(&segments, server);
        for (; now() < segments.begin_ns + SEGMENT_NS; count += BATCH)
            check(trp_sampler_next(sampler, &batch, 30000));
        segment_end(&segments, count);
    }
    trp_sampler_destroy(sampler);
    return segments_median(&segments);
}

/* ---- rows ------------------------------------------------------------------------------------ */

void print_row(const char *name, const char *unit, double measured, double ceiling,
               const char *ceiling_name, double peer, const char *peer_name)
{
    printf("%s\t%.4g\t%s\t%.4g\t%s", name, measured, unit, ceiling, ceiling_name);
    if (peer > 0)
        printf("\t%.4g\t%s", peer, peer_name);
    printf("\n");
    fflush(stdout);
}

void print_cpu(const char *name, const struct measured *measured, double ceiling_us,
               const char *ceiling_name, const struct measured *peer)
{
    char line[160];
    bool apart = measured->server_us > 0;
    snprintf(line, sizeof line, "  %s, %s", apart ? "client" : "client and server", name);
    print_row(line, "us/item", measured->client_us, 0, "",
              peer->client_us + (apart ? 0 : peer->server_us), "dm-reverb");
    if (!apart)
        return;
    snprintf(line, sizeof line, "  server, %s", name);
    print_row(line, "us/item", measured->server_us, ceiling_us, ceiling_name, peer->server_us,
              "dm-reverb");
}
