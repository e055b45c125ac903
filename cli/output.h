/* Text for people: columns, sizes, times, and how far long work is. */
#ifndef TRP_CLI_OUTPUT_H
#define TRP_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <troupe/status.h>

/* Rows of cells, printed in columns as wide as their widest cell. A zeroed struct is empty. */
struct grid {
    char **cells;
    size_t columns;
    uint32_t count, capacity;
    const bool *right; /* columns that are aligned right; NULL: none */
};

/* Formats the next cell. */
void grid_add(struct grid *grid, const char *format, ...) TRP_PRINTF(2, 3);
void grid_heads(struct grid *grid, const char *const *heads); /* one row */
void grid_print(const struct grid *grid, FILE *out);
void grid_cleanup(struct grid *grid);

/* Room for each of the texts below. */
enum { TEXT_SIZE = 32 };

/* "12.3 MB"; "3d 4h", "2m 5s", "1.5 s"; "2026-11-21 10:00:00.123"; "inf", or a shortest number. */
const char *size_text(uint64_t bytes, char *text);
const char *duration_text(double seconds, char *text);
const char *time_text(int64_t ns_since_1970, char *text);
const char *double_text(double value, char *text);

/* How far long work is, on standard error: redrawn in place on a terminal; elsewhere, where it is
 * asked for with progress_ask(), a line now and then and one at the end. */
struct progress_line {
    const char *what; /* "dump", ... */
    const char *unit; /* "items", or NULL: bytes */
    uint64_t total;   /* 0: not known */
    int64_t began_ns, shown_ns;
    uint64_t done;
    bool terminal, drawn;
};

void progress_ask(void); /* by --progress */

void progress_begin(struct progress_line *progress, const char *what, const char *unit,
                    uint64_t total);
void progress_show(struct progress_line *progress, uint64_t done);
void progress_end(struct progress_line *progress); /* clears the line; harmless twice */

/* Asks on the terminal; `yes` answers. FAILED_PRECONDITION: the answer was no; INVALID_ARGUMENT:
 * there is no terminal to ask on. */
trp_status confirm(bool yes, const char *format, ...) TRP_PRINTF(2, 3);

#endif
