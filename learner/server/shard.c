/* Gradients for one step are summed in double, so that the order in which they come matters for
 * numbers of very different size only. */
#include "shard.h"

#include <stdlib.h>
#include <string.h>

#include <troupe/nn.h>
#include "core/alloc.h"
#include "core/finite.h"
#include "limits.h"

/* ---- workers ------------------------------------------------------------------------------- */

uint32_t shard_awaited(const struct param_shard *shard)
{
    uint32_t slowest = UINT32_MAX;
    for (uint32_t i = 0; i < shard->options.workers; i++) {
        const struct shard_worker *worker = &shard->workers[i];
        if (worker->present &&
            (slowest == UINT32_MAX || worker->clock < shard->workers[slowest].clock))
            slowest = i;
    }
    return slowest;
}

/* The clock of the slowest; where nobody is there nobody is waited for. */
static uint64_t least_clock(const struct param_shard *shard)
{
    uint32_t slowest = shard_awaited(shard);
    return slowest == UINT32_MAX ? UINT64_MAX : shard->workers[slowest].clock;
}

bool shard_may_read(const struct param_shard *shard, uint32_t worker)
{
    uint64_t clock = shard->workers[worker].clock, least = least_clock(shard);
    if (shard->options.rule == TRP_SERVER_SYNC)
        return clock <= shard->rounds;
    if (shard->options.rule == TRP_SERVER_SSP)
        return clock <= least || clock - least <= shard->options.slack;
    return true;
}

/* ---- steps --------------------------------------------------------------------------------- */

/* A pass over a range that begins at `lo`, with a gradient that begins there. */
struct shard_pass {
    struct param_shard *shard;
    uint64_t lo;
    const float *grads;
    double scale;
    bool moves; /* shard_push has it */
};

/* Calls step(pass, first, grads, size) for [first, first + size) of a pass, with its gradient as it
 * will stay. */
static void pass_blocks(const struct shard_pass *pass, size_t first, size_t size,
                        void (*step)(const struct shard_pass *pass, size_t first,
                                     const float *grads, size_t size))
{
    _Alignas(64) float block[SHARD_BLOCK];
    if (!pass->moves) {
        step(pass, first, pass->grads + first, size);
        return;
    }
    for (size_t end = first + size; first < end; first += SHARD_BLOCK) {
        size_t numbers = end - first < SHARD_BLOCK ? end - first : SHARD_BLOCK;
        if (!floats_copy_finite(block, pass->grads + first, numbers, (float)pass->scale)) {
            memset(block, 0, numbers * sizeof *block);
            atomic_store(&pass->shard->harmed, true);
        }
        step(pass, first, block, numbers);
    }
}

static void step_grads(const struct shard_pass *pass, size_t first, const float *grads, size_t size)
{
    struct param_shard *shard = pass->shard;
    size_t lo = pass->lo + first;
    float *state[TRP_OPTIMIZER_STATES_MAX] = {0};
    for (size_t k = 0; k < trp_optimizer_states(&shard->options.optimizer); k++)
        state[k] = shard->state[k] + lo;
    trp_optimizer_step(&shard->options.optimizer, shard->steps, (float)pass->scale,
                       shard->values + lo, grads, state, 0, size);
}

static void step_part(void *arg, size_t first, size_t size)
{
    pass_blocks(arg, first, size, step_grads);
}

static void shard_step_range(struct param_shard *shard, const struct shard_range *range,
                             const float *grads, float scale, bool moves)
{
    struct shard_pass pass = {shard, range->lo, grads, scale, moves};
    passes_run(shard->options.passes, range->hi - range->lo, step_part, &pass);
}

/* Where a push has no numbers nothing changes, for optimizers that have a state as well. */
static void step_push(struct param_shard *shard, const struct shard_push *push, float weight)
{
    const float *grads = push->grads;
    shard->steps++;
    shard->version++;
    for (size_t i = 0; i < push->range_count; i++) {
        shard_step_range(shard, &push->ranges[i], grads, push->scale * weight, push->moves);
        grads += push->ranges[i].hi - push->ranges[i].lo;
    }
}

static void sum_grads(const struct shard_pass *pass, size_t first, const float *grads, size_t size)
{
    double *sum = pass->shard->sum + pass->lo + first;
    for (size_t k = 0; k < size; k++)
        sum[k] += pass->scale * (double)grads[k];
}

static void sum_part(void *arg, size_t first, size_t size)
{
    pass_blocks(arg, first, size, sum_grads);
}

static void add_push(struct param_shard *shard, const struct shard_push *push, double weight)
{
    struct shard_pass pass = {shard, 0, push->grads, (double)push->scale * weight, push->moves};
    for (size_t i = 0; i < push->range_count; i++) {
        uint64_t numbers = push->ranges[i].hi - push->ranges[i].lo;
        pass.lo = push->ranges[i].lo;
        passes_run(shard->options.passes, numbers, sum_part, &pass);
        pass.grads += numbers;
    }
    shard->summed++;
}

/* Takes the sum, divided by `scale`, out. */
static void mean_part(void *arg, size_t first, size_t size)
{
    const struct shard_pass *pass = arg;
    double *sum = pass->shard->sum + first;
    for (size_t k = 0; k < size; k++)
        pass->shard->gradient[first + k] = (float)(sum[k] / pass->scale);
    memset(sum, 0, size * sizeof *sum);
}

static void step_sum(struct param_shard *shard, uint32_t count)
{
    const struct shard_range all = {0, shard->count};
    struct shard_pass mean = {.shard = shard, .scale = count};
    passes_run(shard->options.passes, shard->count, mean_part, &mean);
    shard->steps++;
    shard->version++;
    shard_step_range(shard, &all, shard->gradient, 1, false);
    shard->summed = 0;
}

/* ---- rules --------------------------------------------------------------------------------- */

/* All that are there have pushed this clock. */
static void end_round(struct param_shard *shard)
{
    if (shard->options.rule != TRP_SERVER_SYNC || shard->summed == 0 ||
        least_clock(shard) <= shard->rounds)
        return;
    shard->rounds++;
    step_sum(shard, shard->summed);
}

static uint64_t staleness_of(const struct param_shard *shard, const struct shard_push *push)
{
    uint64_t version = push->version > shard->first_version ? push->version : shard->first_version;
    return version < shard->version ? shard->version - version : 0;
}

/* n-softsync, Zhang et al. 2016: after c = floor(N / n) gradients w -= 1 / c * sum of alpha(tau) g,
 * where alpha(tau) is the rate divided by tau, or the rate itself where tau is 0. */
static void push_softsync(struct param_shard *shard, const struct shard_push *push,
                          uint64_t staleness)
{
    uint32_t count = shard->options.workers / shard->options.softness;
    add_push(shard, push, staleness > 1 ? 1 / (double)staleness : 1);
    if (shard->summed >= (count > 0 ? count : 1))
        step_sum(shard, shard->summed);
}

/* DynSGD: with u the mean of the gradients of a version, and g the d-th of them,
 *
 *     u' = u + (g - u) / d,    w -= rate * (u' - u)
 *
 * so that all of them together have the effect of their mean. A version ends with its first
 * gradient: what is pulled from there on is the next one. */
static void push_dynsgd(struct param_shard *shard, const struct shard_push *push,
                        uint64_t staleness)
{
    uint64_t version = shard->version - staleness;
    size_t place = version % shard->effect_count;
    struct shard_effect *effect = &shard->effects[place];
    float *mean = shard->means + place * shard->count;
    const float *grads = push->grads;
    if (effect->pushes == 0 || effect->version != version) {
        memset(mean, 0, shard->count * sizeof *mean);
        effect->version = version;
        effect->pushes = 0;
    }
    effect->pushes++;
    shard->steps++;
    shard->version += version == shard->version;
    for (size_t i = 0; i < push->range_count; i++) {
        const struct shard_range *range = &push->ranges[i];
        for (uint64_t k = range->lo; k < range->hi; k++) {
            double difference = (double)push->scale * *grads++ - mean[k]; /* of two near FLT_MAX */
            shard->gradient[k] = (float)(difference / (double)effect->pushes);
            mean[k] += shard->gradient[k];
        }
        shard_step_range(shard, range, shard->gradient + range->lo, 1, false);
    }
}

static bool is_too_old(const struct param_shard *shard, uint64_t staleness)
{
    uint32_t most = shard->options.max_staleness;
    if (shard->options.rule == TRP_SERVER_SYNC || shard->options.rule == TRP_SERVER_SSP)
        return false;
    return (most > 0 && staleness > most) ||
           (shard->effect_count > 0 && staleness >= shard->effect_count);
}

static void take_push(struct param_shard *shard, const struct shard_push *push, uint64_t staleness)
{
    switch (shard->options.rule) {
    case TRP_SERVER_SYNC:
        add_push(shard, push, 1);
        break;
    case TRP_SERVER_ASYNC:
        step_push(shard, push, 1);
        break;
    case TRP_SERVER_SSP:
        step_push(shard, push, 1 / (float)shard->options.workers);
        break;
    case TRP_SERVER_SOFTSYNC:
        push_softsync(shard, push, staleness);
        break;
    case TRP_SERVER_DYNSGD:
        push_dynsgd(shard, push, staleness);
        break;
    }
}

enum shard_answer shard_judge(const struct param_shard *shard, const struct shard_push *push)
{
    uint64_t clock = shard->workers[push->worker].clock;
    if (push->sequence != clock)
        return push->sequence < clock ? SHARD_REPEATED : SHARD_AHEAD;
    if (shard->options.rule == TRP_SERVER_SYNC && clock > shard->rounds)
        return SHARD_EARLY;
    return is_too_old(shard, staleness_of(shard, push)) ? SHARD_DROPPED : SHARD_TAKEN;
}

enum shard_answer shard_push(struct param_shard *shard, const struct shard_push *push)
{
    shard_join(shard, push->worker);
    enum shard_answer answer = shard_judge(shard, push);
    shard->repeated += answer == SHARD_REPEATED;
    if (answer != SHARD_TAKEN && answer != SHARD_DROPPED)
        return answer;
    shard->workers[push->worker].clock++;
    shard->pushes++;
    atomic_store(&shard->harmed, false);
    shard->dropped += answer == SHARD_DROPPED;
    if (answer == SHARD_TAKEN)
        take_push(shard, push, staleness_of(shard, push));
    end_round(shard);
    passes_rest(shard->options.passes);
    return answer;
}

void shard_join(struct param_shard *shard, uint32_t worker)
{
    struct shard_worker *own = &shard->workers[worker];
    if (own->present)
        return;
    uint64_t least = least_clock(shard);
    if (least != UINT64_MAX && own->clock < least)
        own->clock = least;
    if (own->clock < shard->rounds)
        own->clock = shard->rounds;
    own->present = true;
}

void shard_leave(struct param_shard *shard, uint32_t worker)
{
    shard->workers[worker].present = false;
    end_round(shard);
}

void shard_skip_versions(struct param_shard *shard, uint64_t gap)
{
    shard->version += gap;
    shard->first_version = shard->version;
    for (uint32_t i = 0; i < shard->effect_count; i++)
        shard->effects[i].pushes = 0;
}

/* ---- its life ------------------------------------------------------------------------------ */

trp_status shard_check(const struct param_shard *shard, const struct shard_range *ranges,
                       size_t count, size_t *numbers)
{
    uint64_t at = 0;
    *numbers = 0;
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].lo < at || ranges[i].hi <= ranges[i].lo || ranges[i].hi > shard->count)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "range %zu is [%llu, %llu), must follow %llu, in a shard of %zu "
                            "numbers",
                            i, (unsigned long long)ranges[i].lo, (unsigned long long)ranges[i].hi,
                            (unsigned long long)at, shard->count);
        at = ranges[i].hi;
        *numbers += ranges[i].hi - ranges[i].lo;
    }
    return TRP_OK;
}

static trp_status shard_check_options(const struct shard_options *options)
{
    const trp_optimizer *optimizer = &options->optimizer;
    TRP_TRY(trp_optimizer_check(optimizer, "parameter server"));
    if (options->workers == 0 || options->workers > SHARD_WORKERS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "parameter server: %u learners, must be 1 to %d",
                        options->workers, SHARD_WORKERS_MAX);
    const trp_parameter_server_options served = {.rule = options->rule};
    trp_status status = trp_parameter_server_check(&served, 1, options->workers, optimizer);
    return status == TRP_OK ? TRP_OK : trp_fail(status, "parameter server: %s", trp_last_error());
}

static void make_effects(struct param_shard *shard)
{
    uint32_t most = shard->options.max_staleness;
    shard->effect_count = most == 0                  ? SHARD_WINDOW
                          : most >= SHARD_WINDOW_MAX ? SHARD_WINDOW_MAX
                                                     : most + 1;
    shard->effects = xcalloc(shard->effect_count, sizeof *shard->effects);
    shard->means = trp_floats_create(shard->effect_count * shard->count);
}

static void make_rule_room(struct param_shard *shard)
{
    trp_server_rule rule = shard->options.rule;
    bool sums = rule == TRP_SERVER_SYNC || rule == TRP_SERVER_SOFTSYNC;
    if (sums)
        shard->sum = xcalloc(shard->count, sizeof *shard->sum);
    if (sums || rule == TRP_SERVER_DYNSGD)
        shard->gradient = trp_floats_create(shard->count);
    if (rule == TRP_SERVER_DYNSGD)
        make_effects(shard);
}

static void drop_rule_room(struct param_shard *shard)
{
    trp_floats_destroy(shard->means);
    trp_floats_destroy(shard->gradient);
    free(shard->effects);
    free(shard->sum);
    shard->means = shard->gradient = NULL;
    shard->effects = NULL;
    shard->effect_count = 0;
    shard->sum = NULL;
}

static void take_options(struct param_shard *shard, const struct shard_options *options)
{
    shard->options = *options;
    if (shard->options.softness == 0)
        shard->options.softness = 1;
}

trp_status shard_create(struct param_shard *shard, const struct shard_options *options,
                        float *values, size_t count)
{
    *shard = (struct param_shard){0};
    TRP_TRY(shard_check_options(options));
    *shard = (struct param_shard){.count = count, .values = values};
    take_options(shard, options);
    for (size_t k = 0; k < trp_optimizer_states(&options->optimizer); k++)
        shard->state[k] = trp_floats_create(count);
    make_rule_room(shard);
    shard->workers = xcalloc(options->workers, sizeof *shard->workers);
    for (uint32_t i = 0; i < options->workers; i++)
        shard->workers[i].present = true;
    return TRP_OK;
}

/* ---- other options --------------------------------------------------------------------------- */

/* What was pushed so far counts, and nobody is ahead of anybody. */
static void leave_rule(struct param_shard *shard)
{
    uint64_t most = 0;
    if (shard->summed > 0)
        step_sum(shard, shard->summed);
    for (uint32_t i = 0; i < shard->options.workers; i++)
        most = shard->workers[i].clock > most ? shard->workers[i].clock : most;
    for (uint32_t i = 0; i < shard->options.workers; i++)
        shard->workers[i].clock = most;
    shard->rounds = most;
    shard->first_version = shard->version;
}

/* The place of an optimizer's state in those of another one; or TRP_OPTIMIZER_STATES_MAX. */
static size_t state_in(const trp_optimizer *optimizer, const char *name)
{
    for (size_t k = 0; k < trp_optimizer_states(optimizer); k++)
        if (strcmp(trp_optimizer_state_name(optimizer, k), name) == 0)
            return k;
    return TRP_OPTIMIZER_STATES_MAX;
}

static trp_status change_optimizer(struct param_shard *shard, const trp_optimizer *to)
{
    const trp_optimizer *from = &shard->options.optimizer;
    float *kept[TRP_OPTIMIZER_STATES_MAX] = {NULL};
    for (size_t k = 0; k < trp_optimizer_states(to); k++) {
        const char *name = trp_optimizer_state_name(to, k);
        size_t place = state_in(from, name);
        if (place == TRP_OPTIMIZER_STATES_MAX)
            return trp_fail(TRP_FAILED_PRECONDITION,
                            "it was stepped with %s, which has no '%s' of the %s that is to go on "
                            "with it: use that optimizer",
                            trp_optimizer_name(from->kind), name, trp_optimizer_name(to->kind));
        kept[k] = shard->state[place];
    }
    for (size_t k = 0; k < trp_optimizer_states(from); k++)
        if (state_in(to, trp_optimizer_state_name(from, k)) == TRP_OPTIMIZER_STATES_MAX)
            trp_floats_destroy(shard->state[k]);
    memcpy(shard->state, kept, sizeof kept);
    return TRP_OK;
}

trp_status shard_change(struct param_shard *shard, const struct shard_options *options)
{
    TRP_TRY(shard_check_options(options));
    bool other_rule = options->rule != shard->options.rule;
    bool other_window = options->max_staleness != shard->options.max_staleness;
    if (other_rule)
        leave_rule(shard);
    TRP_TRY(change_optimizer(shard, &options->optimizer));
    take_options(shard, options);
    if (!other_rule && !(shard->effects && other_window))
        return TRP_OK;
    drop_rule_room(shard);
    make_rule_room(shard);
    return TRP_OK;
}

void shard_destroy(struct param_shard *shard)
{
    for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
        trp_floats_destroy(shard->state[k]);
    drop_rule_room(shard);
    free(shard->workers);
    *shard = (struct param_shard){0};
}
