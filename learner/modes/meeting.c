/* How learners of a generation come to the same state: that of the one with most steps, which
 * nobody who came later has. What was begun of a step leaves no trace. */
#include "synchronous.h"

#include <inttypes.h>
#include <string.h>

#include "core/hash.h"
#include "learner/server/optimizer_message.h"

static uint64_t hash_number(uint64_t hash, double number)
{
    return hash_bytes(hash, &number, sizeof number);
}

uint64_t synchronous_fingerprint(const struct synchronous *s)
{
    const char *name = s->options.name ? s->options.name : "synchronous";
    uint64_t hash = hash_number(HASH_BYTES_EMPTY, s->sharded);
    hash = hash_number(hash, (double)s->options.bucket_bytes);
    hash = hash_number(hash, s->options.count);
    hash = hash_number(hash, s->options.local_steps);
    hash = hash_number(hash, (double)s->options.outer_momentum);
    hash = hash_number(hash, s->options.significance);
    hash = hash_number(hash, s->options.site_slack);
    hash = hash_bytes(hash, name, strlen(name));
    hash = compress_hash(hash, &s->options.compress);
    for (size_t i = 0; i < s->base.vectors->count; i++) {
        const trp_vector_spec *spec = s->base.vectors->each[i].spec;
        const trp_optimizer *rule = &spec->optimizer;
        const double others[] = {spec->learned, rule->max_norm, rule->skip_not_finite};
        double numbers[OPTIMIZER_NUMBERS];
        optimizer_numbers(rule, numbers);
        hash = vector_hash(hash, spec);
        hash = hash_bytes(hash, numbers, sizeof numbers);
        hash = hash_bytes(hash, others, sizeof others);
    }
    return hash;
}

enum { TOLD_STEPS, TOLD_VERSION, TOLD_STATE, TOLD_RNG };
enum { IS_WHOLE = 1, WAS_IN_GROUP = 2, FOUNDED = 4 }; /* of the state */

/* The rank with most steps, the first of them, whose state is whole; of a group that has learned
 * something no new member, whoever else is gone. Or size: there is none. */
static uint32_t find_root(const struct synchronous *s)
{
    uint64_t all = 0;
    uint32_t root = s->group.size;
    for (uint32_t rank = 0; rank < s->group.size; rank++)
        all |= learners_told(&s->group, rank)[TOLD_STATE];
    uint64_t wanted = IS_WHOLE | (all & WAS_IN_GROUP ? WAS_IN_GROUP : FOUNDED);
    for (uint32_t rank = 0; rank < s->group.size; rank++) {
        const uint64_t *words = learners_told(&s->group, rank);
        bool may = (words[TOLD_STATE] & wanted) == wanted;
        if (may && (root == s->group.size ||
                    words[TOLD_STEPS] > learners_told(&s->group, root)[TOLD_STEPS]))
            root = rank;
    }
    return root;
}

static trp_status elect(struct synchronous *s, const struct mode_meeting *meeting, uint32_t *root)
{
    uint64_t words[LEARNERS_WORDS] = {
        [TOLD_STEPS] = meeting->steps,
        [TOLD_VERSION] = meeting_version(meeting, s->group.generation),
        [TOLD_STATE] = (!s->sharded || sharded_is_whole(s) ? IS_WHOLE : 0) |
                       (s->was_in_group ? WAS_IN_GROUP : 0) | (s->group.founder ? FOUNDED : 0),
        [TOLD_RNG] = meeting->rng->state[0]};
    TRP_TRY(learners_wait(&s->group, learners_tell(&s->group, words)));
    *root = find_root(s);
    return TRP_OK;
}

static trp_status spread_vector(struct synchronous *s, struct vector *vector, uint32_t root)
{
    TRP_TRY(learners_spread(&s->group, vector->values.here, vector->values.bytes, root));
    if (!vector->spec->learned)
        return TRP_OK;
    for (size_t k = 0; k < vector_states(vector) && !s->sharded; k++)
        TRP_TRY(learners_spread(&s->group, vector->state[k].here, vector->state[k].bytes, root));
    TRP_TRY(learners_spread(&s->group, vector->phases.here, vector->phases.bytes, root));
    size_t index = (size_t)(vector - s->base.vectors->each);
    return s->each[index].compressor ? compressed_meet(s, index, root) : TRP_OK;
}

/* The root's state becomes everybody's. */
static trp_status spread(struct synchronous *s, uint32_t root)
{
    struct vectors *vectors = s->base.vectors;
    trp_updater *updater = s->options.updater;
    trp_checkpoint_tensor tensors[TRP_UPDATER_TENSORS_MAX];
    size_t count = updater->impl->state ? updater->impl->state(updater, tensors) : 0;
    for (size_t i = 0; i < vectors->count; i++)
        TRP_TRY(spread_vector(s, &vectors->each[i], root));
    for (size_t i = 0; i < count; i++)
        TRP_TRY(learners_spread(&s->group, (void *)(uintptr_t)tensors[i].data,
                                tensor_bytes(&tensors[i]), root));
    if (s->sharded)
        TRP_TRY(sharded_spread(s, root));
    return vectors_store(vectors);
}

/* Device memory whose size follows from that of the group. */
static trp_status make_phase_parts(struct synchronous *s)
{
    trp_device *device = s->base.vectors->device;
    trp_device_free(device, s->parts);
    s->parts = NULL;
    return trp_device_alloc(device, s->group.size * sizeof *s->parts, (void **)&s->parts);
}

static trp_status read_last_save(struct synchronous *s, struct mode_meeting *meeting)
{
    TRP_TRY(meeting->reload(meeting->context, meeting));
    s->shared_out = false;
    return TRP_OK;
}

static trp_status agree_on_state(struct synchronous *s, struct mode_meeting *meeting)
{
    uint32_t root;
    TRP_TRY(vectors_fetch(s->base.vectors)); /* and nothing uses the parts any more */
    TRP_TRY(make_phase_parts(s));
    TRP_TRY(elect(s, meeting, &root));
    if (root == s->group.size) {
        compressed_forget(s);
        if (s->base.leads)
            TRP_TRY(read_last_save(s, meeting));
        if (s->base.leads && !s->sharded)
            backup_take(&s->backup);
        s->was_in_group = s->was_in_group || s->base.leads; /* what it read is the group's */
        TRP_TRY(elect(s, meeting, &root));
        if (root == s->group.size)
            return trp_fail(TRP_DATA_LOSS,
                            "learner: no learner of generation %" PRIu64 " has the whole state",
                            s->group.generation);
    }
    uint64_t words[LEARNERS_WORDS];
    memcpy(words, learners_told(&s->group, root), sizeof words);
    s->receiving = s->group.rank != root;
    s->shared_out = s->shared_out || s->receiving; /* with a part of it */
    s->behind = words[TOLD_STEPS] > meeting->steps;
    TRP_TRY(spread(s, root));
    s->receiving = false;
    s->shared_out = s->sharded;
    meeting->steps = words[TOLD_STEPS];
    meeting->version = words[TOLD_VERSION];
    if (!s->was_in_group && s->group.rank != root)
        trp_rng_init(meeting->rng, words[TOLD_RNG], s->group.generation << 16 | s->group.rank);
    return TRP_OK;
}

/* What was begun of a step, or received of another learner's state, is undone. */
static void undo(struct synchronous *s)
{
    learners_leave(&s->group);
    phases_forget(s);
    compressed_keep_after(s);
    if (!s->sharded)
        backup_restore(&s->backup);
    else if (s->receiving)
        vectors_drop_whole(s->base.vectors);
    s->receiving = false;
}

trp_status synchronous_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct synchronous *s = (struct synchronous *)mode;
    trp_status status = TRP_OK;
    if (!s->sharded && !s->backup.vectors) {
        TRP_TRY(backup_create(&s->backup, mode->vectors, s->options.updater, meeting->rng));
        compressed_back_up(s);
    }
    if (s->was_in_group && s->sharded && !s->group.broken)
        status = sharded_gather(s); /* all leave well */
    if (status == TRP_OK && !s->group.broken)
        s->shared_out = false;
    do {
        if (s->group.broken)
            undo(s);
        if (!s->sharded)
            backup_take(&s->backup);
        TRP_TRY(learners_meet(&s->group, s->fingerprint));
        mode->leads = s->group.rank == 0;
        status = agree_on_state(s, meeting);
    } while (s->group.broken);
    TRP_TRY(status);
    meeting->generation = s->group.generation;
    compressed_drop_after(s);
    s->was_in_group = true;
    s->round = 0;
    synchronous_next_round(s);
    return TRP_OK;
}
