#include "gradients.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include <troupe/nn.h>
#include "learner/compress/compress.h"

enum { GRADIENT_BLOCK = 1024 }; /* in a first-level cache while it is looked at again */

/* The difference of a number to itself is 0 or NaN. */
static bool are_finite(const float *grads, size_t count, float scale)
{
    uint32_t not_finite = 0;
    size_t i = 0;
    for (; count - i >= GRADIENT_BLOCK; i += GRADIENT_BLOCK)
        for (size_t k = i; k < i + GRADIENT_BLOCK; k++)
            not_finite |= scale * grads[k] - scale * grads[k] != 0;
    for (; i < count; i++)
        not_finite |= scale * grads[i] - scale * grads[i] != 0;
    return not_finite == 0;
}

static float *gradient_room(struct server_table *table)
{
    if (!table->room)
        table->room = trp_floats_create(table->shard.count);
    return table->room;
}

/* Whether the copy is finite. No number is read from the worker's memory a second time, by the
 * compiler neither. */
static bool copy_if_finite(float *to, const float *from, size_t count, float scale)
{
    bool finite = true;
    for (size_t i = 0; i < count && finite; i += GRADIENT_BLOCK) {
        size_t numbers = count - i < GRADIENT_BLOCK ? count - i : GRADIENT_BLOCK;
        memcpy(to + i, from + i, numbers * sizeof *to);
        atomic_signal_fence(memory_order_seq_cst);
        finite = are_finite(to + i, numbers, scale);
    }
    return finite;
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

trp_status gradients_take(struct server_table *table, const Troupe__ServerPushRequest *request,
                          size_t numbers, const float **grads)
{
    const struct server_table_worker *worker = &table->workers[request->worker];
    bool is_code = request->compression[0] != '\0';
    bool in_memory = !is_code && request->gradients.len == 0 && worker->gradients;
    bool fits = is_code || in_memory || request->gradients.len == numbers * sizeof(float);
    TRP_TRY(check_size(table, request, numbers, fits));
    if (is_code)
        TRP_TRY(decode_gradients(table, request, numbers));
    *grads = is_code || in_memory ? gradient_room(table)
                                  : (const float *)(const void *)request->gradients.data;
    bool finite = in_memory ? copy_if_finite(gradient_room(table), worker->gradients->numbers,
                                             numbers, request->scale)
                            : are_finite(*grads, numbers, request->scale);
    if (finite)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "%s pushed a gradient of '%s' that is not finite, for version %" PRIu64,
                    worker->name, table->vector, request->version);
}
