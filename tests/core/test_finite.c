/* Whether numbers are numbers, by every instruction set that the processor has. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/finite.h"

enum { COUNT = 150 };

static size_t find_kernels(finite_kernel *kernels[3])
{
    size_t count = 0;
    kernels[count++] = finite_generic;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        kernels[count++] = finite_avx2;
    if (__builtin_cpu_supports("avx512f"))
        kernels[count++] = finite_avx512;
#endif
    return count;
}

static void fill(float numbers[COUNT])
{
    static const float finite[] = {0, -0.0F, 1, -1, FLT_MAX, -FLT_MAX, FLT_MIN, FLT_MIN / 8};
    for (size_t i = 0; i < COUNT; i++)
        numbers[i] = finite[i % (sizeof finite / sizeof *finite)];
}

static void one_number_that_is_none_is_seen_wherever_it_is(void **state)
{
    static const float none[] = {INFINITY, -INFINITY, NAN, -NAN};
    finite_kernel *kernels[3];
    float numbers[COUNT];
    (void)state;
    for (size_t k = find_kernels(kernels); k-- > 0;)
        for (size_t size = 0; size <= COUNT; size++) {
            fill(numbers);
            assert_true(kernels[k](numbers, size, 1));
            for (size_t at = 0; at < size; at++) {
                float before = numbers[at];
                numbers[at] = none[(size + at) % 4];
                assert_false(kernels[k](numbers, size, 1));
                assert_true(kernels[k](numbers, at, 1)); /* what is behind is not looked at */
                numbers[at] = before;
            }
        }
}

static void numbers_are_looked_at_times_their_scale(void **state)
{
    finite_kernel *kernels[3];
    float numbers[COUNT] = {[COUNT - 1] = FLT_MAX / 4};
    (void)state;
    for (size_t k = find_kernels(kernels); k-- > 0;) {
        assert_true(kernels[k](numbers, COUNT, -4));
        assert_false(kernels[k](numbers, COUNT, 8));
        assert_false(kernels[k](numbers, COUNT, INFINITY)); /* of 0 it is NaN */
    }
}

static void a_copy_is_whole_also_of_what_is_not_finite(void **state)
{
    enum { LONG = 3 * 4096 + 5 };
    static float from[LONG], to[LONG + 1];
    (void)state;
    for (size_t i = 0; i < LONG; i++)
        from[i] = (float)i;
    assert_true(floats_copy_finite(to, from, LONG, 1));
    assert_memory_equal(to, from, sizeof from);
    for (size_t at = 3; at < LONG; at += LONG - 5) { /* in the first block, in the last */
        from[at] = NAN;
        assert_false(floats_copy_finite(to, from, LONG, 1));
        assert_memory_equal(to, from, sizeof from);
        from[at] = 0;
    }
    assert_true(to[LONG] == 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_number_that_is_none_is_seen_wherever_it_is),
        cmocka_unit_test(numbers_are_looked_at_times_their_scale),
        cmocka_unit_test(a_copy_is_whole_also_of_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
