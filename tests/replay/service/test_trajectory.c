/* Canonical trajectories against the plain way: random items are built by one builder that goes on
 * and by a fresh one each, and encode to what the wire codec writes for the same slices. */
#include "tests/replay/store_fixture.h"

#include <troupe/rng.h>
#include "core/buffer.h"
#include "core/protobuf.h"
#include "replay/service/keep_set.h"
#include "replay/wire/tensor.h"
#include "replay/service/trajectory_builder.h"
#include "replay/wire/wire.h"

enum { CHUNKS = 6, ROWS = 200, TENSORS = 3 };

struct world {
    char *dir;
    struct engine *engine;
    struct keep_set set;
    struct wire_insert_request request;
    uint64_t keys[CHUNKS];
};

/* CHUNKS chunks of TENSORS tensors of ROWS rows; the last chunk has fewer rows. */
static void add_chunks(struct world *world, trp_rng *rng)
{
    struct wire_insert_request request = {0}, decoded = {0};
    struct wire_tensor tensors[2][TENSORS];
    struct wire_steps steps[2];
    static uint8_t blocks[2][TENSORS][4 * ROWS * TENSORS + BLOCK_HEADER_BYTES_MAX];
    for (int kind = 0; kind < 2; ++kind) {
        for (int t = 0; t < TENSORS; ++t) {
            int64_t rows = kind ? ROWS / 2 : ROWS;
            uint32_t size = (uint32_t)(4 * rows * (t + 1));
            uint8_t *raw = blocks[kind][t] + BLOCK_HEADER_BYTES_MAX;
            uint8_t *block = block_literal_header(raw, size);
            tensors[kind][t] =
                (struct wire_tensor){.dtype = TRP_FLOAT32,
                                     .rank = 2,
                                     .dims = {rows, t + 1},
                                     .content = {block, (size_t)(raw + size - block)}};
        }
        steps[kind] = (struct wire_steps){.tensors = tensors[kind], .tensor_count = TENSORS};
    }
    for (int i = 0; i < CHUNKS; ++i) {
        world->keys[i] = trp_rng_u64(rng) >> trp_rng_below(rng, 64);
        *wire_push_chunk(&request.lists) =
            (struct wire_chunk){.key = world->keys[i], .steps = &steps[i == CHUNKS - 1]};
    }
    trp_message *message;
    assert_int_equal(wire_insert_request_encode(&request, &message), TRP_OK);
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    assert_int_equal(wire_insert_request_decode(&bytes, 1, &decoded), TRP_OK);
    for (uint32_t i = 0; i < decoded.lists.chunk_count; ++i)
        assert_int_equal(keep_set_add(&world->set, world->engine, &decoded.lists.chunks[i]),
                         TRP_OK);
    trp_message_destroy(message);
    wire_insert_request_cleanup(&request);
    wire_insert_request_cleanup(&decoded);
}

static int setup(void **state)
{
    struct world *world = xcalloc(1, sizeof *world);
    world->dir = fixture_dir("/tmp");
    assert_int_equal(engine_create(&world->engine, &(struct engine_options){.dir = world->dir}),
                     TRP_OK);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    keep_set_cleanup(&world->set, world->engine);
    wire_insert_request_cleanup(&world->request);
    engine_destroy(world->engine);
    fixture_remove(world->dir);
    free(world);
    return 0;
}

/* A decoded item; `bytes` have to stay. */
static struct wire_item *decode_item(struct world *world, trp_message *message)
{
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    assert_int_equal(wire_insert_request_decode(&bytes, 1, &world->request), TRP_OK);
    assert_int_equal(world->request.lists.item_count, 1);
    return &world->request.lists.items[0];
}

static trp_message *encode_item(const struct wire_insert_request *request)
{
    trp_message *message;
    assert_int_equal(wire_insert_request_encode(request, &message), TRP_OK);
    return message;
}

/* Slices of up to three columns; most trials repeat the shape of the one before. */
struct shape {
    uint32_t columns, slices[3];
    bool squeeze[3];
    struct {
        uint32_t chunk;
        int32_t offset, length, index;
    } slice[3][40];
};

static void draw_shape(struct shape *shape, trp_rng *rng)
{
    shape->columns = 1 + (uint32_t)trp_rng_below(rng, 3);
    for (uint32_t c = 0; c < shape->columns; ++c) {
        int32_t index = (int32_t)trp_rng_below(rng, TENSORS);
        shape->slices[c] = 1 + (uint32_t)trp_rng_below(rng, trp_rng_below(rng, 4) ? 3 : 40);
        shape->squeeze[c] = trp_rng_below(rng, 4) == 0;
        if (shape->squeeze[c])
            shape->slices[c] = 1;
        for (uint32_t i = 0; i < shape->slices[c]; ++i) {
            shape->slice[c][i].chunk = (uint32_t)trp_rng_below(rng, CHUNKS);
            shape->slice[c][i].offset = (int32_t)trp_rng_below(rng, ROWS / 2 - 8);
            shape->slice[c][i].length = shape->squeeze[c] ? 1 : (int32_t)trp_rng_below(rng, 8);
            shape->slice[c][i].index = index;
        }
    }
}

/* The shape over the keys `keys`, which number the chunks. */
static void make_item(struct wire_insert_request *request, const struct shape *shape,
                      const uint64_t *keys)
{
    wire_insert_request_clear(request);
    wire_push_item(&request->lists)->key = 1;
    for (uint32_t c = 0; c < shape->columns; ++c) {
        wire_push_column(&request->lists)->squeeze = shape->squeeze[c];
        for (uint32_t i = 0; i < shape->slices[c]; ++i)
            *wire_push_slice(&request->lists) =
                (struct wire_slice){.chunk_key = keys[shape->slice[c][i].chunk],
                                    .offset = shape->slice[c][i].offset,
                                    .length = shape->slice[c][i].length,
                                    .index = shape->slice[c][i].index};
    }
}

static void assert_same(const struct trajectory_builder *a, const struct trajectory_builder *b)
{
    trp_bytes of_a = trajectory_built(a), of_b = trajectory_built(b);
    assert_int_equal(of_a.size, of_b.size);
    assert_memory_equal(of_a.data, of_b.data, of_a.size);
    assert_int_equal(a->chunk_count, b->chunk_count);
    for (uint32_t i = 0; i < a->chunk_count; ++i)
        assert_ptr_equal(a->chunks[i], b->chunks[i]);
}

/* The canonical bytes with seqs as keys, and the item with the same keys, are the same message. */
static void assert_encodes(struct world *world, const struct trajectory_builder *builder,
                           const struct shape *shape, const uint64_t *keys, trp_rng *rng)
{
    uint64_t seqs[CHUNKS] = {0};
    struct wire_insert_request plain = {0};
    struct buffer encoded = {0};
    struct item *stored = engine_item_create(world->engine, trajectory_built(builder),
                                             builder->chunks, builder->chunk_count);
    const struct trajectory *trajectory = stored->trajectory;
    assert_true(trajectory_valid((trp_bytes){trajectory->bytes, trajectory->size},
                                 trajectory->chunk_count));
    for (int i = 0; i < CHUNKS; ++i) {
        struct chunk *chunk = keep_set_find(&world->set, keys[i])->chunk;
        chunk->seq = seqs[i] = 1 + (trp_rng_u64(rng) >> trp_rng_below(rng, 64)) / 2;
    }
    trajectory_encode(trajectory, builder->chunks, &encoded);
    make_item(&plain, shape, seqs);
    trp_message *message = encode_item(&plain);
    const struct wire_item *item = decode_item(world, message);
    assert_int_equal(item->trajectory.size, encoded.size);
    assert_memory_equal(item->trajectory.data, encoded.data, encoded.size);
    for (int i = 0; i < CHUNKS; ++i)
        keep_set_find(&world->set, keys[i])->chunk->seq = 0;
    engine_item_destroy(world->engine, stored);
    trp_message_destroy(message);
    wire_insert_request_cleanup(&plain);
    buffer_cleanup(&encoded);
}

static void shuffle(uint64_t *keys, trp_rng *rng)
{
    for (uint32_t i = CHUNKS - 1; i > 0; --i) {
        uint32_t j = (uint32_t)trp_rng_below(rng, i + 1);
        uint64_t key = keys[i];
        keys[i] = keys[j];
        keys[j] = key;
    }
}

static void a_builder_that_remembers_builds_what_a_fresh_one_does(void **state)
{
    struct world *world = *state;
    struct trajectory_builder going = {0};
    struct wire_insert_request request = {0};
    struct shape shape = {0};
    trp_rng rng;
    trp_rng_init(&rng, 5, 1);
    for (int trial = 0; trial < 3000; ++trial) {
        if (trial % 50 == 0) {
            keep_set_cleanup(&world->set, world->engine);
            add_chunks(world, &rng);
        }
        if (trial == 0 || trp_rng_below(&rng, 3) == 0)
            draw_shape(&shape, &rng);
        shuffle(world->keys, &rng);
        make_item(&request, &shape, world->keys);
        trp_message *message = encode_item(&request);

        struct trajectory_builder fresh = {0};
        struct wire_item *item = decode_item(world, message);
        trp_status expected = trajectory_build(&fresh, &world->request.lists, item, &world->set);
        trp_status status = trajectory_build(&going, &world->request.lists, item, &world->set);
        assert_int_equal(status, expected);
        if (status == TRP_OK) {
            assert_same(&going, &fresh);
            assert_encodes(world, &going, &shape, world->keys, &rng);
        }
        trajectory_builder_cleanup(&fresh);
        trp_message_destroy(message);
    }
    trajectory_builder_cleanup(&going);
    wire_insert_request_cleanup(&request);
}

static void a_like_item_over_lesser_chunks_is_not_taken_for_the_last(void **state)
{
    struct world *world = *state;
    struct trajectory_builder builder = {0};
    struct wire_insert_request request = {0};
    struct shape shape = {.columns = 1, .slices = {1}};
    trp_rng rng;
    trp_rng_init(&rng, 5, 1);
    add_chunks(world, &rng);
    shape.slice[0][0].offset = ROWS - 1;
    shape.slice[0][0].length = 1;
    uint32_t like = 0; /* a key as long as that of the last chunk, which has half the rows */
    while (varint_size(world->keys[like]) != varint_size(world->keys[CHUNKS - 1]))
        like++;
    assert_true(like < CHUNKS - 1);
    for (int trial = 0; trial < 2; ++trial) {
        uint64_t keys[CHUNKS] = {trial ? world->keys[CHUNKS - 1] : world->keys[like]};
        make_item(&request, &shape, keys);
        trp_message *message = encode_item(&request);
        struct wire_item *item = decode_item(world, message);
        trp_status status = trajectory_build(&builder, &world->request.lists, item, &world->set);
        assert_int_equal(status, trial ? TRP_INVALID_ARGUMENT : TRP_OK);
        trp_message_destroy(message);
    }
    trajectory_builder_cleanup(&builder);
    wire_insert_request_cleanup(&request);
}

static void bytes_that_no_builder_made_are_not_valid(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[12]; /* varints */
        uint32_t size, chunks;
        bool valid;
    } rows[] = {
        {{2, 0, 0, 1, 0}, 5, 1, true},
        {{2, 0, 0, 1, 0, 0}, 6, 1, true}, /* an empty second column */
        {{0}, 0, 1, false},
        {{0}, 1, 1, false},                                     /* an empty first column */
        {{2, 0, 0, 1}, 4, 1, false},                            /* cut */
        {{2, 1, 0, 1, 0}, 5, 1, false},                         /* chunk 1 of 1 */
        {{2, 0, 0xff, 0xff, 0xff, 0xff, 8, 1, 0}, 9, 1, false}, /* beyond int32 */
        {{2, 0, 0, 1, 0x80}, 5, 1, false},
        {{2, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 1, 0}, 10, 1, false}, /* six bytes for a zero */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        struct trajectory *trajectory = xcalloc(1, sizeof *trajectory + rows[i].size);
        trajectory->size = rows[i].size;
        trajectory->chunk_count = rows[i].chunks;
        memcpy(trajectory->bytes, rows[i].bytes, rows[i].size);
        assert_int_equal(trajectory_valid((trp_bytes){trajectory->bytes, trajectory->size},
                                          trajectory->chunk_count),
                         rows[i].valid);
        free(trajectory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_builder_that_remembers_builds_what_a_fresh_one_does,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_like_item_over_lesser_chunks_is_not_taken_for_the_last,
                                        setup, teardown),
        cmocka_unit_test(bytes_that_no_builder_made_are_not_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
