#include "core/nvidia.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"

/* Under a prefix: a toolkit's, and those of wheels. */
static const char *const folders[] = {"lib64", "lib", "lib/python3*/site-packages/nvidia/*/lib",
                                      "lib64/python3*/site-packages/nvidia/*/lib",
                                      "lib/python3*/dist-packages/nvidia/*/lib"};

static const char *const system_prefixes[] = {
    "/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda",   "/usr", "/usr/local",
    "/opt/*",          "/opt/*/envs/*",     "/opt/*/.venv"};

/* Under the user's home: pip --user, environments of venv, pyenv and conda. */
static const char *const home_prefixes[] = {".local", "*", ".venv", ".pyenv/versions/*",
                                            "*/envs/*"};

static const char *prefixes = "";

void nvidia_look_under(const char *more)
{
    prefixes = more;
}

const char *nvidia_prefixes(void)
{
    return prefixes;
}

/* ---- what an environment has -------------------------------------------------------------- */

enum { PYTHON_LINKS_MAX = 8 };

static void add_prefix(char **list, const char *prefix, size_t length)
{
    char *longer = xasprintf("%s:%.*s", *list, (int)length, prefix);
    free(*list);
    *list = longer;
}

/* How much of a path is left without its last name. */
static size_t length_above(const char *path, size_t length)
{
    while (length > 0 && path[length - 1] != '/')
        length--;
    return length > 0 ? length - 1 : 0;
}

/* An environment's python3 is a link to that of the Python which it was made of. */
static void add_python(char **list, const char *directory, size_t length)
{
    char *path = xasprintf("%.*s/python3", (int)length, directory);
    for (int links = 0; links < PYTHON_LINKS_MAX && access(path, X_OK) == 0; links++) {
        char target[1024];
        size_t bin = length_above(path, strlen(path));
        add_prefix(list, path, length_above(path, bin));
        ssize_t bytes = readlink(path, target, sizeof target);
        if (bytes <= 0 || (size_t)bytes == sizeof target)
            break;
        bool absolute = *target == '/';
        char *next = xasprintf("%.*s%s%.*s", absolute ? 0 : (int)bin, path, absolute ? "" : "/",
                               (int)bytes, target);
        free(path);
        path = next;
    }
    free(path);
}

void nvidia_look_about(char *(*value_of)(const char *name))
{
    static const char *const names[] = {"CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX"};
    static char *about; /* for the life of the process */
    const char *path = value_of("PATH");
    if (!about) {
        about = xstrdup("");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const char *value = value_of(names[i]);
            if (value)
                add_prefix(&about, value, strlen(value));
        }
        for (const char *at = path ? path : ""; *at;) {
            size_t length = strcspn(at, ":");
            if (*at == '/')
                add_python(&about, at, length);
            at += length + (at[length] == ':');
        }
    }
    nvidia_look_under(about);
}

/* ---- looking ------------------------------------------------------------------------------ */

static bool open_at(struct nvidia_library *library, const char *path)
{
    library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library->handle)
        return false;
    struct link_map *map = NULL;
    bool known = dlinfo(library->handle, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name;
    snprintf(library->path, sizeof library->path, "%s", known ? map->l_name : path);
    return true;
}

/* The last one that matches, of several versions of Python for one. Keeps in
 * `path` why one that exists does not load. */
static bool open_matching(struct nvidia_library *library, const char *pattern)
{
    glob_t found;
    bool opened = false;
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t i = found.gl_pathc; i-- > 0 && !opened;) {
        opened = open_at(library, found.gl_pathv[i]);
        if (!opened)
            snprintf(library->path, sizeof library->path, "%s", dlerror());
    }
    globfree(&found);
    return opened;
}

/* `prefix` is a pattern of `length` bytes under `base`. */
static bool open_under(struct nvidia_library *library, const char *base, const char *prefix,
                       size_t length, const char *name)
{
    bool opened = false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !opened; i++) {
        char *pattern = xasprintf("%s%.*s/%s/%s", base, (int)length, prefix, folders[i], name);
        opened = open_matching(library, pattern);
        free(pattern);
    }
    return opened;
}

static bool open_under_prefixes(struct nvidia_library *library, const char *name)
{
    bool opened = false;
    for (const char *at = prefixes; *at && !opened;) {
        size_t length = strcspn(at, ":");
        if (length > 0)
            opened = open_under(library, "", at, length, name);
        at += length + (at[length] == ':');
    }
    return opened;
}

static bool open_at_home(struct nvidia_library *library, const char *name)
{
    char room[4096];
    struct passwd user, *found = NULL;
    if (getpwuid_r(getuid(), &user, room, sizeof room, &found) != 0 || !found)
        return false;
    char *home = xasprintf("%s/", user.pw_dir);
    bool opened = false;
    for (size_t i = 0; i < sizeof home_prefixes / sizeof *home_prefixes && !opened; i++)
        opened = open_under(library, home, home_prefixes[i], strlen(home_prefixes[i]), name);
    free(home);
    return opened;
}

void nvidia_open(struct nvidia_library *library, const char *name)
{
    library->handle = NULL;
    snprintf(library->path, sizeof library->path,
             "%s is neither where the loader looks nor in /usr/local/cuda or site-packages/nvidia "
             "of a Python",
             name);
    if (open_under_prefixes(library, name) || open_at(library, name))
        return;
    for (size_t i = 0; i < sizeof system_prefixes / sizeof *system_prefixes; i++)
        if (open_under(library, "", system_prefixes[i], strlen(system_prefixes[i]), name))
            return;
    open_at_home(library, name);
}
