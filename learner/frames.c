/* Comparing is quick where it is wanted: the stack before is still in the cache, and frames that
 * differ do so within their first lines as a rule. A stack costs a memcmp() of what it shares and a
 * memcpy() of what it does not, about what copying all of it would. */
#include "frames.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

static const char *const names[FRAMES_COLUMNS_MAX] = {"observation", "next_observation"};

/* ---- memory of the host -----------------------------------------------------------------------
 */

static trp_status sent_create(trp_device *device, size_t bytes, void **memory)
{
    const trp_allocator *allocator = trp_device_host_memory(device);
    *memory = allocator->allocate(allocator->context, bytes);
    return *memory ? TRP_OK
                   : trp_fail(TRP_RESOURCE_EXHAUSTED,
                              "learner: no memory for %zu bytes of frames to send to %s", bytes,
                              trp_device_name(device));
}

static void sent_destroy(trp_device *device, void *memory)
{
    if (!memory) /* and maybe no device */
        return;
    const trp_allocator *allocator = trp_device_host_memory(device);
    allocator->release(allocator->context, memory);
}

/* ---- what there is --------------------------------------------------------------------------- */

trp_status frames_check(const trp_batch_spec *spec)
{
    size_t stack = spec->stacks.frames * spec->stacks.bytes;
    for (size_t i = 0; i < FRAMES_COLUMNS_MAX && spec->stacks.frames > 0; i++) {
        size_t place = trp_columns_find(&spec->columns, names[i]);
        if (place == spec->columns.count)
            continue;
        const trp_tensor_spec *column = &spec->columns.specs[place];
        size_t bytes = trp_tensor_bytes(column);
        if (column->dtype != TRP_UINT8 || stack == 0 || bytes % stack != 0)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "updater: column '%s' of '%s', %zu bytes of %s, is no stacks of %u "
                            "frames of %zu bytes",
                            names[i], spec->table, bytes, trp_dtype_name(column->dtype),
                            (unsigned)spec->stacks.frames, spec->stacks.bytes);
    }
    return TRP_OK;
}

trp_status frames_create(struct frames *frames, trp_device *device, const trp_batch_spec *spec)
{
    *frames = (struct frames){.stacks = spec->stacks, .rows = spec->batch_size, .device = device};
    for (size_t i = 0; i < FRAMES_COLUMNS_MAX && spec->stacks.frames > 1; i++) {
        size_t place = trp_columns_find(&spec->columns, names[i]);
        if (place == spec->columns.count)
            continue;
        size_t column = frames->columns++;
        size_t per_row = trp_tensor_bytes(&spec->columns.specs[place]) / spec->stacks.bytes;
        frames->places[column] = place;
        frames->per_row[column] = per_row;
        frames->room += frames->rows * per_row;
        size_t bytes = frames->rows * per_row * sizeof(int32_t);
        TRP_TRY(sent_create(device, bytes, (void **)&frames->order[column]));
        TRP_TRY(trp_device_alloc(device, bytes, &frames->order_there[column]));
    }
    if (frames->columns == 0)
        return TRP_OK;
    size_t bytes = frames->room * frames->stacks.bytes;
    TRP_TRY(sent_create(device, bytes, (void **)&frames->unique));
    return trp_device_alloc(device, bytes, &frames->unique_there);
}

void frames_cleanup(struct frames *frames)
{
    sent_destroy(frames->device, frames->unique);
    trp_device_free(frames->device, frames->unique_there);
    for (size_t i = 0; i < frames->columns; i++) {
        sent_destroy(frames->device, frames->order[i]);
        trp_device_free(frames->device, frames->order_there[i]);
    }
}

bool frames_has(const struct frames *frames, size_t place)
{
    for (size_t i = 0; i < frames->columns; i++)
        if (frames->places[i] == place)
            return true;
    return false;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

/* The stack before, and how many frames there are so far. */
struct frames_sent {
    const uint8_t *stack;
    const int32_t *order;
    size_t count;
};

/* By how many frames a stack is behind the one before: so many of its own are new. */
static size_t moved_on(const struct frames *frames, const struct frames_sent *before,
                       const uint8_t *stack)
{
    size_t count = frames->stacks.frames, bytes = frames->stacks.bytes, moved = 0;
    while (before->stack && moved < count &&
           memcmp(before->stack + moved * bytes, stack, (count - moved) * bytes) != 0)
        moved++;
    return before->stack ? moved : count;
}

static void send_stack(struct frames *frames, struct frames_sent *sent, const uint8_t *stack,
                       int32_t *order)
{
    size_t count = frames->stacks.frames, bytes = frames->stacks.bytes;
    size_t moved = moved_on(frames, sent, stack);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *frame = stack + i * bytes;
        if (i + moved < count) {
            order[i] = sent->order[i + moved];
        } else if (i > 0 && memcmp(frame - bytes, frame, bytes) == 0) {
            order[i] = order[i - 1];
        } else {
            memcpy(frames->unique + sent->count * bytes, frame, bytes);
            order[i] = (int32_t)sent->count++;
        }
    }
    sent->stack = stack;
    sent->order = order;
}

static void send_stacks(struct frames *frames, struct frames_sent *sent, const trp_batch *batch,
                        size_t row)
{
    for (size_t i = 0; i < frames->columns; i++) {
        size_t per_row = frames->per_row[i], bytes = frames->stacks.bytes;
        const uint8_t *column = batch->columns[frames->places[i]];
        for (size_t k = row * per_row; k < (row + 1) * per_row; k += frames->stacks.frames)
            send_stack(frames, sent, column + k * bytes, frames->order[i] + k);
    }
}

size_t frames_send(struct frames *frames, trp_queue *upload, const trp_batch *batch)
{
    struct frames_sent sent = {.stack = NULL};
    if (frames->columns == 0)
        return 0;
    for (size_t row = 0; row < batch->rows; row++)
        send_stacks(frames, &sent, batch, row);
    size_t all = sent.count * frames->stacks.bytes;
    trp_queue_copy(upload, frames->unique_there, frames->unique, all);
    for (size_t i = 0; i < frames->columns; i++) {
        size_t bytes = batch->rows * frames->per_row[i] * sizeof(int32_t);
        trp_queue_copy(upload, frames->order_there[i], frames->order[i], bytes);
        all += bytes;
    }
    return all;
}

void frames_stack(const struct frames *frames, trp_queue *queue, uint32_t rows,
                  void *const *columns)
{
    for (size_t i = 0; i < frames->columns; i++) {
        trp_row_order order = {.order = frames->order_there[i],
                               .count = (uint32_t)(rows * frames->per_row[i]),
                               .rows = (uint32_t)frames->room};
        trp_queue_gather(queue, &order, frames->unique_there, columns[frames->places[i]],
                         frames->stacks.bytes);
    }
}
