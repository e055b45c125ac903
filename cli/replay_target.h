/* What the commands of `troupe replay` have in common: their options, and the server they go to. */
#ifndef TRP_CLI_REPLAY_TARGET_H
#define TRP_CLI_REPLAY_TARGET_H

#include <troupe/replay.h>
#include <troupe/rpc.h>
#include "cli.h"
#include "replay.pb-c.h"

/* ReplayFilter as options. */
struct filter_args {
    double min_priority, max_priority, min_age, max_age;
    uint64_t min_sampled, max_sampled, min_version, max_version;
    bool has_min_priority, has_max_priority, has_min_sampled, has_max_sampled;
    bool has_min_age, has_max_age, has_min_version, has_max_version;
    struct cli_list keys;
};

struct replay_args {
    uint32_t json; /* index in "text json" */
    bool names;
    uint64_t count, offset, rounds, batch;
    uint32_t order;
    double seconds, timeout;
    double answer_seconds; /* 0: the usual ones, -1: for ever */
    bool progress, yes, if_empty, shrink, dry_run, create, force, all;
    const char *file, *table;
    bool counted; /* `count` was given */
    struct cli_list tables, names_given;
    struct filter_args filter;
    uint64_t writers, samplers, item_bytes;
};

/* A live server, the files of a stopped one, or a stopped one opened in this process. */
struct target {
    const char *text;              /* as given */
    int64_t connect_ms, answer_ms; /* -1: for ever */
    trp_replay_files *files;
    trp_replay_server *server;
    trp_channel *channel; /* NULL: over files */
    ProtobufCService *service;
};

enum target_mode {
    TARGET_READ,  /* a stopped store is only read */
    TARGET_WRITE, /* a stopped store is opened as a server in this process, which has a channel */
};

/* One command at work. */
struct work {
    const struct cli_call *call;
    const struct replay_args *args;
    struct target target;
    const char *table;               /* the word that TABLE is; NULL: not given */
    const Troupe__ReplayTable *info; /* of it, when the command began */
    int exit_status;                 /* of a command that did what it should; EXIT_DONE at first */
};

/* Opens the TARGET of `call`, checks that its TABLE is there, does `work`, and closes. A failure is
 * printed. An exit status. */
int target_run(const struct cli_call *call, enum target_mode mode,
               trp_status (*work)(struct work *work));

/* Opens what a TARGET names; `answer_seconds`: as in replay_args. */
TRP_MUST_USE trp_status target_open(struct target *target, const char *text, enum target_mode mode,
                                    double answer_seconds);

void target_close(struct target *target);

int64_t target_answer_ms(const struct target *target); /* for one answer; -1: for ever */

/* trp_call() with a bound that a person waits for. INTERNAL: an answer that lacks a part which
 * every server of ours gives, so that commands may take it for granted; shapes of values they
 * check. */
TRP_MUST_USE trp_status target_call(const struct target *target, const char *method,
                                    const ProtobufCMessage *request, ProtobufCMessage **reply);

/* What a decoder made of the target's bytes: INVALID_ARGUMENT, which is wrong usage where a command
 * ends with it, becomes INTERNAL. */
TRP_MUST_USE trp_status target_malformed(const struct target *target, trp_status status);

/* The same for work that takes as long as there are bytes; shows how far it is. */
TRP_MUST_USE trp_status target_call_long(const struct target *target, const char *method,
                                         const ProtobufCMessage *request, ProtobufCMessage **reply);

/* The answer to Tables; NOT_FOUND, with the names there are, when `table` (NULL: any) is not one.
 * The caller frees it. */
TRP_MUST_USE trp_status target_tables(const struct target *target, const char *table,
                                      Troupe__ReplayTablesResponse **tables);

/* What its signature calls a column of an item with `count` of them; else its number. `text` has
 * room for the number. */
enum { COLUMN_TEXT_SIZE = 24 };
const char *column_name(const Troupe__ReplayTable *table, size_t count, size_t index,
                        char text[COLUMN_TEXT_SIZE]);

const Troupe__ReplayTable *tables_find(const Troupe__ReplayTablesResponse *tables,
                                       const char *name);

/* Whether a word can be a key; otherwise that is printed. */
bool key_check(const char *name, const char *word);

/* The filter that the options say; INVALID_ARGUMENT: a key that is no number. Free with
 * filter_cleanup(). */
TRP_MUST_USE trp_status filter_init(Troupe__ReplayFilter *filter, const struct filter_args *args);
bool filter_given(const struct filter_args *args); /* anything that chooses */
void filter_cleanup(Troupe__ReplayFilter *filter);

int replay_serve(const struct cli_call *call);
int replay_ls(const struct cli_call *call);
int replay_info(const struct cli_call *call);
int replay_top(const struct cli_call *call);
int replay_items(const struct cli_call *call);
int replay_peek(const struct cli_call *call);
int replay_sample(const struct cli_call *call);
int replay_dump(const struct cli_call *call);
int replay_load(const struct cli_call *call);
int replay_verify(const struct cli_call *call);
int replay_checkpoint(const struct cli_call *call);
int replay_checkpoints(const struct cli_call *call);
int replay_restore(const struct cli_call *call);
int replay_create(const struct cli_call *call);
int replay_drop(const struct cli_call *call);
int replay_alter(const struct cli_call *call);
int replay_reset(const struct cli_call *call);
int replay_set_priority(const struct cli_call *call);
int replay_delete(const struct cli_call *call);
int replay_bench(const struct cli_call *call);

#endif
