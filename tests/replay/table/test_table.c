/* The table against a naive model, and the orders and counts that clients of Reverb can see. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "replay/table/table.h"

static struct item *item_create(uint64_t key, double priority)
{
    struct item *item = xcalloc(1, sizeof *item);
    item->key = key;
    item->priority = priority;
    static struct trajectory empty;
    item->trajectory = &empty;
    item->slot = SLOT_NONE;
    return item;
}

static void item_free(void *arg, struct item *item)
{
    int *count = arg;
    if (count)
        (*count)++;
    free(item);
}

static struct table *table_of(trp_selector_kind sampler, trp_selector_kind remover,
                              int64_t max_size, int32_t max_times_sampled)
{
    trp_table_options options = {.name = "t",
                                 .sampler = {sampler, 1},
                                 .remover = {remover, 1},
                                 .remover_set = true,
                                 .max_size = max_size,
                                 .max_times_sampled = max_times_sampled};
    assert_int_equal(trp_table_options_check(&options), TRP_OK);
    return table_create(&options, 5, 1);
}

/* Inserts and gives the victim's key; 0: none. */
static uint64_t insert(struct table *table, uint64_t key, double priority)
{
    struct item *evicted;
    table_insert(table, item_create(key, priority), &evicted);
    uint64_t victim = evicted ? evicted->key : 0;
    free(evicted);
    return victim;
}

static uint64_t sample_key(struct table *table)
{
    struct table_sample sample;
    table_sample(table, &sample);
    uint64_t key = sample.item->key;
    if (sample.removed)
        free(sample.item);
    return key;
}

/* ---- the model --------------------------------------------------------------------------- */

enum { KEYS = 60, MAX_SIZE = 25 };

struct entry {
    bool inside;
    double priority;
    uint64_t inserted, touched;
    int32_t times_sampled;
};

struct model {
    trp_selector_kind sampler, remover;
    int32_t max_times_sampled;
    struct entry entries[KEYS]; /* the key is the index + 1 */
    int64_t size, inserts, samples, deletes, unique, stamps;
};

static bool entry_before(const struct entry *x, const struct entry *y, trp_selector_kind kind)
{
    switch (kind) {
    case TRP_LIFO:
        return x->inserted > y->inserted;
    case TRP_MAX_HEAP:
        return x->priority > y->priority || (x->priority == y->priority && x->touched < y->touched);
    case TRP_MIN_HEAP:
        return x->priority < y->priority || (x->priority == y->priority && x->touched < y->touched);
    default:
        return x->inserted < y->inserted;
    }
}

static uint64_t model_first(const struct model *model, trp_selector_kind kind)
{
    size_t best = KEYS;
    for (size_t i = 0; i < KEYS; i++) {
        const struct entry *entry = &model->entries[i];
        if (entry->inside && (best == KEYS || entry_before(entry, &model->entries[best], kind)))
            best = i;
    }
    return best + 1;
}

static bool is_random(trp_selector_kind kind)
{
    return kind == TRP_UNIFORM || kind == TRP_PRIORITIZED;
}

static void model_remove(struct model *model, uint64_t key)
{
    assert_true(model->entries[key - 1].inside);
    model->entries[key - 1].inside = false;
    model->size--;
    model->deletes++;
}

static void step_insert(struct model *model, struct table *table, uint64_t key, double priority)
{
    struct item *known = table_find(table, key);
    struct entry *entry = &model->entries[key - 1];
    assert_int_equal(known != NULL, entry->inside);
    model->stamps++;
    if (known) {
        entry->priority = priority;
        entry->touched = (uint64_t)model->stamps;
        table_update(table, known, priority);
        return;
    }
    *entry = (struct entry){true, priority, (uint64_t)model->stamps, (uint64_t)model->stamps, 0};
    model->size++;
    uint64_t victim = insert(table, key, priority);
    assert_int_equal(victim != 0, model->size > MAX_SIZE);
    if (victim) {
        if (!is_random(model->remover))
            assert_int_equal(victim, model_first(model, model->remover));
        model_remove(model, victim);
    }
    model->inserts++;
}

static void step_remove(struct model *model, struct table *table, uint64_t key)
{
    struct item *item = table_find(table, key);
    assert_int_equal(item != NULL, model->entries[key - 1].inside);
    if (!item)
        return;
    table_remove(table, item);
    assert_int_equal(item->slot, SLOT_NONE);
    free(item);
    model_remove(model, key);
}

static void step_sample(struct model *model, struct table *table)
{
    if (model->size == 0)
        return;
    struct table_sample sample;
    table_sample(table, &sample);
    uint64_t key = sample.item->key;
    if (!is_random(model->sampler))
        assert_int_equal(key, model_first(model, model->sampler));
    struct entry *entry = &model->entries[key - 1];
    assert_true(entry->inside);
    model->unique += entry->times_sampled == 0;
    model->samples++;
    entry->times_sampled++;
    assert_int_equal(sample.times_sampled, entry->times_sampled);
    assert_int_equal(sample.table_size, model->size);
    assert_true(sample.item->priority == entry->priority);
    assert_true(sample.probability > 0 && sample.probability <= 1);
    assert_int_equal(sample.removed, entry->times_sampled == model->max_times_sampled);
    if (sample.removed) {
        model_remove(model, key);
        free(sample.item);
    }
}

static void check_counts(const struct model *model, struct table *table)
{
    const struct limiter *limiter = (&table_facts(table)->limiter);
    assert_int_equal(table_facts(table)->size, model->size);
    assert_int_equal(limiter->inserts, model->inserts);
    assert_int_equal(limiter->samples, model->samples);
    assert_int_equal(limiter->deletes, model->deletes);
    assert_int_equal(table_facts(table)->unique_samples, model->unique);
}

static void check_against_model(trp_selector_kind sampler, trp_selector_kind remover,
                                int32_t max_times_sampled)
{
    struct model model = {
        .sampler = sampler, .remover = remover, .max_times_sampled = max_times_sampled};
    struct table *table = table_of(sampler, remover, MAX_SIZE, max_times_sampled);
    trp_rng rng;
    trp_rng_init(&rng, 2, (uint64_t)(sampler * 10 + remover));
    for (int i = 0; i < 3000; i++) {
        uint64_t key = trp_rng_below(&rng, KEYS) + 1;
        double priority = (double)trp_rng_below(&rng, 9);
        switch (trp_rng_below(&rng, 5)) {
        case 0:
            step_remove(&model, table, key);
            break;
        case 1:
        case 2:
            step_sample(&model, table);
            break;
        default:
            step_insert(&model, table, key, priority);
        }
        check_counts(&model, table);
    }
    int released = 0;
    table_destroy(table, item_free, &released);
    assert_int_equal(released, model.size);
}

static void every_pair_of_selectors_does_what_the_model_does(void **state)
{
    (void)state;
    for (int sampler = TRP_UNIFORM; sampler <= TRP_MIN_HEAP; sampler++) {
        for (int remover = TRP_UNIFORM; remover <= TRP_MIN_HEAP; remover++) {
            check_against_model((trp_selector_kind)sampler, (trp_selector_kind)remover, 0);
            check_against_model((trp_selector_kind)sampler, (trp_selector_kind)remover, 2);
        }
    }
}

/* ---- single behaviours ------------------------------------------------------------------- */

static void a_new_item_can_be_its_own_victim(void **state)
{
    (void)state;
    struct table *table = table_of(TRP_FIFO, TRP_LIFO, 2, 0);
    assert_int_equal(insert(table, 1, 1), 0);
    assert_int_equal(insert(table, 2, 1), 0);
    assert_int_equal(insert(table, 3, 1), 3);
    assert_null(table_find(table, 3));
    assert_int_equal(table_facts(table)->size, 2);
    assert_int_equal(table_facts(table)->limiter.inserts, 3);
    assert_int_equal(table_facts(table)->limiter.deletes, 1);
    table_destroy(table, item_free, NULL);
}

static void a_table_evicts_only_above_max_size(void **state)
{
    (void)state;
    struct table *table = table_of(TRP_FIFO, TRP_FIFO, 3, 0);
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(insert(table, key, 1), 0);
    assert_int_equal(insert(table, 4, 1), 1);
    assert_int_equal(insert(table, 5, 1), 2);
    table_destroy(table, item_free, NULL);
}

static void a_queue_gives_items_in_order_and_forgets_them(void **state)
{
    (void)state;
    struct table *table = table_of(TRP_FIFO, TRP_FIFO, 10, 1);
    for (uint64_t key = 1; key <= 3; key++)
        insert(table, key, 1);
    struct table_sample sample;
    table_sample(table, &sample);
    assert_int_equal(sample.item->key, 1);
    assert_int_equal(sample.table_size, 3);
    assert_int_equal(sample.times_sampled, 1);
    assert_true(sample.removed);
    assert_true(sample.probability == 1);
    assert_int_equal(sample.item->slot, SLOT_NONE);
    free(sample.item);
    assert_null(table_find(table, 1));
    assert_int_equal(sample_key(table), 2);
    assert_int_equal(sample_key(table), 3);
    assert_int_equal(table_facts(table)->size, 0);
    assert_int_equal(table_facts(table)->unique_samples, 3);
    table_destroy(table, item_free, NULL);
}

static void an_item_that_comes_with_more_samples_than_allowed_never_expires(void **state)
{
    (void)state;
    struct table *table = table_of(TRP_FIFO, TRP_FIFO, 10, 2);
    struct item *item = item_create(1, 1), *evicted;
    item->times_sampled = 5;
    table_insert(table, item, &evicted);
    assert_null(evicted);
    for (int i = 0; i < 10; i++)
        assert_int_equal(sample_key(table), 1);
    assert_int_equal(table_facts(table)->size, 1);
    assert_int_equal(table_facts(table)->unique_samples, 0);
    assert_int_equal(item->times_sampled, 15);
    table_destroy(table, item_free, NULL);
}

static void refused_priorities_name_either_selectors_reason(void **state)
{
    (void)state;
    struct table *table = table_of(TRP_FIFO, TRP_PRIORITIZED, 10, 0);
    assert_int_equal(table_check_priority(table_facts(table)->options, -1), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "Priority must not be negative.");
    assert_int_equal(table_check_priority(table_facts(table)->options, NAN), TRP_INVALID_ARGUMENT);
    assert_int_equal(table_check_priority(table_facts(table)->options, 1), TRP_OK);
    table_destroy(table, item_free, NULL);
}

struct shelf {
    uint64_t brought, in_turn, missing; /* how many; the seq of one that cannot be had, */
    bool damaged;                       /* because it is */
};

static struct item *shelf_bring(void *arg, uint64_t seq, bool in_turn, bool *damaged)
{
    struct shelf *shelf = arg;
    *damaged = seq == shelf->missing && shelf->damaged;
    if (seq == shelf->missing)
        return NULL;
    shelf->brought++;
    shelf->in_turn += in_turn;
    struct item *item = item_create(seq + 1000, (double)seq);
    item->seq = seq;
    return item;
}

static void items_of_the_store_are_brought_once_when_they_are_wanted(void **state)
{
    (void)state;
    enum { COUNT = 1000, DRAWS = 50 };
    struct shelf shelf = {0};
    struct table_sample samples[DRAWS];
    struct table *table = table_of(TRP_PRIORITIZED, TRP_FIFO, COUNT, 0);
    table_set_lazy_load(table, shelf_bring, &shelf);
    for (uint64_t seq = 1; seq <= COUNT; seq++)
        table_restore(table, seq, (double)seq);
    assert_int_equal(table_facts(table)->size, COUNT);
    assert_int_equal(table_facts(table)->limiter.inserts, 0);
    assert_int_equal(shelf.brought, 0);
    assert_int_equal(table_oldest(table)->key, 1001);
    assert_int_equal(table_slot(table, COUNT - 1)->key, COUNT + 1000);
    assert_int_equal(shelf.brought, 2);
    assert_int_equal(table_sample_many(table, DRAWS, samples), DRAWS);
    assert_in_range(shelf.brought, 3, DRAWS + 2);
    for (uint32_t i = 0; i < DRAWS; i++)
        assert_ptr_equal(table_slot(table, samples[i].item->slot), samples[i].item);
    assert_int_equal(shelf.in_turn, 0);
    while (table_index_step(table, 300))
        assert_false(table_index_ready(table));
    assert_int_equal(shelf.brought, COUNT);
    for (uint64_t seq = 1; seq <= COUNT; seq++)
        assert_int_equal(table_find(table, seq + 1000)->seq, seq);
    table_destroy(table, item_free, NULL);
}

static void an_item_that_cannot_be_had_ends_a_draw_and_the_index(void **state)
{
    (void)state;
    struct shelf shelf = {.missing = 2};
    struct table_sample samples[3];
    struct table *table = table_of(TRP_UNIFORM, TRP_FIFO, 3, 0);
    table_set_lazy_load(table, shelf_bring, &shelf);
    for (uint64_t seq = 1; seq <= 3; seq++)
        table_restore(table, seq, 1);
    while (table_sample_many(table, 3, samples) == 3)
        ;
    assert_true(table_index_step(table, 300));
    assert_true(table_index_step(table, 300));
    assert_false(table_index_ready(table));
    table_destroy(table, item_free, NULL);
}

static void an_item_that_is_damaged_leaves_the_table_and_the_others_are_drawn(void **state)
{
    (void)state;
    struct table_sample samples[3];
    for (int indexed = 0; indexed < 2; ++indexed) {
        struct shelf shelf = {.missing = 2, .damaged = true};
        struct table *table = table_of(TRP_UNIFORM, TRP_FIFO, 3, 0);
        struct item *evicted;
        table_set_lazy_load(table, shelf_bring, &shelf);
        for (uint64_t seq = 1; seq <= 3; seq++)
            table_restore(table, seq, 1);
        while (!indexed && table_sample_many(table, 3, samples) == 3)
            ;
        while (table_index_step(table, 300))
            ;
        assert_int_equal(table_facts(table)->size, 2);
        assert_int_equal(table_facts(table)->limiter.deletes, 1);
        assert_int_equal(shelf.brought, 2);
        for (int i = 0; i < 50; i++)
            assert_int_equal(table_sample_many(table, 3, samples), 3);
        assert_null(table_find(table, 1002));
        table_insert(table, item_create(7, 1), &evicted); /* takes the slot */
        assert_null(evicted);
        assert_int_equal(table_find(table, 7)->key, 7);
        table_destroy(table, item_free, NULL);
    }
}

static void a_restored_priority_that_the_selector_refuses_counts_as_zero(void **state)
{
    (void)state;
    struct table *table = table_of(TRP_PRIORITIZED, TRP_FIFO, 10, 0);
    struct shelf shelf = {0};
    table_set_lazy_load(table, shelf_bring, &shelf);
    table_restore(table, 1, -3);
    table_restore(table, 2, 1);
    assert_false(table_index_step(table, 2));
    for (int i = 0; i < 100; i++)
        assert_int_equal(sample_key(table), 1002);
    table_destroy(table, item_free, NULL);
}

static void a_restored_table_above_max_size_is_evicted_down_to_it(void **state)
{
    (void)state;
    struct table *table = table_of(TRP_FIFO, TRP_FIFO, 3, 0);
    struct shelf shelf = {0};
    table_set_lazy_load(table, shelf_bring, &shelf);
    for (uint64_t seq = 1; seq <= 5; seq++)
        table_restore(table, seq, 1);
    assert_false(table_index_step(table, 5));
    for (uint64_t key = 1001; key <= 1002; key++) {
        struct item *victim = table_evict(table);
        assert_non_null(victim);
        assert_int_equal(victim->key, key);
        free(victim);
    }
    assert_null(table_evict(table));
    assert_int_equal(table_facts(table)->limiter.deletes, 2);
    assert_null(table_find(table, 1002));
    assert_non_null(table_find(table, 1003));
    table_destroy(table, item_free, NULL);
}

static void a_successor_is_empty_and_draws_on_while_the_table_goes_in_steps(void **state)
{
    (void)state;
    struct table *before = table_of(TRP_UNIFORM, TRP_FIFO, 5, 0);
    for (uint64_t key = 1; key <= 8; key++)
        insert(before, key, 1);
    sample_key(before);
    struct table *table = table_successor(before, 9);
    assert_int_equal(table_facts(table)->id, 9);
    assert_memory_equal((&table_facts(table)->rng), (&table_facts(before)->rng), sizeof(trp_rng));
    check_counts(&(struct model){.size = 0}, table);
    int released = 0;
    uint64_t weight = 2;
    for (int step = 1; table_destroy_step(before, &weight, item_free, &released); step++) {
        assert_int_equal(weight, 0);
        assert_in_range(released, step, 2 * step);
        weight = 2;
    }
    assert_int_equal(released, 5);
    assert_null(table_find(table, 8));
    assert_int_equal(insert(table, 8, 1), 0);
    assert_int_equal(sample_key(table), 8);
    table_destroy(table, item_free, NULL);
}

static void keys_that_only_differ_in_their_upper_bits_are_told_apart(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    struct table *table = table_of(TRP_UNIFORM, TRP_FIFO, COUNT, 0);
    for (uint64_t i = 0; i < COUNT; i++)
        insert(table, i << 44, 1);
    for (uint64_t i = 0; i < COUNT; i += 2) {
        struct item *item = table_find(table, i << 44);
        assert_non_null(item);
        table_remove(table, item);
        free(item);
    }
    for (uint64_t i = 0; i < COUNT; i++)
        assert_int_equal(table_find(table, i << 44) != NULL, i % 2);
    table_destroy(table, item_free, NULL);
}

static void keys_are_told_apart_just_before_their_index_grows(void **state)
{
    (void)state;
    enum { COUNT = (1 << 17) / 5 * 4 }; /* full by four fifths: some lie hundreds of places off */
    struct table *table = table_of(TRP_UNIFORM, TRP_FIFO, 1 << 20, 0);
    trp_rng rng;
    trp_rng_init(&rng, 1, 1);
    uint64_t *keys = xmalloc(COUNT * sizeof *keys);
    for (uint32_t i = 0; i < COUNT; i++)
        insert(table, keys[i] = trp_rng_u64(&rng), 1);
    for (uint32_t i = 0; i < COUNT; i += 2) {
        struct item *item = table_find(table, keys[i]);
        assert_non_null(item);
        table_remove(table, item);
        free(item);
        assert_null(table_find(table, keys[i]));
    }
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(table_find(table, keys[i]) != NULL, i % 2);
    free(keys);
    table_destroy(table, item_free, NULL);
}

static void the_same_seed_draws_the_same_items(void **state)
{
    (void)state;
    struct table *a = table_of(TRP_PRIORITIZED, TRP_UNIFORM, 20, 0);
    struct table *b = table_of(TRP_PRIORITIZED, TRP_UNIFORM, 20, 0);
    for (uint64_t key = 1; key <= 200; key++) {
        assert_int_equal(insert(a, key, (double)key), insert(b, key, (double)key));
        assert_int_equal(sample_key(a), sample_key(b));
    }
    table_destroy(a, item_free, NULL);
    table_destroy(b, item_free, NULL);
}

static void a_table_knows_its_options_with_defaults_filled_in(void **state)
{
    (void)state;
    struct table *table = table_create(&(trp_table_options){.name = "plain"}, 9, 1);
    const trp_table_options *options = table_facts(table)->options;
    assert_string_equal(options->name, "plain");
    assert_int_equal(options->max_size, 1000000);
    assert_int_equal(options->remover.kind, TRP_FIFO);
    assert_int_equal(options->limiter.min_size, 1);
    assert_int_equal(table_facts(table)->id, 9);
    table_facts(table)->unique_samples = 12;
    assert_int_equal(table_facts(table)->unique_samples, 12);
    table_destroy(table, item_free, NULL);
    table_destroy(NULL, item_free, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_selectors_does_what_the_model_does),
        cmocka_unit_test(a_new_item_can_be_its_own_victim),
        cmocka_unit_test(a_table_evicts_only_above_max_size),
        cmocka_unit_test(a_queue_gives_items_in_order_and_forgets_them),
        cmocka_unit_test(an_item_that_comes_with_more_samples_than_allowed_never_expires),
        cmocka_unit_test(refused_priorities_name_either_selectors_reason),
        cmocka_unit_test(items_of_the_store_are_brought_once_when_they_are_wanted),
        cmocka_unit_test(an_item_that_cannot_be_had_ends_a_draw_and_the_index),
        cmocka_unit_test(an_item_that_is_damaged_leaves_the_table_and_the_others_are_drawn),
        cmocka_unit_test(a_restored_priority_that_the_selector_refuses_counts_as_zero),
        cmocka_unit_test(a_restored_table_above_max_size_is_evicted_down_to_it),
        cmocka_unit_test(a_successor_is_empty_and_draws_on_while_the_table_goes_in_steps),
        cmocka_unit_test(keys_that_only_differ_in_their_upper_bits_are_told_apart),
        cmocka_unit_test(keys_are_told_apart_just_before_their_index_grows),
        cmocka_unit_test(the_same_seed_draws_the_same_items),
        cmocka_unit_test(a_table_knows_its_options_with_defaults_filled_in),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
