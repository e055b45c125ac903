/* Text in columns, units that people read, progress, and a question before what cannot be undone.
 */
#include "output.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/clock.h"
#include "core/printable.h"

enum { DRAW_EVERY_MS = 100, LINE_EVERY_MS = 1000 };

/* ---- columns ----------------------------------------------------------------------------- */

void grid_add(struct grid *grid, const char *format, ...)
{
    va_list args;
    char *text;
    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    char *cell = size < 0 ? xstrdup("?") : printable((trp_bytes){(uint8_t *)text, (size_t)size});
    if (size >= 0)
        free(text);
    *ARRAY_PUSH(grid->cells, grid->count, grid->capacity) = cell;
}

void grid_heads(struct grid *grid, const char *const *heads)
{
    for (size_t i = 0; i < grid->columns; i++)
        grid_add(grid, "%s", heads[i]);
}

void grid_print(const struct grid *grid, FILE *out)
{
    size_t *widths = xcalloc(grid->columns, sizeof *widths);
    for (size_t i = 0; i < grid->count; i++) {
        size_t width = strlen(grid->cells[i]);
        if (width > widths[i % grid->columns])
            widths[i % grid->columns] = width;
    }
    for (size_t i = 0; i < grid->count; i++) {
        size_t column = i % grid->columns;
        bool last = column + 1 == grid->columns;
        int width = (int)widths[column];
        if (grid->right && grid->right[column])
            fprintf(out, "%*s", width, grid->cells[i]);
        else
            fprintf(out, "%-*s", last ? 0 : width, grid->cells[i]);
        fputs(last ? "\n" : "  ", out);
    }
    free(widths);
}

void grid_cleanup(struct grid *grid)
{
    for (size_t i = 0; i < grid->count; i++)
        free(grid->cells[i]);
    free(grid->cells);
    *grid = (struct grid){0};
}

/* ---- units ------------------------------------------------------------------------------- */

const char *size_text(uint64_t bytes, char *text)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.95 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    snprintf(text, TEXT_SIZE, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

const char *duration_text(double seconds, char *text)
{
    if (seconds < 60)
        snprintf(text, TEXT_SIZE, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(text, TEXT_SIZE, "%.0fm %.0fs", floor(seconds / 60), floor(fmod(seconds, 60)));
    else if (seconds < 86400)
        snprintf(text, TEXT_SIZE, "%.0fh %.0fm", floor(seconds / 3600),
                 floor(fmod(seconds, 3600) / 60));
    else
        snprintf(text, TEXT_SIZE, "%.0fd %.0fh", floor(seconds / 86400),
                 floor(fmod(seconds, 86400) / 3600));
    return text;
}

const char *time_text(int64_t ns_since_1970, char *text)
{
    time_t seconds = (time_t)(ns_since_1970 / 1000000000);
    struct tm parts;
    if (!localtime_r(&seconds, &parts))
        return "-";
    size_t length = strftime(text, TEXT_SIZE, "%Y-%m-%d %H:%M:%S", &parts);
    snprintf(text + length, TEXT_SIZE - length, ".%03d", (int)(ns_since_1970 / 1000000 % 1000));
    return text;
}

const char *double_text(double value, char *text)
{
    if (isinf(value))
        return value > 0 ? "inf" : "-inf";
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, TEXT_SIZE, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}

/* ---- progress ---------------------------------------------------------------------------- */

static bool progress_asked;

void progress_ask(void)
{
    progress_asked = true;
}

void progress_begin(struct progress_line *progress, const char *what, const char *unit,
                    uint64_t total)
{
    *progress = (struct progress_line){.what = what,
                                       .unit = unit,
                                       .total = total,
                                       .began_ns = clock_now_ns(&clock_monotonic),
                                       .terminal = isatty(STDERR_FILENO)};
    progress->shown_ns = progress->began_ns;
}

static void amount_print(const struct progress_line *progress, uint64_t amount)
{
    char text[TEXT_SIZE];
    if (progress->unit)
        fprintf(stderr, "%llu", (unsigned long long)amount);
    else
        fputs(size_text(amount, text), stderr);
}

static void progress_print(const struct progress_line *progress, uint64_t done, double seconds)
{
    char text[TEXT_SIZE];
    double rate = seconds > 0 ? (double)done / seconds : 0;
    fprintf(stderr, "%s: ", progress->what);
    amount_print(progress, done);
    if (progress->total) {
        fputs(" of ", stderr);
        amount_print(progress, progress->total);
        fprintf(stderr, " (%.0f %%)", 100.0 * (double)done / (double)progress->total);
    }
    if (progress->unit)
        fprintf(stderr, " %s, %.0f a second", progress->unit, rate);
    else
        fprintf(stderr, ", %s a second", size_text((uint64_t)rate, text));
    if (progress->total > done && rate > 0)
        fprintf(stderr, ", %s left", duration_text((double)(progress->total - done) / rate, text));
}

static void line_print(struct progress_line *progress, int64_t now)
{
    progress_print(progress, progress->done, (double)(now - progress->began_ns) * 1e-9);
    fputs(progress->terminal ? "\033[K\r" : "\n", stderr);
    progress->drawn = true;
}

void progress_show(struct progress_line *progress, uint64_t done)
{
    progress->done = done;
    if (!progress->terminal && !progress_asked)
        return;
    int64_t now = clock_now_ns(&clock_monotonic);
    int64_t every = (progress->terminal ? DRAW_EVERY_MS : LINE_EVERY_MS) * INT64_C(1000000);
    if (now - progress->shown_ns < every)
        return;
    progress->shown_ns = now;
    line_print(progress, now);
}

void progress_end(struct progress_line *progress)
{
    if (progress->drawn && progress->terminal)
        fputs("\033[K", stderr);
    else if (!progress->terminal && progress_asked && progress->what)
        line_print(progress, clock_now_ns(&clock_monotonic));
    progress->drawn = false;
    progress->what = NULL;
}

/* ---- a question -------------------------------------------------------------------------- */

trp_status confirm(bool yes, const char *format, ...)
{
    char answer[8] = "";
    if (yes)
        return TRP_OK;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return trp_fail(TRP_INVALID_ARGUMENT, "this cannot be undone: say --yes");
    va_list args;
    va_start(args, format);
    vprint_text(stderr, format, args);
    va_end(args);
    fputs(" [y/N] ", stderr);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return TRP_OK;
    return trp_fail(TRP_FAILED_PRECONDITION, "nothing was done");
}
