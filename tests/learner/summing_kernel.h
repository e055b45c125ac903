/* The kernel of the updater of group_fixture.h, which defines its arguments. */
#ifndef TRP_TESTS_LEARNER_SUMMING_KERNEL_H
#define TRP_TESTS_LEARNER_SUMMING_KERNEL_H

#include "nn/cuda/kernel.h"
#include "tests/learner/group_fixture.h"

#define test_add_arguments summing_job

static size_t test_add_count(const struct test_add_arguments *a)
{
    return a->count;
}

static void test_add_each(const struct test_add_arguments *a, size_t i)
{
    a->to[i] += a->from[i];
}

EACH_KERNEL(test_add)

#endif
