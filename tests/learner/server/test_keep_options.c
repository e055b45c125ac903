/* A server that begins again with other options: its log is taken by those that it was taken with,
 * and from there on it is a shard of the new ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/checkpoint.h>
#include "core/alloc.h"
#include "learner/server/keep.h"

enum { COUNT = 24, WORKERS = 3, PUSHES = 8, RULES = TRP_SERVER_DYNSGD + 1 };

struct life {
    struct param_shard shard;
    struct shard_keep keep;
    float values[COUNT];
    uint64_t steps;
    bool found;
    trp_status status;
};

static struct shard_options options_with(trp_server_rule rule, trp_optimizer optimizer)
{
    return (struct shard_options){
        .rule = rule, .optimizer = optimizer, .workers = WORKERS, .slack = 1, .softness = 1};
}

static void begin(struct life *life, const char *dir, const struct shard_options *options)
{
    *life = (struct life){.steps = 0};
    for (size_t i = 0; i < COUNT; i++)
        life->values[i] = (float)i;
    assert_int_equal(shard_create(&life->shard, options, life->values, COUNT), TRP_OK);
    keep_init(&life->keep, dir, "params", true);
    life->status = keep_load(&life->keep, &life->shard, &life->steps, &life->found);
    if (life->status == TRP_OK && !life->found)
        assert_int_equal(keep_save(&life->keep, &life->shard, 0, true), TRP_OK);
}

/* As a process that is killed. */
static void die(struct life *life)
{
    keep_cleanup(&life->keep);
    shard_destroy(&life->shard);
}

static enum shard_answer push_on(struct life *life, uint32_t worker, uint64_t version)
{
    static const struct shard_range all = {0, COUNT};
    struct param_shard *shard = &life->shard;
    float grads[COUNT];
    uint64_t clock = shard->workers[worker].clock;
    for (size_t i = 0; i < COUNT; i++)
        grads[i] = (float)((worker + 2) * (clock % 5 + 1)) - (float)(i % 7);
    const struct shard_push push = {.worker = worker,
                                    .sequence = clock,
                                    .version = version,
                                    .scale = 1,
                                    .ranges = &all,
                                    .range_count = 1,
                                    .grads = grads};
    if (shard_judge(shard, &push) != SHARD_TAKEN)
        return shard_judge(shard, &push);
    assert_int_equal(keep_append(&life->keep, KEEP_PUSH, &push, 1), TRP_OK);
    life->steps++;
    return shard_push(shard, &push);
}

static enum shard_answer push_of(struct life *life, uint32_t worker)
{
    return push_on(life, worker, life->shard.version);
}

static char *new_dir(void)
{
    char *dir = xstrdup("/tmp/test_keep_options.XXXXXX");
    assert_non_null(mkdtemp(dir));
    return dir;
}

static void remove_dir(char *dir)
{
    char *command = xasprintf("rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(dir);
}

static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 0.5};

/* The step that was begun and not whole, with the mean of what came of it. */
static void end_step(const struct param_shard *shard, float values[COUNT])
{
    memcpy(values, shard->values, COUNT * sizeof *values);
    for (size_t i = 0; i < COUNT && shard->summed > 0; i++)
        values[i] -= 0.5F * (float)(shard->sum[i] / shard->summed);
}

static void check_goes_on(struct life *life)
{
    for (uint32_t i = 0; i < 3 * WORKERS; i++)
        assert_int_equal(push_of(life, (PUSHES + i) % WORKERS), SHARD_TAKEN);
}

/* Whoever was ahead by the rule before waits for nobody. */
static void check_all_may_read(const struct life *life)
{
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        assert_true(shard_may_read(&life->shard, worker));
}

static void check_change(trp_server_rule from, trp_server_rule to)
{
    const struct shard_options options = options_with(from, sgd), others = options_with(to, sgd);
    char *dir = new_dir();
    struct life life;
    float expected[COUNT], later[COUNT];
    uint64_t ahead = from == TRP_SERVER_SYNC || from == TRP_SERVER_SSP ? 0 : 4;
    begin(&life, dir, &options);
    for (uint64_t i = 0; i < ahead; i++)
        assert_int_equal(push_of(&life, 0), SHARD_TAKEN);
    for (uint32_t i = 0; i < PUSHES; i++)
        assert_int_equal(push_of(&life, i % WORKERS), SHARD_TAKEN);
    uint64_t version = life.shard.version;
    if (from == to)
        memcpy(expected, life.values, sizeof expected);
    else
        end_step(&life.shard, expected);
    die(&life);
    for (uint32_t again = 0; again < 2; again++) { /* what it made of it is kept, too */
        begin(&life, dir, &others);
        assert_int_equal(life.status, TRP_OK);
        assert_true(life.found && life.steps == ahead + PUSHES);
        assert_int_equal(life.shard.pushes, ahead + PUSHES);
        assert_true(life.shard.version >= version && life.shard.options.rule == to);
        assert_memory_equal(life.values, expected, sizeof expected);
        if (again == 0)
            die(&life);
    }
    if (from != to)
        check_all_may_read(&life);
    check_goes_on(&life);
    memcpy(later, life.values, sizeof later);
    die(&life);
    begin(&life, dir, &others);
    assert_memory_equal(life.values, later, sizeof later);
    die(&life);
    remove_dir(dir);
}

static void a_log_is_taken_by_the_rule_of_the_life_that_wrote_it(void **state)
{
    (void)state;
    for (int from = 0; from < RULES; from++)
        for (int to = 0; to < RULES; to++)
            check_change((trp_server_rule)from, (trp_server_rule)to);
}

/* A bound that comes later drops nothing that was taken. */
static void a_log_is_taken_within_the_staleness_of_the_life_that_wrote_it(void **state)
{
    (void)state;
    struct shard_options options = options_with(TRP_SERVER_ASYNC, sgd);
    char *dir = new_dir();
    struct life life;
    float expected[COUNT];
    begin(&life, dir, &options);
    for (uint32_t i = 0; i < PUSHES; i++)
        assert_int_equal(push_on(&life, 0, i / 4), SHARD_TAKEN);
    memcpy(expected, life.values, sizeof expected);
    die(&life);
    options.max_staleness = 1;
    begin(&life, dir, &options);
    assert_int_equal(life.status, TRP_OK);
    assert_memory_equal(life.values, expected, sizeof expected);
    assert_int_equal(life.shard.options.max_staleness, 1);
    die(&life);
    remove_dir(dir);
}

static void an_optimizer_goes_on_with_the_states_that_there_are(void **state)
{
    (void)state;
    static const trp_optimizer momentum = {.kind = TRP_SGD, .learning_rate = 0.5, .momentum = 0.5};
    static const trp_optimizer adam = {.kind = TRP_ADAM, .learning_rate = 0.5};
    struct shard_options options = options_with(TRP_SERVER_SSP, momentum);
    char *dir = new_dir();
    struct life life;
    float expected[COUNT];
    begin(&life, dir, &options);
    for (uint32_t i = 0; i < PUSHES; i++)
        assert_int_equal(push_of(&life, i % WORKERS), SHARD_TAKEN);
    memcpy(expected, life.values, sizeof expected);
    die(&life);
    options.optimizer = adam;
    begin(&life, dir, &options);
    assert_int_equal(life.status, TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), dir));
    assert_non_null(strstr(trp_last_error(), "stepped with sgd"));
    die(&life);
    options.optimizer = sgd;
    begin(&life, dir, &options);
    assert_int_equal(life.status, TRP_OK);
    assert_memory_equal(life.values, expected, sizeof expected);
    die(&life);
    remove_dir(dir);
}

static void an_optimizer_that_is_refused_takes_no_state(void **state)
{
    (void)state;
    static const trp_optimizer plain = {.kind = TRP_RMSPROP, .learning_rate = 0.5};
    static const trp_optimizer momentum = {
        .kind = TRP_RMSPROP, .learning_rate = 0.5, .momentum = 0.5};
    struct shard_options options = options_with(TRP_SERVER_SSP, plain);
    char *dir = new_dir();
    struct life life;
    begin(&life, dir, &options);
    die(&life);
    options.optimizer = momentum;
    begin(&life, dir, &options);
    assert_int_equal(life.status, TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "rmsprop.v"));
    assert_non_null(life.shard.state[0]);
    die(&life);
    remove_dir(dir);
}

/* A file whose tensor `name` has another number in one place, as it came from elsewhere. */
static void damage(const char *path, const char *name, size_t place, const void *number)
{
    enum { TENSORS_MAX = 16 };
    trp_checkpoint_tensor tensors[TENSORS_MAX];
    trp_checkpoint *checkpoint;
    uint64_t *numbers = NULL;
    assert_int_equal(trp_checkpoint_read(&checkpoint, path), TRP_OK);
    size_t count = trp_checkpoint_tensor_count(checkpoint);
    assert_true(count <= TENSORS_MAX);
    for (size_t i = 0; i < count; i++) {
        tensors[i] = *trp_checkpoint_tensor_at(checkpoint, i);
        if (strcmp(tensors[i].name, name) != 0)
            continue;
        assert_true(place < tensors[i].shape[0]);
        numbers = xmemdup(tensors[i].data, (size_t)tensors[i].shape[0] * sizeof *numbers);
        memcpy(&numbers[place], number, sizeof *numbers);
        tensors[i].data = numbers;
    }
    assert_non_null(numbers);
    assert_int_equal(trp_checkpoint_write(path, tensors, count, NULL, 0), TRP_OK);
    trp_checkpoint_destroy(checkpoint);
    free(numbers);
}

static void check_is_refused(const char *tensor, size_t place, const void *number,
                             const char *words)
{
    const struct shard_options options = options_with(TRP_SERVER_SSP, sgd);
    char *dir = new_dir(), *path = xasprintf("%s/params.safetensors", dir);
    struct life life;
    begin(&life, dir, &options);
    die(&life);
    damage(path, tensor, place, number);
    begin(&life, dir, &options);
    if (life.status != TRP_DATA_LOSS)
        fail_msg("status %d, not: %s", life.status, words);
    assert_ptr_equal(strstr(trp_last_error(), path), trp_last_error());
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' is not in: %s", words, trp_last_error());
    die(&life);
    free(path);
    remove_dir(dir);
}

/* The lower half of each is one that a server has. */
static void numbers_that_no_server_has_are_refused_by_name(void **state)
{
    static const struct {
        const char *tensor;
        size_t place;
        uint64_t number;
        const char *words;
    } rows[] = {
        {"rule", 0, UINT64_C(1) << 32 | TRP_SERVER_SSP, "the server's rule is 4294967"},
        {"rule", 0, RULES, "the server's rule is 5"},
        {"rule", 1, UINT64_C(1) << 32 | 1, "the server's slack is 4294967297, which no server has"},
        {"rule", 2, UINT64_C(1) << 32 | 1, "the server's softness is 4294967297"},
        {"rule", 3, UINT64_C(1) << 32, "the server's max_staleness is 4294967296"},
        {"counters", 6, UINT64_C(1) << 32, "gradients of a step are 4294967296"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_is_refused(rows[i].tensor, rows[i].place, &rows[i].number, rows[i].words);
}

static void an_optimizer_that_is_none_is_refused_by_name(void **state)
{
    static const struct {
        size_t place;
        double number;
        const char *words;
    } rows[] = {{0, 0x1p32 + TRP_SGD, "the optimizer's kind is 4.29497e+09"},
                {0, -1, "the optimizer's kind is -1"},
                {0, 0.5, "the optimizer's kind is 0.5"},
                {0, 77, "optimizer"},
                {1, (double)NAN, "the optimizer's schedule is "},
                {2, 1e7, "learning_rate is 1e+07"},
                {4, 0x1p64, "the optimizer's schedule_steps is 1.84467e+19"},
                {12, 2, "the optimizer's nesterov is 2"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_is_refused("optimizer", rows[i].place, &rows[i].number, rows[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_is_taken_by_the_rule_of_the_life_that_wrote_it),
        cmocka_unit_test(a_log_is_taken_within_the_staleness_of_the_life_that_wrote_it),
        cmocka_unit_test(an_optimizer_goes_on_with_the_states_that_there_are),
        cmocka_unit_test(an_optimizer_that_is_refused_takes_no_state),
        cmocka_unit_test(numbers_that_no_server_has_are_refused_by_name),
        cmocka_unit_test(an_optimizer_that_is_none_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
