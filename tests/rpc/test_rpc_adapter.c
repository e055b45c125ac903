/* A service in this process whose caller generated its code from the same .proto elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/rpc.h>
#include "rpc_test.pb-c.h"

/* ---- a server with one method ---------------------------------------------------------------- */

struct adding {
    Troupe__Test__Test_Service service;
    trp_server *server;
    trp_channel *channel;
};

static void increment(Troupe__Test__Test_Service *service, const Troupe__Test__Number *request,
                      Troupe__Test__Number_Closure closure, void *data)
{
    (void)service;
    Troupe__Test__Number reply = TROUPE__TEST__NUMBER__INIT;
    reply.value = request->value + 1;
    closure(&reply, data);
}

static void adding_start(struct adding *adding)
{
    *adding =
        (struct adding){.service = {.base = TROUPE__TEST__TEST__BASE_INIT, .increment = increment}};
    assert_int_equal(trp_server_create(&adding->server, NULL), TRP_OK);
    assert_int_equal(trp_server_add(adding->server, &adding->service.base, NULL), TRP_OK);
    adding->channel = trp_channel_create_local(adding->server);
}

static void adding_end(struct adding *adding)
{
    trp_channel_destroy(adding->channel);
    trp_server_destroy(adding->server);
}

/* ---- another program's descriptors ----------------------------------------------------------- */

/* The descriptors of somebody who ran protoc-c himself: the same service, other addresses. */
struct foreign {
    ProtobufCFieldDescriptor field;
    ProtobufCMessageDescriptor message; /* Number */
    ProtobufCMethodDescriptor method;   /* Increment */
    ProtobufCServiceDescriptor service;
};

static void foreign_init(struct foreign *foreign)
{
    const ProtobufCServiceDescriptor *own = &troupe__test__test__descriptor;
    const ProtobufCMethodDescriptor *increment =
        protobuf_c_service_descriptor_get_method_by_name(own, "Increment");
    static const unsigned only[] = {0};
    foreign->message = *increment->input;
    foreign->message.message_init = NULL; /* it would put its own descriptor there */
    foreign->field = foreign->message.fields[0];
    foreign->message.fields = &foreign->field;
    foreign->method = *increment;
    foreign->method.input = foreign->method.output = &foreign->message;
    foreign->service = *own;
    foreign->service.n_methods = 1;
    foreign->service.methods = &foreign->method;
    foreign->service.method_indices_by_name = only;
}

static void assert_foreign_increment(const ProtobufCMessage *reply, const struct foreign *foreign,
                                     int64_t value)
{
    assert_ptr_equal(reply->descriptor, &foreign->message);
    assert_int_equal(((const Troupe__Test__Number *)reply)->value, value);
}

static void keep_incremented(const ProtobufCMessage *reply, void *value)
{
    *(int64_t *)value = ((const Troupe__Test__Number *)reply)->value;
}

static void code_generated_twice_is_the_same_service(void **state)
{
    (void)state;
    struct adding adding;
    adding_start(&adding);
    struct foreign foreign;
    ProtobufCService *service, *again;
    ProtobufCMessage *reply;
    foreign_init(&foreign);
    assert_int_equal(trp_channel_service(adding.channel, &foreign.service, &service), TRP_OK);
    assert_int_equal(trp_channel_service(adding.channel, &foreign.service, &again), TRP_OK);
    assert_ptr_equal(service, again);
    Troupe__Test__Number request = TROUPE__TEST__NUMBER__INIT;
    request.base.descriptor = &foreign.message;
    request.value = 41;
    assert_int_equal(trp_call(service, "Increment", &request.base, &reply, NULL), TRP_OK);
    assert_foreign_increment(reply, &foreign, 42);
    protobuf_c_message_free_unpacked(reply, NULL);
    trp_future *future = trp_call_async(service, "Increment", &request.base, NULL);
    assert_int_equal(trp_future_wait(future, -1, &reply), TRP_OK);
    assert_foreign_increment(reply, &foreign, 42);
    protobuf_c_message_free_unpacked(reply, NULL);
    trp_future_destroy(future);
    int64_t value = 0; /* as a generated stub calls */
    service->invoke(service, 0, &request.base, keep_incremented, &value);
    assert_int_equal(value, 42);
    adding_end(&adding);
}

static void another_service_of_the_same_name_is_refused(void **state)
{
    (void)state;
    struct adding adding;
    adding_start(&adding);
    struct foreign foreign;
    ProtobufCService *service;
    foreign_init(&foreign);
    foreign.field.type = PROTOBUF_C_TYPE_STRING;
    assert_int_equal(trp_channel_service(adding.channel, &foreign.service, &service),
                     TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "troupe.test.Number: field 'value' is not the same"));
    foreign_init(&foreign);
    foreign.method.name = "Decrement";
    assert_int_equal(trp_channel_service(adding.channel, &foreign.service, &service),
                     TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "the service has no method 'Decrement'"));
    adding_end(&adding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_generated_twice_is_the_same_service),
        cmocka_unit_test(another_service_of_the_same_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
