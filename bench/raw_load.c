/* See raw_load.h. The server is this program again. */
#include "raw_load.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raw_grpc.h"

/* Of a segment: about half a second. */
static const uint64_t SEGMENT_BYTES = UINT64_C(1) << 30;
static const uint64_t SEGMENT_MESSAGES = 100000;

void raw_main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--raw") == 0)
        exit(raw_serve(argv[2]));
}

struct raw_server serve_raw(void)
{
    struct raw_server raw;
    snprintf(raw.address, sizeof raw.address, "127.0.0.1:%d", 20000 + (int)(getpid() % 20000));
    raw.process = start((char *[]){"/proc/self/exe", "--raw", raw.address, NULL});
    return raw;
}

struct measured raw_stream(const struct raw_server *server, size_t bytes, size_t items)
{
    uint64_t messages = SEGMENT_BYTES / bytes;
    struct raw_client *client = raw_client_create(server->address);
    struct segments segments = {.count = 0};
    messages = messages < SEGMENT_MESSAGES ? messages : SEGMENT_MESSAGES;
    while (segments.count < SEGMENTS) {
        segment_begin(&segments, server->process.pid);
        raw_sink_rate(client, bytes, (uint32_t)messages);
        segment_end(&segments, (double)messages * (double)items);
    }
    raw_client_destroy(client);
    return segments_median(&segments);
}

struct measured raw_samples(const struct raw_server *server, const struct load *load)
{
    size_t items = (2 << 20) / load->wire_bytes;
    items = items < BATCH ? items : BATCH;
    return raw_stream(server, items * load->wire_bytes, items);
}
