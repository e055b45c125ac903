/* Several plans with several threads each, in one process. */
#include "nn_tools.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>

#include <troupe/device.h>

enum { PLANS = 4, ROWS = 64, INPUTS = 12, OUTPUTS = 3, PASSES = 200 };

static const trp_mlp_options mlp = {.inputs = INPUTS, .hidden = {40, 24}, .outputs = OUTPUTS};

static int threads_of_process(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* A thread that was joined may be there for a moment. */
static void assert_threads(int count)
{
    for (int i = 0; i < 1000000 && threads_of_process() > count; i++)
        sched_yield();
    assert_int_equal(threads_of_process(), count);
}

struct plan {
    trp_net *net;
    float *params, inputs[ROWS * INPUTS], outputs[ROWS * OUTPUTS], first[ROWS * OUTPUTS];
    bool differs;
};

static void plan_init(struct plan *plan, uint64_t seed, uint32_t threads)
{
    trp_net_spec spec = trp_mlp(&mlp);
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    OR_FAIL(trp_net_create(&plan->net,
                           &(trp_net_options){.spec = &spec, .batch = ROWS, .threads = threads}));
    plan->params = trp_floats_create(trp_net_param_count(&spec));
    trp_net_init(&spec, &rng, plan->params);
    for (int i = 0; i < ROWS * INPUTS; i++)
        plan->inputs[i] = (float)trp_rng_normal(&rng);
    plan->differs = false;
}

static void plan_cleanup(struct plan *plan)
{
    trp_net_destroy(plan->net);
    trp_floats_destroy(plan->params);
}

static void plan_forward(struct plan *plan)
{
    trp_net_rows rows = {.rows = ROWS, .inputs = {plan->inputs}, .outputs = {plan->outputs}};
    trp_net_forward(plan->net, plan->params, &rows);
}

static void plans_of_one_thread_share_its_workers(void **state)
{
    (void)state;
    static struct plan plans[PLANS];
    plan_init(&plans[0], 0, 2); /* a sanitizer may start a thread of its own */
    int before = threads_of_process() - 1;
    plan_cleanup(&plans[0]);
    for (int i = 0; i < PLANS; i++)
        plan_init(&plans[i], (uint64_t)i, 3);
    assert_threads(before + 2);
    struct plan wider, narrower;
    plan_init(&wider, 9, 4);
    assert_threads(before + 2 + 3);
    plan_init(&narrower, 9, 2);
    assert_threads(before + 2 + 3 + 1);
    plan_cleanup(&narrower);
    for (int i = 0; i + 1 < PLANS; i++) {
        plan_forward(&plans[i]);
        plan_cleanup(&plans[i]);
    }
    plan_cleanup(&wider);
    assert_threads(before + 2);
    plan_forward(&plans[PLANS - 1]);
    plan_cleanup(&plans[PLANS - 1]);
    assert_threads(before);
}

static void *run_passes(void *arg)
{
    struct plan *plan = arg;
    for (int i = 0; i < PASSES; i++) {
        plan_forward(plan);
        plan->differs |= memcmp(plan->outputs, plan->first, sizeof plan->first) != 0;
    }
    return NULL;
}

static void plans_of_one_thread_may_run_on_several_at_once(void **state)
{
    (void)state;
    static struct plan plans[PLANS];
    pthread_t threads[PLANS];
    for (int i = 0; i < PLANS; i++) {
        plan_init(&plans[i], (uint64_t)i, 2);
        plan_forward(&plans[i]);
        memcpy(plans[i].first, plans[i].outputs, sizeof plans[i].first);
    }
    for (int i = 0; i < PLANS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_passes, &plans[i]), 0);
    for (int i = 0; i < PLANS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(plans[i].differs);
        plan_cleanup(&plans[i]);
    }
}

static void *make_plan(void *plan)
{
    plan_init(plan, 5, 2);
    return NULL;
}

static void a_plan_outlives_the_thread_that_made_it(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan plan, other;
        pthread_t maker;
        assert_int_equal(pthread_create(&maker, NULL, make_plan, &plan), 0);
        pthread_join(maker, NULL);
        plan_init(&other, 5, 2);
        plan_forward(&plan);
        plan_forward(&other);
        assert_memory_equal(plan.outputs, other.outputs, sizeof plan.outputs);
        plan_cleanup(&plan);
        plan_forward(&other);
        plan_cleanup(&other);
    }
}

/* A kernel of the thread that made a plan, which ends on another one meanwhile. */
struct meanwhile {
    unsigned char *values; /* [1 << 20] */
    struct plan *plan;
    int *threads; /* of the process, as the plan is gone */
};

static void *end_plan(void *plan)
{
    plan_cleanup(plan);
    return NULL;
}

static void run_whole(void *arguments)
{
    const struct meanwhile *meanwhile = arguments;
    *meanwhile->threads = 0;
}

static void run_share(void *arguments, uint32_t share, uint32_t shares)
{
    const struct meanwhile *meanwhile = arguments;
    pthread_t ender;
    (void)shares;
    if (share > 0)
        return;
    assert_int_equal(pthread_create(&ender, NULL, end_plan, meanwhile->plan), 0);
    pthread_join(ender, NULL);
    *meanwhile->threads = threads_of_process();
}

static void a_kernel_keeps_the_workers_of_a_plan_that_ends_elsewhere(void **state)
{
    static const trp_kernel kernel = {
        .name = "test.meanwhile", .run = run_whole, .run_share = run_share};
    enum { BYTES = 1 << 20 };
    (void)state;
    struct plan plan;
    trp_device *device;
    trp_queue *queue;
    int before = threads_of_process(), during = 0;
    OR_FAIL(trp_device_find(&device, "cpu"));
    OR_FAIL(trp_queue_create(&queue, device));
    plan_init(&plan, 6, 3);
    struct meanwhile meanwhile = {calloc(BYTES, 1), &plan, &during};
    trp_operand operand = {offsetof(struct meanwhile, values), BYTES, TRP_READ | TRP_WRITE};
    trp_queue_run(queue, &kernel, &meanwhile, sizeof meanwhile, &operand, 1);
    assert_true(during >= before + 2);
    assert_threads(before);
    trp_queue_destroy(queue);
    free(meanwhile.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_one_thread_share_its_workers),
        cmocka_unit_test(plans_of_one_thread_may_run_on_several_at_once),
        cmocka_unit_test(a_plan_outlives_the_thread_that_made_it),
        cmocka_unit_test(a_kernel_keeps_the_workers_of_a_plan_that_ends_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
