/* Problem: numpy's .npz wants each column as one array, items come with all their columns, and a
 * table may be larger than memory.
 * Design: every column is spooled to a file without a name next to the target, behind room for a
 * numpy header; when all items are there the headers are filled in and libzip packs the spools. A
 * column whose items differ in shape or type becomes one array an item, "column_1/INDEX".
 * Guarantee: memory does not grow with the number of items while their shapes agree; the file
 * appears whole or not at all (libzip writes beside it and renames). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/npy.h"
#include "interrupt.h"
#include "json.h"
#include "npz.h"
#include "sink.h"

const char *const npz_fixed_names[FIXED] = {"keys", "priorities", "times_sampled", "inserted_at",
                                            "policy_versions"};
const int32_t npz_fixed_types[FIXED] = {TRP_UINT64, TRP_FLOAT64, TRP_INT32, TRP_INT64, TRP_UINT64};

enum { PATH_BYTES = 64 };

struct npy_shape {
    int32_t dtype; /* 0: the item has no such column */
    uint32_t rank, squeezed;
    int64_t dims[TRP_RANK_MAX];
    uint64_t bytes;
};

struct spool {
    char *name;
    FILE *file;
    uint64_t items;
    struct npy_shape first;
    struct npy_shape *shapes; /* of every item; NULL: all are like the first */
    size_t capacity;
};

/* What NPZ_TABLES will say of a table. */
struct note {
    cJSON *json;
    size_t first; /* spools of the table begin here */
};

struct npz_file {
    char *path, *dir;
    bool many;
    struct note *notes;
    size_t table_count;
    char *prefix;
    struct spool *spools; /* of all tables */
    size_t count;
    size_t table_first; /* spools of the current table begin here */
    uint64_t items;     /* of the current table */
    char **names;       /* of its columns, where the signature gives them */
    size_t name_count;
    struct progress_line *progress;
};

/* ---- spools ------------------------------------------------------------------------------ */

static trp_status spool_broken(const struct npz_file *npz, const char *what)
{
    return trp_fail(TRP_INTERNAL, "%s: %s: %s", npz->path, what, strerror(errno));
}

static trp_status spool_file(const struct npz_file *npz, FILE **file)
{
    int fd = open(npz->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    *file = fd >= 0 ? fdopen(fd, "w+") : NULL;
    return *file ? TRP_OK
                 : trp_fail(TRP_INTERNAL, "%s: cannot write in %s: %s", npz->path, npz->dir,
                            strerror(errno));
}

/* Takes `name`. */
static trp_status spool_add(struct npz_file *npz, char *name)
{
    npz->spools = xrealloc(npz->spools, (npz->count + 1) * sizeof *npz->spools);
    struct spool *spool = &npz->spools[npz->count++];
    char header[NPY_HEADER_BYTES] = "";
    *spool = (struct spool){.name = name};
    TRP_TRY(spool_file(npz, &spool->file));
    return fwrite(header, 1, sizeof header, spool->file) == sizeof header
               ? TRP_OK
               : spool_broken(npz, "spooling");
}

static void shapes_note(struct spool *spool, const struct npy_shape *shape)
{
    bool same = spool->items > 0 && memcmp(shape, &spool->first, sizeof *shape) == 0;
    if (spool->items == 0)
        spool->first = *shape;
    if (spool->items > 0 && !same && !spool->shapes) {
        spool->capacity = 2 * spool->items + 16;
        spool->shapes = xcalloc(spool->capacity, sizeof *spool->shapes);
        for (uint64_t i = 0; i < spool->items; i++)
            spool->shapes[i] = spool->first;
    }
    if (spool->shapes && spool->items == spool->capacity) {
        spool->capacity *= 2;
        spool->shapes = xrealloc(spool->shapes, spool->capacity * sizeof *spool->shapes);
    }
    if (spool->shapes)
        spool->shapes[spool->items] = *shape;
    spool->items++;
}

static trp_status spool_put(struct npz_file *npz, struct spool *spool, const trp_item_array *array)
{
    struct npy_shape shape;
    memset(&shape, 0, sizeof shape); /* compared as bytes */
    shape.dtype = array->dtype;
    shape.rank = array->rank;
    shape.squeezed = array->squeezed;
    memcpy(shape.dims, array->shape, array->rank * sizeof *shape.dims);
    shape.bytes = array->data.size;
    if (array->data.size &&
        fwrite(array->data.data, 1, array->data.size, spool->file) != array->data.size)
        return spool_broken(npz, "spooling");
    shapes_note(spool, &shape);
    return TRP_OK;
}

static trp_status scalar_put(struct npz_file *npz, size_t which, const void *value)
{
    int32_t dtype = npz_fixed_types[which];
    const trp_item_array array = {
        .dtype = dtype, .squeezed = true, .data = {value, trp_dtype_size((trp_dtype)dtype)}};
    return spool_put(npz, &npz->spools[npz->table_first + which], &array);
}

/* ---- the sink ---------------------------------------------------------------------------- */

static trp_status npz_sink_open(void **state, const char *path, bool many)
{
    struct npz_file *npz = xcalloc(1, sizeof *npz);
    const char *slash = strrchr(path, '/');
    npz->path = xstrdup(path);
    npz->dir =
        slash ? xasprintf("%.*s", slash == path ? 1 : (int)(slash - path), path) : xstrdup(".");
    npz->many = many;
    *state = npz;
    return TRP_OK;
}

static void names_clear(struct npz_file *npz)
{
    for (size_t i = 0; i < npz->name_count; i++)
        free(npz->names[i]);
    free(npz->names);
    npz->names = NULL;
    npz->name_count = 0;
}

static void note_add(struct npz_file *npz, const Troupe__ReplayTable *table)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "table", table->name);
    cJSON_AddStringToObject(json, "prefix", npz->prefix);
    cJSON_AddStringToObject(json, "options", table->options);
    cJSON_AddItemToObject(json, "signature",
                          json_base64((trp_bytes){table->signature.data, table->signature.len}));
    npz->notes = xrealloc(npz->notes, (npz->table_count + 1) * sizeof *npz->notes);
    npz->notes[npz->table_count++] = (struct note){json, npz->count};
}

/* Its first slash ends a table's name: one in the name is %2F. */
static char *table_prefix(const char *name)
{
    struct buffer out = {0};
    for (; *name; name++) {
        const char *bytes = *name == '/' ? "%2F" : *name == '%' ? "%25" : name;
        buffer_append(&out, (trp_bytes){(const uint8_t *)bytes, bytes == name ? 1 : 3});
    }
    buffer_append(&out, (trp_bytes){(const uint8_t *)"/", 2});
    return (char *)out.data;
}

static trp_status npz_table(void *state, const Troupe__ReplayTable *table)
{
    struct npz_file *npz = state;
    free(npz->prefix);
    npz->prefix = npz->many ? table_prefix(table->name) : xstrdup("");
    npz->table_first = npz->count;
    npz->items = 0;
    note_add(npz, table);
    names_clear(npz);
    npz->names = xcalloc(table->n_columns + 1, sizeof(char *));
    for (; npz->name_count < table->n_columns; npz->name_count++)
        npz->names[npz->name_count] = xstrdup(table->columns[npz->name_count]);
    for (size_t i = 0; i < FIXED; i++) {
        TRP_TRY(spool_add(npz, xasprintf("%s%s", npz->prefix, npz_fixed_names[i])));
        npz->spools[npz->count - 1].first.dtype = npz_fixed_types[i]; /* of an empty table, too */
    }
    return TRP_OK;
}

/* Where it is not one array it is `name`/0, `name`/1, ... */
static bool is_item_of(const char *member, const char *name)
{
    size_t size = strlen(name);
    return strncmp(member, name, size) == 0 && member[size] == '/' && member[size + 1] &&
           member[size + 1 + strspn(member + size + 1, "0123456789")] == '\0';
}

static bool name_is_taken(const struct npz_file *npz, const char *name)
{
    for (size_t i = npz->table_first; i < npz->count; i++) {
        const char *other = npz->spools[i].name;
        if (strcmp(other, name) == 0 || is_item_of(other, name) || is_item_of(name, other))
            return true;
    }
    return strcmp(name, NPZ_TABLES) == 0;
}

/* What the signature calls a column, unless there is an array of that name; else its number. */
static char *column_member(const struct npz_file *npz, size_t index)
{
    char *name = index < npz->name_count ? xasprintf("%s%s", npz->prefix, npz->names[index])
                                         : xasprintf("%scolumn_%zu", npz->prefix, index);
    for (unsigned more = 0; name_is_taken(npz, name); more++) {
        free(name);
        name = more == 0 ? xasprintf("%scolumn_%zu", npz->prefix, index)
                         : xasprintf("%scolumn_%zu_%u", npz->prefix, index, more);
    }
    return name;
}

/* Items that came before a column was first seen have none. */
static trp_status column_add(struct npz_file *npz, size_t index)
{
    static const trp_item_array none = {.dtype = 0};
    TRP_TRY(spool_add(npz, column_member(npz, index)));
    struct spool *spool = &npz->spools[npz->count - 1];
    for (uint64_t i = 0; i < npz->items; i++)
        TRP_TRY(spool_put(npz, spool, &none));
    return TRP_OK;
}

static bool npz_holds(int32_t dtype)
{
    return dtype == 0 || npy_type(dtype);
}

static trp_status npz_item(void *state, const trp_item_data *item)
{
    static const trp_item_array none = {.dtype = 0};
    struct npz_file *npz = state;
    TRP_TRY(scalar_put(npz, KEYS, &item->key));
    TRP_TRY(scalar_put(npz, PRIORITIES, &item->priority));
    TRP_TRY(scalar_put(npz, TIMES_SAMPLED, &item->times_sampled));
    TRP_TRY(scalar_put(npz, INSERTED_AT, &item->inserted_at_ns));
    TRP_TRY(scalar_put(npz, POLICY_VERSIONS, &item->policy_version));
    size_t columns = npz->count - npz->table_first - FIXED;
    if (npz->items == 0 && item->column_count != npz->name_count)
        names_clear(npz);
    for (size_t i = columns; i < item->column_count; i++)
        TRP_TRY(column_add(npz, i));
    columns = npz->count - npz->table_first - FIXED;
    for (size_t i = 0; i < columns; i++)
        TRP_TRY(spool_put(npz, &npz->spools[npz->table_first + FIXED + i],
                          i < item->column_count ? &item->columns[i] : &none));
    npz->items++;
    return TRP_OK;
}

/* A header of one array; of all items stacked when `items` is given. */
static void header_write(char *out, const struct npy_shape *shape, const uint64_t *items)
{
    struct npy_header header = {.rank = 0};
    snprintf(header.type, sizeof header.type, "%s", npy_type(shape->dtype));
    if (items)
        header.dims[header.rank++] = (int64_t)*items;
    for (uint32_t i = 0; i < shape->rank; i++)
        header.dims[header.rank++] = shape->dims[i];
    npy_header_write(out, &header);
}

/* ---- packing ----------------------------------------------------------------------------- */

/* Bytes of an open file without a name, as a member of the archive. */
static trp_status member_add(struct npz_file *npz, zip_t *zip, FILE *file, uint64_t start,
                             uint64_t size, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    zip_source_t *source = zip_source_file(zip, path, start, (zip_int64_t)size);
    char *member = xasprintf("%s.npy", name);
    bool ok = source && zip_file_add(zip, member, source, ZIP_FL_ENC_UTF_8) >= 0;
    if (!ok) {
        zip_source_free(source);
        trp_fail(TRP_INTERNAL, "%s: %s", npz->path, zip_strerror(zip));
    }
    free(member);
    return ok ? TRP_OK : TRP_INTERNAL;
}

static trp_status stacked_add(struct npz_file *npz, zip_t *zip, struct spool *spool)
{
    char header[NPY_HEADER_BYTES];
    struct npy_shape shape = spool->first;
    if (shape.dtype == 0)
        return TRP_OK;
    header_write(header, &shape, &spool->items);
    uint64_t size = NPY_HEADER_BYTES + spool->items * shape.bytes;
    if (fflush(spool->file) != 0 || fseek(spool->file, 0, SEEK_SET) != 0 ||
        fwrite(header, 1, sizeof header, spool->file) != sizeof header || fflush(spool->file) != 0)
        return spool_broken(npz, "spooling");
    return member_add(npz, zip, spool->file, 0, size, spool->name);
}

static trp_status copy_bytes(struct npz_file *npz, FILE *from, FILE *to, uint64_t size)
{
    char block[1 << 14];
    while (size > 0) {
        size_t part = size < sizeof block ? (size_t)size : sizeof block;
        if (fread(block, 1, part, from) != part || fwrite(block, 1, part, to) != part)
            return spool_broken(npz, "spooling");
        size -= part;
    }
    return TRP_OK;
}

/* One array an item: the spool is copied with a header before each, and the copy replaces it. */
static trp_status ragged_add(struct npz_file *npz, zip_t *zip, struct spool *spool)
{
    FILE *from = spool->file, *to;
    char header[NPY_HEADER_BYTES];
    TRP_TRY(spool_file(npz, &to));
    spool->file = to;
    trp_status status = TRP_OK;
    if (fflush(from) != 0 || fseek(from, NPY_HEADER_BYTES, SEEK_SET) != 0)
        status = spool_broken(npz, "spooling");
    for (uint64_t i = 0; status == TRP_OK && i < spool->items; i++) {
        if (spool->shapes[i].dtype == 0)
            continue;
        header_write(header, &spool->shapes[i], NULL);
        if (fwrite(header, 1, sizeof header, to) != sizeof header)
            status = spool_broken(npz, "spooling");
        if (status == TRP_OK)
            status = copy_bytes(npz, from, to, spool->shapes[i].bytes);
    }
    if (status == TRP_OK && fflush(to) != 0)
        status = spool_broken(npz, "spooling");
    fclose(from);
    uint64_t start = 0;
    for (uint64_t i = 0; status == TRP_OK && i < spool->items; i++) {
        if (spool->shapes[i].dtype == 0)
            continue;
        char *name = xasprintf("%s/%" PRIu64, spool->name, i);
        uint64_t size = NPY_HEADER_BYTES + spool->shapes[i].bytes;
        status = member_add(npz, zip, to, start, size, name);
        start += size;
        free(name);
    }
    return status;
}

/* Of a column: its name, type, and which of its items have no time axis: all, none, or these. */
static cJSON *column_note(const struct npz_file *npz, const struct spool *spool)
{
    const struct npy_shape *first = &spool->first;
    cJSON *out = cJSON_CreateObject();
    bool mixed = false;
    for (uint64_t i = 0; spool->shapes && i < spool->items; i++) {
        first = first->dtype == 0 ? &spool->shapes[i] : first;
        mixed = mixed || (spool->shapes[i].dtype != 0 && first->dtype != 0 &&
                          spool->shapes[i].squeezed != first->squeezed);
    }
    cJSON_AddStringToObject(out, "name", spool->name + strlen(npz->prefix));
    if (first->dtype != 0)
        cJSON_AddStringToObject(out, "dtype", trp_dtype_name((trp_dtype)first->dtype));
    if (!mixed) {
        cJSON_AddBoolToObject(out, "squeezed", first->squeezed);
        return out;
    }
    cJSON *those = cJSON_AddArrayToObject(out, "squeezed");
    for (uint64_t i = 0; i < spool->items; i++)
        if (spool->shapes[i].squeezed)
            cJSON_AddItemToArray(those, cJSON_CreateNumber((double)i));
    return out;
}

/* Last, as a member that is no array: numpy gives its bytes. */
static trp_status notes_add(struct npz_file *npz, zip_t *zip)
{
    struct buffer text = {0};
    for (size_t i = 0; i < npz->table_count; i++) {
        struct note *note = &npz->notes[i];
        size_t end = i + 1 < npz->table_count ? npz->notes[i + 1].first : npz->count;
        free(npz->prefix);
        npz->prefix = xstrdup(cJSON_GetStringValue(cJSON_GetObjectItem(note->json, "prefix")));
        cJSON *columns = cJSON_AddArrayToObject(note->json, "columns");
        for (size_t j = note->first + FIXED; j < end; j++)
            cJSON_AddItemToArray(columns, column_note(npz, &npz->spools[j]));
        char *line = cJSON_PrintUnformatted(note->json);
        buffer_append(&text, text_bytes(line));
        buffer_append(&text, text_bytes("\n"));
        free(line);
    }
    zip_source_t *source = zip_source_buffer(zip, text.data, text.size, 1); /* takes it */
    if (source && zip_file_add(zip, NPZ_TABLES, source, ZIP_FL_ENC_UTF_8) >= 0)
        return TRP_OK;
    zip_source_free(source);
    return trp_fail(TRP_INTERNAL, "%s: %s", npz->path, zip_strerror(zip));
}

static void packing(zip_t *zip, double part, void *arg)
{
    struct npz_file *npz = arg;
    (void)zip;
    progress_show(npz->progress, (uint64_t)(part * (double)npz->progress->total));
}

static int packing_ends(zip_t *zip, void *arg)
{
    (void)zip;
    (void)arg;
    return interrupt_check() != TRP_OK;
}

static trp_status npz_finish(void *state, struct progress_line *progress)
{
    struct npz_file *npz = state;
    int error = 0;
    uint64_t bytes = 0;
    zip_t *zip = zip_open(npz->path, ZIP_CREATE | ZIP_TRUNCATE, &error);
    if (!zip) {
        zip_error_t words;
        zip_error_init_with_code(&words, error);
        trp_status status = trp_fail(TRP_INTERNAL, "%s: %s", npz->path, zip_error_strerror(&words));
        zip_error_fini(&words);
        return status;
    }
    trp_status status = TRP_OK;
    for (size_t i = 0; status == TRP_OK && i < npz->count; i++) {
        struct spool *spool = &npz->spools[i];
        status = spool->shapes ? ragged_add(npz, zip, spool) : stacked_add(npz, zip, spool);
        bytes += spool->items * spool->first.bytes;
    }
    if (status == TRP_OK)
        status = notes_add(npz, zip);
    progress_begin(progress, "packing", NULL, bytes);
    npz->progress = progress;
    zip_register_progress_callback_with_state(zip, 0.005, packing, NULL, npz);
    zip_register_cancel_callback_with_state(zip, packing_ends, NULL, NULL);
    if (status == TRP_OK && zip_close(zip) == 0)
        return TRP_OK;
    if (status == TRP_OK)
        status = trp_fail(TRP_INTERNAL, "%s: %s", npz->path, zip_strerror(zip));
    zip_discard(zip);
    return status;
}

static void npz_sink_destroy(void *state)
{
    struct npz_file *npz = state;
    for (size_t i = 0; i < npz->count; i++) {
        if (npz->spools[i].file)
            fclose(npz->spools[i].file);
        free(npz->spools[i].name);
        free(npz->spools[i].shapes);
    }
    for (size_t i = 0; i < npz->table_count; i++)
        cJSON_Delete(npz->notes[i].json);
    free(npz->notes);
    names_clear(npz);
    free(npz->spools);
    free(npz->prefix);
    free(npz->path);
    free(npz->dir);
    free(npz);
}

const struct sink_impl npz_sink = {npz_sink_open, npz_table,  npz_holds,
                                   npz_item,      npz_finish, npz_sink_destroy};
