#include "shared_params.h"

#include <string.h>

void shared_params_put(Troupe__SharedParams *message, const struct sealed_place *place)
{
    message->bytes = place->bytes;
    message->device = place->device;
    message->inode = place->inode;
    message->pid = place->pid;
    message->fd = place->fd;
    message->nonce = (ProtobufCBinaryData){.len = sizeof place->nonce,
                                           .data = (uint8_t *)(uintptr_t)place->nonce};
}

trp_status shared_params_take(const Troupe__SharedParams *message, struct sealed_place *place)
{
    *place = (struct sealed_place){.bytes = message->bytes,
                                   .device = message->device,
                                   .inode = message->inode,
                                   .pid = message->pid,
                                   .fd = message->fd};
    if (message->nonce.len != sizeof place->nonce)
        return trp_fail(TRP_FAILED_PRECONDITION, "a nonce of %zu bytes", message->nonce.len);
    memcpy(place->nonce, message->nonce.data, sizeof place->nonce);
    return TRP_OK;
}
