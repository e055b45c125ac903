/* What durability costs: a server killed with a full store, and how long it takes until the first
 * sample comes out of it again.
 *
 *   bench_durable DIR [--full]       DIR: where the store goes; --full: 10 GB instead of 1
 *
 * Prints: case, measured, unit, ceiling, its name. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/sampler.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "median.h"
#include "replay_load.h"
#include "scratch.h"

enum { FILLERS = 2 };

struct store {
    const struct load *load;
    char *dir, *address;
    struct process server;
    uint64_t items;
};

static void store_start(struct store *store)
{
    char line[160];
    const char *table = line;
    snprintf(line, sizeof line, "name=%s max_size=%llu", store->load->name,
             (unsigned long long)store->items);
    free(store->address);
    store->server = serve("127.0.0.1:0", store->dir, &table, 1, NULL, &store->address);
}

static int64_t table_size(const struct store *store)
{
    trp_table_info info;
    trp_channel *channel;
    size_t count;
    check(trp_channel_create(&channel, store->address, NULL));
    check(trp_replay_info(channel, &info, 1, &count, 0));
    trp_channel_destroy(channel);
    return info.size;
}

/* Seconds from now until a client has one sample. */
static double first_sample(const struct store *store, int64_t since)
{
    trp_channel *channel;
    trp_sampler *sampler;
    trp_batch batch;
    check(trp_channel_create(&channel, store->address, NULL));
    check(trp_sampler_create(&sampler, channel,
                             &(trp_sampler_options){.table = store->load->name,
                                                    .columns = store->load->columns,
                                                    .column_count = store->load->column_count,
                                                    .batch_size = 1,
                                                    .limiter_timeout_ms = -1}));
    check(trp_sampler_next(sampler, &batch, 60000));
    double seconds = (double)(now() - since) * 1e-9;
    trp_sampler_destroy(sampler);
    trp_channel_destroy(channel);
    return seconds;
}

static void bench_restart(const struct load *load, const char *parent, double bytes)
{
    struct store store = {.load = load,
                          .dir = make_dir(parent),
                          .items = (uint64_t)(bytes / (double)load->wire_bytes)};
    char name[128];
    double seconds[SEGMENTS], busy[SEGMENTS];
    trp_channel *channel;
    store_start(&store);
    check(trp_channel_create(&channel, store.address, NULL));
    insert_items(channel, load->name, load, store.items);
    trp_channel_destroy(channel);
    for (int i = 0; i < SEGMENTS; i++) {
        stop(&store.server, SIGKILL);
        int64_t since = now();
        store_start(&store);
        seconds[i] = first_sample(&store, since);
        busy[i] = cpu_us(store.server.pid);
    }
    snprintf(name, sizeof name, "kill -9 with %.3g GB of %s, %.3g M items: first sample",
             bytes * 1e-9, load->name, (double)store.items * 1e-6);
    print_row(name, "s", median(seconds, SEGMENTS), 0, "", 0, "");
    print_row("  processor time of the server until then, an item", "us/item",
              median(busy, SEGMENTS) / (double)store.items, 0, "", 0, "");
    print_row("  acknowledged items that are gone", "items",
              (double)store.items - (double)table_size(&store), 0, "", 0, "");
    print_row("  resident memory of the server then, an item", "bytes/item",
              resident_bytes(store.server.pid) / (double)store.items, 0, "", 0, "");
    stop(&store.server, SIGTERM);
    remove_dir(store.dir);
    free(store.address);
}

int main(int argc, char **argv)
{
    bool full = argc == 3 && strcmp(argv[2], "--full") == 0;
    if (argc != 2 && !full)
        fail("usage: bench_durable DIR [--full]");
    make_frames();
    for (size_t i = 0; i < LOADS; i++)
        bench_restart(&loads[i], argv[1], full ? 1e10 : 1e9);
    free_frames();
    return 0;
}
