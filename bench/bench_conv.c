/* Convolutions of the usual networks, our kernels next to oneDNN's primitives, each with all that a
 * plan would need of it: weights lie [height][width][channels][filters] and change every step,
 * images are bytes or floats by channels, the forward has a ReLU and the gradient of an input the
 * slope of one. Of oneDNN's two ways, images as they lie and as it likes them, the faster one
 * counts; its Winograd convolutions, where it would choose one, are the peer. Of two threads each
 * has its half of the images, as in a plan.
 *
 *   bench_conv [1|2]      the number of threads; none: both, one after the other
 *
 * Processor time of the slower thread, the least of many turns, in turns. Prints a row for each
 * size and direction, and then, where errors go, where oneDNN takes a tenth less. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <troupe/status.h>
#include "core/alloc.h"
#include "core/team.h"
#include "nn/backend.h"
#include "primitives.h"

void omp_set_num_threads(int count);

enum {
    THREADS_MAX = 2,
    TURNS = 15,
    ROWS_MAX = 256,
    WAYS = 3,
    DIRECT_WAYS = 2,
    IMAGE_MAX = 84 * 84 * 16
};

static const struct layer {
    const char *network;
    struct window window;
    bool bytes;
} layers[] = {
    {"Nature CNN", {84, 84, 4, 8, 8, 4, 4, 0, 0, 32}, true},
    {"Nature CNN", {20, 20, 32, 4, 4, 2, 2, 0, 0, 64}, false},
    {"Nature CNN", {9, 9, 64, 3, 3, 1, 1, 0, 0, 64}, false},
    {"IMPALA ResNet", {84, 84, 4, 3, 3, 1, 1, 1, 1, 16}, true},
    {"IMPALA ResNet", {42, 42, 16, 3, 3, 1, 1, 1, 1, 16}, false},
    {"IMPALA ResNet", {42, 42, 16, 3, 3, 1, 1, 1, 1, 32}, false},
    {"IMPALA ResNet", {21, 21, 32, 3, 3, 1, 1, 1, 1, 32}, false},
    {"IMPALA ResNet", {11, 11, 32, 3, 3, 1, 1, 1, 1, 32}, false},
};

static const uint32_t batches[] = {1, 8, 32, 256};

/* What one thread does. */
struct share {
    const struct layer *layer;
    enum direction direction;
    uint32_t rows;
    float *x, *y, *w, *bias, *scratch;
    struct reordered theirs[WAYS];
    double our_us, their_us[WAYS]; /* the least so far */
};

static size_t image_values(const struct window *w)
{
    return (size_t)w->height * w->width * w->channels;
}

static size_t result_values(const struct window *w)
{
    return (size_t)window_out_height(w) * window_out_width(w) * w->filters;
}

static float *some_floats(size_t count)
{
    float *floats = aligned_alloc(64, (count * sizeof *floats + 63) / 64 * 64);
    for (size_t i = 0; floats && i < count; i++)
        floats[i] = (float)(i * 2654435761u % 1000) / 5000 - 0.1f;
    return floats;
}

/* ---- both sides -------------------------------------------------------------------------- */

static void ours_forward(const struct share *s)
{
    const struct window *w = &s->layer->window;
    backend_simd()->conv->forward(&(struct conv_forward_job){.window = *w,
                                                             .x = s->x,
                                                             .bytes = s->layer->bytes,
                                                             .w = s->w,
                                                             .bias = s->bias,
                                                             .y = s->y,
                                                             .x_stride = image_values(w),
                                                             .y_stride = result_values(w),
                                                             .rows = s->rows,
                                                             .activation = ACTIVATION_RELU,
                                                             .scratch = s->scratch});
}

static void ours_backward(const struct share *s)
{
    const struct window *w = &s->layer->window;
    bool weights = s->direction == WEIGHTS;
    backend_simd()->conv->backward(&(struct conv_backward_job){.window = *w,
                                                               .x = s->x,
                                                               .bytes = s->layer->bytes,
                                                               .w = s->w,
                                                               .dy = s->y,
                                                               .dw = weights ? s->w : NULL,
                                                               .dbias = weights ? s->bias : NULL,
                                                               .dx = weights ? NULL : s->x,
                                                               .x_stride = image_values(w),
                                                               .dy_stride = result_values(w),
                                                               .dx_stride = image_values(w),
                                                               .rows = s->rows,
                                                               .gate = ACTIVATION_RELU,
                                                               .overwrite = true,
                                                               .scratch = s->scratch});
}

static void theirs_run(const struct share *s, int way)
{
    size_t values = image_values(&s->layer->window);
    reordered_run(&s->theirs[way]);
    if (s->direction == INPUT)
        backend_simd()->activation->backward(&(struct activation_job){
            .activation = ACTIVATION_RELU,
            .in = s->x,
            .kept = s->x,
            .out = s->x,
            .in_stride = values,
            .kept_stride = values,
            .out_stride = values,
            .rows = s->rows,
            .columns = (uint32_t)values,
        });
}

static void run(const struct share *s, int way)
{
    if (way < WAYS)
        theirs_run(s, way);
    else if (s->direction == FORWARD)
        ours_forward(s);
    else
        ours_backward(s);
}

/* ---- turns ------------------------------------------------------------------------------- */

static double own_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Microseconds a call, of so many that the clock does not matter. */
static double timed(const struct share *s, int way)
{
    enum { ENOUGH_US = 200 };
    double start = own_us(), took = 0;
    unsigned times = 0;
    for (; took < ENOUGH_US; times++, took = own_us() - start)
        run(s, way);
    return took / times;
}

struct turn {
    struct share *shares;
    int way;
};

static void turn_run(void *arg, uint32_t index)
{
    const struct turn *turn = arg;
    struct share *s = &turn->shares[index];
    omp_set_num_threads(1); /* of this thread */
    double us = timed(s, turn->way);
    double *least = turn->way < WAYS ? &s->their_us[turn->way] : &s->our_us;
    *least = us < *least ? us : *least;
}

static double slower(double a, double b)
{
    return a > b ? a : b;
}

static void share_init(struct share *s, const struct layer *layer, enum direction direction,
                       uint32_t rows)
{
    static const struct conv_way ways[WAYS] = {
        {dnnl_nhwc, dnnl_convolution_direct, true},
        {dnnl_format_tag_any, dnnl_convolution_direct, true},
        {dnnl_format_tag_any, dnnl_convolution_auto, true},
    };
    struct conv_memory memory = {
        .x = s->x, .w = s->w, .bias = s->bias, .y = s->y, .bytes = layer->bytes};
    s->layer = layer;
    s->direction = direction;
    s->rows = rows;
    s->our_us = 1e30;
    for (int way = 0; way < WAYS; way++) {
        s->their_us[way] = 1e30;
        reordered_init(&s->theirs[way], &layer->window, rows, direction, &ways[way], &memory);
    }
}

static void contest(struct team *team, struct share *shares, uint32_t threads, uint32_t batch,
                    const struct layer *layer, enum direction direction)
{
    static const char *const names[] = {"forward", "weights", "input"};
    const struct window *w = &layer->window;
    double ours = 0, theirs[WAYS] = {0};
    for (uint32_t i = 0; i < threads; i++)
        share_init(&shares[i], layer, direction, batch / threads);
    for (int turn = 0; turn < TURNS; turn++)
        for (int way = 0; way <= WAYS; way++)
            team_run(team, turn_run, &(struct turn){shares, way});
    for (uint32_t i = 0; i < threads; i++) {
        ours = slower(ours, shares[i].our_us);
        for (int way = 0; way < WAYS; way++)
            theirs[way] = slower(theirs[way], shares[i].their_us[way]);
    }
    int best = theirs[1] < theirs[0];
    bool is_winograd = strstr(shares[0].theirs[DIRECT_WAYS].name, "wino") != NULL;
    char *name =
        xasprintf("%s %ux%u, %u to %u, %ux%u: %s, batch %u, %u thread%s", layer->network, w->height,
                  w->width, w->channels, w->filters, w->kernel_height, w->kernel_width,
                  names[direction], batch, threads, threads > 1 ? "s" : "");
    printf("%s\t%.2f\tus\t%.2f\toneDNN, %s", name, ours, theirs[best], shares[0].theirs[best].name);
    if (is_winograd)
        printf("\t%.2f\toneDNN, Winograd", theirs[DIRECT_WAYS]);
    printf("\n");
    fflush(stdout);
    if (theirs[best] < 0.9 * ours)
        fprintf(stderr, "oneDNN takes %.2f: %s\n", theirs[best] / ours, name);
    if (is_winograd && theirs[DIRECT_WAYS] < 0.9 * ours)
        fprintf(stderr, "Winograd takes %.2f: %s\n", theirs[DIRECT_WAYS] / ours, name);
    free(name);
    for (uint32_t i = 0; i < threads; i++)
        for (int way = 0; way < WAYS; way++)
            reordered_cleanup(&shares[i].theirs[way]);
}

static void contests(uint32_t threads)
{
    struct team *team;
    struct share shares[THREADS_MAX];
    if (team_join(&team, threads) != TRP_OK) {
        fprintf(stderr, "bench_conv: %s\n", trp_last_error());
        exit(1);
    }
    for (uint32_t i = 0; i < threads; i++)
        shares[i] = (struct share){.x = some_floats((size_t)ROWS_MAX / threads * IMAGE_MAX),
                                   .y = some_floats((size_t)ROWS_MAX / threads * IMAGE_MAX),
                                   .w = some_floats(64 * 64 * 16),
                                   .bias = some_floats(64),
                                   .scratch = some_floats((size_t)1 << 21)};
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++)
        for (enum direction d = FORWARD; d <= (layers[l].bytes ? WEIGHTS : INPUT); d++)
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
                if (batches[b] >= threads)
                    contest(team, shares, threads, batches[b], &layers[l], d);
    for (uint32_t i = 0; i < threads; i++) {
        float *all[] = {shares[i].x, shares[i].y, shares[i].w, shares[i].bias, shares[i].scratch};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            free(all[k]);
    }
    team_leave(team);
}

int main(int argc, char **argv)
{
    int only = argc == 2 ? atoi(argv[1]) : 0;
    if (argc > 2 || (argc == 2 && (only < 1 || only > THREADS_MAX))) {
        fprintf(stderr, "usage: bench_conv [1|2]\n");
        return 2;
    }
    omp_set_num_threads(1); /* where primitives are made */
    dnnl_start();
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++)
        if (only == 0 || (uint32_t)only == threads)
            contests(threads);
    return 0;
}
