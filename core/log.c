/* One event is one line and one write(2): lines from threads and processes that share a pipe do
 * not mix, and the launcher can prefix and keep them. Values may be a peer's words, so a line is
 * escaped as a whole. Nothing is buffered, so a crash loses no line. Times are UTC, so that lines
 * of several hosts can be put in order. */
#include "core/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/printable.h"
#include "core/limits.h"

static _Atomic int threshold = TRP_INFO, shown = TRP_DEBUG;
static _Thread_local struct log_origin mine = {.sink = -1};

static const char *const level_words[] = {"debug", "info", "warn", "error"};

/* "2026-11-22T17:14:37.123Z LEVEL NODE "; its length. */
static size_t write_head(char *text, size_t size, trp_log_level level, const char *node)
{
    int64_t now_ms = clock_wall_ns() / 1000000;
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    char stamp[32];
    gmtime_r(&seconds, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    return (size_t)snprintf(text, size, "%s.%03dZ %-5s %s%s", stamp, (int)(now_ms % 1000),
                            level_words[level], node, node[0] ? " " : "");
}

/* The whole line, its newline included; its length. */
static size_t make_line(char line[LOG_LINE_BYTES_MAX], trp_log_level level, const char *node,
                        const char *format, va_list args)
{
    char text[LOG_LINE_BYTES_MAX];
    size_t used = write_head(text, sizeof text, level, node);
    vsnprintf(text + used, sizeof text - used, format, args);
    trp_bytes whole = {(uint8_t *)text, strlen(text)};
    size_t size = printable_copy(line, LOG_LINE_BYTES_MAX - 1, whole);
    line[size++] = '\n';
    return size;
}

static bool is_wanted(trp_log_level level)
{
    return (int)level >= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void trp_log(trp_log_level level, const char *format, ...)
{
    if (!is_wanted(level))
        return;
    char line[LOG_LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    size_t size = make_line(line, level, mine.node, format, args);
    va_end(args);
    /* A log that cannot be written has nowhere to report it. */
    ssize_t written = 0;
    if (mine.sink < 0 || (int)level >= atomic_load_explicit(&shown, memory_order_relaxed))
        written = write(STDERR_FILENO, line, size);
    if (mine.sink >= 0)
        written = write(mine.sink, line, size);
    (void)written;
}

void log_to(int fd, trp_log_level level, const char *node, const char *format, ...)
{
    if (!is_wanted(level))
        return;
    char line[LOG_LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    size_t size = make_line(line, level, node, format, args);
    va_end(args);
    ssize_t written = write(fd, line, size);
    (void)written;
}

void trp_log_set_level(trp_log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

void log_set_shown(trp_log_level level)
{
    atomic_store_explicit(&shown, (int)level, memory_order_relaxed);
}

/* "0000-00-00T00:00:00.000Z ", then the word. */
bool log_line_level(const char *line, size_t size, trp_log_level *level)
{
    static const char head[] = "0000-00-00T00:00:00.000Z ";
    size_t at = sizeof head - 1;
    if (size < at)
        return false;
    for (size_t i = 0; i < at; i++)
        if (head[i] == '0' ? line[i] < '0' || line[i] > '9' : line[i] != head[i])
            return false;
    for (int i = 0; i < 4; i++) {
        size_t length = strlen(level_words[i]);
        if (size - at <= length || memcmp(line + at, level_words[i], length) != 0 ||
            line[at + length] != ' ')
            continue;
        *level = (trp_log_level)i;
        return true;
    }
    return false;
}

trp_status trp_log_level_parse(const char *word, trp_log_level *level)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(word, level_words[i]) == 0) {
            *level = (trp_log_level)i;
            return TRP_OK;
        }
    }
    return trp_fail(TRP_INVALID_ARGUMENT, "log level '%s': use debug, info, warn or error", word);
}

void trp_log_set_node(const char *name)
{
    snprintf(mine.node, sizeof mine.node, "%s", name ? name : "");
}

void log_set_sink(int fd)
{
    mine.sink = fd;
}

struct log_origin log_origin_get(void)
{
    return mine;
}

void log_origin_set(const struct log_origin *origin)
{
    mine = *origin;
}
