/* Random vectors and comparisons for the tests of nn/. */
#ifndef TRP_TESTS_NN_TOOLS_H
#define TRP_TESTS_NN_TOOLS_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/alloc.h"
#include "nn/net.h"

#define OR_FAIL(call)                                                                              \
    do {                                                                                           \
        if ((call) != TRP_OK)                                                                      \
            fail_msg("%s", trp_last_error());                                                      \
    } while (0)

/* Exactly `count` floats on the heap, so that a sanitizer sees the next one. */
static inline float *random_floats(trp_rng *rng, size_t count, double scale)
{
    float *values = xmalloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(scale * trp_rng_normal(rng));
    return values;
}

static inline void assert_close(const float *got, const float *want, size_t count, double tolerance,
                                const char *what)
{
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - (double)want[i]);
        if (!(error <= tolerance + tolerance * fabs((double)want[i])))
            fail_msg("%s[%zu] is %.9g, should be %.9g", what, i, (double)got[i], (double)want[i]);
    }
}

/* Our own kernels, but for linear layers; and the fastest for bfloat16. */
static inline const struct backend *backend_onednn(void)
{
    static struct backend onednn;
    onednn = *backend_simd();
    onednn.name = "onednn";
    onednn.linear = linear_onednn();
    onednn.linear_bf16 = linear_bf16_fastest();
    onednn.conv_bf16 = conv_bf16_fastest();
    assert_non_null(onednn.linear);
    return &onednn;
}

#ifdef __x86_64__
/* Those for bfloat16 that a processor with faster ones has, too. */
static inline const struct backend *backend_avx512_bf16(void)
{
    static struct backend slower;
    slower = backend_avx512;
    slower.name = "avx512_bf16";
    slower.linear_bf16 = &linear_avx512_bf16;
    slower.conv_bf16 = &conv_avx512_bf16;
    return &slower;
}
#endif

/* Every own kernel that this processor runs, oneDNN, and the reference; ends at NULL. */
static inline const struct backend *const *every_backend(void)
{
    static const struct backend *list[8];
    size_t count = 0;
    list[count++] = &backend_ref_f32;
    list[count++] = &backend_generic;
    list[count++] = backend_onednn();
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        list[count++] = &backend_avx2;
    if (__builtin_cpu_supports("avx512f"))
        list[count++] = &backend_avx512;
    if (__builtin_cpu_supports("avx512bf16"))
        list[count++] = backend_avx512_bf16();
#endif
    list[count] = NULL;
    return list;
}

/* A plan on the host of one backend. */
static inline trp_status net_create(trp_net **out, const trp_net_options *options,
                                    const struct backend *backend)
{
    return host_net_create(out, options, backend, false);
}

/* Passes in the backend's elements. */
static inline void net_forward(trp_net *net, const struct pass *pass, uint32_t rows)
{
    net->rows = rows;
    net->impl->forward(net, NULL, pass, rows);
}

static inline void net_backward(trp_net *net, const struct pass *pass)
{
    net->impl->backward(net, NULL, pass, net->rows);
}

/* A network with one input and one output. */
static inline void forward_one(trp_net *net, const float *params, const void *in, uint32_t rows,
                               float *out)
{
    trp_net_forward(net, params, &(trp_net_rows){.rows = rows, .inputs = {in}, .outputs = {out}});
}

/* Of the last forward_one(). */
static inline void backward_one(trp_net *net, const float *params, const void *in,
                                const float *dout, float *grads)
{
    trp_net_backward(net, params, &(trp_net_rows){.rows = net->rows, .inputs = {in}},
                     &(trp_net_grads){.outputs = {dout}, .params = grads});
}

static inline void poison(trp_net *net)
{
    memset(host_net(net)->arena, 0xff,
           host_net(net)->arena_bytes); /* every float and double of it is a NaN */
}

#endif
