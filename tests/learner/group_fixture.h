/* Learners of a group in threads of this process. The gradient of a row is made of integers that
 * follow from its number, so that sums are exact in any order: what a group learns is to the bit
 * what one learner does with all rows. */
#ifndef TRP_TESTS_LEARNER_GROUP_FIXTURE_H
#define TRP_TESTS_LEARNER_GROUP_FIXTURE_H

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <troupe/learner.h>
#include <troupe/rendezvous.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "learner/update.h"

enum {
    NUMBERS = 1000, /* of a vector */
    ROWS = 4,       /* of a batch */
    MEMBERS_MAX = 4,
    STEPS_MAX = 64,
};

/* A place in a step where something happens to a member. */
enum moment {
    NOWHERE,
    AT_BATCH,     /* before it has one */
    BEFORE_READY, /* the updater began */
    AFTER_READY,  /* what is final was told */
    BETWEEN,      /* one vector is done, the other not */
    AT_THE_END,   /* both are, and the updater's own state changed */
};

struct member;

typedef void (*event)(struct member *member, uint64_t step);

/* How a test wants its members to be; the same for all. */
struct plan {
    uint32_t members;
    uint64_t steps;
    uint32_t rows;    /* of a batch; 0: ROWS */
    uint32_t columns; /* numbers of a vector; 0: NUMBERS */
    size_t bucket_bytes;
    uint32_t local_steps;
    float outer_momentum;
    const char *mode;
    const char *sites;
    double significance;
    uint32_t site_slack;
    bool no_share;
    trp_compression_options compression;
    trp_optimizer optimizer;
    bool second;                   /* there is another learned vector, and a target of the first */
    bool constant;                 /* all rows have the same gradient */
    bool matrix;                   /* the first vector is one, 25 by 40 */
    bool shuffled;                 /* members report what is final in orders of their own */
    uint64_t ends_at[MEMBERS_MAX]; /* its batches end before this step; 0: never */
    uint32_t (*rows_of)(uint32_t member, uint64_t step); /* NULL: all */
    struct {
        uint32_t member;
        uint64_t step;
        enum moment place;
    } dies, breaks, odd, watched, stops;
    bool cuts;    /* what breaks is each connection, and not the group's collective alone */
    bool cancels; /* a stop ends the wait for a batch, too */
    bool varies;  /* members have different numbers of phases */
    bool asks;    /* for the largest number of all members, in each step */
    bool turns;   /* one member at a time goes on */
    const char *checkpoints;
    uint64_t checkpoint_every;
    bool resume;
    trp_device *device[MEMBERS_MAX];
    trp_stop *joined;  /* members wait in the middle until a new one is there; NULL: for nobody */
    trp_stop *halfway; /* some member is in the middle; may be NULL */
};

/* ---- a source of numbered rows --------------------------------------------------------------- */

struct numbered_source {
    trp_source base;
    struct member *member;
    float *rows;
    void *columns[1];
};

/* ---- a member ----------------------------------------------------------------------------------
 */

struct summing {
    trp_updater base;
    struct member *member;
    trp_update_run *run;
    uint64_t counted; /* steps; is in the checkpoint */
    float watched;
    float *host; /* of the gradient, where the device is none */
};

struct member {
    const struct plan *plan;
    uint32_t index, life;
    trp_gang *gang;
    trp_stop *stop;
    struct turns *turns; /* NULL: there are none */
    trp_learner *learner;
    struct summing *updater;
    struct numbered_source *source;
    struct thread thread;
    uint64_t batches;             /* given */
    uint64_t seen[STEPS_MAX + 2]; /* steps in which it had a batch */
    trp_status status;
    char *words;
    trp_learner_counters counters;
    float *params, *state[TRP_OPTIMIZER_STATES_MAX], *second, *target; /* at the end */
    size_t state_numbers;
    uint64_t counted;
    bool has_broken;
    double largest[STEPS_MAX];                   /* that it was told of in each step */
    trp_collective_counters sent[STEPS_MAX + 2]; /* until the end of each step */
    float began_with[STEPS_MAX + 2];             /* each step: the first vector's number 7 */
    float gradients[STEPS_MAX + 2];              /* of that number */
};

static inline bool is_here(const struct member *member, uint64_t step, enum moment place)
{
    return member->life == 0 && member->plan->dies.step == step &&
           member->plan->dies.member == member->index && member->plan->dies.place == place;
}

static inline trp_status numbered_open(trp_source *base, const trp_source_use *use)
{
    (void)base;
    (void)use;
    return TRP_OK;
}

static inline trp_status numbered_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    (void)timeout_ms;
    struct numbered_source *source = (struct numbered_source *)base;
    struct member *member = source->member;
    const struct plan *plan = member->plan;
    uint32_t rows = plan->rows ? plan->rows : ROWS;
    uint64_t number = member->batches + 1; /* the step's, in a life without losses */
    if (plan->ends_at[member->index] > 0 && number >= plan->ends_at[member->index])
        return trp_fail(TRP_OUT_OF_RANGE, "no more rows");
    if (plan->cancels && trp_stop_requested(member->stop))
        return trp_fail(TRP_CANCELLED, "stopped in the middle of a batch");
    if (is_here(member, number, AT_BATCH))
        return trp_fail(TRP_DATA_LOSS, "the batch is damaged");
    if (plan->halfway && number == plan->steps / 2)
        trp_stop_request(plan->halfway);
    if (plan->joined && member->life == 0 && number == plan->steps / 2)
        assert_true(trp_stop_wait(plan->joined, 20000));
    uint32_t count = plan->rows_of ? plan->rows_of(member->index, number) : rows;
    for (uint32_t row = 0; row < count; row++)
        source->rows[row] = (float)(((number - 1) * plan->members + member->index) * rows + row);
    source->columns[0] = source->rows;
    member->batches++;
    *batch = (trp_batch){.rows = count, .columns = source->columns};
    return TRP_OK;
}

static inline void numbered_destroy(trp_source *base)
{
    free(((struct numbered_source *)base)->rows);
    free(base);
}

static const trp_source_impl numbered_impl = {
    .open = numbered_open, .next = numbered_next, .destroy = numbered_destroy};

/* ---- an updater whose gradients are known
 * -------------------------------------------------------- */

static inline float gradient_of(const struct plan *plan, float row, size_t i)
{
    uint64_t number = plan->constant ? 5 : (uint64_t)row;
    return (float)((int)((number * 7 + i * 3 + number * i) % 17) - 8);
}

static inline void add_rows(const struct summing *updater, const trp_update *update, size_t vector)
{
    const struct plan *plan = updater->member->plan;
    const float *rows = trp_update_column(update, 0, "row");
    uint32_t count = update->batches->rows;
    for (size_t i = 0; i < updater->base.vectors[vector].count; i++) {
        float sum = 0;
        for (uint32_t row = 0; row < count; row++)
            sum += gradient_of(plan, rows[row], i + vector);
        updater->host[i] = sum / (float)count;
    }
    const struct member *member = updater->member;
    if (plan->odd.step == update->step && plan->odd.member == member->index && vector == 0)
        updater->host[7] = NAN;
}

struct summing_job {
    const float *from;
    float *to;
    size_t count;
};

static inline void add_numbers(void *arguments)
{
    const struct summing_job *job = arguments;
    for (size_t i = 0; i < job->count; i++)
        job->to[i] += job->from[i];
}

/* Of [lo, hi), where nothing is late. */
static inline void add_piece(const struct summing *updater, const trp_update *update, size_t lo,
                             size_t hi)
{
    struct summing_job job = {updater->host + lo, update->grads[0] + lo, hi - lo};
    add_numbers(&job);
}

static inline bool is_on_host(const struct summing *updater)
{
    return !updater->base.device || trp_device_is_host(updater->base.device);
}

static inline void add_gradient(struct summing *updater, const trp_update *update, size_t vector)
{
    static const trp_kernel kernel = {.name = "test.add", .run = add_numbers};
    size_t count = updater->base.vectors[vector].count, bytes = count * sizeof(float);
    add_rows(updater, update, vector);
    if (is_on_host(updater)) {
        struct summing_job job = {updater->host, update->grads[vector], count};
        add_numbers(&job);
        return;
    }
    void *room;
    trp_status status = trp_device_alloc(updater->base.device, bytes, &room);
    assert_int_equal(status, TRP_OK);
    trp_queue_copy(update->queue, room, updater->host, bytes);
    struct summing_job job = {room, update->grads[vector], count};
    trp_operand operands[] = {{offsetof(struct summing_job, from), bytes, TRP_READ},
                              {offsetof(struct summing_job, to), bytes, TRP_READ | TRP_WRITE}};
    trp_queue_run(update->queue, &kernel, &job, sizeof job, operands, 2);
    assert_int_equal(trp_queue_sync(update->queue, trp_queue_mark(update->queue)), TRP_OK);
    trp_device_free(updater->base.device, room);
}

/* Pieces from the end to the front, or in any order, each told of when it is there; some are not
 * told of at all. */
static inline void add_and_report(struct summing *updater, const trp_update *update)
{
    enum { PIECES = 9 };
    size_t count = updater->base.vectors[0].count, order[PIECES];
    for (size_t i = 0; i < PIECES; i++)
        order[i] = PIECES - 1 - i;
    trp_rng rng;
    trp_rng_init(&rng, update->step, updater->member->index);
    for (size_t i = PIECES; updater->member->plan->shuffled && i > 1; i--) {
        size_t other = (size_t)trp_rng_below(&rng, i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    size_t pieces = updater->member->plan->shuffled ? trp_rng_below(&rng, PIECES + 1) : PIECES;
    bool late = !is_on_host(updater);
    if (late)
        add_gradient(updater, update, 0);
    else
        add_rows(updater, update, 0);
    for (size_t i = 0; i < PIECES; i++) {
        size_t lo = count * order[i] / PIECES, hi = count * (order[i] + 1) / PIECES;
        if (!late)
            add_piece(updater, update, lo, hi);
        if (i < pieces)
            trp_update_ready(update, 0, lo, hi);
    }
}

/* This process has those of collectives alone. */
static inline void cut_all_connections(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_storage name;
        socklen_t size = sizeof name;
        if (getpeername(fd, (struct sockaddr *)&name, &size) == 0)
            shutdown(fd, SHUT_RDWR);
    }
}

/* Here the member dies, or the generation does, of which the updater hears nothing yet. */
static inline trp_status dies_here(const struct summing *updater, const trp_update *update,
                                   enum moment place)
{
    struct member *member = updater->member;
    const struct plan *plan = member->plan;
    if (plan->breaks.step == update->step && plan->breaks.member == member->index &&
        plan->breaks.place == place && !member->has_broken) {
        member->has_broken = true;
        if (plan->cuts)
            cut_all_connections();
        else
            learners_abort(update->run->mode->group, "a wire was cut");
    }
    return is_here(updater->member, update->step, place)
               ? trp_fail(TRP_INTERNAL, "member %u dies", updater->member->index)
               : TRP_OK;
}

static inline trp_status summing_step(trp_updater *base, const trp_update *update)
{
    struct summing *updater = (struct summing *)base;
    struct member *member = updater->member;
    const struct plan *plan = member->plan;
    const struct learners *group = update->run->mode->group;
    updater->run = update->run;
    if (plan->stops.step == update->step && plan->stops.member == member->index)
        trp_stop_request(member->stop);
    if (update->step < STEPS_MAX)
        member->seen[update->step]++;
    bool has_number = update->step < STEPS_MAX && updater->base.vectors[0].count > 7;
    if (has_number && is_on_host(updater))
        member->began_with[update->step] = update->vectors[0][7];
    if (plan->asks) {
        double largest = (double)((update->step * (member->index + 3)) % 7) - 5;
        TRP_TRY(trp_update_max(update, &largest));
        member->largest[update->step] = largest;
    }
    for (uint64_t more = plan->varies ? (update->step + member->index) % 3 : 0; more > 0; more--) {
        add_gradient(updater, update, 0);
        TRP_TRY(trp_update_apply(update, 0));
    }
    TRP_TRY(dies_here(updater, update, BEFORE_READY));
    add_and_report(updater, update);
    if (has_number)
        member->gradients[update->step] = updater->host[7];
    TRP_TRY(dies_here(updater, update, AFTER_READY));
    if (plan->watched.step == update->step && plan->watched.member == member->index) {
        updater->watched = INFINITY;
        trp_update_watch(update, 0, &updater->watched, "loss");
    }
    TRP_TRY(trp_update_apply(update, 0));
    if (plan->second) {
        TRP_TRY(dies_here(updater, update, BETWEEN));
        add_gradient(updater, update, 1);
        TRP_TRY(trp_update_apply(update, 1));
        if (!update->partial)
            trp_polyak_update(update->queue, update->vectors[2], update->vectors[0], 0.5F,
                              base->vectors[2].count);
    }
    if (group && update->step < STEPS_MAX) /* nothing is on its way */
        member->sent[update->step] = trp_collective_read(group->collective);
    updater->counted += !update->partial;
    TRP_TRY(dies_here(updater, update, AT_THE_END));
    return TRP_OK;
}

static inline void summing_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    (void)rng;
    for (size_t v = 0; v < base->vector_count; v++)
        for (size_t i = 0; i < base->vectors[v].count; i++)
            vectors[v][i] = (float)((i * 5 + v) % 11) - 5;
}

static inline size_t summing_state(trp_updater *base, trp_checkpoint_tensor *tensors)
{
    struct summing *updater = (struct summing *)base;
    tensors[0] = (trp_checkpoint_tensor){
        .name = "counted", .type = TRP_CHECKPOINT_U64, .rank = 0, .data = &updater->counted};
    return 1;
}

static inline void summing_destroy(trp_updater *base)
{
    free(((struct summing *)base)->host);
    free(base);
}

static const trp_updater_impl summing_impl = {
    .init = summing_init, .step = summing_step, .state = summing_state, .destroy = summing_destroy};

static inline struct summing *summing_create(struct member *member)
{
    static const trp_tensor_spec row = {.name = "row", .dtype = TRP_FLOAT32};
    const struct plan *plan = member->plan;
    struct summing *updater = xcalloc(1, sizeof *updater);
    size_t count = plan->columns ? plan->columns : NUMBERS;
    updater->member = member;
    updater->host = xcalloc(count, sizeof(float));
    updater->base.impl = &summing_impl;
    updater->base.device = plan->device[member->index];
    updater->base.source_count = 1;
    updater->base.sources[0] =
        (trp_batch_spec){.table = "t", .batch_size = plan->rows ? plan->rows : ROWS};
    trp_columns_add(&updater->base.sources[0].columns, NULL, &row);
    updater->base.vectors[0] = (trp_vector_spec){
        .name = "params", .count = count, .learned = true, .optimizer = plan->optimizer};
    updater->base.vectors[1] = updater->base.vectors[0];
    static const trp_net_tensor matrix = {.name = "w",
                                          .rank = 2,
                                          .shape = {25, 40},
                                          .count = NUMBERS,
                                          .axis_count = 2,
                                          .axes = {{25, 40}, {40, 1}}};
    updater->base.vectors[0].tensors = plan->matrix ? &matrix : NULL;
    updater->base.vectors[0].tensor_count = plan->matrix;
    updater->base.vectors[1].name = "second";
    updater->base.vectors[1].count = count / 2 + 1;
    updater->base.vectors[2] = (trp_vector_spec){.name = "target", .count = count};
    updater->base.vector_count = plan->second ? 3 : 1;
    updater->base.phases_vary = plan->varies;
    return updater;
}

/* ---- a run --------------------------------------------------------------------------------------
 */

static inline float *copy_of(const float *values, size_t count)
{
    return values ? xmemdup(values, count * sizeof *values) : NULL;
}

/* What the member has when its run is over. */
static inline void keep_vectors(struct member *member)
{
    struct trp_update_run *run = member->updater->run;
    member->counted = member->updater->counted;
    if (!run || update_fetch(run) != TRP_OK)
        return;
    const struct vector *each = run->vectors.each;
    const struct plan *plan = member->plan;
    size_t count = each[0].spec->count;
    member->params = copy_of(each[0].values.here, count);
    member->second = plan->second ? copy_of(each[1].values.here, each[1].spec->count) : NULL;
    member->target = plan->second ? copy_of(each[2].values.here, count) : NULL;
    member->state_numbers = each[0].state[0].bytes / sizeof(float);
    bool sharded = plan->mode && strcmp(plan->mode, "sharded") == 0;
    for (size_t k = 0; k < vector_states(&each[0]) && !sharded; k++)
        member->state[k] = copy_of(each[0].state[k].here, count);
}

static inline void member_run(void *argument)
{
    struct member *member = argument;
    const struct plan *plan = member->plan;
    struct numbered_source *source = xcalloc(1, sizeof *source);
    if (member->turns)
        turns_join(member->turns, member->index);
    member->updater = summing_create(member);
    member->source = source;
    *source = (struct numbered_source){
        .base.impl = &numbered_impl, .member = member, .rows = xcalloc(1024, sizeof(float))};
    trp_learner_loop_options options = {
        .updater = &member->updater->base,
        .sources = (trp_source *const *)&member->source,
        .source_count = 1,
        .stop = member->stop,
        .max_steps = plan->steps,
        .no_share = plan->no_share,
        .checkpoint_dir = plan->checkpoints,
        .checkpoint_every_s = 3600,
        .checkpoint_every_steps = plan->checkpoint_every,
        .resume = plan->resume,
        .group = {.rendezvous = member->gang ? trp_gang_member(member->gang, member->index) : NULL,
                  .mode = plan->mode,
                  .count = member->gang ? plan->members : 0,
                  .bucket_bytes = plan->bucket_bytes,
                  .local_steps = plan->local_steps,
                  .outer_momentum = plan->outer_momentum,
                  .compression = plan->compression,
                  .sites = plan->sites,
                  .significance = plan->significance,
                  .site_slack = plan->site_slack,
                  .timeout_ms = 20000}};
    member->status = trp_learner_create(&member->learner, &options);
    if (plan->joined && member->life > 0)
        trp_stop_request(plan->joined);
    if (member->status == TRP_OK)
        member->status = trp_learner_run(member->learner);
    if (member->status != TRP_OK)
        member->words = xstrdup(trp_last_error());
    if (member->learner) {
        member->counters = trp_learner_read(member->learner);
        keep_vectors(member);
    }
    if (member->gang)
        trp_gang_left(member->gang, member->index, member->words);
    trp_learner_destroy(member->learner);
    turns_leave();
}

struct run {
    struct plan plan;
    trp_gang *gang;
    struct turns *turns;
    trp_stop *stops[MEMBERS_MAX];
    struct member members[MEMBERS_MAX];
};

static inline void member_start(struct run *run, uint32_t index, uint32_t life)
{
    run->members[index] = (struct member){.plan = &run->plan,
                                          .index = index,
                                          .life = life,
                                          .gang = run->gang,
                                          .stop = run->stops[index],
                                          .turns = run->turns};
    assert_int_equal(
        thread_start(&run->members[index].thread, "member", member_run, &run->members[index]),
        TRP_OK);
}

static inline struct run *run_start(const struct plan *plan)
{
    struct run *run = xcalloc(1, sizeof *run);
    run->plan = *plan;
    if (plan->members > 0)
        run->gang = trp_gang_create(&(trp_gang_options){
            .name = "learner", .count = plan->members, .silence_ms = 5000, .start_ms = 20000});
    if (plan->turns)
        run->turns = turns_create(plan->members);
    for (uint32_t i = 0; i < plan->members || i == 0; i++)
        run->stops[i] = trp_stop_create();
    for (uint32_t i = 0; i < plan->members || i == 0; i++)
        member_start(run, i, 0);
    return run;
}

static inline void member_join(struct run *run, uint32_t index)
{
    thread_stop(&run->members[index].thread);
}

static inline struct run *run_all(const struct plan *plan)
{
    struct run *run = run_start(plan);
    for (uint32_t i = 0; i < plan->members || i == 0; i++)
        member_join(run, i);
    return run;
}

static inline void member_free(struct member *member)
{
    free(member->params);
    free(member->second);
    free(member->target);
    for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
        free(member->state[k]);
    free(member->words);
}

static inline void run_free(struct run *run)
{
    for (uint32_t i = 0; i < MEMBERS_MAX; i++) {
        member_free(&run->members[i]);
        trp_stop_destroy(run->stops[i]);
    }
    trp_gang_destroy(run->gang);
    turns_destroy(run->turns);
    free(run);
}

/* One learner with the batches of all members, in the order of ranks. */
static inline struct run *run_alone(const struct plan *plan)
{
    struct plan alone = *plan;
    alone.rows = (plan->rows ? plan->rows : ROWS) * plan->members;
    alone.members = 0;
    alone.mode = NULL;
    alone.compression = (trp_compression_options){0};
    alone.checkpoints = NULL;
    alone.dies.step = alone.breaks.step = 0;
    alone.joined = NULL;
    struct run *run = xcalloc(1, sizeof *run);
    run->plan = alone;
    run->plan.members = 1; /* rows are numbered one behind the other */
    run->stops[0] = trp_stop_create();
    member_start(run, 0, 0);
    member_join(run, 0);
    assert_int_equal(run->members[0].status, TRP_OK);
    return run;
}

static inline void check_same(const struct member *member, const struct member *other)
{
    size_t count = member->plan->columns ? member->plan->columns : NUMBERS;
    assert_memory_equal(member->params, other->params, count * sizeof(float));
    for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
        if (member->state[k] && other->state[k])
            assert_memory_equal(member->state[k], other->state[k], count * sizeof(float));
    if (!member->plan->second)
        return;
    assert_memory_equal(member->second, other->second, (count / 2 + 1) * sizeof(float));
    assert_memory_equal(member->target, other->target, count * sizeof(float));
}

static inline void check_all(const struct run *run, const struct member *reference)
{
    for (uint32_t i = 0; i < run->plan.members; i++) {
        if (run->members[i].status != TRP_OK)
            fail_msg("member %u: %s", i, run->members[i].words);
        assert_int_equal(run->members[i].counters.steps, run->plan.steps);
        assert_int_equal(run->members[i].counted, run->plan.steps);
        check_same(&run->members[i], reference);
    }
}

static inline uint32_t half_of_one(uint32_t member, uint64_t step)
{
    return member == 1 && step % 2 == 0 ? ROWS / 2 : ROWS;
}

static const char *const compression_kinds[] = {"bf16",    "f16",      "top-k",
                                                "one-bit", "powersgd", "qsgd"};
enum { COMPRESSION_KINDS = sizeof compression_kinds / sizeof *compression_kinds };

/* All members have the same bits, and what they learned is what they would have without, but for
 * what is still to be sent. Gradients are the same in each step. */
static inline void check_compressors(const char *mode)
{
    struct plan plan = {.members = 3,
                        .steps = 60,
                        .optimizer = {.kind = TRP_SGD, .learning_rate = 0.0625},
                        .mode = mode,
                        .second = true,
                        .constant = true,
                        .matrix = true};
    struct run *plain = run_all(&plan);
    for (size_t i = 0; i < COMPRESSION_KINDS; i++) {
        plan.compression = (trp_compression_options){.kind = compression_kinds[i], .ratio = 0.1};
        struct run *run = run_all(&plan);
        check_all(run, &run->members[0]);
        double away = 0, way = 0;
        for (size_t k = 0; k < NUMBERS; k++) {
            double end = (double)plain->members[0].params[k];
            away += fabs(end - (double)run->members[0].params[k]);
            way += fabs(end - ((double)(k * 5 % 11) - 5));
        }
        assert_true(away < way / 8);
        run_free(run);
    }
    run_free(plain);
}

#endif
