/* Servers that go away while a learner learns at them, and whoever watches servers. */
#include "tests/learner/server/sites.h"

static void set_gone(struct site *site, bool gone)
{
    mutex_lock(&site->lines[2].mutex);
    site->lines[2].gone = gone;
    mutex_unlock(&site->lines[2].mutex);
}

static void leave(struct falling *falling, uint64_t step)
{
    set_gone(falling->context, step >= 4);
}

static void a_server_that_is_gone_is_named_within_the_deadline(void **state)
{
    (void)state;
    struct site site;
    trp_learner *learner;
    site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, true);
    struct falling *falling = falling_create(&rates[0]);
    trp_learner_servers servers = servers_of(&site, 0, 1);
    falling->happens = leave;
    falling->context = &site;
    assert_int_equal(trp_learner_create(
                         &learner,
                         &(trp_learner_loop_options){
                             .updater = &falling->base,
                             .max_steps = 10,
                             .group = {.mode = "server", .timeout_ms = 1000, .servers = &servers}}),
                     TRP_OK);
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    trp_status status = trp_learner_run(learner);
    assert_true(status == TRP_UNAVAILABLE || status == TRP_DEADLINE_EXCEEDED); /* if it is slow */
    assert_true(clock_now_ns(&clock_monotonic) - since_ns < INT64_C(8000000000));
    assert_non_null(strstr(trp_last_error(), "'params' at server/2"));
    trp_learner_destroy(learner);
    site_end(&site);
}

/* Whoever watches server 2, which goes away after a step. */
struct watching {
    struct site *site;
    bool gone, full, starts_again;
    unsigned missed;
};

static void go_away(struct falling *falling, uint64_t step)
{
    struct watching *watching = falling->context;
    struct line *line = &watching->site->lines[2];
    mutex_lock(&line->mutex);
    line->full = watching->full && step >= 4;
    line->gone = line->gone || (!watching->full && step == 4);
    mutex_unlock(&line->mutex);
}

static bool watched_is_gone(void *watcher, size_t server, char *how, size_t size)
{
    const struct watching *watching = watcher;
    snprintf(how, size, "it was killed");
    return watching->gone && server == 2;
}

static void watched_is_missed(void *watcher, size_t server, const char *why)
{
    struct watching *watching = watcher;
    assert_int_equal(server, 2);
    assert_string_equal(why, "it has not answered group/0 for 1 s");
    watching->missed++;
    if (!watching->starts_again)
        return;
    server_begin_again(watching->site, 2); /* which knows nobody, and has its log */
    set_gone(watching->site, false);
}

static trp_status learn_watched(struct watching *watching, uint32_t timeout_ms)
{
    struct site site;
    trp_learner *learner;
    site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, true);
    struct falling *falling = falling_create(&rates[0]);
    trp_learner_servers servers = servers_of(&site, 0, 1);
    servers.watch = (trp_server_watch){watched_is_gone, watched_is_missed, watching};
    watching->site = &site;
    falling->happens = go_away;
    falling->context = watching;
    const trp_learner_loop_options options = {
        .updater = &falling->base,
        .max_steps = 10,
        .group = {
            .mode = "server", .name = "group", .timeout_ms = timeout_ms, .servers = &servers}};
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    trp_status status = trp_learner_run(learner);
    trp_learner_destroy(learner);
    site_end(&site);
    return status;
}

/* The timeout is longer than any test. */
static void a_server_that_is_gone_for_good_is_not_waited_for(void **state)
{
    (void)state;
    struct watching watching = {.gone = true};
    assert_int_equal(learn_watched(&watching, 86400000), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "'params' at server/2: it is gone: it was killed"));
    assert_int_equal(watching.missed, 0);
}

static void a_server_that_does_not_answer_is_missed_once(void **state)
{
    (void)state;
    struct watching watching = {.starts_again = true};
    assert_int_equal(learn_watched(&watching, 1000), TRP_OK);
    assert_int_equal(watching.missed, 1);
    watching = (struct watching){.starts_again = false};
    trp_status status = learn_watched(&watching, 1000);
    assert_true(status == TRP_UNAVAILABLE || status == TRP_DEADLINE_EXCEEDED);
    assert_int_equal(watching.missed, 1);
}

/* Though the last call of all may have had a millisecond. */
static void a_server_that_has_no_room_is_not_missed(void **state)
{
    (void)state;
    struct watching watching = {.full = true};
    assert_int_equal(learn_watched(&watching, 500), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "'params' at server/2: "));
    assert_non_null(strstr(trp_last_error(), "the disk is full"));
    assert_int_equal(watching.missed, 0);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_is_gone_is_named_within_the_deadline),
        cmocka_unit_test(a_server_that_is_gone_for_good_is_not_waited_for),
        cmocka_unit_test(a_server_that_does_not_answer_is_missed_once),
        cmocka_unit_test(a_server_that_has_no_room_is_not_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
