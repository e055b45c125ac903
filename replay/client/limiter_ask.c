/* A caller that timed out wants to know who has to do what. Troupe's servers say it themselves
 * (troupe.Replay); of others, ServerInfo has the numbers of the limiter, and the rule is known. */
#include "unary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"
#include "core/status.h"
#include "core/thread.h"
#include "core/words.h"
#include "replay.pb-c.h"
#include "replay/model/limiter.h"

static void explain_table(const Troupe__ReplayTable *table, bool sampling, char *text, size_t size)
{
    const Troupe__ReplayLimiter *limiter = table->limiter;
    if (table->indexing)
        snprintf(text, size, "the table is being indexed after a start");
    else if (limiter)
        snprintf(text, size, "%s", sampling ? limiter->sample_waits : limiter->insert_waits);
    if (!text[0] || table->indexing)
        return;
    size_t used = strlen(text);
    int64_t others = sampling ? table->inserts_waiting : table->samples_waiting;
    snprintf(text + used, size - used, "; %" PRId64 " %s%s%s %s waiting", others,
             sampling ? "insert" : "call", plural(others),
             sampling      ? ""
             : others == 1 ? " that samples"
                           : " that sample",
             others == 1 ? "is" : "are");
}

static trp_status ask_troupe(trp_channel *channel, const char *table, bool sampling, char *text,
                             size_t size)
{
    ProtobufCService *service;
    ProtobufCMessage *message;
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    trp_call_options options = {.timeout_ms = LIMITER_QUESTION_MS};
    trp_status status = trp_channel_service(channel, &troupe__replay__descriptor, &service);
    if (status == TRP_OK)
        status = trp_call(service, "Tables", &request.base, &message, &options);
    TRP_TRY(status);
    const Troupe__ReplayTablesResponse *reply = (const void *)message;
    for (size_t i = 0; i < reply->n_tables; i++)
        if (strcmp(reply->tables[i]->name, table) == 0)
            explain_table(reply->tables[i], sampling, text, size);
    protobuf_c_message_free_unpacked(message, NULL);
    return TRP_OK;
}

static trp_status ask_reverb(trp_channel *channel, const char *table, bool sampling, char *text,
                             size_t size)
{
    struct info_table found;
    trp_message *reply;
    TRP_TRY(info_find(channel, table, LIMITER_QUESTION_MS, &found, &reply));
    trp_message_destroy(reply);
    const trp_table_info *info = &found.info;
    struct limiter limiter = {
        .options = {info->samples_per_insert, info->min_size, info->min_diff, info->max_diff},
        .inserts = info->inserts,
        .samples = info->samples,
        .deletes = info->inserts - info->size};
    char *words = limiter_explain(&limiter, sampling);
    snprintf(text, size, "%s", words);
    free(words);
    return TRP_OK;
}

bool limiter_ask(trp_channel *channel, const char *table, bool sampling,
                 char text[LIMITER_EXPLAIN_BYTES])
{
    char words[LIMITER_EXPLAIN_BYTES] = "";
    text[0] = '\0';
    if (turns_active())
        return true; /* nobody else runs meanwhile, and repeatable runs poll often */
    char *kept = error_keep();
    trp_status status = ask_troupe(channel, table, sampling, words, sizeof words);
    if (status == TRP_UNIMPLEMENTED || status == TRP_NOT_FOUND)
        status = ask_reverb(channel, table, sampling, words, sizeof words);
    if (words[0])
        snprintf(text, LIMITER_EXPLAIN_BYTES, "; %.*s", LIMITER_EXPLAIN_BYTES - 3, words);
    (void)error_back(TRP_UNKNOWN, kept);
    return !status_is_transient(status);
}
