/* The memory that a message is taken for before it is unpacked, against what unpacking takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <malloc.h>

#include "core/alloc.h"
#include "rpc/message.h"
#include "rpc/wire.h"
#include "rpc_test.pb-c.h"

/* ---- what malloc takes ----------------------------------------------------------------------- */

struct counter {
    uint64_t now, most;
};

static uint64_t block_of_memory(void *block)
{
    uint64_t bytes = malloc_usable_size(block) + 8;
    return bytes < 32 ? 32 : bytes;
}

static void *counted_alloc(void *data, size_t size)
{
    struct counter *counter = data;
    void *block = xmalloc(size);
    counter->now += block_of_memory(block);
    if (counter->most < counter->now)
        counter->most = counter->now;
    return block;
}

static void counted_free(void *data, void *block)
{
    struct counter *counter = data;
    if (block)
        counter->now -= block_of_memory(block);
    free(block);
}

static uint64_t memory_of_unpacking(const ProtobufCMessageDescriptor *descriptor, trp_bytes bytes)
{
    struct counter counter = {0};
    ProtobufCAllocator allocator = {counted_alloc, counted_free, &counter};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, bytes.size, bytes.data);
    assert_non_null(message);
    protobuf_c_message_free_unpacked(message, &allocator);
    assert_int_equal(counter.now, 0);
    return counter.most;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void messages_without_bytes_take_memory(void **state)
{
    enum { COUNT = 1000, BYTES = 64 };
    struct rpc_messages list = {0};
    (void)state;
    for (size_t bytes = 0; bytes <= BYTES; bytes += BYTES) {
        uint64_t taken = 0;
        for (int i = 0; i < COUNT; i++) {
            trp_message *message = trp_message_create(bytes);
            taken += block_of_memory(message);
            rpc_messages_push(&list, message);
        }
        assert_in_range(rpc_messages_memory(&list), taken * 9 / 10, taken);
        rpc_messages_clear(&list);
        assert_int_equal(rpc_messages_memory(&list), 0);
    }
}

#define FIELD(descriptor, bytes)                                                                   \
    {                                                                                              \
        &troupe__test__##descriptor##__descriptor,                                                 \
        {                                                                                          \
            (const uint8_t *)(bytes), sizeof(bytes) - 1                                            \
        }                                                                                          \
    }
static const struct {
    const ProtobufCMessageDescriptor *descriptor;
    trp_bytes field;
} fields[] = {
    FIELD(everything, "\x22\x00"), /* an empty word */
    FIELD(everything, "\x22\x19what has 25 characters is"),
    FIELD(everything, "\x3a\x00"),                 /* an empty child */
    FIELD(everything, "\x3a\x03\x0a\x01s"),        /* one with a name */
    FIELD(everything, "\x3a\x04\x12\x02\x01\x01"), /* with two numbers */
    FIELD(everything, "\x62\x00"),                 /* a blob without bytes */
    FIELD(everything, "\x62\x01s"),                /* with one */
    FIELD(everything, "\x29"
                      "8 bytes."), /* a value */
    FIELD(everything, "\x2a\x08"
                      "8 bytes."),          /* a packed one */
    FIELD(everything, "\x6a\x00"),          /* an empty count */
    FIELD(everything, "\x12\x01s"),         /* the text, again and again */
    FIELD(everything, "\x32\x03\x0a\x01s"), /* the child */
    FIELD(everything, "\x52\x00"),          /* the choice */
    FIELD(number, "\x08\x01"),              /* a number */
    FIELD(number, "\x28\x01"),              /* unknown: a number, a fixed one, bytes */
    FIELD(number, "\x2d"
                  "4 b."),
    FIELD(number, "\x29"
                  "8 bytes."),
    FIELD(number, "\x2a\x00"),
};

static void a_message_takes_no_more_memory_than_it_was_taken_for(void **state)
{
    enum { TIMES_MAX = 5000, FIELD_BYTES_MAX = 32 };
    static const size_t times[] = {1, 2, 3, 16, 17, 49, 100, TIMES_MAX};
    (void)state;
    uint8_t *bytes = xmalloc(TIMES_MAX * FIELD_BYTES_MAX);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        for (size_t j = 0; j < sizeof times / sizeof *times; j++) {
            struct rpc_allowance allowance = {.most = UINT64_MAX};
            trp_bytes field = fields[i].field, whole = {bytes, times[j] * field.size};
            ProtobufCMessage *message;
            for (size_t n = 0; n < times[j]; n++)
                memcpy(bytes + n * field.size, field.data, field.size);
            assert_int_equal(rpc_wire_unpack(fields[i].descriptor, whole, &allowance, &message),
                             TRP_OK);
            protobuf_c_message_free_unpacked(message, NULL);
            uint64_t took = memory_of_unpacking(fields[i].descriptor, whole);
            if (took > allowance.taken)
                fail_msg("field %zu, %zu times: %llu bytes for %llu", i, times[j],
                         (unsigned long long)took, (unsigned long long)allowance.taken);
        }
    free(bytes);
}

static void what_others_leave_of_a_budget_is_refused_until_it_is_given_back(void **state)
{
    (void)state;
    struct rpc_budget budget = {.limit = 1000};
    const ProtobufCMessageDescriptor *descriptor = &troupe__test__everything__descriptor;
    struct rpc_allowance first = {.most = 1000, .budget = &budget}, second = first, third = first;
    assert_int_equal(rpc_wire_take(descriptor, 1, 600, &first), TRP_OK);
    assert_int_equal(rpc_wire_take(descriptor, 1, 600, &second), TRP_UNAVAILABLE);
    assert_int_equal(second.taken, 0);
    assert_int_equal(rpc_wire_take(descriptor, 1, 1001, &third), TRP_RESOURCE_EXHAUSTED);
    assert_int_equal(rpc_wire_take(descriptor, 1, 401, &first), TRP_RESOURCE_EXHAUSTED);
    rpc_budget_give(&budget, first.taken);
    assert_int_equal(rpc_wire_take(descriptor, 1, 600, &second), TRP_OK);
    assert_int_equal(second.taken, 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_without_bytes_take_memory),
        cmocka_unit_test(a_message_takes_no_more_memory_than_it_was_taken_for),
        cmocka_unit_test(what_others_leave_of_a_budget_is_refused_until_it_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
