/* A peer that speaks HTTP/2 by hand, because gRPC would not do what it does. */
#ifndef TEST_HTTP2_PEER_H
#define TEST_HTTP2_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <troupe/bytes.h>
#include "core/alloc.h"

enum { PEER_STREAMS = 96, PEER_WAIT_MS = 20000 };

enum frame_type {
    DATA = 0,
    HEADERS = 1,
    RST_STREAM = 3,
    SETTINGS = 4,
    PING = 6,
    GOAWAY = 7,
    WINDOW_UPDATE = 8
};
enum {
    ACK = 1,
    END_STREAM = 1,
    END_HEADERS = 4,
    INITIAL_WINDOW_SIZE = 4,
    FRAME_BYTES_MAX = 16384,
    ENHANCE_YOUR_CALM = 11
};

struct peer {
    int fd;
    int64_t window, initial_window,
        windows[PEER_STREAMS]; /* of the connection; of new streams; of each
                                */
    size_t sent[PEER_STREAMS];
    bool reset[PEER_STREAMS];
    uint32_t reset_code;
    uint32_t reset_count;
    uint32_t answers; /* DATA frames */
    bool called;      /* a call began, or its answer */
    int status;       /* that a call ended with; -1: none yet */
    uint32_t ended;   /* calls with a status */
    bool gone;
    uint8_t in[FRAME_BYTES_MAX + 9];
    size_t in_size;
};

static inline uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void write_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static inline void peer_write(struct peer *peer, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0 && !peer->gone) {
        ssize_t written = send(peer->fd, at, size, MSG_NOSIGNAL);
        if (written <= 0) {
            peer->gone = true;
            return;
        }
        at += written;
        size -= (size_t)written;
    }
}

static inline void peer_frame(struct peer *peer, enum frame_type type, uint8_t flags,
                              uint32_t stream, const void *payload, size_t size)
{
    uint8_t head[9] = {(uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size, (uint8_t)type,
                       flags};
    write_u32(head + 5, stream);
    peer_write(peer, head, sizeof head);
    peer_write(peer, payload, size);
}

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static inline struct peer *peer_create(int fd)
{
    struct peer *peer = xcalloc(1, sizeof *peer);
    peer->fd = fd;
    peer->status = -1;
    peer->window = peer->initial_window = 65535;
    for (uint32_t i = 0; i < PEER_STREAMS; i++)
        peer->windows[i] = 65535;
    return peer;
}

static inline struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}

static inline struct peer *peer_connect(const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    struct peer *peer = peer_create(fd);
    peer_write(peer, preface, sizeof preface - 1);
    peer_frame(peer, SETTINGS, 0, 0, NULL, 0);
    return peer;
}

static inline void peer_close(struct peer *peer)
{
    close(peer->fd);
    free(peer);
}

static inline void take_settings(struct peer *peer, const uint8_t *payload, size_t size)
{
    for (size_t at = 0; at + 6 <= size; at += 6) {
        if ((payload[at] << 8 | payload[at + 1]) != INITIAL_WINDOW_SIZE)
            continue;
        int64_t value = read_u32(payload + at + 2);
        for (uint32_t i = 0; i < PEER_STREAMS; i++)
            peer->windows[i] += value - peer->initial_window;
        peer->initial_window = value;
    }
    peer_frame(peer, SETTINGS, ACK, 0, NULL, 0);
}

/* gRPC writes names and values in plain, the status as one of the last. */
static inline void take_headers(struct peer *peer, const uint8_t *block, size_t size)
{
    static const char name[] = "grpc-status";
    const uint8_t *found = memmem(block, size, name, strlen(name));
    peer->called = true;
    if (found)
        peer->status = atoi((const char *)found + strlen(name) + 1);
}

static inline void take_frame(struct peer *peer, const uint8_t *frame, size_t size)
{
    uint32_t stream = read_u32(frame + 5) & INT32_MAX, index = stream / 2;
    const uint8_t *payload = frame + 9;
    if (frame[3] == SETTINGS && !(frame[4] & ACK)) {
        take_settings(peer, payload, size);
    } else if (frame[3] == PING && !(frame[4] & ACK)) {
        peer_frame(peer, PING, ACK, 0, payload, 8);
    } else if (frame[3] == WINDOW_UPDATE && stream == 0) {
        peer->window += read_u32(payload);
    } else if (frame[3] == WINDOW_UPDATE && index < PEER_STREAMS) {
        peer->windows[index] += read_u32(payload);
    } else if (frame[3] == RST_STREAM && index < PEER_STREAMS) {
        peer->reset_count += !peer->reset[index];
        peer->reset[index] = true;
        peer->reset_code = read_u32(payload);
    } else if (frame[3] == DATA) {
        peer->answers++;
    } else if (frame[3] == HEADERS) {
        take_headers(peer, payload, size);
        peer->ended += (frame[4] & END_STREAM) != 0;
    } else if (frame[3] == GOAWAY) {
        peer->gone = true;
    }
}

/* Takes what has come; waits up to `timeout_ms` for something. False: nothing came. */
static inline bool peer_listen(struct peer *peer, int timeout_ms)
{
    struct pollfd wait = {.fd = peer->fd, .events = POLLIN};
    if (poll(&wait, 1, timeout_ms) <= 0)
        return false;
    ssize_t size = recv(peer->fd, peer->in + peer->in_size, sizeof peer->in - peer->in_size, 0);
    if (size <= 0) {
        peer->gone = true;
        return false;
    }
    peer->in_size += (size_t)size;
    size_t at = 0;
    while (peer->in_size - at >= 9) {
        size_t length =
            (size_t)peer->in[at] << 16 | (size_t)peer->in[at + 1] << 8 | (size_t)peer->in[at + 2];
        if (peer->in_size - at - 9 < length)
            break;
        take_frame(peer, peer->in + at, length);
        at += 9 + length;
    }
    memmove(peer->in, peer->in + at, peer->in_size - at);
    peer->in_size -= at;
    return true;
}

static inline uint8_t *put_header(uint8_t *at, const char *name, const char *value)
{
    *at++ = 0; /* a literal that is not indexed */
    *at++ = (uint8_t)strlen(name);
    memcpy(at, name, strlen(name));
    at += strlen(name);
    *at++ = (uint8_t)strlen(value);
    memcpy(at, value, strlen(value));
    return at + strlen(value);
}

static inline void peer_call(struct peer *peer, uint32_t index, const char *path,
                             const char *encoding)
{
    uint8_t block[256], *at = block;
    at = put_header(at, ":method", "POST");
    at = put_header(at, ":scheme", "http");
    at = put_header(at, ":path", path);
    at = put_header(at, ":authority", "peer");
    at = put_header(at, "te", "trailers");
    at = put_header(at, "content-type", "application/grpc");
    at = put_header(at, "grpc-encoding", encoding);
    peer_frame(peer, HEADERS, END_HEADERS, 2 * index + 1, block, (size_t)(at - block));
}

/* As much of `data` as flow control lets go; false: it lets nothing go. */
static inline bool peer_send_some(struct peer *peer, uint32_t index, trp_bytes data)
{
    int64_t size = (int64_t)(data.size - peer->sent[index]);
    size = size < FRAME_BYTES_MAX ? size : FRAME_BYTES_MAX;
    size = size < peer->window ? size : peer->window;
    size = size < peer->windows[index] ? size : peer->windows[index];
    if (size <= 0 || peer->reset[index])
        return false;
    peer_frame(peer, DATA, 0, 2 * index + 1, data.data + peer->sent[index], (size_t)size);
    peer->sent[index] += (size_t)size;
    peer->window -= size;
    peer->windows[index] -= size;
    return true;
}

/* Until all is sent, or the call is over. */
static inline void peer_send(struct peer *peer, uint32_t index, trp_bytes data)
{
    while (!peer->gone && !peer->reset[index] && peer->status < 0 &&
           peer->sent[index] < data.size) {
        bool sent = peer_send_some(peer, index, data);
        if (!peer_listen(peer, sent ? 0 : PEER_WAIT_MS) && !sent)
            return;
    }
}

#endif
