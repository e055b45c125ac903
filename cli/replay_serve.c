/* `troupe replay serve`: a replay server as a process of its own. Signals are blocked from the
 * start, so that every thread inherits that, and taken by the main thread alone. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/log.h>
#include <troupe/sampler.h>
#include "core/alloc.h"
#include "core/printable.h"
#include "core/words.h"
#include "json.h"
#include "replay_alter.h"
#include "replay_serve.h"

enum { STOP_GRACE_MS = 200, HINT_TIMEOUT_MS = 1000 };

/* Messages of some MiB come and go: given back to the kernel each time, every one of their pages is
 * a fault again. */
enum { KEPT_BYTES = 128 << 20, MAPPED_BYTES_MIN = 32 << 20 };

struct tables {
    trp_table_options *tables; /* shallow copies of `owned` */
    trp_table_options **owned;
    size_t count;
};

static void tables_cleanup(struct tables *tables)
{
    for (size_t i = 0; i < tables->count; i++)
        trp_table_options_destroy(tables->owned[i]);
    free(tables->owned);
    free(tables->tables);
}

static trp_status tables_add(struct tables *tables, const char *line)
{
    trp_table_options *table;
    TRP_TRY(trp_table_options_parse(line, &table));
    for (size_t i = 0; i < tables->count; i++) {
        if (strcmp(tables->tables[i].name, table->name) != 0)
            continue;
        trp_table_options_destroy(table);
        return trp_fail(TRP_INVALID_ARGUMENT, "two tables are called %s", tables->tables[i].name);
    }
    size_t count = tables->count + 1;
    tables->owned = xrealloc(tables->owned, count * sizeof *tables->owned);
    tables->tables = xrealloc(tables->tables, count * sizeof *tables->tables);
    tables->owned[tables->count] = table;
    tables->tables[tables->count] = *table;
    tables->count = count;
    return TRP_OK;
}

/* A comment begins at a # outside of quotes. */
static void comment_cut(char *line)
{
    bool quoted = false;
    char *at = line;
    for (; *at && *at != '\n' && (quoted || *at != '#'); at++) {
        at += quoted && *at == '\\' && at[1];
        quoted ^= *at == '"';
    }
    *at = '\0';
}

static int tables_read(const char *name, struct tables *tables, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return cli_wrong(name, "--tables=%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t capacity = 0;
    unsigned number = 0;
    int status = EXIT_DONE;
    while (status == EXIT_DONE && getline(&line, &capacity, file) >= 0) {
        number++;
        comment_cut(line);
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        if (tables_add(tables, line) != TRP_OK)
            status = cli_wrong(name, "%s:%u: %s", path, number, trp_last_error());
    }
    if (status == EXIT_DONE && ferror(file))
        status = cli_wrong(name, "--tables=%s: cannot be read", path);
    free(line);
    fclose(file);
    return status;
}

static int tables_parse(const struct cli_call *call, struct tables *tables)
{
    const struct serve_args *args = call->args;
    for (size_t i = 0; i < args->tables.count; i++)
        if (tables_add(tables, args->tables.words[i]) != TRP_OK)
            return cli_wrong(call->name, "--table '%s': %s", args->tables.words[i],
                             trp_last_error());
    if (args->file)
        return tables_read(call->name, tables, args->file);
    return EXIT_DONE;
}

static bool is_store(const char *dir)
{
    char *format = xasprintf("%s/FORMAT", dir);
    bool exists = access(format, F_OK) == 0;
    free(format);
    return exists;
}

/* Binds and lets go: an address that cannot be had must not leave a new store behind. */
static trp_status address_try(const trp_server_options *options)
{
    trp_server *probe;
    TRP_TRY(trp_server_create(&probe, options));
    trp_status status = trp_server_start(probe);
    trp_server_destroy(probe);
    return status;
}

/* Signals are blocked: one that waits to be taken ends a restore. */
static bool restore_goes_on(void *arg, uint64_t done, uint64_t total)
{
    sigset_t pending;
    (void)arg, (void)done, (void)total;
    sigpending(&pending);
    return !sigismember(&pending, SIGTERM) && !sigismember(&pending, SIGINT);
}

/* "latest" is the newest checkpoint where this server puts its own. With --if-missing there is no
 * store, and there may be no checkpoint. */
static trp_status restore(const struct serve_args *args)
{
    bool latest = strcmp(args->restore, "latest") == 0;
    char *root = args->checkpoint_dir ? xstrdup(args->checkpoint_dir)
                                      : xasprintf("%s/checkpoints", args->dir);
    char *checkpoint = latest ? trp_replay_newest_checkpoint(root) : xstrdup(args->restore);
    trp_status status = TRP_OK;
    trp_replay_watch(restore_goes_on, NULL);
    if (checkpoint)
        status = trp_replay_restore(checkpoint, args->dir, args->force);
    else if (!args->if_missing)
        status = trp_fail(TRP_NOT_FOUND, "there is no whole checkpoint in %s", root);
    trp_replay_watch(NULL, NULL);
    if (status == TRP_OK && checkpoint)
        trp_log(TRP_INFO, "restored checkpoint=%s", checkpoint);
    free(checkpoint);
    free(root);
    return status;
}

static void wait_for_stop(const sigset_t *signals)
{
    int number = 0;
    while (sigwait(signals, &number) != 0)
        ;
    trp_log(TRP_INFO, "stopping signal=%s", sigabbrev_np(number));
}

/* What was bound: on all addresses of the host, clients elsewhere name it as they know it. Caller
 * frees. */
static char *listening_address(const char *asked, const char *address)
{
    const char *colon = strrchr(asked, ':'), *port = strrchr(address, ':');
    bool all = strncmp(asked, "0.0.0.0:", 8) == 0 || strncmp(asked, "[::]:", 5) == 0;
    if (all && colon && port)
        return xasprintf("%.*s%s", (int)(colon - asked), asked, port);
    return xstrdup(address);
}

static void listening_print(const struct serve_args *args, const char *bound)
{
    char *address = listening_address(args->listen, bound);
    if (args->json) {
        cJSON *out = cJSON_CreateObject();
        cJSON_AddStringToObject(out, "address", address);
        json_add_i64(out, "pid", getpid());
        cJSON_AddStringToObject(out, "dir", args->dir);
        json_line(stdout, out);
    } else {
        print_text(stdout, "listening on %s\n", address);
    }
    fflush(stdout);
    free(address);
}

/* A server without tables waits for them; whoever forgot them is told. */
static void tables_hint(trp_replay_server *server)
{
    trp_server *rpc = trp_replay_server_rpc(server);
    trp_channel *channel = trp_channel_create_local(rpc);
    size_t count = 1;
    char *address = shell_word(trp_server_address(rpc));
    if (trp_replay_info(channel, NULL, 0, &count, HINT_TIMEOUT_MS) == TRP_OK && count == 0)
        print_text(stderr,
                   "there are no tables yet: troupe replay create %s name=NAME makes one (serve "
                   "--table does, too)\n",
                   address);
    free(address);
    trp_channel_destroy(channel);
}

static int serve(const char *name, const struct serve_args *args,
                 const trp_replay_server_options *options, const sigset_t *signals)
{
    trp_replay_server *server = NULL;
    bool there = is_store(options->dir) && (!args->restore || args->if_missing);
    trp_status status = there ? TRP_OK : address_try(&options->server);
    bool right = status == TRP_OK;
    if (status == TRP_OK && args->restore && !there)
        status = restore(args);
    if (status == TRP_OK)
        status = trp_replay_server_create(&server, options);
    if (status == TRP_OK)
        status = trp_replay_server_start(server);
    if (status == TRP_OK) {
        listening_print(args, trp_server_address(trp_replay_server_rpc(server)));
        tables_hint(server);
        wait_for_stop(signals);
        trp_replay_server_stop(server, STOP_GRACE_MS);
    }
    int exit_status = status == TRP_OK ? EXIT_DONE : cli_failed(name, status);
    if (exit_status == EXIT_USAGE && right && !server)
        exit_status = EXIT_FAILED; /* the directory cannot be had: no fault of the words */
    trp_replay_server_destroy(server);
    return exit_status;
}

int replay_serve(const struct cli_call *call)
{
    const struct serve_args *args = call->args;
    struct tables tables = {0};
    sigset_t signals;
    if (args->if_missing && (!args->restore || args->force))
        return cli_wrong(call->name, "--if-missing goes with --restore, and not with --force");
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    trp_log_set_level((trp_log_level)args->log_level);
    int status = tables_parse(call, &tables);
    trp_replay_server_options options = {
        .dir = args->dir,
        .durability = (trp_durability)args->durability,
        .max_bytes = args->max_bytes,
        .tables = tables.tables,
        .table_count = tables.count,
        .seed = args->seed,
        .checkpoint_dir = args->checkpoint_dir,
        .keep_checkpoints = args->keep_checkpoints ? (uint32_t)args->keep_checkpoints : UINT32_MAX,
        .shrink = args->shrink,
        .verify = args->verify,
        .no_share = args->no_share,
        .server = {.address = args->listen, .insecure = args->insecure},
    };
    if (status == EXIT_DONE)
        status = serve(call->name, args, &options, &signals);
    tables_cleanup(&tables);
    return status;
}
