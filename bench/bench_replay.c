/* Inserts and samples through real sockets: `troupe replay serve` in a process of its own, writers
 * and a sampler here, tables that are full and trim one item for each that comes, every item
 * confirmed.
 *
 *   bench_replay [--dir PATH] [--peer DIR]     PATH: where the store goes (default /dev/shm)
 *                                              DIR/reverb/bin/python: dm-reverb 0.14
 *
 * The ceiling of an insert is LMDB called directly: the same bytes appended, the oldest trimmed,
 * 256 items a transaction. The ceiling of a sample is a gRPC stream of messages of the same size
 * that nobody looks into.
 *
 * Prints: case, measured, unit, ceiling, its name[, peer, its name]. */
#include <troupe/rng.h>
#include <troupe/sampler.h>
#include <troupe/writer.h>

#include <lmdb.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "raw_grpc.h"

extern char **environ;

enum {
    TMPFS = 0x01021994,
    SEGMENTS = 3, /* the best counts: other programs take the processor, too */
    COLUMNS_MAX = 6,
    FRAMES = 16,
    WRITERS_MAX = 4,
    BATCH = 256,
};

static const int64_t SEGMENT_NS = 1000000000;

/* What a step is; an item is one step. */
struct load {
    const char *name; /* also the table's */
    size_t column_count;
    trp_tensor_spec columns[COLUMNS_MAX];
    size_t table_size;
    uint32_t batch_items; /* of a writer; 0: its default */
    size_t wire_bytes;    /* of one sample in a response, about */
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

enum { LOADS = sizeof loads / sizeof *loads };

static void fail(const char *what)
{
    fprintf(stderr, "bench_replay: %s\n", what);
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

static double rate(double count, int64_t since)
{
    return count / ((double)(now() - since) * 1e-9);
}

static double best_of(double a, double b)
{
    return a > b ? a : b;
}

/* ---- processes ------------------------------------------------------------------------------- */

struct process {
    pid_t pid;
    FILE *out;
};

static struct process start(char *const *arguments)
{
    struct process process;
    posix_spawn_file_actions_t actions;
    int pipes[2];
    if (pipe(pipes) != 0)
        fail("no pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, pipes[0]);
    if (posix_spawn(&process.pid, arguments[0], &actions, NULL, arguments, environ) != 0)
        fail(arguments[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    process.out = fdopen(pipes[0], "r");
    return process;
}

static void stop(struct process *process, int number)
{
    kill(process->pid, number);
    waitpid(process->pid, NULL, 0);
    fclose(process->out);
}

/* Processor time that a process has used, in microseconds. */
static double cpu_us(pid_t pid)
{
    char path[64];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    int found = fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                       &user, &system);
    fclose(file);
    return found == 2 ? (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK) : 0;
}

static void beside_this_program(char *path, size_t size, const char *name)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length < 0)
        fail("/proc/self/exe");
    path[length] = 0;
    char *slash = strrchr(path, '/');
    snprintf(slash + 1, size - (size_t)(slash + 1 - path), "%s", name);
}

/* `troupe replay serve` with a full-size table for each load; its address is the caller's to free.
 */
static struct process serve(const char *dir, char **address)
{
    char program[512], line[256], tables[LOADS][128];
    char *arguments[16] = {program,       "replay", "serve",    "--listen",
                           "127.0.0.1:0", "--dir",  (char *)dir};
    size_t count = 7;
    beside_this_program(program, sizeof program, "troupe");
    for (size_t i = 0; i < LOADS; i++) {
        snprintf(tables[i], sizeof tables[i],
                 "name=%s sampler=uniform max_size=%zu limiter=min_size(1)", loads[i].name,
                 loads[i].table_size);
        arguments[count++] = "--table";
        arguments[count++] = tables[i];
    }
    struct process process = start(arguments);
    if (!fgets(line, sizeof line, process.out) || strncmp(line, "listening on ", 13) != 0)
        fail("troupe replay serve did not start");
    line[strcspn(line, "\n")] = 0;
    *address = xstrdup(line + 13);
    return process;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint8_t *frames[FRAMES]; /* incompressible */

static void make_frames(void)
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

struct worker {
    const struct load *load;
    const char *address;
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
    trp_channel *channel;
    trp_writer *writer;
    check(trp_channel_create(&channel, worker->address, NULL));
    check(trp_writer_create(&writer, channel,
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
        check(trp_writer_create_item(writer, load->name, 1, item, load->column_count, 30000, NULL));
        count++;
    }
    check(trp_writer_flush(writer, 0, 30000));
    worker->items = trp_writer_confirmed(writer);
    trp_writer_destroy(writer);
    trp_channel_destroy(channel);
}

static double own_cpu_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

struct measured {
    double per_s, client_us, server_us;
};

static void keep_best(struct measured *best, double per_s, double count, double client_us,
                      double server_us)
{
    if (per_s > best->per_s)
        *best = (struct measured){per_s, client_us / count, server_us / count};
}

/* The table is full already. */
static struct measured measure_inserts(const struct load *load, const char *address, pid_t server,
                                       uint32_t writers)
{
    struct measured best = {0};
    for (int segment = 0; segment < SEGMENTS; segment++) {
        struct worker workers[WRITERS_MAX];
        double own = own_cpu_us(), theirs = cpu_us(server);
        int64_t begin = now();
        for (uint32_t i = 0; i < writers; i++) {
            workers[i] =
                (struct worker){.load = load, .address = address, .until_ns = begin + SEGMENT_NS};
            check(thread_start(&workers[i].thread, "writer", insert, &workers[i]));
        }
        uint64_t items = 0;
        for (uint32_t i = 0; i < writers; i++) {
            thread_stop(&workers[i].thread);
            items += workers[i].items;
        }
        double per_s = rate((double)items, begin);
        keep_best(&best, per_s, (double)items, own_cpu_us() - own, cpu_us(server) - theirs);
    }
    return best;
}

static void fill_table(const struct load *load, const char *address)
{
    struct worker worker = {
        .load = load, .address = address, .items = load->table_size + load->table_size / 4};
    insert(&worker);
}

static struct measured measure_samples(const struct load *load, const char *address, pid_t server)
{
    struct measured best = {0};
    trp_channel *channel;
    trp_sampler *sampler;
    trp_batch batch;
    check(trp_channel_create(&channel, address, NULL));
    check(trp_sampler_create(&sampler, channel,
                             &(trp_sampler_options){.table = load->name,
                                                    .columns = load->columns,
                                                    .column_count = load->column_count,
                                                    .batch_size = BATCH,
                                                    .prefetch = 2,
                                                    .limiter_timeout_ms = -1}));
    check(trp_sampler_next(sampler, &batch, 30000));
    for (int segment = 0; segment < SEGMENTS; segment++) {
        double own = own_cpu_us(), theirs = cpu_us(server), count = 0;
        int64_t begin = now();
        for (; now() < begin + SEGMENT_NS; count += BATCH)
            check(trp_sampler_next(sampler, &batch, 30000));
        keep_best(&best, rate(count, begin), count, own_cpu_us() - own, cpu_us(server) - theirs);
    }
    trp_sampler_destroy(sampler);
    trp_channel_destroy(channel);
    return best;
}

/* ---- ceilings -------------------------------------------------------------------------------- */

static void check_lmdb(int rc)
{
    if (rc != 0)
        fail(mdb_strerror(rc));
}

/* LMDB's pieces of one page, as the store writes them. */
enum { PIECE = 4080, GROUP = 256, RECORD = 64 };

static void put(MDB_txn *txn, MDB_dbi dbi, uint64_t key, size_t size)
{
    MDB_val name = {sizeof key, &key}, value = {size, NULL};
    check_lmdb(mdb_put(txn, dbi, &name, &value, MDB_APPEND | MDB_RESERVE));
    memcpy(value.mv_data, frames[key % FRAMES], size);
}

static void drop(MDB_txn *txn, MDB_dbi dbi, uint64_t key)
{
    MDB_val name = {sizeof key, &key};
    check_lmdb(mdb_del(txn, dbi, &name, NULL));
}

struct raw_store {
    MDB_env *env;
    MDB_dbi chunks, items;
    uint64_t next, piece_count;
    size_t last_piece;
};

static void raw_group(struct raw_store *store, uint64_t live)
{
    MDB_txn *txn;
    check_lmdb(mdb_txn_begin(store->env, NULL, 0, &txn));
    for (int i = 0; i < GROUP; i++, store->next++) {
        for (uint64_t piece = 0; piece < store->piece_count; piece++)
            put(txn, store->chunks, store->next * store->piece_count + piece,
                piece + 1 < store->piece_count ? PIECE : store->last_piece);
        put(txn, store->items, store->next, RECORD);
        if (store->next < live)
            continue;
        uint64_t oldest = store->next - live;
        for (uint64_t piece = 0; piece < store->piece_count; piece++)
            drop(txn, store->chunks, oldest * store->piece_count + piece);
        drop(txn, store->items, oldest);
    }
    check_lmdb(mdb_txn_commit(txn));
}

static void raw_open(struct raw_store *store, const char *dir)
{
    MDB_txn *txn;
    check_lmdb(mdb_env_create(&store->env));
    check_lmdb(mdb_env_set_maxdbs(store->env, 2));
    check_lmdb(mdb_env_set_mapsize(store->env, (size_t)2 << 30));
    check_lmdb(mdb_env_open(store->env, dir, MDB_WRITEMAP | MDB_NOSYNC | MDB_NOMEMINIT, 0600));
    check_lmdb(mdb_txn_begin(store->env, NULL, 0, &txn));
    check_lmdb(mdb_dbi_open(txn, "chunks", MDB_CREATE | MDB_INTEGERKEY, &store->chunks));
    check_lmdb(mdb_dbi_open(txn, "items", MDB_CREATE | MDB_INTEGERKEY, &store->items));
    check_lmdb(mdb_txn_commit(txn));
}

static char *make_dir(const char *parent)
{
    char *dir = xasprintf("%s/bench_replay-XXXXXX", parent);
    if (!mkdtemp(dir))
        fail(parent);
    return dir;
}

static void remove_dir(char *dir)
{
    char *command = xasprintf("rm -rf '%s'", dir);
    if (system(command) != 0)
        fail(dir);
    free(command);
    free(dir);
}

static double raw_inserts(const struct load *load, const char *parent)
{
    char *dir = make_dir(parent);
    size_t chunk = load->wire_bytes;
    struct raw_store store = {.piece_count = (chunk + PIECE - 1) / PIECE};
    store.last_piece = chunk - (store.piece_count - 1) * PIECE;
    raw_open(&store, dir);
    while (store.next < load->table_size + load->table_size / 4)
        raw_group(&store, load->table_size);
    double best = 0;
    for (int segment = 0; segment < SEGMENTS; segment++) {
        uint64_t before = store.next;
        int64_t begin = now();
        while (now() < begin + SEGMENT_NS / 2)
            raw_group(&store, load->table_size);
        best = best_of(best, rate((double)(store.next - before), begin));
    }
    mdb_env_close(store.env);
    remove_dir(dir);
    return best;
}

static double raw_samples(const struct load *load, const char *address)
{
    size_t per_message = (1 << 20) / load->wire_bytes;
    if (per_message > BATCH)
        per_message = BATCH;
    uint32_t messages = (uint32_t)((UINT64_C(400) << 20) / (per_message * load->wire_bytes));
    struct raw_client *client = raw_client_create(address);
    double best = 0;
    for (int segment = 0; segment < SEGMENTS; segment++)
        best = best_of(best, raw_sink_rate(client, per_message * load->wire_bytes, messages));
    raw_client_destroy(client);
    return best * (double)per_message;
}

/* ---- the peer -------------------------------------------------------------------------------- */

/* dm-reverb's best for each case, by its own server and clients. */
struct peer {
    double inserts[LOADS][2], samples[LOADS]; /* 1 and 4 writers */
};

static void run_peer(const char *dir, const char *source, struct peer *peer)
{
    char *python = xasprintf("%s/reverb/bin/python", dir), line[512];
    char *arguments[] = {python, (char *)source, NULL};
    struct process process = start(arguments);
    while (fgets(line, sizeof line, process.out)) {
        char what[16], size[16];
        unsigned writers = 0;
        double per_s;
        if (sscanf(line, "%15s %15s %u %lf", what, size, &writers, &per_s) != 4)
            continue;
        for (size_t i = 0; i < LOADS; i++) {
            if (strcmp(size, loads[i].name) != 0)
                continue;
            double *best =
                strcmp(what, "insert") == 0 ? &peer->inserts[i][writers == 4] : &peer->samples[i];
            *best = best_of(*best, per_s);
        }
    }
    stop(&process, SIGKILL);
    free(python);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void print_row(const char *name, const char *unit, double measured, double ceiling,
                      const char *ceiling_name, double peer, const char *peer_name)
{
    printf("%s\t%.4g\t%s\t%.4g\t%s", name, measured, unit, ceiling, ceiling_name);
    if (peer > 0)
        printf("\t%.4g\t%s", peer, peer_name);
    printf("\n");
    fflush(stdout);
}

static void print_cpu(const char *name, const struct measured *measured)
{
    char line[128];
    snprintf(line, sizeof line, "  client, %s", name);
    print_row(line, "us/item", measured->client_us, 0, "", 0, "");
    snprintf(line, sizeof line, "  server, %s", name);
    print_row(line, "us/item", measured->server_us, 0, "", 0, "");
}

static void bench_load(size_t index, const char *address, pid_t server, const char *parent,
                       const char *place, const char *raw_address, const struct peer *peer)
{
    const struct load *load = &loads[index];
    char name[128];
    double lmdb = raw_inserts(load, parent);
    fill_table(load, address);
    for (uint32_t writers = 1; writers <= WRITERS_MAX; writers += WRITERS_MAX - 1) {
        struct measured measured = measure_inserts(load, address, server, writers);
        snprintf(name, sizeof name, "insert %s, %u writer%s, %s", load->name, writers,
                 writers > 1 ? "s" : "", place);
        print_row(name, "items/s", measured.per_s, lmdb, "LMDB append + trim",
                  best_of(peer->inserts[index][0], peer->inserts[index][1]), "dm-reverb");
        print_cpu(name, &measured);
    }
    struct measured measured = measure_samples(load, address, server);
    snprintf(name, sizeof name, "sample %s, batches of %d, %s", load->name, BATCH, place);
    print_row(name, "items/s", measured.per_s, raw_samples(load, raw_address), "raw gRPC stream",
              peer->samples[index], "dm-reverb dataset");
    print_cpu(name, &measured);
}

static bool on_tmpfs(const char *path)
{
    struct statfs info;
    return statfs(path, &info) == 0 && info.f_type == TMPFS;
}

/* The ceiling's server is this program again. */
static struct process serve_raw(char *address, size_t size)
{
    char self[512];
    beside_this_program(self, sizeof self, "bench_replay");
    snprintf(address, size, "127.0.0.1:%d", 20000 + (int)(getpid() % 20000));
    return start((char *[]){self, "--raw", address, NULL});
}

int main(int argc, char **argv)
{
    const char *parent = "/dev/shm", *peer_dir = NULL;
    if (argc == 3 && strcmp(argv[1], "--raw") == 0)
        return raw_serve(argv[2]);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--dir") == 0)
            parent = argv[i + 1];
        else if (strcmp(argv[i], "--peer") == 0)
            peer_dir = argv[i + 1];
        else
            fail("usage: bench_replay [--dir PATH] [--peer DIR]");
    }
    char *address, raw_address[128];
    struct peer peer = {0};
    make_frames();
    if (peer_dir)
        run_peer(peer_dir, BENCH_SOURCE_DIR "/peers/reverb_load.py", &peer);
    struct process raw = serve_raw(raw_address, sizeof raw_address);
    char *dir = make_dir(parent);
    struct process server = serve(dir, &address);
    for (size_t i = 0; i < LOADS; i++)
        bench_load(i, address, server.pid, parent, on_tmpfs(parent) ? "tmpfs" : "disk", raw_address,
                   &peer);
    stop(&server, SIGTERM);
    stop(&raw, SIGKILL);
    remove_dir(dir);
    free(address);
    for (size_t i = 0; i < FRAMES; i++)
        free(frames[i]);
    return 0;
}
