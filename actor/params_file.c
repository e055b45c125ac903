/* One version of the parameters as a file: what an evaluator saves and what `eval` plays. It has
 * the tensor and notes that a learner's checkpoint has too, so either can be loaded. */
#include <troupe/params.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/checkpoint.h>
#include "core/alloc.h"

trp_status trp_params_write(const char *path, const trp_params_state *state)
{
    char version[24], learner_steps[24];
    snprintf(version, sizeof version, "%" PRIu64, state->version);
    snprintf(learner_steps, sizeof learner_steps, "%" PRIu64, state->learner_steps);
    trp_checkpoint_tensor tensor = {.name = "params",
                                    .type = TRP_CHECKPOINT_F32,
                                    .rank = 1,
                                    .shape = {state->count},
                                    .data = state->params};
    trp_checkpoint_note notes[] = {{"version", version}, {"learner_steps", learner_steps}};
    return trp_checkpoint_write(path, &tensor, 1, notes, 2);
}

static const trp_checkpoint_tensor *find_params(const trp_checkpoint *checkpoint)
{
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(checkpoint, i);
        if (strcmp(tensor->name, "params") == 0 && tensor->rank == 1)
            return tensor;
    }
    return NULL;
}

static trp_status load_params(const char *path, const trp_checkpoint *checkpoint,
                              trp_policy *policy)
{
    const trp_checkpoint_tensor *tensor = find_params(checkpoint);
    if (!tensor)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s: no vector named params", path);
    size_t count = tensor->shape[0];
    float *params = xcalloc(count ? count : 1, sizeof *params);
    trp_status status = trp_checkpoint_get(checkpoint, "params", TRP_CHECKPOINT_F32, count, params);
    if (status == TRP_OK)
        status = policy->impl->load(policy, params, count);
    free(params);
    return status;
}

trp_status trp_params_load(const char *path, trp_policy *policy, uint64_t *version)
{
    trp_checkpoint *checkpoint;
    TRP_TRY(trp_checkpoint_read(&checkpoint, path));
    const char *note = trp_checkpoint_note_get(checkpoint, "version");
    if (version)
        *version = note ? strtoull(note, NULL, 10) : 0;
    trp_status status = load_params(path, checkpoint, policy);
    trp_checkpoint_destroy(checkpoint);
    return status;
}
