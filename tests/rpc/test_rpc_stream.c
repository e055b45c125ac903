/* Streams of raw messages. Every case runs three times: in-process, over a unix socket, over TCP;
 * the client cannot tell which. */
#include "rpc_net.h"

static trp_stream *open_stream(struct net *net, const char *path)
{
    trp_stream *stream;
    assert_int_equal(trp_stream_open(&stream, net->channel, path, NULL), TRP_OK);
    return stream;
}

static void send_text(trp_stream *stream, const char *text)
{
    assert_int_equal(trp_stream_send(stream, message_of(text), WAIT_MS), TRP_OK);
}

static void expect_text(trp_stream *stream, const char *text)
{
    trp_message *message;
    trp_status status = trp_stream_receive(stream, &message, WAIT_MS);
    if (status != TRP_OK)
        fail_msg("%s: %s", trp_status_name(status), trp_last_error());
    assert_int_equal(trp_message_size(message), strlen(text));
    assert_memory_equal(trp_message_data(message), text, strlen(text));
    trp_message_destroy(message);
}

static void expect_end(trp_stream *stream, trp_status expected, const char *text)
{
    trp_message *message;
    trp_status status = trp_stream_receive(stream, &message, WAIT_MS);
    if (status != expected)
        fail_msg("%s: %s", trp_status_name(status), trp_last_error());
    assert_null(message);
    if (text && !strstr(trp_last_error(), text))
        fail_msg("\"%s\" does not contain \"%s\"", trp_last_error(), text);
}

/* ---- the cases ---- */

static void messages_come_back_in_order(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    char text[16];
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "message %u", i);
        send_text(stream, text);
        if (i >= 10) {
            snprintf(text, sizeof text, "message %u", i - 10);
            expect_text(stream, text);
        }
    }
    for (uint32_t i = 90; i < 100; i++) {
        snprintf(text, sizeof text, "message %u", i);
        expect_text(stream, text);
    }
    await(&net->service, &net->service.drained, 1); /* by now; before, there may always be some */
    send_text(stream, "the last one");
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    expect_text(stream, "the last one");
    expect_end(stream, TRP_OUT_OF_RANGE, "/test.Raw/Echo");
    expect_end(stream, TRP_OUT_OF_RANGE, NULL);
    trp_stream_destroy(stream);
    await(&net->service, &net->service.closed, 1);
    assert_int_equal(count_of(&net->service, &net->service.half_closed), 1);
    assert_in_range(count_of(&net->service, &net->service.drained), 1, 102);
    assert_int_equal(net->service.drained_too_early, 0);
}

static void a_stream_without_messages_ends_cleanly(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    assert_int_equal(trp_stream_half_close(stream), TRP_OK);
    expect_end(stream, TRP_OUT_OF_RANGE, NULL);
    trp_stream_destroy(stream);
}

static void empty_messages_are_messages(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    send_text(stream, "");
    expect_text(stream, "");
    trp_stream_destroy(stream);
}

static void a_poll_returns_at_once(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    trp_message *message;
    assert_int_equal(trp_stream_receive(stream, &message, 0), TRP_DEADLINE_EXCEEDED);
    send_text(stream, "still fine");
    expect_text(stream, "still fine");
    trp_stream_destroy(stream);
}

static void every_status_arrives_with_its_text(struct net *net)
{
    for (char code = 1; code <= 16; code++) {
        trp_stream *stream = open_stream(net, "/test.Raw/Fail");
        char text[40];
        snprintf(text, sizeof text, "%creason %d", code, code);
        send_text(stream, text);
        trp_message *message;
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), code);
        assert_string_equal(trp_last_error(), text + 1);
        trp_stream_destroy(stream);
    }
}

static void a_send_tells_why_the_peer_ended_behind_its_messages(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Last");
    trp_status status = TRP_OK;
    for (struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
         status == TRP_OK && !deadline_passed(deadline, &clock_monotonic);)
        status = trp_stream_send(stream, message_of("more"), WAIT_MS);
    assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
    assert_string_equal(trp_last_error(), "no room for more");
    assert_true(trp_stream_ended(stream));
    for (int i = 0; i < LAST_WORDS; i++) /* nothing is lost */
        expect_text(stream, "done");
    expect_end(stream, TRP_RESOURCE_EXHAUSTED, "no room for more");
    trp_stream_destroy(stream);
}

static void an_unknown_method_is_unimplemented(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Nothing");
    expect_end(stream, TRP_UNIMPLEMENTED, "/test.Raw/Nothing");
    trp_stream_destroy(stream);
}

static void a_send_waits_until_the_server_reads(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Hold");
    await(&net->service, &net->service.opened, 1);
    /* The transport may take a few windows of its own; a server that does not read stops it. */
    enum { CHUNK = 1 << 20, CHUNKS = 64 };
    uint32_t sent = 0;
    trp_status status = TRP_OK;
    for (; sent < CHUNKS && status == TRP_OK; sent++)
        status = trp_stream_send(stream, trp_message_create(CHUNK), 50);
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    assert_false(trp_stream_writable(stream));
    assert_int_equal(count_of(&net->service, &net->service.received), 0);
    trp_server_run(net->server, read_held, &net->service);
    if (sent == 1) /* in-process nothing was taken before the read */
        assert_int_equal(trp_stream_send(stream, trp_message_create(CHUNK), WAIT_MS), TRP_OK);
    await(&net->service, &net->service.received, 1);
    trp_stream_destroy(stream);
}

static void a_flood_arrives_complete(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Flood");
    send_text(stream, "go");
    for (uint32_t i = 0; i < FLOOD_MESSAGES; i++) {
        trp_message *message;
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        uint32_t number;
        memcpy(&number, trp_message_data(message), sizeof number);
        assert_int_equal(number, i);
        trp_message_destroy(message);
    }
    expect_end(stream, TRP_OUT_OF_RANGE, NULL);
    trp_stream_destroy(stream);
}

static void a_cancelled_stream_closes_at_the_server(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    send_text(stream, "hello");
    expect_text(stream, "hello");
    trp_stream_cancel(stream);
    expect_end(stream, TRP_CANCELLED, NULL);
    await(&net->service, &net->service.closed, 1);
    assert_int_equal(count_of(&net->service, &net->service.half_closed), 0);
    assert_int_equal(trp_stream_send(stream, message_of("late"), WAIT_MS), TRP_CANCELLED);
    trp_stream_destroy(stream);
}

static void destroying_a_stream_closes_it_at_the_server(struct net *net)
{
    for (uint32_t i = 1; i <= 20; i++) {
        trp_stream *stream = open_stream(net, "/test.Raw/Echo");
        send_text(stream, "hello");
        if (i % 2)
            expect_text(stream, "hello");
        await(&net->service, &net->service.opened, i);
        trp_stream_destroy(stream);
        await(&net->service, &net->service.closed, i);
    }
    assert_int_equal(count_of(&net->service, &net->service.half_closed), 0);
}

static void cancel_from_thread(void *arg)
{
    trp_stream_cancel(arg);
}

static void another_thread_can_cancel_a_waiting_receive(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    struct thread thread = {.running = false};
    assert_int_equal(thread_start(&thread, "cancel", cancel_from_thread, stream), TRP_OK);
    expect_end(stream, TRP_CANCELLED, NULL);
    thread_stop(&thread);
    trp_stream_destroy(stream);
}

static void request_stop(void *arg)
{
    trp_stop_request(arg);
}

static void a_stop_request_ends_a_waiting_receive(struct net *net)
{
    trp_stop *stop = trp_stop_create();
    trp_stream *stream;
    assert_int_equal(trp_stream_open(&stream, net->channel, "/test.Raw/Echo",
                                     &(trp_call_options){.cancel = stop}),
                     TRP_OK);
    struct thread thread = {.running = false};
    assert_int_equal(thread_start(&thread, "stop", request_stop, stop), TRP_OK);
    expect_end(stream, TRP_CANCELLED, NULL);
    thread_stop(&thread);
    trp_stream_destroy(stream);
    assert_int_equal(trp_stream_open(&stream, net->channel, "/test.Raw/Echo",
                                     &(trp_call_options){.cancel = stop}),
                     TRP_OK);
    expect_end(stream, TRP_CANCELLED, NULL);
    trp_stream_destroy(stream);
    trp_stop_destroy(stop);
}

static void a_stream_ends_at_its_deadline(struct net *net)
{
    trp_stream *stream;
    assert_int_equal(trp_stream_open(&stream, net->channel, "/test.Raw/Echo",
                                     &(trp_call_options){.timeout_ms = 50}),
                     TRP_OK);
    expect_end(stream, TRP_DEADLINE_EXCEEDED, NULL);
    await(&net->service, &net->service.closed, count_of(&net->service, &net->service.opened));
    trp_stream_destroy(stream);
}

static void a_message_over_the_limit_is_refused(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    assert_int_equal(trp_stream_send(stream, trp_message_create((64 << 20) + 1), WAIT_MS), TRP_OK);
    expect_end(stream, TRP_RESOURCE_EXHAUSTED, NULL);
    assert_int_equal(count_of(&net->service, &net->service.received), 0);
    trp_stream_destroy(stream);
}

static void a_method_of_any_size_takes_larger_messages(struct net *net)
{
    enum { SIZE = 65 << 20 };
    trp_stream *stream = open_stream(net, "/test.Raw/Big");
    trp_message *message = trp_message_create(SIZE);
    memset(trp_message_data(message), 7, SIZE);
    trp_message_data(message)[SIZE - 1] = 42;
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
    assert_int_equal(trp_message_size(message), SIZE);
    assert_int_equal(trp_message_data(message)[0], 7);
    assert_int_equal(trp_message_data(message)[SIZE - 1], 42);
    trp_message_destroy(message);
    trp_stream_destroy(stream);
}

static void a_message_in_parts_is_all_there(struct net *net)
{
    static const size_t sizes[] = {0, 1, 200, 300, 20000, 100000, 3 << 20};
    trp_stream *stream = open_stream(net, "/test.Raw/Parts");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        trp_message *message = trp_message_create(sizes[i]);
        for (size_t at = 0; at < sizes[i]; at++)
            trp_message_data(message)[at] = (uint8_t)(at % 251);
        assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(trp_message_size(message), sizes[i]);
        for (size_t at = 0; at < sizes[i]; at++)
            if (trp_message_data(message)[at] != at % 251)
                fail_msg("byte %zu of %zu", at, sizes[i]);
        trp_message_destroy(message);
    }
    trp_stream_destroy(stream);
}

static void a_stream_may_take_messages_in_parts(struct net *net)
{
    static const size_t sizes[] = {0, 1, 300, 20000, 100000, 3 << 20};
    trp_stream *stream;
    assert_int_equal(trp_stream_open(&stream, net->channel, "/test.Raw/Big",
                                     &(trp_call_options){.timeout_ms = -1, .in_parts = true}),
                     TRP_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        trp_message *message = trp_message_create(sizes[i]);
        const trp_bytes *parts;
        size_t at = 0;
        for (size_t b = 0; b < sizes[i]; b++)
            trp_message_data(message)[b] = (uint8_t)(b % 251);
        assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(trp_message_size(message), sizes[i]);
        size_t count = trp_message_parts(message, &parts);
        for (size_t p = 0; p < count; p++)
            for (size_t b = 0; b < parts[p].size; b++, at++)
                if (parts[p].data[b] != at % 251)
                    fail_msg("byte %zu of %zu", at, sizes[i]);
        assert_int_equal(at, sizes[i]);
        trp_message_destroy(message);
    }
    trp_stream_destroy(stream);
}

struct parts_done {
    struct mutex mutex;
    struct cond changed;
    uint32_t count;
};

static void parts_done(void *arg)
{
    struct parts_done *done = arg;
    mutex_lock(&done->mutex);
    done->count++;
    cond_signal(&done->changed);
    mutex_unlock(&done->mutex);
}

/* Until nobody needs the parts any more. */
static void await_parts(struct parts_done *done, uint32_t count)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    mutex_lock(&done->mutex);
    while (done->count < count)
        if (!cond_wait(&done->changed, &done->mutex, deadline))
            fail_msg("%u of %u", done->count, count);
    assert_int_equal(done->count, count);
    mutex_unlock(&done->mutex);
}

static void a_message_made_of_parts_comes_as_one(struct net *net)
{
    enum { OWN = 100, PART = 5000, PARTS = 300, SIZE = OWN + PARTS * PART };
    static const char *const paths[] = {"/test.Raw/Echo", "/test.Raw/Parts"};
    struct parts_done done = {.count = 0};
    uint8_t *elsewhere = xmalloc((size_t)PARTS * PART);
    mutex_init(&done.mutex);
    cond_init(&done.changed);
    for (size_t at = 0; at < (size_t)PARTS * PART; at++)
        elsewhere[at] = (uint8_t)((OWN / 2 + at) % 251);
    for (uint32_t i = 0; i < 2; i++) {
        trp_stream *stream = open_stream(net, paths[i]);
        trp_message *message = trp_message_create(OWN), *back;
        trp_bytes parts[PARTS + 2];
        uint8_t *own = trp_message_data(message);
        for (size_t at = 0; at < OWN; at++)
            own[at] = (uint8_t)((at < OWN / 2 ? at : at + PARTS * PART) % 251);
        parts[0] = (trp_bytes){own, OWN / 2};
        for (size_t p = 0; p < PARTS; p++)
            parts[p + 1] = (trp_bytes){elsewhere + p * PART, PART};
        parts[PARTS + 1] = (trp_bytes){own + OWN / 2, OWN / 2};
        trp_message_set_parts(message, parts, PARTS + 2, parts_done, &done);
        assert_int_equal(trp_message_size(message), SIZE);
        assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
        assert_int_equal(trp_stream_receive(stream, &back, WAIT_MS), TRP_OK);
        assert_int_equal(trp_message_size(back), SIZE);
        for (size_t at = 0; at < SIZE; at++)
            if (trp_message_data(back)[at] != at % 251)
                fail_msg("byte %zu", at);
        trp_message_destroy(back);
        trp_stream_destroy(stream);
        await_parts(&done, i + 1);
    }
    cond_cleanup(&done.changed);
    mutex_cleanup(&done.mutex);
    free(elsewhere);
}

static void many_streams_share_a_channel(struct net *net)
{
    enum { STREAMS = 50 };
    trp_stream *streams[STREAMS];
    char text[16];
    for (uint32_t i = 0; i < STREAMS; i++)
        streams[i] = open_stream(net, "/test.Raw/Echo");
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < STREAMS; i++) {
            snprintf(text, sizeof text, "%u of %u", i, round);
            send_text(streams[i], text);
        }
        for (uint32_t i = STREAMS; i-- > 0;) {
            snprintf(text, sizeof text, "%u of %u", i, round);
            expect_text(streams[i], text);
        }
    }
    for (uint32_t i = 0; i < STREAMS; i++)
        trp_stream_destroy(streams[i]);
}

struct echo_thread {
    struct net *net;
    struct thread thread;
    uint32_t done;
};

static void echo_many(void *arg)
{
    struct echo_thread *self = arg;
    trp_stream *stream = open_stream(self->net, "/test.Raw/Echo");
    for (uint32_t i = 0; i < 200; i++) {
        send_text(stream, "from a thread");
        expect_text(stream, "from a thread");
        self->done++;
    }
    trp_stream_destroy(stream);
}

static void threads_share_a_channel(struct net *net)
{
    struct echo_thread threads[4] = {{.net = NULL}};
    for (uint32_t i = 0; i < 4; i++) {
        threads[i].net = net;
        assert_int_equal(thread_start(&threads[i].thread, "echo", echo_many, &threads[i]), TRP_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        thread_stop(&threads[i].thread);
        assert_int_equal(threads[i].done, 200);
    }
    assert_int_equal(count_of(&net->service, &net->service.received), 800);
}

static void set_wake(void *arg)
{
    struct service *service = arg;
    mutex_lock(&service->mutex);
    service->wake_ns = clock_now_ns(&clock_monotonic) + 30 * 1000000;
    mutex_unlock(&service->mutex);
}

static void group_end_is_called_when_it_asked_to_be(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    for (uint32_t i = 1; i <= 3; i++) {
        trp_server_run(net->server, set_wake, &net->service);
        trp_message *message;
        assert_int_equal(trp_stream_receive(stream, &message, 60), TRP_DEADLINE_EXCEEDED);
        await(&net->service, &net->service.groups_at_wake, i);
    }
    trp_stream_destroy(stream);
}

static void send_to_held(void *arg)
{
    struct service *service = arg;
    trp_server_call_send(service->held, message_of("posted"));
}

static void post_from_thread(void *arg)
{
    struct service *service = arg;
    trp_server_post(service->server, send_to_held, service);
}

static void posted_work_runs_though_nobody_calls(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Hold");
    await(&net->service, &net->service.opened, 1);
    for (uint32_t i = 0; i < 20; i++) {
        struct thread thread = {.running = false};
        assert_int_equal(thread_start(&thread, "post", post_from_thread, &net->service), TRP_OK);
        expect_text(stream, "posted");
        thread_stop(&thread);
    }
    trp_stream_destroy(stream);
}

static void the_peer_has_a_name(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    send_text(stream, "who am I");
    expect_text(stream, "who am I");
    bool tcp = strcmp(net->kind, "tcp") == 0;
    char expected[128] = "in-process";
    if (strcmp(net->kind, "local") != 0)
        snprintf(expected, sizeof expected, "test_rpc_stream (pid %ld)%s", (long)getpid(),
                 tcp ? " at ipv4:127.0.0.1:" : "");
    assert_int_equal(strncmp(net->service.peer, expected, strlen(expected)), 0);
    assert_true(tcp || strlen(net->service.peer) == strlen(expected));
    trp_stream_destroy(stream);
}

static void a_channel_says_who_calls_in_plain_words(struct net *net)
{
    char expected[128];
    trp_channel *channel, *unnamed = net->channel;
    if (strcmp(net->kind, "local") == 0)
        return;
    trp_channel_options options = {.name = "actor/1 \x1b[31m"};
    assert_int_equal(trp_channel_create(&channel, trp_server_address(net->server), &options),
                     TRP_OK);
    net->channel = channel;
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    send_text(stream, "who am I");
    expect_text(stream, "who am I");
    snprintf(expected, sizeof expected, "actor/1??[31m (pid %ld)", (long)getpid());
    assert_int_equal(strncmp(net->service.peer, expected, strlen(expected)), 0);
    trp_stream_destroy(stream);
    trp_channel_destroy(channel);
    net->channel = unnamed;
}

static void stopping_the_server_ends_open_streams(struct net *net)
{
    trp_stream *stream = open_stream(net, "/test.Raw/Echo");
    send_text(stream, "hello");
    expect_text(stream, "hello");
    trp_server_stop(net->server, 0);
    expect_end(stream, TRP_UNAVAILABLE, NULL);
    assert_int_equal(net->service.closed, 1);
    trp_stream_destroy(stream);
}

/* ---- running them ---- */

typedef void test_case(struct net *net);

static void run_on_all(test_case *body, trp_server_options options)
{
    static const char *const kinds[] = {"local", "unix", "tcp"};
    for (size_t i = 0; i < 3; i++) {
        struct net *net = net_create(kinds[i], options);
        body(net);
        net_destroy(net);
    }
}

static void run_case(void **state)
{
    run_on_all((test_case *)*state, (trp_server_options){.threads = 1});
}

static void a_small_budget_refuses_messages(void **state)
{
    (void)state;
    static const char *const kinds[] = {"local", "unix"};
    for (size_t i = 0; i < 2; i++) {
        struct net *net = net_create(kinds[i], (trp_server_options){.max_message_bytes = 1 << 20,
                                                                    .in_flight_bytes = 2 << 20});
        trp_stream *stream = open_stream(net, "/test.Raw/Big");
        assert_int_equal(trp_stream_send(stream, trp_message_create(3 << 20), WAIT_MS), TRP_OK);
        expect_end(stream, TRP_RESOURCE_EXHAUSTED, NULL);
        trp_stream_destroy(stream);
        stream = open_stream(net, "/test.Raw/Big");
        assert_int_equal(trp_stream_send(stream, trp_message_create(3 << 19), WAIT_MS), TRP_OK);
        trp_message *message;
        assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
        trp_message_destroy(message);
        trp_stream_destroy(stream);
        net_destroy(net);
    }
}

/* The most messages of a group when many clients send at once. */
static uint32_t largest_group(size_t weight)
{
    enum { STREAMS = 32 };
    struct net *net = net_create("unix", (trp_server_options){.threads = 1});
    trp_stream *streams[STREAMS];
    mutex_lock(&net->service.mutex); /* the server runs already */
    net->service.weight = weight;
    mutex_unlock(&net->service.mutex);
    for (uint32_t i = 0; i < STREAMS; i++) {
        streams[i] = open_stream(net, "/test.Raw/Echo");
        send_text(streams[i], "warm");
        expect_text(streams[i], "warm");
    }
    for (uint32_t round = 0;
         round < 200 && count_of(&net->service, &net->service.largest_group) < 2; round++) {
        for (uint32_t i = 0; i < STREAMS; i++)
            send_text(streams[i], "hello");
        for (uint32_t i = 0; i < STREAMS; i++)
            expect_text(streams[i], "hello");
    }
    uint32_t largest = count_of(&net->service, &net->service.largest_group);
    for (uint32_t i = 0; i < STREAMS; i++)
        trp_stream_destroy(streams[i]);
    net_destroy(net);
    return largest;
}

static void a_group_ends_once_for_all_that_was_ready(void **state)
{
    (void)state;
    assert_in_range(largest_group(0), 2, 32);
}

static void what_messages_stand_for_counts_towards_their_group(void **state)
{
    (void)state;
    assert_int_equal(largest_group(256 << 10), 1);
}

static void echo(trp_stream *stream)
{
    send_text(stream, "hello");
    expect_text(stream, "hello");
}

static void a_group_end_has_its_turn_beside_local_callers(void **state)
{
    (void)state;
    struct net *net = net_create("unix", (trp_server_options){.threads = 1});
    struct service *service = &net->service;
    trp_channel *local = trp_channel_create_local(net->server);
    trp_stream *stream;
    is_test_thread = true;
    mutex_lock(&service->mutex);
    service->again = true;
    mutex_unlock(&service->mutex);
    assert_int_equal(trp_stream_open(&stream, local, "/test.Raw/Echo", NULL), TRP_OK);
    uint32_t before = count_of(service, &service->groups_elsewhere), turns = 0;
    for (uint32_t i = 0; i < 2000; i++)
        echo(stream);
    turns = count_of(service, &service->groups_elsewhere) - before;
    assert_in_range(turns, 0, 1000); /* not one for each message */
    for (struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
         turns < 3 && !deadline_passed(deadline, &clock_monotonic);) {
        echo(stream);
        turns = count_of(service, &service->groups_elsewhere) - before;
    }
    assert_in_range(turns, 3, 2000);
    before = count_of(service, &service->groups_elsewhere);
    echo(stream); /* the last */
    await(service, &service->groups_elsewhere, before + 1);
    trp_stream_destroy(stream);
    trp_channel_destroy(local);
    net_destroy(net);
}

static void a_peer_that_never_comes_up_is_unavailable(void **state)
{
    (void)state;
    for (uint32_t fail_fast = 0; fail_fast < 2; fail_fast++) {
        trp_channel *channel;
        assert_int_equal(trp_channel_create(&channel, "unix:/tmp/troupe-nobody/s",
                                            &(trp_channel_options){.connect_timeout_ms = 100,
                                                                   .fail_fast = fail_fast}),
                         TRP_OK);
        trp_stream *stream;
        assert_int_equal(trp_stream_open(&stream, channel, "/test.Raw/Echo", NULL), TRP_OK);
        expect_end(stream, TRP_UNAVAILABLE, "unix:/tmp/troupe-nobody/s");
        trp_stream_destroy(stream);
        trp_channel_destroy(channel);
    }
}

struct turn_taker {
    struct net *net;
    struct turns *turns;
    struct thread thread;
    trp_stream *stream;
    uint32_t received;
};

static void receive_in_turns(void *arg)
{
    struct turn_taker *self = arg;
    turns_join(self->turns, 0);
    for (; self->received < 5; self->received++) {
        trp_message *message;
        if (trp_stream_receive(self->stream, &message, WAIT_MS) != TRP_OK)
            break;
        trp_message_destroy(message);
    }
    turns_leave();
}

static void send_in_turns(void *arg)
{
    struct turn_taker *self = arg;
    turns_join(self->turns, 1);
    for (uint32_t i = 0; i < 5; i++) {
        trp_server_run(self->net->server, send_to_held, &self->net->service);
        turns_pass();
    }
    turns_leave();
}

static void a_waiting_receive_gives_its_turn_away(void **state)
{
    (void)state;
    struct net *net = net_create("local", (trp_server_options){.threads = 1});
    struct turns *turns = turns_create(2);
    trp_stream *stream = open_stream(net, "/test.Raw/Hold");
    struct turn_taker takers[2] = {{.net = net, .turns = turns, .stream = stream},
                                   {.net = net, .turns = turns}};
    assert_int_equal(thread_start(&takers[0].thread, "takes", receive_in_turns, &takers[0]),
                     TRP_OK);
    assert_int_equal(thread_start(&takers[1].thread, "gives", send_in_turns, &takers[1]), TRP_OK);
    thread_stop(&takers[0].thread);
    thread_stop(&takers[1].thread);
    assert_int_equal(takers[0].received, 5);
    trp_stream_destroy(stream);
    net_destroy(net);
    turns_destroy(turns);
}

static void an_answer_over_the_limit_ends_the_stream(void **state)
{
    (void)state;
    static const char *const kinds[] = {"local", "unix"};
    for (size_t i = 0; i < 2; i++) {
        struct net *net = net_create(kinds[i], (trp_server_options){.max_message_bytes = 500});
        trp_stream *stream = open_stream(net, "/test.Raw/Flood"); /* its answers have 1000 */
        send_text(stream, "go");
        expect_end(stream, TRP_RESOURCE_EXHAUSTED, "answer of 1000 bytes");
        trp_stream_destroy(stream);
        net_destroy(net);
    }
}

#define EVERYWHERE(body)                                                                           \
    {                                                                                              \
#body, run_case, NULL, NULL, (void *)(body)                                                \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EVERYWHERE(messages_come_back_in_order),
        EVERYWHERE(a_stream_without_messages_ends_cleanly),
        EVERYWHERE(empty_messages_are_messages),
        EVERYWHERE(a_poll_returns_at_once),
        EVERYWHERE(every_status_arrives_with_its_text),
        EVERYWHERE(a_send_tells_why_the_peer_ended_behind_its_messages),
        EVERYWHERE(an_unknown_method_is_unimplemented),
        EVERYWHERE(a_send_waits_until_the_server_reads),
        EVERYWHERE(a_flood_arrives_complete),
        EVERYWHERE(a_cancelled_stream_closes_at_the_server),
        EVERYWHERE(destroying_a_stream_closes_it_at_the_server),
        EVERYWHERE(another_thread_can_cancel_a_waiting_receive),
        EVERYWHERE(a_stop_request_ends_a_waiting_receive),
        EVERYWHERE(a_stream_ends_at_its_deadline),
        EVERYWHERE(a_message_over_the_limit_is_refused),
        EVERYWHERE(a_method_of_any_size_takes_larger_messages),
        EVERYWHERE(a_message_in_parts_is_all_there),
        EVERYWHERE(a_stream_may_take_messages_in_parts),
        EVERYWHERE(a_message_made_of_parts_comes_as_one),
        EVERYWHERE(many_streams_share_a_channel),
        EVERYWHERE(threads_share_a_channel),
        EVERYWHERE(group_end_is_called_when_it_asked_to_be),
        EVERYWHERE(posted_work_runs_though_nobody_calls),
        EVERYWHERE(the_peer_has_a_name),
        EVERYWHERE(a_channel_says_who_calls_in_plain_words),
        EVERYWHERE(stopping_the_server_ends_open_streams),
        cmocka_unit_test(a_small_budget_refuses_messages),
        cmocka_unit_test(a_group_ends_once_for_all_that_was_ready),
        cmocka_unit_test(what_messages_stand_for_counts_towards_their_group),
        cmocka_unit_test(a_group_end_has_its_turn_beside_local_callers),
        cmocka_unit_test(a_peer_that_never_comes_up_is_unavailable),
        cmocka_unit_test(a_waiting_receive_gives_its_turn_away),
        cmocka_unit_test(an_answer_over_the_limit_ends_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
