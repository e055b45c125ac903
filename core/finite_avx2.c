/* The kernels for AVX2. Used only where the processor has it. */
#define FINITE_KERNELS finite_avx2
#define FINITE_BYTES   32
#include "finite_kernels.h"
