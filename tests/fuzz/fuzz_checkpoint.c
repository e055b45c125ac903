/* Any bytes as a checkpoint file: refused with a status, or every byte of every tensor can be read.
 * libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/checkpoint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t walk(const trp_checkpoint *checkpoint)
{
    static const size_t widths[] = {4, 8, 8, 8, 1};
    uint64_t sum = 0;
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(checkpoint, i);
        uint64_t count = 1;
        for (uint32_t d = 0; d < tensor->rank; d++)
            count *= tensor->shape[d];
        size_t bytes = count * widths[tensor->type];
        for (size_t b = 0; b < bytes; b++)
            sum += ((const uint8_t *)tensor->data)[b];
        void *copy = malloc(bytes + 1);
        trp_status status = trp_checkpoint_get(checkpoint, tensor->name, tensor->type, count, copy);
        assert(status == TRP_OK);
        assert(memcmp(copy, bytes ? tensor->data : copy, bytes) == 0);
        free(copy);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trp_checkpoint *checkpoint = NULL;
    if (trp_checkpoint_parse(&checkpoint, (trp_bytes){data, size}, "fuzz") == TRP_OK) {
        volatile uint64_t sum = walk(checkpoint);
        (void)sum;
        const char *note = trp_checkpoint_note_get(checkpoint, "agent");
        assert(!note || strlen(note) <= size);
    }
    trp_checkpoint_destroy(checkpoint);
    return 0;
}
