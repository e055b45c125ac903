#include "nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>

#include "core/nvidia.h"

#define NCCL_FILE "libnccl.so.2"

static trp_status find_nccl_function(void *library, const char *path, const char *name,
                                     void **function)
{
    *function = dlsym(library, name);
    return *function ? TRP_OK : trp_fail(TRP_UNAVAILABLE, "%s has no %s", path, name);
}

static trp_status check_nccl_version(struct nccl_api *api)
{
    if (api->GetVersion(&api->version) != NCCL_SUCCESS)
        return trp_fail(TRP_UNAVAILABLE, "%s does not tell its version", api->path);
    if (api->version < NCCL_VERSION_LEAST)
        return trp_fail(TRP_UNAVAILABLE, "%s is NCCL %d.%d.%d; 2.28.0 or newer is needed",
                        api->path, api->version / 10000, api->version / 100 % 100,
                        api->version % 100);
    return TRP_OK;
}

trp_status nccl_open(struct nccl_api *api)
{
    struct nvidia_library library;
    nvidia_open(&library, NCCL_FILE);
    snprintf(api->path, sizeof api->path, "%s", library.path);
    if (!library.handle)
        return trp_fail(TRP_UNAVAILABLE, "%s", library.path);
#define NCCL_FIND(NAME, TAKES)                                                                     \
    TRP_TRY(find_nccl_function(library.handle, api->path, "nccl" #NAME, (void **)&api->NAME));
    NCCL_FUNCTIONS(NCCL_FIND)
#undef NCCL_FIND
    TRP_TRY(find_nccl_function(library.handle, api->path, "ncclGetErrorString",
                               (void **)&api->GetErrorString));
    TRP_TRY(find_nccl_function(library.handle, api->path, "ncclGetLastError",
                               (void **)&api->GetLastError));
    return check_nccl_version(api);
}
