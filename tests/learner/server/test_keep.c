/* What a parameter server answered is there when it begins again, whatever the disk does in
 * between. This file defines the calls by which its files are read and written: they fail when they
 * are told to. Its gradients are whole numbers and its optimizer takes them off the values, so that
 * each push that counts can be counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <troupe/optimizer.h>
#include <troupe/parameter_server.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "learner/server/keys.h"
#include "learner/server/optimizer_message.h"
#include "parameter_server.pb-c.h"

enum { COUNT = 40000, PUSHES_OF_A_CHECKPOINT = 130 }; /* 16 MiB of log are 105 */

/* ---- a disk that fails ----------------------------------------------------------------------- */

static struct {
    int reads, writes, cuts, renames; /* the errno of these; 0: as the system does */
    int interruptions;                /* of reads, before each one that is done */
    int checkpoints;                  /* that failed */
    bool renames_all_the_same;        /* and says that it failed */
} disk;

#pragma GCC visibility push(default)

ssize_t pread(int fd, void *bytes, size_t size, off_t offset)
{
    static int interrupted;
    if (interrupted++ < disk.interruptions || disk.reads) {
        errno = disk.reads ? disk.reads : EINTR;
        return -1;
    }
    interrupted = 0;
    return syscall(SYS_pread64, fd, bytes, size, offset);
}

/* One that fails has written a part before. */
static ssize_t fail_to_write(int fd, const void *bytes, size_t size)
{
    static bool begun;
    begun = !begun;
    if (begun)
        return syscall(SYS_write, fd, bytes, size / 2 + 1);
    errno = disk.writes;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    return disk.writes ? fail_to_write(fd, bytes, size) : syscall(SYS_write, fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return disk.writes ? fail_to_write(fd, parts->iov_base, parts->iov_len)
                       : syscall(SYS_writev, fd, parts, count);
}

int ftruncate(int fd, off_t size)
{
    if (!disk.cuts)
        return (int)syscall(SYS_ftruncate, fd, size);
    errno = disk.cuts;
    return -1;
}

int rename(const char *from, const char *to)
{
    if (!disk.renames)
        return (int)syscall(SYS_rename, from, to);
    disk.checkpoints++;
    if (disk.renames_all_the_same)
        assert_int_equal(syscall(SYS_rename, from, to), 0);
    errno = disk.renames;
    return -1;
}

#pragma GCC visibility pop

/* ---- a server and who pushes to it ----------------------------------------------------------- */

struct scene {
    char dir[32];
    char *log;
    trp_parameter_server *server;
    uint64_t clock; /* pushes that were answered */
    uint32_t learners;
    trp_server_durability durability;
    float gradient[COUNT];
};

static void server_of(struct scene *scene)
{
    assert_int_equal(trp_parameter_server_create(
                         &scene->server, "server/0",
                         &(trp_parameter_server_options){.rule = TRP_SERVER_ASYNC,
                                                         .no_share = true,
                                                         .durability = scene->durability},
                         scene->dir),
                     TRP_OK);
}

static trp_status call_of(const struct scene *scene, const char *method,
                          const ProtobufCMessage *request, ProtobufCMessage **reply)
{
    return trp_call(trp_parameter_server_service(scene->server), method, request, reply, NULL);
}

static trp_status try_to_join(struct scene *scene)
{
    static const float zeros[COUNT];
    Troupe__ServerOptimizer optimizer = TROUPE__SERVER_OPTIMIZER__INIT;
    Troupe__ServerJoinRequest request = TROUPE__SERVER_JOIN_REQUEST__INIT;
    optimizer.kind = TRP_SGD;
    optimizer.learning_rate = 1;
    request.workers = scene->learners;
    request.name = "learner/0";
    request.vector = "params";
    request.count = COUNT;
    request.optimizer = &optimizer;
    request.values = (ProtobufCBinaryData){sizeof zeros, (uint8_t *)(uintptr_t)zeros};
    ProtobufCMessage *reply;
    TRP_TRY(call_of(scene, "Join", &request.base, &reply));
    scene->clock = ((const Troupe__ServerJoinReply *)reply)->clock;
    assert_int_equal(((const Troupe__ServerJoinReply *)reply)->steps, scene->clock);
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

static trp_status try_to_push(struct scene *scene)
{
    uint64_t bounds[] = {0, COUNT};
    Troupe__ServerPushRequest request = TROUPE__SERVER_PUSH_REQUEST__INIT;
    request.vector = "params";
    request.sequence = request.version = scene->clock;
    request.scale = 1;
    request.new_steps = 1;
    request.keys = keys_hash(bounds, 2);
    request.ranges = bounds;
    request.n_ranges = 2;
    for (size_t i = 0; i < COUNT; i++)
        scene->gradient[i] = (float)((i + scene->clock) % 7 + 1);
    request.gradients = (ProtobufCBinaryData){sizeof scene->gradient, (uint8_t *)scene->gradient};
    ProtobufCMessage *message;
    TRP_TRY(call_of(scene, "Push", &request.base, &message));
    const Troupe__ServerPushReply *reply = (const Troupe__ServerPushReply *)message;
    assert_false(reply->unknown_keys || reply->unknown_worker);
    scene->clock++;
    protobuf_c_message_free_unpacked(message, NULL);
    return TRP_OK;
}

static void push_often(struct scene *scene, uint64_t pushes)
{
    for (uint64_t i = 0; i < pushes; i++)
        assert_int_equal(try_to_push(scene), TRP_OK);
}

/* The values are those of the pushes 0 to clock - 1, once each. */
static void check_values(const struct scene *scene, const Troupe__ServerPullReply *reply)
{
    assert_int_equal(reply->values.len, COUNT * sizeof(float));
    for (size_t i = 0; i < COUNT; i += 13) {
        float value, expected = 0;
        for (uint64_t k = 0; k < scene->clock; k++)
            expected -= (float)((i + k) % 7 + 1);
        memcpy(&value, reply->values.data + i * sizeof value, sizeof value);
        assert_float_equal(value, expected, 0);
    }
}

static void check_nothing_is_lost(struct scene *scene)
{
    uint64_t answered = scene->clock, bounds[] = {0, COUNT};
    Troupe__ServerPullRequest request = TROUPE__SERVER_PULL_REQUEST__INIT;
    trp_parameter_server_destroy(scene->server);
    server_of(scene);
    assert_int_equal(try_to_join(scene), TRP_OK);
    assert_int_equal(scene->clock, answered);
    request.vector = "params";
    request.keys = keys_hash(bounds, 2);
    request.ranges = bounds;
    request.n_ranges = 2;
    ProtobufCMessage *reply;
    assert_int_equal(call_of(scene, "Pull", &request.base, &reply), TRP_OK);
    check_values(scene, (const Troupe__ServerPullReply *)reply);
    protobuf_c_message_free_unpacked(reply, NULL);
}

static int scene_begin(void **state)
{
    struct scene *scene = xcalloc(1, sizeof *scene);
    memcpy(scene->dir, "/tmp/test_keep.XXXXXX", sizeof "/tmp/test_keep.XXXXXX");
    assert_non_null(mkdtemp(scene->dir));
    scene->log = xasprintf("%s/params.log", scene->dir);
    memset(&disk, 0, sizeof disk);
    server_of(scene);
    scene->learners = 1;
    assert_int_equal(try_to_join(scene), TRP_OK);
    *state = scene;
    return 0;
}

static int scene_end(void **state)
{
    struct scene *scene = *state;
    memset(&disk, 0, sizeof disk);
    trp_parameter_server_destroy(scene->server);
    char *command = xasprintf("rm -rf %s", scene->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(scene->log);
    free(scene);
    return 0;
}

static off_t log_size(const struct scene *scene)
{
    struct stat info;
    assert_int_equal(stat(scene->log, &info), 0);
    return info.st_size;
}

/* Begins again, fails with those words, and has left the log as it is. */
static void check_is_refused(struct scene *scene, trp_status status, const char *words)
{
    off_t size = log_size(scene);
    uint64_t answered = scene->clock;
    trp_parameter_server_destroy(scene->server);
    server_of(scene);
    assert_int_equal(try_to_join(scene), status);
    assert_non_null(strstr(trp_last_error(), scene->log));
    assert_non_null(strstr(trp_last_error(), words));
    assert_int_equal(log_size(scene), size);
    scene->clock = answered;
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void a_log_that_cannot_be_read_is_not_cut(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 10);
    disk.reads = EIO;
    check_is_refused(scene, TRP_INTERNAL, strerror(EIO));
    disk.reads = 0;
    check_nothing_is_lost(scene);
}

static void a_read_that_is_interrupted_goes_on(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 10);
    disk.interruptions = 2;
    check_nothing_is_lost(scene);
}

static void flip(const struct scene *scene, off_t at)
{
    FILE *log = fopen(scene->log, "r+b");
    assert_non_null(log);
    assert_int_equal(fseek(log, at, SEEK_SET), 0);
    int byte = fgetc(log);
    assert_int_equal(fseek(log, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 4, log), byte ^ 4);
    assert_int_equal(fclose(log), 0);
}

static void a_damaged_record_is_named_and_hides_none_behind_it(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 3);
    off_t three = log_size(scene);
    push_often(scene, 7);
    char *words = xasprintf("is damaged at byte %lld", (long long)three);
    const off_t places[] = {three + 3, three + 9, three + 45, three + 500};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(scene, places[i]);
        check_is_refused(scene, TRP_DATA_LOSS, words);
        flip(scene, places[i]);
    }
    free(words);
    for (off_t at = 2; at <= 8; at += 6) { /* of a log, and of a checkpoint that there is */
        flip(scene, at);
        check_is_refused(scene, TRP_DATA_LOSS, "is damaged at byte 0");
        flip(scene, at);
    }
    check_nothing_is_lost(scene);
}

/* ---- writes ---------------------------------------------------------------------------------- */

static void a_log_that_cannot_be_begun_is_begun_later(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 2);
    disk.writes = ENOSPC;
    if (trp_parameter_server_save(scene->server) == TRP_OK)
        assert_int_equal(try_to_push(scene), TRP_RESOURCE_EXHAUSTED);
    disk.writes = 0;
    push_often(scene, 2);
    check_nothing_is_lost(scene);
}

static void a_log_that_the_checkpoint_has_is_begun_anew(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 2);
    assert_int_equal(trp_parameter_server_save(scene->server), TRP_OK);
    for (int i = 0; i < 2; i++) {
        check_nothing_is_lost(scene);
        push_often(scene, 2);
    }
    check_nothing_is_lost(scene);
}

static void a_checkpoint_of_fewer_learners_says_how_to_go_on(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 2);
    assert_int_equal(trp_parameter_server_save(scene->server), TRP_OK);
    trp_parameter_server_destroy(scene->server);
    server_of(scene);
    scene->learners = 2;
    assert_int_equal(try_to_join(scene), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "as many servers and learners as before"));
    scene->learners = 1;
    check_nothing_is_lost(scene);
}

static void behind_a_torn_record_nothing_is_appended(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 2);
    disk.writes = disk.cuts = ENOSPC;
    assert_int_equal(try_to_push(scene), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), scene->log));
    disk.writes = 0;
    while (try_to_push(scene) == TRP_OK && scene->clock < 5)
        continue;
    disk.cuts = 0;
    push_often(scene, 3);
    check_nothing_is_lost(scene);
}

static void without_a_new_checkpoint_pushes_go_on_in_the_log(void **state)
{
    struct scene *scene = *state;
    disk.renames = EIO;
    push_often(scene, PUSHES_OF_A_CHECKPOINT);
    assert_int_equal(disk.checkpoints, 1);
    off_t size = log_size(scene);
    assert_true(size > (off_t)PUSHES_OF_A_CHECKPOINT * COUNT * 4);
    check_nothing_is_lost(scene);
    disk.renames = 0;
    assert_int_equal(trp_parameter_server_save(scene->server), TRP_OK);
    push_often(scene, 1);
    assert_true(log_size(scene) < size / PUSHES_OF_A_CHECKPOINT * 2);
    check_nothing_is_lost(scene);
}

static void save_as_if_it_failed(struct scene *scene)
{
    disk.renames = EIO;
    disk.renames_all_the_same = true;
    assert_int_not_equal(trp_parameter_server_save(scene->server), TRP_OK);
    disk.renames = 0;
}

/* There is no log yet. */
static void a_checkpoint_that_is_there_though_it_failed_has_the_log_that_begins_then(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 3);
    assert_int_equal(trp_parameter_server_save(scene->server), TRP_OK);
    save_as_if_it_failed(scene);
    push_often(scene, 2);
    check_nothing_is_lost(scene);
    push_often(scene, 2);
    check_nothing_is_lost(scene);
}

static void a_checkpoint_that_is_there_though_it_failed_goes_on_from_the_log_before(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 3);
    for (int i = 0; i < 2; i++) {
        save_as_if_it_failed(scene);
        push_often(scene, 2);
    }
    for (int i = 0; i < 2; i++) { /* also of a life that goes on in a log from before */
        check_nothing_is_lost(scene);
        push_often(scene, 2);
        save_as_if_it_failed(scene);
        push_often(scene, 2);
    }
    check_nothing_is_lost(scene);
    assert_int_equal(trp_parameter_server_save(scene->server), TRP_OK);
    push_often(scene, 2);
    check_nothing_is_lost(scene);
}

static void a_log_is_taken_by_who_writes_none(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 5);
    scene->durability = TRP_SERVER_KEEPS_CHECKPOINTS;
    check_nothing_is_lost(scene);
    push_often(scene, 2);
    assert_int_equal(trp_parameter_server_save(scene->server), TRP_OK);
    scene->durability = TRP_SERVER_KEEPS_LOG;
    check_nothing_is_lost(scene);
}

static void a_log_without_its_checkpoint_is_named(void **state)
{
    struct scene *scene = *state;
    char *checkpoint = xasprintf("%s/params.safetensors", scene->dir);
    push_often(scene, 2);
    assert_int_equal(unlink(checkpoint), 0);
    check_is_refused(scene, TRP_DATA_LOSS, "bring it back, or remove the log");
    free(checkpoint);
}

/* Begun anew, and gone on with. */
static void a_log_that_is_a_link_leads_nowhere(void **state)
{
    struct scene *scene = *state;
    push_often(scene, 2);
    char *away = xasprintf("%s.away", scene->log);
    assert_int_equal(trp_parameter_server_save(scene->server), TRP_OK);
    assert_int_equal(rename(scene->log, away), 0);
    assert_int_equal(symlink(away, scene->log), 0);
    off_t size = log_size(scene);
    assert_int_equal(try_to_push(scene), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "params.log: it is a link"));
    assert_int_equal(log_size(scene), size);
    check_is_refused(scene, TRP_INVALID_ARGUMENT, "it is a link");
    assert_int_equal(unlink(scene->log), 0);
    check_nothing_is_lost(scene);
    free(away);
}

/* The order is that of files, which stay. */
static void an_optimizer_is_in_a_file_by_the_numbers_of_its_fields(void **state)
{
    (void)state;
    static const trp_optimizer optimizer = {.kind = TRP_RMSPROP,
                                            .schedule = TRP_RATE_COSINE,
                                            .learning_rate = 0.25,
                                            .final_rate = 0.125,
                                            .schedule_steps = 100,
                                            .warmup_steps = 10,
                                            .weight_decay = 0.5,
                                            .beta1 = 0.75,
                                            .beta2 = 0.875,
                                            .alpha = 0.0625,
                                            .epsilon = 0.03125,
                                            .momentum = 0.375,
                                            .centered = true};
    static const double expected[OPTIMIZER_NUMBERS] = {
        3, 2, 0.25, 0.125, 100, 10, 0.5, 0.75, 0.875, 0.0625, 0.03125, 0.375, 0, 1, 0};
    double numbers[OPTIMIZER_NUMBERS];
    optimizer_numbers(&optimizer, numbers);
    assert_memory_equal(numbers, expected, sizeof expected);
    trp_optimizer again;
    assert_int_equal(optimizer_of_numbers(expected, &again), TRP_OK);
    assert_int_equal(again.kind, TRP_RMSPROP);
    assert_true(again.centered && !again.nesterov && !again.epsilon_inside);
    optimizer_numbers(&again, numbers);
    assert_memory_equal(numbers, expected, sizeof expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_log_that_cannot_be_read_is_not_cut, scene_begin,
                                        scene_end),
        cmocka_unit_test_setup_teardown(a_read_that_is_interrupted_goes_on, scene_begin, scene_end),
        cmocka_unit_test_setup_teardown(a_damaged_record_is_named_and_hides_none_behind_it,
                                        scene_begin, scene_end),
        cmocka_unit_test_setup_teardown(a_log_that_cannot_be_begun_is_begun_later, scene_begin,
                                        scene_end),
        cmocka_unit_test_setup_teardown(a_log_that_the_checkpoint_has_is_begun_anew, scene_begin,
                                        scene_end),
        cmocka_unit_test_setup_teardown(a_checkpoint_of_fewer_learners_says_how_to_go_on,
                                        scene_begin, scene_end),
        cmocka_unit_test_setup_teardown(behind_a_torn_record_nothing_is_appended, scene_begin,
                                        scene_end),
        cmocka_unit_test_setup_teardown(without_a_new_checkpoint_pushes_go_on_in_the_log,
                                        scene_begin, scene_end),
        cmocka_unit_test_setup_teardown(
            a_checkpoint_that_is_there_though_it_failed_has_the_log_that_begins_then, scene_begin,
            scene_end),
        cmocka_unit_test_setup_teardown(
            a_checkpoint_that_is_there_though_it_failed_goes_on_from_the_log_before, scene_begin,
            scene_end),
        cmocka_unit_test_setup_teardown(a_log_is_taken_by_who_writes_none, scene_begin, scene_end),
        cmocka_unit_test_setup_teardown(a_log_without_its_checkpoint_is_named, scene_begin,
                                        scene_end),
        cmocka_unit_test_setup_teardown(a_log_that_is_a_link_leads_nowhere, scene_begin, scene_end),
        cmocka_unit_test(an_optimizer_is_in_a_file_by_the_numbers_of_its_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
