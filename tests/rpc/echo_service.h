/* A stream that sends back what it is sent; its service is a count of the calls that ended. */
#ifndef TEST_ECHO_SERVICE_H
#define TEST_ECHO_SERVICE_H

#include <stdint.h>

#include <troupe/rpc.h>

static inline void echo_opened(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_read(call);
}

static inline void echo_received(void *service, trp_server_call *call, trp_message *message)
{
    (void)service;
    trp_server_call_send(call, message);
    trp_server_call_read(call);
}

static inline void echo_half_closed(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_finish(call, TRP_OK, NULL);
}

static inline void echo_closed(void *service, trp_server_call *call)
{
    (void)call;
    uint32_t *count = service;
    (*count)++;
}

static const trp_raw_method echo_method = {.path = "/test.Raw/Echo",
                                           .any_size = true,
                                           .opened = echo_opened,
                                           .received = echo_received,
                                           .half_closed = echo_half_closed,
                                           .closed = echo_closed};

#endif
