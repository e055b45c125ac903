/* Devices: what networks, losses and optimizers are computed on. A device has memory, and queues:
 * what is put on a queue is done in order, perhaps later. Nobody waits but trp_queue_sync().
 *
 * Host devices are "cpu", this host's processor with the fastest kernels that it has, and "ref",
 * whose networks are naive loops: the specification. Their memory is the host's, any float pointer
 * is of it, and what is put on a queue is done when the call returns.
 *
 * "cuda:0", "cuda:1" and so on are NVIDIA's GPUs of compute capability 8.0 or newer, in CUDA's
 * order. They need a Troupe that was built where nvcc is, and a driver for CUDA 13. "auto" is
 * cuda:0 if that can be used, else "cpu"; a line of the log says which, and why. No part of this
 * was ever run on a GPU.
 *
 *     // values *= factor, wherever they are.
 *     typedef struct { float *values; size_t count; float factor; } scaling;
 *
 *     static void scale(void *arguments)
 *     {
 *         scaling *job = arguments;
 *         for (size_t i = 0; i < job->count; i++)
 *             job->values[i] *= job->factor;
 *     }
 *
 *     static void scale_on(trp_queue *queue, float *values, size_t count, float factor)
 *     {
 *         static const trp_kernel kernel = {.name = "example.scale", .run = scale};
 *         scaling job = {values, count, factor};
 *         trp_operand operands[] = {
 *             {offsetof(scaling, values), count * sizeof *values, TRP_READ | TRP_WRITE}};
 *         trp_queue_run(queue, &kernel, &job, sizeof job, operands, 1);
 *     }
 */
#ifndef TRP_DEVICE_H
#define TRP_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

typedef struct trp_device trp_device;
typedef struct trp_queue trp_queue;

/* The device of that name; NULL: "cpu". The same for every call, from any thread, for the life of
 * the process. INVALID_ARGUMENT: no host has such a device. UNAVAILABLE: this one has not, or it
 * cannot be used; the message says what was found and what is needed. */
TRP_API TRP_MUST_USE trp_status trp_device_find(trp_device **out, const char *name);

/* Whether some host may have a device of that name, without a look at this one's. */
TRP_API TRP_MUST_USE trp_status trp_device_check(const char *name);
TRP_API const char *trp_device_name(const trp_device *device);

/* How many GPUs this process may find by name, as far as the driver says. UNAVAILABLE: there is no
 * driver, or no Troupe for GPUs, and why. */
TRP_API TRP_MUST_USE trp_status trp_device_gpus(uint32_t *count);
TRP_API bool trp_device_is_host(const trp_device *device);

/* Zeroed memory of a device, at a multiple of 64 bytes. Only what is put on queues of the device
 * touches it, but for a host's. RESOURCE_EXHAUSTED: the device has not as many bytes. Waits for the
 * device. NULL is a fine argument to free: whatever uses the memory was waited for. */
TRP_API TRP_MUST_USE trp_status trp_device_alloc(trp_device *device, size_t bytes, void **memory);
TRP_API void trp_device_free(trp_device *device, void *memory);

/* Memory of the host that copies to the device are quickest from: on a GPU pinned, as long as that
 * is to be had, from where they are made without another copy on the host; of a host the C
 * library's. For trp_sampler_options.allocator and the like. The allocator is the device's, for as
 * long as the process; any thread may use it, and none of its memory is zeroed. */
TRP_API const trp_allocator *trp_device_host_memory(trp_device *device);

typedef struct {
    size_t used; /* bytes of what trp_device_alloc() gave out, networks' among them */
    size_t left; /* that nobody uses, of any process */
} trp_device_bytes;

/* Zeros of a host. */
TRP_API trp_device_bytes trp_device_memory(trp_device *device);

/* ---- queues ----------------------------------------------------------------------------- */

/* A queue belongs to one thread at a time, and is destroyed (NULL is fine) with nothing on it that
 * was not waited for. */
TRP_API TRP_MUST_USE trp_status trp_queue_create(trp_queue **out, trp_device *device);
TRP_API void trp_queue_destroy(trp_queue *queue);
TRP_API trp_device *trp_queue_device(const trp_queue *queue);

/* What follows may use memory of the device and of the host, which stays as it is until the queue
 * has come so far. */
TRP_API void trp_queue_copy(trp_queue *queue, void *to, const void *from, size_t bytes);
TRP_API void trp_queue_zero(trp_queue *queue, void *to, size_t bytes);

/* `from`, which is the host's, where the device can read it: copied to `room`, or on a host device
 * `from` itself, for which `room` may be NULL. */
TRP_API const void *trp_queue_upload(trp_queue *queue, void *room, const void *from, size_t bytes);

/* Which rows, all memory being the device's: `order` has `count` numbers below `rows`. */
typedef struct {
    const int32_t *order;
    uint32_t count, rows;
} trp_row_order;

/* to[i] = from[order[i]], rows of `bytes`. NULL from: nothing. */
TRP_API void trp_queue_gather(trp_queue *queue, const trp_row_order *order, const void *from,
                              void *to, size_t bytes);

/* How a kernel uses what a pointer of its arguments points to; or-ed together. */
enum { TRP_READ = 1, TRP_WRITE = 2 };

typedef struct {
    size_t pointer; /* where it is in the arguments: offsetof(struct, member). It points to memory
                       of the device; NULL: nothing */
    size_t bytes;   /* how many of them there are */
    int access;     /* TRP_READ, TRP_WRITE */
} trp_operand;

/* A function of a struct of arguments, which names all memory that it touches as operands. */
typedef struct {
    const char
        *name; /* under which a device may have code of its own for it; others bring the
                  operands to the host, run what follows there, and take back what it wrote */
    void (*run)(void *arguments);
    /* NULL, or `share` of `shares` parts that together do what `run` does, to the bit, and of which
     * none touches what another one writes. Where the calling thread has plans of several threads
     * (nn.h), these run the parts of a kernel on a host side by side if its operands have 256 KiB
     * or more; the arguments are one struct for all of them. */
    void (*run_share)(void *arguments, uint32_t share, uint32_t shares);
} trp_kernel;

/* Arguments and operands are copied before it returns. */
TRP_API void trp_queue_run(trp_queue *queue, const trp_kernel *kernel, const void *arguments,
                           size_t bytes, const trp_operand *operands, size_t operand_count);

/* What is put on `queue` from here on comes after all that is on `other`, of the same device. What
 * fails on `other` is told by waits for that alone. */
TRP_API void trp_queue_wait(trp_queue *queue, trp_queue *other);

/* What the device's own library calls the queue: of a GPU its cudaStream_t, to which everything
 * that is on the queue was handed. Another library may put on it what touches the device's memory;
 * what follows on the queue comes after that. NULL: of a host. */
TRP_API void *trp_queue_native(trp_queue *queue);

/* A call of another library, which puts on streams of the device by itself, as NCCL does, among all
 * that is on a queue: of a GPU it becomes a part of the same graph. */
typedef struct {
    const char *name; /* in words */
    /* Puts it on a stream of the device's own library (a GPU's cudaStream_t), on the queue's
     * thread. The stream may be one that is captured: what was put there runs each time that the
     * same comes again, and this is not called then. False: it could not. */
    bool (*put)(void *owner, void *stream, const void *arguments);
    /* The owner has ended: nothing that it put is begun any more. From any thread. */
    bool (*over)(const void *owner);
} trp_library_call;

/* Not of a host. Arguments are copied, and have no gaps between their members: calls with the same
 * owner and the same bytes are one. What differs between an owner and a later one at the same place
 * is one of them. The calls of one owner are done in the order in which they are put on the queue.
 * A GPU captures a list with calls whenever it is a new one, so that all GPUs that have the same
 * call, as those of NCCL's ranks, do so at one time. */
TRP_API void trp_queue_call(trp_queue *queue, const trp_library_call *call, void *owner,
                            const void *arguments, size_t bytes, const trp_operand *operands,
                            size_t operand_count);

/* Waits for the owner's calls that are on the queue, as long as trp_queue_sync(), and forgets
 * whatever it put: the owner may go. */
TRP_API void trp_queue_forget(trp_queue *queue, const void *owner);

/* Names what is on the queue so far, for trp_queue_sync(). */
TRP_API uint64_t trp_queue_mark(trp_queue *queue);

/* True when a wait for `mark` would return at once. Never blocks. */
TRP_API bool trp_queue_done(trp_queue *queue, uint64_t mark);

/* Waits until everything up to `mark` is done. Whatever failed on the queue before that fails
 * this call and all later ones; what its memory holds is then undefined. INTERNAL, UNAVAILABLE,
 * RESOURCE_EXHAUSTED: the device and what it says. DEADLINE_EXCEEDED: it is not done within a
 * minute. */
TRP_API TRP_MUST_USE trp_status trp_queue_sync(trp_queue *queue, uint64_t mark);

TRP_END_DECLS
#endif
