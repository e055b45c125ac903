/* Text for terminals and logs. Text of a peer, a file or a command line may hold characters
 * that move the cursor, rename the window, hide other text or turn its direction round: they are
 * written as \xNN (a byte) or \u{N} (a character), and so never reach a terminal. */
#ifndef TRP_CORE_PRINTABLE_H
#define TRP_CORE_PRINTABLE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <troupe/bytes.h>
#include <troupe/status.h>

/* Whether the character at `at`, which is before `end`, is neither a control character (C0, DEL,
 * C1) nor a mark of direction nor a byte that is no UTF-8. Its `size` in bytes, and its `code`. */
bool printable_next(const uint8_t *at, const uint8_t *end, size_t *size, uint32_t *code);

/* `text` escaped into `out`, cut between two characters so that it fits into `room` > 0 bytes with
 * its final '\0'. Its length. */
size_t printable_copy(char *out, size_t room, trp_bytes text);

/* The same, whole. Caller frees. */
char *printable(trp_bytes text);

/* As fprintf() of escaped text: only the newlines that begin or end the format are newlines. */
void print_text(FILE *out, const char *format, ...) TRP_PRINTF(2, 3);
void vprint_text(FILE *out, const char *format, va_list args);

#endif
