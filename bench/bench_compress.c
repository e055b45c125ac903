/* Compressors of gradients, next to memcpy: how fast a rank compresses 6.8 MB and makes the sum of
 * them, with nobody else in its group, and on which links that pays. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/collective.h>
#include <troupe/rng.h>
#include "bench/median.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "learner/compress/compress.h"

enum {
    NUMBERS = 1693362, /* of a Nature CNN with 18 actions */
    ROWS = 3136,       /* its largest matrix, which the others stand in for: [540][3136] */
    TURNS = 15,
};

static void stop_if(bool failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "bench_compress: %s\n", what);
    exit(1);
}

static trp_status wait_alone(void *group, uint64_t ticket)
{
    return trp_collective_wait(group, ticket);
}

static double now_s(void)
{
    return (double)clock_now_ns(&clock_monotonic) * 1e-9;
}

static double time_copy(float *to, const float *from)
{
    double seconds[TURNS];
    for (size_t i = 0; i < TURNS; i++) {
        double since = now_s();
        memcpy(to, from, NUMBERS * sizeof *to);
        seconds[i] = now_s() - since;
    }
    return median(seconds, TURNS);
}

/* A sum of one rank: to code, to decode what is kept, and the same as an owner of everything. */
static double time_sum(struct compressor *compressor, float *grads, const float *gradient)
{
    double seconds[TURNS];
    trp_collective *group;
    stop_if(trp_collective_local_create(&group, 1, &(trp_collective_options){0}) != TRP_OK,
            trp_last_error());
    const struct compress_wire wire = {group, wait_alone, group};
    for (size_t i = 0; i < TURNS; i++) {
        memcpy(grads, gradient, NUMBERS * sizeof *grads);
        double since = now_s();
        stop_if(compressor_sum(compressor, &wire, grads, 1) != TRP_OK, trp_last_error());
        seconds[i] = now_s() - since;
    }
    trp_collective_destroy(group);
    return median(seconds, TURNS);
}

/* What a rank of two sends. */
static double sent_bytes(const struct compress_options *options, const trp_net_tensor *tensor)
{
    struct compressor *compressor = compressor_create(options, NUMBERS, tensor, 1);
    compressor_join(compressor, 0, 2, 0);
    double bytes = (double)compressor_bytes(compressor) / 2;
    compressor_destroy(compressor);
    return bytes;
}

int main(void)
{
    static const struct compress_options rows[] = {
        {.kind = COMPRESS_BF16},    {.kind = COMPRESS_F16},
        {.kind = COMPRESS_TOP_K},   {.kind = COMPRESS_TOP_K, .ratio = 0.01, .momentum = 0.9},
        {.kind = COMPRESS_ONE_BIT}, {.kind = COMPRESS_POWERSGD},
        {.kind = COMPRESS_QSGD},    {.kind = COMPRESS_QSGD, .bits = 4}};
    const trp_net_tensor tensor = {.rank = 2,
                                   .count = NUMBERS / ROWS * ROWS,
                                   .axis_count = 2,
                                   .axes = {{NUMBERS / ROWS, ROWS}, {ROWS, 1}}};
    float *gradient = xmalloc(NUMBERS * sizeof *gradient), *grads = xcalloc(NUMBERS, sizeof *grads);
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (size_t i = 0; i < NUMBERS; i++)
        gradient[i] = (float)trp_rng_normal(&rng);
    double bytes = NUMBERS * sizeof *gradient, copy = bytes / time_copy(grads, gradient);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct compressor *compressor = compressor_create(&rows[i], NUMBERS, &tensor, 1);
        double seconds = time_sum(compressor, grads, gradient);
        double sent = sent_bytes(&rows[i], &tensor), saved = bytes - sent;
        char name[64];
        snprintf(name, sizeof name, "compress/%s%s", compress_name(rows[i].kind),
                 rows[i].ratio > 0  ? " 1 %, momentum"
                 : rows[i].bits > 0 ? " 4 bits"
                                    : "");
        printf("%s, 6.8 MB\t%.3g\tGB/s\t%.3g\tmemcpy\n", name, bytes / seconds * 1e-9, copy * 1e-9);
        printf("%s, share sent\t%.3g\t%%\n", name, 100 * sent / bytes);
        printf("%s, pays on links below\t%.3g\tGbit/s\n", name, 8e-9 * saved / seconds);
        compressor_destroy(compressor);
    }
    free(gradient);
    free(grads);
    return 0;
}
