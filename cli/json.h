/* Messages as JSON: whatever -o json prints is a message of replay.proto, field for field. */
#ifndef TRP_CLI_JSON_H
#define TRP_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <cjson/cJSON.h>
#include <protobuf-c/protobuf-c.h>

#include <troupe/bytes.h>

/* Field names are the .proto's. Whole numbers keep all their digits, but keys of items are text,
 * because JSON readers round large numbers; bytes are base64; enums are names. Fields of a message
 * that is absent are left out. */
cJSON *json_message(const ProtobufCMessage *message);

void json_add_i64(cJSON *object, const char *name, int64_t value);
void json_add_key(cJSON *object, const char *name, uint64_t key);

/* Any double: those that JSON has not are the texts NaN, Infinity and -Infinity. */
cJSON *json_number(double value);

/* Reads what json_number() makes; false: it is none. */
bool json_read_number(const cJSON *json, double *value);

/* Bytes as base64. */
cJSON *json_base64(trp_bytes bytes);

/* Elements of a string tensor, which are bytes: text (UTF-8 without a NUL) as it is, all others
 * {"base64": "..."}. */
cJSON *json_bytes(trp_bytes bytes);

/* Reads what json_bytes() makes, in place; false: it is none. */
bool json_read_bytes(const cJSON *json, trp_bytes *bytes);

/* Decodes base64 in place and gives the bytes that lie there; false: it is none. */
bool base64_decode(char *text, trp_bytes *bytes);

/* Prints and frees; json_line() on one line. What core/printable.h escapes is \uNNNN. */
void json_print(cJSON *json);
void json_line(FILE *out, cJSON *json);

#endif
