/* The kernels for AVX-512 (F). Used only where the processor has it. */
#define FINITE_KERNELS finite_avx512
#define FINITE_BYTES   64
#include "finite_kernels.h"
