/* The shortest programs on gRPC's C core that do the work: every event is one function call away
 * from the next batch, nothing is locked, nothing is looked up but the path of a new call. */
#include "raw_grpc.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>

#include "core/alloc.h"
#include "core/clock.h"

enum { REQUESTS = 64 };

struct tag {
    void (*done)(struct tag *tag, bool ok);
    void *owner;
};

static void batch(grpc_call *call, const grpc_op *ops, size_t count, struct tag *tag)
{
    grpc_call_error error = grpc_call_start_batch(call, ops, count, tag, NULL);
    assert(error == GRPC_CALL_OK);
}

static gpr_timespec never(void)
{
    return gpr_inf_future(GPR_CLOCK_MONOTONIC);
}

static bool run_one(grpc_completion_queue *queue)
{
    grpc_event event = grpc_completion_queue_next(queue, never(), NULL);
    if (event.type != GRPC_OP_COMPLETE)
        return false;
    struct tag *tag = event.tag;
    tag->done(tag, event.success);
    return true;
}

/* ---- server ---- */

struct listener {
    struct tag tag;
    grpc_server *server;
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct served {
    grpc_call *call;
    struct tag read, write, end;
    grpc_byte_buffer *message;
    int cancelled;
    bool unary, echo, opened;
    uint32_t outstanding;
};

static void served_free(struct served *served)
{
    if (served->outstanding > 0)
        return;
    grpc_call_unref(served->call);
    free(served);
}

static void served_read(struct served *served)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &served->message};
    served->outstanding++;
    batch(served->call, &op, 1, &served->read);
}

static void served_end(struct tag *tag, bool ok)
{
    struct served *served = tag->owner;
    (void)ok;
    served->outstanding--;
    served_free(served);
}

static void served_written(struct tag *tag, bool ok)
{
    struct served *served = tag->owner;
    served->outstanding--;
    if (ok)
        served_read(served);
    else
        served_free(served);
}

static void served_finish(struct served *served, grpc_byte_buffer *message)
{
    grpc_op ops[4];
    memset(ops, 0, sizeof ops);
    size_t count = 0;
    if (!served->opened)
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    if (message) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = message;
    }
    ops[count++].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[count].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    ops[count++].data.recv_close_on_server.cancelled = &served->cancelled;
    served->outstanding++;
    batch(served->call, ops, count, &served->end);
}

static void served_got(struct tag *tag, bool ok)
{
    struct served *served = tag->owner;
    grpc_byte_buffer *message = served->message;
    (void)ok;
    served->outstanding--;
    served->message = NULL;
    if (!message || served->unary) {
        served_finish(served, message);
    } else if (served->echo) {
        grpc_op ops[2];
        memset(ops, 0, sizeof ops);
        ops[0].op = GRPC_OP_SEND_MESSAGE;
        ops[0].data.send_message.send_message = message;
        ops[1].op = GRPC_OP_SEND_INITIAL_METADATA;
        served->outstanding++;
        batch(served->call, ops, served->opened ? 1 : 2, &served->write);
        served->opened = true;
    } else {
        served_read(served);
    }
    if (message)
        grpc_byte_buffer_destroy(message);
}

static void listen_for_call(struct listener *listener)
{
    grpc_server_request_call(listener->server, &listener->call, &listener->details,
                             &listener->metadata, listener->queue, listener->queue, &listener->tag);
}

static void call_came(struct tag *tag, bool ok)
{
    struct listener *listener = tag->owner;
    if (!ok)
        return;
    struct served *served = xcalloc(1, sizeof *served);
    served->call = listener->call;
    served->unary = grpc_slice_str_cmp(listener->details.method, "/raw/Unary") == 0;
    served->echo = grpc_slice_str_cmp(listener->details.method, "/raw/Echo") == 0;
    served->read = (struct tag){served_got, served};
    served->write = (struct tag){served_written, served};
    served->end = (struct tag){served_end, served};
    grpc_metadata_array_destroy(&listener->metadata);
    grpc_metadata_array_init(&listener->metadata);
    grpc_call_details_destroy(&listener->details);
    grpc_call_details_init(&listener->details);
    listen_for_call(listener);
    served_read(served);
}

int raw_serve(const char *address)
{
    grpc_init();
    grpc_arg limits[2] = {{.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_ALLOW_REUSEPORT},
                          {.type = GRPC_ARG_INTEGER,
                           .key = GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                           .value.integer = -1}};
    grpc_server *server =
        grpc_server_create(&(grpc_channel_args){.num_args = 2, .args = limits}, NULL);
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    if (grpc_server_add_http2_port(server, address, credentials) == 0)
        return 1;
    grpc_server_credentials_release(credentials);
    grpc_server_start(server);
    struct listener *listeners = xcalloc(REQUESTS, sizeof *listeners);
    for (size_t i = 0; i < REQUESTS; i++) {
        listeners[i].tag = (struct tag){call_came, &listeners[i]};
        listeners[i].server = server;
        listeners[i].queue = queue;
        grpc_metadata_array_init(&listeners[i].metadata);
        grpc_call_details_init(&listeners[i].details);
        listen_for_call(&listeners[i]);
    }
    while (run_one(queue))
        continue;
    return 0;
}

/* ---- clients ---- */

struct raw_client {
    grpc_channel *channel;
    grpc_completion_queue *queue;
    void *unary;
    grpc_slice payload;
    uint32_t started, finished, total;
};

struct raw_client *raw_client_create(const char *address)
{
    struct raw_client *client = xcalloc(1, sizeof *client);
    grpc_init();
    grpc_arg limit = {
        .type = GRPC_ARG_INTEGER, .key = GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, .value.integer = -1};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    client->channel = grpc_channel_create(address, credentials,
                                          &(grpc_channel_args){.num_args = 1, .args = &limit});
    grpc_channel_credentials_release(credentials);
    client->queue = grpc_completion_queue_create_for_next(NULL);
    client->unary = grpc_channel_register_call(client->channel, "/raw/Unary", NULL, NULL);
    return client;
}

void raw_client_destroy(struct raw_client *client)
{
    grpc_channel_destroy(client->channel);
    grpc_completion_queue_shutdown(client->queue);
    while (run_one(client->queue))
        continue;
    grpc_completion_queue_destroy(client->queue);
    free(client);
    grpc_shutdown();
}

static double rate_since(int64_t start_ns, uint32_t count)
{
    return count * 1e9 / (double)(clock_now_ns(&clock_monotonic) - start_ns);
}

static void new_payload(struct raw_client *client, size_t size, uint32_t total)
{
    client->payload = grpc_slice_malloc_large(size);
    memset(GRPC_SLICE_START_PTR(client->payload), 1, size);
    client->started = client->finished = 0;
    client->total = total;
}

struct unary {
    struct tag tag;
    struct raw_client *client;
    grpc_call *call;
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *reply;
    grpc_status_code status;
    grpc_slice details;
};

static void unary_start(struct unary *unary)
{
    struct raw_client *client = unary->client;
    grpc_metadata_array_init(&unary->initial);
    grpc_metadata_array_init(&unary->trailing);
    unary->call = grpc_channel_create_registered_call(client->channel, NULL, 0, client->queue,
                                                      client->unary, never(), NULL);
    grpc_byte_buffer *request = grpc_raw_byte_buffer_create(&client->payload, 1);
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA, .flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &unary->initial},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &unary->reply},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &unary->trailing,
                                        .status = &unary->status,
                                        .status_details = &unary->details}}};
    client->started++;
    batch(unary->call, ops, 6, &unary->tag);
    grpc_byte_buffer_destroy(request);
}

static void unary_done(struct tag *tag, bool ok)
{
    struct unary *unary = tag->owner;
    (void)ok;
    assert(unary->status == GRPC_STATUS_OK && unary->reply);
    grpc_byte_buffer_destroy(unary->reply);
    grpc_metadata_array_destroy(&unary->initial);
    grpc_metadata_array_destroy(&unary->trailing);
    grpc_slice_unref(unary->details);
    grpc_call_unref(unary->call);
    unary->client->finished++;
    if (unary->client->started < unary->client->total)
        unary_start(unary);
}

double raw_unary_rate(struct raw_client *client, size_t size, uint32_t in_flight, uint32_t calls)
{
    struct unary *all = xcalloc(in_flight, sizeof *all);
    new_payload(client, size, calls);
    int64_t start = clock_now_ns(&clock_monotonic);
    for (uint32_t i = 0; i < in_flight; i++) {
        all[i].client = client;
        all[i].tag = (struct tag){unary_done, &all[i]};
        unary_start(&all[i]);
    }
    while (client->finished < calls)
        run_one(client->queue);
    double rate = rate_since(start, calls);
    grpc_slice_unref(client->payload);
    free(all);
    return rate;
}

struct flow {
    struct tag open, read, write, close, end;
    struct raw_client *client;
    grpc_call *call;
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *reply;
    grpc_status_code status;
    grpc_slice details;
    uint32_t window, received;
    uint32_t outstanding; /* events: the flow may not go before the last one */
    bool writing, echoes;
};

static void flow_batch(struct flow *flow, const grpc_op *ops, size_t count, struct tag *tag)
{
    flow->outstanding++;
    batch(flow->call, ops, count, tag);
}

static void flow_event(struct tag *tag, bool ok)
{
    (void)ok;
    ((struct flow *)tag->owner)->outstanding--;
}

static void flow_write(struct flow *flow)
{
    struct raw_client *client = flow->client;
    uint32_t under_way = client->started - (flow->echoes ? flow->received : 0);
    if (flow->writing || client->started == client->total ||
        (flow->echoes && under_way >= flow->window))
        return;
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&client->payload, 1);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message};
    flow->writing = true;
    client->started++;
    flow_batch(flow, &op, 1, &flow->write);
    grpc_byte_buffer_destroy(message);
}

static void flow_read(struct flow *flow)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &flow->reply};
    flow_batch(flow, &op, 1, &flow->read);
}

static void flow_written(struct tag *tag, bool ok)
{
    struct flow *flow = tag->owner;
    assert(ok);
    flow->outstanding--;
    flow->writing = false;
    if (flow->client->started == flow->client->total) {
        grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
        flow_batch(flow, &op, 1, &flow->close);
    }
    flow_write(flow);
}

static void flow_got(struct tag *tag, bool ok)
{
    struct flow *flow = tag->owner;
    (void)ok;
    flow->outstanding--;
    if (!flow->reply)
        return;
    grpc_byte_buffer_destroy(flow->reply);
    flow->received++;
    flow_read(flow);
    flow_write(flow);
}

static void flow_open(struct flow *flow, const char *path)
{
    grpc_metadata_array_init(&flow->initial);
    grpc_metadata_array_init(&flow->trailing);
    flow->call = grpc_channel_create_call(flow->client->channel, NULL, 0, flow->client->queue,
                                          grpc_slice_from_static_string(path), NULL, never(), NULL);
    grpc_op opening = {.op = GRPC_OP_SEND_INITIAL_METADATA,
                       .flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY};
    grpc_op ending[2] = {{.op = GRPC_OP_RECV_INITIAL_METADATA,
                          .data.recv_initial_metadata.recv_initial_metadata = &flow->initial},
                         {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                          .data.recv_status_on_client = {.trailing_metadata = &flow->trailing,
                                                         .status = &flow->status,
                                                         .status_details = &flow->details}}};
    flow_batch(flow, &opening, 1, &flow->open);
    flow_batch(flow, ending, 2, &flow->end);
}

static double flow_rate(struct raw_client *client, const char *path, size_t size, uint32_t window,
                        uint32_t messages)
{
    struct flow flow = {.client = client, .window = window, .echoes = window > 0};
    flow.open = flow.close = (struct tag){flow_event, &flow};
    flow.read = (struct tag){flow_got, &flow};
    flow.write = (struct tag){flow_written, &flow};
    flow.end = (struct tag){flow_event, &flow};
    new_payload(client, size, messages);
    int64_t start = clock_now_ns(&clock_monotonic);
    flow_open(&flow, path);
    flow_read(&flow);
    flow_write(&flow);
    while (flow.outstanding > 0)
        run_one(client->queue);
    double rate = rate_since(start, messages);
    assert(flow.status == GRPC_STATUS_OK && (!flow.echoes || flow.received == messages));
    grpc_metadata_array_destroy(&flow.initial);
    grpc_metadata_array_destroy(&flow.trailing);
    grpc_slice_unref(flow.details);
    grpc_slice_unref(client->payload);
    grpc_call_unref(flow.call);
    return rate;
}

double raw_echo_rate(struct raw_client *client, size_t size, uint32_t window, uint32_t messages)
{
    return flow_rate(client, "/raw/Echo", size, window, messages);
}

double raw_sink_rate(struct raw_client *client, size_t size, uint32_t messages)
{
    return flow_rate(client, "/raw/Sink", size, 0, messages);
}
