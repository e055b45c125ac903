/* The kernel for AVX-512 (F). Called only where the processor has it. */
#define FINITE_KERNEL finite_avx512
#include "finite_kernel.h"
