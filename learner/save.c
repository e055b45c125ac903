/* Checkpoints of a learner. A crash can come at any moment, so a file is written whole or not at
 * all (checkpoint.h), and the one before it is kept until the new one is on the disk. The number of
 * steps is in the name, fixed width, so the newest is the last by name.
 *
 * A file has the updater's vectors and tensors under their own names, the learner's under
 * "learner.", and the clients' names as one note, a line each (publisher.c refuses control
 * characters in names). */
#include "save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/learner.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/buffer.h"
#include "limits.h"
#include "learner/modes/backup.h"

/* ---- files --------------------------------------------------------------------------------- */

#define NAME_FORMAT "learner-%020" PRIu64 ".safetensors"

static int has_end(const struct dirent *entry, const char *end)
{
    uint64_t steps;
    int at = 0;
    return sscanf(entry->d_name, "learner-%20" SCNu64 "%n", &steps, &at) == 1 &&
           strcmp(entry->d_name + at, end) == 0;
}

static int is_checkpoint(const struct dirent *entry)
{
    return has_end(entry, ".safetensors");
}

static int is_half_made(const struct dirent *entry)
{
    return has_end(entry, ".safetensors.tmp");
}

static int checkpoint_compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Names in ascending order, each and the list on the heap. */
static trp_status list_of(int (*is_one)(const struct dirent *), const char *dir,
                          struct dirent ***entries, size_t *count)
{
    int found = scandir(dir, entries, is_one, checkpoint_compare);
    *count = found > 0 ? (size_t)found : 0;
    if (found >= 0)
        return TRP_OK;
    *entries = NULL;
    return trp_fail(file_errno_status(errno, TRP_INTERNAL), "checkpoints: %s: %s", dir,
                    strerror(errno));
}

static trp_status list(const char *dir, struct dirent ***entries, size_t *count)
{
    return list_of(is_checkpoint, dir, entries, count);
}

static void list_free(struct dirent **entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

/* What a learner was writing when it was killed: the next one has another name. That of a living
 * one is locked (nn/checkpoint_write.c). */
static void remove_half_made(const char *dir)
{
    struct dirent **entries;
    size_t count;
    if (list_of(is_half_made, dir, &entries, &count) != TRP_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        char *path = xasprintf("%s/%s", dir, entries[i]->d_name);
        int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(path) != 0)
            trp_log(TRP_WARN, "half a checkpoint stays path=%s reason=%s", path, strerror(errno));
        fd_close(fd);
        free(path);
    }
    list_free(entries, count);
}

trp_status save_prepare(const char *dir, bool fresh)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return trp_fail(errno == EACCES ? TRP_PERMISSION_DENIED : TRP_FAILED_PRECONDITION,
                        "checkpoints: %s: %s", dir, strerror(errno));
    struct dirent **entries;
    size_t count;
    TRP_TRY(list(dir, &entries, &count));
    list_free(entries, count);
    if (fresh && count > 0)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "checkpoints: %s has those of another run: resume it, or use another "
                        "directory",
                        dir);
    remove_half_made(dir);
    return TRP_OK;
}

void save_tell_none(const char *dir)
{
    trp_log(TRP_WARN, "learner begins anew: there is no checkpoint to go on from dir=%s", dir);
}

/* A file that cannot be removed costs space, nothing else. */
static void remove_old(const char *dir)
{
    struct dirent **entries;
    size_t count;
    if (list(dir, &entries, &count) != TRP_OK)
        return;
    for (size_t i = 0; i + LEARNER_CHECKPOINTS_KEPT < count; i++) {
        char *path = xasprintf("%s/%s", dir, entries[i]->d_name);
        if (unlink(path) != 0)
            trp_log(TRP_WARN, "old checkpoint stays path=%s reason=%s", path, strerror(errno));
        free(path);
    }
    list_free(entries, count);
}

trp_status trp_learner_checkpoint_find(const char *dir, char **path)
{
    struct dirent **entries;
    size_t count;
    TRP_TRY(list(dir, &entries, &count));
    *path = count > 0 ? xasprintf("%s/%s", dir, entries[count - 1]->d_name) : NULL;
    list_free(entries, count);
    return *path ? TRP_OK : trp_fail(TRP_NOT_FOUND, "checkpoints: none in %s", dir);
}

enum { MOMENT_NUMBERS = 3 }; /* of a trp_moments */

static const uint64_t COUNTER_MAX = UINT64_C(1) << 62; /* a step a nanosecond for 146 years */

/* ---- writing ------------------------------------------------------------------------------- */

static void clients_take_statistics(struct saved_clients *clients)
{
    size_t width = 0;
    for (size_t i = 0; i < clients->count && width == 0; i++)
        width = clients->counts[i].statistic_count;
    if (width == 0)
        return;
    clients->statistic_count = width;
    clients->statistics = xcalloc(clients->count, width * sizeof *clients->statistics);
    clients->merged = xcalloc(width, sizeof *clients->merged);
    for (size_t i = 0; i < clients->count; i++) {
        if (!clients->counts[i].statistics)
            continue;
        memcpy(clients->statistics + i * width, clients->counts[i].statistics,
               width * sizeof *clients->statistics);
        trp_moments_merge(clients->merged, clients->counts[i].statistics, width);
    }
}

static void clients_take(struct saved_clients *clients, trp_publisher *publisher)
{
    clients->counts = trp_publisher_counts(publisher, &clients->count);
    clients->steps = xcalloc(clients->count + 1, sizeof *clients->steps);
    clients->episodes = xcalloc(clients->count + 1, sizeof *clients->episodes);
    for (size_t i = 0; i < clients->count; i++) {
        const char *name = clients->counts[i].name;
        clients->steps[i] = clients->counts[i].steps;
        clients->episodes[i] = clients->counts[i].episodes;
        buffer_append(&clients->names, text_bytes(name));
        buffer_append(&clients->names, text_bytes("\n"));
    }
    buffer_text(&clients->names);
    clients_take_statistics(clients);
}

static void clients_cleanup(struct saved_clients *clients)
{
    trp_publisher_counts_free(clients->counts, clients->count);
    free(clients->steps);
    free(clients->episodes);
    free(clients->statistics);
    free(clients->merged);
    buffer_cleanup(&clients->names);
    *clients = (struct saved_clients){0};
}

static trp_checkpoint_tensor u64s(const char *name, const uint64_t *values, size_t count)
{
    return (trp_checkpoint_tensor){
        .name = name, .type = TRP_CHECKPOINT_U64, .rank = 1, .shape = {count}, .data = values};
}

#define PUBLISHED_FORMAT "%zu %zu" /* first and count in "params" */

static void add_clients(struct saved *saved)
{
    const struct saved_clients *clients = &saved->clients;
    if (clients->count == 0)
        return;
    saved->tensors[saved->count++] = u64s("learner.client_steps", clients->steps, clients->count);
    saved->tensors[saved->count++] =
        u64s("learner.client_episodes", clients->episodes, clients->count);
    if (clients->statistic_count == 0)
        return;
    saved->tensors[saved->count++] =
        (trp_checkpoint_tensor){.name = "learner.client_statistics",
                                .type = TRP_CHECKPOINT_F64,
                                .rank = 3,
                                .shape = {clients->count, clients->statistic_count, MOMENT_NUMBERS},
                                .data = clients->statistics};
    saved->tensors[saved->count++] =
        (trp_checkpoint_tensor){.name = "learner.statistics",
                                .type = TRP_CHECKPOINT_F64,
                                .rank = 2,
                                .shape = {clients->statistic_count, MOMENT_NUMBERS},
                                .data = clients->merged};
}

void saved_gather(struct saved *saved, struct trp_update_run *update, trp_publisher *publisher,
                  const struct learner_progress *progress)
{
    struct published part = update_published(update);
    clients_cleanup(&saved->clients);
    clients_take(&saved->clients, publisher);
    saved->progress = *progress;
    saved->layout = part.layout;
    saved->count = saved->state_count = update_state(update, saved->tensors);
    saved->tensors[saved->count++] = u64s("learner.steps", &saved->progress.steps, 1);
    saved->tensors[saved->count++] = u64s("learner.version", &saved->progress.version, 1);
    saved->tensors[saved->count++] = u64s("learner.generation", &saved->progress.generation, 1);
    add_clients(saved);
    snprintf(saved->published, sizeof saved->published, PUBLISHED_FORMAT, part.first, part.count);
}

trp_status saved_copy(struct saved *saved)
{
    size_t size = 0;
    for (size_t i = 0; i < saved->state_count; i++)
        size += tensor_bytes(&saved->tensors[i]);
    if (size > saved->room) {
        free(saved->copy);
        saved->copy = malloc(size);
        saved->room = saved->copy ? size : 0;
    }
    if (size > saved->room)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a checkpoint of %zu bytes", size);
    uint8_t *at = saved->copy;
    for (size_t i = 0; i < saved->state_count; i++) {
        size = tensor_bytes(&saved->tensors[i]);
        if (size > 0)
            saved->tensors[i].data = memcpy(at, saved->tensors[i].data, size);
        at += size;
    }
    return TRP_OK;
}

trp_status saved_put(const struct saved *saved, const char *dir)
{
    const struct learner_progress *progress = &saved->progress;
    char version[24], steps[24];
    snprintf(version, sizeof version, "%" PRIu64, progress->version);
    snprintf(steps, sizeof steps, "%" PRIu64, progress->steps);
    trp_checkpoint_note notes[] = {{"version", version},
                                   {"learner_steps", steps},
                                   {"published", saved->published},
                                   {"layout", saved->layout},
                                   {"clients", (const char *)saved->clients.names.data}};
    char *path = xasprintf("%s/" NAME_FORMAT, dir, progress->steps);
    trp_status status = trp_checkpoint_write(path, saved->tensors, saved->count, notes,
                                             sizeof notes / sizeof notes[0]);
    free(path);
    if (status == TRP_OK)
        remove_old(dir);
    return status;
}

void saved_cleanup(struct saved *saved)
{
    clients_cleanup(&saved->clients);
    free(saved->copy);
    saved->copy = NULL;
    saved->room = 0;
}

trp_status save_write(const char *dir, struct trp_update_run *update, trp_publisher *publisher,
                      const struct learner_progress *progress)
{
    struct saved saved = {0};
    saved_gather(&saved, update, publisher, progress);
    trp_status status = saved_put(&saved, dir);
    saved_cleanup(&saved);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------- */

static size_t tensor_values(const trp_checkpoint_tensor *tensor)
{
    size_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i]; /* the updater's own memory has this many: no overflow */
    return count;
}

/* Where the checkpoint says what it publishes, it is what this run does. */
static trp_status check_published(const trp_checkpoint *checkpoint,
                                  const struct trp_update_run *update)
{
    struct published part = update_published(update);
    const char *published = trp_checkpoint_note_get(checkpoint, "published");
    const char *layout = trp_checkpoint_note_get(checkpoint, "layout");
    char mine[PUBLISHED_BYTES];
    snprintf(mine, sizeof mine, PUBLISHED_FORMAT, part.first, part.count);
    if (published && strcmp(published, mine) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "the part of params that is published (first, count) is %s in the "
                        "checkpoint and %s in this run",
                        published, mine);
    return trp_net_layout_compare(layout ? layout : "", "the checkpoint", part.layout, "this run");
}

/* One more than the largest is 0, which is no step. */
static trp_status check_counter(const char *name, uint64_t value)
{
    if (value <= COUNTER_MAX)
        return TRP_OK;
    return trp_fail(TRP_DATA_LOSS, "checkpoint: %s is %" PRIu64 ": no run gets so far", name,
                    value);
}

static trp_status load_update(const trp_checkpoint *checkpoint, struct trp_update_run *update)
{
    TRP_TRY(update_check_state(update, checkpoint));
    TRP_TRY(check_published(checkpoint, update));
    trp_checkpoint_tensor tensors[UPDATE_TENSORS_MAX];
    size_t count = update_state(update, tensors);
    for (size_t i = 0; i < count; i++)
        TRP_TRY(trp_checkpoint_get(checkpoint, tensors[i].name, tensors[i].type,
                                   tensor_values(&tensors[i]), (void *)tensors[i].data));
    for (size_t i = 0; i < update->updater->vector_count; i++) {
        const trp_phases *phases = update->vectors.each[i].phases.here;
        if (phases)
            TRP_TRY(check_counter(update->vectors.each[i].steps_name, phases->steps));
    }
    return update_store(update);
}

/* What the clients' environments saw, a row each. */
struct client_statistics {
    trp_moments *rows; /* NULL: nothing */
    size_t width;
};

static trp_status restore_clients(trp_publisher *publisher, const char *names,
                                  const uint64_t *steps, const uint64_t *episodes, size_t count,
                                  const struct client_statistics *seen)
{
    char *copy = xstrdup(names), *rest = copy;
    trp_status status = TRP_OK;
    for (size_t i = 0; i < count && status == TRP_OK; i++) {
        char *name = strsep(&rest, "\n");
        if (!name || name[0] == '\0')
            status = trp_fail(TRP_DATA_LOSS, "checkpoint: %zu clients, but %zu names", count, i);
        else
            status = trp_publisher_restore(
                publisher,
                &(trp_client_counts){.name = name,
                                     .steps = steps[i],
                                     .episodes = episodes[i],
                                     .statistics = seen->rows ? seen->rows + i * seen->width : NULL,
                                     .statistic_count = seen->width});
    }
    free(copy);
    return status;
}

static const trp_checkpoint_tensor *saved_tensor(const trp_checkpoint *checkpoint, const char *name,
                                                 uint32_t rank)
{
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(checkpoint, i);
        if (strcmp(tensor->name, name) == 0 && tensor->rank == rank)
            return tensor;
    }
    return NULL;
}

static trp_status load_seen(const trp_checkpoint *checkpoint, size_t clients,
                            struct client_statistics *seen)
{
    const trp_checkpoint_tensor *tensor = saved_tensor(checkpoint, "learner.client_statistics", 3);
    if (!tensor)
        return TRP_OK;
    if (tensor->shape[0] != clients || tensor->shape[1] > TRP_STATISTICS_MAX ||
        tensor->shape[2] != MOMENT_NUMBERS)
        return trp_fail(TRP_DATA_LOSS, "checkpoint: %s is not [%zu, n, %d]", tensor->name, clients,
                        MOMENT_NUMBERS);
    seen->width = tensor->shape[1];
    seen->rows = xcalloc(clients, (seen->width + 1) * sizeof *seen->rows);
    return trp_checkpoint_get(checkpoint, tensor->name, TRP_CHECKPOINT_F64,
                              clients * seen->width * MOMENT_NUMBERS, seen->rows);
}

static trp_status load_clients(const trp_checkpoint *checkpoint, trp_publisher *publisher)
{
    const trp_checkpoint_tensor *rows = saved_tensor(checkpoint, "learner.client_steps", 1);
    size_t count = rows ? rows->shape[0] : 0;
    struct client_statistics seen = {0};
    const char *names = trp_checkpoint_note_get(checkpoint, "clients");
    if (count == 0 || !names)
        return TRP_OK;
    uint64_t *steps = xcalloc(count, sizeof *steps), *episodes = xcalloc(count, sizeof *episodes);
    trp_status status =
        trp_checkpoint_get(checkpoint, "learner.client_steps", TRP_CHECKPOINT_U64, count, steps);
    if (status == TRP_OK)
        status = trp_checkpoint_get(checkpoint, "learner.client_episodes", TRP_CHECKPOINT_U64,
                                    count, episodes);
    if (status == TRP_OK)
        status = load_seen(checkpoint, count, &seen);
    if (status == TRP_OK)
        status = restore_clients(publisher, names, steps, episodes, count, &seen);
    free(seen.rows);
    free(steps);
    free(episodes);
    return status;
}

static trp_status load_one(const trp_checkpoint *checkpoint, struct trp_update_run *update,
                           trp_publisher *publisher, struct learner_progress *progress)
{
    TRP_TRY(
        trp_checkpoint_get(checkpoint, "learner.steps", TRP_CHECKPOINT_U64, 1, &progress->steps));
    TRP_TRY(trp_checkpoint_get(checkpoint, "learner.version", TRP_CHECKPOINT_U64, 1,
                               &progress->version));
    /* It may be an older one. */
    trp_status status = trp_checkpoint_get(checkpoint, "learner.generation", TRP_CHECKPOINT_U64, 1,
                                           &progress->generation);
    if (status == TRP_NOT_FOUND)
        progress->generation = 0;
    else
        TRP_TRY(status);
    TRP_TRY(check_counter("learner.steps", progress->steps));
    TRP_TRY(check_counter("learner.version", progress->version));
    TRP_TRY(check_counter("learner.generation", progress->generation));
    TRP_TRY(load_update(checkpoint, update));
    return load_clients(checkpoint, publisher);
}

/* Newest first: only a file that is no checkpoint at all is passed over. */
static trp_status load_newest(const char *dir, struct dirent **entries, size_t count,
                              trp_checkpoint **out)
{
    trp_status status = TRP_OK;
    for (size_t i = count; i-- > 0;) {
        char *path = xasprintf("%s/%s", dir, entries[i]->d_name);
        status = trp_checkpoint_read(out, path);
        free(path);
        if (status == TRP_OK)
            return TRP_OK;
        trp_log(TRP_WARN, "checkpoint passed over reason=%s", trp_last_error());
    }
    return status;
}

trp_status save_load(const char *dir, struct trp_update_run *update, trp_publisher *publisher,
                     struct learner_progress *progress, bool *found)
{
    struct dirent **entries;
    size_t count;
    TRP_TRY(list(dir, &entries, &count));
    *found = count > 0;
    trp_checkpoint *checkpoint = NULL;
    trp_status status = TRP_OK;
    if (*found)
        status = load_newest(dir, entries, count, &checkpoint);
    if (checkpoint)
        status = load_one(checkpoint, update, publisher, progress);
    trp_checkpoint_destroy(checkpoint);
    list_free(entries, count);
    return status;
}
