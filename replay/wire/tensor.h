/* How a tensor lies in a chunk: a raw snappy block, of deltas when the chunk says so. No state. */
#ifndef TRP_REPLAY_WIRE_TENSOR_H
#define TRP_REPLAY_WIRE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/status.h>
#include <troupe/tensor.h>

/* A block that is one literal: the length as a varint32, a tag with up to four length bytes, then
 * the bytes as they are. */
enum { BLOCK_HEADER_BYTES_MAX = 5 + 5 };

/* Writes the header of a one-literal block of `size` bytes so that it ends at `end` (with
 * BLOCK_HEADER_BYTES_MAX of room before); returns where it starts. An empty block is one zero. */
uint8_t *block_literal_header(uint8_t *end, uint32_t size);

/* True when the block, which goes on for `beyond` bytes elsewhere, is a single literal; `raw` are
 * its bytes that are here. */
bool block_literal(trp_bytes block, uint64_t beyond, trp_bytes *raw);

/* Decompresses into exactly `size` bytes. DATA_LOSS: the block is broken or has another size. */
trp_status block_decompress(trp_bytes block, uint8_t *out, size_t size);

/* False when no valid block of this many bytes decompresses to `size`: ask before allocating a
 * size that a peer names. */
bool block_size_plausible(trp_bytes block, size_t size);

/* Without decompressing: INVALID_ARGUMENT when block_decompress() into `size` bytes would fail. */
trp_status block_check(trp_bytes block, uint64_t size);

/* `count` strings: as many varint lengths, then the strings, and nothing else. */
trp_status strings_check(trp_bytes content, uint64_t count);

/* Bytes of an element of any of TensorFlow's types that a tensor of a chunk may have; 0: none, or a
 * string, which has no fixed size. */
size_t tensor_element_bytes(int32_t dtype);

/* Compresses `raw` into `out` (block_compressed_max(raw.size) bytes); the block's size, or 0 when
 * it would not save an eighth. */
size_t block_compress(trp_bytes raw, uint8_t *out);
size_t block_compressed_max(size_t size);

/* True when a chunk with delta_encoded stores such a tensor as differences between rows. */
bool delta_applies(int32_t dtype, uint32_t rank);

/* Undoes it in place: rows of `row_elements` elements become prefix sums. */
void delta_decode(int32_t dtype, size_t rows, size_t row_elements, uint8_t *data);

#endif
