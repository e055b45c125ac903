/* Inserts through real sockets: `troupe replay serve` in a process of its own, writers here; tables
 * that are full and trim one item for each that comes, every item confirmed; and dm-reverb's own
 * clients on our server, in turns with its own. Figures are medians of five seconds; those of
 * dm-reverb's clients of eight halves of one, of twelve where stores grow. (Samples:
 * bench_samples.)
 *
 *   bench_replay [--dir PATH] [--peer DIR]     PATH: where the store goes (default /dev/shm)
 *                                              DIR/reverb/bin/python: dm-reverb 0.14
 *
 * Ceilings: an insert's is LMDB called directly (the same bytes appended, the oldest trimmed, 256
 * items a transaction), for large items one after the other with a raw gRPC stream of the same
 * bytes, as one thread has to do both.
 *
 * Prints: case, measured, unit, ceiling, its name[, peer, its name]. */
#include <troupe/replay.h>
#include <troupe/sampler.h>

#include <lmdb.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "median.h"
#include "raw_load.h"
#include "replay_load.h"
#include "reverb_peer.h"
#include "scratch.h"

static const int64_t LMDB_NS = 500000000;

enum { GROW_ITEMS = 40000 };

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
    check_lmdb(mdb_env_set_mapsize(store->env, (size_t)4 << 30));
    check_lmdb(mdb_env_open(store->env, dir, MDB_WRITEMAP | MDB_NOSYNC | MDB_NOMEMINIT, 0600));
    check_lmdb(mdb_txn_begin(store->env, NULL, 0, &txn));
    check_lmdb(mdb_dbi_open(txn, "chunks", MDB_CREATE | MDB_INTEGERKEY, &store->chunks));
    check_lmdb(mdb_dbi_open(txn, "items", MDB_CREATE | MDB_INTEGERKEY, &store->items));
    check_lmdb(mdb_txn_commit(txn));
}

static void raw_create(struct raw_store *store, const struct load *load, const char *dir)
{
    size_t chunk = load->wire_bytes;
    *store = (struct raw_store){.piece_count = (chunk + PIECE - 1) / PIECE};
    store->last_piece = chunk - (store->piece_count - 1) * PIECE;
    raw_open(store, dir);
}

/* Items a second: the file growing by `grow` items, or, with 0, the table full. */
static double raw_inserts(const struct load *load, const char *parent, uint64_t grow)
{
    char *dir = make_dir(parent);
    struct raw_store store;
    double rates[SEGMENTS], result;
    raw_create(&store, load, dir);
    int64_t begin = now();
    while (grow && store.next < grow)
        raw_group(&store, grow);
    result = rate((double)store.next, begin);
    while (!grow && store.next < load->table_size + load->table_size / 4)
        raw_group(&store, load->table_size);
    for (int segment = 0; segment < SEGMENTS && !grow; segment++) {
        uint64_t before = store.next;
        for (begin = now(); now() < begin + LMDB_NS;)
            raw_group(&store, load->table_size);
        rates[segment] = rate((double)(store.next - before), begin);
    }
    if (!grow)
        result = median(rates, SEGMENTS);
    mdb_env_close(store.env);
    remove_dir(dir);
    return result;
}

/* ---- inserts --------------------------------------------------------------------------------- */

struct bench {
    const char *parent, *place;
    struct raw_server raw;
    struct peer peer;
};

static double one_after_the_other(double a, double b)
{
    return 1 / (1 / a + 1 / b);
}

static void bench_inserts(struct bench *bench, const struct load *load)
{
    static const uint32_t writers[] = {1, 4, 16};
    struct measured peer = fastest(&bench->peer, "insert", load->name);
    double ceiling = raw_inserts(load, bench->parent, 0);
    const char *ceiling_name = "LMDB append + trim";
    char name[128];
    if (load->wire_bytes > PIECE) {
        ceiling = one_after_the_other(ceiling, raw_samples(&bench->raw, load).per_s);
        ceiling_name = "raw stream, then LMDB";
    }
    struct served served = serve_load(load, load->table_size, bench->parent, "127.0.0.1:0", NULL);
    insert_items(served.channel, load->name, load, load->table_size + load->table_size / 4);
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        struct measured measured =
            measure_inserts(load, served.address, served.process.pid, writers[i]);
        snprintf(name, sizeof name, "insert %s, %u writer%s, %s", load->name, writers[i],
                 writers[i] > 1 ? "s" : "", bench->place);
        print_row(name, "items/s", measured.per_s, ceiling, ceiling_name, peer.per_s, "dm-reverb");
        print_cpu(name, &measured, 0, "", &peer);
    }
    served_stop(&served);
}

/* A new store, so that every page is a new one. */
static void bench_growing(struct bench *bench, const struct load *load)
{
    struct measured peer = fastest(&bench->peer, "grow", load->name);
    double rates[SEGMENTS];
    char name[128];
    double ceiling = one_after_the_other(raw_inserts(load, bench->parent, GROW_ITEMS),
                                         raw_samples(&bench->raw, load).per_s);
    for (int i = 0; i < SEGMENTS; i++) {
        struct served served = serve_load(load, GROW_ITEMS, bench->parent, "127.0.0.1:0", NULL);
        int64_t begin = now();
        insert_items(served.channel, load->name, load, GROW_ITEMS);
        rates[i] = rate(GROW_ITEMS, begin);
        served_stop(&served);
    }
    snprintf(name, sizeof name, "insert %s, 1 writer, file growing, %s", load->name, bench->place);
    print_row(name, "items/s", median(rates, SEGMENTS), ceiling, "raw stream, then LMDB",
              peer.per_s, "dm-reverb");
}

/* ---- samples per insert ---------------------------------------------------------------------- */

enum { SPI = 8, SPI_WRITERS = 4, SPI_SAMPLERS = 2, SPI_MIN = 100, SPI_BUFFER = 400 };

struct drainer {
    trp_channel *channel;
    struct thread thread;
    uint64_t drawn;
};

/* Until the limiter holds it back for good. */
static void drain(void *arg)
{
    struct drainer *drainer = arg;
    const struct load *load = &loads[0];
    trp_sampler *sampler;
    trp_batch batch;
    check(trp_sampler_create(&sampler, drainer->channel,
                             &(trp_sampler_options){.table = load->name,
                                                    .columns = load->columns,
                                                    .column_count = load->column_count,
                                                    .batch_size = 64,
                                                    .prefetch = 2,
                                                    .limiter_timeout_ms = -1}));
    while (trp_sampler_next(sampler, &batch, 1500) == TRP_OK)
        drainer->drawn += batch.rows;
    trp_sampler_destroy(sampler);
}

/* Writers and samplers as fast as they can; then writers stop and samplers take what is left. */
static void bench_ratio(const struct bench *bench)
{
    const struct load *load = &loads[0];
    char *dir = make_dir(bench->parent), line[160], *address;
    const char *table = line;
    struct drainer drainers[SPI_SAMPLERS];
    trp_table_info info;
    size_t count;
    snprintf(line, sizeof line, "name=%s max_size=100000 limiter=samples_per_insert(%d,%d,%d)",
             load->name, SPI, SPI_MIN, SPI_BUFFER);
    struct process server = serve("127.0.0.1:0", dir, &table, 1, NULL, &address);
    for (int i = 0; i < SPI_SAMPLERS; i++) {
        drainers[i] = (struct drainer){.drawn = 0};
        check(trp_channel_create(&drainers[i].channel, address, NULL));
        check(thread_start(&drainers[i].thread, "sampler", drain, &drainers[i]));
    }
    struct measured inserts = measure_inserts(load, address, server.pid, SPI_WRITERS);
    for (int i = 0; i < SPI_SAMPLERS; i++)
        thread_stop(&drainers[i].thread);
    check(trp_replay_info(drainers[0].channel, &info, 1, &count, 0));
    for (int i = 0; i < SPI_SAMPLERS; i++)
        trp_channel_destroy(drainers[i].channel);
    double wanted = SPI * ((double)info.inserts - SPI_MIN);
    double allowed = SPI * (double)info.inserts - info.min_diff - (double)info.samples;
    print_row("samples_per_insert(8), 4 writers + 2 samplers: inserts", "items/s", inserts.per_s, 0,
              "", 0, "");
    print_row("  samples / (inserts - min_size), off by", "%",
              100 * fabs((double)info.samples - wanted) / wanted, 0, "", 0, "");
    print_row("  samples that the limiter still allows when all wait", "items", allowed, 0, "", 0,
              "");
    stop(&server, SIGTERM);
    remove_dir(dir);
    free(address);
}

/* ---- our server under dm-reverb's clients ---------------------------------------------------- */

static const char *work_name(const struct way *way)
{
    return strcmp(way->what, "grow") == 0 ? "insert, store growing from empty" : way->what;
}

static void print_ways(struct bench *bench)
{
    char name[160];
    double one_us = 0, many_us = 0;
    if (bench->peer.count > 0) { /* their messages have one item, ours many */
        one_us = raw_stream(&bench->raw, loads[1].wire_bytes, 1).server_us;
        many_us = raw_samples(&bench->raw, &loads[1]).client_us;
    }
    for (size_t i = 0; i < bench->peer.count; i++) {
        struct way *way = &bench->peer.ways[i];
        struct measured ours = segments_median(&way->ours), theirs = segments_median(&way->theirs);
        double raw_us = way->writers > 0 ? one_us : many_us;
        snprintf(name, sizeof name, "dm-reverb's %s on our server, %s %s", way->name,
                 work_name(way), way->size);
        if (way->writers > 0)
            snprintf(name + strlen(name), sizeof name - strlen(name), ", %u writer%s", way->writers,
                     way->writers > 1 ? "s" : "");
        if (strcmp(way->size, loads[1].name) != 0)
            raw_us = 0;
        print_row(name, "items/s", ours.per_s, 0, "", theirs.per_s, "dm-reverb's server");
        print_cpu(name, &ours, raw_us, "raw gRPC, same size", &theirs);
    }
}

/* Both servers are new and empty. */
static void run_round(struct bench *bench, const char *peer_dir, const char *cases)
{
    enum { GROWING = LOADS, TABLES };
    char *dir = make_dir(bench->parent), lines[TABLES][160], *address;
    const char *tables[TABLES];
    for (size_t i = 0; i < LOADS; i++)
        snprintf(lines[i], sizeof lines[i], "name=%s max_size=%zu", loads[i].name,
                 loads[i].table_size);
    snprintf(lines[GROWING], sizeof lines[GROWING], "name=growing max_size=100000000");
    for (size_t i = 0; i < TABLES; i++)
        tables[i] = lines[i];
    struct process server = serve("127.0.0.1:0", dir, tables, TABLES, NULL, &address);
    run_peer(&bench->peer, peer_dir, cases, address, server.pid);
    stop(&server, SIGTERM);
    remove_dir(dir);
    free(address);
}

static void run_peers(struct bench *bench, const char *peer_dir)
{
    enum { ROUNDS = 3 };
    for (int i = 0; i < ROUNDS; i++)
        run_round(bench, peer_dir, "growing");
    run_round(bench, peer_dir, "full");
}

int main(int argc, char **argv)
{
    struct bench bench = {.parent = "/dev/shm"};
    const char *peer_dir = NULL;
    raw_main(argc, argv);
    dir_and_peer(argc, argv, &bench.parent, &peer_dir);
    bench.place = on_tmpfs(bench.parent) ? "tmpfs" : "disk";
    bench.raw = serve_raw();
    make_frames();
    if (peer_dir)
        run_peers(&bench, peer_dir);
    for (size_t i = 0; i < LOADS; i++)
        bench_inserts(&bench, &loads[i]);
    bench_growing(&bench, &loads[1]);
    bench_ratio(&bench);
    print_ways(&bench);
    stop(&bench.raw.process, SIGKILL);
    free_frames();
    return 0;
}
