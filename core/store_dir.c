#include "core/store_dir.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"

static bool surely_missing(const char *path)
{
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

char *store_dir_of(const char *path)
{
    char *format = xasprintf("%s/FORMAT", path), *inner = xasprintf("%s/replay", path);
    char *inner_format = xasprintf("%s/FORMAT", inner);
    bool run = surely_missing(format) && !surely_missing(inner_format);
    free(inner_format);
    free(format);
    if (run)
        return inner;
    free(inner);
    return xstrdup(path);
}
