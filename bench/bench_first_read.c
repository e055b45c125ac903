/* What it costs that bytes of an earlier life are compared with their sums when they are first
 * read: servers of one stopped store start by turns, with the comparison and without, and each
 * gives a part of its table, nearly every item for the first time. Without: to the server that
 * trusts, the linker (--wrap) gives a store_chunk_prefetch() that takes what it is called with for
 * compared. What is measured is the processor time of server and sampler, an item: the least of
 * the turns of each.
 *
 *   bench_first_read DIR [LOAD]      DIR: where the store goes
 *   bench_first_read --dir DIR TABLE compared|trusted shared|sent     a server
 *
 * Prints: case, measured, unit, ceiling, its name. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/replay.h>
#include <troupe/sampler.h>

#include "core/alloc.h"
#include "replay/store/store.h"
#include "replay_load.h"
#include "scratch.h"

enum {
    TURNS = 16,
    PART = 8 /* of the items are drawn: 94 in 100 for the first time */
};

static const struct load stored[] = {
    {.name = "600B",
     .column_count = 1,
     .columns = {{.name = "obs", .dtype = TRP_UINT8, .rank = 1, .shape = {600}}},
     .table_size = 600 * 1024},
    {.name = "2.8KB",
     .column_count = 1,
     .columns = {{.name = "obs", .dtype = TRP_UINT8, .rank = 1, .shape = {2800}}},
     .table_size = 300 * 1024},
    {.name = "28KB",
     .column_count = 1,
     .columns = {{.name = "obs", .dtype = TRP_UINT8, .rank = 3, .shape = {84, 84, 4}}},
     .table_size = 80 * 1024},
};

static bool trusted; /* what the server reads */

bool __real_store_chunk_prefetch(struct store *store, const struct chunk *chunk,
                                 struct fetch *fetch);
bool __wrap_store_chunk_prefetch(struct store *store, const struct chunk *chunk,
                                 struct fetch *fetch);

/* Every chunk that is drawn comes here first. */
bool __wrap_store_chunk_prefetch(struct store *store, const struct chunk *chunk,
                                 struct fetch *fetch)
{
    if (trusted)
        ((struct chunk *)chunk)->unchecked = false;
    return __real_store_chunk_prefetch(store, chunk, fetch);
}

/* ---- the server ------------------------------------------------------------------------------ */

static int serve_until_told(const char *dir, const char *table, bool share)
{
    trp_table_options *parsed;
    trp_replay_server *server;
    sigset_t signals;
    int number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* before there are threads */
    check(trp_table_options_parse(table, &parsed));
    check(trp_replay_server_create(
        &server, &(trp_replay_server_options){
                     .dir = dir, .tables = parsed, .table_count = 1, .no_share = !share}));
    trp_table_options_destroy(parsed);
    check(trp_replay_server_start(server));
    printf("%s\n", trp_server_address(trp_replay_server_rpc(server)));
    fflush(stdout);
    sigwait(&signals, &number);
    trp_replay_server_destroy(server);
    return 0;
}

struct first_server {
    struct process process;
    trp_channel *channel;
};

static struct first_server server_start(const char *dir, const struct load *load, bool share)
{
    struct first_server server;
    char program[512], line[512], *table;
    beside_this_program(program, sizeof program, "bench_first_read");
    table = xasprintf("name=%s max_size=%zu", load->name, load->table_size);
    const char *const arguments[] = {
        program, "--dir", dir, table, trusted ? "trusted" : "compared", share ? "shared" : "sent",
        NULL};
    server.process = start((char *const *)arguments);
    if (!fgets(line, sizeof line, server.process.out))
        fail("the server did not start");
    line[strcspn(line, "\n")] = 0;
    check(trp_channel_create(&server.channel, line, NULL));
    free(table);
    return server;
}

static void server_stop(struct first_server *server)
{
    trp_channel_destroy(server->channel);
    stop(&server->process, SIGTERM);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* An update waits until the server has all items in memory. */
static void wait_until_loaded(const struct load *load, trp_channel *channel)
{
    trp_priority_writer *writer;
    check(trp_priority_writer_create(&writer, channel, load->name, 1));
    check(trp_priority_writer_update(writer, &(uint64_t){1}, &(double){1}, 1, 60000));
    check(trp_priority_writer_flush(writer, 60000));
    trp_priority_writer_destroy(writer);
}

static trp_sampler *sampler_open(const struct load *load, trp_channel *channel)
{
    trp_sampler *sampler;
    trp_batch batch;
    check(trp_sampler_create(&sampler, channel,
                             &(trp_sampler_options){.table = load->name,
                                                    .columns = load->columns,
                                                    .column_count = load->column_count,
                                                    .batch_size = BATCH,
                                                    .limiter_timeout_ms = -1}));
    check(trp_sampler_next(sampler, &batch, 60000));
    return sampler;
}

static void pass(const char *dir, const struct load *load, bool share, struct segments *segments)
{
    trp_batch batch;
    struct first_server server = server_start(dir, load, share);
    wait_until_loaded(load, server.channel);
    trp_sampler *sampler = sampler_open(load, server.channel);
    size_t batches = load->table_size / PART / BATCH;
    segment_begin(segments, server.process.pid);
    for (size_t i = 0; i < batches; i++)
        check(trp_sampler_next(sampler, &batch, 60000));
    segment_end(segments, (double)(batches * BATCH));
    trp_sampler_destroy(sampler);
    server_stop(&server);
}

/* What others do on the machine comes on top. */
static double least(const double *values, int count)
{
    double found = values[0];
    for (int i = 1; i < count; i++)
        found = values[i] < found ? values[i] : found;
    return found;
}

static struct measured least_of(const struct segments *segments)
{
    return (struct measured){.client_us = least(segments->client_us, segments->count),
                             .server_us = least(segments->server_us, segments->count)};
}

static void bench_first_reads(const char *dir, const struct load *load, bool share)
{
    struct segments by[2] = {{.count = 0}, {.count = 0}}; /* compared, trusted */
    char name[128];
    for (int turn = 0; turn < TURNS; turn++) {
        trusted = turn % 2;
        pass(dir, load, share, &by[trusted]);
    }
    struct measured compared = least_of(&by[0]), unlooked = least_of(&by[1]);
    snprintf(name, sizeof name, "first read of %s after a restart, %s, processor time", load->name,
             share ? "same host" : "TCP");
    print_row(name, "us/item", compared.client_us + compared.server_us,
              unlooked.client_us + unlooked.server_us, "without sums", 0, "");
    print_row("  server", "us/item", compared.server_us, unlooked.server_us, "without sums", 0, "");
    print_row("  client", "us/item", compared.client_us, unlooked.client_us, "without sums", 0, "");
}

static void bench_load(const char *parent, const struct load *load)
{
    char *dir = make_dir(parent);
    trusted = false;
    struct first_server server = server_start(dir, load, true);
    insert_items(server.channel, load->name, load, load->table_size);
    server_stop(&server);
    bench_first_reads(dir, load, true);
    bench_first_reads(dir, load, false);
    remove_dir(dir);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--dir") == 0) {
        trusted = strcmp(argv[4], "trusted") == 0;
        return serve_until_told(argv[2], argv[3], strcmp(argv[5], "shared") == 0);
    }
    if (argc != 2 && argc != 3)
        fail("usage: bench_first_read DIR [LOAD]");
    make_frames();
    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++)
        if (argc == 2 || strcmp(argv[2], stored[i].name) == 0)
            bench_load(argv[1], &stored[i]);
    free_frames();
    return 0;
}
