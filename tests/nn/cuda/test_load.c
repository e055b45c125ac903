/* GPUs by name. On a host without one, which is all that is sure: what is said instead. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/device.h>

#include "nn/cuda/load.h"
#include "nn/cuda/module/module.h"
#include "tests/core/captured.h"
#include "tests/nn/nn_tools.h"

static void names_of_gpus_are_cuda_and_a_number(void **state)
{
    (void)state;
    uint32_t number;
    assert_true(cuda_name_parse("cuda:0", &number));
    assert_int_equal(number, 0);
    assert_true(cuda_name_parse("cuda:15", &number));
    assert_int_equal(number, 15);
    static const char *const others[] = {
        "cuda",   "cuda:",   "cuda:16",  "cuda:-1", "cuda:00", "cuda:0 ", "cuda: 0",
        "CUDA:0", "cuda:1x", "cuda:256", "cuda:+1", "gpu:0",   "",        "cuda:4294967296"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(cuda_name_parse(others[i], &number));
        assert_int_equal(trp_device_check(others[i]), TRP_INVALID_ARGUMENT);
    }
}

static void names_are_checked_without_a_gpu(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "cpu", "ref", "auto", "cuda:0", "cuda:15"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        OR_FAIL(trp_device_check(names[i]));
    assert_int_equal(trp_device_check("cuda:16"), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "'cuda:16'"));
    assert_non_null(strstr(trp_last_error(), "cpu, ref, cuda:0 to cuda:15, auto"));
}

static bool has_driver(void)
{
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL;
}

static void a_gpu_is_there_or_it_is_said_why_not(void **state)
{
    (void)state;
    trp_device *device, *again;
    trp_status status = trp_device_find(&device, "cuda:0");
    if (status == TRP_OK) {
        assert_string_equal(trp_device_name(device), "cuda:0");
        assert_false(trp_device_is_host(device));
        OR_FAIL(trp_device_find(&again, "cuda:0"));
        assert_ptr_equal(device, again);
        return;
    }
    assert_int_equal(status, TRP_UNAVAILABLE);
    assert_null(device);
#ifdef CUDA_MODULE
    assert_non_null(strstr(trp_last_error(), "device cuda:0"));
    if (!has_driver())
        assert_string_equal(trp_last_error(),
                            "device cuda:0: this host has no driver of NVIDIA's (libcuda.so.1); "
                            "one for CUDA 13.0 (driver 580) or newer is needed");
#else
    assert_non_null(strstr(trp_last_error(), "libtroupe_cuda.so"));
    assert_non_null(strstr(trp_last_error(), "nvcc"));
#endif
}

static void auto_is_a_gpu_or_the_cpu_and_says_so_once(void **state)
{
    (void)state;
    trp_device *device, *again, *gpu;
    bool has_gpu = trp_device_find(&gpu, "cuda:0") == TRP_OK;
    struct captured log;
    capture_begin(&log);
    OR_FAIL(trp_device_find(&device, "auto"));
    OR_FAIL(trp_device_find(&again, "auto"));
    capture_end(&log);
    assert_ptr_equal(device, again);
    assert_string_equal(trp_device_name(device), has_gpu ? "cuda:0" : "cpu");
    assert_int_equal(captured_count(&log, "device auto is "), 1);
    assert_int_equal(captured_count(&log, has_gpu ? "auto is cuda:0" : "auto is the CPU: "), 1);
}

#ifdef CUDA_MODULE
/* Symbols of its own cudart and core would meet those of whoever opens it. */
static void the_library_opens_without_a_driver_and_shows_one_name(void **state)
{
    (void)state;
    void *library = dlopen(CUDA_MODULE, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    const struct cuda_module *module = dlsym(library, CUDA_MODULE_SYMBOL);
    assert_non_null(module);
    assert_string_equal(module->version, trp_version());
    assert_int_equal(module->machine_bytes, sizeof(struct machine_impl));
    assert_int_equal(module->work_bytes, sizeof(struct cuda_work));
    static const char *const hidden[] = {"cudaMalloc",     "cudaLaunchKernel", "trp_fail",
                                         "module_kernels", "kernel_find",      "gpu_work"};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (dlsym(library, hidden[i]))
            fail_msg("%s is seen from outside", hidden[i]);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_gpus_are_cuda_and_a_number),
        cmocka_unit_test(names_are_checked_without_a_gpu),
        cmocka_unit_test(a_gpu_is_there_or_it_is_said_why_not),
        cmocka_unit_test(auto_is_a_gpu_or_the_cpu_and_says_so_once),
#ifdef CUDA_MODULE
        cmocka_unit_test(the_library_opens_without_a_driver_and_shows_one_name),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
