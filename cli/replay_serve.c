/* `troupe replay serve`: a replay server as a process of its own. Signals are blocked from the
 * start, so that every thread inherits that, and taken by the main thread alone. */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/replay.h>
#include "cli.h"
#include "core/alloc.h"

enum {
    KEY_LISTEN = 256,
    KEY_DIR,
    KEY_TABLE,
    KEY_TABLES,
    KEY_DURABILITY,
    KEY_MAX_BYTES,
    KEY_INSECURE,
    KEY_SEED,
    KEY_LOG_LEVEL
};

enum { STOP_GRACE_MS = 200 };

static const struct argp_option argp_options[] = {
    {"listen", KEY_LISTEN, "ADDR", 0,
     "HOST:PORT, [V6]:PORT or unix:/PATH (default: 127.0.0.1:0; port 0 picks one)", 0},
    {"dir", KEY_DIR, "PATH", 0, "Directory of the store; made when missing", 0},
    {"table", KEY_TABLE, "OPTIONS", 0,
     "A table, e.g. 'name=x sampler=prioritized(0.6) remover=fifo max_size=100000 "
     "limiter=min_size(1000) max_times_sampled=1 signature=FILE' (repeatable)",
     0},
    {"tables", KEY_TABLES, "FILE", 0, "Tables from a file, one a line; # begins a comment", 0},
    {"durability", KEY_DURABILITY, "LEVEL", 0,
     "What confirmed items survive: process (default): kill -9; memory: the same, on tmpfs; "
     "system: power loss",
     0},
    {"max-bytes", KEY_MAX_BYTES, "N", 0,
     "Bound of the data file, with K, M, G or T (default: what the file system has)", 0},
    {"insecure", KEY_INSECURE, NULL, 0, "Allow addresses that are neither loopback nor unix", 0},
    {"seed", KEY_SEED, "N", 0, "Seed of the samplers (default: random)", 0},
    {"log-level", KEY_LOG_LEVEL, "LEVEL", 0, "debug, info (default), warn or error", 0},
    {0},
};

static const char doc[] =
    "Serves replay tables over Reverb's protocol.\v"
    "Prints 'listening on ADDR' when it is ready; TERM and INT end it.\n\n"
    "Samplers and removers: fifo lifo uniform prioritized(EXPONENT) max_heap min_heap. Limiters: "
    "min_size(N) samples_per_insert(SPI,MIN_SIZE,ERROR_BUFFER) queue(N) stack(N) "
    "rate(SPI,MIN_SIZE,MIN_DIFF,MAX_DIFF), where a limit may be inf or -inf.";

struct serve_options {
    trp_replay_server_options server;
    trp_table_options *tables; /* shallow copies of `owned` */
    trp_table_options **owned;
    size_t count;
};

static void options_cleanup(struct serve_options *options)
{
    for (size_t i = 0; i < options->count; ++i)
        trp_table_options_destroy(options->owned[i]);
    free(options->owned);
    free(options->tables);
}

static trp_status table_add(struct serve_options *options, const char *line)
{
    trp_table_options *table;
    TRP_TRY(trp_table_options_parse(line, &table));
    size_t count = options->count + 1;
    options->owned = xrealloc(options->owned, count * sizeof *options->owned);
    options->tables = xrealloc(options->tables, count * sizeof *options->tables);
    options->owned[options->count] = table;
    options->tables[options->count] = *table;
    options->count = count;
    return TRP_OK;
}

static error_t tables_add(const struct argp_state *state, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return cli_wrong(state, "--tables=%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t capacity = 0;
    unsigned number = 0;
    error_t error = 0;
    while (error == 0 && getline(&line, &capacity, file) >= 0) {
        number++;
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        if (table_add(state->input, line) != TRP_OK)
            error = cli_wrong(state, "%s:%u: %s", path, number, trp_last_error());
    }
    if (error == 0 && ferror(file))
        error = cli_wrong(state, "--tables=%s: cannot be read", path);
    free(line);
    fclose(file);
    return error;
}

static error_t parse_durability(const struct argp_state *state, const char *text)
{
    static const char *const names[] = {"process", "memory", "system"};
    struct serve_options *options = state->input;
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        if (strcmp(text, names[i]) == 0) {
            options->server.durability = (trp_durability)i;
            return 0;
        }
    }
    return cli_wrong(state, "--durability=%s: use process, memory or system", text);
}

static error_t parse_bytes(const struct argp_state *state, const char *text)
{
    struct serve_options *options = state->input;
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (unit)
        end++;
    if (text[0] < '0' || text[0] > '9' || *end || errno || value == 0 ||
        value > UINT64_MAX >> shift)
        return cli_wrong(state, "--max-bytes=%s: not a number of bytes such as 500M or 20G", text);
    options->server.max_bytes = (uint64_t)value << shift;
    return 0;
}

static error_t parse_log_level(const struct argp_state *state, const char *text)
{
    trp_log_level level;
    if (trp_log_level_parse(text, &level) != TRP_OK)
        return cli_wrong(state, "--log-level=%s: use debug, info, warn or error", text);
    trp_log_set_level(level);
    return 0;
}

static error_t check_complete(const struct argp_state *state)
{
    const struct serve_options *options = state->input;
    if (!options->server.dir)
        return cli_wrong(state, "--dir=PATH is missing");
    if (options->count == 0)
        return cli_wrong(state, "no tables: use --table or --tables");
    return 0;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct serve_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->err_stream = NULL;
        return 0;
    case KEY_LISTEN:
        options->server.server.address = text;
        return 0;
    case KEY_DIR:
        options->server.dir = text;
        return 0;
    case KEY_TABLE:
        if (table_add(options, text) != TRP_OK)
            return cli_wrong(state, "--table '%s': %s", text, trp_last_error());
        return 0;
    case KEY_TABLES:
        return tables_add(state, text);
    case KEY_DURABILITY:
        return parse_durability(state, text);
    case KEY_MAX_BYTES:
        return parse_bytes(state, text);
    case KEY_INSECURE:
        options->server.server.insecure = true;
        return 0;
    case KEY_SEED:
        return cli_parse_u64(state, "seed", text, 1, UINT64_MAX, &options->server.seed);
    case KEY_LOG_LEVEL:
        return parse_log_level(state, text);
    case ARGP_KEY_ARG:
        return cli_wrong(state, "'%s': only flags are taken", text);
    case ARGP_KEY_END:
        return check_complete(state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void wait_for_stop(const sigset_t *signals)
{
    int number = 0;
    while (sigwait(signals, &number) != 0)
        ;
    trp_log(TRP_INFO, "stopping signal=%s", sigabbrev_np(number));
}

static int serve(const char *command, const trp_replay_server_options *options,
                 const sigset_t *signals)
{
    trp_replay_server *server;
    if (trp_replay_server_create(&server, options) != TRP_OK)
        return cli_failed(command);
    int status = EXIT_FAILED;
    if (trp_replay_server_start(server) != TRP_OK) {
        cli_failed(command);
    } else {
        printf("listening on %s\n", trp_server_address(trp_replay_server_rpc(server)));
        fflush(stdout);
        wait_for_stop(signals);
        trp_replay_server_stop(server, STOP_GRACE_MS);
        status = 0;
    }
    trp_replay_server_destroy(server);
    return status;
}

int replay_serve(int argc, char **argv)
{
    static const struct argp argp = {argp_options, parse, NULL, doc, NULL, NULL, NULL};
    struct serve_options options = {.server = {.server = {.address = "127.0.0.1:0"}}};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    int status = cli_parse(&argp, argc, argv, &options);
    options.server.tables = options.tables;
    options.server.table_count = options.count;
    if (status == 0)
        status = serve(argv[0], &options.server, &signals);
    options_cleanup(&options);
    return status;
}
