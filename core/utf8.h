/* UTF-8 (RFC 3629), as protobuf's strings have to be. */
#ifndef TRP_CORE_UTF8_H
#define TRP_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>

/* Bytes of the character at `at`, which is before `end`; 0: there is none. */
size_t utf8_size(const uint8_t *at, const uint8_t *end);

bool utf8_is_text(trp_bytes bytes); /* all of it */

#endif
