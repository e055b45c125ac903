/* Products by cuBLASLt, with bias and ReLU in the same kernel. It counts columns first: of what is
 * row by row here it sees the transposed matrix, so c' = B' A'. What it recommends for a shape is
 * kept. Sums whose order is not fixed are not among what it may choose from. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "core/nvidia.h"
#include "gpu.h"
#include "nn/cuda/limits.h"

#define BLAS_NAMES(X)                                                                              \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(Matmul)                                                                                      \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescDestroy)                                                                           \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutDestroy)

struct blas_calls {
#define BLAS_MEMBER(NAME) __typeof__(cublasLt##NAME) *NAME;
    BLAS_NAMES(BLAS_MEMBER)
#undef BLAS_MEMBER
};

/* All that decides which way is the best. */
struct blas_shape {
    uint64_t m, n, k, a_stride, b_stride, c_stride;
    uint32_t a_aligned, b_aligned, c_aligned, bias_aligned; /* bytes, at most 256 */
    uint8_t a_turned, b_turned, accumulate, biased, activation, precision, fill[2];
};

struct blas_way {
    struct blas_shape shape;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    bool known, none; /* none: there is no way */
};

enum lack { LACKS_WAY, LACKS_ROOM, LACKS };

struct blas {
    struct blas_calls calls;
    cublasLtHandle_t handle;
    struct mutex mutex;
    struct blas_way ways[BLAS_WAYS_MAX]; /* by hash; what comes to a taken place replaces it */
    bool told[LACKS];                    /* of a product that has it not */
};

/* Descriptors of one product. */
struct blas_product {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, c;
};

/* ---- opening ------------------------------------------------------------------------------- */

static bool calls_find(struct blas_calls *calls, void *library)
{
#define BLAS_FIND(NAME)                                                                            \
    calls->NAME = (__typeof__(calls->NAME))dlsym(library, "cublasLt" #NAME);                       \
    if (!calls->NAME)                                                                              \
        return false;
    BLAS_NAMES(BLAS_FIND)
#undef BLAS_FIND
    return true;
}

struct blas *blas_create(char *words, size_t bytes)
{
    struct nvidia_library library;
    char name[32];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    nvidia_open(&library, name);
    struct blas *blas = library.handle ? xcalloc(1, sizeof *blas) : NULL;
    if (!blas) {
        snprintf(words, bytes, "our own (%s)", library.path);
        return NULL;
    }
    if (!calls_find(&blas->calls, library.handle) ||
        blas->calls.Create(&blas->handle) != CUBLAS_STATUS_SUCCESS) {
        snprintf(words, bytes, "our own (%s does not work)", library.path);
        free(blas);
        return NULL;
    }
    mutex_init(&blas->mutex);
    size_t version = blas->calls.GetVersion();
    snprintf(words, bytes, "cuBLASLt %zu.%zu.%zu (%s)", version / 10000, version / 100 % 100,
             version % 100, library.path);
    return blas;
}

/* ---- shapes -------------------------------------------------------------------------------- */

static uint32_t aligned_to(const void *memory)
{
    uintptr_t at = (uintptr_t)memory | 256;
    return (uint32_t)(at & -at);
}

static struct blas_shape shape_of(const struct gemm_job *job)
{
    return (struct blas_shape){
        .m = job->m,
        .n = job->n,
        .k = job->k,
        .a_stride = job->a_stride,
        .b_stride = job->b_stride,
        .c_stride = job->c_stride,
        .a_aligned = aligned_to(job->a),
        .b_aligned = aligned_to(job->b),
        .c_aligned = aligned_to(job->c),
        .bias_aligned = aligned_to(job->bias),
        .a_turned = job->a_turned,
        .b_turned = job->b_turned,
        .accumulate = job->accumulate,
        .biased = job->bias != NULL,
        .activation = job->activation == ACTIVATION_RELU,
        .precision = (uint8_t)job->precision,
    };
}

/* cuBLASLt does not take rows that overlap, nor none. */
static bool takes(const struct gemm_job *job)
{
    return job->m > 0 && job->n > 0 && job->k > 0 &&
           job->a_stride >= (job->a_turned ? job->m : job->k) &&
           job->b_stride >= (job->b_turned ? job->k : job->n) && job->c_stride >= job->n;
}

static cublasLtEpilogue_t epilogue_of(const struct blas_shape *shape)
{
    if (shape->activation)
        return shape->biased ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return shape->biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* ---- one product --------------------------------------------------------------------------- */

static void product_cleanup(const struct blas_calls *calls, struct blas_product *product)
{
    if (product->what)
        calls->MatmulDescDestroy(product->what);
    if (product->a)
        calls->MatrixLayoutDestroy(product->a);
    if (product->b)
        calls->MatrixLayoutDestroy(product->b);
    if (product->c)
        calls->MatrixLayoutDestroy(product->c);
}

static bool layout_create(const struct blas_calls *calls, cublasLtMatrixLayout_t *layout,
                          uint64_t rows, uint64_t columns, uint64_t stride)
{
    return calls->MatrixLayoutCreate(layout, CUDA_R_32F, rows, columns, (int64_t)stride) ==
           CUBLAS_STATUS_SUCCESS;
}

static bool product_create(const struct blas_calls *calls, struct blas_product *product,
                           const struct blas_shape *shape, const float *bias)
{
    static const cublasComputeType_t sums[] = {[TRP_F32] = CUBLAS_COMPUTE_32F,
                                               [TRP_BF16] = CUBLAS_COMPUTE_32F_FAST_16BF,
                                               [TRP_TF32] = CUBLAS_COMPUTE_32F_FAST_TF32};
    cublasOperation_t first = shape->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = shape->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(shape);
    if (calls->MatmulDescCreate(&product->what, sums[shape->precision], CUDA_R_32F) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    cublasStatus_t failed = calls->MatmulDescSetAttribute(
        product->what, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    failed |= calls->MatmulDescSetAttribute(product->what, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                            sizeof second);
    failed |= calls->MatmulDescSetAttribute(product->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                            sizeof epilogue);
    if (bias)
        failed |= calls->MatmulDescSetAttribute(product->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &bias, sizeof bias);
    return failed == CUBLAS_STATUS_SUCCESS &&
           layout_create(calls, &product->a, shape->b_turned ? shape->k : shape->n,
                         shape->b_turned ? shape->n : shape->k, shape->b_stride) &&
           layout_create(calls, &product->b, shape->a_turned ? shape->m : shape->k,
                         shape->a_turned ? shape->k : shape->m, shape->a_stride) &&
           layout_create(calls, &product->c, shape->n, shape->m, shape->c_stride);
}

/* ---- the best way -------------------------------------------------------------------------- */

static void way_ask(struct blas *blas, struct blas_way *way, const struct blas_product *product)
{
    const struct blas_calls *calls = &blas->calls;
    const struct blas_shape *shape = &way->shape;
    size_t workspace = BLAS_WORKSPACE_BYTES;
    uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    way->none = true;
    if (calls->MatmulPreferenceCreate(&wish) != CUBLAS_STATUS_SUCCESS)
        return;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &shape->b_aligned, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &shape->a_aligned, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &shape->c_aligned, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &shape->c_aligned, sizeof(uint32_t)},
    };
    cublasStatus_t failed = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        failed |= calls->MatmulPreferenceSetAttribute(wish, wishes[i].name, wishes[i].value,
                                                      wishes[i].bytes);
    if (failed == CUBLAS_STATUS_SUCCESS &&
        calls->MatmulAlgoGetHeuristic(blas->handle, product->what, product->a, product->b,
                                      product->c, product->c, wish, 1, &result,
                                      &count) == CUBLAS_STATUS_SUCCESS &&
        count == 1 && result.state == CUBLAS_STATUS_SUCCESS) {
        way->algorithm = result.algo;
        way->workspace_bytes = result.workspaceSize;
        way->none = false;
    }
    calls->MatmulPreferenceDestroy(wish);
}

static struct blas_way way_of(struct blas *blas, const struct blas_shape *shape,
                              const struct blas_product *product)
{
    uint64_t hash = hash_bytes(HASH_BYTES_EMPTY, shape, sizeof *shape);
    struct blas_way *way = &blas->ways[hash % BLAS_WAYS_MAX];
    mutex_lock(&blas->mutex);
    if (!way->known || memcmp(&way->shape, shape, sizeof *shape) != 0) {
        way->shape = *shape;
        way_ask(blas, way, product);
        way->known = true;
    }
    struct blas_way copy = *way;
    mutex_unlock(&blas->mutex);
    return copy;
}

/* NULL: there is no memory, and the product is our own. */
static void *workspace_of(struct gpu_lane *lane)
{
    if (!lane->workspace && cudaMalloc(&lane->workspace, BLAS_WORKSPACE_BYTES) != cudaSuccess) {
        (void)cudaGetLastError();
        lane->workspace = NULL;
    }
    return lane->workspace;
}

/* Ours is right, and slow: nobody would know why. */
static void tell_once(struct gpu *gpu, const struct gemm_job *job, enum lack lack)
{
    static const char *const words[] = {
        [TRP_F32] = "float32", [TRP_BF16] = "bfloat16", [TRP_TF32] = "TF32"};
    mutex_lock(&gpu->blas->mutex);
    bool told = gpu->blas->told[lack];
    gpu->blas->told[lack] = true;
    mutex_unlock(&gpu->blas->mutex);
    if (!told)
        gpu->host->log(TRP_INFO,
                       "device %s: cuBLASLt has no %s for a product of %ux%u by %ux%u in %s: our "
                       "own kernel makes it, and others of which nothing is said",
                       gpu->machine.name, lack == LACKS_WAY ? "way" : "room", job->m, job->k,
                       job->k, job->n, words[job->precision]);
}

bool blas_gemm(struct gpu *gpu, struct gpu_lane *lane, const struct gemm_job *job)
{
    struct blas *blas = gpu->blas;
    struct blas_product product = {0};
    struct blas_shape shape = shape_of(job);
    bool done = takes(job) && product_create(&blas->calls, &product, &shape, job->bias);
    if (done) {
        struct blas_way way = way_of(blas, &shape, &product);
        float alpha = 1, beta = job->accumulate ? 1 : 0;
        void *workspace = !way.none && way.workspace_bytes > 0 ? workspace_of(lane) : NULL;
        done = !way.none && (way.workspace_bytes == 0 || workspace) &&
               blas->calls.Matmul(blas->handle, product.what, &alpha, job->b, product.a, job->a,
                                  product.b, &beta, job->c, product.c, job->c, product.c,
                                  &way.algorithm, workspace, way.workspace_bytes,
                                  lane->stream) == CUBLAS_STATUS_SUCCESS;
        if (!done)
            tell_once(gpu, job,
                      way.none || workspace || way.workspace_bytes == 0 ? LACKS_WAY : LACKS_ROOM);
    }
    product_cleanup(&blas->calls, &product);
    return done;
}
