/* Learners on one vector without locks: steps a second of two of them next to those of one, and of
 * one next to those of a learner that shares nothing, where gradients have few numbers and where
 * they have all, and of A3C on CartPole. They take turns, so that what else the machine does meets
 * all. */
#include <stdio.h>
#include <stdlib.h>

#include <troupe/troupe.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"

enum { LEARNERS_MAX = 2, REPEATS = 5, FEATURES_MAX = 1024 };

static void check(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_hogwild: %s: %s\n", trp_status_name(status), trp_last_error());
    exit(1);
}

/* ---- least squares --------------------------------------------------------------------------- */

/* Rows x of a linear model of `numbers`, each with `features` of them: half of (x y - b)^2. */
struct problem {
    const char *name;
    size_t numbers, features, rows; /* rows of a gradient */
    uint64_t steps;                 /* of a run */
};

static const struct problem problems[] = {
    {"sparse: 30 of 262144 numbers", 262144, 30, 1, 4000},
    {"dense: all of 1024 numbers, 16 rows", 1024, 1024, 16, 20000},
};

struct squares {
    trp_updater base;
    const struct problem *problem;
    float *x; /* of a row that is dense */
};

/* Where its feature k lies; the first of those that follow each other. */
static size_t place_of(const struct squares *squares, trp_rng *rng)
{
    const struct problem *problem = squares->problem;
    return problem->features == problem->numbers ? 0 : trp_rng_below(rng, problem->numbers);
}

static void add_sparse(const struct squares *squares, const trp_update *update)
{
    const struct problem *problem = squares->problem;
    size_t places[FEATURES_MAX];
    float error = -1;
    for (size_t k = 0; k < problem->features; k++) {
        places[k] = place_of(squares, update->rng);
        error += squares->x[k] * update->vectors[0][places[k]];
    }
    for (size_t k = 0; k < problem->features; k++)
        update->grads[0][places[k]] += error * squares->x[k];
}

static void add_dense(const struct squares *squares, const trp_update *update)
{
    size_t shift = trp_rng_below(update->rng, 8), count = squares->problem->features - 8;
    const float *x = squares->x + shift, *y = update->vectors[0];
    float *grads = update->grads[0], sums[8] = {-1};
    for (size_t i = 0; i < count; i += 8)
        for (size_t k = 0; k < 8; k++)
            sums[k] += x[i + k] * y[i + k];
    float error = 0;
    for (size_t k = 0; k < 8; k++)
        error += sums[k];
    for (size_t i = 0; i < count; i++)
        grads[i] += error * x[i];
}

static trp_status squares_step(trp_updater *updater, const trp_update *update)
{
    const struct squares *squares = (const struct squares *)updater;
    bool dense = squares->problem->features == squares->problem->numbers;
    for (size_t row = 0; row < squares->problem->rows; row++)
        if (dense)
            add_dense(squares, update);
        else
            add_sparse(squares, update);
    return trp_update_apply(update, 0);
}

static void squares_destroy(trp_updater *updater)
{
    free(((struct squares *)updater)->x);
    free(updater);
}

static trp_updater *squares_create(const struct problem *problem)
{
    static const trp_updater_impl impl = {.step = squares_step, .destroy = squares_destroy};
    struct squares *squares = xcalloc(1, sizeof *squares);
    *squares = (struct squares){.problem = problem, .x = xcalloc(problem->features, sizeof(float))};
    for (size_t i = 0; i < problem->features; i++)
        squares->x[i] = (float)(i % 7) / 7 / (float)problem->features;
    squares->base = (trp_updater){.impl = &impl, .vector_count = 1};
    squares->base.vectors[0] = (trp_vector_spec){
        .name = "params",
        .count = problem->numbers,
        .learned = true,
        .optimizer = {.kind = TRP_SGD, .learning_rate = 1e-3},
    };
    return &squares->base;
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct member {
    trp_learner *learner;
    struct thread thread;
};

static void member_run(void *arg)
{
    check(trp_learner_run(((struct member *)arg)->learner));
}

/* `gang` NULL: it learns alone. */
static trp_learner_loop_options loop_of(trp_gang *gang, uint32_t index, uint64_t steps)
{
    trp_learner_loop_options loop = {.max_steps = steps, .seed = 1 + index};
    if (gang) {
        loop.group.rendezvous = trp_gang_member(gang, index);
        loop.group.mode = "hogwild";
    }
    return loop;
}

static void make_squares(struct member *member, trp_gang *gang, uint32_t index, const void *what)
{
    const struct problem *problem = what;
    trp_learner_loop_options loop = loop_of(gang, index, problem->steps);
    loop.updater = squares_create(problem);
    loop.publish_every = 1000000;
    check(trp_learner_create(&member->learner, &loop));
}

enum { A3C_STEPS = 20000 };

static void make_a3c(struct member *member, trp_gang *gang, uint32_t index, const void *what)
{
    const trp_agent *agent = what;
    check(trp_agent_learner_create(
        &member->learner, agent,
        &(trp_agent_learner_options){.env = "CartPole-v1",
                                     .rollout = {.name = "learner", .copies = 1, .index = index},
                                     .seed = 1,
                                     .loop = loop_of(gang, index, A3C_STEPS)}));
}

typedef void (*make_member)(struct member *member, trp_gang *gang, uint32_t index,
                            const void *what);

/* Steps a second of so many learners together; 0: of one that shares nothing. */
static double rate(make_member make, const void *what, uint32_t sharing)
{
    struct member members[LEARNERS_MAX];
    uint32_t count = sharing > 0 ? sharing : 1;
    trp_gang *gang = sharing > 0
                         ? trp_gang_create(&(trp_gang_options){.name = "learner", .count = count})
                         : NULL;
    for (uint32_t i = 0; i < count; i++)
        make(&members[i], gang, i, what);
    int64_t since = clock_now_ns(&clock_monotonic);
    for (uint32_t i = 0; i < count; i++)
        check(thread_start(&members[i].thread, "learner", member_run, &members[i]));
    for (uint32_t i = 0; i < count; i++)
        thread_stop(&members[i].thread);
    double seconds = (double)(clock_now_ns(&clock_monotonic) - since) * 1e-9;
    uint64_t steps = trp_learner_read(members[0].learner).steps;
    for (uint32_t i = 0; i < count; i++)
        trp_learner_destroy(members[i].learner);
    trp_gang_destroy(gang);
    return (double)steps / seconds;
}

static void show(const char *name, make_member make, const void *what)
{
    double best[LEARNERS_MAX + 1] = {0};
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (uint32_t sharing = 0; sharing <= LEARNERS_MAX; sharing++) {
            double one = rate(make, what, sharing);
            best[sharing] = one > best[sharing] ? one : best[sharing];
        }
    printf("Hogwild, 1 thread, %s\t%.0f\tsteps/s\t%.0f\tnothing shared\n", name, best[1], best[0]);
    printf("Hogwild, 2 threads, %s\t%.0f\tsteps/s\t%.0f\t1 thread\n", name, best[2], best[1]);
    fflush(stdout);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        show(problems[i].name, make_squares, &problems[i]);
    trp_agent agent = trp_a3c(NULL);
    show("A3C on CartPole-v1", make_a3c, &agent);
    return 0;
}
