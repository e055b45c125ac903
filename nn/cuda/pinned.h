/* Memory of the host that copies to a GPU are made from where it lies. */
#ifndef TRP_NN_CUDA_PINNED_H
#define TRP_NN_CUDA_PINNED_H

#include <troupe/tensor.h>

#include "core/thread.h"
#include "machine.h"

struct pinned_range {
    char *at;
    size_t bytes;
};

/* What one machine has pinned for whoever fills it; any thread. */
struct pinned {
    struct machine *machine; /* borrowed */
    trp_allocator allocator; /* to it, or where the machine pins no more, the C library's */
    struct mutex mutex;
    struct pinned_range *ranges;
    uint32_t count, room;
};

/* Lives as long as its device. */
void pinned_init(struct pinned *pinned, struct machine *machine);

/* Whether all of these bytes are. */
bool pinned_has(struct pinned *pinned, const void *memory, size_t bytes);

#endif
