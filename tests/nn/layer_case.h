/* One layer with its tensors, run by any backend: against finite differences, against the reference
 * and against what PyTorch made of the same numbers. */
#ifndef TRP_TESTS_LAYER_CASE_H
#define TRP_TESTS_LAYER_CASE_H

#include "nn_tools.h"

enum { BLOBS_MAX = 8, BLOB_GAP = 3 };

/* Rows with a gap between them, which nobody may touch. */
struct blob {
    const char *name;
    size_t rows, columns, stride;
    bool output;
    double *value, *gradient; /* [rows][columns]: of an output, what comes back; else a start */
    void *v, *g;              /* the same for one run, [rows][stride] elements of the backend */
};

struct layer_case {
    const char *name;
    struct blob blobs[BLOBS_MAX];
    size_t blob_count;
    const void *shape;
    const void *codes; /* pixels, tokens or resets */
    bool overwrite;
    void *kept;
    void (*forward)(struct layer_case *c, const struct backend *backend);
    void (*backward)(struct layer_case *c, const struct backend *backend);
};

/* What a run made: outputs, and gradients of the rest. */
struct layer_result {
    double *made[BLOBS_MAX];
};

/* Numbers in [-1, 1) that the golden scripts make, too. */
static inline double case_number(uint32_t seed, uint32_t index)
{
    uint32_t h = index * 2654435761u + seed * 2246822519u + 374761393u;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    h ^= h >> 16;
    return (double)(h >> 8) / (1 << 23) - 1;
}

/* Returns the index of the blob. Those of one name have the same numbers in every case. */
static inline size_t case_add(struct layer_case *c, const char *name, size_t rows, size_t columns,
                              bool output)
{
    size_t index = c->blob_count++;
    struct blob *b = &c->blobs[index];
    *b = (struct blob){name, rows, columns, columns + (rows > 1 ? BLOB_GAP : 0), output, NULL,
                       NULL, NULL, NULL};
    b->value = xmalloc(rows * columns * sizeof *b->value);
    b->gradient = xmalloc(rows * columns * sizeof *b->gradient);
    for (size_t i = 0; i < rows * columns; i++) {
        b->value[i] = case_number((uint32_t)index, (uint32_t)i);
        b->gradient[i] = case_number((uint32_t)index + 100, (uint32_t)i);
    }
    return index;
}

static inline void case_cleanup(struct layer_case *c)
{
    for (size_t i = 0; i < c->blob_count; i++) {
        free(c->blobs[i].value);
        free(c->blobs[i].gradient);
    }
}

/* Elements on the heap, all NaN, so that a sanitizer sees the next one. */
static inline void *case_memory(size_t elements, size_t element_bytes)
{
    void *memory = xmalloc(elements * element_bytes + 1);
    memset(memory, 0xff, elements * element_bytes);
    return memory;
}

static inline void *case_scratch(size_t elements, const struct backend *backend)
{
    return case_memory(elements, backend->element_bytes);
}

static inline double element(const void *values, size_t element_bytes, size_t i)
{
    return element_bytes == sizeof(float) ? (double)((const float *)values)[i]
                                          : ((const double *)values)[i];
}

static inline void set_element(void *values, size_t element_bytes, size_t i, double value)
{
    if (element_bytes == sizeof(float))
        ((float *)values)[i] = (float)value;
    else
        ((double *)values)[i] = value;
}

static inline size_t blob_elements(const struct blob *b)
{
    return (b->rows - 1) * b->stride + b->columns;
}

/* From NULL: NaN everywhere. */
static inline void *blob_load(const struct blob *b, const double *from, size_t element_bytes)
{
    void *to = case_memory(blob_elements(b), element_bytes);
    for (size_t i = 0; from && i < b->rows * b->columns; i++)
        set_element(to, element_bytes, i / b->columns * b->stride + i % b->columns, from[i]);
    return to;
}

static inline double *blob_read(const struct blob *b, const void *from, size_t element_bytes,
                                const char *what)
{
    double *to = xmalloc(b->rows * b->columns * sizeof *to);
    for (size_t i = 0; i < blob_elements(b); i++) {
        size_t row = i / b->stride, column = i % b->stride;
        double value = element(from, element_bytes, i);
        if (column < b->columns)
            to[row * b->columns + column] = value;
        else if (!isnan(value))
            fail_msg("%s: %s: the gap behind row %zu was written to", what, b->name, row);
    }
    return to;
}

/* For the gradient of what the layer has not got. */
static inline void blob_zero(const struct blob *b, size_t element_bytes)
{
    for (size_t i = 0; i < b->rows * b->columns; i++)
        set_element(b->g, element_bytes, i / b->columns * b->stride + i % b->columns, 0);
}

static inline void case_load(struct layer_case *c, size_t element_bytes)
{
    for (size_t i = 0; i < c->blob_count; i++) {
        struct blob *b = &c->blobs[i];
        bool start = b->output || !c->overwrite;
        b->v = blob_load(b, b->output ? NULL : b->value, element_bytes);
        b->g = blob_load(b, start ? b->gradient : NULL, element_bytes);
    }
}

static inline void case_unload(struct layer_case *c)
{
    for (size_t i = 0; i < c->blob_count; i++) {
        free(c->blobs[i].v);
        free(c->blobs[i].g);
    }
    free(c->kept);
    c->kept = NULL;
}

/* Forward and backward. */
static inline struct layer_result case_run(struct layer_case *c, const struct backend *backend)
{
    struct layer_result result = {{NULL}};
    case_load(c, backend->element_bytes);
    c->forward(c, backend);
    c->backward(c, backend);
    for (size_t i = 0; i < c->blob_count; i++) {
        const struct blob *b = &c->blobs[i];
        result.made[i] = blob_read(b, b->output ? b->v : b->g, backend->element_bytes, c->name);
    }
    case_unload(c);
    return result;
}

static inline void result_free(struct layer_result *result)
{
    for (size_t i = 0; i < BLOBS_MAX; i++)
        free(result->made[i]);
}

/* The sum of the outputs times their gradients. */
static inline double case_objective(struct layer_case *c)
{
    double sum = 0;
    case_load(c, sizeof(double));
    c->forward(c, &backend_ref_f64);
    for (size_t i = 0; i < c->blob_count; i++) {
        const struct blob *b = &c->blobs[i];
        if (!b->output)
            continue;
        double *out = blob_read(b, b->v, sizeof(double), c->name);
        for (size_t k = 0; k < b->rows * b->columns; k++)
            sum += out[k] * b->gradient[k];
        free(out);
    }
    case_unload(c);
    return sum;
}

static inline void check_finite_differences(struct layer_case *c)
{
    const double h = 1e-6;
    c->overwrite = true;
    struct layer_result result = case_run(c, &backend_ref_f64);
    for (size_t i = 0; i < c->blob_count; i++) {
        struct blob *b = &c->blobs[i];
        for (size_t k = 0; !b->output && k < b->rows * b->columns; k++) {
            double value = b->value[k];
            b->value[k] = value + h;
            double above = case_objective(c);
            b->value[k] = value - h;
            double difference = (above - case_objective(c)) / (2 * h);
            b->value[k] = value;
            if (!(fabs(difference - result.made[i][k]) <= 1e-7 * fmax(1, fabs(difference))))
                fail_msg("%s: d%s[%zu] is %.12g, finite difference %.12g", c->name, b->name, k,
                         result.made[i][k], difference);
        }
    }
    result_free(&result);
}

static inline void check_close(const struct layer_case *c, const struct blob *b, const double *got,
                               const double *want, double tolerance, const char *who)
{
    for (size_t k = 0; k < b->rows * b->columns; k++)
        if (!(fabs(got[k] - want[k]) <= tolerance * (1 + fabs(want[k]))))
            fail_msg("%s: %s: %s%s[%zu] is %.9g, should be %.9g", who, c->name,
                     b->output ? "" : "d", b->name, k, got[k], want[k]);
}

/* Every backend against the reference in double, gradients overwritten and added to. */
static inline void check_backends(struct layer_case *c, double tolerance)
{
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        c->overwrite = overwrite;
        struct layer_result want = case_run(c, &backend_ref_f64);
        for (const struct backend *const *b = every_backend(); *b; b++) {
            if (!(*b)->conv)
                continue;
            struct layer_result got = case_run(c, *b);
            for (size_t i = 0; i < c->blob_count; i++)
                check_close(c, &c->blobs[i], got.made[i], want.made[i], tolerance, (*b)->name);
            result_free(&got);
        }
        result_free(&want);
    }
}

/* One tensor that PyTorch made: an output, or the gradient of what is not one. */
struct golden {
    const char *layer, *tensor;
    size_t count;
    const double *values;
};

static inline void check_golden(struct layer_case *c, const struct golden *golden, size_t count)
{
    size_t checked = 0;
    c->overwrite = true;
    struct layer_result exact = case_run(c, &backend_ref_f64);
    for (size_t g = 0; g < count; g++)
        for (size_t i = 0; i < c->blob_count; i++) {
            const struct blob *b = &c->blobs[i];
            if (strcmp(golden[g].layer, c->name) != 0 || strcmp(golden[g].tensor, b->name) != 0)
                continue;
            assert_int_equal(golden[g].count, b->rows * b->columns);
            check_close(c, b, exact.made[i], golden[g].values, 1e-12, "PyTorch");
            checked++;
        }
    if (checked != c->blob_count)
        fail_msg("%s: %zu golden tensors of %zu", c->name, checked, c->blob_count);
    result_free(&exact);
}

#endif
