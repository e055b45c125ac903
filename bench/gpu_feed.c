#include "gpu_feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "nn/cuda/device.h"
#include "film.h"
#include "scratch.h"

enum {
    STACK = 4,
    FRAMES = 64, /* that there are: more than a sequence has */
    ACTIONS = 18,
    COPIES = 4,     /* of the environment */
    WARM_STEPS = 4, /* what comes for the first time takes longer */
    COPY_MS = 60000,
    HELD = 2, /* batches in use at once */
    PREFETCH = 2,
};

static const char env_name[] = "Film?frame_stack=4";

struct feed {
    struct feed_shape shape;
    trp_device *device;
    trp_agent agent;
    char *dir, *address;
    trp_replay_server *server;
    trp_channel *channel;
    trp_updater *example; /* says what batches are */
};

static void stop_on(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "gpu_feed: %s\n", trp_last_error());
    exit(1);
}

static double rate_since(int64_t began_ns, uint64_t count)
{
    return (double)count * 1e9 / (double)(clock_now_ns(&clock_monotonic) - began_ns);
}

/* ---- frames that follow each other ------------------------------------------------------------
 */

static uint8_t *film; /* [FRAMES][side * side] */
static size_t film_frame;

static void film_observe(const void *state, void *const *observations)
{
    memcpy(observations[0], film + *(const uint32_t *)state % FRAMES * film_frame, film_frame);
}

static trp_env_impl film_impl = {
    .spec = {.name = "Film",
             .observations = {{.dtype = TRP_UINT8, .rank = 3, .shape = {0, 0, 1}}},
             .action_count = ACTIONS},
    .state_bytes = sizeof(uint32_t),
    .reset = film_reset,
    .step = film_step,
    .observe = film_observe,
};

/* An environment stays registered: all feeds of a program have one size. */
static void film_begin(uint32_t side)
{
    static bool registered;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    film_frame = (size_t)side * side;
    film = xcalloc(FRAMES, film_frame);
    for (size_t i = 0; i < FRAMES * film_frame; i++)
        film[i] = (uint8_t)trp_rng_below(&rng, 256);
    film_impl.spec.observations[0].shape[0] = film_impl.spec.observations[0].shape[1] = side;
    if (!registered)
        stop_on(trp_env_register(&film_impl));
    registered = true;
}

/* ---- the server --------------------------------------------------------------------------------
 */

static trp_updater *feed_updater(const struct feed *feed, trp_device *device)
{
    const trp_env_spec *env;
    trp_updater *updater;
    stop_on(trp_env_find(env_name, &env));
    stop_on(feed->agent.impl->updater(
        &feed->agent, env,
        &(trp_updater_options){.batch_size = feed->shape.sequences, .device = device}, &updater));
    return updater;
}

static void serve(struct feed *feed)
{
    trp_table_options table = {.name = feed->example->sources[0].table,
                               .sampler = {.kind = TRP_UNIFORM},
                               .max_size = feed->shape.items};
    feed->dir = make_dir("/tmp");
    feed->address = xasprintf("unix:%s/socket", feed->dir);
    char *store = xasprintf("%s/store", feed->dir);
    stop_on(trp_replay_server_create(
        &feed->server, &(trp_replay_server_options){.dir = store,
                                                    .tables = &table,
                                                    .table_count = 1,
                                                    .server = {.address = feed->address}}));
    stop_on(trp_replay_server_start(feed->server));
    stop_on(trp_channel_create(&feed->channel, feed->address, NULL));
    free(store);
}

/* By an actor; the first item of each copy, whose stacks begin with one frame again and again, is
 * out of the table at the end. */
static void fill(struct feed *feed)
{
    uint64_t unrolls = feed->shape.items / COPIES + 2;
    trp_actor *actor;
    stop_on(trp_agent_actor_create(
        &actor, &feed->agent,
        &(trp_agent_actor_options){.name = "actor",
                                   .env = env_name,
                                   .copies = COPIES,
                                   .replay = feed->channel,
                                   .max_steps = unrolls * feed->shape.rows * COPIES}));
    stop_on(trp_actor_run(actor));
    trp_actor_destroy(actor);
}

struct feed *feed_begin(const struct feed_shape *shape, trp_device *device)
{
    struct feed *feed = xcalloc(1, sizeof *feed);
    feed->shape = *shape;
    feed->device = device;
    feed->agent = trp_impala(&(trp_impala_options){
        .network = TRP_TORSO_NATURE, .unroll = shape->rows - 1, .batch_size = shape->sequences});
    film_begin(shape->side);
    feed->example = feed_updater(feed, NULL);
    serve(feed);
    fill(feed);
    return feed;
}

void feed_end(struct feed *feed)
{
    trp_channel_destroy(feed->channel);
    trp_replay_server_destroy(feed->server);
    trp_updater_destroy(feed->example);
    remove_dir(feed->dir);
    free(feed->address);
    free(film);
    free(feed);
}

static const trp_batch_spec *batches_of(const struct feed *feed)
{
    return &feed->example->sources[0];
}

static size_t place_of_stacks(const struct feed *feed)
{
    return trp_columns_find(&batches_of(feed)->columns, "observation");
}

/* ---- bytes -------------------------------------------------------------------------------------
 */

static size_t stacks_bytes(const struct feed *feed)
{
    return (size_t)feed->shape.sequences * feed->shape.rows * STACK * film_frame;
}

size_t feed_batch_bytes(const struct feed *feed)
{
    size_t bytes = 0;
    for (size_t i = 0; i < batches_of(feed)->columns.count; i++)
        bytes += trp_tensor_bytes(&batches_of(feed)->columns.specs[i]);
    return bytes * feed->shape.sequences;
}

size_t feed_sent_bytes(const struct feed *feed)
{
    size_t sequences = feed->shape.sequences, rows = feed->shape.rows;
    size_t frames = sequences * (rows + STACK - 1) * film_frame;
    return feed_batch_bytes(feed) - stacks_bytes(feed) + frames +
           sequences * rows * STACK * sizeof(int32_t);
}

double feed_least(const struct feed_bounds *bounds)
{
    double least = bounds->resident < bounds->bus ? bounds->resident : bounds->bus;
    return bounds->replay < least ? bounds->replay : least;
}

/* ---- learners ----------------------------------------------------------------------------------
 */

/* Another source's batches, and since when the learner is warm. */
struct clocked_source {
    trp_source base;
    trp_source *inner; /* NULL: the same batch again and again: */
    trp_batch batch;
    uint64_t given;
    int64_t began_ns;
};

static trp_status clocked_open(trp_source *base, const trp_source_use *use)
{
    struct clocked_source *source = (struct clocked_source *)base;
    return source->inner ? source->inner->impl->open(source->inner, use) : TRP_OK;
}

static trp_status clocked_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    struct clocked_source *source = (struct clocked_source *)base;
    trp_status status = TRP_OK;
    if (source->inner)
        status = source->inner->impl->next(source->inner, batch, timeout_ms);
    else
        *batch = source->batch;
    if (status == TRP_OK && source->given++ == WARM_STEPS)
        source->began_ns = clock_now_ns(&clock_monotonic);
    return status;
}

static void clocked_destroy(trp_source *base)
{
    trp_source_destroy(((struct clocked_source *)base)->inner);
}

static const trp_source_impl clocked_impl = {
    .open = clocked_open, .next = clocked_next, .destroy = clocked_destroy};

static struct fed run_learner(trp_updater *updater, struct clocked_source *source, uint64_t steps)
{
    trp_learner *learner;
    struct fed fed;
    source->base.impl = &clocked_impl;
    stop_on(trp_learner_create(
        &learner, &(trp_learner_loop_options){.updater = updater,
                                              .sources = (trp_source *const[]){&source->base},
                                              .source_count = 1,
                                              .max_steps = WARM_STEPS + steps}));
    stop_on(trp_learner_run(learner));
    fed.rate = rate_since(source->began_ns, steps);
    fed.bytes = (double)trp_learner_read(learner).uploaded_bytes / (double)(WARM_STEPS + steps);
    trp_learner_destroy(learner);
    return fed;
}

struct fed feed_learner(struct feed *feed, uint64_t steps)
{
    struct clocked_source source = {.inner = NULL};
    stop_on(trp_sampler_source_create(
        &source.inner, &(trp_sampler_source_options){
                           .shards = &feed->channel, .shard_count = 1, .prefetch = PREFETCH}));
    return run_learner(feed_updater(feed, feed->device), &source, steps);
}

/* ---- what bounds it ----------------------------------------------------------------------------
 */

static trp_sampler *feed_sampler(const struct feed *feed, const trp_allocator *allocator)
{
    const trp_batch_spec *spec = batches_of(feed);
    trp_sampler *sampler;
    stop_on(trp_sampler_create(&sampler, feed->channel,
                               &(trp_sampler_options){.table = spec->table,
                                                      .columns = spec->columns.specs,
                                                      .column_count = spec->columns.count,
                                                      .batch_size = spec->batch_size,
                                                      .prefetch = PREFETCH,
                                                      .held = HELD,
                                                      .allocator = allocator,
                                                      .limiter_timeout_ms = -1}));
    return sampler;
}

/* Its stacks lie where they are read: nothing is compared, and they do not cross the bus. */
double feed_resident(struct feed *feed, uint64_t steps)
{
    trp_queue *queue;
    void *stacks;
    struct clocked_source source = {.inner = NULL};
    size_t place = place_of_stacks(feed);
    trp_sampler *sampler = feed_sampler(feed, NULL);
    stop_on(trp_sampler_next(sampler, &source.batch, -1));
    stop_on(trp_device_alloc(feed->device, stacks_bytes(feed), &stacks));
    stop_on(trp_queue_create(&queue, feed->device));
    trp_queue_copy(queue, stacks, source.batch.columns[place], stacks_bytes(feed));
    stop_on(trp_queue_sync(queue, trp_queue_mark(queue)));
    trp_queue_destroy(queue);
    void **columns =
        xmemdup(source.batch.columns, batches_of(feed)->columns.count * sizeof *columns);
    columns[place] = stacks;
    source.batch.columns = columns;
    trp_updater *updater = feed_updater(feed, feed->device);
    updater->sources[0].stacks = (trp_frame_stacks){0};
    struct fed fed = run_learner(updater, &source, steps);
    trp_device_free(feed->device, stacks);
    trp_sampler_destroy(sampler);
    free(columns);
    return fed.rate;
}

double feed_replay(struct feed *feed, uint64_t batches)
{
    trp_batch batch;
    trp_sampler *sampler = feed_sampler(feed, trp_device_host_memory(feed->device));
    for (uint64_t i = 0; i < WARM_STEPS; i++)
        stop_on(trp_sampler_next(sampler, &batch, -1));
    int64_t began_ns = clock_now_ns(&clock_monotonic);
    for (uint64_t i = 0; i < batches; i++)
        stop_on(trp_sampler_next(sampler, &batch, -1));
    double rate = rate_since(began_ns, batches);
    trp_sampler_destroy(sampler);
    return rate;
}

/* A host has no bus: then it is its own copies. */
static void copy_again(trp_device *device, void *to, const void *from, size_t bytes,
                       uint64_t copies)
{
    if (trp_device_is_host(device)) {
        for (uint64_t i = 0; i < copies; i++)
            memcpy(to, from, bytes);
        return;
    }
    struct machine *machine = machine_of(device);
    const struct machine_impl *impl = machine->impl;
    struct machine_stream *stream;
    stop_on(impl->stream_create(machine, &stream));
    struct machine_event *done = impl->event_create(machine);
    for (uint64_t i = 0; i < copies; i++)
        impl->copy(machine, stream, to, from, bytes);
    impl->event_record(machine, stream, done);
    stop_on(impl->event_wait(machine, done, COPY_MS));
    impl->event_destroy(machine, done);
    impl->stream_destroy(machine, stream);
}

double feed_bus(const struct feed *feed, size_t bytes, uint64_t copies)
{
    const trp_allocator *pinned = trp_device_host_memory(feed->device);
    void *there, *here = pinned->allocate(pinned->context, bytes);
    stop_on(here ? TRP_OK : TRP_RESOURCE_EXHAUSTED);
    stop_on(trp_device_alloc(feed->device, bytes, &there));
    memset(here, 1, bytes);
    copy_again(feed->device, there, here, bytes, 1);
    int64_t began_ns = clock_now_ns(&clock_monotonic);
    copy_again(feed->device, there, here, bytes, copies);
    double rate = rate_since(began_ns, copies);
    trp_device_free(feed->device, there);
    pinned->release(pinned->context, here);
    return rate;
}
