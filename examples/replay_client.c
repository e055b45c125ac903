/* A client of a replay server: transitions in, batches out, new priorities back.
 *
 *     troupe replay serve --listen 127.0.0.1:8000 --dir /var/tmp/replay \
 *         --table 'name=x sampler=prioritized(0.6) max_size=100000 limiter=min_size(1000)'
 *     ./replay_client 127.0.0.1:8000 */
#include <stdio.h>

#include <troupe/troupe.h>

enum { STEPS = 5000, BATCH = 256, BATCHES = 20, WAIT_MS = 30000, DIAL_MS = 3000 };

/* What a step has; what an item has: two steps of the observation, one of the others. */
static const trp_tensor_spec step[] = {
    {.name = "observation", .dtype = TRP_FLOAT32, .rank = 1, .shape = {4}},
    {.name = "action", .dtype = TRP_INT32},
    {.name = "reward", .dtype = TRP_FLOAT32},
};
static const trp_tensor_spec transition[] = {
    {.name = "observation", .dtype = TRP_FLOAT32, .rank = 2, .shape = {2, 4}},
    {.name = "action", .dtype = TRP_INT32},
    {.name = "reward", .dtype = TRP_FLOAT32},
};
static const trp_item_column columns[] = {
    {.column = 0, .age = 1, .length = 2}, /* the step before, and this one */
    {.column = 1, .age = 1, .length = 1, .squeeze = true},
    {.column = 2, .age = 1, .length = 1, .squeeze = true},
};

static trp_status insert(trp_channel *channel)
{
    trp_writer *writer;
    trp_status status = trp_writer_create(
        &writer, channel, &(trp_writer_options){.columns = step, .column_count = 3, .history = 2});
    if (status != TRP_OK)
        return status;
    for (int i = 0; status == TRP_OK && i < STEPS; i++) {
        float observation[4] = {(float)i}, reward = 1;
        int32_t action = i % 2;
        status = trp_writer_append(writer, (const void *const[]){observation, &action, &reward});
        if (status == TRP_OK && i > 0)
            status = trp_writer_create_item(writer, "x", 1.0, columns, 3, WAIT_MS, NULL);
    }
    if (status == TRP_OK)
        status = trp_writer_end_episode(writer, false, WAIT_MS); /* every item is confirmed */
    printf("%llu transitions are stored\n", (unsigned long long)trp_writer_confirmed(writer));
    trp_writer_destroy(writer);
    return status;
}

static trp_status learn(trp_sampler *sampler, trp_priority_writer *priorities)
{
    trp_batch batch;
    double errors[BATCH];
    trp_status status = trp_sampler_next(sampler, &batch, WAIT_MS);
    if (status != TRP_OK)
        return status;
    const float(*observations)[2][4] = batch.columns[0];
    for (uint32_t row = 0; row < batch.rows; row++) /* here a learner would step */
        errors[row] = 1 + observations[row][1][0] / STEPS;
    return trp_priority_writer_update_batch(priorities, &batch, errors, WAIT_MS);
}

static trp_status sample(trp_channel *channel)
{
    trp_sampler *sampler = NULL;
    trp_priority_writer *priorities = NULL;
    trp_status status = trp_sampler_create(&sampler, channel,
                                           &(trp_sampler_options){.table = "x",
                                                                  .columns = transition,
                                                                  .column_count = 3,
                                                                  .batch_size = BATCH,
                                                                  .prefetch = 2,
                                                                  .limiter_timeout_ms = -1});
    if (status == TRP_OK)
        status = trp_priority_writer_create(&priorities, channel, "x", 8);
    for (int i = 0; status == TRP_OK && i < BATCHES; i++)
        status = learn(sampler, priorities);
    if (status == TRP_OK)
        status = trp_priority_writer_flush(priorities, WAIT_MS);
    if (status == TRP_OK)
        printf("%d batches of %d sampled, their priorities updated\n", BATCHES, BATCH);
    trp_priority_writer_destroy(priorities);
    trp_sampler_destroy(sampler);
    return status;
}

int main(int argc, char **argv)
{
    trp_channel *channel = NULL;
    size_t tables;
    trp_status status = trp_channel_create(&channel, argc > 1 ? argv[1] : "127.0.0.1:8000",
                                           &(trp_channel_options){.connect_timeout_ms = DIAL_MS});
    /* Writers and samplers wait for a server to come back; this says whether there is one. */
    if (status == TRP_OK)
        status = trp_replay_info(channel, NULL, 0, &tables, 0);
    if (status == TRP_OK)
        status = insert(channel);
    if (status == TRP_OK)
        status = sample(channel);
    if (status != TRP_OK)
        fprintf(stderr, "replay_client: %s: %s\n", trp_status_name(status), trp_last_error());
    trp_channel_destroy(channel);
    return status == TRP_OK ? 0 : 1;
}
