/* Writing safetensors so that a reader sees the old file or the new one, whatever dies when. The
 * temporary file has a fixed name, so that the next write replaces what a killed one left; a lock
 * on it keeps two writers of one path apart. Tensors of wide types come first, which aligns all. */
#include "checkpoint.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "limits.h"

enum { HEADER_STEP = 64, WIDEST_TYPE = 8 };

struct tensor_file {
    const char *path;
    char *temporary;
    int fd; /* -1: not open */
    const trp_checkpoint_tensor *tensors;
    size_t tensor_count;
    const trp_checkpoint_note *notes;
    size_t note_count;
    cJSON *header;
};

static trp_status fail_errno(const char *path)
{
    int error = errno;
    return trp_fail(file_errno_status(error, TRP_INTERNAL), "%s: %s", path,
                    file_errno_words(error));
}

/* ---- the header -------------------------------------------------------------------------- */

static trp_status check_new_name(const struct tensor_file *w, const cJSON *object, const char *name)
{
    if (name[0] == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: a tensor or note has no name", w->path);
    if (strcmp(name, CHECKPOINT_METADATA) == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: a tensor cannot be named %s", w->path, name);
    if (cJSON_GetObjectItemCaseSensitive(object, name))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: two tensors or notes are named %s", w->path,
                        name);
    return TRP_OK;
}

static trp_status add_notes(struct tensor_file *w)
{
    cJSON *notes = cJSON_AddObjectToObject(w->header, CHECKPOINT_METADATA);
    cJSON_AddStringToObject(notes, CHECKPOINT_SUM, CHECKPOINT_NO_SUM); /* found before any text */
    for (size_t i = 0; i < w->note_count; i++) {
        TRP_TRY(check_new_name(w, notes, w->notes[i].key));
        cJSON_AddStringToObject(notes, w->notes[i].key, w->notes[i].value);
    }
    return TRP_OK;
}

static trp_status header_add_tensor(struct tensor_file *w, const trp_checkpoint_tensor *tensor,
                                    size_t *offset)
{
    TRP_TRY(check_new_name(w, w->header, tensor->name));
    size_t bytes, end;
    if (tensor->rank > TRP_CHECKPOINT_RANK_MAX || !checkpoint_tensor_bytes(tensor, &bytes) ||
        !size_add(*offset, bytes, &end))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: tensor %s has an impossible shape", w->path,
                        tensor->name);
    cJSON *entry = cJSON_AddObjectToObject(w->header, tensor->name);
    cJSON_AddStringToObject(entry, "dtype", checkpoint_type_name(tensor->type));
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    for (uint32_t i = 0; i < tensor->rank; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[i]));
    cJSON *range = cJSON_AddArrayToObject(entry, "data_offsets");
    cJSON_AddItemToArray(range, cJSON_CreateNumber((double)*offset));
    cJSON_AddItemToArray(range, cJSON_CreateNumber((double)end));
    *offset = end;
    return TRP_OK;
}

static trp_status sum_tensor(struct tensor_file *w, const trp_checkpoint_tensor *tensor,
                             size_t *sum)
{
    (void)w;
    size_t bytes = 0;
    checkpoint_tensor_bytes(tensor, &bytes);
    *sum = crc32c((uint32_t)*sum, tensor->data, bytes);
    return TRP_OK;
}

/* Calls `work` for every tensor, the widest types first, with what the ones before came to. */
static trp_status each_tensor(struct tensor_file *w,
                              trp_status (*work)(struct tensor_file *,
                                                 const trp_checkpoint_tensor *, size_t *),
                              size_t *so_far)
{
    for (size_t width = WIDEST_TYPE; width > 0; width /= 2)
        for (size_t i = 0; i < w->tensor_count; i++)
            if (checkpoint_type_bytes(w->tensors[i].type) == width)
                TRP_TRY(work(w, &w->tensors[i], so_far));
    return TRP_OK;
}

/* In the place of its zeros. */
static trp_status fill_sum(struct tensor_file *w, uint8_t *header, size_t header_bytes)
{
    size_t sum = crc32c(0, header, header_bytes);
    TRP_TRY(each_tensor(w, sum_tensor, &sum));
    char text[CHECKPOINT_SUM_DIGITS + 1];
    snprintf(text, sizeof text, "%08" PRIx32, (uint32_t)sum);
    memcpy(checkpoint_sum_find((char *)header, header_bytes), text, CHECKPOINT_SUM_DIGITS);
    return TRP_OK;
}

/* Length and header, padded with spaces so that the data starts at a multiple of 64. */
static trp_status header_create(struct tensor_file *w, uint8_t **out, size_t *size)
{
    w->header = cJSON_CreateObject();
    size_t offset = 0;
    TRP_TRY(add_notes(w));
    TRP_TRY(each_tensor(w, header_add_tensor, &offset));
    char *text = cJSON_PrintUnformatted(w->header);
    size_t length = text ? strlen(text) : SIZE_MAX;
    if (length > CHECKPOINT_HEADER_BYTES_MAX - HEADER_STEP) {
        free(text);
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: the header would pass 100 MB", w->path);
    }
    uint64_t padded = (length + 8 + HEADER_STEP - 1) / HEADER_STEP * HEADER_STEP - 8;
    *size = padded + 8;
    *out = xmalloc(*size);
    memset(*out, ' ', *size);
    memcpy(*out, &padded, 8);
    memcpy(*out + 8, text, length);
    free(text);
    return fill_sum(w, *out, *size);
}

/* ---- the file ---------------------------------------------------------------------------- */

static trp_status write_bytes(const struct tensor_file *w, const void *data, size_t size)
{
    errno = file_write(w->fd, data, size);
    return errno == 0 ? TRP_OK : fail_errno(w->temporary);
}

static trp_status write_tensor(struct tensor_file *w, const trp_checkpoint_tensor *tensor,
                               size_t *offset)
{
    size_t bytes = 0;
    checkpoint_tensor_bytes(tensor, &bytes);
    *offset += bytes;
    return write_bytes(w, tensor->data, bytes);
}

/* Opens and locks the temporary file. Another writer may rename it between our open and our lock:
 * then the lock is on the finished checkpoint, and we start over. */
static trp_status temporary_open(struct tensor_file *w)
{
    enum { TRIES_MAX = 8 };
    for (int i = 0; i < TRIES_MAX; i++) {
        struct stat opened, named;
        w->fd = own_file_open(w->temporary, O_WRONLY | O_CREAT, 0666);
        if (w->fd < 0)
            return fail_errno(w->temporary);
        if (flock(w->fd, LOCK_EX | LOCK_NB) == 0 && fstat(w->fd, &opened) == 0 &&
            stat(w->temporary, &named) == 0 && opened.st_ino == named.st_ino)
            return ftruncate(w->fd, 0) == 0 ? TRP_OK : fail_errno(w->temporary);
        close(w->fd);
        w->fd = -1;
    }
    return trp_fail(TRP_ABORTED, "%s is being written by another process", w->path);
}

static trp_status write_file(struct tensor_file *w, const uint8_t *header, size_t header_bytes)
{
    size_t offset = 0;
    TRP_TRY(temporary_open(w));
    trp_status status = write_bytes(w, header, header_bytes);
    if (status == TRP_OK)
        status = each_tensor(w, write_tensor, &offset);
    if (status == TRP_OK && fsync(w->fd) != 0)
        status = fail_errno(w->temporary);
    if (status == TRP_OK && rename(w->temporary, w->path) != 0)
        status = fail_errno(w->path);
    if (status != TRP_OK)
        unlink(w->temporary); /* still locked, so still ours */
    if (status == TRP_OK && (errno = name_sync(w->path)) != 0)
        status = fail_errno(w->path);
    return status;
}

trp_status trp_checkpoint_write(const char *path, const trp_checkpoint_tensor *tensors,
                                size_t tensor_count, const trp_checkpoint_note *notes,
                                size_t note_count)
{
    struct tensor_file w = {
        .path = path,
        .temporary = xasprintf("%s.tmp", path),
        .fd = -1,
        .tensors = tensors,
        .tensor_count = tensor_count,
        .notes = notes,
        .note_count = note_count,
    };
    uint8_t *header = NULL;
    size_t header_bytes = 0;
    trp_status status = header_create(&w, &header, &header_bytes);
    if (status == TRP_OK)
        status = write_file(&w, header, header_bytes);
    if (w.fd >= 0)
        close(w.fd);
    cJSON_Delete(w.header);
    free(header);
    free(w.temporary);
    return status;
}
