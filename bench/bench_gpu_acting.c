/* An evaluator on a device: 256 episodes of 84x84 frames at once, stacks of four, Nature CNN. How
 * long a step of all of them takes, what the policy has of that, and what is left when there is
 * nothing but a copy of the new frames, the network's forward pass, and a copy of what it says.
 * Medians of several runs, by turns.
 *     bench_gpu_acting [DEVICE]    cuda:0 by default; without a GPU every row says so */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

#include "bench/film.h"
#include "bench/median.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/nvidia.h"

enum {
    COPIES = 256,
    SIDE = 84,
    FRAME = SIDE * SIDE,
    STACK = 4,
    FRAMES = 8, /* that there are */
    ACTIONS = 18,
    RUNS = 5,
    RUN_NS = 300000000,
    STEPS_LEAST = 2,
    STEPS_MOST = 500,
};

static void stop_on(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_gpu_acting: %s\n", trp_last_error());
    exit(1);
}

/* ---- an environment that costs no more than its frames -----------------------------------------
 */

static uint8_t table[FRAMES][FRAME];

static void stack_at(uint32_t step, uint8_t *stack)
{
    for (uint32_t i = 0; i < STACK; i++)
        memcpy(stack + i * FRAME, table[(step + i) % FRAMES], FRAME);
}

static void film_observe(const void *state, void *const *observations)
{
    stack_at(*(const uint32_t *)state, observations[0]);
}

static const trp_env_impl film_impl = {
    .spec = {.name = "Film",
             .observations = {{.dtype = TRP_UINT8, .rank = 3, .shape = {STACK, SIDE, SIDE}}},
             .action_count = ACTIONS},
    .state_bytes = sizeof(uint32_t),
    .reset = film_reset,
    .step = film_step,
    .observe = film_observe,
};

/* ---- the network alone -------------------------------------------------------------------------
 */

struct bare {
    trp_device *device;
    trp_queue *queue;
    trp_net *net;
    void *params, *frames, *stacks, *said;
    float *here;
};

static void *room_of(const struct bare *bare, size_t bytes)
{
    void *memory;
    stop_on(trp_device_alloc(bare->device, bytes, &memory));
    return memory;
}

static void bare_begin(struct bare *bare, trp_device *device, const float *params)
{
    trp_net_spec spec = trp_nature_cnn(
        &(trp_cnn_options){.height = SIDE, .width = SIDE, .channels = STACK, .outputs = ACTIONS});
    size_t count = trp_net_param_count(&spec);
    bare->device = device;
    stop_on(trp_queue_create(&bare->queue, device));
    stop_on(trp_net_create(
        &bare->net, &(trp_net_options){
                        .spec = &spec, .batch = COPIES, .device = device, .forward_only = true}));
    bare->params = room_of(bare, count * sizeof *params);
    bare->frames = room_of(bare, (size_t)COPIES * FRAME);
    bare->stacks = room_of(bare, (size_t)COPIES * STACK * FRAME);
    bare->said = room_of(bare, COPIES * ACTIONS * sizeof(float));
    bare->here = xcalloc(COPIES * ACTIONS, sizeof(float));
    trp_queue_copy(bare->queue, bare->params, params, count * sizeof *params);
    stop_on(trp_queue_sync(bare->queue, trp_queue_mark(bare->queue)));
}

static void bare_end(struct bare *bare)
{
    trp_net_destroy(bare->net);
    trp_queue_destroy(bare->queue);
    void *const all[] = {bare->params, bare->frames, bare->stacks, bare->said};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        trp_device_free(bare->device, all[i]);
    free(bare->here);
}

static void bare_step(struct bare *bare, const uint8_t *frames)
{
    trp_net_rows rows = {
        .rows = COPIES, .inputs = {bare->stacks}, .outputs = {bare->said}, .queue = bare->queue};
    trp_queue_copy(bare->queue, bare->frames, frames, (size_t)COPIES * FRAME);
    trp_net_forward(bare->net, bare->params, &rows);
    trp_queue_copy(bare->queue, bare->here, bare->said, COPIES * ACTIONS * sizeof(float));
    stop_on(trp_queue_sync(bare->queue, trp_queue_mark(bare->queue)));
}

/* ---- runs, in microseconds a step --------------------------------------------------------------
 */

struct at_work {
    struct bare bare;
    trp_policy *policy;
    uint8_t *stacks; /* [FRAMES][COPIES]: what the policy sees, step by step */
    int32_t *actions;
    uint32_t steps;
};

static double us_since(int64_t began_ns, uint32_t steps)
{
    return (double)(clock_now_ns(&clock_monotonic) - began_ns) / 1e3 / steps;
}

static double bare_us(struct at_work *work)
{
    int64_t began_ns = clock_now_ns(&clock_monotonic);
    for (uint32_t i = 0; i < work->steps; i++)
        bare_step(&work->bare, work->stacks);
    return us_since(began_ns, work->steps);
}

static double act_us(struct at_work *work)
{
    enum { CALL = COPIES * STACK * FRAME };
    static uint32_t slots[COPIES];
    static bool first[COPIES];
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (uint32_t i = 0; i < COPIES; i++)
        slots[i] = i;
    int64_t began_ns = clock_now_ns(&clock_monotonic);
    for (uint32_t i = 0; i < work->steps; i++) {
        const void *observations[] = {work->stacks + (size_t)(i % FRAMES) * CALL};
        trp_act act = {.rows = COPIES,
                       .slots = slots,
                       .observations = observations,
                       .first = first,
                       .rng = &rng,
                       .actions = work->actions};
        stop_on(work->policy->impl->act(work->policy, &act));
    }
    return us_since(began_ns, work->steps);
}

static double evaluate_us(struct at_work *work)
{
    char env[64];
    trp_evaluation result;
    snprintf(env, sizeof env, "Film?time_limit=%u", work->steps);
    int64_t began_ns = clock_now_ns(&clock_monotonic);
    stop_on(trp_evaluate(
        work->policy,
        &(trp_evaluate_options){.env = env, .episodes = COPIES, .copies = COPIES, .seed = 1},
        &result));
    return us_since(began_ns, work->steps);
}

/* ---- rows --------------------------------------------------------------------------------------
 */

static const char evaluator_name[] = "evaluator on the GPU, 256 episodes at once, Nature CNN";

static void work_begin(struct at_work *work, trp_device *device)
{
    trp_rng rng;
    trp_agent agent = trp_dqn(&(trp_dqn_options){.network = TRP_TORSO_NATURE});
    trp_rng_init(&rng, 1, 0);
    for (size_t i = 0; i < FRAMES; i++)
        for (size_t k = 0; k < FRAME; k++)
            table[i][k] = (uint8_t)trp_rng_below(&rng, 256);
    stop_on(trp_env_register(&film_impl));
    stop_on(trp_agent_policy_create(
        &work->policy, &agent, "Film",
        &(trp_policy_options){.rows = COPIES, .greedy = true, .device = device}));
    float *params = xcalloc(work->policy->param_count, sizeof *params);
    for (size_t i = 0; i < work->policy->param_count; i++)
        params[i] = 0.02F * (float)trp_rng_normal(&rng);
    stop_on(work->policy->impl->load(work->policy, params, work->policy->param_count));
    bare_begin(&work->bare, device, params);
    free(params);
    work->stacks = xcalloc((size_t)FRAMES * COPIES, STACK * FRAME);
    for (uint32_t step = 0; step < FRAMES; step++)
        for (uint32_t i = 0; i < COPIES; i++)
            stack_at(step + i, work->stacks + ((size_t)step * COPIES + i) * STACK * FRAME);
    work->actions = xcalloc(COPIES, sizeof *work->actions);
}

static void work_end(struct at_work *work)
{
    bare_end(&work->bare);
    trp_policy_destroy(work->policy);
    free(work->stacks);
    free(work->actions);
}

static void bench(trp_device *device)
{
    struct at_work work = {.steps = STEPS_LEAST};
    double bare[RUNS], act[RUNS], whole[RUNS];
    work_begin(&work, device);
    bare_us(&work); /* what comes for the first time takes longer */
    double steps = RUN_NS / 1e3 / bare_us(&work);
    work.steps = steps < STEPS_LEAST  ? STEPS_LEAST
                 : steps > STEPS_MOST ? STEPS_MOST
                                      : (uint32_t)steps;
    act_us(&work);
    for (size_t i = 0; i < RUNS; i++) {
        bare[i] = bare_us(&work);
        act[i] = act_us(&work);
        whole[i] = evaluate_us(&work);
    }
    work_end(&work);
    double ceiling = median(bare, RUNS), all = median(whole, RUNS);
    printf("%s: share of forward and copies alone\t%.3g\t%%\t0\t\n", evaluator_name,
           100 * ceiling / all);
    printf("  a step of all\t%.4g\tus\t%.4g\tforward and copies alone\n", all, ceiling);
    printf("  its policy\t%.4g\tus\t%.4g\tforward and copies alone\n", median(act, RUNS), ceiling);
}

int main(int argc, char **argv)
{
    trp_device *device;
    nvidia_look_about(getenv);
    if (trp_device_find(&device, argc > 1 ? argv[1] : "cuda:0") == TRP_OK) {
        bench(device);
        return 0;
    }
    fprintf(stderr, "bench_gpu_acting: %s\n", trp_last_error());
    printf("%s: share of forward and copies alone\tskipped: no GPU\n", evaluator_name);
    return 0;
}
