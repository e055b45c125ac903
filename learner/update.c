/* Vectors and phases. A gradient is 0 when a phase begins: it is made 0 where it was applied, while
 * it is still in the cache. */
#include "update.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/nn.h>
#include "core/alloc.h"
#include "core/batch.h"

void trp_updater_destroy(trp_updater *updater)
{
    if (!updater)
        return;
    for (size_t i = 0; i < TRP_UPDATER_SOURCES_MAX; i++)
        trp_columns_cleanup(&updater->sources[i].columns);
    if (updater->impl->destroy)
        updater->impl->destroy(updater);
    else
        free(updater);
}

/* ---- what an updater declares ---------------------------------------------------------------- */

static trp_status check_tensors(const trp_vector_spec *spec)
{
    size_t end = 0;
    for (size_t i = 0; i < spec->tensor_count; i++) {
        const trp_net_tensor *tensor = &spec->tensors[i];
        if (tensor->offset < end || tensor->offset > spec->count ||
            tensor->count > spec->count - tensor->offset)
            return trp_fail(
                TRP_INVALID_ARGUMENT,
                "updater: tensor '%s' lies at %zu to %zu of '%s', which has %zu numbers, "
                "%zu of them in tensors before it",
                tensor->name, tensor->offset, tensor->offset + tensor->count, spec->name,
                spec->count, end);
        end = tensor->offset + tensor->count;
    }
    return TRP_OK;
}

static size_t published_end(const trp_vector_spec *spec)
{
    return spec->published_count > 0 ? spec->published_first + spec->published_count : spec->count;
}

static trp_status check_part(const trp_vector_spec *spec)
{
    size_t first = spec->published_first, end = published_end(spec);
    if (strcmp(spec->name, "params") != 0)
        return first == 0 && spec->published_count == 0
                   ? TRP_OK
                   : trp_fail(TRP_INVALID_ARGUMENT,
                              "updater: a part of '%s' is to be published; actors pull 'params'",
                              spec->name);
    if (first >= spec->count || spec->published_count > spec->count - first)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "updater: %zu numbers of 'params' from %zu on are to be published, it has "
                        "%zu",
                        spec->published_count, first, spec->count);
    for (size_t i = 0; i < spec->tensor_count; i++) {
        const trp_net_tensor *tensor = &spec->tensors[i];
        size_t lo = tensor->offset, hi = lo + tensor->count;
        if ((lo < first && first < hi) || (lo < end && end < hi))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "updater: tensor '%s' lies at %zu to %zu of 'params', of which only "
                            "%zu to %zu is published",
                            tensor->name, lo, hi, first, end);
    }
    return TRP_OK;
}

static trp_status check_vector(const trp_updater *updater, size_t index)
{
    const trp_vector_spec *spec = &updater->vectors[index];
    if (!spec->name || !*spec->name || spec->count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "updater: vector %zu has no name or no numbers",
                        index);
    for (size_t i = 0; i < index; i++)
        if (strcmp(updater->vectors[i].name, spec->name) == 0)
            return trp_fail(TRP_INVALID_ARGUMENT, "updater: two vectors are called '%s'",
                            spec->name);
    TRP_TRY(check_tensors(spec));
    TRP_TRY(check_part(spec));
    if (!spec->learned)
        return TRP_OK;
    TRP_TRY(trp_optimizer_check(&spec->optimizer, spec->name));
    if (trp_optimizer_is_layerwise(&spec->optimizer) && spec->tensor_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "updater: %s steps tensor by tensor, and '%s' names none",
                        trp_optimizer_name(spec->optimizer.kind), spec->name);
    return TRP_OK;
}

static trp_status check_updater(const trp_updater *updater)
{
    if (updater->source_count > TRP_UPDATER_SOURCES_MAX ||
        updater->vector_count > TRP_UPDATER_VECTORS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "updater: %zu sources and %zu vectors, at most %d and %d",
                        updater->source_count, updater->vector_count, TRP_UPDATER_SOURCES_MAX,
                        TRP_UPDATER_VECTORS_MAX);
    bool params = false;
    for (size_t i = 0; i < updater->vector_count; i++) {
        TRP_TRY(check_vector(updater, i));
        params = params || strcmp(updater->vectors[i].name, "params") == 0;
    }
    for (size_t i = 0; i < updater->source_count; i++)
        if (!updater->sources[i].table || updater->sources[i].batch_size == 0)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "updater: source %zu has no table or a batch of no rows", i);
    return params ? TRP_OK
                  : trp_fail(TRP_INVALID_ARGUMENT,
                             "updater: no vector is called 'params', which is what actors pull");
}

/* ---- vectors --------------------------------------------------------------------------------- */

static void vector_prepare(struct vector *vector, const trp_vector_spec *spec)
{
    vector->spec = spec;
    vector->values = trp_floats_create(spec->count);
    if (!spec->learned)
        return;
    bool params = strcmp(spec->name, "params") == 0;
    vector->grads = trp_floats_create(spec->count);
    vector->steps_name = xasprintf("%s.steps", spec->name);
    vector->norm_name = params ? xstrdup("grad_norm") : xasprintf("%s_grad_norm", spec->name);
    for (size_t i = 0; i < trp_optimizer_states(&spec->optimizer); i++) {
        vector->state[i] = trp_floats_create(spec->count);
        vector->state_names[i] =
            xasprintf("%s.%s", spec->name, trp_optimizer_state_name(&spec->optimizer, i));
    }
}

static void vector_cleanup(struct vector *vector)
{
    trp_floats_destroy(vector->values);
    trp_floats_destroy(vector->grads);
    free(vector->steps_name);
    free(vector->norm_name);
    for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++) {
        trp_floats_destroy(vector->state[i]);
        free(vector->state_names[i]);
    }
}

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
                              .values = run->params->values + spec->published_first,
                              .layout = run->layout};
}

trp_status update_prepare(struct trp_update_run *run, trp_updater *updater, uint64_t seed)
{
    *run = (struct trp_update_run){.updater = updater};
    TRP_TRY(check_updater(updater));
    for (size_t i = 0; i < updater->source_count; i++) {
        const trp_batch_spec *spec = &updater->sources[i];
        TRP_TRY(batch_check(spec->columns.specs, spec->columns.count, spec->batch_size, "learner"));
    }
    for (size_t i = 0; i < updater->vector_count; i++) {
        struct vector *vector = &run->vectors[i];
        vector_prepare(vector, &updater->vectors[i]);
        run->values[i] = vector->values;
        run->grads[i] = vector->grads;
        if (strcmp(vector->spec->name, "params") == 0) {
            run->params = vector;
            run->layout = published_layout(vector->spec);
        }
    }
    for (size_t i = 0; i < updater->source_count; i++)
        for (size_t k = 0; k < 2 && updater->sources[i].writes_priorities; k++)
            run->priorities[k][i] = xcalloc(updater->sources[i].batch_size, sizeof(double));
    trp_rng initial;
    trp_rng_init(&initial, seed, 0);
    trp_rng_init(&run->rng, seed, 1);
    if (updater->impl->init)
        updater->impl->init(updater, &initial, run->values);
    return TRP_OK;
}

void update_cleanup(struct trp_update_run *run)
{
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++)
        vector_cleanup(&run->vectors[i]);
    free(run->layout);
    for (size_t i = 0; i < TRP_UPDATER_SOURCES_MAX; i++) {
        free(run->priorities[0][i]);
        free(run->priorities[1][i]);
    }
}

/* ---- one step -------------------------------------------------------------------------------- */

trp_status update_step(struct trp_update_run *run, uint64_t step, const trp_batch *batches)
{
    trp_update *update = &run->steps[step % 2];
    *update = (trp_update){.step = step,
                           .batches = batches,
                           .vectors = run->values,
                           .grads = run->grads,
                           .priorities = run->priorities[step % 2],
                           .rng = &run->rng,
                           .run = run};
    return run->updater->impl->step(run->updater, update);
}

const void *trp_update_column(const trp_update *update, size_t source, const char *name)
{
    const trp_columns *columns = &update->run->updater->sources[source].columns;
    size_t place = trp_columns_find(columns, name);
    return place < columns->count ? update->batches[source].columns[place] : NULL;
}

void trp_update_ready(const trp_update *update, size_t vector, size_t lo, size_t hi)
{
    (void)update, (void)vector, (void)lo, (void)hi; /* alone: nobody to begin with */
}

trp_status trp_update_reduce(const trp_update *update, size_t vector)
{
    (void)update, (void)vector; /* alone: the mean is the gradient itself */
    return TRP_OK;
}

static trp_status refuse_gradient(uint64_t step, const struct vector *vector)
{
    size_t place = 0;
    while (place < vector->spec->count - 1 && isfinite(vector->grads[place]))
        place++;
    return trp_fail(TRP_INTERNAL,
                    "the gradient of '%s' is not finite in step %" PRIu64 ": number %zu of %zu is "
                    "%g",
                    vector->spec->name, step, place, vector->spec->count,
                    (double)vector->grads[place]);
}

static void step_vector(struct vector *vector, float scale)
{
    const trp_vector_spec *spec = vector->spec;
    vector->steps++;
    if (!trp_optimizer_is_layerwise(&spec->optimizer)) {
        trp_optimizer_step(&spec->optimizer, vector->steps, scale, vector->values, vector->grads,
                           vector->state, 0, spec->count);
        return;
    }
    for (size_t i = 0; i < spec->tensor_count; i++) {
        size_t lo = spec->tensors[i].offset, hi = lo + spec->tensors[i].count;
        trp_optimizer_step(&spec->optimizer, vector->steps, scale, vector->values, vector->grads,
                           vector->state, lo, hi);
    }
}

trp_status trp_update_apply(const trp_update *update, size_t index)
{
    struct vector *vector = &update->run->vectors[index];
    const trp_optimizer *optimizer = &vector->spec->optimizer;
    size_t count = vector->spec->count;
    TRP_TRY(trp_update_reduce(update, index));
    double norm2 = trp_norm2(vector->grads, 0, count);
    if (isfinite(norm2))
        step_vector(vector, trp_clip_scale(norm2, (float)optimizer->max_norm));
    else if (optimizer->skip_not_finite)
        update->run->left_out++;
    else
        return refuse_gradient(update->step, vector);
    memset(vector->grads, 0, count * sizeof *vector->grads);
    trp_update_report(update, vector->norm_name, sqrt(norm2));
    return TRP_OK;
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
        if (run->vectors[i].spec->learned)
            TRP_TRY(check_state(&run->vectors[i], checkpoint));
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
        const struct vector *vector = &run->vectors[i];
        size_t length = vector->spec->count;
        tensors[count++] = floats(vector->spec->name, vector->values, length);
        if (!vector->spec->learned)
            continue;
        for (size_t k = 0; k < trp_optimizer_states(&vector->spec->optimizer); k++)
            tensors[count++] = floats(vector->state_names[k], vector->state[k], length);
        tensors[count++] = numbers(vector->steps_name, &vector->steps, 1);
    }
    if (run->updater->impl->state)
        count += run->updater->impl->state(run->updater, tensors + count);
    tensors[count++] = numbers("learner.rng", run->rng.state, 4);
    return count;
}
