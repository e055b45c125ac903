#include "npz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "core/alloc.h"
#include "core/npy.h"

static size_t array_size(const struct npz_array *array)
{
    return NPY_HEADER_BYTES + array->rows * trp_tensor_bytes(array->spec);
}

/* As one piece, which the archive takes. */
static void *array_bytes(const struct npz_array *array, const char *type)
{
    const trp_tensor_spec *spec = array->spec;
    struct npy_header header = {.rank = spec->rank + 1, .dims = {(int64_t)array->rows}};
    snprintf(header.type, sizeof header.type, "%s", type);
    memcpy(header.dims + 1, spec->shape, spec->rank * sizeof *header.dims);
    char *bytes = xmalloc(array_size(array));
    npy_header_write(bytes, &header);
    if (array->rows > 0)
        memcpy(bytes + NPY_HEADER_BYTES, array->data, array_size(array) - NPY_HEADER_BYTES);
    return bytes;
}

static trp_status add_array(zip_t *zip, const char *path, const struct npz_array *array)
{
    const char *type = npy_type(array->spec->dtype);
    if (!type)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s is %s, of which numpy has no arrays",
                        array->spec->name, trp_dtype_name(array->spec->dtype));
    void *bytes = array_bytes(array, type);
    zip_source_t *source = zip_source_buffer(zip, bytes, array_size(array), 1);
    char *name = xasprintf("%s.npy", array->spec->name);
    bool added = source && zip_file_add(zip, name, source, ZIP_FL_ENC_UTF_8) >= 0;
    free(name);
    if (added)
        return TRP_OK;
    if (source)
        zip_source_free(source);
    else
        free(bytes);
    return trp_fail(TRP_INTERNAL, "%s: %s", path, zip_strerror(zip));
}

trp_status npz_write(const char *path, const struct npz_array *arrays, size_t count)
{
    int error = 0;
    zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &error);
    if (!zip) {
        zip_error_t words;
        zip_error_init_with_code(&words, error);
        trp_status status = trp_fail(TRP_INTERNAL, "%s: %s", path, zip_error_strerror(&words));
        zip_error_fini(&words);
        return status;
    }
    trp_status status = TRP_OK;
    for (size_t i = 0; i < count && status == TRP_OK; i++)
        status = add_array(zip, path, &arrays[i]);
    if (status == TRP_OK && zip_close(zip) == 0)
        return TRP_OK;
    if (status == TRP_OK)
        status = trp_fail(TRP_INTERNAL, "%s: %s", path, zip_strerror(zip));
    zip_discard(zip);
    return status;
}
