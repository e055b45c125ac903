/* Both ends of where learners meet, without their processes: the launcher's gangs, and members that
 * the test plays, over the control sockets that are between them in a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <troupe/troupe.h>
#include "../core/patience.h"
#include "core/alloc.h"
#include "launch/host.h"
#include "launch/run.h"

enum { MEMBERS = 2, GROUPS = 2, LEARNERS = GROUPS * MEMBERS, WATCHER = LEARNERS, NODES };
enum { TIMEOUT_MS = 100 };

/* A node in its process: a learner, or the watcher, which uses the first group. */
struct player {
    struct host host; /* what meeting.c uses of one */
    trp_context context;
    trp_rendezvous *rendezvous;
    int fds[2]; /* the launcher's end, and its own */
    struct process_link *link;
};

struct scene {
    char dir[32];
    struct launch_options options;
    struct run run;
    struct player players[NODES]; /* of "learner", of "tutor", and the watcher */
};

/* ---- what the disk is asked for, in place of libc's -------------------------------------------
 */

static char asked_of_disk[16]; /* letters in their order: a file's bytes, a rename, a directory */

static void note_asked(char letter)
{
    size_t length = strlen(asked_of_disk);
    if (length + 1 < sizeof asked_of_disk)
        asked_of_disk[length] = letter;
}

int fsync(int fd)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    note_asked(S_ISDIR(info.st_mode) ? 'd' : info.st_size > 0 ? 'f' : '0');
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    note_asked('r');
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static uint32_t restarts, kills;

static trp_status count_restart(struct run *run, struct run_node *node)
{
    (void)run;
    node->running = true;
    restarts++;
    return TRP_OK;
}

static void count_kill(struct run *run, struct run_node *node)
{
    (void)run;
    (void)node;
    kills++;
}

static const struct launch_target counting_target = {.restart = count_restart, .kill = count_kill};

/* ---- a run ------------------------------------------------------------------------------------
 */

static trp_status watch(trp_context *context, const void *arg)
{
    (void)context;
    (void)arg;
    return TRP_OK;
}

static trp_program *two_gangs(void)
{
    trp_program *program = trp_program_create("gangs");
    trp_agent agent = trp_dqn(&(trp_dqn_options){.hidden = {8}});
    static const char *const names[GROUPS] = {"learner", "tutor"};
    trp_node groups[GROUPS];
    for (uint32_t i = 0; i < GROUPS; i++)
        groups[i] = trp_add_learner(program, names[i],
                                    &(trp_learner_options){.agent = &agent,
                                                           .env = "Catch",
                                                           .envs = 1,
                                                           .count = MEMBERS,
                                                           .on_failure = TRP_ON_FAILURE_CONTINUE,
                                                           .restarts = 1,
                                                           .collective_timeout_ms = TIMEOUT_MS});
    trp_add_node(program, "watcher",
                 &(trp_node_options){.run = watch, .uses = groups, .use_count = 1});
    return program;
}

static void player_init(struct scene *scene, uint32_t number)
{
    struct player *player = &scene->players[number];
    struct run *run = &scene->run;
    assert_int_equal(control_pair(player->fds), TRP_OK);
    assert_int_equal(link_create(&player->link, run, player->fds[0], number, 1), TRP_OK);
    player->host.options.control_fd = player->fds[1];
    mutex_init(&player->host.mutex);
    cond_init(&player->host.changed);
    player->context = (trp_context){.host = &player->host,
                                    .group = run->nodes[number].group,
                                    .number = number,
                                    .stop = trp_stop_create()};
    strcpy(player->context.name, run->nodes[number].name);
    player->context.meeting = meeting_create(&player->context);
    player->rendezvous = context_rendezvous(&player->context);
}

/* `generations`: what lives before have left; NULL: this is the first. */
static void scene_begin(struct scene *scene, const char *generations)
{
    *scene = (struct scene){.options.mode = LAUNCH_PROCESSES};
    restarts = kills = 0;
    strcpy(scene->dir, "/tmp/test_meeting.XXXXXX");
    assert_non_null(mkdtemp(scene->dir));
    struct run *run = &scene->run;
    run_init(run, two_gangs(), &scene->options);
    assert_int_equal(program_check(run->program), TRP_OK);
    assert_int_equal(run->program->node_count, NODES);
    run->target = &counting_target;
    run->dir.path = run->dir.shown_path = scene->dir;
    if (generations)
        assert_int_equal(run_dir_write(&run->dir, "generations", generations), TRP_OK);
    assert_int_equal(loop_init(&run->loop), TRP_OK);
    assert_int_equal(output_create(&run->output, true), TRP_OK);
    run->nodes = xcalloc(NODES, sizeof *run->nodes);
    for (uint32_t i = 0; i < NODES; i++) {
        struct run_node *node = &run->nodes[i];
        node->number = i;
        node->group = program_node(run->program, i, &node->index);
        node->running = true;
        snprintf(node->name, sizeof node->name, "%s/%u", node->group->name, node->index);
    }
    assert_int_equal(gangs_create(run), TRP_OK);
    for (uint32_t i = 0; i < NODES; i++)
        player_init(scene, i);
}

static void scene_end(struct scene *scene)
{
    struct run *run = &scene->run;
    for (uint32_t i = 0; i < NODES; i++) {
        struct player *player = &scene->players[i];
        link_destroy(player->link);
        close(player->fds[1]);
        meeting_destroy(player->context.meeting);
        trp_stop_destroy(player->context.stop);
        cond_cleanup(&player->host.changed);
        mutex_cleanup(&player->host.mutex);
        free(run->nodes[i].address);
        free(run->nodes[i].failure);
        free(run->nodes[i].excuse);
    }
    gangs_destroy(run);
    free(run->links);
    free(run->nodes);
    output_destroy(run->output, PATIENCE_MS);
    loop_cleanup(&run->loop);
    trp_program_destroy(run->program);
    char *command = xasprintf("rm -rf %s", scene->dir);
    assert_int_equal(system(command), 0);
    free(command);
}

/* ---- messages ---------------------------------------------------------------------------------
 */

/* A message from the launcher, as the member's process takes it. */
static void deliver(struct player *player, enum control_verb verb, const char *rest)
{
    struct control_message message = {.verb = verb, .rest = rest};
    mutex_lock(&player->host.mutex);
    meeting_apply_locked(player->context.meeting, &message);
    mutex_unlock(&player->host.mutex);
}

/* All that the launcher has told, at most `most` messages; how many there were. */
static uint32_t hear(struct player *player, uint32_t most)
{
    struct control_message message;
    uint32_t heard = 0;
    while (heard < most && control_receive(player->fds[1], &message) == TRP_OK) {
        deliver(player, message.verb, message.rest);
        heard++;
    }
    return heard;
}

static trp_status next_of(struct player *player, uint64_t after, trp_generation *generation)
{
    return player->rendezvous->impl->next(player->rendezvous, after, 0, generation);
}

static void announce(struct player *player)
{
    char *address = xasprintf("unix:%s", player->context.name);
    assert_int_equal(player->rendezvous->impl->announce(player->rendezvous, address), TRP_OK);
    free(address);
    link_drain(player->link);
}

/* Members of the first group, which have come, are given this generation. */
static void expect_generation(struct scene *scene, uint64_t number)
{
    trp_generation given[MEMBERS];
    for (uint32_t i = 0; i < MEMBERS; i++) {
        hear(&scene->players[i], UINT32_MAX);
        assert_int_equal(next_of(&scene->players[i], number - 1, &given[i]), TRP_OK);
        assert_int_equal(given[i].number, number);
        assert_int_equal(given[i].nonce, given[0].nonce);
        assert_int_equal(given[i].size, MEMBERS);
        assert_int_equal(given[i].rank, i);
        for (uint32_t rank = 0; rank < MEMBERS; rank++) {
            assert_int_equal(given[i].members[rank], rank);
            assert_string_equal(given[i].addresses[rank] + 5, scene->players[rank].context.name);
        }
    }
}

static void meet_first(struct scene *scene)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        announce(&scene->players[i]);
    expect_generation(scene, 1);
}

static void expect_file(const struct scene *scene, const char *text)
{
    char *path = xasprintf("%s/generations", scene->dir), got[256] = "";
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    got[fread(got, 1, sizeof got - 1, file)] = '\0';
    fclose(file);
    free(path);
    assert_string_equal(got, text);
}

/* ---- from the first to the next ----------------------------------------------------------------
 */

static void members_that_have_come_are_told_of_each_other(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    announce(&scene.players[0]);
    assert_int_equal(hear(&scene.players[0], 1), 0);
    assert_int_equal(next_of(&scene.players[0], 0, &given), TRP_DEADLINE_EXCEEDED);
    announce(&scene.players[1]);
    expect_generation(&scene, 1);
    assert_int_equal(next_of(&scene.players[0], 0, &given), TRP_OK);
    assert_true(given.first && given.founder);
    expect_file(&scene, "learner 2\ntutor 0\n");
    scene_end(&scene);
}

static void each_group_goes_on_with_numbers_of_its_own(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, "learner 10\ntutor 20");
    for (uint32_t i = 0; i < LEARNERS; i++)
        announce(&scene.players[i]);
    for (uint32_t i = 0; i < LEARNERS; i++) {
        hear(&scene.players[i], UINT32_MAX);
        assert_int_equal(next_of(&scene.players[i], 0, &given), TRP_OK);
        assert_int_equal(given.number, i < MEMBERS ? 11 : 21);
    }
    expect_file(&scene, "learner 12\ntutor 22\n");
    scene_end(&scene);
}

/* Both have said that the first one is over. */
static void a_broken_generation_is_followed_by_the_next(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    meet_first(&scene);
    struct player *one = &scene.players[0], *other = &scene.players[1];
    one->rendezvous->impl->broken(one->rendezvous, 1, "the other one hangs");
    link_drain(one->link);
    assert_int_equal(hear(one, 1), 0);
    assert_int_equal(next_of(other, 1, &given), TRP_DEADLINE_EXCEEDED);
    link_drain(other->link);
    expect_generation(&scene, 2);
    expect_file(&scene, "learner 3\ntutor 0\n");
    scene_end(&scene);
}

static void what_had_no_room_is_told_again_from_the_beginning(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    struct player *slow = &scene.players[1];
    while (control_send(slow->fds[0], 0, CONTROL_BEGUN, 0, "-") == TRP_OK)
        ;
    for (uint32_t i = 0; i < MEMBERS; i++)
        announce(&scene.players[i]); /* of the generation nothing has room */
    assert_int_equal(hear(slow, 1), 1);
    gangs_tick(&scene.run); /* for the beginning of it there is room */
    hear(slow, UINT32_MAX);
    assert_int_equal(next_of(slow, 0, &given), TRP_DEADLINE_EXCEEDED);
    gangs_tick(&scene.run);
    expect_generation(&scene, 1);
    scene_end(&scene);
}

static void who_publishes_is_the_oldest_that_is_left(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    struct run *run = &scene.run;
    const struct node_group *learner = run->nodes[0].group;
    assert_null(gangs_publisher(run, learner));
    assert_true(gangs_counts(run, &run->nodes[0], "version"));
    assert_false(gangs_counts(run, &run->nodes[1], "version"));
    meet_first(&scene);
    assert_ptr_equal(gangs_publisher(run, learner), &run->nodes[0]);
    run->nodes[0].running = false;
    run_node_failed(run, &run->nodes[0], TRP_INTERNAL, "it fell");
    assert_true(gangs_go_on(run, &run->nodes[0]));
    assert_ptr_equal(gangs_publisher(run, learner), &run->nodes[1]);
    assert_false(gangs_counts(run, &run->nodes[0], "version"));
    assert_true(gangs_counts(run, &run->nodes[1], "learner_steps"));
    assert_true(gangs_counts(run, &run->nodes[0], "grad_norm")); /* its own */
    scene_end(&scene);
}

/* ---- who fails --------------------------------------------------------------------------------
 */

static bool fails(struct scene *scene, uint32_t number, trp_status code)
{
    struct run_node *node = &scene->run.nodes[number];
    node->running = false;
    run_node_failed(&scene->run, node, code, "it fell");
    return gangs_go_on(&scene->run, node);
}

static void a_member_is_started_again_as_often_as_it_may_be(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    meet_first(&scene);
    assert_true(fails(&scene, 1, TRP_INTERNAL));
    assert_int_equal(restarts, 1);
    announce(&scene.players[1]);
    expect_generation(&scene, 3); /* of the other one alone there was one */
    assert_true(fails(&scene, 1, TRP_INTERNAL));
    assert_int_equal(restarts, 1);
    scene_end(&scene);
}

/* It would be told the same again. */
static void a_member_that_refused_its_options_is_not_started_again(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    meet_first(&scene);
    assert_true(fails(&scene, 1, TRP_INVALID_ARGUMENT));
    assert_int_equal(restarts, 0);
    scene_end(&scene);
}

static void who_comes_too_late_is_told_so(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    meet_first(&scene);
    struct player *late = &scene.players[1];
    assert_true(fails(&scene, 1, TRP_INVALID_ARGUMENT));
    scene.run.nodes[1].running = true; /* a process that nobody expects */
    announce(late);
    hear(late, UINT32_MAX);
    assert_int_equal(next_of(late, 0, &given), TRP_UNAVAILABLE);
    assert_string_equal(trp_last_error(), "learner/1 came too late: the others go on without it");
    scene_end(&scene);
}

/* The group ends with the last that knows what was learned. */
static void who_is_left_when_the_group_ends_is_told_why(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    meet_first(&scene);
    struct player *back = &scene.players[1];
    assert_true(fails(&scene, 1, TRP_INTERNAL));
    hear(back, UINT32_MAX);
    assert_false(fails(&scene, 0, TRP_INVALID_ARGUMENT));
    assert_string_equal(scene.run.nodes[0].failure,
                        "every member of learner that knew what it had learned is gone: "
                        "learner/0: it fell");
    gangs_tick(&scene.run);
    hear(back, UINT32_MAX);
    assert_int_equal(next_of(back, 1, &given), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "learner/0: it fell"));
    assert_int_equal(next_of(back, 0, &given), TRP_UNAVAILABLE); /* it stays so */
    scene_end(&scene);
}

static void a_program_that_stops_begins_no_generation(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    scene.run.phase = STOPPING;
    for (uint32_t i = 0; i < MEMBERS; i++)
        announce(&scene.players[i]);
    assert_int_equal(hear(&scene.players[0], 1), 0);
    assert_false(fails(&scene, 1, TRP_INTERNAL));
    assert_int_equal(restarts, 0);
    scene_end(&scene);
}

/* A member's process begins anew. */
static void begin_again(struct player *player)
{
    struct control_message message;
    while (control_receive(player->fds[1], &message) == TRP_OK)
        ;
    meeting_destroy(player->context.meeting);
    player->context.meeting = meeting_create(&player->context);
    player->rendezvous = context_rendezvous(&player->context);
    announce(player);
}

/* One of two says that the first generation is broken, the other one nothing. */
static void await_loss(struct scene *scene)
{
    struct player *one = &scene->players[0];
    struct deadline deadline = patience();
    meet_first(scene);
    int64_t before_ns = clock_now_ns(&clock_monotonic);
    one->rendezvous->impl->broken(one->rendezvous, 1, "the other one hangs");
    link_drain(one->link);
    while (!scene->run.nodes[1].failed) {
        look_again_soon(deadline, "the loss");
        gangs_tick(&scene->run);
    }
    assert_true(clock_now_ns(&clock_monotonic) - before_ns >
                (TIMEOUT_MS + GANG_WORD_MS) * INT64_C(1000000));
    assert_string_equal(scene->run.nodes[1].failure,
                        "the other learners of learner waited 0.1 s for it");
}

static void who_is_lost_is_killed_once_and_comes_back(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    await_loss(&scene);
    gangs_tick(&scene.run);
    assert_int_equal(kills, 1);
    scene.run.nodes[1].running = false;
    assert_true(gangs_go_on(&scene.run, &scene.run.nodes[1]));
    assert_int_equal(restarts, 1);
    begin_again(&scene.players[1]);
    expect_generation(&scene, 3);
    scene_end(&scene);
}

static void a_thread_that_is_lost_is_left_alone(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    scene.options.mode = LAUNCH_THREADS;
    await_loss(&scene);
    assert_int_equal(kills, 0);
    scene_end(&scene);
}

/* As on a full disk: a directory is where the file would be written. */
static void a_number_is_kept_ahead_of_a_disk_that_fails(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    meet_first(&scene);
    struct player *left = &scene.players[1];
    char *away = xasprintf("%s/.generations.new", scene.dir);
    assert_int_equal(mkdir(away, 0700), 0);
    assert_true(fails(&scene, 0, TRP_INVALID_ARGUMENT)); /* the one that publishes */
    hear(left, UINT32_MAX);
    assert_int_equal(next_of(left, 1, &given), TRP_OK);
    assert_int_equal(given.number, 2);
    assert_ptr_equal(gangs_publisher(&scene.run, scene.run.nodes[0].group), &scene.run.nodes[1]);
    expect_file(&scene, "learner 2\ntutor 0\n"); /* the next life begins with 3 */
    assert_int_equal(rmdir(away), 0);
    left->rendezvous->impl->broken(left->rendezvous, 2, "it is tired");
    link_drain(left->link);
    hear(left, UINT32_MAX);
    assert_int_equal(next_of(left, 2, &given), TRP_OK);
    assert_int_equal(given.number, 3);
    expect_file(&scene, "learner 4\ntutor 0\n");
    free(away);
    scene_end(&scene);
}

/* ---- who uses them ----------------------------------------------------------------------------
 */

/* Among what the watcher was told, in which nothing else is lost. */
static bool is_told(struct scene *scene, enum control_verb verb, uint32_t node, const char *rest)
{
    struct control_message message;
    while (control_receive(scene->players[WATCHER].fds[1], &message) == TRP_OK)
        if (message.verb == verb && message.node == node && strcmp(message.rest, rest) == 0)
            return true;
    return false;
}

static void serve_at(struct scene *scene, uint32_t number, const char *address)
{
    struct run_node *node = &scene->run.nodes[number];
    free(node->address);
    node->address = xstrdup(address);
    links_update(&scene->run);
}

static void who_uses_a_group_is_told_who_publishes_and_where(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    meet_first(&scene);
    assert_true(is_told(&scene, CONTROL_PUBLISHER, 0, "-"));
    serve_at(&scene, 0, "unix:old");
    assert_true(is_told(&scene, CONTROL_PEER, 0, "unix:old"));
    assert_true(fails(&scene, 0, TRP_INTERNAL));
    assert_true(is_told(&scene, CONTROL_PUBLISHER, 1, "-"));
    serve_at(&scene, 0, "unix:new"); /* of its next life */
    assert_true(is_told(&scene, CONTROL_PEER, 0, "unix:new"));
    scene_end(&scene);
}

/* Who was told that it is gone would not hear where it serves then. */
static void nobody_is_told_that_one_is_gone_which_begins_again_later(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    struct run_node *node = &scene.run.nodes[0];
    meet_first(&scene);
    serve_at(&scene, 0, "unix:old");
    node->started_ns = clock_now_ns(&clock_monotonic);
    node->short_lives = 1;
    assert_true(fails(&scene, 0, TRP_INTERNAL));
    assert_true(node->paused);
    links_update(&scene.run);
    assert_false(is_told(&scene, CONTROL_GONE, 0, "it has ended"));
    node->pause.at_ns = clock_now_ns(&clock_monotonic);
    restarts_tick(&scene.run);
    assert_true(node->running);
    serve_at(&scene, 0, "unix:new");
    assert_true(is_told(&scene, CONTROL_PEER, 0, "unix:new"));
    scene_end(&scene);
}

/* ---- a member's end ---------------------------------------------------------------------------
 */

static const char member_0[] = "7 0 1 unix:a", member_1[] = "7 1 0 unix:b",
                  generation[] = "7 99 1 2 0 1";

static void expect_given(struct player *player)
{
    trp_generation given;
    assert_int_equal(next_of(player, 0, &given), TRP_OK);
    assert_int_equal(given.number, 7);
    assert_int_equal(given.nonce, 99);
    assert_int_equal(given.rank, 1);
    assert_int_equal(given.size, 2);
    assert_false(given.first);
    assert_true(given.founder);
    assert_int_equal(given.members[0], 1);
    assert_int_equal(given.members[1], 0);
    assert_string_equal(given.addresses[0], "unix:a");
    assert_string_equal(given.addresses[1], "unix:b");
}

static void a_generation_counts_once_all_of_it_is_there(void **state)
{
    static const struct {
        enum control_verb verb;
        const char *rest;
    } before[] = {
        {CONTROL_GENERATION, generation},       {CONTROL_MEMBER, member_0},
        {CONTROL_GENERATION, generation},       {CONTROL_MEMBER, "7 1"},
        {CONTROL_GENERATION, generation},       {CONTROL_MEMBER, "7 256 0 unix:c"},
        {CONTROL_MEMBER, "7 4294967295 0 u:d"}, {CONTROL_MEMBER, member_1},
        {CONTROL_GENERATION, "8 99 1 2 0 1"},   {CONTROL_GENERATION, "7 99 2 2 0 1"},
        {CONTROL_GENERATION, "7 99 1 257 0 1"}, {CONTROL_GENERATION, "7 99 1 3 0 1"},
        {CONTROL_GENERATION, "7 99 1 2 0"},
    };
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    struct player *player = &scene.players[1];
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        deliver(player, before[i].verb, before[i].rest);
        assert_int_equal(next_of(player, 0, &given), TRP_DEADLINE_EXCEEDED);
    }
    assert_string_equal(trp_last_error(), "learner/1 waits for the other learners of learner");
    deliver(player, CONTROL_GENERATION, generation);
    expect_given(player);
    assert_int_equal(next_of(player, 7, &given), TRP_DEADLINE_EXCEEDED);
    scene_end(&scene);
}

/* The launcher had no room for the rest of one, and begins with another one. */
static void of_half_a_generation_nothing_is_left(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    struct player *player = &scene.players[1];
    deliver(player, CONTROL_MEMBER, "6 0 0 unix:x");
    deliver(player, CONTROL_MEMBER, "6 1 1 unix:y");
    deliver(player, CONTROL_MEMBER, member_0);
    deliver(player, CONTROL_GENERATION, generation);
    assert_int_equal(next_of(player, 0, &given), TRP_DEADLINE_EXCEEDED);
    deliver(player, CONTROL_MEMBER, member_1);
    deliver(player, CONTROL_GENERATION, generation);
    expect_given(player);
    scene_end(&scene);
}

static void the_newest_is_known_before_it_is_asked_for(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, NULL);
    struct player *player = &scene.players[1];
    assert_int_equal(player->rendezvous->impl->newest(player->rendezvous), 0);
    deliver(player, CONTROL_MEMBER, member_0);
    deliver(player, CONTROL_MEMBER, member_1);
    assert_int_equal(player->rendezvous->impl->newest(player->rendezvous), 0);
    deliver(player, CONTROL_GENERATION, generation);
    assert_int_equal(player->rendezvous->impl->newest(player->rendezvous), 7);
    scene_end(&scene);
}

static void a_wait_ends_with_a_dismissal_or_the_stop(void **state)
{
    struct scene scene;
    trp_generation given;
    (void)state;
    scene_begin(&scene, NULL);
    trp_rendezvous *ends[] = {scene.players[0].rendezvous, scene.players[1].rendezvous};
    assert_int_equal(ends[0]->impl->newest(ends[0]), 0);
    deliver(&scene.players[0], CONTROL_DISMISSED, "learner/0 was taken for lost");
    assert_int_equal(ends[0]->impl->newest(ends[0]), 1); /* who asks only that hears of it, too */
    deliver(&scene.players[0], CONTROL_DISMISSED, "again");
    trp_stop_request(scene.players[1].context.stop);
    int64_t before_ns = clock_now_ns(&clock_monotonic);
    assert_int_equal(ends[0]->impl->next(ends[0], 0, 2 * PATIENCE_MS, &given), TRP_UNAVAILABLE);
    assert_string_equal(trp_last_error(), "learner/0 was taken for lost");
    assert_int_equal(ends[1]->impl->next(ends[1], 0, 2 * PATIENCE_MS, &given), TRP_CANCELLED);
    assert_true(clock_now_ns(&clock_monotonic) - before_ns < PATIENCE_MS * INT64_C(1000000));
    scene_end(&scene);
}

static void a_number_outlives_the_machine(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, NULL);
    memset(asked_of_disk, 0, sizeof asked_of_disk);
    assert_int_equal(run_dir_keep(&scene.run.dir, "generations", "learner 7"), TRP_OK);
    assert_string_equal(asked_of_disk, "frd");
    scene_end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_that_have_come_are_told_of_each_other),
        cmocka_unit_test(each_group_goes_on_with_numbers_of_its_own),
        cmocka_unit_test(a_broken_generation_is_followed_by_the_next),
        cmocka_unit_test(what_had_no_room_is_told_again_from_the_beginning),
        cmocka_unit_test(who_publishes_is_the_oldest_that_is_left),
        cmocka_unit_test(a_member_is_started_again_as_often_as_it_may_be),
        cmocka_unit_test(a_member_that_refused_its_options_is_not_started_again),
        cmocka_unit_test(who_comes_too_late_is_told_so),
        cmocka_unit_test(who_is_left_when_the_group_ends_is_told_why),
        cmocka_unit_test(a_program_that_stops_begins_no_generation),
        cmocka_unit_test(who_is_lost_is_killed_once_and_comes_back),
        cmocka_unit_test(a_thread_that_is_lost_is_left_alone),
        cmocka_unit_test(a_number_is_kept_ahead_of_a_disk_that_fails),
        cmocka_unit_test(a_number_outlives_the_machine),
        cmocka_unit_test(who_uses_a_group_is_told_who_publishes_and_where),
        cmocka_unit_test(nobody_is_told_that_one_is_gone_which_begins_again_later),
        cmocka_unit_test(a_generation_counts_once_all_of_it_is_there),
        cmocka_unit_test(of_half_a_generation_nothing_is_left),
        cmocka_unit_test(the_newest_is_known_before_it_is_asked_for),
        cmocka_unit_test(a_wait_ends_with_a_dismissal_or_the_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
