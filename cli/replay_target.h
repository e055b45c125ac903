/* What `troupe replay ls|info|items|peek` have in common: flags, and the server they look at. */
#ifndef TRP_CLI_REPLAY_TARGET_H
#define TRP_CLI_REPLAY_TARGET_H

#include <cjson/cJSON.h>

#include <troupe/replay.h>
#include "cli.h"
#include "replay.pb-c.h"

struct show_options {
    const char *usage;         /* of the arguments, e.g. "TARGET TABLE" */
    bool table_needed;         /* a table must be named; otherwise it may */
    bool with_count, with_key; /* takes -n; takes --key */
    const char *target, *table;
    bool json, has_key;
    uint64_t count, key;
};

/* Parses into `options`, whose first fields say what is allowed. 0 or an exit status. */
int show_parse(struct show_options *options, const char *doc, int argc, char **argv);

/* A live server, or the files of a stopped one. */
struct target {
    trp_channel *channel;
    trp_replay_files *files;
    ProtobufCService *service;
};

/* `text`: an address, a unix socket, or a directory. */
TRP_MUST_USE trp_status target_open(struct target *target, const char *text);
void target_close(struct target *target);

/* trp_call() with a bound that a person waits for. */
TRP_MUST_USE trp_status target_call(struct target *target, const char *method,
                                    const ProtobufCMessage *request, ProtobufCMessage **reply);

/* Prints and frees. */
void json_print(cJSON *json);

/* A number with all its digits; a key as text, because JSON readers round large numbers. */
void json_add_i64(cJSON *object, const char *name, int64_t value);
void json_add_key(cJSON *object, const char *name, uint64_t key);

/* Bytes for people: "12.3 MB". `text` holds 32 bytes. */
const char *bytes_text(uint64_t bytes, char *text);

#endif
