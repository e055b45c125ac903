/* Steps on the updater's device. Whether a phase's step is taken the device decides by itself; the
 * loop hears of it when it collects the step. */
#include "update.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/nn.h>
#include "core/alloc.h"
#include "core/batch.h"
#include "core/status.h"
#include "not_finite.h"

/* ---- what is published ----------------------------------------------------------------------- */

static char *published_layout(const trp_vector_spec *spec)
{
    size_t begin = 0, end = 0;
    while (begin < spec->tensor_count && spec->tensors[begin].offset < spec->published_first)
        begin++;
    for (end = begin; end < spec->tensor_count; end++)
        if (spec->tensors[end].offset >= published_end(spec))
            break;
    return trp_net_layout(spec->tensors + begin, end - begin, spec->published_first);
}

struct published update_published(const struct trp_update_run *run)
{
    const trp_vector_spec *spec = run->params->spec;
    return (struct published){.first = spec->published_first,
                              .count = published_end(spec) - spec->published_first,
                              .values = (float *)run->params->values.here + spec->published_first,
                              .layout = run->layout};
}

trp_status update_fetch(struct trp_update_run *run)
{
    return vectors_fetch(&run->vectors);
}

trp_status update_fetch_published(struct trp_update_run *run)
{
    struct published part = update_published(run);
    twin_fetch(&run->params->values, run->queue, part.first * sizeof(float),
               part.count * sizeof(float));
    return trp_queue_sync(run->queue, trp_queue_mark(run->queue));
}

trp_status update_store(struct trp_update_run *run)
{
    return vectors_store(&run->vectors);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void note_grads(struct trp_update_run *run)
{
    for (size_t i = 0; i < run->updater->vector_count; i++)
        run->grads[i] = run->vectors.each[i].grads;
}

static trp_status prepare_vectors(struct trp_update_run *run)
{
    const trp_updater *updater = run->updater;
    TRP_TRY(vectors_create(&run->vectors, run->device, run->queue, updater->vectors,
                           updater->vector_count));
    for (size_t i = 0; i < updater->vector_count; i++) {
        const struct vector *vector = &run->vectors.each[i];
        run->values[i] = vector->values.there;
        if (strcmp(vector->spec->name, "params") == 0) {
            run->params = vector;
            run->layout = published_layout(vector->spec);
        }
    }
    return TRP_OK;
}

/* Rooms for the columns on a device that does not read the host's memory. */
static trp_status prepare_source(struct trp_update_run *run, size_t source)
{
    const trp_batch_spec *spec = &run->updater->sources[source];
    TRP_TRY(batch_check(spec->columns.specs, spec->columns.count, spec->batch_size, "learner"));
    for (size_t k = 0; k < 2 && spec->writes_priorities; k++)
        run->priorities[k][source] = xcalloc(spec->batch_size, sizeof(double));
    for (size_t k = 0; k < 2 && !run->is_host; k++) {
        run->columns[k][source] = xcalloc(spec->columns.count, sizeof(void *));
        for (size_t i = 0; i < spec->columns.count; i++)
            TRP_TRY(trp_device_alloc(run->device,
                                     spec->batch_size * trp_tensor_bytes(&spec->columns.specs[i]),
                                     &run->columns[k][source][i]));
        TRP_TRY(frames_create(&run->frames[k][source], run->device, spec));
    }
    return TRP_OK;
}

trp_status update_prepare(struct trp_update_run *run, trp_updater *updater, uint64_t seed)
{
    *run = (struct trp_update_run){.updater = updater, .device = updater->device};
    TRP_TRY(updater_check(updater));
    if (!run->device)
        TRP_TRY(trp_device_find(&run->device, NULL));
    run->is_host = trp_device_is_host(run->device);
    TRP_TRY(trp_queue_create(&run->queue, run->device));
    TRP_TRY(trp_queue_create(&run->upload, run->device));
    for (size_t i = 0; i < updater->source_count; i++)
        TRP_TRY(prepare_source(run, i));
    TRP_TRY(prepare_vectors(run));
    note_grads(run);
    run->mode = alone_create(&run->vectors);
    trp_rng initial;
    trp_rng_init(&initial, seed, 0);
    trp_rng_init(&run->rng, seed, 1);
    float *vectors[TRP_UPDATER_VECTORS_MAX];
    for (size_t i = 0; i < updater->vector_count; i++)
        vectors[i] = run->vectors.each[i].values.here;
    if (updater->impl->init)
        updater->impl->init(updater, &initial, vectors);
    return update_store(run);
}

trp_status update_use_mode(struct trp_update_run *run, const struct mode_options *options)
{
    struct mode_options own = *options;
    own.updater = run->updater;
    run->mode->impl->destroy(run->mode);
    run->mode = NULL;
    TRP_TRY(mode_create(&run->mode, &run->vectors, &own));
    note_grads(run); /* it may have others */
    return TRP_OK;
}

static void columns_cleanup(struct trp_update_run *run, size_t source)
{
    for (size_t k = 0; k < 2; k++) {
        free(run->priorities[k][source]);
        if (!run->columns[k][source])
            continue;
        for (size_t i = 0; i < run->updater->sources[source].columns.count; i++)
            trp_device_free(run->device, run->columns[k][source][i]);
        free(run->columns[k][source]);
        frames_cleanup(&run->frames[k][source]);
    }
}

/* A run that failed leaves steps that nobody collected. A device that is lost, or does not answer
 * within what trp_queue_sync() waits, is not waited for again. */
static void wait_for_queues(const struct trp_update_run *run)
{
    trp_queue *const queues[] = {run->upload, run->queue};
    trp_status code = status_last_code(), status = TRP_OK;
    char *kept = error_keep(); /* why the run ended */
    for (size_t i = 0; i < 2 && status == TRP_OK; i++)
        if (queues[i])
            status = trp_queue_sync(queues[i], trp_queue_mark(queues[i]));
    error_back(code, kept);
}

void update_cleanup(struct trp_update_run *run)
{
    wait_for_queues(run);
    if (run->mode)
        run->mode->impl->destroy(run->mode);
    vectors_cleanup(&run->vectors);
    for (size_t i = 0; i < TRP_UPDATER_SOURCES_MAX; i++)
        columns_cleanup(run, i);
    trp_queue_destroy(run->queue);
    trp_queue_destroy(run->upload);
    free(run->layout);
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Batches go to the device on a queue of their own, while it is still at the step before. What had
 * the same rooms was collected since. */
static void upload_batches(struct trp_update_run *run, const trp_update *update)
{
    size_t turn = update->step % 2;
    for (size_t i = 0; i < run->updater->source_count; i++) {
        const trp_columns *columns = &run->updater->sources[i].columns;
        const trp_batch *batch = &update->batches[i];
        struct frames *frames = &run->frames[turn][i];
        run->uploaded_bytes += frames_send(frames, run->upload, batch);
        for (size_t k = 0; k < columns->count; k++) {
            size_t bytes = batch->rows * trp_tensor_bytes(&columns->specs[k]);
            if (frames_has(frames, k))
                continue;
            trp_queue_copy(run->upload, run->columns[turn][i][k], batch->columns[k], bytes);
            run->uploaded_bytes += bytes;
        }
    }
    run->uploaded[turn] = trp_queue_mark(run->upload);
    trp_queue_wait(run->queue, run->upload);
    for (size_t i = 0; i < run->updater->source_count; i++)
        frames_stack(&run->frames[turn][i], run->queue, update->batches[i].rows,
                     run->columns[turn][i]);
}

trp_status update_step(struct trp_update_run *run, uint64_t step, const trp_batch *batches)
{
    size_t turn = step % 2;
    trp_update *update = &run->steps[turn];
    *update = (trp_update){.step = step,
                           .version = run->version,
                           .batches = batches,
                           .vectors = run->values,
                           .grads = run->grads,
                           .priorities = run->priorities[turn],
                           .rng = &run->rng,
                           .queue = run->queue,
                           .partial = run->mode->partial,
                           .run = run};
    run->mode->rows = run->updater->source_count > 0 ? (float)batches[0].rows : 1;
    if (run->is_host) /* nothing is late */
        return run->updater->impl->step(run->updater, update);
    upload_batches(run, update);
    for (size_t i = 0; i < run->updater->vector_count; i++)
        run->vectors.each[i].applied[turn] = false;
    TRP_TRY(run->updater->impl->step(run->updater, update));
    for (size_t i = 0; i < run->updater->vector_count; i++) {
        struct vector *vector = &run->vectors.each[i];
        if (vector->applied[turn])
            trp_queue_copy(run->queue, &vector->seen[turn], vector->phases.there,
                           sizeof vector->seen[turn]);
    }
    run->marks[turn] = trp_queue_mark(run->queue);
    return TRP_OK;
}

const void *trp_update_column(const trp_update *update, size_t source, const char *name)
{
    const trp_columns *columns = &update->run->updater->sources[source].columns;
    size_t place = trp_columns_find(columns, name);
    return place < columns->count ? update->batches[source].columns[place] : NULL;
}

const void *trp_update_device_column(const trp_update *update, size_t source, const char *name)
{
    const trp_columns *columns = &update->run->updater->sources[source].columns;
    size_t place = trp_columns_find(columns, name);
    if (update->run->is_host || place == columns->count)
        return trp_update_column(update, source, name);
    return update->run->columns[update->step % 2][source][place];
}

void trp_update_ready(const trp_update *update, size_t vector, size_t lo, size_t hi)
{
    struct mode *mode = update->run->mode;
    if (mode->impl->ready)
        mode->impl->ready(mode, vector, lo, hi);
}

/* Parameters whose gradients are being made: [first, end) of a vector, those from `at` on final. */
struct backward {
    struct mode *mode;
    size_t vector, first, at;
};

static void report_suffix(void *context, size_t lo)
{
    struct backward *backward = context;
    size_t at = backward->first + lo;
    if (at < backward->at)
        backward->mode->impl->ready(backward->mode, backward->vector, at, backward->at);
    backward->at = at;
}

void trp_update_backward(const trp_update *update, size_t vector, size_t first, trp_net *net,
                         const trp_net_rows *rows, const trp_net_grads *grads)
{
    struct mode *mode = update->run->mode;
    struct backward backward = {mode, vector, first, first + trp_net_plan_param_count(net)};
    trp_net_grads all = *grads;
    all.params = update->grads[vector] + first;
    all.ready = mode->impl->ready ? report_suffix : NULL;
    all.context = &backward;
    trp_net_backward(net, update->vectors[vector] + first, rows, &all);
}

trp_status trp_update_max(const trp_update *update, double *value)
{
    struct mode *mode = update->run->mode;
    return mode->impl->max ? mode->impl->max(mode, value) : TRP_OK;
}

trp_status trp_update_reduce(const trp_update *update, size_t vector)
{
    struct mode *mode = update->run->mode;
    return mode->impl->reduce ? mode->impl->reduce(mode, vector) : TRP_OK;
}

static trp_status refuse_step(struct trp_update_run *run, const struct vector *vector,
                              uint64_t step, const trp_phases *phases)
{
    size_t count = vector->spec->count;
    double number = without_sign((double)phases->value);
    char *where = not_finite_where(run, step);
    const char *colon = where ? ": " : "", *words = where ? where : "";
    if (run->mode->impl->refuse)
        run->mode->impl->refuse(run->mode);
    if (phases->place == count)
        trp_fail(TRP_INTERNAL, "the %s of step %" PRIu64 " is %g%s%s",
                 vector->watched_name ? vector->watched_name : "number to watch", step, number,
                 colon, words);
    else
        trp_fail(TRP_INTERNAL,
                 "the gradient of '%s' is not finite in step %" PRIu64 ": number %" PRIu64
                 " of %zu is %g%s%s",
                 vector->spec->name, step, phases->place, count, number, colon, words);
    free(where);
    return TRP_INTERNAL;
}

/* What became of the last phase of `vector` in that step. */
static trp_status settle(struct trp_update_run *run, struct vector *vector, uint64_t step,
                         const trp_phases *phases)
{
    if (phases->refused)
        return refuse_step(run, vector, step, phases);
    run->left_out += phases->left_out - vector->left_out;
    vector->left_out = phases->left_out;
    update_report(run, vector->norm_name, sqrt(phases->norm2));
    return TRP_OK;
}

void trp_update_watch(const trp_update *update, size_t vector, const float *number,
                      const char *name)
{
    update->run->vectors.each[vector].watched = number;
    update->run->vectors.each[vector].watched_name = name;
}

trp_status trp_update_apply(const trp_update *update, size_t index)
{
    struct trp_update_run *run = update->run;
    struct vector *vector = &run->vectors.each[index];
    TRP_TRY(run->mode->impl->apply(run->mode, index));
    vector->watched = NULL;
    vector->followed = false;
    if (update->partial)
        return TRP_OK;
    if (run->is_host)
        return settle(run, vector, update->step, vector->phases.there);
    vector->applied[update->step % 2] = true;
    return TRP_OK;
}

/* What a device that is no host owes of that step. */
static trp_status settle_step(struct trp_update_run *run, uint64_t step)
{
    size_t turn = step % 2;
    TRP_TRY(trp_queue_sync(run->queue, run->marks[turn]));
    TRP_TRY(trp_queue_sync(run->upload, run->uploaded[turn])); /* it was before: has it failed? */
    for (size_t i = 0; i < run->updater->vector_count; i++)
        if (run->vectors.each[i].applied[turn])
            TRP_TRY(settle(run, &run->vectors.each[i], step, &run->vectors.each[i].seen[turn]));
    return TRP_OK;
}

trp_status update_followed(struct trp_update_run *run, uint64_t step)
{
    for (size_t i = 0; i < run->vectors.count; i++) {
        struct vector *vector = &run->vectors.each[i];
        if (!vector->followed)
            continue;
        vector->followed = false;
        twin_fetch(&vector->phases, run->queue, 0, vector->phases.bytes);
        TRP_TRY(trp_queue_sync(run->queue, trp_queue_mark(run->queue)));
        TRP_TRY(settle(run, vector, step, vector_phases(vector)));
    }
    return TRP_OK;
}

void update_adopt(struct trp_update_run *run)
{
    for (size_t i = 0; i < run->vectors.count; i++) {
        struct vector *vector = &run->vectors.each[i];
        if (!vector->spec->learned)
            continue;
        run->left_out += vector_phases(vector)->left_out - vector->left_out;
        vector->left_out = vector_phases(vector)->left_out;
    }
}

trp_status update_collect(struct trp_update_run *run, uint64_t step)
{
    const trp_updater_impl *impl = run->updater->impl;
    if (!run->is_host)
        TRP_TRY(settle_step(run, step));
    return impl->collect ? impl->collect(run->updater, &run->steps[step % 2]) : TRP_OK;
}

void trp_update_report(const trp_update *update, const char *name, double value)
{
    update_report(update->run, name, value);
}

void update_report(struct trp_update_run *run, const char *name, double value)
{
    size_t i = 0;
    while (i < run->metric_count && strcmp(run->metrics[i].name, name) != 0)
        i++;
    if (i == TRP_LEARNER_METRICS_MAX) {
        if (!run->metrics_full)
            trp_log(TRP_WARN, "not reported name=%s reason=more than %d numbers", name,
                    TRP_LEARNER_METRICS_MAX);
        run->metrics_full = true;
        return;
    }
    run->metrics[i] = (trp_metric){name, value};
    if (i == run->metric_count)
        run->metric_count++;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* The optimizer whose state a tensor is by its name: VECTOR.OPTIMIZER.STATE; or NULL. */
static const char *state_owner(const struct vector *vector, const char *tensor)
{
    size_t length = strlen(vector->spec->name);
    if (strncmp(tensor, vector->spec->name, length) != 0 || tensor[length] != '.')
        return NULL;
    const char *rest = tensor + length + 1;
    for (size_t kind = 0; kind < TRP_OPTIMIZER_KINDS; kind++) {
        const char *name = trp_optimizer_name((trp_optimizer_kind)kind);
        if (strncmp(rest, name, strlen(name)) == 0 && rest[strlen(name)] == '.')
            return name;
    }
    return NULL;
}

static bool has_state(const struct vector *vector, const char *tensor)
{
    for (size_t i = 0; i < trp_optimizer_states(&vector->spec->optimizer); i++)
        if (strcmp(vector->state_names[i], tensor) == 0)
            return true;
    return false;
}

static bool has_tensor(const trp_checkpoint *checkpoint, const char *name)
{
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++)
        if (strcmp(trp_checkpoint_tensor_at(checkpoint, i)->name, name) == 0)
            return true;
    return false;
}

static trp_status check_state(const struct vector *vector, const trp_checkpoint *checkpoint)
{
    const trp_vector_spec *spec = vector->spec;
    const char *mine = trp_optimizer_name(spec->optimizer.kind);
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const char *tensor = trp_checkpoint_tensor_at(checkpoint, i)->name;
        const char *other = state_owner(vector, tensor);
        if (other && !has_state(vector, tensor))
            return trp_fail(TRP_FAILED_PRECONDITION,
                            "the checkpoint has '%s', so %s learned '%s'; this run's optimizer is "
                            "%s%s",
                            tensor, other, spec->name, mine,
                            strcmp(mine, other) == 0 ? " with other options" : "");
    }
    for (size_t i = 0; i < trp_optimizer_states(&spec->optimizer); i++)
        if (!has_tensor(checkpoint, vector->state_names[i]))
            return trp_fail(TRP_FAILED_PRECONDITION,
                            "the checkpoint has no '%s', which %s, this run's optimizer, needs",
                            vector->state_names[i], mine);
    return TRP_OK;
}

trp_status update_check_state(const struct trp_update_run *run, const trp_checkpoint *checkpoint)
{
    for (size_t i = 0; i < run->updater->vector_count; i++)
        if (run->vectors.each[i].spec->learned)
            TRP_TRY(check_state(&run->vectors.each[i], checkpoint));
    return TRP_OK;
}

static trp_checkpoint_tensor floats(const char *name, const float *values, size_t count)
{
    return (trp_checkpoint_tensor){
        .name = name, .type = TRP_CHECKPOINT_F32, .rank = 1, .shape = {count}, .data = values};
}

static trp_checkpoint_tensor numbers(const char *name, const uint64_t *values, size_t count)
{
    return (trp_checkpoint_tensor){
        .name = name, .type = TRP_CHECKPOINT_U64, .rank = 1, .shape = {count}, .data = values};
}

size_t update_state(struct trp_update_run *run, trp_checkpoint_tensor tensors[UPDATE_TENSORS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < run->updater->vector_count; i++) {
        const struct vector *vector = &run->vectors.each[i];
        size_t length = vector->spec->count;
        tensors[count++] = floats(vector->spec->name, vector->values.here, length);
        if (!vector->spec->learned)
            continue;
        for (size_t k = 0; k < trp_optimizer_states(&vector->spec->optimizer); k++)
            tensors[count++] = floats(vector->state_names[k], vector_state(vector, k), length);
        tensors[count++] = numbers(vector->steps_name, &vector_phases(vector)->steps, 1);
    }
    if (run->updater->impl->state)
        count += run->updater->impl->state(run->updater, tensors + count);
    tensors[count++] = numbers("learner.rng", run->rng.state, 4);
    return count;
}
