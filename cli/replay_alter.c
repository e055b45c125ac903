/* `troupe replay create` and `alter`: a table's options, checked here first, so that what is wrong
 * with them is said before a server is asked. */
#include "replay_alter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/printable.h"
#include "core/words.h"
#include "json.h"

/* ---- options ----------------------------------------------------------------------------- */

/* Words of one line, or one word that is the line. Caller frees. */
static char *options_line(const struct cli_call *call)
{
    char *line = xstrdup("");
    for (size_t i = 1; i < call->word_count; i++) {
        char *longer = xasprintf("%s%s%s", line, i > 1 ? " " : "", call->words[i]);
        free(line);
        line = longer;
    }
    return line;
}

/* Takes "signature=FILE" out of the line: the file is here, not where the server is. */
static trp_status take_signature(char *line, ProtobufCBinaryData *signature, bool *given)
{
    const char *at = line, *word;
    size_t size = 0;
    *given = false;
    while (trp_table_options_word(&at, &word, &size))
        if (strncmp(word, "signature=", strlen("signature=")) == 0)
            break;
    if (size == 0)
        return TRP_OK;
    char *with = xasprintf("name=x %.*s", (int)size, word);
    trp_table_options *options;
    trp_status status = trp_table_options_parse(with, &options);
    if (status == TRP_OK) {
        signature->len = options->signature.size;
        signature->data = xmalloc(signature->len + 1);
        if (signature->len)
            memcpy(signature->data, options->signature.data, signature->len);
        trp_table_options_destroy(options);
        memset(line + (word - line), ' ', size);
        *given = true;
    }
    free(with);
    return status;
}

/* The name in a line that table_line_check() let pass. Caller frees. */
static char *line_name(const char *line)
{
    trp_table_options *options;
    if (trp_table_options_parse(line, &options) != TRP_OK)
        return xstrdup("");
    char *name = xstrdup(options->name);
    trp_table_options_destroy(options);
    return name;
}

bool table_line_check(const char *name, const char *line)
{
    trp_table_options *options;
    if (!strchr(line, '=') && *line && !strchr(line, ' ')) {
        cli_wrong(name, "'%s' is no option of a table; did you mean name=%s?", line, line);
        return false;
    }
    if (trp_table_options_parse(line, &options) != TRP_OK) {
        cli_wrong(name, "%s", trp_last_error());
        return false;
    }
    trp_table_options_destroy(options);
    return true;
}

/* ---- what can never go on ---------------------------------------------------------------- */

void target_warn(const struct target *target, const char *table)
{
    Troupe__ReplayTablesResponse *tables;
    if (target_tables(target, table, &tables) != TRP_OK)
        return;
    const char *warning = tables_find(tables, table)->warning;
    if (warning && *warning)
        print_text(stderr, "warning: table %s: %s\n", table, warning);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
}

/* ---- create ------------------------------------------------------------------------------ */

static trp_status create_send(const struct target *target, const char *line)
{
    Troupe__ReplayCreateTableRequest request = TROUPE__REPLAY_CREATE_TABLE_REQUEST__INIT;
    bool given;
    request.options = xstrdup(line);
    trp_status status = take_signature(request.options, &request.signature, &given);
    if (status == TRP_OK)
        status = target_call(target, "CreateTable", &request.base, NULL);
    free(request.options);
    free(request.signature.data);
    return status;
}

static trp_status create_work(struct work *work)
{
    char *line = options_line(work->call), *name = line_name(line);
    trp_status status = create_send(&work->target, line);
    if (status == TRP_OK)
        target_warn(&work->target, name);
    if (status == TRP_OK && work->args->json) {
        cJSON *out = cJSON_CreateObject();
        cJSON_AddStringToObject(out, "done", "created");
        cJSON_AddStringToObject(out, "table", name);
        json_print(out);
    } else if (status == TRP_OK) {
        print_text(stdout, "created table %s\n", name);
    }
    free(name);
    free(line);
    return status;
}

/* Wrong options are wrong usage, also where no server answers. */
static int checked_run(const struct cli_call *call, trp_status (*work)(struct work *work))
{
    char *line = options_line(call);
    bool right = table_line_check(call->name, line);
    free(line);
    return right ? target_run(call, TARGET_WRITE, work) : EXIT_USAGE;
}

int replay_create(const struct cli_call *call)
{
    return checked_run(call, create_work);
}

/* ---- alter ------------------------------------------------------------------------------- */

void alteration_text(const struct alteration *alteration)
{
    const Troupe__ReplayAlterTableResponse *reply = alteration->reply;
    for (size_t i = 0; i < reply->n_changes; i++)
        print_text(stdout, "%s: %s\n", alteration->table, reply->changes[i]);
    if (reply->n_changes == 0)
        print_text(stdout, "%s: nothing changes\n", alteration->table);
    if (reply->removed)
        print_text(stdout, "%s: %" PRId64 " item%s removed\n", alteration->table, reply->removed,
                   alteration->dry_run ? (reply->removed == 1 ? " would be" : "s would be")
                                       : (reply->removed == 1 ? " was" : "s were"));
}

cJSON *alteration_json(const struct alteration *alteration)
{
    cJSON *out = json_message(&alteration->reply->base);
    cJSON_AddStringToObject(out, "table", alteration->table);
    return out;
}

static trp_status alter_send(const struct target *target, const char *line, bool shrink,
                             bool dry_run, ProtobufCMessage **reply)
{
    Troupe__ReplayAlterTableRequest request = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    bool given = false;
    request.options = xstrdup(line);
    request.shrink = shrink;
    request.dry_run = dry_run;
    trp_status status = take_signature(request.options, &request.signature, &given);
    request.has_signature = given;
    if (status == TRP_OK)
        status = target_call(target, "AlterTable", &request.base, reply);
    free(request.options);
    free(request.signature.data);
    return status;
}

trp_status alteration_run(const struct target *target, const char *line, bool shrink, bool dry_run,
                          struct alteration *alteration)
{
    Troupe__ReplayTablesResponse *tables;
    ProtobufCMessage *reply = NULL;
    *alteration = (struct alteration){.table = line_name(line), .dry_run = dry_run};
    trp_status status = target_tables(target, alteration->table, &tables);
    if (status == TRP_OK) {
        troupe__replay_tables_response__free_unpacked(tables, NULL);
        status = alter_send(target, line, shrink, dry_run, &reply);
    }
    alteration->reply = (Troupe__ReplayAlterTableResponse *)reply;
    if (status == TRP_OK && !dry_run)
        target_warn(target, alteration->table);
    if (status != TRP_OK)
        alteration_cleanup(alteration);
    return status;
}

void alteration_cleanup(struct alteration *alteration)
{
    if (alteration->reply)
        troupe__replay_alter_table_response__free_unpacked(alteration->reply, NULL);
    free(alteration->table);
    *alteration = (struct alteration){0};
}

static trp_status alter_work(struct work *work)
{
    struct alteration alteration;
    char *line = options_line(work->call);
    trp_status status =
        alteration_run(&work->target, line, work->args->shrink, work->args->dry_run, &alteration);
    free(line);
    TRP_TRY(status);
    if (work->args->json)
        json_print(alteration_json(&alteration));
    else
        alteration_text(&alteration);
    alteration_cleanup(&alteration);
    return TRP_OK;
}

int replay_alter(const struct cli_call *call)
{
    return checked_run(call, alter_work);
}
