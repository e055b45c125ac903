#include "load.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/nvidia.h"
#include "core/thread.h"
#include "device.h"
#include "nn/cuda/module/module.h"

#define MODULE_FILE "libtroupe_cuda.so"

static struct once once = ONCE_INIT;
static struct mutex mutex; /* of all that follows */
static const struct cuda_module *module;
static struct cuda_device *devices[CUDA_DEVICES_MAX];

static void mutex_prepare(void)
{
    mutex_init(&mutex);
}

/* "cuda:07" and the like are nobody's names: a device has one. */
bool cuda_name_parse(const char *name, uint32_t *number)
{
    char again[16];
    if (strncmp(name, "cuda:", 5) != 0 || strlen(name) > 7)
        return false;
    *number = (uint32_t)strtoul(name + 5, NULL, 10);
    snprintf(again, sizeof again, "cuda:%u", (unsigned)*number);
    return strcmp(again, name) == 0 && *number < CUDA_DEVICES_MAX;
}

/* ---- the library --------------------------------------------------------------------------- */

/* Where the code of this function comes from: libtroupe.so or a program; "." where nobody knows. */
static void own_directory(char directory[PATH_MAX])
{
    Dl_info info;
    struct link_map *map = NULL;
    char path[PATH_MAX];
    bool known =
        dladdr1((const void *)(uintptr_t)own_directory, &info, (void **)&map, RTLD_DL_LINKMAP) != 0;
    bool is_library = known && map && *map->l_name;
    if (!realpath(is_library ? map->l_name : "/proc/self/exe", path))
        snprintf(path, sizeof path, "./");
    snprintf(directory, PATH_MAX, "%.*s", (int)(strrchr(path, '/') - path), path);
}

/* Keeps in `why` what dlopen() says of a file that exists and does not load. */
static void *open_in(const char *directory, const char *below, char **why)
{
    char *path = xasprintf("%s%s" MODULE_FILE, directory, below);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library && !*why && access(path, F_OK) == 0)
        *why = xstrdup(dlerror());
    free(path);
    return library;
}

static trp_status module_found(void *library)
{
    static const struct cuda_module here = {.machine_bytes = sizeof(struct machine_impl),
                                            .work_bytes = sizeof(struct cuda_work),
                                            .gemm_bytes = sizeof(struct gemm_job),
                                            .conv_bytes = sizeof(struct conv_job)};
    const struct cuda_module *found = dlsym(library, CUDA_MODULE_SYMBOL);
    if (!found)
        return trp_fail(TRP_UNAVAILABLE, "%s has no %s: it is none of Troupe's", MODULE_FILE,
                        CUDA_MODULE_SYMBOL);
    if (strcmp(found->version, trp_version()) != 0 || found->machine_bytes != here.machine_bytes ||
        found->work_bytes != here.work_bytes || found->gemm_bytes != here.gemm_bytes ||
        found->conv_bytes != here.conv_bytes)
        return trp_fail(TRP_UNAVAILABLE,
                        "%s is of another build, Troupe %.15s; this is Troupe %s: install both "
                        "together",
                        MODULE_FILE, found->version, trp_version());
    module = found;
    return TRP_OK;
}

static trp_status module_open(void)
{
    char directory[PATH_MAX], *why = NULL;
    if (module)
        return TRP_OK;
    own_directory(directory);
    void *library = open_in(directory, "/", &why);
    if (!library)
        library = open_in(directory, "/../" TROUPE_LIBDIR "/", &why);
    if (!library)
        library = open_in("", "", &why);
    if (library)
        free(why);
    if (library)
        return module_found(library);
    if (!why)
        return trp_fail(TRP_UNAVAILABLE,
                        "%s, which GPUs need, is neither in %s nor where the loader looks: it is "
                        "part of a Troupe that was built where nvcc is",
                        MODULE_FILE, directory);
    trp_status status = trp_fail(TRP_UNAVAILABLE, "%s does not load: %s", MODULE_FILE, why);
    free(why);
    return status;
}

/* ---- GPUs ---------------------------------------------------------------------------------- */

static struct module_host host = {trp_fail, trp_log, NULL};

static trp_status device_open(struct cuda_device **out, uint32_t number)
{
    struct machine *machine;
    host.prefixes = nvidia_prefixes();
    TRP_TRY(module_open());
    TRP_TRY(module->open(&host, number, &machine));
    *out = xcalloc(1, sizeof **out);
    cuda_device_init(*out, machine);
    return TRP_OK;
}

trp_status cuda_find(trp_device **out, uint32_t number)
{
    trp_status status = TRP_OK;
    once_run(&once, mutex_prepare);
    mutex_lock(&mutex);
    if (!devices[number])
        status = device_open(&devices[number], number);
    *out = devices[number] ? &devices[number]->base : NULL;
    mutex_unlock(&mutex);
    return status;
}

trp_status cuda_count(uint32_t *count)
{
    *count = 0;
    once_run(&once, mutex_prepare);
    mutex_lock(&mutex);
    trp_status status = module_open();
    if (status == TRP_OK)
        status = module->count(&host, count);
    mutex_unlock(&mutex);
    return status;
}
