/* A caller that timed out wants to know who has to do what. Troupe's servers say it themselves
 * (troupe.Replay); of others, ServerInfo has the numbers of the limiter, and the rule is known. */
#include "limiter_words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/limits.h"
#include "core/thread.h"
#include "core/words.h"
#include "replay.pb-c.h"

static void describe_insert(const trp_table_info *info, char *text, size_t size)
{
    double after = ((double)info->inserts + 1) * info->samples_per_insert - (double)info->samples;
    if (info->size + 1 <= info->min_size || after <= info->max_diff)
        return;
    double more = ceil(after - info->max_diff);
    snprintf(text, size,
             "the limiter lets the next item in after %.0f more sample%s (%" PRId64
             " inserts x %g - %" PRId64 " samples may be %g at most after it)",
             more, plural((int64_t)more), info->inserts, info->samples_per_insert, info->samples,
             info->max_diff);
}

static void describe_sample(const trp_table_info *info, char *text, size_t size)
{
    double after = (double)info->inserts * info->samples_per_insert - (double)info->samples - 1;
    double more = ceil((info->min_diff - after) / info->samples_per_insert);
    if (info->size < info->min_size)
        snprintf(text, size,
                 "the table has %" PRId64 " of the %" PRId64
                 " items that its limiter wants before the first sample",
                 info->size, info->min_size);
    else if (after < info->min_diff)
        snprintf(text, size,
                 "the limiter allows the next sample after %.0f more insert%s (%" PRId64
                 " inserts x %g - %" PRId64 " samples may be %g at least after it)",
                 more, plural((int64_t)more), info->inserts, info->samples_per_insert,
                 info->samples, info->min_diff);
}

static void describe(const trp_table_info *info, bool sampling, char *text, size_t size)
{
    text[0] = '\0';
    if (sampling)
        describe_sample(info, text, size);
    else
        describe_insert(info, text, size);
}

void limiter_describe(const struct limiter *limiter, bool sampling, char text[LIMITER_WORDS_BYTES])
{
    trp_table_info info = {
        .size = limiter->inserts - limiter->deletes,
        .inserts = limiter->inserts,
        .samples = limiter->samples,
        .min_size = limiter->options.min_size,
        .samples_per_insert = limiter->options.samples_per_insert,
        .min_diff = limiter->options.min_diff,
        .max_diff = limiter->options.max_diff,
    };
    describe(&info, sampling, text, LIMITER_WORDS_BYTES);
}

/* ---- what can never go on ------------------------------------------------------------------ */

enum { SPI_DENOMINATOR_MAX = 1000 };

/* inserts * spi - samples is a multiple of 1 / this; 0: of nothing that counts. */
static int spi_denominator(double spi)
{
    for (int q = 1; q <= SPI_DENOMINATOR_MAX; q++)
        if (fabs(spi * q - round(spi * q)) <= 1e-9 * q)
            return q;
    return 0;
}

/* Whether there is a difference at which the next insert is too much and the next sample, too. */
static bool limiter_can_jam(const trp_rate_limiter *options)
{
    double blocks_inserts = options->max_diff - options->samples_per_insert; /* above */
    double blocks_samples = options->min_diff + 1;                           /* below */
    int q = spi_denominator(options->samples_per_insert);
    if (q == 0)
        return blocks_inserts < blocks_samples;
    return (ceil(blocks_samples * q) - 1) / q > blocks_inserts;
}

char *limiter_warning(const struct limiter *limiter, int64_t max_size)
{
    const trp_rate_limiter *options = &limiter->options;
    if (max_size < options->min_size)
        return xasprintf("max_size %" PRId64 " is less than the limiter's min_size %" PRId64
                         ": nothing can ever be sampled",
                         max_size, options->min_size);
    if (!limiter_can_insert(limiter, 1) && !limiter_can_sample(limiter, 1))
        return xasprintf("with %" PRId64 " insert%s and %" PRId64
                         " sample%s so far its limiter allows neither an insert nor a sample, so "
                         "nobody can ever go on; widen its limits (alter) or reset the table",
                         limiter->inserts, plural(limiter->inserts), limiter->samples,
                         plural(limiter->samples));
    if (limiter_can_jam(options))
        return xasprintf("its limiter can come to where it allows neither an insert nor a sample, "
                         "and then nobody can ever go on; from min_diff to max_diff should be "
                         "samples_per_insert + 1 = %g or more, not %g",
                         options->samples_per_insert + 1, options->max_diff - options->min_diff);
    return NULL;
}

/* ---- asking a server ------------------------------------------------------------------------ */

static void describe_table(const Troupe__ReplayTable *table, bool sampling, char *text, size_t size)
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

/* False: the server has no such service. */
static bool ask_troupe(trp_channel *channel, const char *table, bool sampling, char *text,
                       size_t size)
{
    ProtobufCService *service;
    ProtobufCMessage *message;
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    trp_call_options options = {.timeout_ms = LIMITER_QUESTION_MS};
    trp_status status = trp_channel_service(channel, &troupe__replay__descriptor, &service);
    if (status == TRP_OK)
        status = trp_call(service, "Tables", &request.base, &message, &options);
    if (status != TRP_OK)
        return status != TRP_UNIMPLEMENTED && status != TRP_NOT_FOUND;
    const Troupe__ReplayTablesResponse *reply = (const void *)message;
    for (size_t i = 0; i < reply->n_tables; i++)
        if (strcmp(reply->tables[i]->name, table) == 0)
            describe_table(reply->tables[i], sampling, text, size);
    protobuf_c_message_free_unpacked(message, NULL);
    return true;
}

static void ask_reverb(trp_channel *channel, const char *table, bool sampling, char *text,
                       size_t size)
{
    enum { TABLES_MAX = 256 };
    trp_table_info *tables = xcalloc(TABLES_MAX, sizeof *tables);
    size_t count = 0;
    if (trp_replay_info(channel, tables, TABLES_MAX, &count, LIMITER_QUESTION_MS) == TRP_OK)
        for (size_t i = 0; i < count && i < TABLES_MAX; i++)
            if (strcmp(tables[i].name, table) == 0)
                describe(&tables[i], sampling, text, size);
    free(tables);
}

void limiter_ask(trp_channel *channel, const char *table, bool sampling,
                 char text[LIMITER_WORDS_BYTES])
{
    char words[LIMITER_WORDS_BYTES] = "";
    text[0] = '\0';
    if (turns_active())
        return; /* nobody else runs meanwhile, and repeatable runs poll often */
    char *error = xstrdup(trp_last_error());
    if (!ask_troupe(channel, table, sampling, words, sizeof words))
        ask_reverb(channel, table, sampling, words, sizeof words);
    if (words[0])
        snprintf(text, LIMITER_WORDS_BYTES, "; %.*s", LIMITER_WORDS_BYTES - 3, words);
    if (*error)
        (void)trp_fail(TRP_UNKNOWN, "%s", error);
    free(error);
}
