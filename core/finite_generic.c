/* The kernel for any processor. */
#define FINITE_KERNEL finite_generic
#include "finite_kernel.h"
