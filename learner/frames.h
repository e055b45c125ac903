/* Batches of stacked frames on their way to a device: a frame that a stack shares with the one
 * before it goes once. What shares is found by comparing bytes, so that whatever made the batch,
 * the device gets it bit for bit: a new stack is the last one moved on by some frames (a step of a
 * sequence; the observation behind a transition), or has a frame several times in a row (the
 * beginning of an episode). */
#ifndef TRP_LEARNER_FRAMES_H
#define TRP_LEARNER_FRAMES_H

#include <troupe/updater.h>

enum { FRAMES_COLUMNS_MAX = 2 };

/* For one batch of a source at a time. Zeroed: its columns are sent as they are. */
struct frames {
    trp_frame_stacks stacks;
    size_t columns;                                                 /* of stacks: */
    size_t places[FRAMES_COLUMNS_MAX], per_row[FRAMES_COLUMNS_MAX]; /* frames of a row */
    size_t rows, room;                                              /* rows and frames, at most */
    uint8_t *unique;                                                /* the host's: frames to send */
    int32_t *order[FRAMES_COLUMNS_MAX]; /* [rows][per_row]: which of them each one is */
    trp_device *device;                 /* and the same there: */
    void *unique_there, *order_there[FRAMES_COLUMNS_MAX];
};

/* INVALID_ARGUMENT: a column of stacks is none. */
TRP_MUST_USE trp_status frames_check(const trp_batch_spec *spec);

/* Of a source that passed the check. Fails as trp_device_alloc(), to be cleaned up. */
TRP_MUST_USE trp_status frames_create(struct frames *frames, trp_device *device,
                                      const trp_batch_spec *spec);
void frames_cleanup(struct frames *frames);

/* Whether the column of that place is one of stacks. */
bool frames_has(const struct frames *frames, size_t place);

/* Puts what the batch's stacks are made of on `upload`; returns how many bytes. It is to be left
 * alone, as the batch, until the queue has come so far. */
size_t frames_send(struct frames *frames, trp_queue *upload, const trp_batch *batch);

/* Makes them of it, in `columns`, the device's: on a queue that comes after it. */
void frames_stack(const struct frames *frames, trp_queue *queue, uint32_t rows,
                  void *const *columns);

#endif
