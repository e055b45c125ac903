#include "work.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "nn/graph.h"

void work_list_cleanup(struct cuda_list *list)
{
    free(list->works);
    free(list->bytes);
    *list = (struct cuda_list){0};
}

void work_list_clear(struct cuda_list *list)
{
    list->count = list->call_count = 0;
    list->bytes_used = 0;
}

struct cuda_list work_list_copy(const struct cuda_list *list)
{
    struct cuda_list copy = {.count = list->count,
                             .room = list->count,
                             .call_count = list->call_count,
                             .bytes_used = list->bytes_used,
                             .bytes_room = list->bytes_used};
    copy.works = xmemdup(list->works, list->count * sizeof *list->works);
    copy.bytes = xmemdup(list->bytes, list->bytes_used);
    return copy;
}

bool work_lists_equal(const struct cuda_list *a, const struct cuda_list *b)
{
    if (a->count != b->count || a->bytes_used != b->bytes_used ||
        memcmp(a->bytes, b->bytes, a->bytes_used) != 0)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->works[i].kind != b->works[i].kind || a->works[i].kernel != b->works[i].kernel)
            return false;
    return true;
}

/* ---- appending ----------------------------------------------------------------------------- */

static char *bytes_add(struct cuda_list *list, size_t bytes)
{
    size_t rounded = round_up(bytes, WORK_ALIGNMENT);
    if (list->bytes_used + rounded > list->bytes_room) {
        list->bytes_room = 2 * (list->bytes_used + rounded);
        list->bytes = xrealloc(list->bytes, list->bytes_room);
    }
    char *at = list->bytes + list->bytes_used;
    memset(at, 0, rounded);
    list->bytes_used += rounded;
    return at;
}

static struct cuda_work *work_add(struct cuda_list *list, enum work_kind kind, size_t bytes)
{
    struct cuda_work *work = ARRAY_PUSH(list->works, list->count, list->room);
    work->kind = kind;
    work->kernel = NULL;
    work->reach_count = 0;
    work->arguments = (size_t)(bytes_add(list, bytes) - list->bytes);
    work->argument_bytes = bytes;
    return work;
}

static void reach_add(struct cuda_work *work, const void *memory, size_t bytes, int access)
{
    if (!memory || bytes == 0)
        return;
    assert(work->reach_count < KERNEL_REACHES_MAX);
    work->reaches[work->reach_count++] = (struct kernel_reach){memory, bytes, access};
}

void work_kernel(struct cuda_list *list, const struct cuda_kernel *kernel, const void *arguments)
{
    struct kernel_reach reaches[KERNEL_REACHES_MAX];
    struct cuda_work *work = work_add(list, WORK_KERNEL, kernel->argument_bytes);
    memcpy(list->bytes + work->arguments, arguments, kernel->argument_bytes);
    kernel->settle(list->bytes + work->arguments);
    work->kernel = kernel;
    size_t count = kernel->reaches(arguments, reaches);
    for (size_t i = 0; i < count; i++)
        reach_add(work, reaches[i].memory, reaches[i].bytes, reaches[i].access);
}

static const void *operand_at(const void *arguments, const trp_operand *operand)
{
    const void *memory;
    memcpy(&memory, (const char *)arguments + operand->pointer, sizeof memory);
    return memory;
}

static void host_add(struct cuda_list *list, const trp_kernel *host, const void *arguments,
                     size_t bytes, const trp_operand *operands, size_t operand_count)
{
    struct cuda_work *work = work_add(list, WORK_HOST, WORK_HOST_JOB_BYTES + bytes);
    struct host_job job;
    assert(operand_count <= KERNEL_REACHES_MAX);
    memset(&job, 0, sizeof job);
    job.run = host->run;
    job.argument_bytes = bytes;
    for (size_t i = 0; i < operand_count; i++) {
        const void *memory = operand_at(arguments, &operands[i]);
        if (!memory || operands[i].bytes == 0)
            continue;
        job.pointers[job.operand_count++] = (uint32_t)operands[i].pointer;
        reach_add(work, memory, operands[i].bytes, operands[i].access);
    }
    memcpy(list->bytes + work->arguments, &job, sizeof job);
    memcpy(list->bytes + work->arguments + WORK_HOST_JOB_BYTES, arguments, bytes);
}

void work_run(struct cuda_list *list, const struct cuda_kernel *kernel, const trp_kernel *host,
              const void *arguments, size_t bytes, const trp_operand *operands,
              size_t operand_count)
{
    if (kernel && kernel->fits && !kernel->fits(arguments))
        kernel = kernel->other;
    if (!kernel)
        host_add(list, host, arguments, bytes, operands, operand_count);
    for (; kernel; kernel = kernel->then) {
        struct cuda_work *work = work_add(list, WORK_KERNEL, bytes);
        char *at = list->bytes + work->arguments;
        memcpy(at, arguments, bytes);
        kernel->settle(at);
        work->kernel = kernel;
        for (size_t i = 0; i < operand_count; i++)
            reach_add(work, operand_at(arguments, &operands[i]), operands[i].bytes,
                      operands[i].access);
    }
}

void work_call(struct cuda_list *list, const trp_library_call *call, void *owner,
               const void *arguments, size_t bytes, const trp_operand *operands,
               size_t operand_count)
{
    struct cuda_work *work = work_add(list, WORK_CALL, WORK_CALL_JOB_BYTES + bytes);
    const struct call_job job = {call, owner, bytes};
    memcpy(list->bytes + work->arguments, &job, sizeof job);
    memcpy(list->bytes + work->arguments + WORK_CALL_JOB_BYTES, arguments, bytes);
    for (size_t i = 0; i < operand_count; i++)
        reach_add(work, operand_at(arguments, &operands[i]), operands[i].bytes, operands[i].access);
    reach_add(work, owner, 1, TRP_READ | TRP_WRITE);
    list->call_count++;
}

/* Bytes of a matrix whose rows are `stride` apart. */
static size_t matrix_bytes(uint32_t rows, uint32_t columns, size_t stride)
{
    return rows > 0 ? ((rows - 1) * stride + columns) * sizeof(float) : 0;
}

void work_gemm(struct cuda_list *list, const struct gemm_job *job)
{
    struct cuda_work *work = work_add(list, WORK_GEMM, sizeof *job);
    memcpy(list->bytes + work->arguments, job, sizeof *job);
    CLEAR_PADDING((struct gemm_job *)(void *)(list->bytes + work->arguments));
    reach_add(work, job->a,
              job->a_turned ? matrix_bytes(job->k, job->m, job->a_stride)
                            : matrix_bytes(job->m, job->k, job->a_stride),
              TRP_READ);
    reach_add(work, job->b,
              job->b_turned ? matrix_bytes(job->n, job->k, job->b_stride)
                            : matrix_bytes(job->k, job->n, job->b_stride),
              TRP_READ);
    reach_add(work, job->bias, job->n * sizeof(float), TRP_READ);
    reach_add(work, job->c, matrix_bytes(job->m, job->n, job->c_stride),
              job->accumulate ? TRP_READ | TRP_WRITE : TRP_WRITE);
}

void work_conv(struct cuda_list *list, const struct conv_job *job)
{
    const struct window *w = &job->window;
    size_t image = (size_t)w->height * w->width * w->channels;
    size_t result = (size_t)window_out_height(w) * window_out_width(w) * w->filters;
    struct cuda_work *work = work_add(list, WORK_CONV, sizeof *job);
    memcpy(list->bytes + work->arguments, job, sizeof *job);
    CLEAR_PADDING((struct conv_job *)(void *)(list->bytes + work->arguments));
    reach_add(work, job->x, ((job->images - 1) * job->x_stride + image) * sizeof(float),
              job->makes == CONV_DATA ? TRP_WRITE : TRP_READ);
    reach_add(work, job->w, window_patch(w) * w->filters * sizeof(float),
              job->makes == CONV_WEIGHTS ? TRP_WRITE : TRP_READ);
    reach_add(work, job->y, ((job->images - 1) * job->y_stride + result) * sizeof(float),
              job->makes == CONV_FORWARD ? TRP_WRITE : TRP_READ);
    reach_add(work, job->workspace, job->workspace_bytes, TRP_WRITE);
}

static void copy_add(struct cuda_list *list, enum work_kind kind, const struct copy_job *job)
{
    if (job->bytes == 0)
        return;
    struct cuda_work *work = work_add(list, kind, sizeof *job);
    memcpy(list->bytes + work->arguments, job, sizeof *job);
    reach_add(work, job->to, job->bytes, TRP_WRITE);
    reach_add(work, job->from, job->bytes, TRP_READ);
}

void work_copy(struct cuda_list *list, void *to, const void *from, size_t bytes)
{
    copy_add(list, WORK_COPY, &(struct copy_job){to, from, bytes});
}

void work_zero(struct cuda_list *list, void *to, size_t bytes)
{
    copy_add(list, WORK_ZERO, &(struct copy_job){to, NULL, bytes});
}

/* ---- calls --------------------------------------------------------------------------------- */

/* The next call from work *at on; NULL: there is none. */
static const struct call_job *next_call(const struct cuda_list *list, uint32_t *at)
{
    for (; list->call_count > 0 && *at < list->count; (*at)++)
        if (list->works[*at].kind == WORK_CALL)
            return work_arguments(list, &list->works[(*at)++]);
    return NULL;
}

bool work_list_calls(const struct cuda_list *list, const void *owner)
{
    const struct call_job *job;
    for (uint32_t at = 0; (job = next_call(list, &at));)
        if (job->owner == owner)
            return true;
    return false;
}

bool work_list_is_over(const struct cuda_list *list)
{
    const struct call_job *job;
    for (uint32_t at = 0; (job = next_call(list, &at));)
        if (job->call->over(job->owner))
            return true;
    return false;
}

/* ---- who meets whom ------------------------------------------------------------------------ */

static bool reaches_conflict(const struct kernel_reach *a, const struct kernel_reach *b)
{
    const char *a_low = a->memory, *b_low = b->memory;
    return ((a->access | b->access) & TRP_WRITE) && a_low < b_low + b->bytes &&
           b_low < a_low + a->bytes;
}

bool works_conflict(const struct cuda_work *a, const struct cuda_work *b)
{
    for (uint32_t i = 0; i < a->reach_count; i++)
        for (uint32_t k = 0; k < b->reach_count; k++)
            if (reaches_conflict(&a->reaches[i], &b->reaches[k]))
                return true;
    return false;
}

bool work_list_reaches(const struct cuda_list *list, const void *memory, size_t bytes)
{
    const struct kernel_reach all = {memory, bytes, TRP_READ | TRP_WRITE};
    for (uint32_t i = 0; i < list->count; i++)
        for (uint32_t k = 0; k < list->works[i].reach_count; k++)
            if (reaches_conflict(&all, &list->works[i].reaches[k]))
                return true;
    return false;
}
