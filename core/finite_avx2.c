/* The kernel for AVX2. Called only where the processor has it. */
#define FINITE_KERNEL finite_avx2
#include "finite_kernel.h"
