/* Bounds of replay/wire/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_WIRE_LIMITS_H
#define TRP_REPLAY_WIRE_LIMITS_H

#include <stdint.h>

enum {
    /* wire.c: parts of one message that are kept decoded: 2^20 items x 72 bytes and as many
     * chunks, 2^22 columns x 12 and slices x 24 bytes are at most 300 MB, whatever the message. */
    MESSAGE_ITEMS_MAX = 1 << 20,
    MESSAGE_SLICES_MAX = 1 << 22,
    /* wire.c, service/keep_set.c: headers of tensors that are recognised: dtype and eight
     * dimensions of up to three bytes. */
    WIRE_MEMO_BYTES_MAX = 64,
    /* service/sample_shared.c: clients on this host that read data.mdb themselves, each with a word
     * of the lease file, a page; further ones get an ordinary stream. */
    SHARED_LEASES_MAX = 512,
    /* service/sample_shared.c: pages of one client that cannot be recycled: three batches of 256 x
     * 28 KB are 22 MB. 512 clients that all stand still keep 32 GiB at most. */
    SHARED_WINDOW_BYTES_MAX = 64 << 20,
    SHARED_PAGE_BYTES_MAX = 1 << 20, /* shared_wire.c: no processor has larger base pages */
    /* service/sample_shared.c: smaller chunks are sent: naming a page costs as much as 2 KB. */
    SHARED_INLINE_BYTES = 2048,
    /* shared_wire.c: a writer's items are of a few shapes; of more, some are said twice. */
    SHARED_TRAJECTORIES_LOOKED_AT = 16,
};

/* store/store.h: address space for one store, 1/32 of x86-64's. */
#define STORE_MAP_BYTES_MAX (UINT64_C(1) << 42)

#endif
