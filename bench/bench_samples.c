/* Samples in batches of 256: from a server in this process, over a unix socket and over TCP from
 * one in a process of its own on this host, which shares its file, and over TCP from one that does
 * not. Tables are full and nobody inserts. Figures are medians of five seconds.
 *
 *   bench_samples [--dir PATH] [--peer DIR]    PATH: where the store goes (default /dev/shm)
 *                                              DIR/reverb/bin/python: dm-reverb 0.14
 *
 * Ceilings: where the file is shared, a memcpy of the same bytes, rows of a large table in random
 * order into the rows of a batch, on one thread; else a gRPC stream of messages of the same size
 * that nobody looks into.
 *
 * Prints: case, measured, unit, ceiling, its name[, peer, its name]. */
#include <troupe/replay.h>
#include <troupe/rng.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "raw_load.h"
#include "replay_load.h"
#include "reverb_peer.h"
#include "scratch.h"

enum { PREFETCH = 2 };

/* ---- the ceiling ----------------------------------------------------------------------------- */

static size_t item_bytes(const struct load *load)
{
    size_t bytes = 0;
    for (size_t c = 0; c < load->column_count; c++)
        bytes += trp_tensor_bytes(&load->columns[c]);
    return bytes;
}

/* `rows` rows; their pages are there. */
static uint8_t *make_rows(size_t rows, size_t bytes)
{
    uint8_t *all = aligned_alloc(64, (rows * bytes + 63) & ~(size_t)63);
    if (!all)
        fail("no memory");
    memset(all, 1, rows * bytes);
    return all;
}

/* As many batches as a sampler with PREFETCH has. */
static struct measured gather(const struct load *load)
{
    size_t bytes = item_bytes(load), turn = 0;
    uint8_t *table = make_rows(load->table_size, bytes);
    uint8_t *batches = make_rows((PREFETCH + 1) * BATCH, bytes);
    struct segments segments = {.count = 0};
    trp_rng rng;
    trp_rng_init(&rng, 2, 2);
    while (segments.count < SEGMENTS) {
        double count = 0;
        segment_begin(&segments, 0);
        for (; now() < segments.begin_ns + SEGMENT_NS; count += BATCH) {
            turn = (turn + 1) % (PREFETCH + 1);
            for (size_t i = 0; i < BATCH; i++)
                memcpy(batches + (turn * BATCH + i) * bytes,
                       table + trp_rng_u64(&rng) % load->table_size * bytes, bytes);
        }
        segment_end(&segments, count);
    }
    free(table);
    free(batches);
    return segments_median(&segments);
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct bench {
    const char *parent;
    struct raw_server raw;
    struct peer peer;
};

struct place {
    const char *name;
    trp_channel *channel;
    pid_t server; /* 0: this process */
    struct measured ceiling;
    const char *ceiling_name;
    double ceiling_us; /* of the server */
};

static void print_samples(struct bench *bench, const struct load *load, const struct place *place,
                          uint32_t prefetch)
{
    struct measured peer = fastest(&bench->peer, "sample", load->name);
    struct measured measured = measure_samples(load, place->channel, place->server, prefetch);
    char name[128];
    snprintf(name, sizeof name, "sample %s, batches of %d, %s%s", load->name, BATCH, place->name,
             prefetch ? "" : ", no prefetch");
    print_row(name, "items/s", measured.per_s, place->ceiling.per_s, place->ceiling_name,
              peer.per_s, "dm-reverb dataset");
    print_cpu(name, &measured, place->ceiling_us, "raw gRPC, sending", &peer);
}

/* The server in this process: no socket. */
static void bench_same_process(struct bench *bench, const struct load *load,
                               struct measured ceiling)
{
    char *dir = make_dir(bench->parent);
    trp_replay_server *server;
    trp_table_options table = {.name = load->name,
                               .max_size = (int64_t)load->table_size,
                               .limiter = trp_limiter_min_size(1)};
    check(trp_replay_server_create(
        &server, &(trp_replay_server_options){.dir = dir, .tables = &table, .table_count = 1}));
    check(trp_replay_server_start(server));
    struct place place = {.name = "same process",
                          .channel = trp_channel_create_local(trp_replay_server_rpc(server)),
                          .ceiling = ceiling,
                          .ceiling_name = "memcpy gather"};
    insert_items(place.channel, load->name, load, load->table_size);
    print_samples(bench, load, &place, PREFETCH);
    print_samples(bench, load, &place, 0);
    trp_channel_destroy(place.channel);
    trp_replay_server_destroy(server);
    remove_dir(dir);
}

static void bench_shared(struct bench *bench, const struct load *load, const char *name,
                         const char *listen, struct measured ceiling)
{
    struct served served = serve_load(load, load->table_size, bench->parent, listen, NULL);
    struct place place = {.name = name,
                          .channel = served.channel,
                          .server = served.process.pid,
                          .ceiling = ceiling,
                          .ceiling_name = "memcpy gather"};
    insert_items(served.channel, load->name, load, load->table_size);
    print_samples(bench, load, &place, PREFETCH);
    served_stop(&served);
}

static void bench_network(struct bench *bench, const struct load *load)
{
    struct measured ceiling = raw_samples(&bench->raw, load);
    struct served served =
        serve_load(load, load->table_size, bench->parent, "127.0.0.1:0", "--no-share");
    struct place place = {.name = "TCP, nothing shared",
                          .channel = served.channel,
                          .server = served.process.pid,
                          .ceiling = ceiling,
                          .ceiling_name = "raw gRPC stream",
                          .ceiling_us = ceiling.client_us};
    insert_items(served.channel, load->name, load, load->table_size);
    print_samples(bench, load, &place, PREFETCH);
    served_stop(&served);
}

int main(int argc, char **argv)
{
    struct bench bench = {.parent = "/dev/shm"};
    const char *peer_dir = NULL;
    raw_main(argc, argv);
    dir_and_peer(argc, argv, &bench.parent, &peer_dir);
    bench.raw = serve_raw();
    make_frames();
    if (peer_dir)
        run_peer(&bench.peer, peer_dir, "samples", NULL, 0);
    for (size_t i = 0; i < LOADS; i++) {
        struct measured ceiling = gather(&loads[i]);
        bench_same_process(&bench, &loads[i], ceiling);
        bench_shared(&bench, &loads[i], "unix socket", "unix", ceiling);
        bench_shared(&bench, &loads[i], "TCP", "127.0.0.1:0", ceiling);
        bench_network(&bench, &loads[i]);
    }
    stop(&bench.raw.process, SIGKILL);
    free_frames();
    return 0;
}
