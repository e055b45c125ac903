/* A lane over a socket: what it sends at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <linux/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/alloc.h"
#include "learner/collective/limits.h"
#include "learner/collective/socket_lane.h"

enum { BYTES = 4 << 20 };

/* Both ends of a connection over loopback. */
static void connect_pair(int fds[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&address, size), 0);
    fds[1] = accept(listener, NULL, NULL);
    assert_true(fds[1] >= 0);
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

static uint32_t data_segments(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_data_segs_out;
}

/* Sends and takes in turns, so the connection is never full. */
static void no_send_ends_with_a_small_segment(void **state)
{
    (void)state;
    int fds[2];
    uint8_t *bytes = xcalloc(1, BYTES), *came = xmalloc(BYTES);
    connect_pair(fds);
    struct peer_lane *lane = socket_lane_create(fds[0]);
    unsigned sends = 0;
    for (size_t at = 0, taken; at < BYTES; at += taken, sends++) {
        struct iovec part = {bytes + at, BYTES - at};
        assert_int_equal(lane->impl->send(lane, &part, 1, &taken), TRP_OK);
        assert_int_equal(recv(fds[1], came, taken, MSG_WAITALL), taken);
    }
    /* Segments of loopback hold nearly 64 KiB; only while the connection is young do less. */
    assert_in_range(data_segments(fds[0]), 1, 2 * sends + 4);
    assert_in_range(sends, 1, BYTES / COLLECTIVE_SEND_BYTES + 4);
    lane->impl->destroy(lane);
    close(fds[1]);
    free(bytes);
    free(came);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_send_ends_with_a_small_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
