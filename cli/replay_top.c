/* `troupe replay top`: what a server does now, again and again.
 *
 * On a terminal the text is redrawn in place. Signals are blocked and read from a descriptor beside
 * the keys, between two looks, so that the terminal is always put right: when it ends, and while it
 * is stopped. Otherwise lines are appended, and with -o json one object a look. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/printable.h"
#include "core/status.h"
#include "core/words.h"
#include "json.h"
#include "output.h"
#include "show.h"

enum { PAUSE_MS_MAX = 60000 };

/* Before the first look is shown. */
#define FIRST_SECONDS 0.25

struct top {
    struct work *work;
    Troupe__ReplayTablesResponse *now, *before; /* `before` NULL: the first look */
    int64_t now_ns, before_ns;
    bool terminal, keys;     /* redrawn in place; typed keys come at once */
    char *away;              /* why the server gives no answer; NULL: it gave the last one */
    struct deadline back_by; /* of a server that is away */
    struct termios cooked;
    FILE *out;
};

struct rates {
    double inserts, samples, deletes; /* a second */
};

static struct rates rates_of(const struct top *top, const Troupe__ReplayTable *table)
{
    const Troupe__ReplayTable *old = top->before ? tables_find(top->before, table->name) : NULL;
    double seconds = (double)(top->now_ns - top->before_ns) * 1e-9;
    if (!old || seconds <= 0)
        return (struct rates){0};
    const Troupe__ReplayLimiter *a = old->limiter, *b = table->limiter;
    return (struct rates){((double)b->inserts - (double)a->inserts) / seconds,
                          ((double)b->samples - (double)a->samples) / seconds,
                          ((double)b->deletes - (double)a->deletes) / seconds};
}

/* What the limiter does, in a few words. */
static const char *limiter_words(const Troupe__ReplayTable *table)
{
    const Troupe__ReplayLimiter *limiter = table->limiter;
    if (table->indexing)
        return "building its index";
    if (!limiter->can_insert && !limiter->can_sample)
        return "holds back both";
    if (!limiter->can_insert)
        return "holds back inserts";
    if (!limiter->can_sample)
        return table->size == 0                  ? "empty"
               : table->size < limiter->min_size ? "fills up to min_size"
                                                 : "holds back samples";
    return "lets all go on";
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void look_json(const struct top *top)
{
    cJSON *out = json_message(&top->now->base);
    cJSON *tables = cJSON_GetObjectItem(out, "tables");
    for (size_t i = 0; i < top->now->n_tables; i++) {
        struct rates rates = rates_of(top, top->now->tables[i]);
        cJSON *table = cJSON_GetArrayItem(tables, (int)i);
        cJSON_AddNumberToObject(table, "inserts_per_second", rates.inserts);
        cJSON_AddNumberToObject(table, "samples_per_second", rates.samples);
        cJSON_AddNumberToObject(table, "deletes_per_second", rates.deletes);
    }
    json_line(stdout, out);
}

/* ---- text -------------------------------------------------------------------------------- */

static void head_text(const struct top *top)
{
    const Troupe__ReplayTablesResponse *now = top->now;
    char a[TEXT_SIZE], b[TEXT_SIZE], c[TEXT_SIZE];
    print_text(top->out, "%s  ", top->work->target.text);
    if (now->pid)
        print_text(top->out, "up %s  %lld stream%s", duration_text(now->uptime_seconds, a),
                   (long long)now->streams, plural(now->streams));
    else
        print_text(top->out, "stopped");
    print_text(top->out, "  store %s in %s of file, %llu item%s",
               size_text(now->store->live_bytes, b), size_text(now->store->allocated_bytes, c),
               (unsigned long long)now->store->items, plural((int64_t)now->store->items));
    if (now->work && now->work->total_bytes)
        print_text(top->out, "  %s %.0f %%", now->work->what,
                   100.0 * (double)now->work->done_bytes / (double)now->work->total_bytes);
    fputc('\n', top->out);
}

static void tables_text(const struct top *top)
{
    static const char *const heads[] = {"TABLE",    "SIZE",     "FILL",    "BYTES",  "INSERT/S",
                                        "SAMPLE/S", "DELETE/S", "BLOCKED", "LIMITER"};
    static const bool right[] = {false, true, true, true, true, true, true, false, false};
    struct grid grid = {.columns = 9, .right = right};
    char text[TEXT_SIZE];
    grid_heads(&grid, heads);
    for (size_t i = 0; i < top->now->n_tables; i++) {
        const Troupe__ReplayTable *table = top->now->tables[i];
        struct rates rates = rates_of(top, table);
        grid_add(&grid, "%s", table->name);
        grid_add(&grid, "%lld", (long long)table->size);
        grid_add(&grid, "%s", fill_text(table, text));
        grid_add(&grid, "%s", size_text(table->bytes, text));
        grid_add(&grid, "%.0f", rates.inserts);
        grid_add(&grid, "%.0f", rates.samples);
        grid_add(&grid, "%.0f", rates.deletes);
        grid_add(&grid, "%s", blocked_text(table, text));
        grid_add(&grid, "%s", limiter_words(table));
    }
    grid_print(&grid, top->out);
    grid_cleanup(&grid);
}

static void waiting_text(const struct top *top)
{
    char since[TEXT_SIZE];
    for (size_t i = 0; i < top->now->n_tables; i++) {
        const Troupe__ReplayTable *table = top->now->tables[i];
        for (size_t j = 0; j < table->n_waiters && j < 5; j++)
            print_text(top->out, "  %s: %s %s %lld, for %s\n", table->name, table->waiters[j]->peer,
                       table->waiters[j]->sampling ? "waits for samples:" : "waits to insert:",
                       (long long)table->waiters[j]->count,
                       duration_text(table->waiters[j]->since_seconds, since));
    }
}

static void look_text(struct top *top)
{
    if (top->away)
        print_text(top->out, "waiting for the server: %s\n", top->away);
    head_text(top);
    tables_text(top);
    if (top->terminal)
        waiting_text(top);
}

/* No line is wider than `columns` characters, and no more than `rows` of them: what wraps or
 * scrolls could not be drawn over. */
static void cut_print(const char *text, size_t columns, size_t rows)
{
    for (size_t row = 0; *text && row < rows; row++) {
        size_t size = strcspn(text, "\n"), bytes = 0, width = 0;
        for (; bytes < size; bytes++) {
            width += (text[bytes] & 0xc0) != 0x80; /* of UTF-8, only first bytes count */
            if (width > columns)
                break;
        }
        printf("%s%.*s\033[K", row ? "\r\n" : "", (int)bytes, text);
        text += size + (text[size] == '\n');
    }
}

static void look_draw(struct top *top)
{
    struct winsize size = {0};
    char *text = NULL;
    size_t bytes;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    top->out = open_memstream(&text, &bytes);
    look_text(top);
    fclose(top->out);
    top->out = stdout;
    fputs("\033[H", stdout); /* home */
    cut_print(text, known ? size.ws_col : 80, known ? size.ws_row : 24);
    fputs("\033[J", stdout); /* clears the rest */
    free(text);
}

/* ---- the terminal ------------------------------------------------------------------------ */

static void screen_enter(struct top *top)
{
    top->keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &top->cooked) == 0;
    if (top->keys) {
        struct termios raw = top->cooked;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* another screen, no cursor */
    fflush(stdout);
}

static void screen_leave(struct top *top)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (top->keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &top->cooked);
}

/* ^Z: the shell gets its terminal as it was, and when this goes on it is drawn anew. */
static void stop_self(struct top *top)
{
    if (top->terminal)
        screen_leave(top);
    raise(SIGSTOP);
    if (top->terminal)
        screen_enter(top);
}

/* ---- looking ----------------------------------------------------------------------------- */

static trp_status look(struct top *top)
{
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&top->work->target, NULL, &tables));
    free(top->away);
    top->away = NULL;
    if (top->before)
        troupe__replay_tables_response__free_unpacked(top->before, NULL);
    top->before = top->now;
    top->before_ns = top->now_ns;
    top->now = tables;
    top->now_ns = clock_now_ns(&clock_monotonic);
    return TRP_OK;
}

/* Who looks at a terminal sees that the server is away and may leave; a pipe would wait for ever.
 */
static void begin_waiting(struct top *top)
{
    int64_t ms = top->terminal ? -1 : top->work->target.answer_ms;
    top->back_by = deadline_in_ms(&clock_monotonic, ms);
    if (ms >= 0)
        print_text(stderr, "%s; waiting %g s for it\n", trp_last_error(), (double)ms / 1000);
    else if (!top->terminal)
        print_text(stderr, "%s; waiting for it\n", trp_last_error());
}

/* A server that is restarted comes back, whoever looks goes on; one that was never there does not
 * get here. With --count a script counts on each look. */
static trp_status look_again(struct top *top)
{
    trp_status status = look(top);
    if (!status_is_transient(status) || top->work->args->rounds != 0 || !top->work->target.channel)
        return status;
    if (!top->away)
        begin_waiting(top);
    else if (deadline_passed(top->back_by, &clock_monotonic))
        return trp_fail(status, "%s; it did not come back in %g s (--timeout)", trp_last_error(),
                        (double)top->work->target.answer_ms / 1000);
    free(top->away);
    top->away = error_keep();
    return TRP_OK;
}

/* Nothing changes in the files of a stopped server: who reads a pipe is not shown the same for
 * ever. */
static trp_status check_goes_on(const struct top *top)
{
    const struct work *work = top->work;
    if (top->terminal || work->args->rounds != 0 || work->target.channel)
        return TRP_OK;
    return trp_fail(TRP_UNAVAILABLE,
                    "%s: no server runs on it, so nothing changes: --count says how many looks",
                    work->target.text);
}

static void look_show(struct top *top)
{
    if (top->away && !top->terminal)
        return;
    if (top->work->args->json)
        look_json(top);
    else if (top->terminal)
        look_draw(top);
    else
        look_text(top);
    fflush(stdout);
}

static sigset_t top_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&signals, numbers[i]);
    return signals;
}

/* What is to be done about one signal or key; false: it ends. */
static bool input_take(struct top *top, int signals)
{
    struct signalfd_siginfo info;
    char key;
    if (read(signals, &info, sizeof info) != sizeof info) {
        ssize_t got = read(STDIN_FILENO, &key, 1);
        top->keys = top->keys && got == 1; /* a terminal that has gone is always ready */
        return got != 1 || (key != 'q' && key != 'Q');
    }
    if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM)
        return false;
    if (info.ssi_signo == SIGTSTP)
        stop_self(top);
    if (top->terminal) {
        look_draw(top);
        fflush(stdout);
    }
    return true;
}

/* False: it is to end. */
static bool pause_for(struct top *top, int signals, double seconds)
{
    struct deadline end = deadline_in_ms(&clock_monotonic, (int64_t)(seconds * 1000));
    for (;;) {
        struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
                               {.fd = top->keys ? STDIN_FILENO : -1, .events = POLLIN}};
        int64_t left = deadline_left_ms(end, &clock_monotonic);
        int ready = poll(fds, 2, left > PAUSE_MS_MAX ? PAUSE_MS_MAX : (int)left);
        if (ready > 0 && !input_take(top, signals))
            return false;
        if (ready <= 0 && deadline_passed(end, &clock_monotonic))
            return true;
    }
}

static trp_status looks(struct top *top, int signals)
{
    uint64_t rounds = top->work->args->rounds;
    double pause = top->work->args->seconds;
    TRP_TRY(look(top)); /* unseen: rates need two */
    if (!pause_for(top, signals, pause < FIRST_SECONDS ? pause : FIRST_SECONDS))
        return TRP_OK;
    for (uint64_t i = 0; rounds == 0 || i < rounds; i++) {
        if (i > 0 && !pause_for(top, signals, pause))
            return TRP_OK;
        TRP_TRY(look_again(top));
        look_show(top);
        if (ferror(stdout)) /* said at the end */
            return TRP_OK;
        TRP_TRY(check_goes_on(top));
    }
    return TRP_OK;
}

static trp_status top_work(struct work *work)
{
    struct top top = {.work = work, .out = stdout};
    sigset_t blocked = top_signals();
    int signals = signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0)
        return trp_fail(TRP_INTERNAL, "signalfd: %s", strerror(errno));
    top.terminal = isatty(STDOUT_FILENO) && !work->args->json;
    if (top.terminal)
        screen_enter(&top);
    trp_status status = looks(&top, signals);
    if (top.terminal) {
        screen_leave(&top);
        top.terminal = false;
        if (status == TRP_OK && top.now)
            look_text(&top);
    }
    close(signals);
    free(top.away);
    if (top.now)
        troupe__replay_tables_response__free_unpacked(top.now, NULL);
    if (top.before)
        troupe__replay_tables_response__free_unpacked(top.before, NULL);
    return status;
}

int replay_top(const struct cli_call *call)
{
    /* Before there are other threads, which would take them. */
    sigset_t signals = top_signals();
    sigprocmask(SIG_BLOCK, &signals, NULL);
    return target_run(call, TARGET_READ, top_work);
}
