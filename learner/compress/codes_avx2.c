/* Codes of runs: processors with AVX2. */
#define CODE_TABLE codes_avx2
#include "codes_kernels.h"
