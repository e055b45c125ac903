/* Problem: the same question goes to a live server, to the files of a stopped one, and, where it
 * changes something, to a stopped store.
 * Design: all three are a troupe.Replay service. Files are only read; to change a stopped store it
 * is opened as a server in this process that does not listen.
 * Guarantee: a store that a live server has is never opened; its address is used instead. */
#include "replay_target.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/flags.h"
#include "core/printable.h"
#include "core/reach.h"
#include "core/status.h"
#include "core/store_dir.h"
#include "core/words.h"
#include "output.h"

enum {
    ADDRESS_BYTES_MAX = 300, /* a name of a host has 253 */
    CONNECT_TIMEOUT_MS = 3000,
    CONNECT_TIMEOUT_MAX_MS = 24 * 3600 * 1000, /* "for ever" */
    CALL_TIMEOUT_MS = 30000,
    POLL_MS = 200,
};

/* ---- opening ----------------------------------------------------------------------------- */

static trp_status connect_to(struct target *target, const char *address)
{
    trp_channel_options options = {.connect_timeout_ms = target->connect_ms};
    TRP_TRY(trp_channel_create(&target->channel, address, &options));
    char *why = reach(address, (int)target->connect_ms);
    trp_status there = why ? trp_fail(TRP_UNAVAILABLE, "%s: %s", address, why) : TRP_OK;
    free(why);
    TRP_TRY(there);
    TRP_TRY(trp_channel_service(target->channel, &troupe__replay__descriptor, &target->service));
    /* Somebody listens; a server answers the smallest question at once. */
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    trp_call_options call = {.timeout_ms = target->answer_ms};
    ProtobufCMessage *reply = NULL;
    trp_status status = trp_call(target->service, "Tables", &request.base, &reply, &call);
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    if (status == TRP_UNAVAILABLE || status == TRP_DEADLINE_EXCEEDED)
        return trp_fail(
            TRP_UNAVAILABLE, "%s: connected, but no answer in %g s", address,
            (double)(status == TRP_UNAVAILABLE ? target->connect_ms : target->answer_ms) / 1000);
    if (status == TRP_UNIMPLEMENTED)
        return trp_fail(status, "%s: that server is not one of troupe's", address);
    return status;
}

/* The address that a live server left in its directory; NULL: none. */
static char *live_address(const char *dir)
{
    char *path = xasprintf("%s/ADDRESS", dir), line[ADDRESS_BYTES_MAX + 2] = "";
    FILE *file = own_file_stream(path, "r");
    if (file && !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    free(path);
    line[strcspn(line, "\n")] = '\0';
    return *line ? xstrdup(line) : NULL;
}

/* A server on the stopped store, which serves this process alone. */
static trp_status store_open(struct target *target, const char *dir)
{
    trp_replay_server_options options = {.dir = dir, .keep_checkpoints = UINT32_MAX};
    trp_replay_files_close(target->files);
    target->files = NULL;
    TRP_TRY(trp_replay_server_create(&target->server, &options));
    target->channel = trp_channel_create_local(trp_replay_server_rpc(target->server));
    return trp_channel_service(target->channel, &troupe__replay__descriptor, &target->service);
}

static trp_status open_dir(struct target *target, const char *dir, enum target_mode mode)
{
    trp_status status = trp_replay_files_open(&target->files, dir);
    if (status == TRP_OK) {
        target->service = trp_replay_files_service(target->files);
        return mode == TARGET_READ ? TRP_OK : store_open(target, dir);
    }
    char *kept = error_keep();
    char *address = status == TRP_FAILED_PRECONDITION ? live_address(dir) : NULL;
    if (!address)
        return error_back(status, kept);
    print_text(stderr, "%s is open in a server: using %s\n", dir, address);
    status = connect_to(target, address);
    free(address);
    free(kept);
    return status;
}

trp_status target_open(struct target *target, const char *text, enum target_mode mode,
                       double answer_seconds)
{
    struct stat stat_of;
    bool exists = stat(text, &stat_of) == 0;
    int error = errno;
    *target = (struct target){
        .text = text, .connect_ms = CONNECT_TIMEOUT_MS, .answer_ms = CALL_TIMEOUT_MS};
    if (answer_seconds != 0) {
        target->answer_ms = seconds_ms(answer_seconds);
        target->connect_ms = target->answer_ms < 0 || target->answer_ms > CONNECT_TIMEOUT_MAX_MS
                                 ? CONNECT_TIMEOUT_MAX_MS
                                 : target->answer_ms;
    }
    if (exists && S_ISDIR(stat_of.st_mode)) {
        char *dir = store_dir_of(text);
        trp_status status = open_dir(target, dir, mode);
        free(dir);
        return status;
    }
    if (exists && S_ISSOCK(stat_of.st_mode)) {
        char *address = xasprintf("unix:%s", text);
        trp_status status = connect_to(target, address);
        free(address);
        return status;
    }
    if (exists)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s is neither a directory nor a socket", text);
    if (strchr(text, ':'))
        return connect_to(target, text);
    return trp_fail(TRP_UNAVAILABLE, "%s: %s (and an address looks like HOST:PORT or unix:/PATH)",
                    text, strerror(error));
}

void target_close(struct target *target)
{
    trp_channel_destroy(target->channel);
    trp_replay_server_destroy(target->server);
    trp_replay_files_close(target->files);
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Parts that an answer may lack, by their names in replay.proto; all others are there. */
static bool may_lack(const ProtobufCFieldDescriptor *field)
{
    static const char *const names[] = {"staleness", "work", "rest"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(field->name, names[i]) == 0)
            return true;
    return false;
}

/* The first part that a message from anywhere lacks and should have; NULL: it is complete. */
static const char *part_missing(const ProtobufCMessage *message)
{
    const char *missing = NULL;
    for (unsigned i = 0; !missing && i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const void *at = (const char *)message + field->offset;
        if (field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            const ProtobufCMessage *part = *(ProtobufCMessage *const *)at;
            missing = part ? part_missing(part) : may_lack(field) ? NULL : field->name;
            continue;
        }
        size_t count =
            *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
        ProtobufCMessage *const *parts = *(ProtobufCMessage *const *const *)at;
        for (size_t j = 0; !missing && j < count; j++)
            missing = part_missing(parts[j]);
    }
    return missing;
}

/* Whoever answers may be no server of ours: what commands take for granted is looked for once. */
static trp_status reply_check(const struct target *target, const char *method,
                              ProtobufCMessage **reply)
{
    const char *missing = reply && *reply ? part_missing(*reply) : NULL;
    if (!missing)
        return TRP_OK;
    protobuf_c_message_free_unpacked(*reply, NULL);
    *reply = NULL;
    return trp_fail(TRP_INTERNAL,
                    "%s: the answer to %s lacks its '%s': no server of troupe's gives it",
                    target->text, method, missing);
}

trp_status target_malformed(const struct target *target, trp_status status)
{
    if (status != TRP_INVALID_ARGUMENT)
        return status;
    return trp_fail(TRP_INTERNAL, "%s: what came is malformed: %s", target->text, trp_last_error());
}

/* A store that is open in this process works on this thread: nobody else is waited for. */
int64_t target_answer_ms(const struct target *target)
{
    return target->server ? -1 : target->answer_ms;
}

trp_status target_call(const struct target *target, const char *method,
                       const ProtobufCMessage *request, ProtobufCMessage **reply)
{
    trp_call_options options = {.timeout_ms = target_answer_ms(target)};
    TRP_TRY(trp_call(target->service, method, request, reply, &options));
    return reply_check(target, method, reply);
}

/* Shows what the server says of its work, which may be another caller's that ours waits for; a
 * server that says nothing is no failure. */
static void show_work(const struct target *target, struct progress_line *progress)
{
    Troupe__ReplayTablesResponse *tables;
    if (target_tables(target, NULL, &tables) != TRP_OK)
        return;
    if (tables->work) {
        progress->began_ns =
            clock_now_ns(&clock_monotonic) - (int64_t)(tables->work->seconds * 1e9);
        progress->total = tables->work->total_bytes;
        progress_show(progress, tables->work->done_bytes);
    }
    troupe__replay_tables_response__free_unpacked(tables, NULL);
}

trp_status target_call_long(const struct target *target, const char *method,
                            const ProtobufCMessage *request, ProtobufCMessage **reply)
{
    trp_call_options options = {.timeout_ms = -1};
    struct progress_line progress;
    char what[32];
    snprintf(what, sizeof what, "%s", method);
    what[0] = (char)(what[0] | 0x20);
    progress_begin(&progress, what, NULL, 0);
    trp_future *future = trp_call_async(target->service, method, request, &options);
    trp_status status = trp_future_wait(future, POLL_MS, reply);
    while (status == TRP_DEADLINE_EXCEEDED) {
        show_work(target, &progress);
        status = trp_future_wait(future, POLL_MS, reply);
    }
    progress_end(&progress);
    trp_future_destroy(future);
    return status == TRP_OK ? reply_check(target, method, reply) : status;
}

const Troupe__ReplayTable *tables_find(const Troupe__ReplayTablesResponse *tables, const char *name)
{
    for (size_t i = 0; i < tables->n_tables; i++)
        if (strcmp(tables->tables[i]->name, name) == 0)
            return tables->tables[i];
    return NULL;
}

const char *column_name(const Troupe__ReplayTable *table, size_t count, size_t index,
                        char text[COLUMN_TEXT_SIZE])
{
    if (table && table->n_columns == count)
        return table->columns[index];
    snprintf(text, COLUMN_TEXT_SIZE, "%zu", index);
    return text;
}

static trp_status no_such_table(const struct target *target, const char *name,
                                const Troupe__ReplayTablesResponse *tables)
{
    const char **all = xcalloc(tables->n_tables + 1, sizeof(char *));
    char names[512] = "", guess[GUESS_BYTES];
    size_t length = 0;
    for (size_t i = 0; i < tables->n_tables && length + 1 < sizeof names; i++) {
        char *quoted = trp_table_options_quote(tables->tables[i]->name);
        length += (size_t)snprintf(names + length, sizeof names - length, " %s", quoted);
        free(quoted);
    }
    for (size_t i = 0; i < tables->n_tables; i++)
        all[i] = tables->tables[i]->name;
    trp_status status =
        trp_fail(TRP_NOT_FOUND, "%s has no table %s; it has:%s%s", target->text, name,
                 tables->n_tables ? names : " none", word_guess(name, all, guess));
    free(all);
    return status;
}

trp_status target_tables(const struct target *target, const char *table,
                         Troupe__ReplayTablesResponse **tables)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    *tables = NULL;
    TRP_TRY(target_call(target, "Tables", &request.base, &reply));
    *tables = (Troupe__ReplayTablesResponse *)reply;
    if (!table || tables_find(*tables, table))
        return TRP_OK;
    trp_status status = no_such_table(target, table, *tables);
    troupe__replay_tables_response__free_unpacked(*tables, NULL);
    *tables = NULL;
    return status;
}

/* ---- running ----------------------------------------------------------------------------- */

/* The word that the usage calls TABLE. */
static const char *table_word(const struct cli_call *call, const char *usage)
{
    size_t at = 0;
    for (const char *word = usage; *word && at < call->word_count; at++) {
        size_t size = strcspn(word, " ");
        if (strncmp(word, "TABLE", size) == 0 || strncmp(word, "[TABLE]", size) == 0)
            return call->words[at];
        word += size + strspn(word + size, " ");
    }
    return NULL;
}

int target_run(const struct cli_call *call, enum target_mode mode,
               trp_status (*work)(struct work *work))
{
    struct work it = {
        .call = call, .args = call->args, .table = table_word(call, call->command->arguments)};
    if (it.args->all)
        it.table = NULL;
    Troupe__ReplayTablesResponse *tables = NULL;
    for (size_t i = 0; i < it.args->filter.keys.count; i++)
        if (!key_check(call->name, it.args->filter.keys.words[i]))
            return EXIT_USAGE;
    if (it.args->progress)
        progress_ask();
    trp_log_set_level(TRP_WARN);
    trp_status status = target_open(&it.target, call->words[0], mode, it.args->answer_seconds);
    if (status == TRP_OK && it.table)
        status = target_tables(&it.target, it.table, &tables);
    if (tables)
        it.info = tables_find(tables, it.table);
    if (status == TRP_OK)
        status = work(&it);
    if (status != TRP_OK)
        it.exit_status = cli_failed(call->name, status);
    if (tables)
        troupe__replay_tables_response__free_unpacked(tables, NULL);
    target_close(&it.target);
    return it.exit_status;
}

/* ---- filters ----------------------------------------------------------------------------- */

bool key_check(const char *name, const char *word)
{
    uint64_t key;
    bool right = flags_u64(word, 0, UINT64_MAX, &key);
    if (!right)
        cli_wrong(name, "'%s' is no key: keys are whole numbers", word);
    return right;
}

static trp_status filter_keys(Troupe__ReplayFilter *filter, const struct cli_list *keys)
{
    filter->keys = xcalloc(keys->count + 1, sizeof *filter->keys);
    for (size_t i = 0; i < keys->count; i++) {
        if (!flags_u64(keys->words[i], 0, UINT64_MAX, &filter->keys[i]))
            return trp_fail(TRP_INVALID_ARGUMENT, "'%s' is no key: keys are whole numbers",
                            keys->words[i]);
        filter->n_keys++;
    }
    return TRP_OK;
}

trp_status filter_init(Troupe__ReplayFilter *filter, const struct filter_args *args)
{
    troupe__replay_filter__init(filter);
    filter->has_min_priority = args->has_min_priority;
    filter->min_priority = args->min_priority;
    filter->has_max_priority = args->has_max_priority;
    filter->max_priority = args->max_priority;
    filter->has_min_times_sampled = args->has_min_sampled;
    filter->min_times_sampled = (int32_t)args->min_sampled;
    filter->has_max_times_sampled = args->has_max_sampled;
    filter->max_times_sampled = (int32_t)args->max_sampled;
    filter->min_age_seconds = args->min_age;
    filter->max_age_seconds = args->max_age;
    filter->min_policy_version = args->min_version;
    filter->max_policy_version = args->max_version;
    trp_status status = filter_keys(filter, &args->keys);
    if (status != TRP_OK)
        filter_cleanup(filter);
    return status;
}

bool filter_given(const struct filter_args *args)
{
    return args->has_min_priority || args->has_max_priority || args->has_min_sampled ||
           args->has_max_sampled || args->has_min_age || args->has_max_age ||
           args->has_min_version || args->has_max_version || args->keys.count > 0;
}

void filter_cleanup(Troupe__ReplayFilter *filter)
{
    free(filter->keys);
    filter->keys = NULL;
    filter->n_keys = 0;
}
