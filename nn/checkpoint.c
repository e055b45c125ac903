/* Reading safetensors: eight bytes of header length, a JSON header, the data. The file may be cut,
 * corrupt or somebody else's, so nothing is believed: lengths are compared with what is there
 * before memory is taken, every tensor's range with its shape, the ranges with each other, as they
 * must cover the data without gap or overlap, and all of it with its sum. What comes back is then
 * safe to use by pointer. */
#include "checkpoint.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "limits.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors is little-endian");

enum { LENGTH_BYTES = 8, DATA_ALIGNMENT = 64 };

struct trp_checkpoint {
    char *name;    /* for messages */
    uint8_t *data; /* aligned */
    size_t data_bytes;
    cJSON *header;                  /* owns names and notes */
    trp_checkpoint_tensor *tensors; /* in the order of their data */
    const trp_checkpoint_tensor **by_name;
    size_t tensor_count;
};

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [TRP_CHECKPOINT_F32] = {"F32", 4}, [TRP_CHECKPOINT_F64] = {"F64", 8},
    [TRP_CHECKPOINT_I64] = {"I64", 8}, [TRP_CHECKPOINT_U64] = {"U64", 8},
    [TRP_CHECKPOINT_U8] = {"U8", 1},
};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

const char *checkpoint_type_name(trp_checkpoint_type type)
{
    return types[type].name;
}

size_t checkpoint_type_bytes(trp_checkpoint_type type)
{
    return types[type].bytes;
}

bool checkpoint_tensor_bytes(const trp_checkpoint_tensor *tensor, size_t *bytes)
{
    *bytes = types[tensor->type].bytes;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (!size_mul(*bytes, tensor->shape[i], bytes))
            return false;
    return true;
}

/* ---- the header -------------------------------------------------------------------------- */

static trp_status corrupt(const trp_checkpoint *c, const char *what)
{
    return trp_fail(TRP_DATA_LOSS, "%s is not a valid safetensors file: %s", c->name, what);
}

static trp_status corrupt_tensor(const trp_checkpoint *c, const cJSON *entry, const char *what)
{
    return trp_fail(TRP_DATA_LOSS, "%s is not a valid safetensors file: tensor %.200s %s", c->name,
                    entry->string, what);
}

/* A JSON number that is a size; doubles are exact up to 2^53. */
static bool parse_extent(const cJSON *item, uint64_t *size)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 0x1p53) ||
        item->valuedouble != floor(item->valuedouble))
        return false;
    *size = (uint64_t)item->valuedouble;
    return true;
}

static trp_status parse_type(const trp_checkpoint *c, const cJSON *entry, trp_checkpoint_type *type)
{
    const char *word = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));
    if (!word)
        return corrupt_tensor(c, entry, "has no dtype");
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (strcmp(word, types[i].name) == 0) {
            *type = (trp_checkpoint_type)i;
            return TRP_OK;
        }
    return trp_fail(TRP_UNIMPLEMENTED,
                    "%s: tensor %.200s has type %.32s; F32, F64, I64, U64 and "
                    "U8 can be read",
                    c->name, entry->string, word);
}

static trp_status parse_shape(const trp_checkpoint *c, const cJSON *entry,
                              trp_checkpoint_tensor *tensor)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape"), *item;
    if (!cJSON_IsArray(shape))
        return corrupt_tensor(c, entry, "has no shape");
    cJSON_ArrayForEach(item, shape)
    {
        if (tensor->rank == TRP_CHECKPOINT_RANK_MAX)
            return trp_fail(TRP_UNIMPLEMENTED, "%s: tensor %.200s has more than %d dimensions",
                            c->name, entry->string, TRP_CHECKPOINT_RANK_MAX);
        if (!parse_extent(item, &tensor->shape[tensor->rank++]))
            return corrupt_tensor(c, entry, "has a shape that is no list of sizes");
    }
    return TRP_OK;
}

static trp_status parse_range(const trp_checkpoint *c, const cJSON *entry,
                              trp_checkpoint_tensor *tensor)
{
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    uint64_t from, to;
    if (!cJSON_IsArray(range) || cJSON_GetArraySize(range) != 2 ||
        !parse_extent(cJSON_GetArrayItem(range, 0), &from) ||
        !parse_extent(cJSON_GetArrayItem(range, 1), &to))
        return corrupt_tensor(c, entry, "has no data_offsets");
    if (from > to || to > c->data_bytes)
        return corrupt_tensor(c, entry, "lies outside of the data");
    size_t bytes;
    if (!checkpoint_tensor_bytes(tensor, &bytes) || bytes != to - from)
        return corrupt_tensor(c, entry, "has a shape that differs from its data_offsets");
    tensor->data = c->data + from;
    return TRP_OK;
}

static trp_status parse_entry(const trp_checkpoint *c, const cJSON *entry,
                              trp_checkpoint_tensor *tensor)
{
    if (!cJSON_IsObject(entry))
        return corrupt_tensor(c, entry, "is no object");
    *tensor = (trp_checkpoint_tensor){.name = entry->string};
    TRP_TRY(parse_type(c, entry, &tensor->type));
    TRP_TRY(parse_shape(c, entry, tensor));
    return parse_range(c, entry, tensor);
}

static trp_status check_notes(const trp_checkpoint *c, const cJSON *notes)
{
    const cJSON *note;
    if (!cJSON_IsObject(notes))
        return corrupt(c, "__metadata__ is no object");
    cJSON_ArrayForEach(note, notes)
    {
        if (!cJSON_IsString(note))
            return corrupt(c, "__metadata__ has a value that is no string");
    }
    return TRP_OK;
}

static int compare_places(const void *left, const void *right)
{
    const trp_checkpoint_tensor *a = left, *b = right;
    if (a->data != b->data)
        return (const uint8_t *)a->data < (const uint8_t *)b->data ? -1 : 1;
    size_t a_bytes = 0, b_bytes = 0; /* empty tensors first */
    checkpoint_tensor_bytes(a, &a_bytes);
    checkpoint_tensor_bytes(b, &b_bytes);
    return (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_names(const void *left, const void *right)
{
    const trp_checkpoint_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static trp_status check_cover(const trp_checkpoint *c)
{
    const uint8_t *end = c->data;
    for (size_t i = 0; i < c->tensor_count; i++) {
        size_t bytes = 0;
        checkpoint_tensor_bytes(&c->tensors[i], &bytes);
        if (c->tensors[i].data != end)
            return corrupt(c, "its tensors overlap or leave a gap");
        end += bytes;
    }
    if (end != c->data + c->data_bytes)
        return corrupt(c, "it has data that belongs to no tensor");
    for (size_t i = 1; i < c->tensor_count; i++)
        if (strcmp(c->by_name[i - 1]->name, c->by_name[i]->name) == 0)
            return corrupt(c, "two tensors have one name");
    return TRP_OK;
}

static trp_status parse_header(trp_checkpoint *c, const char *text, size_t size)
{
    const char *end = NULL;
    if (size == 0 || text[0] != '{')
        return corrupt(c, "its header is no JSON object");
    c->header = cJSON_ParseWithLengthOpts(text, size, &end, false);
    if (!c->header)
        return corrupt(c, "its header is no JSON");
    for (; end < text + size; end++)
        if (*end != ' ' && *end != '\n' && *end != '\r' && *end != '\t')
            return corrupt(c, "something follows the JSON of its header");
    size_t entries = (size_t)cJSON_GetArraySize(c->header);
    c->tensors = xcalloc(entries, sizeof *c->tensors);
    c->by_name = xcalloc(entries, sizeof *c->by_name);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, c->header)
    {
        if (strcmp(entry->string, CHECKPOINT_METADATA) == 0)
            TRP_TRY(check_notes(c, entry));
        else
            TRP_TRY(parse_entry(c, entry, &c->tensors[c->tensor_count++]));
    }
    qsort(c->tensors, c->tensor_count, sizeof *c->tensors, compare_places);
    for (size_t i = 0; i < c->tensor_count; i++)
        c->by_name[i] = &c->tensors[i];
    qsort(c->by_name, c->tensor_count, sizeof *c->by_name, compare_names);
    return check_cover(c);
}

char *checkpoint_sum_find(char *header, size_t size)
{
    static const char key[] = "\"" CHECKPOINT_SUM "\":\"";
    char *found = memmem(header, size, key, sizeof key - 1);
    char *digits = found ? found + sizeof key - 1 : NULL;
    if (!digits || header + size - digits <= CHECKPOINT_SUM_DIGITS)
        return NULL;
    return digits[CHECKPOINT_SUM_DIGITS] == '"' ? digits : NULL;
}

/* A sum that is there, and not as it is written here, was written by somebody else. */
static trp_status check_unread_sum(const trp_checkpoint *c, const char *digits)
{
    if (digits || !trp_checkpoint_note_get(c, CHECKPOINT_SUM))
        return TRP_OK;
    return trp_fail(TRP_DATA_LOSS,
                    "%s is damaged, or its header was written again: its " CHECKPOINT_SUM
                    " cannot be compared (if it was changed on purpose, leave that out of "
                    "its " CHECKPOINT_METADATA ")",
                    c->name);
}

/* Of length, header and data. Files of other libraries, and older ones, do not say it. */
static trp_status check_sum(const trp_checkpoint *c, char *header, uint64_t size, char *digits)
{
    char written[CHECKPOINT_SUM_DIGITS], now[CHECKPOINT_SUM_DIGITS + 1];
    if (!digits)
        return TRP_OK;
    memcpy(written, digits, sizeof written);
    memcpy(digits, CHECKPOINT_NO_SUM, sizeof written);
    uint32_t sum = crc32c(crc32c(0, &size, sizeof size), header, size);
    snprintf(now, sizeof now, "%08" PRIx32, crc32c(sum, c->data, c->data_bytes));
    memcpy(digits, written, sizeof written);
    if (memcmp(written, now, sizeof written) == 0)
        return TRP_OK;
    return trp_fail(TRP_DATA_LOSS,
                    "%s is damaged: its CRC-32C is %s, and was another when it was written (if it "
                    "was changed on purpose, leave " CHECKPOINT_SUM
                    " out of its " CHECKPOINT_METADATA ")",
                    c->name, now);
}

/* ---- the file ---------------------------------------------------------------------------- */

/* Fills `to` from `source`: memory, or a file. */
struct checkpoint_source {
    trp_bytes bytes;
    int fd; /* -1: bytes */
};

static trp_status source_take(const trp_checkpoint *c, struct checkpoint_source *source, void *to,
                              size_t size)
{
    if (source->fd < 0) {
        assert(size <= source->bytes.size); /* lengths were compared before */
        if (size > 0)
            memcpy(to, source->bytes.data, size);
        source->bytes.data += size;
        source->bytes.size -= size;
        return TRP_OK;
    }
    for (size_t done = 0; done < size;) {
        ssize_t got = read(source->fd, (uint8_t *)to + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return trp_fail(file_errno_status(errno, TRP_INTERNAL), "%s: %s", c->name,
                            strerror(errno));
        if (got == 0)
            return corrupt(c, "it became shorter while it was read");
        done += (size_t)got;
    }
    return TRP_OK;
}

static trp_status parse_source(trp_checkpoint *c, struct checkpoint_source *source, uint64_t size)
{
    uint64_t header_bytes;
    if (size < LENGTH_BYTES)
        return corrupt(c, "it is shorter than 8 bytes");
    TRP_TRY(source_take(c, source, &header_bytes, sizeof header_bytes));
    if (header_bytes > CHECKPOINT_HEADER_BYTES_MAX || header_bytes > size - LENGTH_BYTES)
        return corrupt(c, "its header is longer than the file or than 100 MB");
    c->data_bytes = size - LENGTH_BYTES - header_bytes;
    char *header = malloc(header_bytes + 1);
    size_t room = 0;
    if (size_add(c->data_bytes, DATA_ALIGNMENT, &room))
        c->data = aligned_alloc(DATA_ALIGNMENT, room - room % DATA_ALIGNMENT);
    trp_status status = TRP_OK;
    char *digits = NULL;
    if (!header || !c->data)
        status = trp_fail(TRP_RESOURCE_EXHAUSTED, "%s needs %zu bytes of memory", c->name,
                          c->data_bytes);
    if (status == TRP_OK)
        status = source_take(c, source, header, header_bytes);
    if (status == TRP_OK)
        status = source_take(c, source, c->data, c->data_bytes);
    if (status == TRP_OK)
        digits = checkpoint_sum_find(header, header_bytes);
    if (status == TRP_OK)
        status = check_sum(c, header, header_bytes, digits);
    if (status == TRP_OK)
        status = parse_header(c, header, header_bytes);
    if (status == TRP_OK)
        status = check_unread_sum(c, digits);
    free(header);
    return status;
}

static trp_status checkpoint_open(trp_checkpoint **out, const char *name,
                                  struct checkpoint_source *source, uint64_t size)
{
    trp_checkpoint *c = xcalloc(1, sizeof *c);
    c->name = xstrdup(name);
    trp_status status = parse_source(c, source, size);
    if (status != TRP_OK) {
        trp_checkpoint_destroy(c);
        return status;
    }
    *out = c;
    return TRP_OK;
}

trp_status trp_checkpoint_read(trp_checkpoint **out, const char *path)
{
    struct checkpoint_source source = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (source.fd < 0)
        return trp_fail(file_errno_status(errno, TRP_INTERNAL), "%s: %s", path, strerror(errno));
    struct stat stat;
    trp_status status;
    if (fstat(source.fd, &stat) != 0)
        status = trp_fail(file_errno_status(errno, TRP_INTERNAL), "%s: %s", path, strerror(errno));
    else if (!S_ISREG(stat.st_mode))
        status = trp_fail(TRP_DATA_LOSS, "%s is not a valid safetensors file: it is %s", path,
                          S_ISDIR(stat.st_mode) ? "a directory" : "no file");
    else
        status = checkpoint_open(out, path, &source, (uint64_t)stat.st_size);
    close(source.fd);
    return status;
}

trp_status trp_checkpoint_parse(trp_checkpoint **out, trp_bytes bytes, const char *name)
{
    struct checkpoint_source source = {.bytes = bytes, .fd = -1};
    return checkpoint_open(out, name, &source, bytes.size);
}

void trp_checkpoint_destroy(trp_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    cJSON_Delete(checkpoint->header);
    free(checkpoint->by_name);
    free(checkpoint->tensors);
    free(checkpoint->data);
    free(checkpoint->name);
    free(checkpoint);
}

size_t trp_checkpoint_tensor_count(const trp_checkpoint *checkpoint)
{
    return checkpoint->tensor_count;
}

const trp_checkpoint_tensor *trp_checkpoint_tensor_at(const trp_checkpoint *checkpoint,
                                                      size_t index)
{
    assert(index < checkpoint->tensor_count);
    return &checkpoint->tensors[index];
}

trp_status trp_checkpoint_get(const trp_checkpoint *checkpoint, const char *name,
                              trp_checkpoint_type type, size_t count, void *data)
{
    const trp_checkpoint_tensor wanted = {.name = name}, *key = &wanted;
    const trp_checkpoint_tensor **found =
        bsearch(&key, checkpoint->by_name, checkpoint->tensor_count, sizeof key, compare_names);
    if (!found)
        return trp_fail(TRP_NOT_FOUND, "%s has no tensor %s", checkpoint->name, name);
    size_t bytes = 0;
    checkpoint_tensor_bytes(*found, &bytes);
    size_t has = bytes / types[(*found)->type].bytes;
    if ((*found)->type != type || has != count)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: tensor %s is %s[%zu], wanted is %s[%zu]",
                        checkpoint->name, name, types[(*found)->type].name, has, types[type].name,
                        count);
    if (bytes > 0)
        memcpy(data, (*found)->data, bytes);
    return TRP_OK;
}

const char *trp_checkpoint_note_get(const trp_checkpoint *checkpoint, const char *key)
{
    const cJSON *notes = cJSON_GetObjectItemCaseSensitive(checkpoint->header, CHECKPOINT_METADATA);
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(notes, key));
}
