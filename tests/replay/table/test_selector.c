/* Every selector against a model that does the same the slow, obvious way, and the statistics of
 * the ones that draw. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "replay/table/selector.h"

enum { SLOTS = 300 };

/* ---- the model --------------------------------------------------------------------------- */

struct entry {
    bool inside;
    double priority;
    uint64_t inserted, touched;
};

struct model {
    trp_selector kind;
    struct entry entries[SLOTS];
    uint32_t count;
    uint64_t stamps;
};

static double model_weight(const struct model *model, uint32_t slot)
{
    double priority = model->entries[slot].priority;
    return priority == 0 ? 0 : pow(priority, model->kind.exponent);
}

/* Is `a` picked before `b`? Not asked of those that draw. */
static bool model_before(const struct model *model, uint32_t a, uint32_t b)
{
    const struct entry *x = &model->entries[a], *y = &model->entries[b];
    switch (model->kind.kind) {
    case TRP_FIFO:
        return x->inserted < y->inserted;
    case TRP_LIFO:
        return x->inserted > y->inserted;
    case TRP_MAX_HEAP:
        return x->priority > y->priority || (x->priority == y->priority && x->touched < y->touched);
    case TRP_MIN_HEAP:
        return x->priority < y->priority || (x->priority == y->priority && x->touched < y->touched);
    case TRP_PRIORITIZED:
    case TRP_UNIFORM:
        break;
    }
    return a < b;
}

static uint32_t model_sorted(const struct model *model, uint32_t *slots)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        if (!model->entries[slot].inside)
            continue;
        uint32_t at = count++;
        for (; at > 0 && model_before(model, slot, slots[at - 1]); at--)
            slots[at] = slots[at - 1];
        slots[at] = slot;
    }
    return count;
}

static double model_probability(const struct model *model, uint32_t slot)
{
    trp_selector_kind kind = model->kind.kind;
    if (kind != TRP_PRIORITIZED)
        return kind == TRP_UNIFORM ? 1.0 / model->count : 1;
    double total = 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        total += model->entries[i].inside ? model_weight(model, i) : 0;
    return total > 0 ? model_weight(model, slot) / total : 1.0 / model->count;
}

static void check_pick(const struct model *model, struct selector *selector, trp_rng *rng)
{
    double probability = -1;
    uint32_t slot = selector_pick(selector, rng, &probability);
    assert_true(slot < SLOTS);
    assert_true(model->entries[slot].inside);
    double expected = model_probability(model, slot);
    assert_true(expected > 0);
    assert_true(fabs(probability - expected) <= 1e-12 * expected);
    if (model->kind.kind != TRP_UNIFORM && model->kind.kind != TRP_PRIORITIZED) {
        for (uint32_t other = 0; other < SLOTS; other++) {
            if (other != slot && model->entries[other].inside)
                assert_true(model_before(model, slot, other));
        }
    }
}

static void check_upcoming(const struct model *model, const struct selector *selector)
{
    bool known = model->kind.kind == TRP_FIFO || model->kind.kind == TRP_LIFO;
    uint32_t expected[SLOTS], slots[SLOTS];
    uint32_t count = known ? model_sorted(model, expected) : 0;
    const uint32_t asked[] = {0, 1, 7, SLOTS};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        uint32_t want = asked[i] < count ? asked[i] : count;
        assert_int_equal(selector_upcoming(selector, asked[i], slots), want);
        assert_memory_equal(slots, expected, want * sizeof slots[0]);
    }
}

/* Few different values, so that there are many ties and zeros. */
static double random_priority(trp_rng *rng)
{
    return (double)trp_rng_below(rng, 12) / 4;
}

static void random_step(struct model *model, struct selector *selector, trp_rng *rng)
{
    uint32_t slot = (uint32_t)trp_rng_below(rng, SLOTS);
    struct entry *entry = &model->entries[slot];
    double priority = random_priority(rng);
    if (!entry->inside) {
        model->stamps++;
        *entry = (struct entry){true, priority, model->stamps, model->stamps};
        model->count++;
        selector_insert(selector, slot, priority);
    } else if (trp_rng_below(rng, 2)) {
        entry->priority = priority;
        entry->touched = ++model->stamps;
        selector_update(selector, slot, priority);
    } else {
        entry->inside = false;
        model->count--;
        selector_remove(selector, slot);
    }
}

static void check_against_model(trp_selector kind)
{
    struct model *model = xcalloc(1, sizeof *model);
    model->kind = kind;
    struct selector *selector = selector_create(kind);
    trp_rng rng;
    trp_rng_init(&rng, 7, (uint64_t)kind.kind);
    for (int i = 0; i < 6000; i++) {
        random_step(model, selector, &rng);
        if (model->count > 0)
            check_pick(model, selector, &rng);
        if (i % 50 == 0)
            check_upcoming(model, selector);
    }
    selector_destroy(selector);
    free(model);
}

static void fifo_does_what_its_model_does(void **state)
{
    (void)state;
    check_against_model((trp_selector){TRP_FIFO, 0});
}

static void lifo_does_what_its_model_does(void **state)
{
    (void)state;
    check_against_model((trp_selector){TRP_LIFO, 0});
}

static void uniform_does_what_its_model_does(void **state)
{
    (void)state;
    check_against_model((trp_selector){TRP_UNIFORM, 0});
}

static void max_heap_does_what_its_model_does(void **state)
{
    (void)state;
    check_against_model((trp_selector){TRP_MAX_HEAP, 0});
}

static void min_heap_does_what_its_model_does(void **state)
{
    (void)state;
    check_against_model((trp_selector){TRP_MIN_HEAP, 0});
}

static void prioritized_does_what_its_model_does(void **state)
{
    (void)state;
    const double exponents[] = {0, 0.5, 0.6, 1, 2};
    for (size_t i = 0; i < sizeof exponents / sizeof exponents[0]; i++)
        check_against_model((trp_selector){TRP_PRIORITIZED, exponents[i]});
}

/* ---- statistics -------------------------------------------------------------------------- */

/* Draws from `count` slots, 1000 per slot, and compares with `expected` probabilities; `limit` is
 * the 99.9 % quantile of chi-square. Slots that must not be drawn have probability 0. */
static void check_chi_square(struct selector *selector, const double *expected, uint32_t count,
                             double limit)
{
    uint32_t *drawn = xcalloc(count, sizeof *drawn);
    uint32_t draws = 1000 * count;
    trp_rng rng;
    trp_rng_init(&rng, 11, 0);
    for (uint32_t i = 0; i < draws; i++) {
        double probability;
        uint32_t slot = selector_pick(selector, &rng, &probability);
        assert_true(slot < count);
        assert_true(fabs(probability - expected[slot]) <= 1e-12);
        drawn[slot]++;
    }
    double chi_square = 0;
    for (uint32_t slot = 0; slot < count; slot++) {
        double mean = expected[slot] * draws;
        if (mean == 0)
            assert_int_equal(drawn[slot], 0);
        else
            chi_square += (drawn[slot] - mean) * (drawn[slot] - mean) / mean;
    }
    assert_true(chi_square < limit);
    free(drawn);
}

static void prioritized_draws_in_proportion_to_the_weights(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct selector *selector = selector_create((trp_selector){TRP_PRIORITIZED, 0.6});
    double expected[COUNT], total = 0;
    for (uint32_t slot = 0; slot < COUNT; slot++) {
        double priority = slot % 10 == 3 ? 0 : 1 + slot;
        selector_insert(selector, slot, priority);
        expected[slot] = priority > 0 ? pow(priority, 0.6) : 0;
        total += expected[slot];
    }
    for (uint32_t slot = 0; slot < COUNT; slot++)
        expected[slot] /= total;
    check_chi_square(selector, expected, COUNT, 135.8); /* 89 degrees of freedom */
    selector_destroy(selector);
}

static void uniform_draws_every_slot_alike(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    struct selector *selector = selector_create((trp_selector){TRP_UNIFORM, 0});
    double expected[COUNT];
    for (uint32_t slot = 0; slot < COUNT; slot++) {
        selector_insert(selector, slot, slot);
        expected[slot] = 1.0 / COUNT;
    }
    check_chi_square(selector, expected, COUNT, 85.4);
    selector_destroy(selector);
}

static void prioritized_draws_alike_while_all_weights_are_zero(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    const double exponents[] = {0, 1};
    for (size_t i = 0; i < 2; i++) {
        struct selector *selector = selector_create((trp_selector){TRP_PRIORITIZED, exponents[i]});
        double expected[COUNT];
        for (uint32_t slot = 0; slot < COUNT; slot++) {
            selector_insert(selector, slot, slot == 9 ? 3 : 0);
            expected[slot] = 1.0 / COUNT;
        }
        selector_update(selector, 9, 0);
        check_chi_square(selector, expected, COUNT, 85.4);
        selector_destroy(selector);
    }
}

static void exponent_zero_is_uniform_over_priorities_that_are_not_zero(void **state)
{
    (void)state;
    struct selector *selector = selector_create((trp_selector){TRP_PRIORITIZED, 0});
    const double priorities[] = {0, 5, 1e-9, 0, 1e9};
    const double expected[] = {0, 1.0 / 3, 1.0 / 3, 0, 1.0 / 3};
    for (uint32_t slot = 0; slot < 5; slot++)
        selector_insert(selector, slot, priorities[slot]);
    check_chi_square(selector, expected, 5, 13.8);
    selector_destroy(selector);
}

/* ---- numbers at the edges ---------------------------------------------------------------- */

static void a_tiny_priority_beside_a_huge_one_neither_breaks_nor_hides_it(void **state)
{
    (void)state;
    struct selector *selector = selector_create((trp_selector){TRP_PRIORITIZED, 1});
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    selector_insert(selector, 0, 1e-300);
    selector_insert(selector, 40, 1e300);
    double probability;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(selector_pick(selector, &rng, &probability), 40);
        assert_true(probability == 1);
    }
    selector_remove(selector, 40);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(selector_pick(selector, &rng, &probability), 0);
        assert_true(probability == 1);
    }
    selector_insert(selector, 17, 3e-300);
    int drawn = 0;
    for (int i = 0; i < 1000; i++)
        drawn += selector_pick(selector, &rng, &probability) == 17;
    assert_in_range(drawn, 690, 810);
    selector_destroy(selector);
}

static void the_smallest_double_can_be_drawn(void **state)
{
    (void)state;
    struct selector *selector = selector_create((trp_selector){TRP_PRIORITIZED, 1});
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (uint32_t slot = 0; slot < 40; slot++)
        selector_insert(selector, slot, slot == 21 ? 0x1p-1074 : 0);
    for (int i = 0; i < 1000; i++) {
        double probability;
        assert_int_equal(selector_pick(selector, &rng, &probability), 21);
        assert_true(probability == 1);
    }
    selector_destroy(selector);
}

static void sums_of_the_largest_priorities_stay_finite(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    const double exponents[] = {1, 8};
    for (size_t i = 0; i < 2; i++) {
        struct selector *selector = selector_create((trp_selector){TRP_PRIORITIZED, exponents[i]});
        for (uint32_t slot = 0; slot < COUNT; slot++)
            selector_insert(selector, slot, 1.7e308);
        trp_rng rng;
        trp_rng_init(&rng, 1, 0);
        uint64_t sum = 0;
        for (int draw = 0; draw < 10000; draw++) {
            double probability;
            sum += selector_pick(selector, &rng, &probability);
            assert_true(fabs(probability - 1.0 / COUNT) < 1e-15);
        }
        assert_in_range(sum / 10000, COUNT / 2 - 60, COUNT / 2 + 60); /* 4 deviations: 58 */
        selector_destroy(selector);
    }
}

static double wide_priority(trp_rng *rng)
{
    return trp_rng_below(rng, 20) == 0 ? 0 : pow(10, trp_rng_double(rng) * 24 - 12);
}

static void a_million_updates_leave_no_drift(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    trp_selector kind = {TRP_PRIORITIZED, 0.7};
    struct selector *old = selector_create(kind), *fresh = selector_create(kind);
    double *priorities = xcalloc(COUNT, sizeof *priorities);
    trp_rng rng, a, b;
    trp_rng_init(&rng, 3, 0);
    trp_rng_init(&a, 4, 0);
    trp_rng_init(&b, 4, 0);
    for (uint32_t slot = 0; slot < COUNT; slot++)
        selector_insert(old, slot, 1e12);
    double x, y;
    for (int i = 0; i < 1000 * 1000; i++) {
        uint32_t slot = i < COUNT ? (uint32_t)i : (uint32_t)trp_rng_below(&rng, COUNT);
        priorities[slot] = wide_priority(&rng);
        selector_update(old, slot, priorities[slot]);
        if (i % 1000 == 0)
            selector_pick(old, &rng, &x);
    }
    for (uint32_t slot = 0; slot < COUNT; slot++)
        selector_insert(fresh, slot, priorities[slot]);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(selector_pick(old, &a, &x), selector_pick(fresh, &b, &y));
        assert_true(x == y);
    }
    free(priorities);
    selector_destroy(old);
    selector_destroy(fresh);
}

static void slots_may_come_in_any_order_and_far_apart(void **state)
{
    (void)state;
    for (int kind = TRP_UNIFORM; kind <= TRP_MIN_HEAP; kind++) {
        struct selector *selector = selector_create((trp_selector){(trp_selector_kind)kind, 1});
        const uint32_t slots[] = {100000, 3, 65535, 65536, 0};
        for (uint32_t i = 0; i < 5; i++)
            selector_insert(selector, slots[i], 1 + i);
        trp_rng rng;
        trp_rng_init(&rng, 5, 0);
        for (uint32_t left = 5, sum = 0; left > 0; left--) {
            double probability;
            uint32_t slot = selector_pick(selector, &rng, &probability);
            selector_remove(selector, slot);
            sum += slot;
            assert_true(left > 1 || sum == 100000 + 3 + 65535 + 65536 + 0);
        }
        selector_destroy(selector);
    }
}

static void the_few_left_of_many_with_zero_weights_are_drawn_alike(void **state)
{
    (void)state;
    enum { COUNT = 100 * 1000, LEFT = 3 };
    struct selector *selector = selector_create((trp_selector){TRP_PRIORITIZED, 1});
    for (uint32_t slot = 0; slot < COUNT; slot++)
        selector_insert(selector, slot, slot % 2);
    for (uint32_t slot = 0; slot < COUNT; slot++) {
        if (slot != 10 && slot != 50000 && slot != COUNT - 2)
            selector_remove(selector, slot);
    }
    trp_rng rng;
    trp_rng_init(&rng, 8, 0);
    int drawn[LEFT] = {0};
    for (int i = 0; i < 3000; i++) {
        double probability;
        uint32_t slot = selector_pick(selector, &rng, &probability);
        assert_true(probability == 1.0 / LEFT);
        assert_true(slot == 10 || slot == 50000 || slot == COUNT - 2);
        drawn[slot == 10 ? 0 : slot == 50000 ? 1 : 2]++;
    }
    for (int i = 0; i < LEFT; i++)
        assert_in_range(drawn[i], 880, 1120); /* 4.6 deviations */
    selector_destroy(selector);
}

static void many_picks_at_once_are_those_made_one_by_one(void **state)
{
    (void)state;
    enum { SLOTS_USED = 5000, PICKS = 777 };
    for (int kind = TRP_UNIFORM; kind <= TRP_MIN_HEAP; kind++) {
        for (int zero = 0; zero < 2; zero++) {
            struct selector *selector =
                selector_create((trp_selector){(trp_selector_kind)kind, 0.6});
            uint32_t slots[PICKS];
            double probabilities[PICKS];
            trp_rng a, b;
            trp_rng_init(&a, 1, 0);
            trp_rng_init(&b, 1, 0);
            for (uint32_t slot = 0; slot < SLOTS_USED; slot++)
                selector_insert(selector, slot, zero ? 0 : 1 + slot % 7);
            selector_pick_many(selector, &a, PICKS, slots, probabilities);
            for (int i = 0; i < PICKS; i++) {
                double probability;
                assert_int_equal(selector_pick(selector, &b, &probability), slots[i]);
                assert_true(probability == probabilities[i]);
            }
            selector_destroy(selector);
        }
    }
}

static void the_same_seed_gives_the_same_draws(void **state)
{
    (void)state;
    const trp_selector kinds[] = {{TRP_UNIFORM, 0}, {TRP_PRIORITIZED, 0.6}};
    for (size_t k = 0; k < 2; k++) {
        struct selector *selector = selector_create(kinds[k]);
        for (uint32_t slot = 0; slot < 1000; slot++)
            selector_insert(selector, slot, slot);
        trp_rng a, b, c;
        trp_rng_init(&a, 9, 1);
        trp_rng_init(&b, 9, 1);
        trp_rng_init(&c, 9, 2);
        int different = 0;
        for (int i = 0; i < 100; i++) {
            double probability;
            uint32_t slot = selector_pick(selector, &a, &probability);
            assert_int_equal(slot, selector_pick(selector, &b, &probability));
            different += slot != selector_pick(selector, &c, &probability);
        }
        assert_true(different > 50);
        selector_destroy(selector);
    }
}

/* ---- refused priorities ------------------------------------------------------------------ */

static void check_refused(trp_selector_kind kind, double priority, const char *text)
{
    trp_selector selector = {kind, 1};
    if (text) {
        assert_int_equal(selector_check(selector, priority), TRP_INVALID_ARGUMENT);
        assert_string_equal(trp_last_error(), text);
    } else {
        assert_int_equal(selector_check(selector, priority), TRP_OK);
    }
}

static void priorities_are_refused_in_reverbs_words(void **state)
{
    (void)state;
    check_refused(TRP_PRIORITIZED, NAN, "Priority must not be NaN.");
    check_refused(TRP_PRIORITIZED, -1e-300, "Priority must not be negative.");
    check_refused(TRP_PRIORITIZED, -INFINITY, "Priority must not be negative.");
    check_refused(TRP_PRIORITIZED, INFINITY, "Priority must be finite.");
    check_refused(TRP_PRIORITIZED, 0, NULL);
    check_refused(TRP_PRIORITIZED, -0.0, NULL);
    check_refused(TRP_PRIORITIZED, 1.7e308, NULL);
    check_refused(TRP_MAX_HEAP, NAN, "Priority must not be NaN.");
    check_refused(TRP_MIN_HEAP, NAN, "Priority must not be NaN.");
    check_refused(TRP_MIN_HEAP, -INFINITY, NULL);
    check_refused(TRP_FIFO, -1, NULL);
    check_refused(TRP_UNIFORM, NAN, "Priority must not be NaN.");
    check_refused(TRP_FIFO, NAN, "Priority must not be NaN.");
    check_refused(TRP_LIFO, NAN, "Priority must not be NaN.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifo_does_what_its_model_does),
        cmocka_unit_test(lifo_does_what_its_model_does),
        cmocka_unit_test(uniform_does_what_its_model_does),
        cmocka_unit_test(max_heap_does_what_its_model_does),
        cmocka_unit_test(min_heap_does_what_its_model_does),
        cmocka_unit_test(prioritized_does_what_its_model_does),
        cmocka_unit_test(prioritized_draws_in_proportion_to_the_weights),
        cmocka_unit_test(uniform_draws_every_slot_alike),
        cmocka_unit_test(prioritized_draws_alike_while_all_weights_are_zero),
        cmocka_unit_test(exponent_zero_is_uniform_over_priorities_that_are_not_zero),
        cmocka_unit_test(a_tiny_priority_beside_a_huge_one_neither_breaks_nor_hides_it),
        cmocka_unit_test(the_smallest_double_can_be_drawn),
        cmocka_unit_test(sums_of_the_largest_priorities_stay_finite),
        cmocka_unit_test(a_million_updates_leave_no_drift),
        cmocka_unit_test(slots_may_come_in_any_order_and_far_apart),
        cmocka_unit_test(the_few_left_of_many_with_zero_weights_are_drawn_alike),
        cmocka_unit_test(many_picks_at_once_are_those_made_one_by_one),
        cmocka_unit_test(the_same_seed_gives_the_same_draws),
        cmocka_unit_test(priorities_are_refused_in_reverbs_words),
    };
    return cmocka_run_group_tests_name("selector", tests, NULL, NULL);
}
