/* The kernels for any processor. */
#define REDUCE_TABLE reduce_generic
#include "reduce_kernels.h"
