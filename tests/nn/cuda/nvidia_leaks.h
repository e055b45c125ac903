/* For LeakSanitizer, in a program that opens NVIDIA's own libraries: cuBLASLt and cuDNN keep
 * handles that nobody refers to. */
#ifndef TESTS_NN_CUDA_NVIDIA_LEAKS_H
#define TESTS_NN_CUDA_NVIDIA_LEAKS_H

__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:cublasLtCreate\n";
}

#endif
