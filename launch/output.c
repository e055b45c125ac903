/* One bounded queue and one writing thread for both descriptors, so lines keep their order even
 * when both are the same terminal. Making the descriptor non-blocking instead would change it for
 * everyone who shares it, the user's shell included.
 *
 * Log files have every line (processes.c); what is dropped here is only not shown. */
#include "output.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/limits.h"
#include "limits.h"
#include "core/printable.h"
#include "core/queue.h"
#include "core/thread.h"
#include "core/words.h"

enum { OWN_LINE_WAIT_MS = 500, FULL_WAIT_MS = 1000 };

struct output {
    struct queue *lines;
    struct thread thread;
    atomic_size_t bytes;    /* queued */
    uint64_t dropped;       /* lines since the last one that went in; the caller's thread */
    _Atomic bool broken[3]; /* by descriptor */
    uint64_t lost[3];       /* lines for which a disk had no room; the thread's */
    struct mutex mutex;     /* guards finished */
    struct cond changed;
    bool finished;
};

struct line {
    int fd;
    size_t size;
    char data[];
};

/* False: no room on a disk, which may come back. Whose descriptor it was may have made it one that
 * does not wait. */
static bool output_write(struct output *output, int fd, const char *data, size_t size)
{
    size_t done = 0;
    while (done < size && !output->broken[fd]) {
        ssize_t written = write(fd, data + done, size - done);
        if (written >= 0)
            done += (size_t)written;
        else if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
            return false;
        else if (errno == EAGAIN)
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, FULL_WAIT_MS);
        else if (errno != EINTR)
            output->broken[fd] = true;
    }
    return true;
}

/* A line that was cut off ends before the words. */
static bool write_lost(struct output *output, int fd)
{
    char text[80];
    int size = snprintf(text, sizeof text, "\n[%llu line%s lost: no space; see the log files]\n",
                        (unsigned long long)output->lost[fd], plural((int64_t)output->lost[fd]));
    if (output->lost[fd] > 0 && !output_write(output, fd, text, (size_t)size))
        return false;
    output->lost[fd] = 0;
    return true;
}

/* At the end, where nobody would hear of it else. */
static void write_lost_output(struct output *output)
{
    char text[80];
    uint64_t lost = output->lost[STDOUT_FILENO];
    int size = snprintf(text, sizeof text, "[%llu line%s of output lost: no space]\n",
                        (unsigned long long)lost, plural((int64_t)lost));
    (void)output_write(output, STDERR_FILENO, text, (size_t)size);
}

static void write_line(struct output *output, const struct line *line)
{
    if (!write_lost(output, line->fd) || !output_write(output, line->fd, line->data, line->size))
        output->lost[line->fd]++;
}

static void write_lines(void *arg)
{
    struct output *output = arg;
    void *item;
    while (queue_pop(output->lines, &item, DEADLINE_NEVER) == TRP_OK) {
        struct line *line = item;
        write_line(output, line);
        atomic_fetch_sub(&output->bytes, line->size);
        free(line);
    }
    if (!write_lost(output, STDOUT_FILENO))
        write_lost_output(output);
    (void)write_lost(output, STDERR_FILENO);
    mutex_lock(&output->mutex);
    output->finished = true;
    cond_signal(&output->changed);
    mutex_unlock(&output->mutex);
}

trp_status output_create(struct output **out, bool silent)
{
    struct output *output = xcalloc(1, sizeof *output);
    output->broken[STDOUT_FILENO] = output->broken[STDERR_FILENO] = silent;
    output->lines = queue_create(OUTPUT_LINES_MAX);
    mutex_init(&output->mutex);
    cond_init(&output->changed);
    trp_status status = thread_start(&output->thread, "output", write_lines, output);
    if (status != TRP_OK) {
        output->finished = true;
        output_destroy(output, 0);
        return status;
    }
    *out = output;
    return TRP_OK;
}

void output_destroy(struct output *output, int64_t timeout_ms)
{
    if (!output)
        return;
    queue_close(output->lines);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    mutex_lock(&output->mutex);
    bool in_time = true;
    while (!output->finished && in_time)
        in_time = cond_wait(&output->changed, &output->mutex, deadline);
    bool finished = output->finished;
    mutex_unlock(&output->mutex);
    /* A terminal that takes nothing keeps the thread until the process ends. */
    if (!finished)
        return;
    thread_stop(&output->thread);
    queue_destroy(output->lines);
    cond_cleanup(&output->changed);
    mutex_cleanup(&output->mutex);
    free(output);
}

static struct line *line_create(int fd, const char *prefix, const char *text, size_t size)
{
    size_t head = prefix && prefix[0] ? strlen(prefix) + 1 : 0;
    struct line *line = xmalloc(sizeof *line + head + size + 1);
    line->fd = fd;
    line->size = head + size + 1;
    if (head > 0) {
        memcpy(line->data, prefix, head - 1);
        line->data[head - 1] = ' ';
    }
    memcpy(line->data + head, text, size);
    line->data[head + size] = '\n';
    return line;
}

/* Takes the line. False: there was no room until the deadline. */
static bool output_push(struct output *output, struct line *line, struct deadline deadline)
{
    atomic_fetch_add(&output->bytes, line->size);
    if (queue_push(output->lines, line, deadline) == TRP_OK)
        return true;
    atomic_fetch_sub(&output->bytes, line->size);
    free(line);
    return false;
}

static bool has_room(const struct output *output)
{
    return atomic_load(&output->bytes) < OUTPUT_BYTES_MAX &&
           queue_size(output->lines) < OUTPUT_LINES_MAX - 2;
}

static void push_dropped(struct output *output, int fd)
{
    char text[80];
    int size =
        snprintf(text, sizeof text, "[%llu line%s not shown: slow terminal; see the log files]",
                 (unsigned long long)output->dropped, plural((int64_t)output->dropped));
    struct deadline now = deadline_in_ms(&clock_monotonic, 0);
    if (output_push(output, line_create(fd, NULL, text, (size_t)size), now))
        output->dropped = 0;
}

void output_line(struct output *output, int fd, const char *prefix, const char *line, size_t size)
{
    if (output->broken[fd])
        return;
    if (!has_room(output)) {
        output->dropped++;
        return;
    }
    if (output->dropped > 0)
        push_dropped(output, fd);
    struct deadline now = deadline_in_ms(&clock_monotonic, 0);
    if (!output_push(output, line_create(fd, prefix, line, size), now))
        output->dropped++;
}

void output_print(struct output *output, int fd, const char *format, ...)
{
    char words[LOG_LINE_BYTES_MAX], text[LOG_LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (length < 0 || output->broken[fd])
        return;
    size_t size = printable_copy(text, sizeof text, (trp_bytes){(uint8_t *)words, strlen(words)});
    if (output->dropped > 0)
        push_dropped(output, fd);
    struct deadline soon = deadline_in_ms(&clock_monotonic, OWN_LINE_WAIT_MS);
    output_push(output, line_create(fd, NULL, text, size), soon);
}

bool output_broken(const struct output *output, int fd)
{
    return output->broken[fd];
}
