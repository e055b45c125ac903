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

static size_t find_kernels(const struct finite_kernels *kernels[3])
{
    size_t count = 0;
    kernels[count++] = &finite_generic;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        kernels[count++] = &finite_avx2;
    if (__builtin_cpu_supports("avx512f"))
        kernels[count++] = &finite_avx512;
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
    const struct finite_kernels *kernels[3];
    float numbers[COUNT];
    (void)state;
    for (size_t k = find_kernels(kernels); k-- > 0;)
        for (size_t size = 0; size <= COUNT; size++) {
            fill(numbers);
            assert_true(kernels[k]->look(numbers, size, 1));
            for (size_t at = 0; at < size; at++) {
                float before = numbers[at];
                numbers[at] = none[(size + at) % 4];
                assert_false(kernels[k]->look(numbers, size, 1));
                assert_true(kernels[k]->look(numbers, at, 1)); /* what is behind is not looked at */
                numbers[at] = before;
            }
        }
}

static void numbers_are_looked_at_times_their_scale(void **state)
{
    const struct finite_kernels *kernels[3];
    float numbers[COUNT] = {[COUNT - 1] = FLT_MAX / 4};
    (void)state;
    for (size_t k = find_kernels(kernels); k-- > 0;) {
        assert_true(kernels[k]->look(numbers, COUNT, -4));
        assert_false(kernels[k]->look(numbers, COUNT, 8));
        assert_false(kernels[k]->look(numbers, COUNT, INFINITY)); /* of 0 it is NaN */
    }
}

static void a_copy_is_whole_also_of_what_is_not_finite(void **state)
{
    const struct finite_kernels *kernels[3];
    float from[COUNT], to[COUNT + 1];
    (void)state;
    for (size_t k = find_kernels(kernels); k-- > 0;)
        for (size_t size = 0; size <= COUNT; size++)
            for (size_t at = 0; at <= size; at++) {
                fill(from);
                memset(to, 0, sizeof to);
                if (at < size)
                    from[at] = NAN;
                assert_int_equal(kernels[k]->copy(to, from, size, 1), at == size);
                assert_memory_equal(to, from, size * sizeof *to);
                assert_true(to[size] == 0);
            }
}

static void copies_are_looked_at_times_their_scale(void **state)
{
    float from[COUNT] = {[3] = FLT_MAX / 4}, to[COUNT];
    (void)state;
    assert_true(floats_copy_finite(to, from, COUNT, -4));
    assert_false(floats_copy_finite(to, from, COUNT, 8));
    assert_true(floats_are_finite(to, COUNT));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_number_that_is_none_is_seen_wherever_it_is),
        cmocka_unit_test(numbers_are_looked_at_times_their_scale),
        cmocka_unit_test(a_copy_is_whole_also_of_what_is_not_finite),
        cmocka_unit_test(copies_are_looked_at_times_their_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
