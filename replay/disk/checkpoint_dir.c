/* Problem: checkpoints pile up and have to go, but a wrong guess about what a directory is loses
 * what cannot be made again. Design: a checkpoint names its store, and only files whose names a
 * checkpoint has are ever removed, one by one, never a tree. A directory is renamed before its
 * files go, so that half of one never counts.
 * Guarantee: what another store or a person put there stays. */
#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/file.h"
#include "limits.h"

static const char head_line[] = "troupe replay checkpoint\n";
static const char info_name[] = "CHECKPOINT";

char *checkpoint_root(const char *store_dir, const char *option)
{
    return option && *option ? xstrdup(option) : xasprintf("%s/checkpoints", store_dir);
}

char *checkpoint_temporary(const char *store)
{
    return xasprintf(".making-%s-", store);
}

void checkpoint_info_cleanup(struct checkpoint_info *info)
{
    for (size_t i = 0; i < info->table_count; i++)
        free(info->tables[i].options);
    free(info->tables);
    free(info->path);
    free(info->problem);
    *info = (struct checkpoint_info){0};
}

void checkpoint_list_cleanup(struct checkpoint_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        checkpoint_info_cleanup(&list->at[i]);
    free(list->at);
    *list = (struct checkpoint_list){0};
}

/* ---- CHECKPOINT ----------------------------------------------------------------------------- */

static void table_parse(struct checkpoint_info *info, const char *line)
{
    struct checkpoint_table table = {0};
    int at = 0;
    if (sscanf(line, "table %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %n", &table.size,
               &table.inserts, &table.samples, &table.deletes, &at) != 4 ||
        at == 0)
        return;
    table.options = xstrdup(line + at);
    *ARRAY_PUSH(info->tables, info->table_count, info->table_capacity) = table;
}

static void line_parse(struct checkpoint_info *info, const char *line)
{
    if (sscanf(line, "created %" SCNd64, &info->created_at_ns) == 1 ||
        sscanf(line, "store %32[0-9a-f]", info->store) == 1 ||
        sscanf(line, "bytes %" SCNu64, &info->bytes) == 1 ||
        sscanf(line, "items %" SCNu64, &info->items) == 1 ||
        sscanf(line, "chunks %" SCNu64, &info->chunks) == 1 ||
        sscanf(line, "damaged %" SCNu64, &info->damaged) == 1)
        return;
    table_parse(info, line);
}

/* Why a checkpoint that has this CHECKPOINT is not whole. */
static char *problem_find(const struct checkpoint_info *info, const char *dir)
{
    struct stat data;
    char *path = xasprintf("%s/data.mdb", dir), *problem = NULL;
    if (info->bytes == 0 || info->store[0] == '\0')
        problem = xstrdup("CHECKPOINT is cut short");
    else if (stat(path, &data) != 0)
        problem = xasprintf("data.mdb: %s", strerror(errno));
    else if ((uint64_t)data.st_size != info->bytes)
        problem = xasprintf("data.mdb has %" PRIu64 " bytes of %" PRIu64, (uint64_t)data.st_size,
                            info->bytes);
    else if (store_format_check(dir) != TRP_OK)
        problem = xstrdup(trp_last_error());
    free(path);
    return problem;
}

trp_status checkpoint_info_read(struct checkpoint_info *info, const char *dir)
{
    *info = (struct checkpoint_info){0};
    char *path = xasprintf("%s/%s", dir, info_name);
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    bool ours = file && getline(&line, &capacity, file) > 0 && strcmp(line, head_line) == 0;
    int error = file ? 0 : errno;
    while (ours && getline(&line, &capacity, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        line_parse(info, line);
    }
    if (file)
        fclose(file);
    free(line);
    free(path);
    if (error != 0 && error != ENOENT && error != ENOTDIR)
        return store_errno(error, dir, "read CHECKPOINT");
    if (!ours)
        return trp_fail(TRP_NOT_FOUND, "%s is no checkpoint", dir);
    info->path = xstrdup(dir);
    info->problem = problem_find(info, dir);
    return TRP_OK;
}

trp_status checkpoint_info_write(const struct checkpoint_info *info, const char *dir)
{
    char *path = xasprintf("%s/%s", dir, info_name);
    FILE *file = store_path_write(path);
    if (file) {
        fputs(head_line, file);
        fprintf(file, "created %" PRId64 "\nstore %s\nbytes %" PRIu64 "\n", info->created_at_ns,
                info->store, info->bytes);
        fprintf(file, "items %" PRIu64 "\nchunks %" PRIu64 "\ndamaged %" PRIu64 "\n", info->items,
                info->chunks, info->damaged);
        for (size_t i = 0; i < info->table_count; i++) {
            const struct checkpoint_table *table = &info->tables[i];
            fprintf(file, "table %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s\n", table->size,
                    table->inserts, table->samples, table->deletes, table->options);
        }
    }
    bool good = file && fflush(file) == 0 && fsync(fileno(file)) == 0;
    trp_status status = good ? TRP_OK : store_errno(errno, path, "write");
    if (file)
        fclose(file);
    free(path);
    return status;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static int newest_first(const void *left, const void *right)
{
    const struct checkpoint_info *a = left, *b = right;
    if (a->created_at_ns != b->created_at_ns)
        return a->created_at_ns < b->created_at_ns ? 1 : -1;
    return strcmp(b->path, a->path);
}

/* Itself, not what a link leads to: that is somebody else's, or counted already. */
static bool is_directory(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

trp_status checkpoint_list_read(struct checkpoint_list *list, const char *root)
{
    *list = (struct checkpoint_list){0};
    DIR *entries = opendir(root);
    if (!entries)
        return errno == ENOENT ? TRP_OK : store_errno(errno, root, "open");
    for (struct dirent *entry = readdir(entries); entry && list->count < CHECKPOINTS_MAX;
         entry = readdir(entries)) {
        struct checkpoint_info info;
        if (entry->d_name[0] == '.')
            continue;
        char *path = xasprintf("%s/%s", root, entry->d_name);
        if (is_directory(path) && checkpoint_info_read(&info, path) == TRP_OK)
            *ARRAY_PUSH(list->at, list->count, list->capacity) = info;
        free(path);
    }
    closedir(entries);
    if (list->count > 1)
        qsort(list->at, list->count, sizeof *list->at, newest_first);
    return TRP_OK;
}

char *checkpoint_newest(const char *root)
{
    struct checkpoint_list list;
    char *path = NULL;
    if (checkpoint_list_read(&list, root) == TRP_OK)
        for (size_t i = 0; i < list.count && !path; i++)
            if (!list.at[i].problem)
                path = realpath(list.at[i].path, NULL);
    checkpoint_list_cleanup(&list);
    return path;
}

/* ---- removal -------------------------------------------------------------------------------- */

void checkpoint_remove(const char *dir)
{
    static const char *const names[] = {"CHECKPOINT", "FORMAT", "STATE", "LOCK", "data.mdb"};
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i < sizeof names / sizeof *names; i++)
        unlinkat(fd, names[i], 0);
    fd_close(fd);
    rmdir(dir);
}

/* A path that is removal already stays so once. */
static void removal_push(struct checkpoint_removal *removal, const char *path)
{
    for (size_t i = 0; i < removal->count; i++)
        if (strcmp(removal->paths[i], path) == 0)
            return;
    *ARRAY_PUSH(removal->paths, removal->count, removal->capacity) = xstrdup(path);
}

trp_status checkpoint_removal_add_old(struct checkpoint_removal *removal, const char *root,
                                      const char *store, uint32_t keep)
{
    struct checkpoint_list list;
    TRP_TRY(checkpoint_list_read(&list, root));
    size_t whole = 0, first = 0; /* of those that may go */
    for (; first < list.count && whole < keep; first++)
        whole += !list.at[first].problem && strcmp(list.at[first].store, store) == 0;
    for (size_t i = list.count; whole > 0 && i > first; i--)
        if (strcmp(list.at[i - 1].store, store) == 0)
            removal_push(removal, list.at[i - 1].path);
    checkpoint_list_cleanup(&list);
    return TRP_OK;
}

/* Whether a path's directory is `root`, however either is written. */
static bool is_in(const char *path, const char *root)
{
    char *parent = xasprintf("%s/..", path);
    char *of_path = realpath(parent, NULL), *of_root = realpath(root, NULL);
    bool same = of_path && of_root && strcmp(of_path, of_root) == 0;
    free(parent);
    free(of_path);
    free(of_root);
    return same;
}

bool checkpoint_is_of(const char *checkpoint, const char *store_dir)
{
    char *root = checkpoint_root(store_dir, NULL);
    bool is = is_in(checkpoint, root);
    free(root);
    return is;
}

trp_status checkpoint_removal_add(struct checkpoint_removal *removal, const char *root,
                                  const char *name)
{
    struct checkpoint_info info;
    size_t size = strlen(name);
    while (size > 0 && name[size - 1] == '/')
        size--;
    const char *last = memrchr(name, '/', size);
    size_t start = last ? (size_t)(last + 1 - name) : 0;
    char *path = xasprintf("%s/%.*s", root, (int)(size - start), name + start);
    bool there = size > start && name[start] != '.' && (!last || is_in(name, root)) &&
                 is_directory(path) && checkpoint_info_read(&info, path) == TRP_OK;
    if (there) {
        removal_push(removal, path);
        checkpoint_info_cleanup(&info);
    }
    free(path);
    return there ? TRP_OK : trp_fail(TRP_NOT_FOUND, "%s has no checkpoint %s", root, name);
}

/* It is renamed before its files go. */
static trp_status retire(const char *path)
{
    struct checkpoint_info info;
    TRP_TRY(checkpoint_info_read(&info, path));
    const char *name = strrchr(path, '/') + 1;
    char *mark = checkpoint_temporary(info.store);
    char *gone = xasprintf("%.*s%s%s", (int)(name - path), path, mark, name);
    trp_status status = TRP_OK;
    if (rename(path, gone) == 0)
        checkpoint_remove(gone);
    else
        status = store_errno(errno, path, "remove a checkpoint");
    free(gone);
    free(mark);
    checkpoint_info_cleanup(&info);
    return status;
}

trp_status checkpoint_removal_run(const struct checkpoint_removal *removal)
{
    for (size_t i = 0; i < removal->count; i++)
        TRP_TRY(retire(removal->paths[i]));
    return TRP_OK;
}

void checkpoint_removal_cleanup(struct checkpoint_removal *removal)
{
    for (size_t i = 0; i < removal->count; i++)
        free(removal->paths[i]);
    free(removal->paths);
    *removal = (struct checkpoint_removal){0};
}

void checkpoint_sweep(const char *root, const char *store)
{
    DIR *entries = opendir(root);
    char *mark = checkpoint_temporary(store);
    for (struct dirent *entry = entries ? readdir(entries) : NULL; entry;
         entry = readdir(entries)) {
        if (strncmp(entry->d_name, mark, strlen(mark)) != 0)
            continue;
        char *path = xasprintf("%s/%s", root, entry->d_name);
        checkpoint_remove(path);
        free(path);
    }
    if (entries)
        closedir(entries);
    free(mark);
}
