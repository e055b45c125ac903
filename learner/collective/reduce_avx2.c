/* The kernels for AVX2. Called only where the processor has it. */
#define REDUCE_TABLE reduce_avx2
#include "reduce_kernels.h"
