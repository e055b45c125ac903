/* Headers of numpy's .npy arrays. */
#ifndef TRP_CORE_NPY_H
#define TRP_CORE_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include <troupe/tensor.h>

/* A leading dimension of the items comes on top of TRP_RANK_MAX. */
struct npy_header {
    char type[8]; /* numpy's "descr", e.g. "<f4" */
    uint32_t rank;
    int64_t dims[TRP_RANK_MAX + 1];
};

enum { NPY_HEADER_BYTES = 256, NPY_HEADER_BYTES_MAX = 1 << 16 };

/* numpy's name of a tensorflow.DataType; NULL: it has none. And the type of a name, 0: none; of
 * several the one that C programs mean. */
const char *npy_type(int32_t dtype);
int32_t npy_dtype(const char *type);

/* Version 1.0, padded to NPY_HEADER_BYTES. */
void npy_header_write(char *out, const struct npy_header *header);

/* How many bytes the header takes whose first `size` (at least 12, if there are so many) are at
 * `bytes`; 0: it is none. */
size_t npy_header_size(const char *bytes, size_t size);

/* Reads a whole header. False, with what is wrong: not one that we can use. */
bool npy_header_read(struct npy_header *header, const char *bytes, size_t size, const char **wrong);

#endif
