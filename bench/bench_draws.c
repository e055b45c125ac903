/* Prioritized selection at a million items, through the selector interface: what a draw and an
 * update cost, next to loops that do no more than touch the same levels of a tree in memory, a
 * dependent load per level for a draw, a read and a write per level for an update. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "replay/selector.h"
#include "replay/table.h"

enum {
    ITEMS = 1000 * 1000,
    ROUNDS = 200 * 1000, /* short, so that the best of them had the processor for itself */
    REPEATS = 40,
    LEVELS = 5,
    FAN_OUT = 16,
};

/* Best of REPEATS, in nanoseconds a round; the first ones warm up. */
static double best_ns(void (*run)(void *arg), void *arg)
{
    double best = 1e300;
    for (int i = 0; i < REPEATS; i++) {
        int64_t start = clock_now_ns(&clock_monotonic);
        run(arg);
        double ns = (double)(clock_now_ns(&clock_monotonic) - start) / ROUNDS;
        best = ns < best ? ns : best;
    }
    return best;
}

static void print_row(const char *name, double measured, double ceiling, const char *ceiling_name)
{
    printf("%s\t%.1f\tns\t%.1f\t%s\n", name, measured, ceiling, ceiling_name);
    fflush(stdout);
}

/* ---- bare loops -------------------------------------------------------------------------- */

struct bare {
    double *levels[LEVELS];
    trp_rng rng;
    double sink;
};

static void bare_setup(struct bare *bare)
{
    size_t size = 1 << 20;
    for (int level = 0; level < LEVELS; level++, size /= FAN_OUT) {
        bare->levels[level] = xaligned(64, size * sizeof(double));
        for (size_t i = 0; i < size; i++)
            bare->levels[level][i] = 0;
    }
    trp_rng_init(&bare->rng, 1, 0);
}

static void bare_cleanup(struct bare *bare)
{
    for (int level = 0; level < LEVELS; level++)
        free(bare->levels[level]);
}

static void bare_draws(void *arg)
{
    struct bare *bare = arg;
    for (int i = 0; i < ROUNDS; i++) {
        size_t slot = trp_rng_below(&bare->rng, ITEMS);
        double value = 0;
        for (int level = LEVELS; level-- > 0;)
            value = bare->levels[level][(slot >> 4 * level) + (size_t)value];
        bare->sink += value;
    }
}

static void bare_updates(void *arg)
{
    struct bare *bare = arg;
    for (int i = 0; i < ROUNDS; i++) {
        size_t slot = trp_rng_below(&bare->rng, ITEMS);
        for (int level = 0; level < LEVELS; level++)
            bare->levels[level][slot >> 4 * level] += 0.0;
    }
}

/* ---- the selector ------------------------------------------------------------------------ */

struct update {
    uint32_t slot;
    double priority;
};

struct bench {
    struct selector *selector;
    struct update *updates; /* ROUNDS, drawn beforehand */
    trp_rng rng;
    double sink;
};

static void bench_draws(void *arg)
{
    struct bench *bench = arg;
    for (int i = 0; i < ROUNDS; i++) {
        double probability;
        bench->sink += selector_pick(bench->selector, &bench->rng, &probability) * probability;
    }
}

static void bench_updates(void *arg)
{
    struct bench *bench = arg;
    for (int i = 0; i < ROUNDS; i++)
        selector_update(bench->selector, bench->updates[i].slot, bench->updates[i].priority);
}

static void bench_selector(trp_selector kind, const char *draw_name, const char *update_name,
                           const double bare_ns[2])
{
    struct bench bench = {.selector = selector_create(kind),
                          .updates = xmalloc(ROUNDS * sizeof(struct update))};
    trp_rng_init(&bench.rng, 2, 0);
    for (int i = 0; i < ROUNDS; i++) {
        bench.updates[i].slot = (uint32_t)trp_rng_below(&bench.rng, ITEMS);
        bench.updates[i].priority = trp_rng_double(&bench.rng);
    }
    for (uint32_t slot = 0; slot < ITEMS; slot++)
        selector_insert(bench.selector, slot, trp_rng_double(&bench.rng));
    print_row(draw_name, best_ns(bench_draws, &bench), bare_ns[0], "a dependent load a level");
    print_row(update_name, best_ns(bench_updates, &bench), bare_ns[1],
              "a read and a write a level");
    selector_destroy(bench.selector);
    free(bench.updates);
}

int main(void)
{
    struct bare bare = {.sink = 0};
    bare_setup(&bare);
    double bare_ns[2] = {best_ns(bare_draws, &bare), best_ns(bare_updates, &bare)};
    bare_cleanup(&bare);

    bench_selector((trp_selector){TRP_PRIORITIZED, 1}, "prioritized(1) draw, 1 M items",
                   "prioritized(1) update, 1 M items", bare_ns);
    bench_selector((trp_selector){TRP_PRIORITIZED, 0.6}, "prioritized(0.6) draw, 1 M items",
                   "prioritized(0.6) update, 1 M items", bare_ns);
    return 0;
}
