/* Between libtroupe and libtroupe_cuda.so, which is opened where a GPU is asked for (load.h). Both
 * come from one build: what is said here holds them together. */
#ifndef TRP_NN_CUDA_MODULE_H
#define TRP_NN_CUDA_MODULE_H

#include <stdint.h>

#include <troupe/log.h>

#include "nn/cuda/machine.h"

/* The name of the one thing that it exports, a struct cuda_module. */
#define CUDA_MODULE_SYMBOL "troupe_cuda_module"

/* A program has one last error and one log, the host's. */
struct module_host {
    trp_status (*fail)(trp_status code, const char *format, ...) TRP_PRINTF(2, 3);
    void (*log)(trp_log_level level, const char *format, ...) TRP_PRINTF(2, 3);
    const char *prefixes; /* as core/nvidia.h has them */
};

struct cuda_module {
    char version[16];                                           /* trp_version() of the build */
    uint32_t machine_bytes, work_bytes, gemm_bytes, conv_bytes; /* of structs that both know */
    /* The GPU of that number; it stays for the life of the process. UNAVAILABLE: there is none, it
     * is too old, or its driver is. */
    trp_status (*open)(const struct module_host *host, uint32_t number, struct machine **out);
    /* How many there are. UNAVAILABLE: there is no driver, or it is too old. */
    trp_status (*count)(const struct module_host *host, uint32_t *count);
};

#define CUDA_MODULE_BYTES                                                                          \
    sizeof(struct machine_impl), sizeof(struct cuda_work), sizeof(struct gemm_job),                \
        sizeof(struct conv_job)

#endif
