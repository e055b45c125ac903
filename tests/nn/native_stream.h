/* A stream of a device of tests (late_device.h), for libraries of tests that put work on it. */
#ifndef TRP_TESTS_NATIVE_STREAM_H
#define TRP_TESTS_NATIVE_STREAM_H

#include <stdbool.h>
#include <stddef.h>

struct native_stream {
    /* `step(argument)` is called until it says true, `end(argument)` then; never after the device
     * went. It touches [at, at + bytes). While the stream is captured it is so each time that the
     * graph is launched, and the end is that of the graph. */
    bool captured;
    void (*put)(struct native_stream *stream, void *at, size_t bytes, bool (*step)(void *argument),
                void (*end)(void *argument), void *argument);
};

#endif
