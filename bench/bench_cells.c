/* A recurrent layer as a plan has it: forward over a batch of sequences and backward to parameters
 * and inputs, on one thread and on two; with --peer DIR next to eager PyTorch's layer on as many,
 * in turns, because the machine may be shared; the medians count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/nn.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "median.h"
#include "torch_peer.h"

enum { WIDTH = 256, STEPS = 80, SEQUENCES = 32, ROWS = STEPS * SEQUENCES, TURNS = 7, PASSES = 7 };

struct layer {
    trp_net *net;
    size_t count;
    float *params, *grads, *x, *y, *dy, *dx;
};

static void check(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_cells: %s\n", trp_last_error());
    exit(1);
}

static void layer_init(struct layer *l, trp_layer_kind kind, uint32_t threads)
{
    trp_net_spec spec = {0};
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {WIDTH}});
    trp_layer cell = {.kind = kind, .name = "core", .from = {x}, .size = WIDTH};
    trp_net_output(&spec, trp_net_add(&spec, cell));
    check(trp_net_create(&l->net,
                         &(trp_net_options){.spec = &spec, .batch = ROWS, .threads = threads}));
    l->count = trp_net_param_count(&spec);
    l->params = trp_floats_create(l->count);
    l->grads = trp_floats_create(l->count);
    trp_net_init(&spec, &rng, l->params);
    float **rows[] = {&l->x, &l->y, &l->dy, &l->dx};
    for (int i = 0; i < 4; i++)
        *rows[i] = trp_floats_create((size_t)ROWS * WIDTH);
    for (size_t i = 0; i < (size_t)ROWS * WIDTH; i++) {
        l->x[i] = (float)trp_rng_normal(&rng);
        l->dy[i] = (float)trp_rng_normal(&rng);
    }
}

static void layer_cleanup(struct layer *l)
{
    float *all[] = {l->params, l->grads, l->x, l->y, l->dy, l->dx};
    for (int i = 0; i < 6; i++)
        trp_floats_destroy(all[i]);
    trp_net_destroy(l->net);
}

static double pass_us(struct layer *l)
{
    trp_net_rows rows = {.rows = ROWS, .steps = STEPS, .inputs = {l->x}, .outputs = {l->y}};
    int64_t start = clock_now_ns(&clock_monotonic);
    memset(l->grads, 0, l->count * sizeof *l->grads);
    trp_net_forward(l->net, l->params, &rows);
    trp_net_backward(l->net, l->params, &rows,
                     &(trp_net_grads){.outputs = {l->dy}, .params = l->grads, .inputs = {l->dx}});
    return (double)(clock_now_ns(&clock_monotonic) - start) / 1e3;
}

static double median_pass_us(struct layer *l)
{
    double us[PASSES];
    pass_us(l);
    for (int i = 0; i < PASSES; i++)
        us[i] = pass_us(l);
    return median(us, PASSES);
}

static void run(const char *kind_name, trp_layer_kind kind, uint32_t threads, const char *peer)
{
    struct layer l;
    double ours[TURNS], theirs[TURNS];
    layer_init(&l, kind, threads);
    char *words = xasprintf("torch_cells.py %s %u", kind_name, threads);
    for (int turn = 0; turn < TURNS; turn++) {
        ours[turn] = median_pass_us(&l);
        theirs[turn] = torch_peer_us(peer, words);
    }
    printf("%s 256, 80 steps, batch 32 (%u thread%s)\t%.1f\tus\t0\t-", kind_name, threads,
           threads > 1 ? "s" : "", median(ours, TURNS));
    if (peer)
        printf("\t%.1f\tPyTorch, eager", median(theirs, TURNS));
    puts("");
    fflush(stdout);
    free(words);
    layer_cleanup(&l);
}

int main(int argc, char **argv)
{
    const char *peer = torch_peer_dir(argc, argv);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        run("LSTM", TRP_LSTM, threads, peer);
        run("GRU", TRP_GRU, threads, peer);
    }
    return 0;
}
