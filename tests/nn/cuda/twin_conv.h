/* A convolution as a library makes it (struct conv_job), number by number, in doubles. */
#ifndef TRP_TESTS_TWIN_CONV_H
#define TRP_TESTS_TWIN_CONV_H

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "nn/cuda/bodies/images.h"
#include "nn/cuda/work.h"

enum { TWIN_CONV_WORKSPACE = 192 };

/* One of the three numbers of each product. */
struct twin_term {
    size_t x, w, y;
};

/* Calls for every product that there is: of which x, w and y it is. */
static inline void twin_terms(const struct conv_job *job,
                              void (*call)(const struct conv_job *job, const struct twin_term *term,
                                           double *sums),
                              double *sums)
{
    const struct window *w = &job->window;
    uint32_t high = window_out_height(w), wide = window_out_width(w);
    for (size_t image = 0; image < job->images; image++)
        for (size_t out = 0; out < (size_t)high * wide; out++)
            for (size_t k = 0; k < (size_t)w->kernel_height * w->kernel_width; k++) {
                size_t pixel;
                if (!pixel_under(w, out / wide, out % wide, k / w->kernel_width,
                                 k % w->kernel_width, &pixel))
                    continue;
                for (size_t filter = 0; filter < w->filters; filter++)
                    for (size_t channel = 0; channel < w->channels; channel++) {
                        struct twin_term term = {
                            image * job->x_stride + pixel * w->channels + channel,
                            filter * window_patch(w) + k * w->channels + channel,
                            image * job->y_stride + out * w->filters + filter};
                        call(job, &term, sums);
                    }
            }
}

static inline void twin_add_term(const struct conv_job *job, const struct twin_term *term,
                                 double *sums)
{
    double x = job->makes == CONV_DATA ? 1 : (double)job->x[term->x];
    double w = job->makes == CONV_WEIGHTS ? 1 : (double)job->w[term->w];
    double y = job->makes == CONV_FORWARD ? 1 : (double)job->y[term->y];
    size_t at = job->makes == CONV_DATA ? term->x : job->makes == CONV_WEIGHTS ? term->w : term->y;
    sums[at] += x * w * y;
}

static inline void twin_conv(const struct conv_job *job)
{
    const struct window *w = &job->window;
    size_t image = (size_t)w->height * w->width * w->channels,
           weights = window_patch(w) * w->filters;
    size_t result = (size_t)window_out_height(w) * window_out_width(w) * w->filters;
    float *to = job->makes == CONV_DATA ? job->x : job->makes == CONV_WEIGHTS ? job->w : job->y;
    size_t stride = job->makes == CONV_DATA ? job->x_stride : job->y_stride;
    size_t rows = job->makes == CONV_WEIGHTS ? 1 : job->images;
    size_t each = job->makes == CONV_DATA ? image : job->makes == CONV_WEIGHTS ? weights : result;
    double *sums = xcalloc(rows * stride + each, sizeof *sums);
    twin_terms(job, twin_add_term, sums);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < each; i++)
            to[row * stride + i] = (float)sums[row * stride + i];
    free(sums);
    if (job->workspace)
        memset(job->workspace, 0x7f, job->workspace_bytes);
}

#endif
