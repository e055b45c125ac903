/* The kernels for any processor. */
#define FINITE_KERNELS finite_generic
#define FINITE_BYTES   16
#include "finite_kernels.h"
