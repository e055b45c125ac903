/* CRC-32C (Castagnoli): storage formats use it, and processors have an instruction for it. */
#ifndef TRP_CORE_CRC32C_H
#define TRP_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of the bytes that `crc` covers and then `bytes`; 0 covers none. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size);

/* Three CRCs of a third each, and one of those: not crc32c(), but three times as fast, because the
 * instruction's latency is hidden. Differs whenever one byte differs. */
uint32_t crc32c_thirds(const void *bytes, size_t size);

#endif
