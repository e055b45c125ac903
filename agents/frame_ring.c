/* All slots' stacks fit into the ring, and the most that a call may bring: where slots take turns
 * the frames of the last stacks are there. Where one was away for long they are not, and go
 * again. */
#include "frame_ring.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

trp_status frame_ring_create(struct frame_ring *ring, struct room *memory, trp_frame_stacks stacks,
                             uint32_t rows, uint32_t slots)
{
    *ring = (struct frame_ring){
        .stacks = stacks, .slots = slots, .room = stacks.frames * (rows + slots)};
    size_t orders = (size_t)rows * stacks.frames;
    if (stacks.frames == 0)
        return TRP_OK;
    ring->last = xcalloc((size_t)slots * stacks.frames, sizeof *ring->last);
    ring->order = xcalloc(orders, sizeof *ring->order);
    ring->frames = xcalloc(ring->room, stacks.bytes);
    TRP_TRY(room_add(memory, ring->room * stacks.bytes, &ring->frames_there));
    return room_add(memory, orders * sizeof *ring->order, &ring->order_there);
}

void frame_ring_cleanup(struct frame_ring *ring)
{
    free(ring->last);
    free(ring->order);
    free(ring->frames);
}

static uint8_t *frame_of(const struct frame_ring *ring, uint64_t number)
{
    return ring->frames + number % ring->room * ring->stacks.bytes;
}

/* It is there, and still is when frames up to `until` came. */
static bool is_kept(const struct frame_ring *ring, uint64_t number, uint64_t until)
{
    return number > 0 && number + ring->room > until;
}

/* By how many frames a stack is behind the slot's last one: so many of its own are new. */
static uint32_t frames_behind(const struct frame_ring *ring, const uint64_t *last,
                              const uint8_t *stack, uint64_t until)
{
    uint32_t count = ring->stacks.frames, behind = 0;
    size_t bytes = ring->stacks.bytes;
    for (; behind < count; behind++) {
        uint32_t i = 0;
        while (i + behind < count && is_kept(ring, last[i + behind], until) &&
               memcmp(frame_of(ring, last[i + behind]), stack + i * bytes, bytes) == 0)
            i++;
        if (i + behind == count)
            break;
    }
    return behind;
}

static void add_stack(struct frame_ring *ring, uint64_t *last, const uint8_t *stack, uint64_t until,
                      int32_t *order)
{
    uint32_t count = ring->stacks.frames, behind = frames_behind(ring, last, stack, until);
    size_t bytes = ring->stacks.bytes;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *frame = stack + i * bytes;
        if (i + behind < count) {
            last[i] = last[i + behind];
        } else if (i > 0 && memcmp(frame - bytes, frame, bytes) == 0) {
            last[i] = last[i - 1];
        } else {
            last[i] = ++ring->sent;
            memcpy(frame_of(ring, last[i]), frame, bytes);
        }
        order[i] = (int32_t)(last[i] % ring->room);
    }
}

/* Those behind number `before`, which lie in one or two pieces. */
static void send_frames(const struct frame_ring *ring, trp_queue *queue, uint64_t before)
{
    size_t bytes = ring->stacks.bytes;
    while (before < ring->sent) {
        size_t at = (before + 1) % ring->room, count = ring->room - at;
        if (count > ring->sent - before)
            count = ring->sent - before;
        trp_queue_copy(queue, (uint8_t *)ring->frames_there + at * bytes, ring->frames + at * bytes,
                       count * bytes);
        before += count;
    }
}

void frame_ring_put(struct frame_ring *ring, trp_queue *queue, const trp_act *act, void *stacks)
{
    uint32_t count = ring->stacks.frames;
    const uint8_t *from = act->observations[0];
    uint64_t before = ring->sent, until = before + (uint64_t)act->rows * count;
    for (size_t row = 0; row < act->rows; row++)
        add_stack(ring, ring->last + (size_t)act->slots[row] * count,
                  from + row * count * ring->stacks.bytes, until, ring->order + row * count);
    send_frames(ring, queue, before);
    trp_row_order order = {ring->order_there, act->rows * count, ring->room};
    trp_queue_copy(queue, ring->order_there, ring->order, order.count * sizeof *ring->order);
    trp_queue_gather(queue, &order, ring->frames_there, stacks, ring->stacks.bytes);
}
