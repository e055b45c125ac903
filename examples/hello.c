/* A node with a service, and three nodes that call it.
 *
 *     troupe launch hello.c hello.proto --                      a process per node
 *     troupe launch hello.c hello.proto -- --launch=threads     everything in one
 *
 * Who calls cannot tell the two apart. The program ends when the visitors have: nobody uses them.
 */
#include <stdio.h>

#include <troupe/troupe.h>

#include "hello.pb-c.h"

/* Runs on a thread of the server, or on the caller's: a handler is thread-safe. */
static void greeter_greet(Hello__Greeter_Service *service, const Hello__Name *name,
                          Hello__Greeting_Closure closure, void *closure_data)
{
    (void)service;
    if (name->name[0] == '\0') {
        trp_fail(TRP_INVALID_ARGUMENT, "greet whom?");
        closure(NULL, closure_data);
        return;
    }
    char text[128];
    snprintf(text, sizeof text, "hello, %s", name->name);
    Hello__Greeting greeting = HELLO__GREETING__INIT;
    greeting.text = text;
    closure(&greeting, closure_data);
}

static trp_status greeter_run(trp_context *context, const void *arg)
{
    (void)arg;
    static Hello__Greeter_Service service = HELLO__GREETER__INIT(greeter_);
    TRP_TRY(trp_context_serve(context, &service.base, NULL));
    trp_stop_wait(trp_context_stop(context), -1);
    return TRP_OK;
}

static trp_status visitor_run(trp_context *context, const void *arg)
{
    const trp_node *greeter = arg;
    ProtobufCService *service;
    TRP_TRY(trp_dial(context, *greeter, 0, &hello__greeter__descriptor, &service));
    Hello__Name name = HELLO__NAME__INIT;
    name.name = (char *)trp_context_name(context); /* "visitor/2" */
    ProtobufCMessage *reply;
    TRP_TRY(trp_call(service, "Greet", &name.base, &reply, NULL));
    printf("%s\n", ((Hello__Greeting *)reply)->text);
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_node greeter = trp_add_node(program, "greeter", &(trp_node_options){.run = greeter_run});
    trp_add_node(program, "visitor",
                 &(trp_node_options){.run = visitor_run,
                                     .arg = &greeter,
                                     .arg_size = sizeof greeter,
                                     .uses = &greeter,
                                     .use_count = 1,
                                     .count = 3});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "hello", build);
}
