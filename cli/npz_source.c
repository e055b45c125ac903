/* Problem: an .npz has columns, a table wants items, and both may be larger than memory.
 * Design: the members of a table are read side by side, an item of each at a time; a column with an
 * array an item is looked up by name. What NPZ_TABLES says is believed where the arrays do not say
 * otherwise. Without it (a file that numpy wrote) there is one table, whose columns are column_0,
 * column_1, ..., or the arrays that the table's signature names, or all of them, by name.
 * Guarantee: memory does not grow with the number of items; every size is compared with what the
 * file can hold before memory is touched, and what does not fit is said with the array's name. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zip.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/npy.h"
#include "core/limits.h"
#include "json.h"
#include "npz.h"
#include "source.h"

/* Deflate makes at most about 1030 bytes of one. */
enum { NOTES_BYTES_MAX = 1 << 26, COLUMNS_MAX = 4096, RATIO_MAX = 1100 };

/* An array that is read from its beginning. */
struct array {
    zip_file_t *file; /* NULL: there is none */
    struct npy_header header;
    size_t item_bytes; /* without the first dimension where items are stacked */
    uint64_t bytes;    /* of the member, at most */
    uint64_t read;     /* bytes of it, so far */
    struct buffer data;
};

struct npz_column {
    char *name; /* of the member without ".npy" */
    int32_t dtype;
    bool squeezed;
    const cJSON *squeezed_items; /* NULL: what `squeezed` says */
    bool stacked;
    struct array array; /* of all items, or of the current one */
};

struct npz_arrays {
    const struct source_options *options;
    zip_t *zip;
    uint64_t file_bytes;
    cJSON **notes; /* a table each */
    size_t note_count, note_next;
    char *prefix, *table;
    struct array fixed[FIXED];
    struct npz_column *columns;
    size_t column_count;
    trp_item_array *arrays; /* the columns of the item */
    uint64_t items, next;   /* of the current table */
    size_t item_bytes;      /* of the current item, so far */
};

static trp_status member_wrong(const struct npz_arrays *npz, const char *name, const char *what)
{
    return trp_fail(TRP_FAILED_PRECONDITION, "%s: %s%s%s", npz->options->path, name,
                    *name ? ": " : "", what);
}

/* ---- arrays ------------------------------------------------------------------------------ */

static trp_status array_take(const struct npz_arrays *npz, struct source *source,
                             struct array *array, const char *name, size_t size)
{
    uint8_t *room = buffer_try_reserve(&array->data, size);
    if (!room)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: %s: there is no memory for %zu bytes of it",
                        npz->options->path, name, size);
    zip_int64_t got = size ? zip_fread(array->file, room, size) : 0;
    if (got < 0 || (size_t)got != size)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s: %s: item %" PRIu64 ", from byte %" PRIu64 " of the array on: %s",
                        npz->options->path, name, npz->next, array->read,
                        got < 0 ? zip_file_strerror(array->file) : "it is cut short");
    array->read += size;
    array->data.size += size;
    source->done_bytes += size;
    return TRP_OK;
}

static trp_status header_take(const struct npz_arrays *npz, struct source *source,
                              struct array *array, const char *name)
{
    const char *why;
    TRP_TRY(array_take(npz, source, array, name, 12));
    size_t size = npy_header_size((const char *)array->data.data, 12);
    if (size < 12 || size > NPY_HEADER_BYTES_MAX)
        return member_wrong(npz, name, "it is no numpy array");
    TRP_TRY(array_take(npz, source, array, name, size - 12));
    if (!npy_header_read(&array->header, (const char *)array->data.data, size, &why))
        return member_wrong(npz, name, why);
    buffer_clear(&array->data);
    array->bytes -= size < array->bytes ? size : array->bytes;
    return TRP_OK;
}

/* What a member may come to: what is said of it, unless the file is too small for that. */
static trp_status member_bytes(const struct npz_arrays *npz, const char *member, uint64_t *bytes)
{
    zip_stat_t stat;
    if (zip_stat(npz->zip, member, 0, &stat) != 0)
        return member_wrong(npz, member, zip_strerror(npz->zip));
    *bytes = stat.size;
    if (stat.comp_size > npz->file_bytes || stat.size / RATIO_MAX > stat.comp_size)
        return member_wrong(npz, member, "the file is too small for what it says");
    return TRP_OK;
}

/* Behind the last item: only now has libzip compared the sum. */
static trp_status array_end(const struct npz_arrays *npz, const struct array *array,
                            const char *name)
{
    char byte;
    zip_int64_t got = array->file ? zip_fread(array->file, &byte, 1) : 0;
    if (got < 0)
        return member_wrong(npz, name, zip_file_strerror(array->file));
    return got == 0 ? TRP_OK : member_wrong(npz, name, "it has more than its header says");
}

static void array_close(struct array *array)
{
    if (array->file)
        zip_fclose(array->file);
    buffer_cleanup(&array->data);
    *array = (struct array){0};
}

/* Opens NAME.npy, whose items have the dimensions from `first` on; no such member: array->file is
 * NULL. */
static trp_status array_open(const struct npz_arrays *npz, struct source *source,
                             struct array *array, const char *name, uint32_t first)
{
    char *member = xasprintf("%s.npy", name);
    array_close(array);
    array->file = zip_fopen(npz->zip, member, 0);
    bool missing = !array->file && zip_error_code_zip(zip_get_error(npz->zip)) == ZIP_ER_NOENT;
    trp_status status = array->file ? member_bytes(npz, member, &array->bytes) : TRP_OK;
    free(member);
    if (!array->file)
        return missing ? TRP_OK : member_wrong(npz, name, zip_strerror(npz->zip));
    TRP_TRY(status);
    TRP_TRY(header_take(npz, source, array, name));
    size_t bytes = trp_dtype_size((trp_dtype)npy_dtype(array->header.type));
    if (array->header.rank < first || array->header.rank - first > TRP_RANK_MAX)
        return member_wrong(npz, name, "it has not one entry an item");
    for (uint32_t i = first; i < array->header.rank; i++)
        if (!size_mul(bytes, (size_t)array->header.dims[i], &bytes))
            bytes = SIZE_MAX;
    array->item_bytes = bytes;
    if (first > 0 && !size_mul(bytes, (size_t)array->header.dims[0], &bytes))
        bytes = SIZE_MAX;
    return bytes > array->bytes ? member_wrong(npz, name, "it is cut short") : TRP_OK;
}

/* ---- tables ------------------------------------------------------------------------------ */

static trp_status fixed_open(struct npz_arrays *npz, struct source *source)
{
    for (size_t i = 0; i < FIXED; i++) {
        char *name = xasprintf("%s%s", npz->prefix, npz_fixed_names[i]);
        struct array *array = &npz->fixed[i];
        trp_status status = array_open(npz, source, array, name, 1);
        if (status == TRP_OK && !array->file && (i == KEYS || i == PRIORITIES))
            status =
                member_wrong(npz, name, "there is no such array: see troupe replay load --help");
        if (status == TRP_OK && array->file &&
            (npy_dtype(array->header.type) != npz_fixed_types[i] || array->header.rank != 1))
            status = member_wrong(npz, name, "it is no array of such numbers as dump writes");
        if (status == TRP_OK && i > 0 && array->file &&
            array->header.dims[0] != (int64_t)npz->items)
            status = member_wrong(npz, name, "it has not one entry an item");
        free(name);
        TRP_TRY(status);
        if (i == KEYS)
            npz->items = (uint64_t)array->header.dims[0];
    }
    return TRP_OK;
}

static trp_status column_open(struct npz_arrays *npz, struct source *source, const char *name)
{
    npz->columns = xrealloc(npz->columns, (npz->column_count + 1) * sizeof *npz->columns);
    struct npz_column *column = &npz->columns[npz->column_count++];
    *column = (struct npz_column){.name = xasprintf("%s%s", npz->prefix, name)};
    TRP_TRY(array_open(npz, source, &column->array, column->name, 1));
    column->stacked = column->array.file != NULL;
    if (!column->stacked)
        return TRP_OK;
    column->dtype = npy_dtype(column->array.header.type);
    column->squeezed = column->array.header.rank == 1; /* nothing that could be a time axis */
    if (column->array.header.dims[0] != (int64_t)npz->items)
        return member_wrong(npz, column->name, "it has not one entry an item");
    return TRP_OK;
}

static bool member_there(const struct npz_arrays *npz, const char *format, size_t index)
{
    char *name = xasprintf(format, npz->prefix, index);
    bool there = zip_name_locate(npz->zip, name, 0) >= 0;
    free(name);
    return there;
}

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static bool is_fixed(const char *name)
{
    for (size_t i = 0; i < FIXED; i++)
        if (strcmp(name, npz_fixed_names[i]) == 0)
            return true;
    return false;
}

/* The column that a member is of, or has an item of; NULL: of none. Caller frees. */
static char *column_of(const char *member)
{
    size_t size = member ? strlen(member) : 0;
    if (size <= strlen(".npy") || strcmp(member + size - strlen(".npy"), ".npy") != 0)
        return NULL;
    char *name = xasprintf("%.*s", (int)(size - strlen(".npy")), member);
    char *slash = strrchr(name, '/');
    if (slash && slash[1] && slash[1 + strspn(slash + 1, "0123456789")] == '\0')
        *slash = '\0';
    if (!is_fixed(name))
        return name;
    free(name);
    return NULL;
}

/* Every array is a column: in the order of the signature where that names all of them, else by
 * name, as clients flatten a dict. */
static trp_status columns_named(struct npz_arrays *npz, struct source *source)
{
    char **names = xcalloc((size_t)zip_get_num_entries(npz->zip, 0) + 1, sizeof *names);
    size_t count = 0, distinct = 0, known = 0;
    for (zip_int64_t i = 0; i < zip_get_num_entries(npz->zip, 0); i++)
        if ((names[count] = column_of(zip_get_name(npz->zip, (zip_uint64_t)i, 0))))
            count++;
    qsort(names, count, sizeof *names, name_compare);
    for (size_t i = 0; i < count; i++)
        if (distinct == 0 || strcmp(names[distinct - 1], names[i]) != 0)
            names[distinct++] = names[i];
        else
            free(names[i]);
    const struct source_options *options = npz->options;
    for (size_t i = 0; i < options->column_count; i++)
        known +=
            bsearch(&options->columns[i], names, distinct, sizeof *names, name_compare) != NULL;
    bool named = known == distinct && options->column_count == distinct;
    trp_status status = TRP_OK;
    if (distinct == 0 || distinct > COLUMNS_MAX)
        status = member_wrong(
            npz, "",
            distinct ? "too many arrays"
                     : "there is no array beside keys and priorities: none is a column");
    for (size_t i = 0; status == TRP_OK && i < distinct; i++)
        status = column_open(npz, source, named ? options->columns[i] : names[i]);
    for (size_t i = 0; i < distinct; i++)
        free(names[i]);
    free(names);
    return status;
}

/* A file without notes: columns are numbered, or have names. */
static trp_status columns_find(struct npz_arrays *npz, struct source *source)
{
    if (!member_there(npz, "%scolumn_%zu.npy", 0) && !member_there(npz, "%scolumn_%zu/0.npy", 0))
        return columns_named(npz, source);
    for (size_t i = 0; i < COLUMNS_MAX; i++) {
        char name[32];
        if (!member_there(npz, "%scolumn_%zu.npy", i) &&
            !member_there(npz, "%scolumn_%zu/0.npy", i))
            return TRP_OK;
        snprintf(name, sizeof name, "column_%zu", i);
        TRP_TRY(column_open(npz, source, name));
    }
    return TRP_OK;
}

static trp_status columns_open(struct npz_arrays *npz, struct source *source, const cJSON *note)
{
    const cJSON *columns = cJSON_GetObjectItem(note, "columns"), *each;
    if (cJSON_GetArraySize(columns) > COLUMNS_MAX)
        return member_wrong(npz, NPZ_TABLES, "too many columns");
    cJSON_ArrayForEach(each, columns)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(each, "name"));
        const char *dtype = cJSON_GetStringValue(cJSON_GetObjectItem(each, "dtype"));
        const cJSON *squeezed = cJSON_GetObjectItem(each, "squeezed");
        if (!name)
            return member_wrong(npz, NPZ_TABLES, "a column without a name");
        TRP_TRY(column_open(npz, source, name));
        struct npz_column *column = &npz->columns[npz->column_count - 1];
        if (!column->stacked ||
            (dtype && npy_type(trp_dtype_parse(dtype)) &&
             strcmp(npy_type(trp_dtype_parse(dtype)), column->array.header.type) == 0))
            column->dtype = dtype ? trp_dtype_parse(dtype) : 0;
        column->squeezed =
            cJSON_IsTrue(squeezed) || (column->stacked && column->array.header.rank == 1);
        column->squeezed_items = cJSON_IsArray(squeezed) ? squeezed->child : NULL;
    }
    return TRP_OK;
}

static void table_close(struct npz_arrays *npz)
{
    for (size_t i = 0; i < FIXED; i++)
        array_close(&npz->fixed[i]);
    for (size_t i = 0; i < npz->column_count; i++) {
        array_close(&npz->columns[i].array);
        free(npz->columns[i].name);
    }
    npz->column_count = 0;
    free(npz->prefix);
    free(npz->table);
    npz->prefix = npz->table = NULL;
    npz->items = npz->next = 0;
}

/* The table that the next note is of; `event` may be told of it. */
static trp_status note_open(struct npz_arrays *npz, struct source *source,
                            struct source_event *event)
{
    cJSON *note = npz->notes[npz->note_next++];
    const char *prefix = cJSON_GetStringValue(cJSON_GetObjectItem(note, "prefix"));
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(note, "table"));
    const char *options = cJSON_GetStringValue(cJSON_GetObjectItem(note, "options"));
    char *signature = cJSON_GetStringValue(cJSON_GetObjectItem(note, "signature"));
    table_close(npz);
    npz->prefix = xstrdup(prefix ? prefix : "");
    if (!npz->options->table && !name)
        return member_wrong(npz, "", "it does not say of which table: name one with --table");
    npz->table = xstrdup(npz->options->table ? npz->options->table : name);
    TRP_TRY(fixed_open(npz, source));
    TRP_TRY(note->child ? columns_open(npz, source, note) : columns_find(npz, source));
    npz->arrays = xrealloc(npz->arrays, (npz->column_count + 1) * sizeof *npz->arrays);
    if (!name || !options || !signature || !base64_decode(signature, &event->table.signature))
        return TRP_OK;
    event->kind = SOURCE_TABLE;
    event->table.name = name;
    event->table.options = options;
    return TRP_OK;
}

/* ---- items ------------------------------------------------------------------------------- */

static bool item_squeezed(struct npz_column *column, uint64_t index)
{
    const cJSON *at = column->squeezed_items;
    if (!at)
        return column->squeezed;
    while (at->next && at->valuedouble < (double)index)
        at = at->next;
    column->squeezed_items = at;
    return at->valuedouble == (double)index;
}

static trp_status column_take(struct npz_arrays *npz, struct source *source,
                              struct npz_column *column, trp_item_array *out)
{
    char *name =
        column->stacked ? xstrdup(column->name) : xasprintf("%s/%" PRIu64, column->name, npz->next);
    struct array *array = &column->array;
    trp_status status = TRP_OK;
    *out = (trp_item_array){.squeezed = item_squeezed(column, npz->next)};
    if (!column->stacked)
        status = array_open(npz, source, array, name, 0);
    if (status == TRP_OK && array->file && (array->item_bytes > SAMPLE_BYTES_MAX - npz->item_bytes))
        status = member_wrong(npz, name, "an item is beyond 2 GiB");
    if (status == TRP_OK && array->file) {
        npz->item_bytes += array->item_bytes;
        buffer_clear(&array->data);
        status = array_take(npz, source, array, name, array->item_bytes);
        const char *as_noted = npy_type(column->dtype);
        bool noted = as_noted && strcmp(as_noted, array->header.type) == 0;
        out->dtype = noted ? column->dtype : npy_dtype(array->header.type);
        out->rank = array->header.rank - column->stacked;
        memcpy(out->shape, array->header.dims + column->stacked, out->rank * sizeof *out->shape);
        out->squeezed = out->squeezed || out->rank == 0;
        out->data = buffer_bytes(&array->data);
    }
    if (status == TRP_OK && (!column->stacked || npz->next + 1 == npz->items))
        status = array_end(npz, array, name);
    free(name);
    return status;
}

static trp_status fixed_take(struct npz_arrays *npz, struct source *source, size_t which,
                             void *value)
{
    struct array *array = &npz->fixed[which];
    if (!array->file)
        return TRP_OK;
    buffer_clear(&array->data);
    TRP_TRY(array_take(npz, source, array, npz_fixed_names[which], array->item_bytes));
    memcpy(value, array->data.data, array->item_bytes);
    return npz->next + 1 < npz->items ? TRP_OK : array_end(npz, array, npz_fixed_names[which]);
}

static trp_status item_take(struct npz_arrays *npz, struct source *source, trp_item_data *item)
{
    *item = (trp_item_data){.table = npz->table, .columns = npz->arrays};
    TRP_TRY(fixed_take(npz, source, KEYS, &item->key));
    TRP_TRY(fixed_take(npz, source, PRIORITIES, &item->priority));
    TRP_TRY(fixed_take(npz, source, POLICY_VERSIONS, &item->policy_version));
    npz->item_bytes = 0;
    for (size_t i = 0; i < npz->column_count; i++) {
        TRP_TRY(column_take(npz, source, &npz->columns[i], &npz->arrays[i]));
        if (npz->arrays[i].dtype != 0)
            item->column_count = i + 1;
    }
    npz->next++;
    return TRP_OK;
}

static trp_status npz_next(struct source *source, struct source_event *event)
{
    struct npz_arrays *npz = source->state;
    *event = (struct source_event){.kind = SOURCE_END};
    while (npz->next == npz->items) {
        if (npz->note_next == npz->note_count)
            return TRP_OK;
        TRP_TRY(note_open(npz, source, event));
        if (event->kind == SOURCE_TABLE)
            return TRP_OK;
    }
    event->kind = SOURCE_ITEM;
    return item_take(npz, source, &event->item);
}

/* ---- the file ---------------------------------------------------------------------------- */

static void note_push(struct npz_arrays *npz, cJSON *note)
{
    npz->notes = xrealloc(npz->notes, (npz->note_count + 1) * sizeof(cJSON *));
    npz->notes[npz->note_count++] = note;
}

static trp_status notes_parse(struct npz_arrays *npz, char *text)
{
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (*line == '\0')
            continue;
        cJSON *note = cJSON_Parse(line);
        if (!cJSON_IsObject(note)) {
            cJSON_Delete(note);
            return member_wrong(npz, NPZ_TABLES, "not a JSON object a line");
        }
        note_push(npz, note);
    }
    return TRP_OK;
}

/* A file without notes is a table without a name, of which nothing is said. */
static trp_status notes_read(struct npz_arrays *npz)
{
    zip_stat_t stat;
    zip_file_t *file = zip_fopen(npz->zip, NPZ_TABLES, 0);
    if (!file) {
        note_push(npz, cJSON_CreateObject());
        return TRP_OK;
    }
    trp_status status = TRP_OK;
    char *text = NULL;
    if (zip_stat(npz->zip, NPZ_TABLES, 0, &stat) != 0 || stat.size > NOTES_BYTES_MAX)
        status = member_wrong(npz, NPZ_TABLES, "it is too large");
    if (status == TRP_OK) {
        text = xcalloc(1, stat.size + 1);
        if (zip_fread(file, text, stat.size) != (zip_int64_t)stat.size)
            status = member_wrong(npz, NPZ_TABLES, "it is cut short");
    }
    if (status == TRP_OK)
        status = notes_parse(npz, text);
    free(text);
    zip_fclose(file);
    return status;
}

static trp_status npz_source_open(struct source *source, const struct source_options *options)
{
    struct npz_arrays *npz = xcalloc(1, sizeof *npz);
    int error = 0;
    source->state = npz;
    npz->options = options;
    npz->zip = zip_open(options->path, ZIP_RDONLY, &error);
    if (!npz->zip) {
        zip_error_t words;
        zip_error_init_with_code(&words, error);
        trp_status status = member_wrong(
            npz, "", error == ZIP_ER_NOENT ? strerror(ENOENT) : zip_error_strerror(&words));
        zip_error_fini(&words);
        return status;
    }
    struct stat info;
    if (stat(options->path, &info) != 0)
        return member_wrong(npz, "", strerror(errno));
    npz->file_bytes = (uint64_t)info.st_size;
    zip_stat_t member;
    for (zip_int64_t i = 0; i < zip_get_num_entries(npz->zip, 0); i++)
        if (zip_stat_index(npz->zip, (zip_uint64_t)i, 0, &member) == 0)
            source->total_bytes += member.size;
    return notes_read(npz);
}

static void npz_source_destroy(void *state)
{
    struct npz_arrays *npz = state;
    table_close(npz);
    for (size_t i = 0; i < npz->note_count; i++)
        cJSON_Delete(npz->notes[i]);
    free(npz->notes);
    free(npz->columns);
    free(npz->arrays);
    if (npz->zip)
        zip_discard(npz->zip);
    free(npz);
}

const struct source_impl npz_source = {npz_source_open, npz_next, npz_source_destroy};
