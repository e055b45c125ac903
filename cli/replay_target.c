/* Problem: the same question goes to a live server or to the files of a stopped one.
 * Design: both are a troupe.Replay service; only finding out which one it is differs. */
#include "replay_target.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"

enum { CONNECT_TIMEOUT_MS = 3000, CALL_TIMEOUT_MS = 10000 };
enum { KEY_KEY = 256 };

static error_t show_option(int key, char *text, struct argp_state *state)
{
    struct show_options *options = state->input;
    switch (key) {
    case 'o':
        options->json = strcmp(text, "json") == 0;
        if (!options->json && strcmp(text, "text") != 0)
            return cli_wrong(state, "--output=%s: use text or json", text);
        return 0;
    case 'n':
        if (!options->with_count)
            return cli_wrong(state, "--count goes with items");
        return cli_parse_u64(state, "count", text, 1, 10000, &options->count);
    case KEY_KEY:
        if (!options->with_key)
            return cli_wrong(state, "--key goes with peek");
        options->has_key = true;
        return cli_parse_u64(state, "key", text, 0, UINT64_MAX, &options->key);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t show_argument(char *text, const struct argp_state *state)
{
    struct show_options *options = state->input;
    if (!options->target)
        options->target = text;
    else if (!options->table)
        options->table = text;
    else
        return cli_wrong(state, "'%s' is too much: %s", text, options->usage);
    return 0;
}

static error_t show_key(int key, char *text, struct argp_state *state)
{
    const struct show_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->err_stream = NULL;
        return 0;
    case ARGP_KEY_ARG:
        return show_argument(text, state);
    case ARGP_KEY_END:
        if (!options->target)
            return cli_wrong(state, "name a server's address or a store's directory: %s",
                             options->usage);
        if (options->table_needed && !options->table)
            return cli_wrong(state, "name a table: %s", options->usage);
        return 0;
    default:
        return show_option(key, text, state);
    }
}

int show_parse(struct show_options *options, const char *doc, int argc, char **argv)
{
    static const struct argp_option argp_options[] = {
        {"output", 'o', "FORMAT", 0, "text (default) or json", 0},
        {"count", 'n', "N", 0, "items: how many, 1 to 10000 (default: 10)", 0},
        {"key", KEY_KEY, "KEY", 0, "peek: this item (default: the sampler's favourite)", 0},
        {0},
    };
    const struct argp argp = {argp_options, show_key, options->usage, doc, NULL, NULL, NULL};
    return cli_parse(&argp, argc, argv, options);
}

/* ---- targets ----------------------------------------------------------------------------- */

static trp_status target_connect(struct target *target, const char *address)
{
    trp_channel_options options = {.connect_timeout_ms = CONNECT_TIMEOUT_MS};
    TRP_TRY(trp_channel_create(&target->channel, address, &options));
    return trp_channel_service(target->channel, &troupe__replay__descriptor, &target->service);
}

trp_status target_open(struct target *target, const char *text)
{
    struct stat stat_of;
    bool exists = stat(text, &stat_of) == 0;
    int error = errno;
    *target = (struct target){0};
    if (exists && S_ISDIR(stat_of.st_mode)) {
        TRP_TRY(trp_replay_files_open(&target->files, text));
        target->service = trp_replay_files_service(target->files);
        return TRP_OK;
    }
    if (exists && S_ISSOCK(stat_of.st_mode)) {
        char *address = xasprintf("unix:%s", text);
        trp_status status = target_connect(target, address);
        free(address);
        return status;
    }
    if (exists)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s is neither a directory nor a socket", text);
    if (strchr(text, ':'))
        return target_connect(target, text);
    return trp_fail(TRP_NOT_FOUND, "%s: %s (and an address looks like HOST:PORT or unix:/PATH)",
                    text, strerror(error));
}

void target_close(struct target *target)
{
    trp_channel_destroy(target->channel);
    trp_replay_files_close(target->files);
}

trp_status target_call(struct target *target, const char *method, const ProtobufCMessage *request,
                       ProtobufCMessage **reply)
{
    trp_call_options options = {.timeout_ms = CALL_TIMEOUT_MS};
    return trp_call(target->service, method, request, reply, &options);
}

/* ---- output ------------------------------------------------------------------------------ */

void json_print(cJSON *json)
{
    char *text = cJSON_Print(json);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(json);
}

void json_add_i64(cJSON *object, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    cJSON_AddRawToObject(object, name, text);
}

void json_add_key(cJSON *object, const char *name, uint64_t key)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, key);
    cJSON_AddStringToObject(object, name, text);
}

const char *bytes_text(uint64_t bytes, char *text)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}
