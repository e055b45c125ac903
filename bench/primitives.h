/* oneDNN's primitives beside our layers: by themselves, and convolutions as a program would have
 * them whose images lie [rows][height][width][channels], bytes or floats, and whose weights
 * [height][width][channels][filters]. */
#ifndef BENCH_PRIMITIVES_H
#define BENCH_PRIMITIVES_H

#include <dnnl.h>
#include <stdbool.h>
#include <stdint.h>

#include "nn/conv.h"

enum { PRIMITIVE_ARGS_MAX = 6, STEPS_MAX = 5 };

/* Ends the program when a call of oneDNN fails. */
void dnnl_try(dnnl_status_t status, const char *what);

#define DNNL(call) dnnl_try(call, #call)

/* What all primitives run on, whichever thread calls. */
extern dnnl_engine_t dnnl_on_cpu;
extern dnnl_stream_t dnnl_on_caller;

void dnnl_start(void);

struct primitive {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[PRIMITIVE_ARGS_MAX];
    int arg_count;
};

enum direction { FORWARD, WEIGHTS, INPUT };

/* Of a convolution or an inner product, on memory of its own, zeros that lie as oneDNN likes. */
void primitive_init(struct primitive *p, dnnl_primitive_desc_t pd, enum direction direction);
void primitive_run(const struct primitive *p);
void primitive_cleanup(struct primitive *p);

/* How oneDNN may do it: where images lie as `images` says (weights lie as it likes), by which
 * algorithm, and forward with a ReLU. */
struct conv_way {
    dnnl_format_tag_t images;
    dnnl_alg_kind_t algorithm;
    bool relu;
};

dnnl_primitive_desc_t convolution_desc(const struct window *window, uint32_t rows,
                                       enum direction direction, const struct conv_way *way);

/* The same on a caller's memory, with the reorders that this takes before and after. */
struct reordered {
    struct primitive steps[STEPS_MAX];
    uint32_t count;
    char name[64]; /* of oneDNN's implementation */
};

/* By direction: x, w, bias to y; x, y to w, bias; y, w to x. x are bytes, which are divided by 255,
 * or floats. */
struct conv_memory {
    void *x, *w, *bias, *y;
    bool bytes;
};

void reordered_init(struct reordered *r, const struct window *window, uint32_t rows,
                    enum direction direction, const struct conv_way *way,
                    const struct conv_memory *memory);
void reordered_run(const struct reordered *r);
void reordered_cleanup(struct reordered *r);

#endif
