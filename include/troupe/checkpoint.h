/* Checkpoint files: named tensors and notes in the safetensors format
 * (https://huggingface.co/docs/safetensors), readable by its libraries.
 *
 * A file is written whole or not at all: to a temporary file beside it, fsync, rename, fsync of the
 * directory. Its __metadata__ has the CRC-32C of the file, as "troupe_crc32c", eight hexadecimal
 * digits, which count as zeros themselves. A reader trusts nothing in it: the header is bounded,
 * every range is checked, and the file is compared with its sum, where there is one: whoever
 * changes it leaves the note out. */
#ifndef TRP_CHECKPOINT_H
#define TRP_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef enum {
    TRP_CHECKPOINT_F32,
    TRP_CHECKPOINT_F64,
    TRP_CHECKPOINT_I64,
    TRP_CHECKPOINT_U64,
    TRP_CHECKPOINT_U8,
} trp_checkpoint_type;

enum { TRP_CHECKPOINT_RANK_MAX = 8 };

/* A tensor in row-major order. Everything is borrowed. `rank` 0 is one value. */
typedef struct {
    const char *name;
    trp_checkpoint_type type;
    uint32_t rank;
    uint64_t shape[TRP_CHECKPOINT_RANK_MAX];
    const void *data;
} trp_checkpoint_tensor;

/* A string of the file's __metadata__. */
typedef struct {
    const char *key, *value;
} trp_checkpoint_note;

/* Writes `path` atomically, replacing what was there. Names and keys are unique, UTF-8 and not
 * empty; "__metadata__", and "troupe_crc32c" among notes, are taken (INVALID_ARGUMENT). Blocks
 * until the disk has it. NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk full), ABORTED
 * (another writer is at it) or INTERNAL name the file; then `path` is as before. */
TRP_API TRP_MUST_USE trp_status trp_checkpoint_write(const char *path,
                                                     const trp_checkpoint_tensor *tensors,
                                                     size_t tensor_count,
                                                     const trp_checkpoint_note *notes,
                                                     size_t note_count);

typedef struct trp_checkpoint trp_checkpoint;

/* Reads a whole file into memory. NOT_FOUND, PERMISSION_DENIED; DATA_LOSS: not a safetensors file,
 * cut, corrupt or changed; UNIMPLEMENTED: a tensor of another type or rank. */
TRP_API TRP_MUST_USE trp_status trp_checkpoint_read(trp_checkpoint **out, const char *path);

/* The same for a file's bytes, which are copied. `name` stands for the path in messages. */
TRP_API TRP_MUST_USE trp_status trp_checkpoint_parse(trp_checkpoint **out, trp_bytes bytes,
                                                     const char *name);

TRP_API void trp_checkpoint_destroy(trp_checkpoint *checkpoint); /* NULL is fine */

/* The tensors in the order of their data; valid while the checkpoint is. `index` < count. */
TRP_API size_t trp_checkpoint_tensor_count(const trp_checkpoint *checkpoint);
TRP_API const trp_checkpoint_tensor *trp_checkpoint_tensor_at(const trp_checkpoint *checkpoint,
                                                              size_t index);

/* Copies the tensor `name` to `data`, which has room for `count` values of `type`. NOT_FOUND: none
 * of that name; FAILED_PRECONDITION: another type or count, with both in the message. */
TRP_API TRP_MUST_USE trp_status trp_checkpoint_get(const trp_checkpoint *checkpoint,
                                                   const char *name, trp_checkpoint_type type,
                                                   size_t count, void *data);

/* The note's value, valid while the checkpoint is; NULL when there is none. */
TRP_API const char *trp_checkpoint_note_get(const trp_checkpoint *checkpoint, const char *key);

TRP_END_DECLS
#endif
