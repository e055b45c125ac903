#include "gradients.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include <troupe/nn.h>
#include "core/finite.h"
#include "learner/compress/compress.h"

static float *gradient_room(struct server_table *table)
{
    if (!table->room)
        table->room = trp_floats_create(table->shard.count);
    return table->room;
}

/* What comes compressed is numbers for all that follows, also in the log. */
static trp_status decode_gradients(struct server_table *table,
                                   const Troupe__ServerPushRequest *request, size_t numbers)
{
    struct compress_code code = {.bits = request->bits,
                                 .runs = request->runs,
                                 .run_words = request->n_runs,
                                 .words = (const uint32_t *)(const void *)request->gradients.data,
                                 .word_count = request->gradients.len / sizeof *code.words};
    trp_status status = compress_find(request->compression, &code.kind);
    if (status == TRP_OK && request->gradients.len % sizeof *code.words != 0)
        status = trp_fail(TRP_INVALID_ARGUMENT, "%zu bytes are no words", request->gradients.len);
    if (status == TRP_OK)
        status = compress_decode(&code, gradient_room(table), numbers);
    if (status == TRP_OK)
        return TRP_OK;
    return trp_fail(status, "%s pushed to '%s' compressed: %s",
                    table->workers[request->worker].name, table->vector, trp_last_error());
}

static trp_status check_size(const struct server_table *table,
                             const Troupe__ServerPushRequest *request, size_t numbers, bool fits)
{
    if (fits && numbers <= table->shard.count && isfinite(request->scale))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s pushed %zu bytes to '%s' for %zu numbers, scaled by %g",
                    table->workers[request->worker].name, request->gradients.len, table->vector,
                    numbers, (double)request->scale);
}

static bool part_fits(const struct server_table *table, const Troupe__ServerPushRequest *request,
                      size_t numbers)
{
    uint64_t from = request->part_from, of = request->part_of;
    return request->compression[0] == '\0' && request->parts != 0 &&
           numbers <= table->shard.count && of == numbers * sizeof(float) &&
           from % sizeof(float) == 0 && request->gradients.len % sizeof(float) == 0 && from < of &&
           request->gradients.len > 0 && request->gradients.len <= of - from;
}

/* A part with another number begins anew: the ones before it will not be complete any more. */
static trp_status stage_part(struct server_table *table, const Troupe__ServerPushRequest *request,
                             size_t numbers, const float **grads)
{
    struct staged_parts *staged = &table->workers[request->worker].staged;
    TRP_TRY(check_size(table, request, numbers, part_fits(table, request, numbers)));
    trp_status status = parts_room_take(table->parts_room, staged, table->shard.count);
    if (status != TRP_OK)
        return trp_fail(status, "%s pushed to '%s': %s", table->workers[request->worker].name,
                        table->vector, trp_last_error());
    if (staged->number != request->parts)
        staged->have = 0;
    staged->number = request->parts;
    staged->heard_ns = clock_now_ns(table->parts_room->clock);
    memcpy(staged->numbers + request->part_from / sizeof(float), request->gradients.data,
           request->gradients.len);
    staged->have += request->gradients.len;
    *grads = NULL;
    if (staged->have < request->part_of)
        return TRP_OK;
    *grads = staged->numbers;
    staged->number = 0;
    return TRP_OK;
}

struct gradients_pass {
    float *to; /* NULL: they stay where they are */
    const float *from;
    float scale;
    atomic_bool harms;
};

static void look_at_part(void *arg, size_t first, size_t size)
{
    struct gradients_pass *pass = arg;
    const float *from = pass->from + first;
    bool finite = pass->to ? floats_copy_finite(pass->to + first, from, size, pass->scale)
                           : floats_are_finite_scaled(from, size, pass->scale);
    if (!finite)
        atomic_store(&pass->harms, true);
}

/* Copies them, too, where `to` is not NULL. */
static trp_status look_at_all(const struct server_table *table,
                              const Troupe__ServerPushRequest *request, const float *from,
                              float *to, size_t numbers)
{
    struct gradients_pass pass = {.to = to, .from = from, .scale = request->scale};
    passes_run(table->shard.options.passes, numbers, look_at_part, &pass);
    if (!atomic_load(&pass.harms))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s pushed a gradient of '%s' that is not finite, for version %" PRIu64,
                    table->workers[request->worker].name, table->vector, request->version);
}

/* What is kept is what was stepped with, and DynSGD reads a gradient twice. */
static bool is_copied(const struct server_table *table)
{
    return keep_logs(&table->keep) || table->shard.options.rule == TRP_SERVER_DYNSGD;
}

static trp_status take_from_memory(struct server_table *table,
                                   const Troupe__ServerPushRequest *request, size_t numbers,
                                   struct shard_push *push)
{
    const struct server_table_worker *worker = &table->workers[request->worker];
    const float *from = worker->gradients->numbers + table->first;
    float *copy = is_copied(table) ? gradient_room(table) : NULL;
    push->grads = copy ? copy : from;
    push->moves = !copy;
    return copy ? look_at_all(table, request, from, copy, numbers) : TRP_OK;
}

trp_status gradients_take(struct server_table *table, const Troupe__ServerPushRequest *request,
                          size_t numbers, struct shard_push *push)
{
    if (request->part_of > 0) {
        TRP_TRY(stage_part(table, request, numbers, &push->grads));
        /* All at once, with the scale that they are stepped with: the last part's. */
        return push->grads ? look_at_all(table, request, push->grads, NULL, numbers) : TRP_OK;
    }
    bool is_code = request->compression[0] != '\0';
    bool in_memory =
        !is_code && request->gradients.len == 0 && table->workers[request->worker].gradients;
    bool fits = is_code || in_memory || request->gradients.len == numbers * sizeof(float);
    TRP_TRY(check_size(table, request, numbers, fits));
    if (in_memory)
        return take_from_memory(table, request, numbers, push);
    if (is_code)
        TRP_TRY(decode_gradients(table, request, numbers));
    push->grads = is_code ? table->room : (const float *)(const void *)request->gradients.data;
    return look_at_all(table, request, push->grads, NULL, numbers);
}
