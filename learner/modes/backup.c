#include "backup.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

size_t tensor_bytes(const trp_checkpoint_tensor *tensor)
{
    size_t bytes = tensor->type == TRP_CHECKPOINT_U8    ? 1
                   : tensor->type == TRP_CHECKPOINT_F32 ? sizeof(float)
                                                        : sizeof(uint64_t);
    for (uint32_t i = 0; i < tensor->rank; i++)
        bytes *= tensor->shape[i];
    return bytes;
}

static struct backup_piece *backup_add(struct backup *backup, void *original, size_t bytes)
{
    assert(backup->count < BACKUP_PIECES_MAX);
    struct backup_piece *piece = &backup->pieces[backup->count++];
    *piece = (struct backup_piece){.original = original, .bytes = bytes};
    return piece;
}

static trp_status back_up_twin(struct backup *backup, const struct twin *twin)
{
    if (!twin->there)
        return TRP_OK;
    struct backup_piece *piece = backup_add(backup, twin->there, twin->bytes);
    backup->on_device = backup->count;
    return trp_device_alloc(backup->vectors->device, twin->bytes, &piece->copy);
}

void backup_add_memory(struct backup *backup, const void *original, size_t bytes)
{
    if (bytes == 0)
        return;
    struct backup_piece *piece = backup_add(backup, (void *)(uintptr_t)original, bytes);
    piece->copy = xcalloc(1, bytes);
}

trp_status backup_create(struct backup *backup, const struct vectors *vectors, trp_updater *updater,
                         trp_rng *rng)
{
    *backup = (struct backup){.vectors = vectors};
    for (size_t i = 0; i < vectors->count; i++) {
        const struct vector *vector = &vectors->each[i];
        TRP_TRY(back_up_twin(backup, &vector->values));
        TRP_TRY(back_up_twin(backup, &vector->phases));
        for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
            TRP_TRY(back_up_twin(backup, &vector->state[k]));
    }
    trp_checkpoint_tensor tensors[TRP_UPDATER_TENSORS_MAX];
    size_t count = updater->impl->state ? updater->impl->state(updater, tensors) : 0;
    for (size_t i = 0; i < count; i++)
        backup_add_memory(backup, tensors[i].data, tensor_bytes(&tensors[i]));
    backup_add_memory(backup, rng, sizeof *rng);
    return TRP_OK;
}

void backup_cleanup(struct backup *backup)
{
    for (size_t i = 0; i < backup->count; i++)
        if (i < backup->on_device)
            trp_device_free(backup->vectors->device, backup->pieces[i].copy);
        else
            free(backup->pieces[i].copy);
}

static void move(const struct backup *backup, size_t index, void *to, const void *from)
{
    size_t bytes = backup->pieces[index].bytes;
    if (index < backup->on_device)
        trp_queue_copy(backup->vectors->queue, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

void backup_take(struct backup *backup)
{
    for (size_t i = 0; i < backup->count; i++)
        move(backup, i, backup->pieces[i].copy, backup->pieces[i].original);
    backup->taken = true;
}

void backup_restore(struct backup *backup)
{
    for (size_t i = 0; backup->taken && i < backup->count; i++)
        move(backup, i, backup->pieces[i].original, backup->pieces[i].copy);
    backup->taken = false;
}
