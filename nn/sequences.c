#include "sequences.h"

#include <string.h>

/* A part's columns of sequences in memory of the caller: `bytes` of each row. */
struct apart {
    uint32_t steps, sequences;
    struct rows share;
    size_t bytes;
};

static void copy_steps(const struct apart *rows, char *all, char *own, bool out)
{
    size_t bytes = (rows->share.to - rows->share.from) * rows->bytes;
    for (uint32_t step = 0; step < rows->steps; step++) {
        size_t row = (size_t)step * rows->sequences + rows->share.from;
        char *there = all + row * rows->bytes, *here = own + step * bytes;
        if (out)
            memcpy(there, here, bytes);
        else
            memcpy(here, there, bytes);
    }
}

static void copy_place(const struct host_net *net, const struct pass *pass, struct apart rows,
                       uint32_t part, enum place place)
{
    for (uint32_t i = 0; i < net->base.program.buffer_count; i++) {
        const struct net_buffer *buffer = &net->base.program.buffers[i];
        if (buffer->place != place)
            continue;
        uint32_t external = external_index(place, buffer->index);
        rows.bytes = buffer->width * buffer_element(net, buffer);
        if (pass->external[external])
            copy_steps(&rows, pass->external[external], net->parts[part].external[external],
                       place == PLACE_OUTPUT || place == PLACE_INPUT_GRAD);
    }
}

/* The rows of a state that belong to the part's sequences. */
static void *state_from(const struct host_net *net, const void *state, struct rows share)
{
    size_t row = net->base.program.graph.state_width * net->backend->element_bytes;
    return state ? (char *)(uintptr_t)state + share.from * row : NULL;
}

static void own_place(const struct host_net *net, const struct pass *pass, uint32_t part,
                      enum place place, struct pass *own)
{
    for (uint32_t i = 0; i < EXTERNAL_EACH; i++) {
        uint32_t external = external_index(place, i);
        own->external[external] = net->parts[part].external[external];
        if (place == PLACE_INPUT_GRAD && !pass->external[external])
            own->external[external] = NULL; /* not wanted */
    }
}

struct pass sequences_take(const struct host_net *net, const struct pass *pass, uint32_t sequences,
                           struct rows share, uint32_t part, bool backward)
{
    struct apart rows = {.steps = pass->steps, .sequences = sequences, .share = share};
    struct pass own = *pass;
    own_place(net, pass, part, PLACE_INPUT, &own);
    own_place(net, pass, part, PLACE_OUTPUT, &own);
    own.resets = pass->resets ? net->parts[part].resets : NULL;
    own.state = state_from(net, pass->state, share);
    own.end_state = state_from(net, pass->end_state, share);
    if (!backward) {
        copy_place(net, pass, rows, part, PLACE_INPUT);
        rows.bytes = 1;
        if (pass->resets)
            copy_steps(&rows, (char *)(uintptr_t)pass->resets, (char *)net->parts[part].resets,
                       false);
        return own;
    }
    own_place(net, pass, part, PLACE_INPUT_GRAD, &own);
    own_place(net, pass, part, PLACE_OUTPUT_GRAD, &own);
    own.end_state_grad = state_from(net, pass->end_state_grad, share);
    own.state_grad = state_from(net, pass->state_grad, share);
    copy_place(net, pass, rows, part, PLACE_OUTPUT_GRAD);
    return own;
}

void sequences_give(const struct host_net *net, const struct pass *pass, uint32_t sequences,
                    struct rows share, uint32_t part, bool backward)
{
    struct apart rows = {.steps = pass->steps, .sequences = sequences, .share = share};
    copy_place(net, pass, rows, part, backward ? PLACE_INPUT_GRAD : PLACE_OUTPUT);
}
