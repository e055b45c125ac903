/* Learners together, each on a machine of tests (tests/nn/cuda/twin_machine.h), by an NCCL of tests
 * (collective/fake_nccl.h): a step with its sums is the graphs that it is of one learner alone, and
 * what they learn is what learners of hosts do. */
#include "device_run.h"

#include "core/thread.h"
#include "tests/agents/gpu_kernels.h"
#include "tests/learner/collective/fake_nccl.h"
#include "tests/nn/cuda/twin_machine.h"

enum { MEMBERS = 2, MET = 13, LAST = 25 };

static struct fake_nccl *fake;

/* A machine's numbers when its learner fetches batches MET and LAST. */
struct numbers {
    uint64_t graphs, launches, runs;
};

struct member {
    struct twin_device twin; /* first */
    struct numbers met, last;
    struct wanted wanted;
    struct run run;
    trp_gang *gang;
    uint32_t index;
    char words[512];
    struct thread thread;
};

static const struct cuda_kernel *find_kernel(const char *name)
{
    for (size_t i = 0; learner_kernels[i]; i++)
        if (strcmp(learner_kernels[i]->name, name) == 0)
            return learner_kernels[i];
    return find_agents_kernel(name);
}

static void note_numbers(trp_device *device, uint64_t number)
{
    struct member *member = (struct member *)(void *)machine_of(device);
    const struct twin_machine *machine = &member->twin.machine;
    struct numbers *numbers = number % 1000 == MET    ? &member->met
                              : number % 1000 == LAST ? &member->last
                                                      : NULL;
    if (numbers)
        *numbers = (struct numbers){machine->graphs, machine->launches, machine->runs};
}

static void member_run(void *argument)
{
    struct member *member = argument;
    run_begin(&member->run, &member->wanted);
    if (member->run.status != TRP_OK)
        snprintf(member->words, sizeof member->words, "%s", trp_last_error());
    if (member->gang)
        trp_gang_left(member->gang, member->index, *member->words ? member->words : NULL);
    trp_learner_destroy(member->run.learner); /* its queues are this thread's */
    member->run.learner = NULL;
}

/* `count` learners, of which each has batches of its own; one is alone. They write into a
 * directory, for remove_dir() and free(). */
static char *learn(struct member *members[MEMBERS], uint32_t count, bool on_machines)
{
    char *dir = xstrdup("/tmp/test_gpu_group.XXXXXX");
    assert_non_null(mkdtemp(dir));
    trp_gang *gang = count == 1 ? NULL
                                : trp_gang_create(&(trp_gang_options){
                                      .name = "learner", .count = count, .start_ms = 20000});
    for (uint32_t i = 0; i < count; i++) {
        members[i] = xcalloc(1, sizeof *members[i]);
        trp_device *device = twin_device_init(&members[i]->twin, i + 1);
        members[i]->twin.machine.more = find_kernel;
        members[i]->twin.machine.checks_waits = true;
        members[i]->gang = gang;
        members[i]->index = i;
        members[i]->wanted = (struct wanted){
            .env = "CartPole-v1",
            .agent = trp_dqn(&(trp_dqn_options){.hidden = {16}, .target_period = 3}),
            .device = on_machines ? device : NULL,
            .gives = on_machines ? note_numbers : NULL,
            .first = 1000 * i,
            .steps = LAST,
            .publish_every = 2 * LAST,
            .dir = dir,
            .rendezvous = gang ? trp_gang_member(gang, i) : NULL,
            .members = gang ? count : 0};
        OR_FAIL(thread_start(&members[i]->thread, "member", member_run, members[i]));
    }
    for (uint32_t i = 0; i < count; i++)
        thread_stop(&members[i]->thread);
    for (uint32_t i = 0; i < count; i++)
        if (members[i]->run.status != TRP_OK)
            fail_msg("learner %u of %u: %s", i, count, members[i]->words);
    trp_gang_destroy(gang);
    return dir;
}

static void members_free(struct member *members[MEMBERS], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        run_end(&members[i]->run);
        free(members[i]);
    }
}

static void a_step_of_a_group_is_as_many_graphs_as_one_of_a_learner_alone(void **state)
{
    struct member *alone[MEMBERS], *group[MEMBERS];
    char *dirs[2];
    (void)state;
    *fake = (struct fake_nccl){.polls = 1};
    dirs[0] = learn(alone, 1, true);
    dirs[1] = learn(group, MEMBERS, true);
    assert_int_equal(fake->misuses, 0);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->aborts, 0);
    assert_int_equal(fake->launched, MEMBERS * (1 + LAST)); /* of the meeting, and a sum a step */
    assert_int_equal(fake->calls - fake->captured, MEMBERS);
    uint64_t launches = alone[0]->last.launches - alone[0]->met.launches;
    for (uint32_t i = 0; i < MEMBERS && LISTS_REPEAT; i++) {
        const struct numbers *met = &group[i]->met, *last = &group[i]->last;
        assert_int_equal(group[i]->twin.machine.host_works, 0);
        assert_int_equal(last->launches - met->launches, launches); /* one a step: */
        assert_int_equal(launches, LAST - MET);
        assert_int_equal(last->graphs, met->graphs); /* nothing is captured any more, */
        assert_int_equal(last->runs, met->runs);     /* or run work by work */
    }
    members_free(alone, 1);
    members_free(group, MEMBERS);
    for (size_t i = 0; i < 2; i++) {
        remove_dir(dirs[i]);
        free(dirs[i]);
    }
}

static void they_learn_what_learners_of_hosts_do(void **state)
{
    struct member *hosts[MEMBERS], *group[MEMBERS];
    char *dirs[2];
    (void)state;
    *fake = (struct fake_nccl){.polls = 0};
    dirs[0] = learn(hosts, MEMBERS, false);
    dirs[1] = learn(group, MEMBERS, true);
    double worst = worst_tensor(dirs[0], dirs[1]);
    if (!(worst < 1e-4))
        fail_msg("tensors differ by %g", worst);
    members_free(hosts, MEMBERS);
    members_free(group, MEMBERS);
    for (size_t i = 0; i < 2; i++) {
        remove_dir(dirs[i]);
        free(dirs[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_a_group_is_as_many_graphs_as_one_of_a_learner_alone),
        cmocka_unit_test(they_learn_what_learners_of_hosts_do),
    };
    fake = fake_nccl_load(FAKE_NCCL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
