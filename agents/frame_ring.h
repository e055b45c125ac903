/* Stacks of frames on their way to a policy's device: a frame that the last stack of its slot had,
 * or that comes several times in a row, as those that begin an episode, goes once. Which they are
 * is found by comparing bytes, so that whatever made the stacks, the device gets them bit for bit.
 */
#ifndef TRP_AGENTS_FRAME_RING_H
#define TRP_AGENTS_FRAME_RING_H

#include <troupe/policy.h>
#include <troupe/updater.h>

#include "room.h"

/* The newest frames, each at its number modulo `room`, here and on the device. Zeroed: rows are no
 * stacks. */
struct frame_ring {
    trp_frame_stacks stacks;
    uint32_t slots;
    uint32_t room;  /* frames */
    uint64_t sent;  /* so far; they have numbers from 1 on */
    uint64_t *last; /* [slots][stacks.frames]: those of a slot's last stack; 0: there was none */
    int32_t *order; /* [rows][stacks.frames]: where each frame of a call is */
    uint8_t *frames;
    void *frames_there, *order_there;
};

/* For so many rows of a call; memory of the device is taken from `memory`, whose end is its own.
 * Fails as trp_device_alloc(), to be cleaned up. */
TRP_MUST_USE trp_status frame_ring_create(struct frame_ring *ring, struct room *memory,
                                          trp_frame_stacks stacks, uint32_t rows, uint32_t slots);
void frame_ring_cleanup(struct frame_ring *ring);

/* Puts the stacks of a call on `queue`, into `stacks`, the device's; before the next call the queue
 * is waited for. */
void frame_ring_put(struct frame_ring *ring, trp_queue *queue, const trp_act *act, void *stacks);

#endif
