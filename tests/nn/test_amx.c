/* The kernels for AMX where a processor has it: who gets them, tiles of several threads, of
 * handlers and of children, and numbers too small for the unit. That their sums are right test_bf16
 * says of every instruction set. */
#include "nn_tools.h"

#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/thread.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

#ifdef __x86_64__

enum { ROWS = 37, INPUTS = 83, OUTPUTS = 70, TIMES = 1000, THREADS = 4 };
enum { SIDE = 13, CHANNELS = 5, FILTERS = 19, IMAGES = 3, RESULT = (SIDE - 3) / 2 + 1 };

static const struct window window = {.height = SIDE,
                                     .width = SIDE,
                                     .channels = CHANNELS,
                                     .kernel_height = 3,
                                     .kernel_width = 3,
                                     .stride_height = 2,
                                     .stride_width = 2,
                                     .filters = FILTERS};

static void needs_amx(void)
{
    if (cpu_has_amx())
        return;
    print_message("skipped: no AMX\n");
    skip();
}

/* A linear layer and a convolution, forward and backward, one float off any alignment. */
struct work {
    float x[1 + ROWS * INPUTS], w[1 + INPUTS * OUTPUTS], bias[1 + OUTPUTS];
    float images[1 + IMAGES * SIDE * SIDE * CHANNELS], kernel[1 + 9 * CHANNELS * FILTERS];
    float dresult[1 + IMAGES * RESULT * RESULT * FILTERS];
    struct products {
        float y[1 + ROWS * OUTPUTS], dw[1 + INPUTS * OUTPUTS], dbias[1 + OUTPUTS];
        float dx[1 + ROWS * INPUTS], result[1 + IMAGES * RESULT * RESULT * FILTERS];
        float dkernel[1 + 9 * CHANNELS * FILTERS], dfilters[1 + FILTERS];
        float dimages[1 + IMAGES * SIDE * SIDE * CHANNELS];
    } made;
    float *scratch;
};

static float *scratch_create(void)
{
    size_t linear = linear_amx_bf16.scratch(INPUTS, OUTPUTS), conv = conv_amx_bf16.scratch(&window);
    size_t rounded = backend_ref_f32.linear_bf16->scratch(INPUTS, OUTPUTS);
    size_t count = linear > conv ? linear : conv;
    float *scratch = xmalloc((count + rounded) * sizeof *scratch);
    memset(scratch, 0xff, count * sizeof *scratch); /* NaNs */
    return scratch;
}

static void some_numbers(trp_rng *rng, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)trp_rng_normal(rng);
}

static struct work *work_create(void)
{
    struct work *work = xcalloc(1, sizeof *work);
    trp_rng rng;
    trp_rng_init(&rng, 5, 6);
    some_numbers(&rng, work->x, sizeof work->x / sizeof *work->x);
    some_numbers(&rng, work->w, sizeof work->w / sizeof *work->w);
    some_numbers(&rng, work->bias, sizeof work->bias / sizeof *work->bias);
    some_numbers(&rng, work->images, sizeof work->images / sizeof *work->images);
    some_numbers(&rng, work->kernel, sizeof work->kernel / sizeof *work->kernel);
    some_numbers(&rng, work->dresult, sizeof work->dresult / sizeof *work->dresult);
    work->scratch = scratch_create();
    return work;
}

static void work_destroy(struct work *work)
{
    free(work->scratch);
    free(work);
}

static void multiply_forward(struct work *work, const struct linear_kernels *kernels, uint32_t rows)
{
    struct products *made = &work->made;
    kernels->forward(&(struct forward_job){.x = work->x + 1,
                                           .w = work->w + 1,
                                           .bias = work->bias + 1,
                                           .y = made->y + 1,
                                           .x_stride = INPUTS,
                                           .y_stride = OUTPUTS,
                                           .rows = rows,
                                           .inputs = INPUTS,
                                           .outputs = OUTPUTS,
                                           .activation = ACTIVATION_RELU,
                                           .scratch = work->scratch});
}

/* Of what forward made. */
static void multiply_backward(struct work *work, const struct linear_kernels *kernels,
                              uint32_t rows)
{
    struct products *made = &work->made;
    kernels->backward(&(struct backward_job){.x = work->x + 1,
                                             .w = work->w + 1,
                                             .dy = made->y + 1,
                                             .dw = made->dw + 1,
                                             .dbias = made->dbias + 1,
                                             .dx = made->dx + 1,
                                             .x_stride = INPUTS,
                                             .dy_stride = OUTPUTS,
                                             .dx_stride = INPUTS,
                                             .rows = rows,
                                             .inputs = INPUTS,
                                             .outputs = OUTPUTS,
                                             .gate = ACTIVATION_RELU,
                                             .overwrite = true,
                                             .scratch = work->scratch});
}

static void multiply(struct work *work, const struct linear_kernels *kernels, uint32_t rows)
{
    multiply_forward(work, kernels, rows);
    multiply_backward(work, kernels, rows);
}

static void convolve_forward(struct work *work, const struct conv_kernels *kernels)
{
    struct products *made = &work->made;
    kernels->forward(&(struct conv_forward_job){.window = window,
                                                .x = work->images + 1,
                                                .w = work->kernel + 1,
                                                .bias = work->bias + 1,
                                                .y = made->result + 1,
                                                .x_stride = SIDE * SIDE * CHANNELS,
                                                .y_stride = RESULT * RESULT * FILTERS,
                                                .rows = IMAGES,
                                                .scratch = work->scratch});
}

static void convolve_backward(struct work *work, const struct conv_kernels *kernels)
{
    struct products *made = &work->made;
    kernels->backward(&(struct conv_backward_job){.window = window,
                                                  .x = work->images + 1,
                                                  .w = work->kernel + 1,
                                                  .dy = work->dresult + 1,
                                                  .dw = made->dkernel + 1,
                                                  .dbias = made->dfilters + 1,
                                                  .dx = made->dimages + 1,
                                                  .x_stride = SIDE * SIDE * CHANNELS,
                                                  .dy_stride = RESULT * RESULT * FILTERS,
                                                  .dx_stride = SIDE * SIDE * CHANNELS,
                                                  .rows = IMAGES,
                                                  .overwrite = true,
                                                  .scratch = work->scratch});
}

static void convolve(struct work *work, const struct conv_kernels *kernels)
{
    convolve_forward(work, kernels);
    convolve_backward(work, kernels);
}

static void work_run(struct work *work)
{
    memset(&work->made, 0, sizeof work->made);
    multiply(work, &linear_amx_bf16, ROWS);
    convolve(work, &conv_amx_bf16);
}

/* Returns whether the work makes these bits, as often as is asked. */
static bool repeats(struct work *work, const struct products *bits, int times)
{
    for (int i = 0; i < times; i++) {
        work_run(work);
        if (memcmp(&work->made, bits, sizeof *bits) != 0)
            return false;
    }
    return true;
}

static struct products *bits_of(struct work *work)
{
    struct products *bits = xmalloc(sizeof *bits);
    work_run(work);
    memcpy(bits, &work->made, sizeof *bits);
    return bits;
}

/* ---- who gets them ------------------------------------------------------------------------ */

static void plans_get_them_where_processor_and_kernel_allow(void **state)
{
    (void)state;
    needs_amx();
    assert_ptr_equal(linear_bf16_fastest(), &linear_amx_bf16);
    assert_ptr_equal(conv_bf16_fastest(), &conv_amx_bf16);
}

/* Run as another program, which has not asked yet: its signals have a stack that is too small for
 * tiles, so the kernel refuses them. */
static int main_refused(void)
{
    static char stack[4096];
    stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
    if (sigaltstack(&small, NULL) != 0)
        return 3;
    if (cpu_has_amx() || linear_bf16_fastest() == &linear_amx_bf16)
        return 4;
    bool other =
        linear_bf16_fastest() == &linear_avx512_bf16 && conv_bf16_fastest() == &conv_avx512_bf16;
    return other ? 0 : 5;
}

static int exit_of(pid_t child)
{
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static void a_process_that_is_refused_has_those_of_avx512_bf16(void **state)
{
    (void)state;
    needs_amx();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "test_amx", "refused", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(exit_of(child), 0);
}

/* ---- tiles -------------------------------------------------------------------------------- */

static void one_row_and_odd_sizes_off_alignment_are_those_of_the_reference(void **state)
{
    (void)state;
    needs_amx();
    struct work *work = work_create(), *want = work_create();
    for (uint32_t rows = 1; rows <= ROWS; rows++) {
        multiply(work, &linear_amx_bf16, rows);
        memcpy(want->made.y, work->made.y, sizeof want->made.y); /* its dy */
        multiply(want, backend_ref_f32.linear_bf16, rows);
        assert_close(work->made.y + 1, want->made.y + 1, (size_t)rows * OUTPUTS, 2e-5, "y");
        assert_close(work->made.dx + 1, want->made.dx + 1, (size_t)rows * INPUTS, 1e-3, "dx");
        assert_close(work->made.dw + 1, want->made.dw + 1, INPUTS * OUTPUTS, 1e-3, "dw");
    }
    convolve(work, &conv_amx_bf16);
    convolve(want, backend_ref_f32.conv_bf16);
    assert_close(work->made.result, want->made.result, sizeof want->made.result / sizeof(float),
                 2e-5, "result");
    assert_close(work->made.dkernel, want->made.dkernel, sizeof want->made.dkernel / sizeof(float),
                 2e-5, "dkernel");
    assert_close(work->made.dimages, want->made.dimages, sizeof want->made.dimages / sizeof(float),
                 2e-5, "dimages");
    work_destroy(work);
    work_destroy(want);
}

/* The shapes of this thread's tiles as the processor has them: palette 0 is none. */
static void assert_no_tiles(const char *after)
{
    uint8_t shapes[64];
    memset(shapes, 0xff, sizeof shapes);
    __asm__ volatile("sttilecfg %0" : "=m"(shapes));
    for (size_t i = 0; i < sizeof shapes; i++)
        if (shapes[i] != 0)
            fail_msg("%s: byte %zu of the shapes is %u", after, i, (unsigned)shapes[i]);
}

static void a_job_leaves_no_tiles_behind(void **state)
{
    (void)state;
    needs_amx();
    struct work *work = work_create();
    multiply_forward(work, &linear_amx_bf16, ROWS);
    assert_no_tiles("a linear layer");
    multiply_backward(work, &linear_amx_bf16, ROWS);
    assert_no_tiles("a linear layer's gradients");
    multiply_forward(work, &linear_amx_bf16, 1);
    assert_no_tiles("one row");
    convolve_forward(work, &conv_amx_bf16);
    assert_no_tiles("a convolution");
    convolve_backward(work, &conv_amx_bf16);
    assert_no_tiles("a convolution's gradients");
    work_destroy(work);
}

struct repeater {
    const struct products *bits;
    bool same;
};

static void repeat_in_thread(void *arg)
{
    struct repeater *r = arg;
    struct work *work = work_create();
    r->same = repeats(work, r->bits, TIMES);
    work_destroy(work);
}

static void several_threads_make_the_bits_of_one(void **state)
{
    (void)state;
    needs_amx();
    struct work *work = work_create();
    struct products *bits = bits_of(work);
    struct thread threads[THREADS] = {{0}};
    struct repeater repeaters[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        repeaters[i] = (struct repeater){.bits = bits};
        OR_FAIL(thread_start(&threads[i], "tiles", repeat_in_thread, &repeaters[i]));
    }
    assert_true(repeats(work, bits, TIMES));
    for (size_t i = 0; i < THREADS; i++) {
        thread_stop(&threads[i]);
        assert_true(repeaters[i].same);
    }
    free(bits);
    work_destroy(work);
}

static struct work *handlers_work;
static const struct products *handlers_bits;
static volatile sig_atomic_t handled, handled_badly;

static void multiply_in_handler(int signal)
{
    (void)signal;
    handled++;
    if (!repeats(handlers_work, handlers_bits, 1))
        handled_badly++;
}

/* Two thousand signals a second, in the midst of products, each with products of its own. */
static void a_handler_with_tiles_of_its_own_changes_no_bits(void **state)
{
    (void)state;
    needs_amx();
#ifdef UNDER_TSAN
    print_message(
        "skipped: ThreadSanitizer calls handlers later, as functions in midst of a job\n");
    skip();
#endif
    struct work *work = work_create();
    struct products *bits = bits_of(work);
    handlers_work = work_create();
    handlers_bits = bits;
    struct sigaction old, action = {.sa_handler = multiply_in_handler, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    bool same = true;
    while (same && handled < 100)
        same = repeats(work, bits, 1);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
    assert_true(same);
    assert_int_equal(handled_badly, 0);
    work_destroy(handlers_work);
    free(bits);
    work_destroy(work);
}

static void a_child_may_have_tiles_as_its_parent(void **state)
{
    (void)state;
    needs_amx();
    struct work *work = work_create();
    struct products *bits = bits_of(work);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(cpu_has_amx() && repeats(work, bits, TIMES) ? 0 : 1);
    assert_true(repeats(work, bits, TIMES));
    assert_int_equal(exit_of(child), 0);
    free(bits);
    work_destroy(work);
}

/* ---- small numbers ------------------------------------------------------------------------ */

static float product_of(float x, float w, float bias, float second)
{
    float factors[4] = {x, second, x, second}, weights[2] = {w, 1}, y[2];
    size_t count = linear_amx_bf16.scratch(2, 1);
    float *scratch = xmalloc(count * sizeof *scratch);
    linear_amx_bf16.forward(&(struct forward_job){.x = factors,
                                                  .w = weights,
                                                  .bias = &bias,
                                                  .y = y,
                                                  .x_stride = 2,
                                                  .y_stride = 1,
                                                  .rows = 2,
                                                  .inputs = 2,
                                                  .outputs = 1,
                                                  .scratch = scratch});
    free(scratch);
    assert_true(y[0] == y[1]);
    return y[0];
}

static void subnormal_factors_and_sums_are_zeros(void **state)
{
    (void)state;
    needs_amx();
    assert_true(product_of(0x1p-63F, 0x1p-63F, 0, 0) == 0x1p-126F); /* the least normal one */
    assert_true(product_of(0x1p-64F, 0x1p-63F, 0, 0) == 0);         /* a subnormal product */
    assert_true(product_of(0x1p-127F, 0x1p100F, 0, 0) == 0);        /* a subnormal factor */
    assert_true(product_of(0x1p-126F, 1, 0, -0x1.02p-126F) == 0);   /* their difference */
    assert_true(product_of(0x1p-70F, 0x1p-70F, 0x1p-140F, 0) == 0x1p-140F); /* a bias is none */
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "refused") == 0)
        return main_refused();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_get_them_where_processor_and_kernel_allow),
        cmocka_unit_test(a_process_that_is_refused_has_those_of_avx512_bf16),
        cmocka_unit_test(one_row_and_odd_sizes_off_alignment_are_those_of_the_reference),
        cmocka_unit_test(a_job_leaves_no_tiles_behind),
        cmocka_unit_test(several_threads_make_the_bits_of_one),
        cmocka_unit_test(a_handler_with_tiles_of_its_own_changes_no_bits),
        cmocka_unit_test(a_child_may_have_tiles_as_its_parent),
        cmocka_unit_test(subnormal_factors_and_sums_are_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void other_processors_have_none(void **state)
{
    (void)state;
    print_message("skipped: no AMX\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_processors_have_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
