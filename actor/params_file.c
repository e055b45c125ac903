/* One version of the parameters as a file: what an evaluator saves and what `eval` plays. Where the
 * policy says which tensors there are, they are written as PyTorch has them, names, shapes and
 * order of numbers, so that a module with layers of the same names loads the file, and its file is
 * loaded here. Else it is the flat vector, which a learner's checkpoint has, too. */
#include <troupe/params.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/checkpoint.h>
#include "core/alloc.h"
#include "params_use.h"

enum { NOTES = 3 };
static const char statistics_name[] = "learner.statistics";

/* ---- writing ------------------------------------------------------------------------------- */

/* One tensor in PyTorch's order; its memory is the caller's to free. */
static trp_checkpoint_tensor named_tensor(const trp_net_tensor *tensor, const float *params)
{
    float *values = xcalloc(tensor->count + 1, sizeof *values);
    trp_net_tensor_get(tensor, params, values);
    trp_checkpoint_tensor named = {
        .name = tensor->name, .type = TRP_CHECKPOINT_F32, .rank = tensor->rank, .data = values};
    memcpy(named.shape, tensor->shape, tensor->rank * sizeof *tensor->shape);
    return named;
}

static trp_checkpoint_tensor statistics_tensor(const trp_params_state *state)
{
    return (trp_checkpoint_tensor){.name = statistics_name,
                                   .type = TRP_CHECKPOINT_F64,
                                   .rank = 2,
                                   .shape = {state->statistic_count, 3},
                                   .data = state->statistics};
}

static trp_status write_flat(const char *path, const trp_params_state *state,
                             const trp_checkpoint_note notes[NOTES])
{
    trp_checkpoint_tensor flat[2] = {{.name = "params",
                                      .type = TRP_CHECKPOINT_F32,
                                      .rank = 1,
                                      .shape = {state->count},
                                      .data = state->params},
                                     statistics_tensor(state)};
    return trp_checkpoint_write(path, flat, 1 + (state->statistic_count > 0), notes, NOTES);
}

static trp_status write_named(const char *path, const trp_params_state *state,
                              const trp_policy *policy, const trp_checkpoint_note notes[NOTES])
{
    size_t named = policy->tensor_count, beside = state->statistic_count > 0;
    trp_checkpoint_tensor *tensors = xcalloc(named + 1, sizeof *tensors);
    tensors[named] = statistics_tensor(state);
    for (size_t i = 0; i < named; i++)
        tensors[i] = named_tensor(&policy->tensors[i], state->params);
    trp_status status = trp_checkpoint_write(path, tensors, named + beside, notes, NOTES);
    for (size_t i = 0; i < named; i++)
        free((void *)(uintptr_t)tensors[i].data);
    free(tensors);
    return status;
}

trp_status trp_params_write(const char *path, const trp_params_state *state,
                            const trp_policy *policy)
{
    char version[24], learner_steps[24];
    snprintf(version, sizeof version, "%" PRIu64, state->version);
    snprintf(learner_steps, sizeof learner_steps, "%" PRIu64, state->learner_steps);
    const trp_checkpoint_note notes[NOTES] = {{"version", version},
                                              {"learner_steps", learner_steps},
                                              {"layout", state->layout ? state->layout : ""}};
    if (!policy || policy->tensor_count == 0)
        return write_flat(path, state, notes);
    TRP_TRY(params_check(state, path, policy));
    return write_named(path, state, policy, notes);
}

/* ---- reading ------------------------------------------------------------------------------- */

static const trp_checkpoint_tensor *find_tensor(const trp_checkpoint *checkpoint, const char *name)
{
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(checkpoint, i);
        if (strcmp(tensor->name, name) == 0)
            return tensor;
    }
    return NULL;
}

static void write_shape(char text[128], uint32_t rank, const uint64_t *shape)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < rank; i++) {
        size_t used = strlen(text);
        snprintf(text + used, 128 - used, "[%" PRIu64 "]", shape[i]);
    }
}

static trp_status check_shape(const char *path, const trp_checkpoint_tensor *found,
                              const trp_net_tensor *wanted)
{
    if (found->rank == wanted->rank &&
        memcmp(found->shape, wanted->shape, wanted->rank * sizeof *wanted->shape) == 0)
        return TRP_OK;
    char has[128], wants[128];
    write_shape(has, found->rank, found->shape);
    write_shape(wants, wanted->rank, wanted->shape);
    return trp_fail(TRP_FAILED_PRECONDITION, "%s: tensor %s is %s, the network's is %s", path,
                    wanted->name, has, wants);
}

static trp_status take_tensor(const char *path, const trp_checkpoint *checkpoint,
                              const trp_net_tensor *tensor, float *params)
{
    const trp_checkpoint_tensor *found = find_tensor(checkpoint, tensor->name);
    if (!found)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s has neither params nor a tensor %s", path,
                        tensor->name);
    TRP_TRY(check_shape(path, found, tensor));
    float *values = xcalloc(tensor->count + 1, sizeof *values);
    char *layout = trp_net_layout(tensor, 1, tensor->offset);
    trp_status status =
        trp_checkpoint_get(checkpoint, tensor->name, TRP_CHECKPOINT_F32, tensor->count, values);
    if (status == TRP_OK)
        status = params_check_finite(
            &(trp_params_state){.params = values, .count = tensor->count, .layout = layout}, path,
            NULL);
    if (status == TRP_OK)
        trp_net_tensor_set(tensor, values, params);
    free(layout);
    free(values);
    return status;
}

static bool policy_has(const trp_policy *policy, const char *name)
{
    for (size_t i = 0; i < policy->tensor_count; i++)
        if (strcmp(policy->tensors[i].name, name) == 0)
            return true;
    return false;
}

/* What trp_params_write() made has its policy's tensors alone: with more, it is another policy's
 * that would act with numbers that mean something else. A module of PyTorch may have others. */
static trp_status check_names(const char *path, const trp_checkpoint *checkpoint,
                              const trp_policy *policy)
{
    if (!trp_checkpoint_note_get(checkpoint, "version"))
        return TRP_OK;
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const char *name = trp_checkpoint_tensor_at(checkpoint, i)->name;
        if (strcmp(name, statistics_name) != 0 && !policy_has(policy, name))
            return trp_fail(TRP_FAILED_PRECONDITION,
                            "%s has a tensor %s, which the network has not: it was learned with "
                            "other options",
                            path, name);
    }
    return TRP_OK;
}

static trp_status load_named(const char *path, const trp_checkpoint *checkpoint, trp_policy *policy)
{
    if (policy->tensor_count == 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: no vector named params", path);
    TRP_TRY(check_names(path, checkpoint, policy));
    float *params = trp_floats_create(policy->param_count);
    trp_status status = TRP_OK;
    for (size_t i = 0; i < policy->tensor_count && status == TRP_OK; i++)
        status = take_tensor(path, checkpoint, &policy->tensors[i], params);
    if (status == TRP_OK)
        status = policy->impl->load(policy, params, policy->param_count);
    trp_floats_destroy(params);
    return status;
}

/* What of the vector is published: a learner's checkpoint has all that it learns. */
static trp_status find_published(const char *path, const trp_checkpoint *checkpoint,
                                 trp_params_state *state)
{
    const char *note = trp_checkpoint_note_get(checkpoint, "published");
    const char *layout = trp_checkpoint_note_get(checkpoint, "layout");
    uint64_t first = 0, count = state->count;
    state->layout = layout;
    if (note && sscanf(note, "%" SCNu64 " %" SCNu64, &first, &count) != 2)
        return trp_fail(TRP_DATA_LOSS, "%s: the note published is '%s', not two numbers", path,
                        note);
    if (first > state->count || count > state->count - first)
        return trp_fail(TRP_DATA_LOSS, "%s: the note published is '%s', params has %zu numbers",
                        path, note, state->count);
    state->params += first;
    state->count = count;
    return TRP_OK;
}

static trp_status load_flat(const char *path, const trp_checkpoint *checkpoint, size_t count,
                            trp_policy *policy)
{
    float *params = trp_floats_create(count);
    trp_params_state state = {.params = params, .count = count};
    trp_status status = trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, count, params);
    if (status == TRP_OK)
        status = find_published(path, checkpoint, &state);
    if (status == TRP_OK)
        status = params_check(&state, path, policy);
    if (status == TRP_OK)
        status = params_check_finite(&state, path, policy);
    if (status == TRP_OK)
        status = policy->impl->load(policy, state.params, state.count);
    trp_floats_destroy(params);
    return status;
}

trp_status trp_params_load(const char *path, trp_policy *policy, uint64_t *version)
{
    trp_checkpoint *checkpoint;
    TRP_TRY(trp_checkpoint_read(&checkpoint, path));
    const char *note = trp_checkpoint_note_get(checkpoint, "version");
    if (version)
        *version = note ? strtoull(note, NULL, 10) : 0;
    const trp_checkpoint_tensor *flat = find_tensor(checkpoint, "params");
    trp_status status = flat && flat->rank == 1
                            ? load_flat(path, checkpoint, flat->shape[0], policy)
                            : load_named(path, checkpoint, policy);
    trp_checkpoint_destroy(checkpoint);
    return status;
}

static trp_status take_statistics(const char *path, const trp_checkpoint *checkpoint,
                                  const trp_checkpoint_tensor *found, trp_moments **statistics,
                                  size_t *count)
{
    bool fits = found->rank == 2 && found->shape[1] == 3 && found->shape[0] <= TRP_STATISTICS_MAX;
    if (!fits)
        return trp_fail(TRP_DATA_LOSS, "%s: tensor %s is not [n, 3], n at most %d", path,
                        found->name, TRP_STATISTICS_MAX);
    *count = found->shape[0];
    *statistics = xcalloc(*count + 1, sizeof **statistics);
    trp_status status =
        trp_checkpoint_get(checkpoint, found->name, TRP_CHECKPOINT_F64, 3 * *count, *statistics);
    if (status == TRP_OK && trp_moments_check(*statistics, *count) != TRP_OK)
        status = trp_fail(TRP_DATA_LOSS, "%s: %s", path, trp_last_error());
    if (status == TRP_OK)
        return TRP_OK;
    free(*statistics);
    *statistics = NULL;
    *count = 0;
    return status;
}

trp_status trp_params_load_statistics(const char *path, trp_moments **statistics, size_t *count)
{
    trp_checkpoint *checkpoint;
    *statistics = NULL;
    *count = 0;
    TRP_TRY(trp_checkpoint_read(&checkpoint, path));
    const trp_checkpoint_tensor *found = find_tensor(checkpoint, statistics_name);
    trp_status status =
        found ? take_statistics(path, checkpoint, found, statistics, count) : TRP_OK;
    trp_checkpoint_destroy(checkpoint);
    return status;
}
