/* What the writer and the reader of checkpoint files agree on. */
#ifndef TRP_NN_CHECKPOINT_H
#define TRP_NN_CHECKPOINT_H

#include <stdbool.h>

#include <troupe/checkpoint.h>

#define CHECKPOINT_METADATA "__metadata__"
#define CHECKPOINT_SUM      "troupe_crc32c" /* a note: of the file whose digits of it are zeros */
#define CHECKPOINT_NO_SUM   "00000000"

enum { CHECKPOINT_SUM_DIGITS = sizeof CHECKPOINT_NO_SUM - 1 };

/* Where the digits of the sum are in a header as it is written here; NULL: nowhere. */
char *checkpoint_sum_find(char *header, size_t size);

/* "F32" and 4; `type` is valid. */
const char *checkpoint_type_name(trp_checkpoint_type type);
size_t checkpoint_type_bytes(trp_checkpoint_type type);

/* Bytes of the tensor's data in *bytes; false when that overflows. */
bool checkpoint_tensor_bytes(const trp_checkpoint_tensor *tensor, size_t *bytes);

#endif
