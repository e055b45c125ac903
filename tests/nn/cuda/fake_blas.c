/* cuBLASLt for tests of nn/cuda/module/blas.c: as a library that it opens. Column by column, on the
 * host, when the stream comes to it. It refuses layouts that do not fit, and memory that is not
 * aligned as it was told. */
#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "core/alloc.h"
#include "core/bfloat16.h"

#define SHOWN __attribute__((visibility("default")))

extern unsigned fake_matmuls;
SHOWN unsigned fake_matmuls; /* that were done */

extern bool fake_has_no_way;
SHOWN bool fake_has_no_way; /* for anything */

enum { KEPT = 4096, WORKSPACE = 256 };

struct fake_desc {
    cublasComputeType_t sums;
    cublasOperation_t first, second;
    cublasLtEpilogue_t epilogue;
    const float *bias;
};

struct fake_layout {
    uint64_t rows, columns;
    int64_t stride;
};

struct fake_wish {
    uint64_t workspace;
    uint32_t schemes, a, b, c, d;
};

/* A product of the stream. */
struct fake_matmul {
    struct fake_desc desc;
    struct fake_layout a, b, c;
    const float *at_a, *at_b;
    float *at_c, alpha, beta;
    char *workspace;
};

static struct fake_matmul *kept[KEPT]; /* graphs do them again and again */
static unsigned kept_count;

SHOWN cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t)&kept;
    return CUBLAS_STATUS_SUCCESS;
}

SHOWN cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

SHOWN size_t cublasLtGetVersion(void)
{
    return 130102;
}

/* ---- descriptors --------------------------------------------------------------------------- */

SHOWN cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t sums,
                                              cudaDataType_t scale)
{
    struct fake_desc *desc = xcalloc(1, sizeof *desc);
    *desc = (struct fake_desc){.sums = sums, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    *out = (cublasLtMatmulDesc_t)desc;
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

SHOWN cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

SHOWN cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t to,
                                                    cublasLtMatmulDescAttributes_t name,
                                                    const void *value, size_t bytes)
{
    struct fake_desc *desc = (struct fake_desc *)to;
    void *member = NULL;
    size_t wanted = sizeof(int32_t);
    if (name == CUBLASLT_MATMUL_DESC_TRANSA)
        member = &desc->first;
    else if (name == CUBLASLT_MATMUL_DESC_TRANSB)
        member = &desc->second;
    else if (name == CUBLASLT_MATMUL_DESC_EPILOGUE)
        member = &desc->epilogue;
    else if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        member = &desc->bias, wanted = sizeof(void *);
    if (!member || bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

SHOWN cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                                uint64_t rows, uint64_t columns, int64_t stride)
{
    struct fake_layout *layout = xcalloc(1, sizeof *layout);
    *layout = (struct fake_layout){rows, columns, stride};
    *out = (cublasLtMatrixLayout_t)layout;
    return type == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

SHOWN cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- how ----------------------------------------------------------------------------------- */

SHOWN cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct fake_wish *wish = xcalloc(1, sizeof *wish);
    *wish = (struct fake_wish){
        .schemes = CUBLASLT_REDUCTION_SCHEME_MASK, .a = 256, .b = 256, .c = 256, .d = 256};
    *out = (cublasLtMatmulPreference_t)wish;
    return CUBLAS_STATUS_SUCCESS;
}

SHOWN cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish)
{
    free(wish);
    return CUBLAS_STATUS_SUCCESS;
}

SHOWN cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                                          cublasLtMatmulPreferenceAttributes_t name,
                                                          const void *value, size_t bytes)
{
    struct fake_wish *wish = (struct fake_wish *)to;
    void *member = NULL;
    size_t wanted = sizeof(uint32_t);
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        member = &wish->workspace, wanted = sizeof(uint64_t);
        break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        member = &wish->schemes;
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        member = &wish->a;
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        member = &wish->b;
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        member = &wish->c;
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        member = &wish->d;
        break;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (bytes != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static bool fits(const struct fake_desc *desc, const struct fake_layout *a,
                 const struct fake_layout *b, const struct fake_layout *c)
{
    uint64_t rows = desc->first == CUBLAS_OP_T ? a->columns : a->rows;
    uint64_t depth = desc->first == CUBLAS_OP_T ? a->rows : a->columns;
    uint64_t columns = desc->second == CUBLAS_OP_T ? b->rows : b->columns;
    uint64_t other = desc->second == CUBLAS_OP_T ? b->columns : b->rows;
    return rows == c->rows && columns == c->columns && depth == other &&
           a->stride >= (int64_t)a->rows && b->stride >= (int64_t)b->rows &&
           c->stride >= (int64_t)c->rows;
}

/* Of odd widths with a workspace. No way where sums might come in any order. */
SHOWN cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t what, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int *count)
{
    const struct fake_wish *wish = (const struct fake_wish *)preference;
    const struct fake_layout *layout = (const struct fake_layout *)c;
    *count = 0;
    if (handle != (cublasLtHandle_t)&kept || c != d || wanted != 1 || fake_has_no_way ||
        !fits((const struct fake_desc *)what, (const struct fake_layout *)a,
              (const struct fake_layout *)b, layout) ||
        (wish->schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE) || wish->workspace < WORKSPACE ||
        wish->c != wish->d)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(results, 0, sizeof *results);
    results->workspaceSize = layout->rows % 2 ? WORKSPACE : 0;
    results->algo.data[0] = (uint64_t)wish->a << 32 | wish->b;
    results->algo.data[1] = wish->c;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- doing --------------------------------------------------------------------------------- */

static float factor_of(const struct fake_matmul *m, const float *at, const struct fake_layout *l,
                       bool turned, uint64_t row, uint64_t column)
{
    float value =
        turned ? at[column + row * (uint64_t)l->stride] : at[row + column * (uint64_t)l->stride];
    union {
        float number;
        uint32_t bits;
    } u = {value};
    if (m->desc.sums == CUBLAS_COMPUTE_32F_FAST_16BF)
        return bf16_rounded(value);
    if (m->desc.sums == CUBLAS_COMPUTE_32F_FAST_TF32)
        u.bits &= ~0x1fffu;
    return u.number;
}

static void CUDART_CB matmul_do(void *context)
{
    const struct fake_matmul *m = context;
    bool relu = m->desc.epilogue & CUBLASLT_EPILOGUE_RELU;
    bool biased = m->desc.epilogue & CUBLASLT_EPILOGUE_BIAS;
    bool turned = m->desc.first == CUBLAS_OP_T;
    uint64_t depth = turned ? m->a.rows : m->a.columns;
    for (uint64_t row = 0; row < m->c.rows; row++)
        for (uint64_t column = 0; column < m->c.columns; column++) {
            float *c = &m->at_c[row + column * (uint64_t)m->c.stride], sum = 0;
            for (uint64_t k = 0; k < depth; k++)
                sum += factor_of(m, m->at_a, &m->a, turned, row, k) *
                       factor_of(m, m->at_b, &m->b, m->desc.second == CUBLAS_OP_T, k, column);
            sum = m->alpha * sum + (m->beta != 0 ? m->beta * *c : 0) +
                  (biased ? m->desc.bias[row] : 0);
            *c = relu && !(sum > 0) ? 0 : sum; /* the largest of both, of which no NaN is */
        }
    if (m->workspace)
        memset(m->workspace, 1, WORKSPACE);
    fake_matmuls++;
}

static bool is_aligned(const void *memory, uint64_t bytes)
{
    return bytes > 0 && (uintptr_t)memory % bytes == 0;
}

SHOWN cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t what,
                                    const void *alpha, const void *a, cublasLtMatrixLayout_t at_a,
                                    const void *b, cublasLtMatrixLayout_t at_b, const void *beta,
                                    const void *c, cublasLtMatrixLayout_t at_c, void *d,
                                    cublasLtMatrixLayout_t at_d,
                                    const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                                    size_t workspace_bytes, cudaStream_t stream)
{
    if (handle != (cublasLtHandle_t)&kept || c != d || at_c != at_d || !algorithm ||
        !is_aligned(a, algorithm->data[0] >> 32) || !is_aligned(b, (uint32_t)algorithm->data[0]) ||
        !is_aligned(c, algorithm->data[1]) || !workspace != (workspace_bytes == 0) ||
        kept_count == KEPT)
        return CUBLAS_STATUS_INVALID_VALUE;
    struct fake_matmul *matmul = xcalloc(1, sizeof *matmul);
    matmul->desc = *(const struct fake_desc *)what;
    matmul->a = *(const struct fake_layout *)at_a;
    matmul->b = *(const struct fake_layout *)at_b;
    matmul->c = *(const struct fake_layout *)at_c;
    matmul->at_a = a;
    matmul->at_b = b;
    matmul->at_c = d;
    matmul->workspace = workspace;
    memcpy(&matmul->alpha, alpha, sizeof(float));
    memcpy(&matmul->beta, beta, sizeof(float));
    kept[kept_count++] = matmul;
    return cudaLaunchHostFunc(stream, matmul_do, matmul) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
