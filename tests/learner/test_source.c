/* The learner's loop with a batch source of one's own, whose batches are known, and an updater that
 * answers at once or a step later. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/learner.h>
#include "core/alloc.h"
#include "tests/learner/adding.h"

struct fixture {
    char dir[32];
    trp_source *source; /* of the learner made last */
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    memcpy(fixture->dir, "/tmp/test_source.XXXXXX", sizeof "/tmp/test_source.XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    char *command = xasprintf("rm -rf %s", fixture->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(fixture);
    return 0;
}

/* ---- a source of one's own ------------------------------------------------------------------ */

enum { COUNTED_MAX = 64 };

/* Row r of batch n has the value 4 n + r. Only batches that are held are still what they were. */
struct counted_source {
    trp_source base;
    int batches, given; /* left; so far */
    uint32_t held;
    float values[2][BATCH];
    void *columns[2];
    float updated[COUNTED_MAX * BATCH]; /* values whose priorities came, in order */
    double priorities[COUNTED_MAX * BATCH];
    size_t updates;
    int flushes;
};

static trp_status counted_open(trp_source *base, const trp_source_use *use)
{
    assert_int_equal(use->spec->batch_size, BATCH);
    assert_in_range(use->held, 1, 2);
    assert_non_null(use->params);
    ((struct counted_source *)base)->held = use->held;
    return TRP_OK;
}

static trp_status counted_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    (void)timeout_ms;
    struct counted_source *source = (struct counted_source *)base;
    if (source->batches-- == 0)
        return trp_fail(TRP_OUT_OF_RANGE, "counted: no more");
    size_t at = (size_t)source->given % source->held;
    for (int row = 0; row < BATCH; row++)
        source->values[at][row] = (float)(BATCH * source->given + row);
    source->given++;
    source->columns[at] = source->values[at];
    *batch = (trp_batch){.rows = BATCH, .columns = &source->columns[at]};
    return TRP_OK;
}

static trp_status counted_update(trp_source *base, const trp_batch *batch, const double *priorities,
                                 int64_t timeout_ms)
{
    (void)timeout_ms;
    struct counted_source *source = (struct counted_source *)base;
    assert_true(source->updates < COUNTED_MAX * BATCH);
    memcpy(source->updated + source->updates, batch->columns[0], BATCH * sizeof(float));
    memcpy(source->priorities + source->updates, priorities, BATCH * sizeof(double));
    source->updates += BATCH;
    return TRP_OK;
}

static trp_status counted_flush(trp_source *base, int64_t timeout_ms)
{
    assert_true(((struct counted_source *)base)->held > 0); /* it was opened */
    assert_true(timeout_ms > 0);
    ((struct counted_source *)base)->flushes++;
    return TRP_OK;
}

static size_t counted_metrics(const trp_source *base, trp_metric *metrics)
{
    metrics[0] = (trp_metric){"given", ((const struct counted_source *)base)->given};
    return 1;
}

static void counted_destroy(trp_source *base)
{
    free(base);
}

static const trp_source_impl counted_impl = {.open = counted_open,
                                             .next = counted_next,
                                             .update_priorities = counted_update,
                                             .flush = counted_flush,
                                             .metrics = counted_metrics,
                                             .destroy = counted_destroy};

static trp_learner *counted_learner(struct fixture *fixture, struct counted_source **source,
                                    int batches, struct adding *updater,
                                    trp_learner_loop_options options)
{
    *source = xcalloc(1, sizeof **source);
    (*source)->base.impl = &counted_impl;
    (*source)->batches = batches;
    fixture->source = &(*source)->base;
    options.updater = &updater->base;
    options.sources = &fixture->source;
    options.source_count = 1;
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    return learner;
}

static double reported(const trp_learner_counters *counters, const char *name)
{
    for (size_t i = 0; i < counters->metric_count; i++)
        if (strcmp(counters->metrics[i].name, name) == 0)
            return counters->metrics[i].value;
    return NAN;
}

static void a_source_that_ends_ends_the_run_well(void **state)
{
    struct fixture *fixture = *state;
    struct counted_source *source;
    trp_learner *learner = counted_learner(
        fixture, &source, 7, adding_create(),
        (trp_learner_loop_options){.checkpoint_dir = fixture->dir, .checkpoint_every_s = 3600});
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(trp_learner_read(learner).steps, 7);
    assert_int_equal(trp_learner_read(learner).checkpoints, 1);
    assert_true(trp_learner_read(learner).finished);
    trp_learner_destroy(learner);
}

/* ---- an updater that answers later ----------------------------------------------------------- */

static void read_checkpoint(const char *dir, char bytes[8192], size_t *size)
{
    char *path;
    assert_int_equal(trp_learner_checkpoint_find(dir, &path), TRP_OK);
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    *size = fread(bytes, 1, 8192, file);
    assert_in_range(*size, 1, 8191);
    fclose(file);
    free(path);
}

/* What becomes of 20 batches: priorities in order, the last checkpoint, what is reported. */
struct outcome {
    float updated[20 * BATCH];
    double priorities[20 * BATCH];
    char checkpoint[8192];
    size_t checkpoint_size;
    uint64_t checkpoints;
    double loss;
};

static void learn_batches(struct fixture *fixture, struct adding *updater, struct outcome *outcome)
{
    struct counted_source *source;
    char *dir = xasprintf("%s/%s", fixture->dir, updater->base.impl->collect ? "later" : "at-once");
    trp_learner *learner = counted_learner(fixture, &source, 20, updater,
                                           (trp_learner_loop_options){.publish_every = 6,
                                                                      .checkpoint_every_s = 3600,
                                                                      .checkpoint_every_steps = 9,
                                                                      .checkpoint_dir = dir});
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(source->updates, 20 * BATCH);
    memset(outcome, 0, sizeof *outcome);
    memcpy(outcome->updated, source->updated, sizeof outcome->updated);
    memcpy(outcome->priorities, source->priorities, sizeof outcome->priorities);
    outcome->checkpoints = trp_learner_read(learner).checkpoints;
    trp_learner_counters counters = trp_learner_read(learner);
    outcome->loss = reported(&counters, "loss");
    read_checkpoint(dir, outcome->checkpoint, &outcome->checkpoint_size);
    assert_int_equal(updater->collected, updater->base.impl->collect ? 20 : 0);
    /* All but 6, 12, 18 (published), 9 (with 18: checkpoints) and 20, the last. */
    assert_int_equal(updater->collected_later, updater->base.impl->collect ? 15 : 0);
    trp_learner_destroy(learner);
    free(dir);
}

static void an_updater_that_answers_a_step_later_learns_the_same(void **state)
{
    struct outcome at_once, later;
    struct adding *updater = adding_create();
    updater->base.impl = &adding_later_impl;
    learn_batches(*state, adding_create(), &at_once);
    learn_batches(*state, updater, &later);
    assert_memory_equal(&at_once, &later, sizeof later);
    assert_int_equal(later.checkpoints, 3);
    assert_true(later.loss == 20);
    for (int i = 0; i < 20 * BATCH; i++) {
        assert_true(later.updated[i] == (float)i);
        assert_true(later.priorities[i] == i + 2);
    }
}

static void a_step_that_cannot_be_collected_ends_the_run(void **state)
{
    struct counted_source *source;
    struct adding *updater = adding_create();
    updater->base.impl = &adding_later_impl;
    updater->fail_collect_at = 4;
    trp_learner *learner =
        counted_learner(*state, &source, 20, updater, (trp_learner_loop_options){0});
    assert_int_equal(trp_learner_run(learner), TRP_INTERNAL);
    assert_string_equal(trp_last_error(), "adding: step 4 cannot be collected");
    assert_int_equal(source->updates, 3 * BATCH);
    trp_learner_destroy(learner);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

static void a_source_that_was_not_opened_is_not_flushed(void **state)
{
    struct fixture *fixture = *state;
    struct counted_source *source;
    trp_stop *stop = trp_stop_create();
    trp_stop_request(stop);
    trp_learner *learner = counted_learner(fixture, &source, 7, adding_create(),
                                           (trp_learner_loop_options){.stop = stop});
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_int_equal(source->flushes, 0);
    trp_learner_destroy(learner);
    trp_stop_destroy(stop);
}

static void each_of_several_sources_reports_for_itself(void **state)
{
    (void)state;
    struct adding *updater = adding_create();
    trp_source *sources[2];
    trp_learner *learner;
    updater->base.sources[1] = updater->base.sources[0];
    updater->base.sources[1].columns = (trp_columns){0};
    trp_columns_add_all(&updater->base.sources[1].columns, &updater->base.sources[0].columns);
    updater->base.source_count = 2;
    for (int i = 0; i < 2; i++) {
        struct counted_source *source = xcalloc(1, sizeof *source);
        source->base.impl = &counted_impl;
        source->batches = 7;
        source->given = 10 * i;
        sources[i] = &source->base;
    }
    assert_int_equal(
        trp_learner_create(&learner, &(trp_learner_loop_options){.updater = &updater->base,
                                                                 .sources = sources,
                                                                 .source_count = 2,
                                                                 .max_steps = 5}),
        TRP_OK);
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    trp_learner_counters counters = trp_learner_read(learner);
    assert_true(reported(&counters, "0.given") == 5);
    assert_true(reported(&counters, "1.given") == 15);
    assert_true(isnan(reported(&counters, "given")));
    trp_learner_destroy(learner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(a_source_that_ends_ends_the_run_well),
        WITH_FIXTURE(an_updater_that_answers_a_step_later_learns_the_same),
        WITH_FIXTURE(a_step_that_cannot_be_collected_ends_the_run),
        WITH_FIXTURE(a_source_that_was_not_opened_is_not_flushed),
        WITH_FIXTURE(each_of_several_sources_reports_for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
