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

/* Under a prefix. */
static const char *const folders[] = {"lib64", "lib"};

/* Under that of a Python, each one a prefix itself. */
static const char *const wheels[] = {"lib/python3*/site-packages/nvidia/*",
                                     "lib64/python3*/site-packages/nvidia/*",
                                     "lib/python3*/dist-packages/nvidia/*"};

static const char *const toolkits[] = {"/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda"};

static const char *const system_prefixes[] = {"/usr", "/usr/local", "/opt/*", "/opt/*/envs/*",
                                              "/opt/*/.venv"};

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

static void add_prefix(char **list, const char *prefix)
{
    char *longer = xasprintf("%s%s:", *list, prefix);
    free(*list);
    *list = longer;
}

/* All else of a Python's prefix is the system's, as /usr/lib64, or whoever's. */
static void add_wheels(char **list, const char *prefix, size_t length)
{
    for (size_t i = 0; i < sizeof wheels / sizeof *wheels; i++) {
        char *folder = xasprintf("%.*s/%s", (int)length, prefix, wheels[i]);
        add_prefix(list, folder);
        free(folder);
    }
}

static bool is_environment(const char *prefix, size_t length)
{
    char *path = xasprintf("%.*s/pyvenv.cfg", (int)length, prefix);
    bool found = access(path, F_OK) == 0;
    free(path);
    return found;
}

/* How much of a path is left without its last name. */
static size_t length_above(const char *path, size_t length)
{
    while (length > 0 && path[length - 1] != '/')
        length--;
    return length > 0 ? length - 1 : 0;
}

/* An environment's python3 is a link to that of the Python which it was made of. */
static void add_python(char **environments, char **others, const char *directory, size_t length)
{
    char *path = xasprintf("%.*s/python3", (int)length, directory);
    for (int links = 0; links < PYTHON_LINKS_MAX && access(path, X_OK) == 0; links++) {
        char target[1024];
        size_t bin = length_above(path, strlen(path)), prefix = length_above(path, bin);
        add_wheels(is_environment(path, prefix) ? environments : others, path, prefix);
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
        char *entered = xstrdup(""), *others = xstrdup("");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const char *value = value_of(names[i]);
            if (value && *value)
                add_prefix(&entered, value);
        }
        for (const char *at = path ? path : ""; *at;) {
            size_t length = strcspn(at, ":");
            if (*at == '/')
                add_python(&entered, &others, at, length);
            at += length + (at[length] == ':');
        }
        about = xasprintf("%s:%s", entered, others);
        free(entered);
        free(others);
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

static bool open_in_folders(struct nvidia_library *library, const char *prefix, const char *name)
{
    bool opened = false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !opened; i++) {
        char *pattern = xasprintf("%s/%s/%s", prefix, folders[i], name);
        opened = open_matching(library, pattern);
        free(pattern);
    }
    return opened;
}

/* `prefix` is a pattern. */
static bool open_under(struct nvidia_library *library, const char *prefix, const char *name)
{
    bool opened = open_in_folders(library, prefix, name);
    for (size_t i = 0; i < sizeof wheels / sizeof *wheels && !opened; i++) {
        char *folder = xasprintf("%s/%s", prefix, wheels[i]);
        opened = open_in_folders(library, folder, name);
        free(folder);
    }
    return opened;
}

static bool open_of_machine(struct nvidia_library *library, const char *name)
{
    bool opened = open_at(library, name);
    for (size_t i = 0; i < sizeof toolkits / sizeof *toolkits && !opened; i++)
        opened = open_under(library, toolkits[i], name);
    return opened;
}

/* The machine's turn is at the first empty prefix, else the last one. */
static bool open_in_turn(struct nvidia_library *library, const char *name)
{
    bool opened = false, machine = false;
    for (const char *at = prefixes; *at && !opened;) {
        size_t length = strcspn(at, ":");
        char *prefix = xasprintf("%.*s", (int)length, at);
        if (length > 0)
            opened = open_under(library, prefix, name);
        else if (!machine)
            opened = open_of_machine(library, name);
        machine = machine || length == 0;
        free(prefix);
        at += length + (at[length] == ':');
    }
    return opened || (!machine && open_of_machine(library, name));
}

static bool open_at_home(struct nvidia_library *library, const char *name)
{
    char room[4096];
    struct passwd user, *found = NULL;
    if (getpwuid_r(getuid(), &user, room, sizeof room, &found) != 0 || !found)
        return false;
    bool opened = false;
    for (size_t i = 0; i < sizeof home_prefixes / sizeof *home_prefixes && !opened; i++) {
        char *prefix = xasprintf("%s/%s", user.pw_dir, home_prefixes[i]);
        opened = open_under(library, prefix, name);
        free(prefix);
    }
    return opened;
}

void nvidia_open(struct nvidia_library *library, const char *name)
{
    library->handle = NULL;
    snprintf(library->path, sizeof library->path,
             "%s is neither where the loader looks nor in /usr/local/cuda or site-packages/nvidia "
             "of a Python",
             name);
    if (open_in_turn(library, name))
        return;
    for (size_t i = 0; i < sizeof system_prefixes / sizeof *system_prefixes; i++)
        if (open_under(library, system_prefixes[i], name))
            return;
    open_at_home(library, name);
}
