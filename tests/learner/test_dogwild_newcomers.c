/* Who came later, and what it has: modes over real datagrams, of learners that do not run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <troupe/log.h>
#include <troupe/rendezvous.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "learner/modes/dogwild.h"

static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 0.001F};

/* Where two meet for one generation, which nobody may break. */
struct hall {
    struct mutex mutex;
    struct cond changed;
    char *addresses[2]; /* by rank */
    uint64_t broken;
    trp_stop *stop;
};

struct told_rendezvous {
    trp_rendezvous base;
    struct hall *hall;
    uint32_t rank;
};

static trp_status told_announce(trp_rendezvous *base, const char *address)
{
    const struct told_rendezvous *told = (const struct told_rendezvous *)base;
    mutex_lock(&told->hall->mutex);
    told->hall->addresses[told->rank] = xstrdup(address);
    cond_broadcast(&told->hall->changed);
    mutex_unlock(&told->hall->mutex);
    return TRP_OK;
}

static trp_status told_next(trp_rendezvous *base, uint64_t after, int64_t timeout_ms,
                            trp_generation *generation)
{
    static const uint32_t members[] = {0, 1};
    const struct told_rendezvous *told = (const struct told_rendezvous *)base;
    struct hall *hall = told->hall;
    struct deadline until = deadline_in_ms(&clock_monotonic, timeout_ms);
    mutex_lock(&hall->mutex);
    while ((!hall->addresses[0] || !hall->addresses[1] || after >= 5) &&
           !deadline_passed(until, &clock_monotonic))
        cond_wait(&hall->changed, &hall->mutex, until);
    bool there = hall->addresses[0] && hall->addresses[1] && after < 5;
    mutex_unlock(&hall->mutex);
    *generation = (trp_generation){.number = 5,
                                   .nonce = 9,
                                   .rank = told->rank,
                                   .size = 2,
                                   .addresses = (const char *const *)hall->addresses,
                                   .members = members};
    return there ? TRP_OK : trp_fail(TRP_DEADLINE_EXCEEDED, "there is none");
}

static uint64_t told_newest(const trp_rendezvous *base)
{
    (void)base;
    return 5;
}

static void told_broken(trp_rendezvous *base, uint64_t number, const char *why)
{
    struct hall *hall = ((struct told_rendezvous *)base)->hall;
    (void)why;
    hall->broken = number;
    trp_stop_request(hall->stop);
}

struct met {
    struct told_rendezvous told;
    trp_queue *queue;
    struct vectors vectors;
    struct mode *mode;
    struct mode_meeting meeting;
    trp_rng rng;
    struct thread thread;
    trp_status status;
};

static void meet_told(void *argument)
{
    struct met *met = argument;
    met->status = met->mode->impl->meet(met->mode, &met->meeting);
}

/* Who has a checkpoint knows; who has none does not, though it is older. */
static void an_older_newcomer_gets_what_a_younger_one_knows(void **state)
{
    static const trp_rendezvous_impl impl = {
        .announce = told_announce, .next = told_next, .newest = told_newest, .broken = told_broken};
    const trp_vector_spec specs[] = {
        {.name = "params", .count = 700, .learned = true, .optimizer = sgd},
        {.name = "target", .count = 9}};
    (void)state;
    struct hall hall = {.stop = trp_stop_create()};
    struct met mets[2] = {{.meeting.steps = 0}, {.meeting.steps = 20}};
    mutex_init(&hall.mutex);
    cond_init(&hall.changed);
    for (uint32_t i = 0; i < 2; i++) {
        struct met *met = &mets[i];
        trp_device *device;
        met->told = (struct told_rendezvous){.base.impl = &impl, .hall = &hall, .rank = i};
        met->meeting.rng = &met->rng;
        assert_int_equal(trp_device_find(&device, NULL), TRP_OK);
        assert_int_equal(trp_queue_create(&met->queue, device), TRP_OK);
        assert_int_equal(vectors_create(&met->vectors, device, met->queue, specs, 2), TRP_OK);
        for (size_t v = 0; v < 2; v++)
            for (size_t k = 0; k < specs[v].count; k++)
                ((float *)met->vectors.each[v].values.here)[k] = (float)(k + 1000 * i);
        const struct learners_options group = {.name = "learner",
                                               .rendezvous = &met->told.base,
                                               .timeout_ms = 10000,
                                               .stop = hall.stop};
        assert_int_equal(
            dogwild_create(&met->mode, &met->vectors, &group, &(struct compress_options){0}),
            TRP_OK);
        assert_false(met->mode->leads); /* nothing is published before they have met */
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(thread_start(&mets[i].thread, "met", meet_told, &mets[i]), TRP_OK);
    for (uint32_t i = 0; i < 2; i++)
        thread_stop(&mets[i].thread);
    assert_int_equal(hall.broken, 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mets[i].status, TRP_OK);
        assert_int_equal(mets[i].meeting.steps, 20);
        assert_int_equal(mets[i].mode->leads, i == 0); /* it is the oldest, and has all now */
        for (size_t v = 0; v < 2; v++)
            for (size_t k = 0; k < specs[v].count; k++)
                assert_true(((float *)mets[i].vectors.each[v].values.here)[k] == (float)(k + 1000));
    }
    for (uint32_t i = 0; i < 2; i++) {
        mets[i].mode->impl->destroy(mets[i].mode);
        vectors_cleanup(&mets[i].vectors);
        trp_queue_destroy(mets[i].queue);
        free(hall.addresses[i]);
    }
    cond_cleanup(&hall.changed);
    mutex_cleanup(&hall.mutex);
    trp_stop_destroy(hall.stop);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_newcomer_gets_what_a_younger_one_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
