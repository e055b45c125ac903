/* Prioritized selection through a table: 256 draws, then 256 new priorities by key, as a learner
 * does, next to a bare tree of the same shape, which draws and updates 256 slots and does nothing
 * else: no keys, no items, no exponent.
 *
 *   bench_draws [--full] [--peer DIR]    --full: 10 and 100 million items, too (12 GB)
 *                                        DIR/reverb/bin/python: with cpprb
 *
 * Memory is what the process has resident for selectors, index of keys and slots, beyond the items
 * themselves. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "replay/table/table.h"

enum { BATCH = 256, ROUNDS = 400, REPEATS = 9, FAN_OUT = 16, LEVELS_MAX = 8 };

/* Best of REPEATS of ROUNDS, in microseconds a round; the first ones warm up. */
static double best_us(void (*run)(void *arg), void *arg)
{
    double best = 1e300;
    for (int i = 0; i < REPEATS; i++) {
        int64_t start = clock_now_ns(&clock_monotonic);
        for (int round = 0; round < ROUNDS; round++)
            run(arg);
        double us = (double)(clock_now_ns(&clock_monotonic) - start) / ROUNDS / 1e3;
        best = us < best ? us : best;
    }
    return best;
}

static void print_row(const char *what, uint32_t items, double measured, const char *unit,
                      double ceiling, const char *ceiling_name, double peer)
{
    printf("%s, %u M items\t%.4g\t%s\t%.4g\t%s", what, items / 1000000, measured, unit, ceiling,
           ceiling_name);
    if (peer > 0)
        printf("\t%.4g\tcpprb", peer);
    printf("\n");
    fflush(stdout);
}

static double resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* ---- a bare tree ------------------------------------------------------------------------- */

struct bare {
    double *levels[LEVELS_MAX];
    uint32_t level_count, items;
    trp_rng rng;
    double sink;
};

static double bare_sum(const double *children)
{
    double sum = 0;
    for (int i = 0; i < FAN_OUT; i++)
        sum += children[i];
    return sum;
}

static void bare_setup(struct bare *bare, uint32_t items)
{
    size_t size = items;
    *bare = (struct bare){.items = items};
    trp_rng_init(&bare->rng, 1, 0);
    do {
        size_t whole = (size + FAN_OUT - 1) / FAN_OUT * FAN_OUT;
        double *level = xaligned(FAN_OUT * sizeof(double), whole * sizeof(double));
        for (size_t i = 0; i < whole; i++)
            level[i] = i >= size ? 0
                       : bare->level_count > 0
                           ? bare_sum(bare->levels[bare->level_count - 1] + i * FAN_OUT)
                           : trp_rng_double(&bare->rng);
        bare->levels[bare->level_count++] = level;
        size = whole / FAN_OUT;
    } while (size > 1);
}

static void bare_cleanup(struct bare *bare)
{
    for (uint32_t level = 0; level < bare->level_count; level++)
        free(bare->levels[level]);
}

static uint32_t bare_draw(struct bare *bare)
{
    double target = trp_rng_double(&bare->rng) * bare_sum(bare->levels[bare->level_count - 1]);
    size_t node = 0;
    for (uint32_t level = bare->level_count; level-- > 0;) {
        const double *children = bare->levels[level] + node * FAN_OUT;
        uint32_t child = 0;
        while (child < FAN_OUT - 1 && target >= children[child])
            target -= children[child++];
        node = node * FAN_OUT + child;
    }
    return (uint32_t)node;
}

static void bare_update(struct bare *bare, uint32_t slot, double weight)
{
    bare->levels[0][slot] = weight;
    for (uint32_t level = 1; level < bare->level_count; level++) {
        slot /= FAN_OUT;
        bare->levels[level][slot] = bare_sum(bare->levels[level - 1] + (size_t)slot * FAN_OUT);
    }
}

static void bare_round(void *arg)
{
    struct bare *bare = arg;
    uint32_t slots[BATCH];
    for (int i = 0; i < BATCH; i++)
        slots[i] = bare_draw(bare);
    for (int i = 0; i < BATCH; i++)
        bare_update(bare, slots[i] < bare->items ? slots[i] : 0, trp_rng_double(&bare->rng));
}

/* ---- a table ----------------------------------------------------------------------------- */

struct bench {
    struct table *table;
    struct item *items;
    trp_rng rng;
};

static void table_round(void *arg)
{
    struct bench *bench = arg;
    uint64_t keys[BATCH];
    struct item *found[BATCH];
    struct table_sample samples[BATCH];
    table_sample_many(bench->table, BATCH, samples);
    for (int i = 0; i < BATCH; i++)
        keys[i] = samples[i].item->key;
    table_find_many(bench->table, keys, BATCH, found);
    for (int i = 0; i < BATCH; i++)
        table_update(bench->table, found[i], trp_rng_double(&bench->rng));
}

static void release_nothing(void *arg, struct item *item)
{
    (void)arg;
    (void)item;
}

static void bench_table(uint32_t items, double exponent, double bare_us, double peer_us)
{
    struct trajectory shape = {.refs = 1}; /* without chunks: of the store, nothing */
    struct bench bench = {.items = xmalloc(items * sizeof *bench.items)};
    trp_table_options options = {.name = "p",
                                 .sampler = {TRP_PRIORITIZED, exponent},
                                 .max_size = items,
                                 .limiter = trp_limiter_min_size(1)};
    char what[64];
    trp_rng_init(&bench.rng, 2, 0);
    for (uint32_t i = 0; i < items; i++)
        bench.items[i] = (struct item){.key = trp_rng_u64(&bench.rng),
                                       .priority = trp_rng_double(&bench.rng),
                                       .trajectory = &shape,
                                       .slot = SLOT_NONE};
    double before = resident_bytes();
    bench.table = table_create(&options, 1, 3);
    for (uint32_t i = 0; i < items; i++) {
        struct item *evicted;
        table_insert(bench.table, &bench.items[i], &evicted);
    }
    malloc_trim(0);
    double bytes = (resident_bytes() - before) / items;
    snprintf(what, sizeof what, "prioritized(%g) draw + update of 256", exponent);
    print_row(what, items, best_us(table_round, &bench), "us", bare_us, "a bare tree", peer_us);
    print_row("  selectors, index of keys and slots", items, bytes, "bytes/item", 0, "", 0);
    table_destroy(bench.table, release_nothing, NULL);
    free(bench.items);
}

static void bench_size(uint32_t items, double peer_us)
{
    struct bare bare;
    bare_setup(&bare, items);
    double bare_us = best_us(bare_round, &bare);
    bare_cleanup(&bare);
    bench_table(items, 1, bare_us, 0);
    bench_table(items, 0.6, bare_us, peer_us);
}

/* Microseconds that cpprb takes for the same at a million items, with exponent 0.6. */
static double run_peer(const char *dir)
{
    char *command = xasprintf("%s/reverb/bin/python %s/peers/cpprb_load.py", dir, BENCH_SOURCE_DIR);
    FILE *out = popen(command, "r");
    double us = 0;
    if (out && fscanf(out, "%lf", &us) != 1)
        fprintf(stderr, "bench_draws: %s said nothing\n", command);
    if (out)
        pclose(out);
    free(command);
    return us;
}

int main(int argc, char **argv)
{
    bool full = false;
    double peer_us = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--full") == 0)
            full = true;
        else if (strcmp(argv[i], "--peer") == 0 && i + 1 < argc)
            peer_us = run_peer(argv[++i]);
        else {
            fprintf(stderr, "usage: bench_draws [--full] [--peer DIR]\n");
            return 2;
        }
    }
    bench_size(1000 * 1000, peer_us);
    if (full) {
        bench_size(10 * 1000 * 1000, 0);
        bench_size(100 * 1000 * 1000, 0);
    }
    return 0;
}
