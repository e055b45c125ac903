/* Files and addresses that options name. Nodes find out themselves what is wrong with them; but
 * whoever has mistyped one is told before anything has begun, as of any wrong option. */
#include "places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/address.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/store_dir.h"

char *place_of_shard(const char *dir, uint32_t index, uint32_t count)
{
    if (!dir)
        return NULL;
    return count > 1 ? xasprintf("%s.%u", dir, index) : xstrdup(dir);
}

static trp_status check_is_there(const struct node_group *group, const char *option,
                                 const char *path)
{
    if (access(path, R_OK) == 0)
        return TRP_OK;
    return trp_fail(TRP_NOT_FOUND, "%s '%s': .%s is %s: %s", node_kind_word(group->kind),
                    group->name, option, path, file_errno_words(errno));
}

/* Whose run stored something knows the run. */
static trp_status check_dataset(const struct node_group *group)
{
    const char *path = group->options.learner.dataset;
    TRP_TRY(check_is_there(group, "dataset", path));
    char *store = store_dir_of(path);
    trp_status status = TRP_OK;
    if (strcmp(store, path) != 0)
        status = trp_fail(TRP_INVALID_ARGUMENT,
                          "%s '%s': .dataset is %s, a run and no replay store; its store is %s",
                          node_kind_word(group->kind), group->name, path, store);
    else if (store_is_missing(path))
        status = trp_fail(TRP_INVALID_ARGUMENT,
                          "%s '%s': .dataset is %s, in which there is no replay store",
                          node_kind_word(group->kind), group->name, path);
    free(store);
    return status;
}

/* Only a store that is new begins with a checkpoint. */
static trp_status check_restore(const struct node_group *group, bool resume)
{
    const trp_replay_options *options = &group->options.replay;
    trp_status status = TRP_OK;
    if (!options->restore || (resume && !options->dir))
        return TRP_OK;
    for (uint32_t i = 0; i < group->count && status == TRP_OK; i++) {
        char *dir = place_of_shard(options->dir, i, group->count);
        char *from = place_of_shard(options->restore, i, group->count);
        if (!dir || access(dir, F_OK) != 0)
            status = check_is_there(group, "restore", from);
        free(from);
        free(dir);
    }
    return status;
}

static trp_status check_address(const struct node_group *group)
{
    const trp_replay_options *options = &group->options.replay;
    struct address address;
    if (!options->address)
        return TRP_OK;
    trp_status status = address_init(&address, options->address, options->insecure);
    if (status != TRP_OK)
        return trp_fail(status, "%s '%s': %s", node_kind_word(group->kind), group->name,
                        trp_last_error());
    address_cleanup(&address);
    return TRP_OK;
}

trp_status addresses_are_right(const trp_program *program)
{
    for (size_t i = 0; i < program->group_count; i++)
        if (program->groups[i]->kind == NODE_REPLAY)
            TRP_TRY(check_address(program->groups[i]));
    return TRP_OK;
}

trp_status places_are_there(const trp_program *program, bool resume)
{
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        if (group->kind == NODE_LEARNER && group->options.learner.dataset)
            TRP_TRY(check_dataset(group));
        if (group->kind == NODE_REPLAY)
            TRP_TRY(check_restore(group, resume));
    }
    return TRP_OK;
}

trp_status place_is_writable(const char *path)
{
    struct stat info;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? xasprintf("%.*s", (int)(slash - path) + 1, path) : xstrdup(".");
    int error = access(dir, W_OK | X_OK) == 0 ? 0 : errno;
    free(dir);
    if (error == 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        error = EISDIR;
    return error == 0 ? TRP_OK
                      : trp_fail(file_errno_status(error, TRP_FAILED_PRECONDITION), "%s: %s", path,
                                 file_errno_words(error));
}
