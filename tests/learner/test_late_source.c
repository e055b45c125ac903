/* Learners that step together, of updaters with two sources: one of these may be late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <troupe/learner.h>
#include <troupe/rendezvous.h>
#include "core/alloc.h"
#include "core/thread.h"

enum { MEMBERS = 2, STEPS = 9, LATE_AT = 4 };

struct member;

/* Gives batches of one row, its number, each in memory of its own. */
struct counting_source {
    trp_source base;
    struct member *member;
    bool late; /* with number LATE_AT, until another member has stepped without it */
    uint32_t given;
    float rows[2 * STEPS];
    void *columns[2 * STEPS];
};

struct member {
    uint32_t index;
    trp_gang *gang;
    trp_stop *others_stepped; /* past LATE_AT */
    struct thread thread;
    trp_status status;
    uint32_t steps, odd; /* with batches; of those whose numbers differ */
};

static trp_status counting_open(trp_source *base, const trp_source_use *use)
{
    (void)base, (void)use;
    return TRP_OK;
}

static trp_status counting_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    struct counting_source *source = (struct counting_source *)base;
    uint32_t at = source->given;
    bool waits = source->late && at + 1 == LATE_AT;
    if (waits && !trp_stop_wait(source->member->others_stepped, timeout_ms))
        return trp_fail(TRP_DEADLINE_EXCEEDED, "the batch is late");
    source->rows[at] = (float)++source->given;
    source->columns[at] = &source->rows[at];
    *batch = (trp_batch){.rows = 1, .columns = &source->columns[at]};
    return TRP_OK;
}

static void counting_destroy(trp_source *base)
{
    free(base);
}

static const trp_source_impl counting_impl = {
    .open = counting_open, .next = counting_next, .destroy = counting_destroy};

struct pairing {
    trp_updater base;
    struct member *member;
};

static trp_status pairing_step(trp_updater *base, const trp_update *update)
{
    struct member *member = ((struct pairing *)base)->member;
    const float *first = trp_update_column(update, 0, "row"),
                *second = trp_update_column(update, 1, "row");
    member->steps++;
    member->odd += *first != *second;
    if (member->index == 0 && update->step > LATE_AT)
        trp_stop_request(member->others_stepped);
    update->grads[0][0] += 1;
    return trp_update_apply(update, 0);
}

static void pairing_destroy(trp_updater *base)
{
    free(base);
}

static const trp_updater_impl pairing_impl = {.step = pairing_step, .destroy = pairing_destroy};

static trp_updater *pairing_create(struct member *member)
{
    static const trp_tensor_spec row = {.name = "row", .dtype = TRP_FLOAT32};
    struct pairing *updater = xcalloc(1, sizeof *updater);
    updater->member = member;
    updater->base.impl = &pairing_impl;
    updater->base.source_count = 2;
    for (size_t i = 0; i < 2; i++) {
        updater->base.sources[i] = (trp_batch_spec){.table = i ? "late" : "t", .batch_size = 1};
        trp_columns_add(&updater->base.sources[i].columns, NULL, &row);
    }
    updater->base.vectors[0] =
        (trp_vector_spec){.name = "params",
                          .count = 1,
                          .learned = true,
                          .optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
    updater->base.vector_count = 1;
    return &updater->base;
}

static trp_source *counting_create(struct member *member, bool late)
{
    struct counting_source *source = xcalloc(1, sizeof *source);
    *source = (struct counting_source){.base.impl = &counting_impl, .member = member, .late = late};
    return &source->base;
}

static void member_run(void *argument)
{
    struct member *member = argument;
    trp_source *sources[] = {counting_create(member, false),
                             counting_create(member, member->index == 1)};
    trp_learner *learner;
    member->status = trp_learner_create(
        &learner, &(trp_learner_loop_options){
                      .updater = pairing_create(member),
                      .sources = sources,
                      .source_count = 2,
                      .max_steps = STEPS,
                      .group = {.rendezvous = trp_gang_member(member->gang, member->index),
                                .count = MEMBERS,
                                .timeout_ms = 20000}});
    if (member->status == TRP_OK)
        member->status = trp_learner_run(learner);
    trp_gang_left(member->gang, member->index, NULL);
    trp_learner_destroy(learner);
}

static void what_was_there_is_used_with_what_comes_later(void **state)
{
    (void)state;
    struct member members[MEMBERS];
    trp_stop *stepped = trp_stop_create();
    trp_gang *gang = trp_gang_create(&(trp_gang_options){
        .name = "learner", .count = MEMBERS, .silence_ms = 5000, .start_ms = 20000});
    for (uint32_t i = 0; i < MEMBERS; i++) {
        members[i] = (struct member){.index = i, .gang = gang, .others_stepped = stepped};
        assert_int_equal(thread_start(&members[i].thread, "member", member_run, &members[i]),
                         TRP_OK);
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        thread_stop(&members[i].thread);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(members[i].status, TRP_OK);
        assert_int_equal(members[i].odd, 0);
    }
    assert_int_equal(members[0].steps, STEPS);
    assert_true(members[1].steps > LATE_AT && members[1].steps < STEPS);
    trp_gang_destroy(gang);
    trp_stop_destroy(stepped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_there_is_used_with_what_comes_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
