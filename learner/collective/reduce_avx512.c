/* The kernels for AVX-512 (F and BW). Called only where the processor has them. */
#define REDUCE_TABLE reduce_avx512
#include "reduce_kernels.h"
