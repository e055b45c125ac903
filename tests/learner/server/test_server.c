/* Learners whose parameters are on servers: what they learn is what one learns alone, to the bit,
 * through lost answers, servers that begin again, and resumes; the same called directly as over
 * sockets. And who is waited for, and who is named for it. */
#include "tests/learner/server/sites.h"

#include <math.h>

#include "tests/core/captured.h"

enum { LEARNERS_HERE = 2 };

/* ---- one learner ----------------------------------------------------------------------------- */

static void one_learner_has_the_bits_of_one_that_is_alone(void **state)
{
    (void)state;
    for (size_t k = 0; k < RATES; k++)
        for (uint32_t rule = TRP_SERVER_SYNC; rule <= TRP_SERVER_SOFTSYNC; rule++)
            for (uint32_t remote = 0; remote < 2; remote++) {
                struct site site;
                float params[COUNT], expected[COUNT];
                site_begin(&site, (trp_parameter_server_options){.rule = rule}, remote);
                learn(&(struct lesson){.optimizer = &rates[k], .site = &site, .steps = 12}, params);
                learn_alone(&rates[k], 12, expected);
                assert_memory_equal(params, expected, sizeof expected);
                site_end(&site);
            }
}

/* ---- Downpour, Dean et al. 2012 -------------------------------------------------------------- */

struct downpour {
    uint32_t push_every, fetch_every;
    uint64_t saves_every; /* steps; 0: never */
};

/* What the server has at number `i` in the end: a step of each sum that was pushed. */
static double downpour_by_the_rule(const struct downpour *rule, uint64_t steps, double rate,
                                   size_t i)
{
    double server = 0, own = 0, sum = 0;
    for (uint64_t step = 1; step <= steps; step++) {
        double gradient = own - (double)(i % 11) + (double)(step % 3);
        uint64_t period = rule->saves_every ? (step - 1) % rule->saves_every + 1 : step;
        bool saves = period == rule->saves_every || step == steps;
        own -= rate * gradient;
        sum += gradient;
        if (period % rule->push_every == 0 || saves) {
            server -= rate * sum;
            sum = 0;
        }
        if (period % rule->fetch_every == 0 || saves)
            own = server;
    }
    return server;
}

static void learn_by_downpour(const struct downpour *rule, uint64_t steps, bool maps,
                              const char *dir)
{
    static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 0.25};
    struct site site;
    float params[COUNT];
    site_begin(&site,
               (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC,
                                              .push_every = rule->push_every,
                                              .fetch_every = rule->fetch_every},
               false);
    for (size_t i = 0; i < SERVERS; i++)
        line_let_map(&site.lines[i], maps);
    learn(&(struct lesson){.optimizer = &sgd,
                           .site = &site,
                           .steps = steps,
                           .checkpoints = rule->saves_every ? dir : NULL,
                           .checkpoint_every = rule->saves_every},
          params);
    uint64_t period = rule->saves_every ? rule->saves_every : steps;
    uint64_t pushes = steps / period * ((period + rule->push_every - 1) / rule->push_every) +
                      (steps % period + rule->push_every - 1) / rule->push_every;
    assert_int_equal(trp_parameter_server_read(site.lines[0].server).pushes, pushes);
    /* One that has nothing left to do publishes what it found. */
    learn(&(struct lesson){.optimizer = &sgd, .site = &site, .steps = steps}, params);
    assert_int_equal(trp_parameter_server_read(site.lines[0].server).pushes, pushes);
    for (size_t i = 0; i < COUNT; i++)
        assert_float_equal(params[i], downpour_by_the_rule(rule, steps, 0.25, i), 1e-3);
    site_end(&site);
}

/* Steps are the learner's, and what was not pushed when it ends, or saves, is pushed then. */
static void downpour_pushes_the_sum_of_its_steps(void **state)
{
    (void)state;
    static const struct downpour rules[] = {{2, 2, 0}, {3, 2, 0}, {2, 5, 0}, {1, 3, 0},
                                            {9, 1, 0}, {3, 2, 4}, {2, 3, 5}};
    for (size_t k = 0; k < 2 * sizeof rules / sizeof *rules; k++) {
        char dir[] = "/tmp/test_downpour.XXXXXX";
        assert_non_null(mkdtemp(dir));
        learn_by_downpour(&rules[k / 2], 7, k % 2 == 1, dir);
        char *command = xasprintf("rm -rf %s", dir);
        assert_int_equal(system(command), 0);
        free(command);
    }
}

static trp_status fall_to_nan(trp_updater *updater, const trp_update *update)
{
    (void)updater;
    for (size_t i = 0; i < COUNT; i++)
        update->grads[0][i] += update->vectors[0][i] - (float)(i % 11) + (float)(update->step % 3);
    if (update->step == 7)
        update->grads[0][5] = NAN;
    return trp_update_apply(update, 0);
}

/* Its whole steps are as good as any. */
static void downpour_pushes_what_it_has_when_it_fails(void **state)
{
    (void)state;
    static const trp_updater_impl impl = {.step = fall_to_nan};
    static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 0.25};
    const struct downpour rule = {4, 100, 0};
    struct site site;
    float params[COUNT];
    site_begin(&site,
               (trp_parameter_server_options){
                   .rule = TRP_SERVER_ASYNC, .push_every = 4, .fetch_every = 100},
               true);
    struct falling *falling = falling_create(&sgd);
    falling->base.impl = &impl;
    trp_learner_servers servers = servers_of(&site, 0, 1);
    trp_learner *learner;
    trp_learner_loop_options options = {
        .updater = &falling->base,
        .max_steps = 20,
        .group = {.mode = "server", .timeout_ms = 5000, .servers = &servers}};
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    assert_int_not_equal(trp_learner_run(learner), TRP_OK);
    assert_non_null(strstr(trp_last_error(), "number 5 of 1000 is nan"));
    trp_learner_destroy(learner);
    assert_int_equal(trp_parameter_server_read(site.lines[0].server).pushes, 2);
    learn(&(struct lesson){.optimizer = &sgd, .site = &site, .steps = 6}, params);
    assert_int_equal(trp_parameter_server_read(site.lines[0].server).pushes, 2);
    for (size_t i = 0; i < COUNT; i++)
        assert_float_equal(params[i], downpour_by_the_rule(&rule, 6, 0.25, i), 1e-3);
    site_end(&site);
}

/* ---- keys and answers ------------------------------------------------------------------------ */

/* Li 2014's key caching: a list of ranges is sent once, then its hash. */
static void the_same_keys_are_sent_once(void **state)
{
    (void)state;
    struct site site;
    float params[COUNT];
    site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, true);
    learn(&(struct lesson){.optimizer = &rates[0], .site = &site, .steps = 20}, params);
    for (size_t i = 0; i < SERVERS; i++) {
        assert_int_equal(site.lines[i].pushes, 20);
        assert_true(site.lines[i].bounds <= 2); /* the first pull may have been before */
    }
    site_end(&site);
}

static void keys_that_were_given_up_are_asked_for_again(void **state)
{
    (void)state;
    struct param_shard shard = {.count = 1000};
    struct keys keys = {0};
    const struct key_list *list;
    const uint64_t first[] = {0, 10, 20, 30};
    uint64_t hash = keys_hash(first, 4);
    assert_null(keys_find(&keys, hash));
    assert_int_equal(keys_add(&keys, &shard, hash, first, 4, &list), TRP_OK);
    assert_int_equal(list->numbers, 20);
    assert_ptr_equal(keys_find(&keys, hash), list);
    assert_int_equal(keys_add(&keys, &shard, hash + 1, first, 4, &list), TRP_INVALID_ARGUMENT);
    for (uint64_t i = 0; i < KEY_LISTS; i++) {
        const uint64_t other[] = {i, i + 1};
        assert_int_equal(keys_add(&keys, &shard, keys_hash(other, 2), other, 2, &list), TRP_OK);
    }
    assert_null(keys_find(&keys, hash));
    keys_cleanup(&keys);
}

static void lost_answers_make_no_gradient_count_twice(void **state)
{
    (void)state;
    struct site site;
    float params[COUNT], expected[COUNT];
    site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, true);
    for (size_t i = 0; i < SERVERS; i++)
        site.lines[i].lose_every = (uint32_t)i + 1;
    learn(&(struct lesson){.optimizer = &rates[1], .site = &site, .steps = 10}, params);
    learn_alone(&rates[1], 10, expected);
    assert_memory_equal(params, expected, sizeof expected);
    assert_int_equal(trp_parameter_server_read(site.lines[0].server).pushes, 10);
    assert_true(site.lines[0].pushes > 10);
    site_end(&site);
}

/* ---- servers that begin again ------------------------------------------------------------------
 */

static void a_server_goes_on_from_its_log_to_the_bit(void **state)
{
    (void)state;
    for (size_t k = 0; k < RATES; k++) {
        struct site site;
        float params[COUNT], expected[COUNT];
        site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_SYNC}, false);
        learn(&(struct lesson){.optimizer = &rates[k],
                               .site = &site,
                               .steps = 20,
                               .happens = restart_in_turn,
                               .context = &site},
              params);
        learn_alone(&rates[k], 20, expected);
        assert_memory_equal(params, expected, sizeof expected);
        site_end(&site);
    }
}

/* A server that dies when a push is in its log, before the answer, and begins again. */
static struct site *dying_site;

static void push_and_die(Troupe__ParameterServer_Service *service,
                         const Troupe__ServerPushRequest *request,
                         Troupe__ServerPushReply_Closure closure, void *data)
{
    struct line *line = (struct line *)service;
    bool dies = ++line->pushes % 4 == 0;
    real_of(line)->push(real_of(line), request, dies ? ignore_reply : closure, data);
    if (!dies)
        return;
    server_begin_again(dying_site, (size_t)(line - dying_site->lines));
    assert_int_equal(trp_fail(TRP_UNAVAILABLE, "it is gone"), TRP_UNAVAILABLE);
    closure(NULL, data);
}

static void a_push_that_was_kept_before_the_death_of_its_server_counts_once(void **state)
{
    (void)state;
    for (int maps = 0; maps < 2; maps++) {
        struct site site;
        float params[COUNT], expected[COUNT];
        site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, false);
        dying_site = &site;
        for (size_t i = 0; i < SERVERS; i++) {
            site.lines[i].service.push = push_and_die;
            line_let_map(&site.lines[i], maps);
        }
        learn(&(struct lesson){.optimizer = &rates[1], .site = &site, .steps = 10}, params);
        learn_alone(&rates[1], 10, expected);
        assert_memory_equal(params, expected, sizeof expected);
        for (size_t i = 0; i < SERVERS; i++)
            assert_int_equal(trp_parameter_server_read(site.lines[i].server).pushes, 10);
        site_end(&site);
    }
}

/* The death of a server in the middle of an append: the record was not answered. What is appended
 * behind the cut is there at the next restart. */
static void tear_log(struct falling *falling, uint64_t step)
{
    struct site *site = falling->context;
    if (step == 5) {
        char half[100];
        char *path = xasprintf("%s/server.1/params.log", site->dir);
        FILE *log = fopen(path, "r+b");
        assert_non_null(log);
        assert_int_equal(fseek(log, 16, SEEK_SET), 0); /* behind the head is a record */
        assert_int_equal(fread(half, 1, sizeof half, log), sizeof half);
        assert_int_equal(fseek(log, 0, SEEK_END), 0);
        assert_int_equal(fwrite(half, 1, sizeof half, log), sizeof half);
        fclose(log);
        free(path);
    }
    if (step == 5 || step == 9)
        server_begin_again(site, 1);
}

static void a_torn_record_is_cut_off(void **state)
{
    (void)state;
    struct site site;
    float params[COUNT], expected[COUNT];
    site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, false);
    learn(&(struct lesson){.optimizer = &rates[1],
                           .site = &site,
                           .steps = 12,
                           .happens = tear_log,
                           .context = &site},
          params);
    learn_alone(&rates[1], 12, expected);
    assert_memory_equal(params, expected, sizeof expected);
    site_end(&site);
}

static void restart_once(struct falling *falling, uint64_t step)
{
    struct site *site = falling->context;
    if (step != 8)
        return;
    assert_true(site->lines[0].most_version > 0);
    server_begin_again(site, 0);
    site->lines[0].least_version = UINT64_MAX;
    site->lines[1].most_version = site->lines[0].most_version; /* as it was */
}

static void without_a_log_no_version_is_used_twice(void **state)
{
    (void)state;
    struct site site;
    struct captured log;
    float params[COUNT];
    site_begin(&site,
               (trp_parameter_server_options){.rule = TRP_SERVER_SOFTSYNC,
                                              .max_staleness = 4,
                                              .durability = TRP_SERVER_KEEPS_CHECKPOINTS},
               false);
    trp_log_set_level(TRP_WARN);
    capture_begin(&log);
    learn(&(struct lesson){.optimizer = &rates[0],
                           .site = &site,
                           .steps = 13, /* those of the lost pushes are counted again */
                           .happens = restart_once,
                           .context = &site},
          params);
    capture_end(&log);
    trp_log_set_level(TRP_ERROR);
    assert_int_equal(captured_count(&log, "has lost pushes of this learner server=server/0"), 1);
    assert_true(site.lines[0].least_version > site.lines[1].most_version);
    site_end(&site);
}

/* ---- resumes --------------------------------------------------------------------------------- */

static void a_learner_goes_on_with_its_servers_or_its_checkpoint(void **state)
{
    (void)state;
    for (uint32_t lost = 0; lost < 2; lost++) {
        struct site site, other;
        struct captured log;
        float params[COUNT], expected[COUNT];
        site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_SYNC}, false);
        char *dir = xasprintf("%s/learner", site.dir);
        struct lesson lesson = {
            .optimizer = &rates[1], .site = &site, .steps = 5, .checkpoints = dir};
        learn(&lesson, params);
        site_begin(&other, site.options, false); /* servers that have nothing */
        for (size_t i = 0; i < SERVERS; i++)
            server_begin_again(&site, i);
        lesson.site = lost ? &other : &site;
        lesson.steps = 9;
        lesson.resume = true;
        trp_log_set_level(TRP_WARN);
        capture_begin(&log);
        learn(&lesson, params);
        capture_end(&log);
        trp_log_set_level(TRP_ERROR);
        assert_int_equal(captured_count(&log, "has kept nothing"), lost ? SERVERS : 0);
        learn_alone(&rates[1], 9, expected);
        assert_memory_equal(params, expected, sizeof expected);
        assert_int_equal(trp_parameter_server_read(lesson.site->lines[0].server).versions, 9);
        free(dir);
        site_end(&site);
        site_end(&other);
    }
}

/* ---- learners that differ ---------------------------------------------------------------------
 */

static const trp_optimizer of_the_first = {.kind = TRP_SGD, .learning_rate = 0.25};

/* One of two learners takes a step. */
static trp_status step_as(struct site *site, uint32_t worker, const trp_optimizer *optimizer,
                          const trp_net_tensor *tensor)
{
    struct falling *falling = falling_create(optimizer);
    trp_learner_servers servers = servers_of(site, worker, 2);
    char name[] = {(char)('a' + worker), '\0'};
    falling->base.vectors[0].tensors = tensor;
    falling->base.vectors[0].tensor_count = 1;
    trp_learner *learner;
    trp_learner_loop_options options = {
        .updater = &falling->base,
        .max_steps = 1,
        .group = {.mode = "server", .name = name, .timeout_ms = 5000, .servers = &servers}};
    assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
    trp_status status = trp_learner_run(learner);
    trp_learner_destroy(learner);
    return status;
}

static void expect_refusal(struct site *site, const trp_optimizer *optimizer,
                           const trp_net_tensor *tensor, const char *words)
{
    assert_int_equal(step_as(site, 1, optimizer, tensor), TRP_FAILED_PRECONDITION);
    if (!strstr(trp_last_error(), words))
        fail_msg("%s", trp_last_error());
}

static void who_would_learn_otherwise_is_refused_by_what_it_differs_in(void **state)
{
    (void)state;
    static const struct {
        trp_optimizer optimizer;
        const char *words;
    } others[] = {
        {{.kind = TRP_ADAGRAD, .learning_rate = 0.25},
         "kind is adagrad, that of a/0, which came "
         "first, is sgd: a server steps with one"},
        {{.kind = TRP_SGD, .learning_rate = 0.5},
         "learning_rate is 0.5, that of a/0, which came "
         "first, is 0.25: a server steps with one"},
        {{.kind = TRP_SGD, .learning_rate = 0.25, .momentum = 0.5}, "momentum is 0.5"},
        {{.kind = TRP_SGD, .learning_rate = 0.25, .momentum = 0.5, .nesterov = true}, "momentum"},
        {{.kind = TRP_SGD, .learning_rate = 0.25, .weight_decay = 0.5}, "weight_decay is 0.5"},
        {{.kind = TRP_SGD, .learning_rate = 0.25, .warmup_steps = 9}, "warmup_steps is 9"},
        {{.kind = TRP_SGD, .learning_rate = 0.25, .schedule = TRP_RATE_LINEAR, .schedule_steps = 9},
         "schedule is 1"},
    };
    static const trp_net_tensor tall = {
        .name = "w", .rank = 2, .shape = {COUNT, 1}, .count = COUNT};
    static const trp_net_tensor wide = {
        .name = "w", .rank = 2, .shape = {1, COUNT}, .count = COUNT};
    struct site site;
    site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, false);
    assert_int_equal(step_as(&site, 0, &of_the_first, &tall), TRP_OK);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_refusal(&site, &others[i].optimizer, &tall, others[i].words);
    expect_refusal(&site, &of_the_first, &wide,
                   "b/1 joins 'params' with other tensors in it than a/0, which came first");
    assert_int_equal(trp_parameter_server_read(site.lines[0].server).pushes, 1);
    trp_optimizer clips = of_the_first; /* which is a learner's own */
    clips.max_norm = 3;
    assert_int_equal(step_as(&site, 1, &clips, &tall), TRP_OK);
    site_end(&site);
}

/* As a resumed run with another rate: its servers have the numbers from their files, what is in a
 * log by the rate that it was taken with, and from there on the optimizer of who comes first. */
static void a_server_that_begins_again_takes_the_optimizer_of_who_comes_first(void **state)
{
    (void)state;
    static const trp_optimizer slow = {.kind = TRP_SGD, .learning_rate = 0.25};
    static const trp_optimizer fast = {.kind = TRP_SGD, .learning_rate = 0.5};
    struct site site;
    float params[COUNT];
    site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, false);
    struct lesson lesson = {.optimizer = &slow, .site = &site, .steps = 1};
    learn(&lesson, params);
    for (size_t i = 0; i < SERVERS; i++) /* the step is in the log */
        server_begin_again(&site, i);
    lesson.optimizer = &fast;
    lesson.steps = 2;
    learn(&lesson, params);
    for (size_t i = 0; i < SERVERS; i++) /* and the second in that of this life */
        server_begin_again(&site, i);
    lesson.optimizer = &slow;
    learn(&lesson, params);
    for (size_t i = 0; i < COUNT; i++) {
        double first = -0.25 * (1 - (double)(i % 11));
        assert_float_equal(params[i], first - 0.5 * (first + 2 - (double)(i % 11)), 1e-5);
    }
    site_end(&site);
}

/* ---- two learners ---------------------------------------------------------------------------- */

struct pair {
    struct site site;
    trp_gang *gang;
    struct pupil {
        struct pair *pair;
        uint32_t index;
        trp_stop *stop;
        trp_learner *learner;
        struct thread thread;
        trp_status status;
        char *words;
    } pupils[LEARNERS_HERE];
    struct mutex mutex;
    struct cond changed;
    bool hangs; /* pupil 1, in its third step */
    bool stops; /* the one when the other has ended, as a program does */
};

static void maybe_hang(struct falling *falling, uint64_t step)
{
    struct pupil *pupil = falling->context;
    struct pair *pair = pupil->pair;
    if (pupil->index != 1 || step != 3)
        return;
    mutex_lock(&pair->mutex);
    while (pair->hangs)
        cond_wait(&pair->changed, &pair->mutex, DEADLINE_NEVER);
    mutex_unlock(&pair->mutex);
}

static void pupil_run(void *arg)
{
    struct pupil *pupil = arg;
    pupil->status = trp_learner_run(pupil->learner);
    pupil->words = xstrdup(pupil->status == TRP_OK ? "" : trp_last_error());
    for (uint32_t i = 0; i < LEARNERS_HERE && pupil->pair->stops; i++)
        trp_stop_request(pupil->pair->pupils[i].stop);
    trp_gang_left(pupil->pair->gang, pupil->index, pupil->status == TRP_OK ? NULL : pupil->words);
    mutex_lock(&pupil->pair->mutex);
    if (pupil->index == 0)
        pupil->pair->hangs = false;
    cond_broadcast(&pupil->pair->changed);
    mutex_unlock(&pupil->pair->mutex);
}

struct circumstances {
    uint64_t more; /* steps for which pupil 1 goes on */
    bool hangs, goes_on;
    bool maps; /* gradients and values are in memory that both sides map */
};

/* Generations there were before. */
static void pair_run(struct pair *pair, trp_parameter_server_options options, uint64_t steps,
                     struct circumstances are)
{
    static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 0.25};
    *pair = (struct pair){.hangs = are.hangs, .stops = !are.hangs};
    mutex_init(&pair->mutex);
    cond_init(&pair->changed);
    site_begin(&pair->site, options, true);
    for (size_t i = 0; i < SERVERS; i++)
        line_let_map(&pair->site.lines[i], are.maps);
    pair->gang = trp_gang_create(&(trp_gang_options){
        .name = "learner", .count = LEARNERS_HERE, .keeps_nothing = true, .last_number = 5});
    for (uint32_t i = 0; i < LEARNERS_HERE; i++) {
        struct pupil *pupil = &pair->pupils[i];
        struct falling *falling = falling_create(&sgd);
        trp_learner_servers servers = servers_of(&pair->site, i, LEARNERS_HERE);
        servers.goes_on = are.goes_on;
        *pupil = (struct pupil){.pair = pair, .index = i, .stop = trp_stop_create()};
        falling->happens = maybe_hang;
        falling->context = pupil;
        assert_int_equal(
            trp_learner_create(
                &pupil->learner,
                &(trp_learner_loop_options){.updater = &falling->base,
                                            .stop = pupil->stop,
                                            .publish_every = 1,
                                            .max_steps = steps + (i == 1 ? are.more : 0),
                                            .group = {.mode = "server",
                                                      .name = "learner",
                                                      .rendezvous = trp_gang_member(pair->gang, i),
                                                      .timeout_ms = are.hangs ? 4000 : 20000,
                                                      .servers = &servers}}),
            TRP_OK);
    }
    for (uint32_t i = 0; i < LEARNERS_HERE; i++)
        assert_int_equal(
            thread_start(&pair->pupils[i].thread, "learner", pupil_run, &pair->pupils[i]), TRP_OK);
    for (uint32_t i = 0; i < LEARNERS_HERE; i++)
        thread_stop(&pair->pupils[i].thread);
}

static void pair_end(struct pair *pair)
{
    for (uint32_t i = 0; i < LEARNERS_HERE; i++) {
        trp_learner_destroy(pair->pupils[i].learner);
        trp_stop_destroy(pair->pupils[i].stop);
        free(pair->pupils[i].words);
    }
    trp_gang_destroy(pair->gang);
    site_end(&pair->site);
    cond_cleanup(&pair->changed);
    mutex_cleanup(&pair->mutex);
}

/* What servers count are reads, whoever may: those of a learner that nobody holds back are as far
 * ahead of one that never pushes as it has pushed. Bytes are of what is sent: of five steps those
 * of five vectors each way. */
static void reads_are_counted_where_they_happen(void **state)
{
    uint64_t pushed[2] = {0}, pulled[2] = {0};
    (void)state;
    for (uint32_t maps = 0; maps < 2; maps++) {
        struct site site;
        site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, true);
        for (size_t i = 0; i < SERVERS; i++)
            line_let_map(&site.lines[i], maps);
        struct falling *falling = falling_create(&of_the_first);
        trp_learner_servers servers = servers_of(&site, 0, 2);
        trp_learner *learner;
        trp_learner_loop_options options = {
            .updater = &falling->base,
            .max_steps = 5,
            .group = {.mode = "server", .timeout_ms = 5000, .servers = &servers}};
        assert_int_equal(trp_learner_create(&learner, &options), TRP_OK);
        assert_int_equal(trp_learner_run(learner), TRP_OK);
        for (size_t i = 0; i < SERVERS; i++) {
            trp_parameter_server_counters counters =
                trp_parameter_server_read(site.lines[i].server);
            assert_int_equal(counters.most_behind, 5);
            pushed[maps] += counters.push_bytes;
            pulled[maps] += counters.pull_bytes;
        }
        trp_learner_destroy(learner);
        site_end(&site);
    }
    assert_int_equal(pushed[0], 5 * COUNT * sizeof(float));
    assert_int_equal(pushed[1], 0);
    assert_int_equal(pulled[0] - pulled[1], 5 * COUNT * sizeof(float));
    assert_int_equal(pulled[1] % (COUNT * sizeof(float)), 0); /* to begin with, and to save */
}

static void two_learners_stay_within_the_slack(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t slack = i / 2;
        struct pair pair;
        /* One ends with the last step of all; nobody waits for it then. */
        pair_run(&pair, (trp_parameter_server_options){.rule = TRP_SERVER_SSP, .slack = slack}, 200,
                 (struct circumstances){.goes_on = true, .maps = i % 2 == 1});
        for (size_t k = 0; k < SERVERS; k++) {
            trp_parameter_server_counters counters =
                trp_parameter_server_read(pair.site.lines[k].server);
            assert_true(counters.most_behind <= slack);
            assert_true(counters.pushes >= 200);
        }
        pair_end(&pair);
    }
}

static void who_does_not_push_is_named(void **state)
{
    (void)state;
    struct pair pair;
    pair_run(&pair, (trp_parameter_server_options){.rule = TRP_SERVER_SYNC}, 40,
             (struct circumstances){.hangs = true});
    assert_int_equal(pair.pupils[0].status, TRP_ABORTED); /* not asked for again */
    assert_null(strstr(pair.pupils[0].words, "did not answer"));
    assert_non_null(
        strstr(pair.pupils[0].words, "learner/1 (number 1) has not pushed to 'params'"));
    assert_non_null(strstr(pair.pupils[0].words, "learner/0 waits for it"));
    pair_end(&pair);
}

static void others_go_on_without_who_does_not_push(void **state)
{
    (void)state;
    struct pair pair;
    pair_run(&pair, (trp_parameter_server_options){.rule = TRP_SERVER_SYNC}, 40,
             (struct circumstances){.hangs = true, .goes_on = true});
    assert_int_equal(pair.pupils[0].status, TRP_OK);
    assert_int_equal(pair.pupils[1].status, TRP_OK); /* it came back, and ended with the others */
    assert_true(trp_parameter_server_read(pair.site.lines[0].server).pushes >= 40);
    pair_end(&pair);
}

/* The one that led has published much more often. */
static void who_leads_next_publishes_above_all_that_were_used(void **state)
{
    (void)state;
    struct pair pair;
    pair_run(&pair, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, 40,
             (struct circumstances){.more = 20, .hangs = true, .goes_on = true});
    assert_int_equal(pair.pupils[0].status, TRP_OK);
    assert_int_equal(pair.pupils[1].status, TRP_OK);
    assert_true(trp_learner_read(pair.pupils[1].learner).version >
                trp_learner_read(pair.pupils[0].learner).version);
    pair_end(&pair);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_learner_has_the_bits_of_one_that_is_alone),
        cmocka_unit_test(downpour_pushes_the_sum_of_its_steps),
        cmocka_unit_test(downpour_pushes_what_it_has_when_it_fails),
        cmocka_unit_test(the_same_keys_are_sent_once),
        cmocka_unit_test(keys_that_were_given_up_are_asked_for_again),
        cmocka_unit_test(lost_answers_make_no_gradient_count_twice),
        cmocka_unit_test(a_push_that_was_kept_before_the_death_of_its_server_counts_once),
        cmocka_unit_test(a_server_goes_on_from_its_log_to_the_bit),
        cmocka_unit_test(a_torn_record_is_cut_off),
        cmocka_unit_test(without_a_log_no_version_is_used_twice),
        cmocka_unit_test(a_learner_goes_on_with_its_servers_or_its_checkpoint),
        cmocka_unit_test(who_would_learn_otherwise_is_refused_by_what_it_differs_in),
        cmocka_unit_test(a_server_that_begins_again_takes_the_optimizer_of_who_comes_first),
        cmocka_unit_test(reads_are_counted_where_they_happen),
        cmocka_unit_test(two_learners_stay_within_the_slack),
        cmocka_unit_test(who_does_not_push_is_named),
        cmocka_unit_test(others_go_on_without_who_does_not_push),
        cmocka_unit_test(who_leads_next_publishes_above_all_that_were_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
