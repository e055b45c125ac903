#include "core/store_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"

static bool surely_missing(const char *path)
{
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool store_is_missing(const char *path)
{
    char *format = xasprintf("%s/FORMAT", path);
    bool missing = surely_missing(format);
    free(format);
    return missing;
}

char *store_dir_of(const char *path)
{
    char *inner = xasprintf("%s/replay", path);
    if (store_is_missing(path) && !store_is_missing(inner))
        return inner;
    free(inner);
    return xstrdup(path);
}
