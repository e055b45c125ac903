/* Checkpoints, restores and verification through a server: what was there at the moment of the
 * call, whatever happens meanwhile, and nothing that is half of one. */
#include "tests/replay/replay_fixture.h"

#include "core/clock.h"
#include "core/thread.h"
#include "replay.pb-c.h"
#include "replay/disk/disk.h"

#include <errno.h>
#include <sys/syscall.h>

/* What the checkpoint directory's next sync says: the program's own fsync() stands before libc's.
 */
static _Atomic int sync_error;
static char sync_root[256];

int fsync(int fd)
{
    struct stat of_fd, of_root;
    if (sync_error && stat(sync_root, &of_root) == 0 && fstat(fd, &of_fd) == 0 &&
        of_fd.st_ino == of_root.st_ino && of_fd.st_dev == of_root.st_dev) {
        errno = sync_error;
        sync_error = 0;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

/* Not on a disk: checkpoints are synced. */
static int setup(void **state)
{
    struct replay *replay = xcalloc(1, sizeof *replay);
    replay->dir = fixture_dir("/dev/shm");
    *state = replay;
    return 0;
}

static ProtobufCService *replay_service(const struct replay *replay)
{
    ProtobufCService *service;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    return service;
}

/* The path of a new checkpoint; caller frees. */
static char *take(const struct replay *replay)
{
    Troupe__ReplayCheckpointRequest request = TROUPE__REPLAY_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *reply;
    if (trp_call(replay_service(replay), "Checkpoint", &request.base, &reply, NULL) != TRP_OK)
        fail_msg("%s", trp_last_error());
    Troupe__ReplayCheckpoint *checkpoint = (Troupe__ReplayCheckpoint *)reply;
    assert_true(checkpoint->whole);
    assert_true(checkpoint->bytes > 0);
    char *path = xstrdup(checkpoint->path);
    assert_int_equal(path[0], '/');
    protobuf_c_message_free_unpacked(reply, NULL);
    return path;
}

static Troupe__ReplayCheckpointsResponse *list(const struct replay *replay)
{
    Troupe__ReplayCheckpointsRequest request = TROUPE__REPLAY_CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *reply;
    assert_int_equal(trp_call(replay_service(replay), "Checkpoints", &request.base, &reply, NULL),
                     TRP_OK);
    return (Troupe__ReplayCheckpointsResponse *)reply;
}

static size_t list_count(const struct replay *replay)
{
    Troupe__ReplayCheckpointsResponse *reply = list(replay);
    size_t count = reply->n_checkpoints;
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return count;
}

static Troupe__ReplayVerifyResponse *verify(const struct replay *replay)
{
    Troupe__ReplayVerifyRequest request = TROUPE__REPLAY_VERIFY_REQUEST__INIT;
    ProtobufCMessage *reply;
    assert_int_equal(trp_call(replay_service(replay), "Verify", &request.base, &reply, NULL),
                     TRP_OK);
    return (Troupe__ReplayVerifyResponse *)reply;
}

static void open_keeping(struct replay *replay, const char *line, const char *checkpoint_dir,
                         uint32_t keep)
{
    trp_table_options *table;
    assert_int_equal(trp_table_options_parse(line, &table), TRP_OK);
    trp_replay_server_options options = {.dir = replay->dir,
                                         .tables = table,
                                         .table_count = 1,
                                         .checkpoint_dir = checkpoint_dir,
                                         .keep_checkpoints = keep};
    assert_int_equal(trp_replay_server_create(&replay->server, &options), TRP_OK);
    trp_table_options_destroy(table);
    replay->channel = trp_channel_create_local(trp_replay_server_rpc(replay->server));
}

/* ---- cases ------------------------------------------------------------------------------- */

static void a_checkpoint_is_a_store_of_that_moment(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t", "name=u max_times_sampled=2");
    insert_items(replay, "t", 1, 50);
    insert_items(replay, "u", 100, 30);
    sample_one(replay, "u");
    assert_int_equal(mutate_key(replay, "t", 7, true, 3.5, false), TRP_OK);
    char *path = take(replay);
    insert_items(replay, "t", 1000, 20);
    assert_int_equal(reset_table(replay, "u"), TRP_OK);
    replay_close(replay);

    char *dir = replay->dir;
    replay->dir = fixture_dir("/dev/shm");
    assert_int_equal(trp_replay_restore(path, replay->dir, false), TRP_OK);
    OPEN("name=t", "name=u max_times_sampled=2");
    assert_int_equal(table_state(replay, "t").size, 50);
    assert_int_equal(table_state(replay, "u").size, 30);
    assert_int_equal(table_state(replay, "u").samples, 1);
    struct sampled samples[64];
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 64, 1000);
    receive_samples(stream, samples, 64);
    for (int i = 0; i < 64; ++i) {
        assert_int_equal(samples[i].value, samples[i].key * 10);
        if (samples[i].key == 7)
            assert_true(samples[i].priority == 3.5);
    }
    trp_stream_destroy(stream);
    replay_close(replay);
    fixture_remove(dir);
    free(path);
}

/* The counters are those of another limiter: a full queue becomes a larger one, or none. */
static void a_restore_with_another_limiter_goes_on(void **state)
{
    static const char *const lines[] = {
        "name=t sampler=fifo limiter=queue(6) max_times_sampled=1",
        "name=t sampler=fifo limiter=min_size(1) max_times_sampled=1",
        "name=t sampler=fifo limiter=samples_per_insert(1,1,10) max_times_sampled=1",
    };
    struct replay *replay = *state;
    struct sampled samples[4];
    OPEN("name=t sampler=fifo limiter=queue(3) max_times_sampled=1");
    insert_items(replay, "t", 1, 3);
    assert_int_equal(sample_one(replay, "t").key, 1);
    insert_items(replay, "t", 4, 1);
    char *path = take(replay), *first = replay->dir;
    replay_close(replay);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; ++i) {
        replay->dir = fixture_dir("/dev/shm");
        assert_int_equal(trp_replay_restore(path, replay->dir, false), TRP_OK);
        OPEN(lines[i]);
        insert_items(replay, "t", 5, 1); /* the queue was full */
        trp_stream *stream = open_stream(replay, "SampleStream");
        send_sample_request(stream, "t", 4, -1);
        receive_samples(stream, samples, 4);
        for (uint64_t j = 0; j < 4; ++j)
            assert_in_range(samples[j].key, 1, 5);
        trp_stream_destroy(stream);
        replay_close(replay);
        fixture_remove(replay->dir);
    }
    free(path);
    replay->dir = first;
    OPEN(lines[0]);
}

static void reverbs_clients_get_the_path(void **state)
{
    struct replay *replay = *state;
    trp_message *reply;
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    assert_int_equal(trp_replay_server_start(replay->server), TRP_OK);
    assert_int_equal(unary(replay, "Checkpoint", trp_message_create(0), &reply), TRP_OK);
    Deepmind__Reverb__CheckpointResponse *response = deepmind__reverb__checkpoint_response__unpack(
        NULL, trp_message_size(reply), trp_message_data(reply));
    assert_non_null(response);
    struct checkpoint_info info;
    assert_int_equal(checkpoint_info_read(&info, response->checkpoint_path), TRP_OK);
    assert_null(info.problem);
    assert_int_equal(info.items, 5);
    checkpoint_info_cleanup(&info);
    deepmind__reverb__checkpoint_response__free_unpacked(response, NULL);
    trp_message_destroy(reply);
    assert_int_equal(list_count(replay), 1);
}

/* The first one's is begun with its request; the others' begins when that is done, or before. */
static void reverbs_clients_who_ask_meanwhile_share_the_next(void **state)
{
    enum { CLIENTS = 8 };
    struct replay *replay = *state;
    trp_stream *streams[CLIENTS];
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    assert_int_equal(trp_replay_server_start(replay->server), TRP_OK);
    for (int i = 0; i < CLIENTS; ++i) {
        streams[i] = open_stream(replay, "Checkpoint");
        assert_int_equal(trp_stream_send(streams[i], trp_message_create(0), WAIT_MS), TRP_OK);
    }
    for (int i = 0; i < CLIENTS; ++i) {
        trp_message *reply;
        assert_int_equal(trp_stream_receive(streams[i], &reply, WAIT_MS), TRP_OK);
        trp_message_destroy(reply);
        trp_stream_destroy(streams[i]);
    }
    assert_in_range(list_count(replay), 1, CLIENTS);
}

struct busy {
    struct replay *replay;
    struct thread thread;
    uint64_t least; /* to insert, also when it is told to stop before */
    _Atomic bool stop;
    _Atomic uint64_t inserted;
};

/* Inserts, and deletes what is a while old: chunks that the copy needs die all the time. */
static void keep_busy(void *arg)
{
    struct busy *busy = arg;
    for (uint64_t first = 10000; !busy->stop || busy->inserted <= busy->least; first += 40) {
        insert_items(busy->replay, "t", first, 40);
        busy->inserted += 40;
    }
}

static void inserting_and_removing_go_on_meanwhile(void **state)
{
    enum { CHECKPOINTS = 6, ITEMS = 400 };
    struct replay *replay = *state;
    open_keeping(replay, "name=t max_size=400", NULL, UINT32_MAX);
    insert_items(replay, "t", 1, ITEMS);
    struct busy busy = {.replay = replay, .least = ITEMS};
    assert_int_equal(thread_start(&busy.thread, "busy", keep_busy, &busy), TRP_OK);
    char *paths[CHECKPOINTS];
    for (int i = 0; i < CHECKPOINTS; ++i)
        paths[i] = take(replay);
    Troupe__ReplayVerifyResponse *report = verify(replay);
    uint64_t meanwhile = busy.inserted;
    busy.stop = true;
    thread_stop(&busy.thread);
    assert_int_equal(report->damaged, 0);
    assert_int_equal(report->items, ITEMS);
    protobuf_c_message_free_unpacked(&report->base, NULL);
    assert_int_not_equal(meanwhile, 0);
    for (int i = 0; i < CHECKPOINTS; ++i) {
        trp_replay_report whole;
        if (trp_replay_verify(paths[i], &whole) != TRP_OK)
            fail_msg("%s", trp_last_error());
        assert_int_equal(whole.damaged, 0);
        assert_int_equal(whole.items, ITEMS);
        trp_replay_report_cleanup(&whole);
        free(paths[i]);
    }
    /* What was held back for the copies is gone, too. */
    replay_close(replay);
    trp_replay_report whole;
    assert_int_equal(trp_replay_verify(replay->dir, &whole), TRP_OK);
    assert_int_equal(whole.chunks, ITEMS);
    trp_replay_report_cleanup(&whole);
}

static void a_running_and_a_stopped_store_are_verified_alike(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 50);
    Troupe__ReplayVerifyResponse *running = verify(replay);
    replay_close(replay);
    trp_replay_report stopped;
    assert_int_equal(trp_replay_verify(replay->dir, &stopped), TRP_OK);
    assert_int_equal(stopped.items, running->items);
    assert_int_equal(stopped.chunks, running->chunks);
    assert_int_equal(stopped.bytes, running->bytes);
    trp_replay_report_cleanup(&stopped);
    protobuf_c_message_free_unpacked(&running->base, NULL);
}

/* As format 2 wrote the record with this key, which has no sum of its priority. */
static void damage_priority(const char *dir, uint64_t key, double priority)
{
    char *path = fixture_path(dir, "data.mdb");
    int fd = open(path, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    const off_t at_key = offsetof(struct item_record, key);
    uint8_t *bytes = xmalloc((size_t)size);
    uint32_t no_sum = 0;
    assert_int_equal(pread(fd, bytes, (size_t)size, 0), size);
    const uint8_t *end = bytes + size, *at = bytes;
    while ((at = memmem(at, (size_t)(end - at), &key, sizeof key)) != NULL) {
        off_t record = at++ - bytes - at_key;
        assert_int_equal(pwrite(fd, &priority, sizeof priority,
                                record + (off_t)offsetof(struct item_record, priority)),
                         sizeof priority);
        assert_int_equal(pwrite(fd, &no_sum, sizeof no_sum,
                                record + (off_t)offsetof(struct item_record, state_sum)),
                         sizeof no_sum);
    }
    close(fd);
    free(bytes);
    free(path);
}

static void expect_refused_priority(const trp_replay_report *report)
{
    assert_int_equal(report->items, 3);
    assert_int_equal(report->damaged, 1);
    assert_string_equal(report->damage[0].table, "t");
    assert_string_equal(report->damage[0].what, "it has a priority that its table does not take");
}

static void a_priority_that_no_sum_tells_of_is_one_that_its_table_takes(void **state)
{
    enum { KEY = 0x7e1251ab };
    struct replay *replay = *state;
    trp_replay_report report;
    OPEN("name=t sampler=prioritized(1)");
    insert_items(replay, "t", KEY, 3);
    replay_close(replay);
    damage_priority(replay->dir, KEY + 1, 0.5);
    assert_int_equal(trp_replay_verify(replay->dir, &report), TRP_OK);
    assert_int_equal(report.damaged, 0);
    trp_replay_report_cleanup(&report);
    damage_priority(replay->dir, KEY + 1, -0.5);
    assert_int_equal(trp_replay_verify(replay->dir, &report), TRP_OK);
    expect_refused_priority(&report);
    assert_int_equal(report.damage[0].key, KEY + 1);
    trp_replay_report_cleanup(&report);
    OPEN("name=t sampler=prioritized(1)");
    Troupe__ReplayVerifyResponse *running = verify(replay);
    assert_int_equal(running->damaged, 1);
    protobuf_c_message_free_unpacked(&running->base, NULL);
    assert_int_equal(table_state(replay, "t").size, 3);
    replay_close(replay);
    trp_replay_server_options options = {.dir = replay->dir, .verify = true};
    assert_int_equal(trp_replay_server_create(&replay->server, &options), TRP_OK);
    trp_replay_server_stop(replay->server, 0);
    trp_replay_server_destroy(replay->server);
    replay->server = NULL;
    assert_int_equal(trp_replay_verify(replay->dir, &report), TRP_OK);
    assert_int_equal(report.items, 2);
    assert_int_equal(report.damaged, 0);
    trp_replay_report_cleanup(&report);
}

static void old_ones_go_and_foreign_files_stay(void **state)
{
    struct replay *replay = *state;
    char *root = fixture_dir("/dev/shm"), *foreign = fixture_path(root, "zzz-mine");
    char *other = fixture_path(root, "2001-01-01T00-00-00Z-1");
    mkdir(foreign, 0700);
    open_keeping(replay, "name=t", root, UINT32_MAX);
    insert_items(replay, "t", 1, 5);
    char *path = take(replay);
    struct checkpoint_info info;
    assert_int_equal(checkpoint_info_read(&info, path), TRP_OK);
    info.store[0] = info.store[0] == 'f' ? '0' : 'f'; /* another store's, and the oldest */
    info.created_at_ns = 1;
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(checkpoint_info_write(&info, other), TRP_OK);
    checkpoint_info_cleanup(&info);
    free(path);
    for (int i = 0; i < 3; ++i)
        free(take(replay));
    assert_int_equal(list_count(replay), 5);
    replay_close(replay);
    open_keeping(replay, "name=t", root, 2);
    char *newest = take(replay);
    assert_int_equal(access(newest, F_OK), 0);
    Troupe__ReplayCheckpointsResponse *reply = list(replay);
    assert_int_equal(reply->n_checkpoints, 3);
    assert_string_equal(reply->checkpoints[0]->path, newest);
    assert_int_equal(reply->checkpoints[0]->n_tables, 1);
    assert_string_equal(reply->checkpoints[0]->tables[0]->name, "t");
    assert_int_equal(reply->checkpoints[0]->tables[0]->size, 5);
    assert_false(reply->checkpoints[2]->whole);
    assert_non_null(strstr(reply->checkpoints[2]->problem, "data.mdb"));
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    assert_int_equal(access(foreign, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    replay_close(replay);
    free(newest);
    free(foreign);
    free(other);
    fixture_remove(root);
}

static size_t remove_checkpoints(const struct replay *replay, char *name, uint32_t keep,
                                 trp_status expected)
{
    Troupe__ReplayRemoveCheckpointsRequest request =
        TROUPE__REPLAY_REMOVE_CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.names = &name;
    request.n_names = name != NULL;
    request.keep = keep;
    assert_int_equal(
        trp_call(replay_service(replay), "RemoveCheckpoints", &request.base, &reply, NULL),
        expected);
    if (!reply)
        return 0;
    size_t count = ((const Troupe__ReplayRemoveCheckpointsResponse *)reply)->n_paths;
    protobuf_c_message_free_unpacked(reply, NULL);
    return count;
}

static void three_are_kept_and_any_can_be_removed(void **state)
{
    struct replay *replay = *state;
    open_keeping(replay, "name=t", NULL, 0);
    insert_items(replay, "t", 1, 5);
    char *foreign = fixture_path(replay->dir, "foreign");
    assert_int_equal(mkdir(foreign, 0700), 0);
    for (int i = 0; i < 5; ++i)
        free(take(replay));
    assert_int_equal(list_count(replay), 3);
    char *newest = take(replay);
    assert_int_equal(remove_checkpoints(replay, "..", 0, TRP_NOT_FOUND), 0);
    assert_int_equal(remove_checkpoints(replay, "none", 0, TRP_NOT_FOUND), 0);
    assert_int_equal(remove_checkpoints(replay, foreign, 0, TRP_NOT_FOUND), 0);
    assert_int_equal(remove_checkpoints(replay, newest, 0, TRP_OK), 1);
    assert_int_not_equal(access(newest, F_OK), 0);
    assert_int_equal(list_count(replay), 2);
    char *last = take(replay);
    assert_int_equal(remove_checkpoints(replay, NULL, 1, TRP_OK), 2);
    assert_int_equal(access(last, F_OK), 0);
    assert_int_equal(remove_checkpoints(replay, strrchr(last, '/') + 1, 0, TRP_OK), 1);
    assert_int_equal(list_count(replay), 0);
    assert_int_equal(access(foreign, F_OK), 0);
    free(foreign);
    free(newest);
    free(last);
}

/* A link is somebody's own, and what it leads to may be anything. */
static void a_link_is_no_checkpoint_and_is_not_followed(void **state)
{
    struct replay *replay = *state;
    open_keeping(replay, "name=t", NULL, 1);
    insert_items(replay, "t", 1, 5);
    char *path = take(replay), *away = fixture_dir("/dev/shm");
    char *kept = fixture_path(away, "kept"), *data = fixture_path(kept, "data.mdb");
    assert_int_equal(rename(path, kept), 0);
    struct checkpoint_info info;
    assert_int_equal(checkpoint_info_read(&info, kept), TRP_OK);
    char *mark = checkpoint_temporary(info.store);
    char *half = xasprintf("%s/checkpoints/%s1", replay->dir, mark);
    char *old = xasprintf("%s/checkpoints/old", replay->dir);
    assert_int_equal(symlink(kept, half), 0);
    assert_int_equal(symlink(kept, old), 0);
    assert_int_equal(list_count(replay), 0);
    free(take(replay));
    free(take(replay));
    assert_int_equal(list_count(replay), 1);
    assert_int_equal(remove_checkpoints(replay, "old", 0, TRP_NOT_FOUND), 0);
    assert_int_equal(access(data, F_OK), 0);
    assert_int_equal(access(old, F_OK), 0);
    checkpoint_info_cleanup(&info);
    free(old);
    free(half);
    free(mark);
    free(data);
    free(kept);
    free(path);
    fixture_remove(away);
}

static void stores_restored_from_one_checkpoint_keep_their_own(void **state)
{
    struct replay *replay = *state;
    char *first = replay->dir, *root = fixture_dir("/dev/shm");
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    char *path = take(replay), *took[2];
    replay_close(replay);
    for (int i = 0; i < 2; ++i) {
        replay->dir = fixture_dir("/dev/shm");
        assert_int_equal(trp_replay_restore(path, replay->dir, false), TRP_OK);
        open_keeping(replay, "name=t", root, 1);
        assert_int_equal(table_state(replay, "t").size, 5);
        took[i] = take(replay);
        replay_close(replay);
        fixture_remove(replay->dir);
        replay->dir = first;
    }
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(access(took[i], F_OK), 0);
        free(took[i]);
    }
    /* Come back from its own, it is the same. */
    assert_int_equal(trp_replay_restore(path, replay->dir, true), TRP_OK);
    open_keeping(replay, "name=t", NULL, 1);
    free(take(replay));
    assert_int_not_equal(access(path, F_OK), 0);
    free(path);
    fixture_remove(root);
}

enum { CALLERS = 64 };

struct crowd {
    struct replay *replay;
    trp_future *futures[CALLERS];
    int refused;
};

/* The server's lock is held: the first one that got its turn stands still. */
static void call_together(void *arg)
{
    struct crowd *crowd = arg;
    static const Troupe__ReplayCheckpointRequest request = TROUPE__REPLAY_CHECKPOINT_REQUEST__INIT;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    ProtobufCService *service = replay_service(crowd->replay);
    for (int i = 0; i < CALLERS; ++i)
        crowd->futures[i] = trp_call_async(service, "Checkpoint", &request.base,
                                           &(trp_call_options){.timeout_ms = WAIT_MS});
    while (crowd->refused < CALLERS - 2 && !deadline_passed(deadline, &clock_monotonic))
        for (int i = 0; i < CALLERS; ++i) {
            ProtobufCMessage *reply = NULL;
            if (!crowd->futures[i] ||
                trp_future_wait(crowd->futures[i], 1, &reply) != TRP_UNAVAILABLE)
                continue;
            assert_non_null(strstr(trp_last_error(), "another call waits for its end"));
            trp_future_destroy(crowd->futures[i]);
            crowd->futures[i] = NULL;
            crowd->refused++;
        }
}

/* Two threads of the pool at most: the others are for other calls. */
static void of_many_at_once_one_waits_and_the_rest_is_told(void **state)
{
    struct crowd crowd = {.replay = *state};
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    trp_server_run(trp_replay_server_rpc(replay->server), call_together, &crowd);
    assert_int_equal(crowd.refused, CALLERS - 2);
    for (int i = 0; i < CALLERS; ++i) {
        ProtobufCMessage *reply = NULL;
        if (!crowd.futures[i])
            continue;
        assert_int_equal(trp_future_wait(crowd.futures[i], WAIT_MS, &reply), TRP_OK);
        protobuf_c_message_free_unpacked(reply, NULL);
        trp_future_destroy(crowd.futures[i]);
    }
    assert_int_equal(list_count(replay), 2);
}

static void half_a_checkpoint_does_not_count_and_goes(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    char *path = take(replay);
    struct checkpoint_info info;
    assert_int_equal(checkpoint_info_read(&info, path), TRP_OK);
    char *mark = checkpoint_temporary(info.store);
    char *half = xasprintf("%s/checkpoints/%s1", replay->dir, mark);
    assert_int_equal(rename(path, half), 0); /* as a crash before the last step leaves it */
    assert_int_equal(list_count(replay), 0);
    free(path);
    path = take(replay);
    assert_int_not_equal(access(half, F_OK), 0);
    assert_int_equal(list_count(replay), 1);
    checkpoint_info_cleanup(&info);
    free(mark);
    free(half);
    free(path);
}

static void a_checkpoint_whose_name_is_not_synced_is_none(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    free(take(replay));
    snprintf(sync_root, sizeof sync_root, "%s/checkpoints", replay->dir);
    Troupe__ReplayCheckpointRequest request = TROUPE__REPLAY_CHECKPOINT_REQUEST__INIT;
    ProtobufCMessage *reply;
    sync_error = EIO;
    assert_int_not_equal(
        trp_call(replay_service(replay), "Checkpoint", &request.base, &reply, NULL), TRP_OK);
    assert_non_null(strstr(trp_last_error(), "name the checkpoint"));
    sync_error = EIO; /* and whoever asks as Reverb's clients do */
    assert_int_not_equal(unary(replay, "Checkpoint", trp_message_create(0), NULL), TRP_OK);
    assert_int_equal(sync_error, 0);
    assert_int_equal(list_count(replay), 1);
    free(take(replay));
    assert_int_equal(list_count(replay), 2);
}

static void a_restore_replaces_only_what_it_may(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    char *path = take(replay);
    insert_items(replay, "t", 100, 5);
    assert_int_equal(trp_replay_restore(path, replay->dir, true), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "in use"));
    replay_close(replay);
    assert_int_equal(trp_replay_restore(path, replay->dir, false), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "--force"));
    assert_int_equal(trp_replay_restore(replay->dir, replay->dir, true), TRP_NOT_FOUND);
    char *foreign = fixture_dir("/dev/shm"), *file = fixture_path(foreign, "mine");
    assert_int_equal(mkdir(file, 0700), 0);
    assert_int_equal(trp_replay_restore(path, foreign, true), TRP_FAILED_PRECONDITION);
    assert_int_equal(access(file, F_OK), 0);
    free(file);
    fixture_remove(foreign);

    char *dir = replay->dir;
    replay->dir = path; /* a checkpoint is looked at, not served */
    trp_replay_files *files;
    assert_int_equal(trp_replay_files_open(&files, path), TRP_OK);
    trp_replay_files_close(files);
    assert_int_equal(replay_try_open(replay, 0, LINES("name=t")), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "restore"));
    replay->dir = dir;
    OPEN("name=t");
    assert_int_equal(table_state(replay, "t").size, 10);
    replay_close(replay);

    assert_int_equal(trp_replay_restore(path, replay->dir, true), TRP_OK);
    OPEN("name=t");
    assert_int_equal(table_state(replay, "t").size, 5);
    insert_items(replay, "t", 200, 5);
    assert_int_equal(list_count(replay), 1);
    free(path);
}

static void a_damaged_store_names_its_newest_checkpoint(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    char *path = take(replay);
    replay_close(replay);
    char *data = fixture_path(replay->dir, "data.mdb");
    int fd = open(data, O_WRONLY);
    assert_int_equal(pwrite(fd, "gone", 4, 16), 4);
    close(fd);
    free(data);
    trp_replay_report report;
    assert_int_equal(trp_replay_verify(replay->dir, &report), TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), path));
    assert_int_equal(replay_try_open(replay, 0, LINES("name=t")), TRP_DATA_LOSS);
    char *command = strstr(trp_last_error(), "troupe replay restore --force ");
    assert_non_null(command);
    assert_non_null(strstr(command, path));
    assert_int_equal(trp_replay_restore(path, replay->dir, true), TRP_OK);
    OPEN("name=t");
    assert_int_equal(table_state(replay, "t").size, 5);
    free(path);
}

static void a_stop_ends_a_checkpoint(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    assert_int_equal(trp_replay_server_start(replay->server), TRP_OK);
    trp_stream *stream = open_stream(replay, "Checkpoint");
    assert_int_equal(trp_stream_send(stream, trp_message_create(0), WAIT_MS), TRP_OK);
    trp_stream_destroy(stream);
    replay_close(replay); /* at whatever point it is */
    char *root = fixture_path(replay->dir, "checkpoints");
    struct checkpoint_list all;
    assert_int_equal(checkpoint_list_read(&all, root), TRP_OK);
    for (size_t i = 0; i < all.count; ++i)
        assert_null(all.at[i].problem);
    checkpoint_list_cleanup(&all);
    free(root);
    OPEN("name=t");
    assert_int_equal(table_state(replay, "t").size, 5);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_checkpoint_is_a_store_of_that_moment),
        CASE(a_restore_with_another_limiter_goes_on),
        CASE(reverbs_clients_get_the_path),
        CASE(reverbs_clients_who_ask_meanwhile_share_the_next),
        CASE(inserting_and_removing_go_on_meanwhile),
        CASE(a_running_and_a_stopped_store_are_verified_alike),
        CASE(a_priority_that_no_sum_tells_of_is_one_that_its_table_takes),
        CASE(old_ones_go_and_foreign_files_stay),
        CASE(three_are_kept_and_any_can_be_removed),
        CASE(of_many_at_once_one_waits_and_the_rest_is_told),
        CASE(a_link_is_no_checkpoint_and_is_not_followed),
        CASE(stores_restored_from_one_checkpoint_keep_their_own),
        CASE(half_a_checkpoint_does_not_count_and_goes),
        CASE(a_checkpoint_whose_name_is_not_synced_is_none),
        CASE(a_restore_replaces_only_what_it_may),
        CASE(a_damaged_store_names_its_newest_checkpoint),
        CASE(a_stop_ends_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
