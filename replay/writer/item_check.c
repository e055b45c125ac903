/* An item that does not fit its table's signature would be found out by a sampler, in another
 * program and much later. Signatures are asked for once, with one ServerInfo for all tables, and
 * again for a table that was not there or that an item does not fit, because tables change; what an
 * item's columns are is compared only when it is not what the last item of that table was.
 *
 * A server that cannot be asked (away, or a peer without ServerInfo) stops nobody from writing: its
 * items go unchecked until it answers, as they would without this. */
#include "item_check.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/clock.h"
#include "limits.h"
#include "replay/model/signature.h"
#include "replay/client/unary.h"
#include "replay/wire/wire.h"

struct known_table {
    char *name;
    bool is_signed;
    struct signature signature;
    trp_item_column *columns; /* of the last item that fitted */
    size_t column_count;
};

struct item_check {
    trp_channel *channel;
    const trp_tensor_spec *steps;
    struct known_table *tables;
    uint32_t count, capacity;
    trp_stream *question;   /* ServerInfo, unanswered */
    bool sent;              /* it is out */
    bool waited;            /* for an answer that did not come: no item waits again */
    bool off;               /* the peer has no ServerInfo */
    trp_tensor_spec *specs; /* scratch */
};

struct item_check *item_check_create(trp_channel *channel, const trp_tensor_spec *steps)
{
    struct item_check *check = xcalloc(1, sizeof *check);
    check->channel = channel;
    check->steps = steps;
    return check;
}

static void forget_tables(struct item_check *check)
{
    for (size_t i = 0; i < check->count; i++) {
        signature_cleanup(&check->tables[i].signature);
        free(check->tables[i].name);
        free(check->tables[i].columns);
    }
    check->count = 0;
}

void item_check_destroy(struct item_check *check)
{
    if (!check)
        return;
    forget_tables(check);
    trp_stream_destroy(check->question);
    free(check->tables);
    free(check->specs);
    free(check);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static trp_status take_tables(struct item_check *check, trp_message *reply)
{
    struct reader reader = reader_of(message_bytes(reply));
    struct info_table info;
    bool more = true;
    for (;;) {
        TRP_TRY(info_next(&reader, &info, &more));
        if (!more)
            return TRP_OK;
        struct known_table *table = ARRAY_PUSH(check->tables, check->count, check->capacity);
        *table = (struct known_table){
            .name = xasprintf("%.*s", (int)info.name.size, (const char *)info.name.data)};
        if (info.signature.size > 0) /* one that no C program can have is nobody's */
            table->is_signed = signature_decode(info.signature, &table->signature) == TRP_OK;
    }
}

/* Whether the question is out; only its first asker waits for that and for the answer. */
static trp_status ask_server_info(struct item_check *check, struct deadline deadline, bool *out)
{
    trp_call_options options = {.timeout_ms = -1};
    if (!check->question)
        TRP_TRY(trp_stream_open(&check->question, check->channel,
                                "/deepmind.reverb.ReverbService/ServerInfo", &options));
    if (check->sent)
        return TRP_OK;
    trp_message *request = trp_message_create(0);
    if (!request)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for a message");
    trp_status status =
        trp_stream_send(check->question, request, deadline_left_ms(deadline, &clock_monotonic));
    check->sent = status == TRP_OK;
    *out = status != TRP_DEADLINE_EXCEEDED;
    return check->sent ? trp_stream_half_close(check->question) : status;
}

/* False: there is no answer, now or ever. */
static bool learn_tables(struct item_check *check, int64_t timeout_ms)
{
    trp_message *reply = NULL;
    bool done = true;
    int64_t most = check->waited ? 0 : SIGNATURE_WAIT_MS;
    struct deadline wait = deadline_earlier(deadline_in_ms(&clock_monotonic, most),
                                            deadline_in_ms(&clock_monotonic, timeout_ms));
    check->waited = true;
    trp_status status = ask_server_info(check, wait, &done);
    if (status == TRP_OK)
        status =
            unary_finish(check->question, deadline_left_ms(wait, &clock_monotonic), &done, &reply);
    if (!done)
        return false;
    trp_stream_destroy(check->question);
    check->question = NULL;
    check->sent = false;
    forget_tables(check);
    if (status == TRP_OK)
        status = take_tables(check, reply);
    trp_message_destroy(reply);
    if (status == TRP_UNIMPLEMENTED || status == TRP_INVALID_ARGUMENT)
        check->off = true;
    if (status != TRP_OK)
        forget_tables(check);
    check->waited = status != TRP_OK;
    return status == TRP_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static struct known_table *find_table(struct item_check *check, const char *name)
{
    for (size_t i = 0; i < check->count; i++)
        if (strcmp(check->tables[i].name, name) == 0)
            return &check->tables[i];
    return NULL;
}

static bool as_before(const struct known_table *table, const trp_item_column *columns, size_t count)
{
    if (table->column_count != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (table->columns[i].column != columns[i].column ||
            table->columns[i].length != columns[i].length ||
            table->columns[i].squeeze != columns[i].squeeze)
            return false;
    return true;
}

static trp_status compare(struct item_check *check, struct known_table *table,
                          const trp_item_column *columns, size_t count)
{
    check->specs = xrealloc(check->specs, count * sizeof *check->specs);
    for (size_t i = 0; i < count; i++) {
        trp_tensor_spec *spec = &check->specs[i];
        *spec = check->steps[columns[i].column];
        if (columns[i].squeeze)
            continue;
        memmove(&spec->shape[1], spec->shape, spec->rank * sizeof *spec->shape);
        spec->shape[0] = columns[i].length;
        spec->rank++;
    }
    TRP_TRY(signature_check(&table->signature, check->specs, count, table->name));
    table->columns = xrealloc(table->columns, count * sizeof *columns);
    memcpy(table->columns, columns, count * sizeof *columns);
    table->column_count = count;
    return TRP_OK;
}

trp_status item_check(struct item_check *check, const char *name, const trp_item_column *columns,
                      size_t count, int64_t timeout_ms)
{
    struct known_table *table = find_table(check, name);
    if (table && (!table->is_signed || as_before(table, columns, count) ||
                  compare(check, table, columns, count) == TRP_OK))
        return TRP_OK;
    bool learned = !check->off && learn_tables(check, timeout_ms);
    table = find_table(check, name);
    if (!table && learned)
        return trp_fail(TRP_NOT_FOUND, "table '%s' was not found at %s", name,
                        trp_channel_address(check->channel));
    return table && table->is_signed ? compare(check, table, columns, count) : TRP_OK;
}
