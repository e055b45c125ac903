/* A learner's surroundings: a directory, a replay server and a table with ITEMS items. */
#ifndef TRP_TESTS_LEARNER_FIXTURE_H
#define TRP_TESTS_LEARNER_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/learner.h>
#include <troupe/replay.h>
#include <troupe/writer.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "tests/learner/adding.h"

enum { ITEMS = 16 };

struct fixture {
    char dir[32];
    char *checkpoints;
    trp_replay_server *server;
    trp_channel *channel;
    trp_stop *stop;
    trp_source *source; /* of the loop_options() made last */
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    memcpy(fixture->dir, "/tmp/test_learner.XXXXXX", sizeof "/tmp/test_learner.XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    fixture->checkpoints = xasprintf("%s/checkpoints", fixture->dir);
    fixture->stop = trp_stop_create();
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_channel_destroy(fixture->channel);
    trp_replay_server_destroy(fixture->server);
    trp_stop_destroy(fixture->stop);
    char *command = xasprintf("rm -rf %s", fixture->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(fixture->checkpoints);
    free(fixture);
    return 0;
}

static void write_items(struct fixture *fixture)
{
    trp_writer *writer;
    assert_int_equal(
        trp_writer_create(&writer, fixture->channel,
                          &(trp_writer_options){.columns = columns, .column_count = 1, .seed = 1}),
        TRP_OK);
    for (size_t i = 0; i < ITEMS; i++) {
        float value = (float)i;
        assert_int_equal(trp_writer_append(writer, (const void *[]){&value}), TRP_OK);
        assert_int_equal(trp_writer_create_item(writer, "t", 1,
                                                &(trp_item_column){.length = 1, .squeeze = true}, 1,
                                                10000, NULL),
                         TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_OK);
    trp_writer_destroy(writer);
}

static void start_server(struct fixture *fixture, const char *address)
{
    char *dir = xasprintf("%s/replay", fixture->dir);
    trp_table_options table = {.name = "t",
                               .sampler = {.kind = TRP_PRIORITIZED, .exponent = 1},
                               .max_size = 100,
                               .limiter = trp_limiter_min_size(1)};
    assert_int_equal(trp_replay_server_create(
                         &fixture->server, &(trp_replay_server_options){.dir = dir,
                                                                        .tables = &table,
                                                                        .table_count = 1,
                                                                        .seed = 1,
                                                                        .server.address = address}),
                     TRP_OK);
    free(dir);
}

static void start_replay(struct fixture *fixture)
{
    start_server(fixture, NULL);
    fixture->channel = trp_channel_create_local(trp_replay_server_rpc(fixture->server));
    write_items(fixture);
}

static trp_learner_loop_options loop_options(struct fixture *fixture, struct adding *updater)
{
    assert_int_equal(trp_sampler_source_create(&fixture->source,
                                               &(trp_sampler_source_options){
                                                   .shards = &fixture->channel, .shard_count = 1}),
                     TRP_OK);
    return (trp_learner_loop_options){.updater = &updater->base,
                                      .sources = &fixture->source,
                                      .source_count = 1,
                                      .stop = fixture->stop,
                                      .checkpoint_dir = fixture->checkpoints,
                                      .checkpoint_every_s = 3600};
}

static trp_learner *learner_create(const trp_learner_loop_options *options)
{
    trp_learner *learner;
    assert_int_equal(trp_learner_create(&learner, options), TRP_OK);
    return learner;
}

struct learning {
    struct thread thread;
    trp_learner *learner;
    trp_status status;
    char error[256];
};

static void learn(void *arg)
{
    struct learning *learning = arg;
    learning->status = trp_learner_run(learning->learner);
    snprintf(learning->error, sizeof learning->error, "%s", trp_last_error());
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
