// cuBLASLt on the CPU, as far as benchmarks/gpu/vendors/cublaslt.py calls it: products of columns, by their definition.
//
// It proposes three algorithms, of which the second is the only one that does not dawdle, and the last is refused.
// 8-bit floats have to lie along k on both sides, as in the library itself. Whatever is asked beyond that is
// CUBLAS_STATUS_NOT_SUPPORTED.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 7, UNSUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_8I = 3, R_32I = 10, R_8F_E4M3 = 28 };

typedef struct {
    int compute, scale, transposed[2], epilogue;
    const void *bias;
} Desc;
typedef struct {
    int type, batch;
    uint64_t rows, columns;
    int64_t apart, batch_apart;
} Layout;
typedef struct {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Proposal;

int alive, launches[3];

static int made(void **to, size_t size) {
    *to = calloc(1, size);
    ++alive;
    return SUCCESS;
}
static int destroyed(void *which) {
    free(which);
    --alive;
    return SUCCESS;
}

int cublasLtCreate(void **to) { return made(to, 1); }
int cublasLtMatmulPreferenceCreate(void **to) { return made(to, 8); }
int cublasLtMatmulDescCreate(Desc **to, int compute, int scale) {
    made((void **)to, sizeof **to);
    (*to)->compute = compute, (*to)->scale = scale, (*to)->epilogue = 1;
    return SUCCESS;
}
int cublasLtMatrixLayoutCreate(Layout **to, int type, uint64_t rows, uint64_t columns, int64_t apart) {
    made((void **)to, sizeof **to);
    **to = (Layout){type, 1, rows, columns, apart, 0};
    return apart < (int64_t)rows ? INVALID : SUCCESS;
}
int cublasLtMatmulPreferenceDestroy(void *which) { return destroyed(which); }
int cublasLtMatmulDescDestroy(void *which) { return destroyed(which); }
int cublasLtMatrixLayoutDestroy(void *which) { return destroyed(which); }

int cublasLtMatmulPreferenceSetAttribute(void *which, int attribute, const uint64_t *value, size_t size) {
    return which && attribute == 1 && size == 8 && *value ? SUCCESS : INVALID;
}
int cublasLtMatmulDescSetAttribute(Desc *which, int attribute, const void *value, size_t size) {
    if ((attribute == 3 || attribute == 4) && size == 4)
        which->transposed[attribute - 3] = *(const int *)value;
    else if (attribute == 7 && size == 4)
        which->epilogue = *(const int *)value;
    else if (attribute == 8 && size == sizeof(void *))
        which->bias = *(void *const *)value;
    else
        return INVALID;
    return SUCCESS;
}
int cublasLtMatrixLayoutSetAttribute(Layout *which, int attribute, const void *value, size_t size) {
    if (attribute == 5 && size == 4)
        which->batch = *(const int *)value;
    else if (attribute == 6 && size == 8)
        which->batch_apart = *(const int64_t *)value;
    else
        return INVALID;
    return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, const Desc *desc, const Layout *a, const Layout *b, const Layout *c,
                                   const Layout *d, void *preference, int most, Proposal *to, int *count) {
    *count = 0;
    if (!handle || !preference || most < 3)
        return INVALID;
    if (desc->epilogue != 1 && desc->epilogue != 2 && desc->epilogue != 4 && desc->epilogue != 6)
        return UNSUPPORTED;
    const int eight = a->type == R_8F_E4M3;
    if (a->type != b->type || (a->type != R_32F && a->type != R_64F && a->type != R_8I && !eight))
        return UNSUPPORTED;
    if (eight && (!desc->transposed[0] || desc->transposed[1]))
        return UNSUPPORTED;
    if (memcmp(c, d, sizeof *c) || c->type != (a->type == R_8I ? R_32I : eight ? R_32F : a->type))
        return UNSUPPORTED;
    for (int i = 0; i < 3; ++i)
        to[i] = (Proposal){{(uint64_t)i}, 0, i == 2 ? UNSUPPORTED : SUCCESS, 1, {0}};
    *count = 3;
    return SUCCESS;
}

static double float8(uint8_t bits) {  // four bits of exponent, three of fraction
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const double size = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return bits & 128 ? -size : size;
}
static double load(int type, const void *base, int64_t at) {
    if (type == R_8F_E4M3)
        return float8(((const uint8_t *)base)[at]);
    return type == R_32F ? ((const float *)base)[at] : type == R_64F ? ((const double *)base)[at]
                                                                     : ((const int8_t *)base)[at];
}
static void store(int type, void *base, int64_t at, double value) {
    if (type == R_32F)
        ((float *)base)[at] = (float)value;
    else if (type == R_64F)
        ((double *)base)[at] = value;
    else
        ((int32_t *)base)[at] = (int32_t)value;
}

int cublasLtMatmul(void *handle, const Desc *desc, const void *alpha, const void *a, const Layout *la, const void *b,
                   const Layout *lb, const void *beta, const void *c, const Layout *lc, void *d, const Layout *ld,
                   const uint64_t *algorithm, void *workspace, size_t bytes, void *stream) {
    const int ta = desc->transposed[0], tb = desc->transposed[1];
    const uint64_t k = ta ? la->rows : la->columns;
    if (!handle || c != d || lc != ld || stream || *algorithm > 1 || k != (tb ? lb->columns : lb->rows))
        return INVALID;
    if (ld->rows != (ta ? la->columns : la->rows) || ld->columns != (tb ? lb->rows : lb->columns))
        return INVALID;
    ++launches[*algorithm];
    if (*algorithm == 0)
        usleep(300);
    (void)alpha, (void)beta, (void)workspace, (void)bytes;
    for (int entry = 0; entry < ld->batch; ++entry)
        for (uint64_t row = 0; row < ld->rows; ++row)
            for (uint64_t column = 0; column < ld->columns; ++column) {
                double sum = 0;
                for (uint64_t i = 0; i < k; ++i) {
                    const int64_t ai = ta ? (int64_t)row * la->apart + (int64_t)i : (int64_t)i * la->apart + (int64_t)row;
                    const int64_t bi =
                        tb ? (int64_t)i * lb->apart + (int64_t)column : (int64_t)column * lb->apart + (int64_t)i;
                    sum += load(la->type, a, entry * la->batch_apart + ai) * load(lb->type, b, entry * lb->batch_apart + bi);
                }
                if (desc->epilogue & 4)
                    sum += load(ld->type, desc->bias, (int64_t)row);
                if (desc->epilogue & 2)
                    sum = sum > 0 ? sum : 0;
                store(ld->type, d, entry * ld->batch_apart + (int64_t)column * ld->apart + (int64_t)row, sum);
            }
    return SUCCESS;
}
