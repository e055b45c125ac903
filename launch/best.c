#include "best.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/array.h"
#include "core/file.h"
#include "core/words.h"

struct file {
    double mean;
    char *path;
};

/* What a directory has. */
struct best {
    struct file *files;
    uint32_t count, capacity;
};

static trp_status dir_fails(const char *dir, const char *what)
{
    return trp_fail(file_errno_status(errno, TRP_INTERNAL), "cannot %s %s: %s", what, dir,
                    file_errno_words(errno));
}

/* Takes over `path`. */
static void add_file(struct best *best, double mean, char *path)
{
    *ARRAY_PUSH(best->files, best->count, best->capacity) = (struct file){mean, path};
}

/* Files of another name are not ours. */
static void read_name(struct best *best, const char *dir, const char *name)
{
    double mean;
    uint64_t version;
    int end = 0;
    if (sscanf(name, "return_%lf_version_%" SCNu64 ".safetensors%n", &mean, &version, &end) == 2 &&
        end > 0 && name[end] == '\0' && isfinite(mean))
        add_file(best, mean, xasprintf("%s/%s", dir, name));
}

static trp_status read_dir(struct best *best, const char *dir)
{
    DIR *open = opendir(dir);
    if (!open)
        return errno == ENOENT ? TRP_OK : dir_fails(dir, "read");
    for (const struct dirent *entry; (entry = readdir(open));)
        read_name(best, dir, entry->d_name);
    closedir(open);
    return TRP_OK;
}

static void best_cleanup(struct best *best)
{
    for (uint32_t i = 0; i < best->count; i++)
        free(best->files[i].path);
    free(best->files);
}

/* There is at least one. */
static uint32_t find_worst(const struct best *best)
{
    uint32_t worst = 0;
    for (uint32_t i = 1; i < best->count; i++)
        if (best->files[i].mean < best->files[worst].mean)
            worst = i;
    return worst;
}

static void remove_worst(struct best *best)
{
    uint32_t worst = find_worst(best);
    char *path = best->files[worst].path;
    if (unlink(path) != 0 && errno != ENOENT)
        trp_log(TRP_WARN, "cannot remove %s: %s", path, strerror(errno));
    free(path);
    best->files[worst] = best->files[--best->count];
}

static trp_status keep_file(struct best *best, const char *dir, double mean,
                            const trp_params_state *state, const trp_policy *policy)
{
    if ((errno = own_dir_make(dir, 0700)) != 0)
        return dir_fails(dir, "make");
    char digits[DECIMAL_BYTES];
    char *path = xasprintf("%s/return_%s_version_%" PRIu64 ".safetensors", dir,
                           double_decimal(mean, digits), state->version);
    trp_status status = trp_params_write(path, state, policy);
    if (status == TRP_OK)
        add_file(best, mean, path);
    else
        free(path);
    return status;
}

trp_status best_offer(const char *dir, uint32_t most, double mean, const trp_params_state *state,
                      const trp_policy *policy)
{
    struct best best = {0};
    if (most == 0 || !isfinite(mean))
        return TRP_OK;
    trp_status status = read_dir(&best, dir);
    if (status == TRP_OK && (best.count < most || mean > best.files[find_worst(&best)].mean))
        status = keep_file(&best, dir, mean, state, policy);
    while (status == TRP_OK && best.count > most)
        remove_worst(&best);
    best_cleanup(&best);
    return status;
}
