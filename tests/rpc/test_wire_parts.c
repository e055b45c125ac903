/* A message in several parts unpacks to what it is in one, wherever it is cut, and broken ones are
 * refused without a read outside of their parts. Long bytes come into their caller's room, and
 * leave from where they lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/rng.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "rpc/limits.h"
#include "rpc/wire.h"
#include "rpc_test.pb-c.h"

enum { PARTS_MAX = 40, LONG = RPC_LONG_BYTES_MIN };

typedef Troupe__Test__Everything everything;

/* Each part in a block of its own, so that a read outside is one that a sanitizer sees. */
struct cut {
    trp_bytes parts[PARTS_MAX];
    size_t count;
    trp_message *message;
};

static void cut_add(struct cut *cut, const uint8_t *bytes, size_t size)
{
    cut->parts[cut->count++] = (trp_bytes){size ? xmemdup(bytes, size) : xmalloc(1), size};
}

/* Cut at `places`, which rise. */
static void cut_at(struct cut *cut, const uint8_t *bytes, size_t size, const size_t *places,
                   size_t place_count)
{
    size_t at = 0;
    *cut = (struct cut){0};
    for (size_t i = 0; i < place_count; i++) {
        cut_add(cut, bytes + at, places[i] - at);
        at = places[i];
    }
    cut_add(cut, bytes + at, size - at);
    cut->message = trp_message_create(0);
    trp_message_set_parts(cut->message, cut->parts, cut->count, NULL, NULL);
}

static void cut_free(struct cut *cut)
{
    trp_message_destroy(cut->message);
    for (size_t i = 0; i < cut->count; i++)
        free((void *)cut->parts[i].data);
}

static trp_message *pack(const everything *message)
{
    trp_message *packed;
    assert_int_equal(rpc_wire_pack(&message->base, &packed), TRP_OK);
    return packed;
}

static trp_status unpack_cut_to(const uint8_t *bytes, size_t size, const size_t *places,
                                size_t count, uint64_t memory_max, trp_reply_room *room,
                                everything **out)
{
    struct cut cut;
    ProtobufCMessage *message;
    cut_at(&cut, bytes, size, places, count);
    struct rpc_allowance allowance = {.most = memory_max};
    trp_status status = rpc_wire_unpack_message(&troupe__test__everything__descriptor, cut.message,
                                                &allowance, room, &message);
    cut_free(&cut);
    *out = (everything *)message;
    return status;
}

static trp_status unpack_cut(const uint8_t *bytes, size_t size, const size_t *places, size_t count,
                             uint64_t memory_max, everything **out)
{
    return unpack_cut_to(bytes, size, places, count, memory_max, NULL, out);
}

static void free_everything(everything *message)
{
    troupe__test__everything__free_unpacked(message, NULL);
}

/* A field before the long one, fields behind it, and a blob that is long but one of several. */
struct sample {
    everything message;
    uint8_t data[3 * LONG];
    ProtobufCBinaryData blobs[1];
    char *words[1];
};

static struct sample *make_sample(size_t data_bytes)
{
    struct sample *sample = xcalloc(1, sizeof *sample);
    troupe__test__everything__init(&sample->message);
    for (size_t i = 0; i < sizeof sample->data; i++)
        sample->data[i] = (uint8_t)(i * 31 + i / 251);
    sample->message.number = 77;
    sample->message.text = (char *)"before";
    sample->message.data = (ProtobufCBinaryData){.len = data_bytes, .data = sample->data};
    sample->words[0] = (char *)"behind";
    sample->message.words = sample->words;
    sample->message.n_words = 1;
    sample->blobs[0] = (ProtobufCBinaryData){.len = LONG + 5, .data = sample->data + 3};
    sample->message.blobs = sample->blobs;
    sample->message.n_blobs = 1;
    return sample;
}

static void check_same(const everything *message, trp_message *original)
{
    trp_message *again = pack(message);
    assert_int_equal(trp_message_size(again), trp_message_size(original));
    assert_memory_equal(trp_message_data(again), trp_message_data(original),
                        trp_message_size(again));
    trp_message_destroy(again);
}

static void a_message_cut_anywhere_is_the_message(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, LONG - 1, LONG, LONG + 1, 2 * LONG + 3};
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct sample *sample = make_sample(sizes[s]);
        trp_message *packed = pack(&sample->message);
        size_t size = trp_message_size(packed);
        for (size_t turn = 0; turn < 200; turn++) {
            /* Around the long field's head first, then anywhere. */
            size_t places[3], first = turn < 40 ? turn : trp_rng_below(&rng, size);
            places[0] = first;
            places[1] = first + trp_rng_below(&rng, size - first + 1);
            places[2] = places[1] + trp_rng_below(&rng, size - places[1] + 1);
            everything *message;
            assert_int_equal(
                unpack_cut(trp_message_data(packed), size, places, 3, UINT64_MAX, &message),
                TRP_OK);
            check_same(message, packed);
            free_everything(message);
        }
        trp_message_destroy(packed);
        free(sample);
    }
}

static void what_ends_too_early_is_refused(void **state)
{
    (void)state;
    struct sample *sample = make_sample(2 * LONG);
    trp_message *packed = pack(&sample->message);
    static const size_t ends[] = {1, 3, 9, 11, 13, 14, LONG, 2 * LONG + 10};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t place = ends[i] / 2;
        everything *message;
        assert_int_equal(
            unpack_cut(trp_message_data(packed), ends[i], &place, 1, UINT64_MAX, &message),
            TRP_INVALID_ARGUMENT);
        assert_null(message);
        assert_non_null(strstr(trp_last_error(), "troupe.test.Everything"));
    }
    trp_message_destroy(packed);
    free(sample);
}

static void more_than_may_be_decoded_is_refused(void **state)
{
    (void)state;
    struct sample *sample = make_sample(2 * LONG);
    trp_message *packed = pack(&sample->message);
    size_t place = LONG;
    static const uint64_t limits[] = {0, LONG, 2 * LONG - 1, 2 * LONG + 100};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        everything *message;
        assert_int_equal(unpack_cut(trp_message_data(packed), trp_message_size(packed), &place, 1,
                                    limits[i], &message),
                         TRP_RESOURCE_EXHAUSTED);
        assert_null(message);
    }
    trp_message_destroy(packed);
    free(sample);
}

static void a_long_field_that_comes_often_leaks_nothing(void **state)
{
    (void)state;
    struct sample *sample = make_sample(LONG);
    trp_message *once = pack(&sample->message);
    size_t size = trp_message_size(once);
    enum { TIMES = 12 };
    uint8_t *bytes = xmalloc(TIMES * size);
    for (size_t i = 0; i < TIMES; i++)
        memcpy(bytes + i * size, trp_message_data(once), size);
    size_t places[] = {size / 2, 5 * size, 5 * size};
    everything *message;
    assert_int_equal(unpack_cut(bytes, TIMES * size, places, 3, UINT64_MAX, &message), TRP_OK);
    assert_int_equal(message->data.len, LONG);
    assert_memory_equal(message->data.data, sample->data, LONG);
    assert_int_equal(message->n_words, TIMES);
    assert_int_equal(message->n_blobs, TIMES);
    free_everything(message);
    free(bytes);
    trp_message_destroy(once);
    free(sample);
}

/* Of `data` alone: how often it comes, how long it is, and from where in the sample. */
struct again {
    size_t size, from;
};

static size_t put_again(uint8_t *at, const struct again *again, const struct sample *sample)
{
    everything message = TROUPE__TEST__EVERYTHING__INIT;
    message.data = (ProtobufCBinaryData){again->size, (uint8_t *)sample->data + again->from};
    if (again->size > 0)
        return protobuf_c_message_pack(&message.base, at);
    memcpy(at, (const uint8_t[]){3 << 3 | 2, 0}, 2); /* which no writer puts */
    return 2;
}

static void check_last(const uint8_t *bytes, size_t size, trp_bytes last, trp_reply_room *room)
{
    everything *message;
    size_t place = size / 3;
    assert_int_equal(unpack_cut_to(bytes, size, &place, 1, UINT64_MAX, room, &message), TRP_OK);
    bool in_room = room && last.size >= LONG;
    assert_int_equal(room ? room->given : 0, in_room ? last.size : 0);
    assert_int_equal(message->data.len, in_room ? 0 : last.size);
    if (last.size > 0)
        assert_memory_equal(in_room ? room->bytes : message->data.data, last.data, last.size);
    free_everything(message);
}

static void of_a_field_that_comes_again_the_last_one_counts(void **state)
{
    (void)state;
    static const struct again kinds[] = {{LONG, 0}, {LONG + 9, 40}, {7, 3}, {0, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct sample *sample = make_sample(0);
    uint8_t *bytes = xmalloc(4 * LONG), *memory = xmalloc(2 * LONG);
    for (size_t i = 0; i < KINDS * KINDS * KINDS; i++) {
        const struct again *last = &kinds[i / KINDS / KINDS];
        size_t size = put_again(bytes, &kinds[i % KINDS], sample);
        size += put_again(bytes + size, &kinds[i / KINDS % KINDS], sample);
        size += put_again(bytes + size, last, sample);
        trp_reply_room room = {.field = "data", .bytes = memory, .size = 2 * LONG};
        check_last(bytes, size, (trp_bytes){sample->data + last->from, last->size}, NULL);
        check_last(bytes, size, (trp_bytes){sample->data + last->from, last->size}, &room);
    }
    free(memory);
    free(bytes);
    free(sample);
}

/* ---- whatever the bytes are --------------------------------------------------------------------
 */

/* The message, or two of them, with some bytes that are others, and perhaps without its end. */
static size_t put_broken(uint8_t *to, struct sample *sample, trp_rng *rng)
{
    size_t size = 0;
    for (uint64_t i = 1 + trp_rng_below(rng, 2); i > 0; i--) {
        sample->message.data.len = trp_rng_below(rng, 4) == 0 ? 7 : LONG + trp_rng_below(rng, 300);
        size += protobuf_c_message_pack(&sample->message.base, to + size);
    }
    for (uint64_t i = trp_rng_below(rng, 4); i > 0; i--) {
        size_t zones[] = {0, LONG, size - 80}; /* heads are there */
        size_t at = zones[trp_rng_below(rng, 3)] + trp_rng_below(rng, 80);
        to[at] = (uint8_t)trp_rng_below(rng, 256);
    }
    return size - (trp_rng_below(rng, 4) == 0 ? trp_rng_below(rng, 50) : 0);
}

/* Taken or refused as in one part, and the same message then. */
static void check_as_in_one(const uint8_t *bytes, size_t size, trp_rng *rng)
{
    ProtobufCMessage *one;
    everything *many;
    size_t places[2] = {trp_rng_below(rng, size)};
    places[1] = places[0] + trp_rng_below(rng, size - places[0]);
    struct rpc_allowance allowance = {.most = UINT64_MAX};
    trp_status expected = rpc_wire_unpack(&troupe__test__everything__descriptor,
                                          (trp_bytes){bytes, size}, &allowance, &one);
    assert_int_equal(unpack_cut(bytes, size, places, 2, UINT64_MAX, &many), expected);
    if (expected != TRP_OK)
        return;
    trp_message *packed = pack((everything *)one);
    check_same(many, packed);
    trp_message_destroy(packed);
    protobuf_c_message_free_unpacked(one, NULL);
    free_everything(many);
}

static void broken_messages_are_in_parts_what_they_are_in_one(void **state)
{
    (void)state;
    struct sample *sample = make_sample(0);
    uint8_t *bytes = xmalloc(6 * LONG);
    trp_rng rng;
    trp_rng_init(&rng, 7, 0);
    for (size_t turn = 0; turn < 400; turn++)
        check_as_in_one(bytes, put_broken(bytes, sample, &rng), &rng);
    free(bytes);
    free(sample);
}

/* ---- a caller's room --------------------------------------------------------------------------
 */

static void check_room(const struct sample *sample, trp_message *packed, size_t room_bytes,
                       const size_t *places, size_t place_count)
{
    size_t size = sample->message.data.len;
    bool fits = size >= LONG && size <= room_bytes;
    uint8_t *memory = xmalloc(room_bytes); /* a write behind it is one that a sanitizer sees */
    trp_reply_room room = {.field = "data", .bytes = memory, .size = room_bytes};
    everything *message;
    assert_int_equal(unpack_cut_to(trp_message_data(packed), trp_message_size(packed), places,
                                   place_count, UINT64_MAX, &room, &message),
                     TRP_OK);
    assert_int_equal(room.given, fits ? size : 0);
    assert_int_equal(message->data.len, fits ? 0 : size);
    assert_memory_equal(fits ? memory : message->data.data, sample->data, size);
    assert_int_equal(message->blobs[0].len, LONG + 5); /* another field */
    free_everything(message);
    free(memory);
}

static void long_bytes_that_fit_a_callers_room_lie_there(void **state)
{
    (void)state;
    static const size_t sizes[] = {7, LONG - 1, LONG, 2 * LONG, 2 * LONG + 1};
    trp_rng rng;
    trp_rng_init(&rng, 6, 0);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct sample *sample = make_sample(sizes[s]);
        trp_message *packed = pack(&sample->message);
        for (size_t turn = 0; turn < 40; turn++) {
            size_t place = turn < 20 ? turn : trp_rng_below(&rng, trp_message_size(packed));
            check_room(sample, packed, 2 * LONG, &place, turn % 2);
        }
        trp_message_destroy(packed);
        free(sample);
    }
}

static void the_last_of_a_field_that_comes_often_is_in_the_room(void **state)
{
    (void)state;
    struct sample *sample = make_sample(2 * LONG);
    trp_message *larger = pack(&sample->message);
    sample->message.data = (ProtobufCBinaryData){.len = LONG, .data = sample->data + LONG};
    trp_message *smaller = pack(&sample->message);
    trp_message *pairs[2][2] = {{smaller, larger}, {larger, smaller}};
    for (size_t i = 0; i < 2; i++) {
        size_t first = trp_message_size(pairs[i][0]), second = trp_message_size(pairs[i][1]);
        uint8_t *bytes = xmalloc(first + second), *memory = xmalloc(LONG);
        memcpy(bytes, trp_message_data(pairs[i][0]), first);
        memcpy(bytes + first, trp_message_data(pairs[i][1]), second);
        trp_reply_room room = {.field = "data", .bytes = memory, .size = LONG};
        everything *message;
        assert_int_equal(
            unpack_cut_to(bytes, first + second, &first, 1, UINT64_MAX, &room, &message), TRP_OK);
        assert_int_equal(room.given, i == 0 ? 0 : LONG);
        assert_int_equal(message->data.len, i == 0 ? 2 * LONG : 0);
        assert_memory_equal(i == 0 ? message->data.data : memory,
                            i == 0 ? sample->data : sample->data + LONG, LONG);
        free_everything(message);
        free(memory);
        free(bytes);
    }
    trp_message_destroy(larger);
    trp_message_destroy(smaller);
    free(sample);
}

/* ---- bytes that are lent ----------------------------------------------------------------------
 */

static void count_one(void *arg)
{
    (*(int *)arg)++;
}

static bool has_part(trp_message *message, const uint8_t *bytes, size_t size)
{
    const trp_bytes *parts;
    size_t count = trp_message_parts(message, &parts);
    for (size_t i = 0; i < count; i++)
        if (parts[i].data == bytes && parts[i].size == size)
            return true;
    return false;
}

/* Of the sample's data `bytes` are lent. */
static void check_lent(struct sample *sample, trp_bytes bytes, bool refers)
{
    const ProtobufCBinaryData data = sample->message.data;
    int ended = 0;
    struct rpc_lent lent = {bytes, count_one, &ended};
    struct rpc_allowance allowance = {.most = UINT64_MAX};
    trp_message *message;
    ProtobufCMessage *again;
    assert_int_equal(rpc_wire_pack_lent(&sample->message.base, &lent, &message), TRP_OK);
    assert_int_equal(has_part(message, data.data, data.len), refers);
    assert_int_equal(lent.done == NULL, refers); /* taken over */
    assert_int_equal(rpc_wire_unpack_message(&troupe__test__everything__descriptor, message,
                                             &allowance, NULL, &again),
                     TRP_OK);
    trp_message *packed = pack(&sample->message);
    check_same((everything *)again, packed);
    assert_ptr_equal(sample->message.data.data, data.data);
    assert_int_equal(ended, 0);
    trp_message_destroy(message);
    assert_int_equal(ended, refers);
    trp_message_destroy(packed);
    protobuf_c_message_free_unpacked(again, NULL);
}

static void long_bytes_that_are_lent_are_parts_where_they_lie(void **state)
{
    (void)state;
    struct sample *sample = make_sample(2 * LONG);
    trp_bytes all = {sample->data, sizeof sample->data};
    check_lent(sample, all, true);
    check_lent(sample, (trp_bytes){sample->data, 2 * LONG}, true);
    check_lent(sample, (trp_bytes){sample->data, 2 * LONG - 1}, false);
    check_lent(sample, (trp_bytes){sample->data + 1, 2 * LONG}, false);
    sample->message.data.data = sample->data + LONG;
    check_lent(sample, all, true);
    check_lent(sample, (trp_bytes){sample->data, LONG}, false);
    sample->message.data.len = LONG - 1;
    check_lent(sample, all, false);
    sample->message.data.len = 0;
    check_lent(sample, all, false);
    free(sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_cut_anywhere_is_the_message),
        cmocka_unit_test(what_ends_too_early_is_refused),
        cmocka_unit_test(more_than_may_be_decoded_is_refused),
        cmocka_unit_test(a_long_field_that_comes_often_leaks_nothing),
        cmocka_unit_test(of_a_field_that_comes_again_the_last_one_counts),
        cmocka_unit_test(broken_messages_are_in_parts_what_they_are_in_one),
        cmocka_unit_test(long_bytes_that_fit_a_callers_room_lie_there),
        cmocka_unit_test(the_last_of_a_field_that_comes_often_is_in_the_room),
        cmocka_unit_test(long_bytes_that_are_lent_are_parts_where_they_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
