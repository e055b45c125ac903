/* Plans of bfloat16 next to the same plans of float32: forward and backward of whole networks on
 * one thread, in that thread's own time, step by step in turns, because the machine may be shared;
 * of a single row, which is a policy's, forward alone. With --peer DIR, images next to PyTorch's
 * autocast to bfloat16. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <troupe/nn.h>
#include "core/alloc.h"
#include "median.h"
#include "torch_peer.h"

enum { TURNS = 15 };

static double own_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* A network with what goes through it. */
struct subject {
    trp_net *net[2]; /* by precision */
    float *params, *grads, *out, *dout;
    void *in;
    uint32_t rows;
};

static void try_status(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_bf16: %s\n", trp_last_error());
    exit(1);
}

static double step_us(struct subject *s, trp_precision precision)
{
    trp_net_rows rows = {.rows = s->rows, .inputs = {s->in}, .outputs = {s->out}};
    double start = own_us();
    trp_net_forward(s->net[precision], s->params, &rows);
    if (s->rows > 1)
        trp_net_backward(s->net[precision], s->params, &rows,
                         &(trp_net_grads){.outputs = {s->dout}, .params = s->grads});
    return own_us() - start;
}

static void run(const char *name, const trp_net_spec *spec, uint32_t rows, bool bytes, int steps,
                double peer)
{
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    size_t count = trp_net_param_count(spec), outputs = trp_net_output_width(spec, 0);
    size_t inputs = (size_t)rows * trp_net_input_width(spec, 0);
    struct subject s = {.params = trp_floats_create(count),
                        .grads = trp_floats_create(count),
                        .out = trp_floats_create(rows * outputs),
                        .dout = trp_floats_create(rows * outputs),
                        .in = trp_floats_create(inputs),
                        .rows = rows};
    trp_net_init(spec, &rng, s.params);
    for (size_t i = 0; i < rows * outputs; i++)
        s.dout[i] = (float)trp_rng_normal(&rng) / (float)rows;
    for (size_t i = 0; i < inputs; i++)
        if (bytes)
            ((uint8_t *)s.in)[i] = (uint8_t)trp_rng_below(&rng, 256);
        else
            ((float *)s.in)[i] = (float)trp_rng_normal(&rng);
    for (int p = 0; p < 2; p++)
        try_status(trp_net_create(
            &s.net[p],
            &(trp_net_options){.spec = spec, .batch = rows, .precision = (trp_precision)p}));
    double us[2][TURNS];
    for (int turn = -1; turn < TURNS; turn++) { /* the first one warms up */
        double sum[2] = {0, 0};
        for (int step = 0; step < 2 * steps; step++)
            sum[step % 2] += step_us(&s, (trp_precision)(step % 2));
        for (int p = 0; p < 2 && turn >= 0; p++)
            us[p][turn] = sum[p] / steps;
    }
    printf("%s, bfloat16\t%.1f\tus\t%.1f\tthe same in float32", name, median(us[TRP_BF16], TURNS),
           median(us[TRP_F32], TURNS));
    if (peer > 0)
        printf("\t%.1f\tPyTorch, autocast", peer);
    printf("\n");
    fflush(stdout);
    for (int p = 0; p < 2; p++)
        trp_net_destroy(s.net[p]);
    float *all[] = {s.params, s.grads, s.out, s.dout, s.in};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        trp_floats_destroy(all[i]);
}

int main(int argc, char **argv)
{
    const char *peer = torch_peer_dir(argc, argv);
    trp_cnn_options image = {.height = 84, .width = 84, .channels = 4, .outputs = 18};
    trp_net_spec nature = trp_nature_cnn(&image), impala = trp_impala_resnet(&image);
    trp_net_spec mlp =
        trp_mlp(&(trp_mlp_options){.inputs = 17, .hidden = {256, 256}, .outputs = 6});
    run("Nature CNN, batch 32", &nature, 32, true, 4,
        torch_peer_us(peer, "torch_layers.py nature_bf16 32"));
    run("Nature CNN, batch 256", &nature, 256, true, 1,
        torch_peer_us(peer, "torch_layers.py nature_bf16 256"));
    run("IMPALA ResNet, batch 32", &impala, 32, true, 1,
        torch_peer_us(peer, "torch_layers.py impala_bf16 32"));
    run("MLP 17-256-256-6, batch 256", &mlp, 256, false, 40, 0);
    run("policy, MLP 17-256-256-6, batch 1", &mlp, 1, false, 1000, 0);
    run("policy, Nature CNN, batch 1", &nature, 1, true, 20, 0);
    return 0;
}
