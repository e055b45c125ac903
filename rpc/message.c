/* A message is one allocation: header and bytes. One that arrived in a single slice refers to
 * gRPC's memory instead, unless it is so small that the copy is cheaper (and does not keep a whole
 * read buffer alive); one that arrived in several does if its handler takes it so. On the way out
 * gRPC refers to the message, so bytes are never copied; nor are those of others that it is made of
 * parts of. */
#include "message.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>

#include "core/alloc.h"
#include "limits.h"
#include "library.h"

trp_message *trp_message_create(size_t size)
{
    size_t bytes;
    if (!size_add(sizeof(trp_message), size, &bytes))
        return NULL;
    trp_message *message = malloc(bytes);
    if (!message)
        return NULL;
    message->next = NULL;
    message->data = (uint8_t *)(message + 1);
    message->size = size;
    message->budget = NULL;
    message->charged = 0;
    message->sliced = false;
    message->buffer = NULL;
    message->parts = NULL;
    message->part_count = 1;
    message->done = NULL;
    return message;
}

uint8_t *trp_message_data(trp_message *message)
{
    assert(!message->parts); /* its handler takes it in parts */
    return message->data;
}

size_t trp_message_size(const trp_message *message)
{
    return message->size;
}

size_t trp_message_parts(trp_message *message, const trp_bytes **parts)
{
    message->whole = (trp_bytes){message->data, message->size};
    *parts = message->parts ? message->parts : &message->whole;
    return message->part_count;
}

void trp_message_set_parts(trp_message *message, const trp_bytes *parts, size_t count,
                           void (*done)(void *arg), void *arg)
{
    assert(!message->parts && count > 0);
    message->parts = parts;
    message->part_count = count;
    message->done = done;
    message->done_arg = arg;
    message->size = 0;
    for (size_t i = 0; i < count; i++)
        message->size += parts[i].size;
}

void trp_message_truncate(trp_message *message, size_t size)
{
    assert(size <= message->size);
    message->size = size;
}

void trp_message_destroy(trp_message *message)
{
    if (!message)
        return;
    rpc_message_uncharge(message);
    if (message->sliced)
        grpc_slice_unref(message->slice);
    if (message->buffer)
        grpc_byte_buffer_destroy(message->buffer);
    if (message->done)
        message->done(message->done_arg);
    free(message);
}

void rpc_messages_push(struct rpc_messages *list, trp_message *message)
{
    message->next = NULL;
    if (list->last)
        list->last->next = message;
    else
        list->first = message;
    list->last = message;
    list->count++;
    list->bytes += message->size;
}

trp_message *rpc_messages_pop(struct rpc_messages *list)
{
    trp_message *message = list->first;
    if (!message)
        return NULL;
    list->first = message->next;
    if (!list->first)
        list->last = NULL;
    message->next = NULL;
    list->count--;
    list->bytes -= message->size;
    return message;
}

void rpc_messages_clear(struct rpc_messages *list)
{
    for (trp_message *message; (message = rpc_messages_pop(list));)
        trp_message_destroy(message);
}

static void slice_to_message(trp_message *message, grpc_slice slice)
{
    message->sliced = true;
    message->slice = grpc_slice_ref(slice);
    /* A slice may carry its bytes inside: they are where the copy of the struct is. */
    message->data = GRPC_SLICE_START_PTR(message->slice);
    message->size = GRPC_SLICE_LENGTH(message->slice);
}

static void join_slices(uint8_t *to, const grpc_slice_buffer *from)
{
    for (size_t i = 0; i < from->count; i++) {
        size_t length = GRPC_SLICE_LENGTH(from->slices[i]);
        memcpy(to, GRPC_SLICE_START_PTR(from->slices[i]), length);
        to += length;
    }
}

static trp_message *message_in_parts(grpc_byte_buffer *buffer)
{
    const grpc_slice_buffer *slices = &buffer->data.raw.slice_buffer;
    trp_message *message = trp_message_create(slices->count * sizeof(trp_bytes));
    if (!message)
        return NULL;
    trp_bytes *parts = (trp_bytes *)(message + 1);
    for (size_t i = 0; i < slices->count; i++)
        parts[i] = (trp_bytes){GRPC_SLICE_START_PTR(slices->slices[i]),
                               GRPC_SLICE_LENGTH(slices->slices[i])};
    message->buffer = buffer;
    message->parts = parts;
    message->data = NULL;
    message->size = slices->length;
    message->part_count = slices->count;
    return message;
}

/* Not many small parts: to refer to one would take more memory than to copy it. */
static bool parts_are_large(const grpc_slice_buffer *slices)
{
    return slices->length > RPC_JOIN_BYTES_MAX &&
           slices->length / slices->count > RPC_COPY_BYTES_MAX;
}

trp_message *rpc_message_from_buffer(grpc_byte_buffer *buffer, bool in_parts)
{
    const grpc_slice_buffer *slices = &buffer->data.raw.slice_buffer;
    trp_message *message;
    if (slices->count == 1 && slices->length > RPC_COPY_BYTES_MAX) {
        message = trp_message_create(0);
        if (message)
            slice_to_message(message, slices->slices[0]);
    } else if (in_parts && parts_are_large(slices)) {
        message = message_in_parts(buffer);
        if (message)
            return message;
    } else {
        message = trp_message_create(slices->length);
        if (message)
            join_slices(message->data, slices);
    }
    grpc_byte_buffer_destroy(buffer);
    return message;
}

trp_message *rpc_message_join(trp_message *message)
{
    if (!message->parts)
        return message;
    trp_message *joined = trp_message_create(message->size);
    for (size_t i = 0, at = 0; joined && i < message->part_count; i++) {
        memcpy(joined->data + at, message->parts[i].data, message->parts[i].size);
        at += message->parts[i].size;
    }
    trp_message_destroy(message);
    return joined;
}

static void destroy_sent(void *message)
{
    rpc_tag_acquire(message);
    trp_message_destroy(message);
}

/* One count of references for all parts, which are many. */
static grpc_byte_buffer *parts_to_buffer(trp_message *message, grpc_slice whole)
{
    const trp_bytes *parts = message->parts;
    size_t count = message->part_count; /* the last reference takes the message along */
    grpc_slice *slices = xmalloc(count * sizeof *slices);
    for (size_t i = 0; i < count; i++) {
        slices[i].refcount = whole.refcount;
        slices[i].data.refcounted.bytes = (uint8_t *)parts[i].data;
        slices[i].data.refcounted.length = parts[i].size;
    }
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(slices, count);
    free(slices);
    return buffer;
}

grpc_byte_buffer *rpc_message_to_buffer(trp_message *message)
{
    rpc_message_uncharge(message); /* gRPC frees it whenever it likes, maybe after the budget */
    rpc_tag_release(message);
    grpc_slice slice =
        grpc_slice_new_with_user_data(message->data, message->size, destroy_sent, message);
    grpc_byte_buffer *buffer =
        message->parts ? parts_to_buffer(message, slice) : grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

bool rpc_budget_take(struct rpc_budget *budget, uint64_t bytes, uint64_t limit)
{
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    do {
        if (used > limit || bytes > limit - used)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->used, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void rpc_budget_give(struct rpc_budget *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

bool rpc_message_charge(trp_message *message, struct rpc_budget *budget)
{
    if (!rpc_budget_take(budget, message->size, budget->limit))
        return false;
    message->budget = budget;
    message->charged = message->size;
    return true;
}

void rpc_message_uncharge(trp_message *message)
{
    if (!message->budget)
        return;
    rpc_budget_give(message->budget, message->charged);
    message->budget = NULL;
}
