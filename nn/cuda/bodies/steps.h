#ifndef TRP_NN_CUDA_BODIES_STEPS_H
#define TRP_NN_CUDA_BODIES_STEPS_H
#include "rows.h"
#endif
