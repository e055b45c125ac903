/* Learners on one vector: one makes the bits of a learner that is alone, several lose nothing where
 * their gradients have nothing in common, and what anybody reads was stored by somebody. Threads
 * and processes, some of which are killed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include <troupe/log.h>
#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "learner/modes/hogwild.h"

/* ---- learners -------------------------------------------------------------------------------- */

struct member {
    trp_queue *queue;
    struct vectors vectors;
    struct mode *mode;
    float *values, *grads;
    struct thread thread;
    uint32_t rank, size;
    size_t vector_count; /* 0: 1 */
    trp_rendezvous *rendezvous;
};

static void member_begin(struct member *member, const trp_vector_spec *spec, bool alone)
{
    trp_device *device;
    assert_int_equal(trp_device_find(&device, NULL), TRP_OK);
    assert_int_equal(trp_queue_create(&member->queue, device), TRP_OK);
    assert_int_equal(vectors_create(&member->vectors, device, member->queue, spec,
                                    member->vector_count ? member->vector_count : 1),
                     TRP_OK);
    if (alone)
        member->mode = alone_create(&member->vectors);
    else if (hogwild_create(&member->mode, &member->vectors,
                            &(struct learners_options){.name = "learner",
                                                       .rendezvous = member->rendezvous}) != TRP_OK)
        fail_msg("%s", trp_last_error());
    member->values = member->vectors.each[0].values.here;
    member->grads = member->vectors.each[0].grads;
}

static void member_end(struct member *member)
{
    member->mode->impl->destroy(member->mode);
    vectors_cleanup(&member->vectors);
    trp_queue_destroy(member->queue);
}

static void group_begin(struct member *members, uint32_t count, const trp_vector_spec *spec)
{
    for (uint32_t i = 0; i < count; i++) {
        members[i] = (struct member){.rank = i, .size = count};
        member_begin(&members[i], spec, false);
        if (i > 0 && hogwild_join(members[i].mode, hogwild_address(members[0].mode), "learner/0"))
            fail_msg("%s", trp_last_error());
    }
}

static void group_run(struct member *members, uint32_t count, void (*run)(void *))
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(thread_start(&members[i].thread, "member", run, &members[i]), TRP_OK);
    for (uint32_t i = 0; i < count; i++)
        thread_stop(&members[i].thread);
}

static void group_end(struct member *members, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        member_end(&members[i]);
}

static void apply(struct member *member)
{
    trp_status status = member->mode->impl->apply(member->mode, 0);
    assert(status == TRP_OK);
}

/* ---- one learner ----------------------------------------------------------------------------- */

/* Numbers of some blocks, or of all. */
static void draw_gradient(float *grads, size_t count, trp_rng *rng)
{
    bool some = trp_rng_below(rng, 2), here = true;
    for (size_t i = 0; i < count; i++) {
        if (i % 512 == 0)
            here = !some || trp_rng_below(rng, 3) == 0;
        grads[i] = here ? (float)trp_rng_normal(rng) : 0;
    }
}

static void assert_bits_of_alone(const trp_vector_spec *spec)
{
    struct member alone = {0}, shared = {0};
    trp_rng rng;
    trp_rng_init(&rng, spec->count, 0);
    member_begin(&alone, spec, true);
    member_begin(&shared, spec, false);
    for (size_t i = 0; i < spec->count; i++)
        alone.values[i] = shared.values[i] = (float)trp_rng_normal(&rng);
    assert_int_equal(shared.mode->impl->meet(shared.mode, &(struct mode_meeting){0}), TRP_OK);
    for (int step = 0; step < 12; step++) {
        draw_gradient(alone.grads, spec->count, &rng);
        if (step == 5 && spec->optimizer.skip_not_finite)
            alone.grads[spec->count / 2] = NAN;
        memcpy(shared.grads, alone.grads, spec->count * sizeof(float));
        apply(&alone);
        apply(&shared);
        assert_memory_equal(alone.values, shared.values, spec->count * sizeof(float));
        for (size_t i = 0; i < spec->count; i++)
            assert_true(shared.grads[i] == 0);
    }
    assert_int_equal(shared.mode->impl->gather(shared.mode), TRP_OK);
    assert_memory_equal(alone.values, shared.values, spec->count * sizeof(float));
    for (size_t k = 0; k < trp_optimizer_states(&spec->optimizer); k++)
        assert_memory_equal(alone.vectors.each[0].state[k].here,
                            shared.vectors.each[0].state[k].here, spec->count * sizeof(float));
    assert_memory_equal(alone.vectors.each[0].phases.here, shared.vectors.each[0].phases.here,
                        sizeof(trp_phases));
    member_end(&alone);
    member_end(&shared);
}

static void one_learner_makes_the_bits_of_one_alone(void **state)
{
    (void)state;
    static const trp_optimizer optimizers[] = {
        {.kind = TRP_SGD, .learning_rate = 0.1},
        {.kind = TRP_SGD, .learning_rate = 0.1, .max_norm = 0.5},
        {.kind = TRP_SGD, .learning_rate = 0.1, .weight_decay = 0.01},
        {.kind = TRP_SGD, .learning_rate = 0.1, .skip_not_finite = true},
        {.kind = TRP_RMSPROP, .learning_rate = 0.01, .epsilon_inside = true, .max_norm = 0.5},
        {.kind = TRP_RMSPROP, .learning_rate = 0.01, .centered = true, .momentum = 0.5},
        {.kind = TRP_ADAM, .learning_rate = 0.01, .skip_not_finite = true},
        {.kind = TRP_ADAM,
         .learning_rate = 0.01,
         .schedule = TRP_RATE_LINEAR,
         .schedule_steps = 10,
         .warmup_steps = 4},
    };
    static const size_t counts[] = {1, 17, 1024, 1025, 5000};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            assert_bits_of_alone(&(trp_vector_spec){
                .name = "params", .count = counts[k], .learned = true, .optimizer = optimizers[i]});
}

static void what_is_not_finite_is_not_shared(void **state)
{
    (void)state;
    const trp_vector_spec spec = {
        .name = "params", .count = 40, .learned = true, .optimizer = {.learning_rate = 0.1}};
    struct member members[2];
    group_begin(members, 2, &spec);
    members[0].grads[7] = INFINITY;
    apply(&members[0]);
    assert_true(((trp_phases *)members[0].vectors.each[0].phases.here)->refused);
    members[1].grads[3] = 1;
    apply(&members[1]);
    for (size_t i = 0; i < 40; i++)
        assert_true(isfinite(members[1].values[i]) && (members[1].values[i] != 0) == (i == 3));
    group_end(members, 2);
}

/* A target network, say: each has its own, and a new one begins with the leader's. */
static void what_is_not_learned_is_the_leaders_for_who_joins(void **state)
{
    (void)state;
    trp_vector_spec specs[2] = {
        {.name = "params", .count = 5, .learned = true},
        {.name = "target", .count = 1500},
    };
    struct member members[2] = {{0}};
    for (uint32_t i = 0; i < 2; i++) {
        members[i].vector_count = 2;
        member_begin(&members[i], specs, false);
    }
    float *target = members[0].vectors.each[1].values.here;
    for (size_t i = 0; i < 1500; i++)
        target[i] = (float)i;
    members[0].mode->impl->next_version(members[0].mode, 1);
    target[3] = 77; /* not published yet */
    assert_int_equal(hogwild_join(members[1].mode, hogwild_address(members[0].mode), "learner/0"),
                     TRP_OK);
    for (size_t i = 0; i < 1500; i++)
        assert_true(((float *)members[1].vectors.each[1].values.here)[i] == (float)i);
    assert_int_equal(members[0].mode->impl->gather(members[0].mode), TRP_OK);
    assert_true(target[3] == 77);
    group_end(members, 2);
}

/* ---- several --------------------------------------------------------------------------------- */

enum { NUMBERS = 3000, ROUNDS = 300, THREADS = 4 };

/* The gradient of half the square of a number's distance from a place of its own. */
static float pull(size_t i, float value)
{
    return value - (float)(i % 97);
}

static void pull_own(void *arg)
{
    struct member *member = arg;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = member->rank; i < NUMBERS; i += member->size)
            member->grads[i] = pull(i, member->values[i]);
        apply(member);
    }
}

static void learners_with_nothing_in_common_lose_nothing(void **state)
{
    (void)state;
    const trp_vector_spec spec = {.name = "params",
                                  .count = NUMBERS,
                                  .learned = true,
                                  .optimizer = {.kind = TRP_SGD, .learning_rate = 0.003}};
    struct member members[THREADS], serial = {0};
    group_begin(members, THREADS, &spec);
    group_run(members, THREADS, pull_own);
    member_begin(&serial, &spec, true);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < NUMBERS; i++)
            serial.grads[i] = pull(i, serial.values[i]);
        apply(&serial);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(members[i].mode->impl->gather(members[i].mode), TRP_OK);
        assert_memory_equal(members[i].values, serial.values, NUMBERS * sizeof(float));
        assert_int_equal(vector_phases(&members[i].vectors.each[0])->steps, THREADS * ROUNDS);
    }
    member_end(&serial);
    group_end(members, THREADS);
}

/* What a learner has not touched it has from the others after its next phase. */
static void a_copy_has_what_others_did(void **state)
{
    (void)state;
    static const trp_optimizer optimizers[] = {{.kind = TRP_SGD, .learning_rate = 1},
                                               {.kind = TRP_ADAM, .learning_rate = 0.1}};
    for (size_t i = 0; i < 2; i++) {
        const trp_vector_spec spec = {
            .name = "params", .count = NUMBERS, .learned = true, .optimizer = optimizers[i]};
        struct member members[2];
        group_begin(members, 2, &spec);
        for (int round = 0; round < 3; round++) {
            members[0].grads[2500] = members[0].grads[1] = 1;
            apply(&members[0]);
            members[1].grads[2] = 1;
            apply(&members[1]);
            assert_int_equal(vector_phases(&members[1].vectors.each[0])->steps, 2 * round + 2);
            for (size_t at = 0; at < NUMBERS; at++)
                assert_int_equal(members[1].values[at] < 0, at == 1 || at == 2 || at == 2500);
        }
        group_end(members, 2);
    }
}

/* Everybody adds to every number, rank 0 ones and rank 1 thousands: a number is a sum of some of
 * each, whoever reads it whenever. */
enum { STEPS = 400, THOUSAND = 1024 };

static atomic_bool readers_stop;

static void add_to_all(void *arg)
{
    struct member *member = arg;
    for (int round = 0; round < STEPS; round++) {
        for (size_t i = 0; i < NUMBERS; i++)
            member->grads[i] = member->rank == 0 ? -1 : -THOUSAND;
        apply(member);
    }
}

static bool is_sum(float value)
{
    int64_t whole = (int64_t)value;
    return value >= 0 && (float)whole == value && whole % THOUSAND <= STEPS &&
           whole / THOUSAND <= STEPS;
}

static void check_all(struct member *member)
{
    member->mode->impl->gather(member->mode);
    for (size_t i = 0; i < NUMBERS; i++)
        assert(is_sum(member->values[i]));
}

static void read_all(void *arg)
{
    while (!atomic_load(&readers_stop))
        check_all(arg);
}

static void whatever_is_read_was_stored(void **state)
{
    (void)state;
    const trp_vector_spec spec = {.name = "params",
                                  .count = NUMBERS,
                                  .learned = true,
                                  .optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
    struct member members[3];
    group_begin(members, 3, &spec);
    atomic_store(&readers_stop, false);
    assert_int_equal(thread_start(&members[2].thread, "reader", read_all, &members[2]), TRP_OK);
    group_run(members, 2, add_to_all);
    atomic_store(&readers_stop, true);
    thread_stop(&members[2].thread);
    check_all(&members[2]);
    double sum = 0;
    for (size_t i = 0; i < NUMBERS; i++) {
        assert_true(members[2].values[i] > 0);
        sum += (double)members[2].values[i];
    }
    print_message("of what two learners added %.1f %% is there\n",
                  100 * sum / NUMBERS / (STEPS * (THOUSAND + 1.0)));
    group_end(members, 3);
}

/* ---- a problem that is known ----------------------------------------------------------------- */

/* The mean over rows of half of (x y - b)^2 + 0.1 y^2, where x has few numbers: strongly convex. */
enum { FEATURES = 400, SEEN = 8, ROWS = 2000, PHASES = 12000, BATCH = 4, SEEDS = 20 };

struct problem {
    uint16_t features[ROWS][SEEN];
    float x[ROWS][SEEN], b[ROWS];
    uint64_t seed;
};

static struct problem problem;

static void problem_make(void)
{
    trp_rng rng;
    trp_rng_init(&rng, 77, 0);
    for (size_t row = 0; row < ROWS; row++) {
        problem.b[row] = 0.3F * (float)trp_rng_normal(&rng);
        for (size_t k = 0; k < SEEN; k++) {
            problem.features[row][k] = (uint16_t)trp_rng_below(&rng, FEATURES);
            problem.x[row][k] = (float)trp_rng_normal(&rng);
            problem.b[row] += problem.x[row][k] * (float)(problem.features[row][k] % 5);
        }
    }
}

static float row_error(size_t row, const float *y)
{
    float error = -problem.b[row];
    for (size_t k = 0; k < SEEN; k++)
        error += problem.x[row][k] * y[problem.features[row][k]];
    return error;
}

static double problem_loss(const float *y)
{
    double loss = 0;
    for (size_t row = 0; row < ROWS; row++) {
        double error = (double)row_error(row, y);
        loss += error * error / 2 / ROWS;
    }
    return loss;
}

static void descend(void *arg)
{
    struct member *member = arg;
    trp_rng rng;
    trp_rng_init(&rng, problem.seed, member->rank);
    for (uint32_t phase = 0; phase < PHASES / member->size; phase++) {
        for (size_t i = 0; i < BATCH; i++) {
            size_t row = (size_t)trp_rng_below(&rng, ROWS);
            float error = row_error(row, member->values);
            for (size_t k = 0; k < SEEN; k++) {
                size_t at = problem.features[row][k];
                member->grads[at] +=
                    (problem.x[row][k] * error + 0.001F * member->values[at]) / BATCH;
            }
        }
        apply(member);
    }
}

struct losses {
    double mean, deviation; /* of the mean */
};

/* What `size` learners together reach, over seeds from `seed` on. */
static struct losses losses_of(uint32_t size, uint64_t seed)
{
    const trp_vector_spec spec = {.name = "params",
                                  .count = FEATURES,
                                  .learned = true,
                                  .optimizer = {.kind = TRP_SGD, .learning_rate = 0.05}};
    double sum = 0, squares = 0;
    for (problem.seed = seed; problem.seed < seed + SEEDS; problem.seed++) {
        struct member members[THREADS];
        group_begin(members, size, &spec);
        group_run(members, size, descend);
        assert_int_equal(members[0].mode->impl->gather(members[0].mode), TRP_OK);
        double loss = problem_loss(members[0].values);
        sum += loss, squares += loss * loss;
        group_end(members, size);
    }
    double mean = sum / SEEDS, variance = fmax(squares / SEEDS - mean * mean, 0);
    return (struct losses){mean, sqrt(variance / (SEEDS - 1))};
}

static bool learn_alike(uint32_t size, uint64_t seed)
{
    float zeros[FEATURES] = {0};
    struct losses one = losses_of(1, seed), many = losses_of(size, seed);
    double sigma = hypot(one.deviation, many.deviation), least = 0.01 * problem_loss(zeros);
    print_message("loss %.2f; of one learner %.5f, of %u %.5f, sigma %.5f\n", 100 * least, one.mean,
                  size, many.mean, sigma);
    return one.mean < least && many.mean < least && fabs(many.mean - one.mean) <= 3 * sigma;
}

/* Chance alone is beyond three sigma now and then, but not twice. */
static void several_learn_what_one_learns(void **state)
{
    (void)state;
    problem_make();
    for (uint32_t size = 2; size <= THREADS; size *= 2)
        assert_true(learn_alike(size, 1) || learn_alike(size, 1 + SEEDS));
}

/* ---- who may join ---------------------------------------------------------------------------- */

static const trp_vector_spec plain = {.name = "params",
                                      .count = NUMBERS,
                                      .learned = true,
                                      .optimizer = {.kind = TRP_SGD, .learning_rate = 1}};

static void assert_join_refused(struct member *member, const char *address, trp_status status,
                                const char *words)
{
    assert_int_equal(hogwild_join(member->mode, address, "learner/7"), status);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' does not say '%s'", trp_last_error(), words);
    member->grads[0] = -1; /* it goes on with what it had */
    apply(member);
}

static void who_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    struct member one = {0}, other = {0};
    char address[256];
    trp_vector_spec specs[] = {plain, plain, plain};
    specs[0].count++;
    specs[1].name = "critic";
    specs[2].count += 64;
    member_begin(&one, &plain, false);
    for (size_t i = 0; i < 3; i++) {
        member_begin(&other, &specs[i], false);
        assert_join_refused(&one, hogwild_address(other.mode), TRP_FAILED_PRECONDITION,
                            "learner/7 shares");
        member_end(&other);
    }
    assert_join_refused(&one, "nonsense", TRP_INVALID_ARGUMENT,
                        "learner/7 says it is at 'nonsense'");
    assert_join_refused(&one, "memory:another-boot:1:3:far", TRP_FAILED_PRECONDITION,
                        "learner/7 is on the host far");
    member_begin(&other, &plain, false);
    snprintf(address, sizeof address, "%s", hogwild_address(other.mode));
    member_end(&other);
    assert_join_refused(&one, address, TRP_UNAVAILABLE, "the memory of learner/7 is not there");
    assert_true(one.values[0] == 6);
    member_end(&one);
}

static void other_optimizers_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        trp_optimizer optimizer;
        const char *words;
    } rows[] = {
        {{.kind = TRP_LAMB}, "learner: 'params': the optimizer is lamb, and the mode hogwild has"},
        {{.kind = TRP_ADAMW}, "the optimizer is adamw, and the mode hogwild has"},
        {{.kind = TRP_SGD, .momentum = 0.9}, "sgd with momentum, and the mode hogwild"}};
    trp_rendezvous nowhere = {0};
    const struct mode_options options = {.name = "hogwild", .group.rendezvous = &nowhere};
    for (size_t i = 0; i < 3; i++) {
        struct member member = {0};
        const trp_vector_spec spec = {
            .name = "params", .count = 3, .learned = true, .optimizer = rows[i].optimizer};
        member_begin(&member, &spec, true);
        struct mode *mode;
        assert_int_equal(mode_create(&mode, &member.vectors, &options), TRP_INVALID_ARGUMENT);
        assert_null(mode);
        assert_non_null(strstr(trp_last_error(), rows[i].words));
        member_end(&member);
    }
}

/* ---- generations ----------------------------------------------------------------------------- */

/* A rendezvous with the generations that a test says, from number 1 on. */
struct planned {
    trp_rendezvous base;
    trp_generation generations[2];
    uint64_t newest;
};

static trp_status planned_announce(trp_rendezvous *base, const char *address)
{
    (void)base;
    (void)address;
    return TRP_OK;
}

static trp_status planned_next(trp_rendezvous *base, uint64_t after, int64_t timeout_ms,
                               trp_generation *generation)
{
    const struct planned *planned = (const struct planned *)base;
    (void)timeout_ms;
    assert_true(after < planned->newest);
    *generation = planned->generations[planned->newest - 1];
    return TRP_OK;
}

static uint64_t planned_newest(const trp_rendezvous *base)
{
    return ((const struct planned *)base)->newest;
}

static void planned_broken(trp_rendezvous *base, uint64_t number, const char *why)
{
    (void)base;
    fail_msg("generation %llu is broken: %s", (unsigned long long)number, why);
}

static uint64_t meet(struct member *member)
{
    trp_rng rng;
    struct mode_meeting meeting = {
        .version = 1, .generation = 1, .version_gap = 1 << 20, .rng = &rng};
    trp_rng_init(&rng, 1, 0);
    assert_false(member->mode->leads); /* it publishes nothing before it has met the others */
    assert_int_equal(member->mode->impl->meet(member->mode, &meeting), TRP_OK);
    return meeting.version;
}

/* The first one leads, publishes often, and is gone before the second has seen its memory. */
static void who_leads_next_uses_no_version_again(void **state)
{
    static const trp_rendezvous_impl impl = {.announce = planned_announce,
                                             .next = planned_next,
                                             .newest = planned_newest,
                                             .broken = planned_broken};
    static const uint32_t numbers[] = {0, 1};
    (void)state;
    struct planned planned[2];
    struct member members[2] = {{.rendezvous = &planned[0].base}, {.rendezvous = &planned[1].base}};
    char *addresses[2];
    for (uint32_t i = 0; i < 2; i++) {
        planned[i] = (struct planned){.base.impl = &impl, .newest = 1};
        member_begin(&members[i], &plain, false);
        addresses[i] = xstrdup(hogwild_address(members[i].mode));
    }
    for (uint32_t i = 0; i < 2; i++)
        planned[i].generations[0] = (trp_generation){.number = 1,
                                                     .founder = true,
                                                     .rank = i,
                                                     .size = 2,
                                                     .addresses = (const char *const *)addresses,
                                                     .members = numbers};
    planned[1].generations[1] = (trp_generation){.number = 2,
                                                 .founder = true,
                                                 .size = 1,
                                                 .addresses = (const char *const *)addresses + 1,
                                                 .members = numbers + 1};
    uint64_t used = meet(&members[0]);
    assert_true(members[0].mode->leads);
    for (uint32_t i = 0; i < 5000; i++) {
        uint64_t version = members[0].mode->impl->next_version(members[0].mode, used);
        assert_true(version > used);
        used = version;
    }
    member_end(&members[0]);
    uint64_t own = meet(&members[1]);
    assert_false(members[1].mode->leads);
    own = members[1].mode->impl->next_version(members[1].mode, own);
    planned[1].newest = 2;
    struct mode_round round = {.has_batch = true};
    assert_int_equal(members[1].mode->impl->end(members[1].mode, &round), TRP_OK);
    assert_true(members[1].mode->leads);
    assert_true(members[1].mode->impl->next_version(members[1].mode, own) > used);
    member_end(&members[1]);
    for (uint32_t i = 0; i < 2; i++)
        free(addresses[i]);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* A process that joins `address` and adds thousands until it is killed. It writes a byte for each
 * of its first phases. */
static pid_t start_process(const char *address, int *said)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct member member = {.rank = 1, .size = 2};
        member_begin(&member, &plain, false);
        if (hogwild_join(member.mode, address, "learner/0") != TRP_OK)
            _exit(1);
        for (uint32_t phase = 0;; phase++) {
            for (size_t i = 0; i < NUMBERS; i++)
                member.grads[i] = -THOUSAND;
            apply(&member);
            if (phase < 3 && write(ends[1], "x", 1) != 1)
                _exit(1);
            if (phase == STEPS / 8 - 1)
                pause();
        }
    }
    close(ends[1]);
    *said = ends[0];
    return pid;
}

static void hear(int said, int count)
{
    char byte;
    for (int i = 0; i < count; i++)
        assert_int_equal(read(said, &byte, 1), 1);
}

static void kill_process(pid_t pid, int said)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(said);
}

static void a_killed_process_leaves_a_vector_that_others_go_on_with(void **state)
{
    (void)state;
    int said;
    struct member members[2];
    group_begin(members, 2, &plain);
    for (int life = 0; life < 5; life++) {
        pid_t pid = start_process(hogwild_address(members[life % 2].mode), &said);
        hear(said, 1 + life % 3);
        kill_process(pid, said);
        float before = members[0].values[NUMBERS - 1];
        for (size_t i = 0; i < NUMBERS; i++)
            members[0].grads[i] = -1;
        apply(&members[0]);
        check_all(&members[0]);
        check_all(&members[1]);
        assert_memory_equal(members[0].values, members[1].values, sizeof(float) * NUMBERS);
        assert_true(members[0].values[0] >= (float)THOUSAND * (float)(life + 1));
        assert_true(members[0].values[NUMBERS - 1] > before);
    }
    group_end(members, 2);
}

/* The memory is everybody's: it stays when the process is killed that made it, and who adopted it
 * has it at its own address. */
static void the_first_one_may_be_killed(void **state)
{
    (void)state;
    int addresses[2];
    char address[256] = "";
    struct member survivor = {0}, joiner = {0};
    assert_int_equal(pipe(addresses), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct member member = {.rank = 0};
        member_begin(&member, &plain, false);
        member.grads[5] = -42;
        apply(&member);
        const char *mine = hogwild_address(member.mode);
        if (write(addresses[1], mine, strlen(mine)) > 0)
            pause();
        _exit(1);
    }
    assert_true(read(addresses[0], address, sizeof address - 1) > 0);
    member_begin(&survivor, &plain, false);
    assert_int_equal(hogwild_join(survivor.mode, address, "learner/0"), TRP_OK);
    kill_process(pid, addresses[0]);
    close(addresses[1]);
    member_begin(&joiner, &plain, false);
    assert_int_equal(hogwild_join(joiner.mode, address, "learner/0"), TRP_UNAVAILABLE);
    assert_int_equal(hogwild_join(joiner.mode, hogwild_address(survivor.mode), "learner/1"),
                     TRP_OK);
    joiner.grads[6] = -1;
    apply(&joiner);
    survivor.grads[7] = -1;
    apply(&survivor);
    for (size_t i = 0; i < NUMBERS; i++)
        assert_true(survivor.values[i] == (i == 5 ? 42 : i == 6 || i == 7));
    member_end(&joiner);
    member_end(&survivor);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_learner_makes_the_bits_of_one_alone),
        cmocka_unit_test(what_is_not_finite_is_not_shared),
        cmocka_unit_test(what_is_not_learned_is_the_leaders_for_who_joins),
        cmocka_unit_test(learners_with_nothing_in_common_lose_nothing),
        cmocka_unit_test(a_copy_has_what_others_did),
        cmocka_unit_test(whatever_is_read_was_stored),
        cmocka_unit_test(several_learn_what_one_learns),
        cmocka_unit_test(who_does_not_fit_is_refused_by_name),
        cmocka_unit_test(other_optimizers_are_refused_by_name),
        cmocka_unit_test(who_leads_next_uses_no_version_again),
        cmocka_unit_test(a_killed_process_leaves_a_vector_that_others_go_on_with),
        cmocka_unit_test(the_first_one_may_be_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
