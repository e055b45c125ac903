/* Windows over images, for the host and for a GPU. */
#ifndef TRP_NN_CUDA_WINDOW_H
#define TRP_NN_CUDA_WINDOW_H

#include "kernel.h"

#define WINDOW KERNEL_BODY
#include "nn/conv.h"

#endif
