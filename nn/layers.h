/* The small layers: layer norm, embedding, noisy weights, parameters. All functions are pure;
 * strides count elements. */
#ifndef TRP_NN_LAYERS_H
#define TRP_NN_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y = (x - mean) / sqrt(variance + epsilon) * gain + bias over the columns of each row; the
 * variance is the biased one. No gain and no bias (NULL, both): 1 and 0. */
struct norm_forward_job {
    const void *x, *gain, *bias;
    void *y;
    void *kept; /* [rows][2]: mean and 1 / sqrt(variance + epsilon) */
    size_t x_stride, y_stride;
    uint32_t rows, columns;
    double epsilon;
};

struct norm_backward_job {
    const void *x, *gain, *kept, *dy;
    void *dgain, *dbias; /* += or, with `overwrite`, =; NULL where gain is,
                            or where they are not wanted */
    void *dx;            /* may be NULL, or dy unless accumulated */
    size_t x_stride, dy_stride, dx_stride;
    uint32_t rows, columns;
    bool overwrite;
    bool accumulate_dx; /* dx: += instead of = */
};

/* Each of a row's tokens becomes a row of the table. A token outside of it becomes zeros and gets
 * no gradient: it comes from a peer or a disk. */
struct embedding_job {
    const int32_t *tokens; /* [row * token_stride + column] */
    size_t token_stride;
    uint32_t rows, columns;
    uint32_t vocabulary, width;
    const void *table; /* [vocabulary][width]; forward */
    void *y;           /* forward: [row * y_stride + column * width] */
    const void *dy;    /* backward, as y */
    void *dtable;      /* backward: += or, with `overwrite`, = */
    size_t y_stride;
    bool overwrite;
};

/* Factorised Gaussian noise (Fortunato et al. 2018, "Noisy Networks for Exploration"): w = mean +
 * sigma noise_in noise_out', bias = mean + sigma noise_out, where the noises are f(x) = sign(x)
 * sqrt|x| of normal ones already. A noisy layer is this and a linear layer with the result; its
 * backward is the linear one into a dw and dbias of its own, and this. */
struct noisy_job {
    uint32_t inputs, outputs;
    const void *noise_in, *noise_out; /* [inputs], [outputs]; NULL, both: no noise */
    const void *w_mean, *w_sigma, *bias_mean, *bias_sigma; /* forward */
    void *w, *bias;                                        /* forward: written */
    const void *dw, *dbias;                                /* backward */
    void *dw_mean, *dw_sigma, *dbias_mean, *dbias_sigma;   /* += or, with `overwrite`, = */
    bool overwrite;
};

/* The gradient of a row that all rows have: the sum of theirs, row by row. */
struct sum_job {
    const void *dy;
    void *sum; /* [columns]: += or, with `overwrite`, = */
    size_t dy_stride;
    uint32_t rows, columns;
    bool overwrite;
};

struct layer_kernels {
    void (*norm_forward)(const struct norm_forward_job *job);
    void (*norm_backward)(const struct norm_backward_job *job);
    void (*embedding_forward)(const struct embedding_job *job);
    void (*embedding_backward)(const struct embedding_job *job);
    void (*noisy_forward)(const struct noisy_job *job);
    void (*noisy_backward)(const struct noisy_job *job);
    void (*sum_rows)(const struct sum_job *job);
};

#endif
