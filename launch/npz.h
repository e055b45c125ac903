/* Arrays as a file that numpy.load() reads. */
#ifndef TRP_LAUNCH_NPZ_H
#define TRP_LAUNCH_NPZ_H

#include <stdint.h>

#include <troupe/tensor.h>

/* [rows] times the spec's shape; borrowed. */
struct npz_array {
    const trp_tensor_spec *spec; /* its name is the array's */
    uint64_t rows;
    const void *data;
};

/* The file appears whole or not at all, in place of one that is there. INVALID_ARGUMENT: numpy has
 * no such type; INTERNAL names the file and what failed. */
TRP_MUST_USE trp_status npz_write(const char *path, const struct npz_array *arrays, size_t count);

#endif
