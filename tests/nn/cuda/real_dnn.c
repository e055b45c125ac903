/* NVIDIA's own libcudnn.so.9 on a host without a GPU, for a test of nn/cuda/module/dnn.c: its
 * descriptors, heuristics and plans are those of an H100 that is described to it. In place of a
 * handle, which needs a GPU, stands that description; nothing is executed. */
#include <assert.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "nn/cuda/module/dnn_api.h"

#define SHOWN __attribute__((visibility("default")))

extern unsigned real_dnn_executions;
SHOWN unsigned real_dnn_executions;

static const char h100[] =
    "{\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"deviceName\":\"NVIDIA H100 80GB "
    "HBM3\",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,"
    "\"l2CacheSize\":52428800,\"totalGlobalMem\":85045870592}";

/* Of its header, which would say that the functions below are of other types. */
enum { DEVICE_KIND = 38, DEVICE_JSON = 2702, CHARS = 24 };
enum { HEURISTIC_DEVICE = 204, PLAN_DEVICE = 407 };

static struct dnn_api real;
static dnn_descriptor device;

static bool open_real(void)
{
    void *library = dlopen(REAL_DNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    assert(library);
#define DNN_FIND(NAME, TAKES)                                                                      \
    real.NAME = (__typeof__(real.NAME))dlsym(library, "cudnn" #NAME);                              \
    assert(real.NAME);
    DNN_FUNCTIONS(DNN_FIND)
    DNN_FIND(GetVersion, )
    DNN_FIND(GetErrorString, )
    DNN_FIND(GetLastErrorString, )
    return real.BackendCreateDescriptor(DEVICE_KIND, &device) == 0 &&
           real.BackendSetAttribute(device, DEVICE_JSON, CHARS, sizeof h100, h100) == 0 &&
           real.BackendFinalize(device) == 0;
}

#define DNN_DECLARE(NAME, TAKES) int cudnn##NAME TAKES;
DNN_FUNCTIONS(DNN_DECLARE)
size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(int status);
void cudnnGetLastErrorString(char *words, size_t bytes);

SHOWN int cudnnCreate(struct dnn_handle **handle)
{
    static bool opened;
    *handle = (struct dnn_handle *)&real;
    opened = opened || open_real();
    return opened ? 0 : 1001;
}

SHOWN int cudnnSetStream(struct dnn_handle *handle, void *stream)
{
    (void)stream;
    assert(handle == (struct dnn_handle *)&real);
    return 0;
}

SHOWN size_t cudnnGetVersion(void)
{
    return real.GetVersion();
}

SHOWN const char *cudnnGetErrorString(int status)
{
    return real.GetErrorString(status);
}

SHOWN void cudnnGetLastErrorString(char *words, size_t bytes)
{
    real.GetLastErrorString(words, bytes);
}

SHOWN int cudnnBackendCreateDescriptor(int kind, dnn_descriptor *descriptor)
{
    int status = real.BackendCreateDescriptor(kind, descriptor);
    if (status == 0 && kind == DNN_HEURISTIC)
        status =
            real.BackendSetAttribute(*descriptor, HEURISTIC_DEVICE, DNN_DESCRIPTOR, 1, &device);
    return status;
}

SHOWN int cudnnBackendDestroyDescriptor(dnn_descriptor descriptor)
{
    return real.BackendDestroyDescriptor(descriptor);
}

SHOWN int cudnnBackendSetAttribute(dnn_descriptor descriptor, int name, int type, int64_t count,
                                   const void *values)
{
    if (name == DNN_GRAPH_HANDLE)
        return type == DNN_HANDLE_TYPE && count == 1 ? 0 : 2000;
    if (name == DNN_PLAN_HANDLE)
        return real.BackendSetAttribute(descriptor, PLAN_DEVICE, DNN_DESCRIPTOR, 1, &device);
    return real.BackendSetAttribute(descriptor, name, type, count, values);
}

SHOWN int cudnnBackendGetAttribute(dnn_descriptor descriptor, int name, int type, int64_t most,
                                   int64_t *count, void *values)
{
    return real.BackendGetAttribute(descriptor, name, type, most, count, values);
}

SHOWN int cudnnBackendFinalize(dnn_descriptor descriptor)
{
    return real.BackendFinalize(descriptor);
}

SHOWN int cudnnBackendExecute(struct dnn_handle *handle, dnn_descriptor plan, dnn_descriptor pack)
{
    assert(handle == (struct dnn_handle *)&real && plan && pack);
    real_dnn_executions++;
    return 0;
}
