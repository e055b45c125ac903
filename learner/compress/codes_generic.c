/* Codes of runs: any processor. */
#define CODE_TABLE codes_generic
#include "codes_kernels.h"
