/* One event is one line and one write(2): lines from threads and processes that share a pipe do
 * not mix, and the launcher can prefix and keep them. Values may be a peer's words, so a line is
 * escaped as a whole. Nothing is buffered, so a crash loses no line. */
#include "core/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/printable.h"

static _Atomic int threshold = TRP_INFO;
static _Thread_local struct log_origin mine = {.sink = -1};

static const char *const level_words[] = {"debug", "info", "warn", "error"};

void trp_log(trp_log_level level, const char *format, ...)
{
    if ((int)level < atomic_load_explicit(&threshold, memory_order_relaxed))
        return;
    char text[LOG_LINE_BYTES_MAX], line[LOG_LINE_BYTES_MAX];
    int used = snprintf(text, sizeof text, "%-5s %s%s", level_words[level], mine.node,
                        mine.node[0] ? " " : "");
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, args);
    va_end(args);
    size_t size = printable_copy(line, sizeof line - 1, (trp_bytes){(uint8_t *)text, strlen(text)});
    line[size++] = '\n';
    /* A log that cannot be written has nowhere to report it. */
    ssize_t written = write(STDERR_FILENO, line, size);
    if (mine.sink >= 0)
        written = write(mine.sink, line, size);
    (void)written;
}

void trp_log_set_level(trp_log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
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
