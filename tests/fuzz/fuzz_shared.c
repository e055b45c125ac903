/* Any bytes as the messages of SampleShared: nothing is read outside of the message and of the
 * pages of the file, and a batch is filled only with what fits its columns. The first byte says
 * which message it is. libFuzzer's entry point. */
#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replay/wire/limits.h"
#include "replay/client/shared_view.h"
#include "replay/sampler/unpack.h"

#include "tests/replay/sample_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGE = 64, PIECE = 48, PAGES = 4, COLUMNS = 2, FRAME = 96 };

static const trp_tensor_spec columns[COLUMNS] = {
    {.name = "x", .dtype = TRP_INT64},
    {.name = "frame", .dtype = TRP_UINT8, .rank = 1, .shape = {FRAME}},
};

/* A chunk of one step, whose first pieces are in the file's pages. */
static void chunk_make(struct buffer *chunk, int64_t x)
{
    struct buffer range = {0}, data = {0};
    uint8_t frame[FRAME];
    memset(frame, (int)x, sizeof frame);
    pb_number(&range, 1, (uint64_t)x);
    add_plain_tensor(&data, TRP_INT64, 1, (int64_t[]){1}, &x, sizeof x);
    add_plain_tensor(&data, TRP_UINT8, 2, (int64_t[]){1, FRAME}, frame, sizeof frame);
    pb_part(chunk, 2, &range);
    pb_part(chunk, 5, &data);
}

static void file_write(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert(file);
    size_t written = fwrite(data, 1, size, file);
    assert(written == size);
    fclose(file);
}

/* Of a file whose pages have the pieces of chunk 7; the nonce is in the last page's head. */
static struct shared_view *view_make(void)
{
    static uint64_t leases[SHARED_LEASES_MAX] = {[3] = 9};
    uint8_t pages[PAGES * PAGE] = {0};
    struct buffer chunk = {0};
    struct stat info;
    struct shared_view *view;
    char data_path[] = "/tmp/troupe-fuzz-data-XXXXXX", lease_path[] = "/tmp/troupe-fuzz-XXXXXX";
    close(mkstemp(data_path));
    close(mkstemp(lease_path));
    chunk_make(&chunk, 7);
    for (size_t at = 0; at < chunk.size; at += PIECE)
        memcpy(pages + at / PIECE * PAGE + PAGE - PIECE, chunk.data + at,
               chunk.size - at < PIECE ? chunk.size - at : PIECE);
    buffer_cleanup(&chunk);
    file_write(data_path, pages, sizeof pages);
    file_write(lease_path, leases, sizeof leases);
    int rc = stat(data_path, &info);
    assert(rc == 0);
    struct shared_welcome welcome = {
        .layout = {.page_bytes = PAGE,
                   .map_bytes = 2 * PAGES * PAGE,
                   .piece_offset = PAGE - PIECE,
                   .piece_bytes = PIECE,
                   .device = info.st_dev,
                   .inode = info.st_ino,
                   .nonce_at = (PAGES - 1) * PAGE,
                   .lease_index = 3,
                   .lease = 9},
        .data_path = {(const uint8_t *)data_path, strlen(data_path)},
        .lease_path = {(const uint8_t *)lease_path, strlen(lease_path)}};
    trp_status status = shared_view_open(&view, &welcome);
    assert(status == TRP_OK);
    unlink(data_path);
    unlink(lease_path);
    return view;
}

static trp_status samples_take(trp_bytes bytes)
{
    static struct shared_view *view;
    struct unpacker *unpacker = unpacker_create(columns, COLUMNS);
    struct shared_header header;
    struct batch batch;
    trp_message *message = trp_message_create(bytes.size);
    if (!view)
        view = view_make();
    if (bytes.size)
        memcpy(trp_message_data(message), bytes.data, bytes.size);
    trp_status status = batch_init(&batch, columns, COLUMNS, 2, NULL, "test");
    assert(status == TRP_OK);
    status = unpacker_feed_shared(unpacker, message, view, &header);
    while (status == TRP_OK && !unpacker_used_up(unpacker)) {
        batch.rows = 0;
        status = unpacker_fill(unpacker, &batch);
        assert(status != TRP_OK || batch.rows > 0);
    }
    unpacker_destroy(unpacker);
    batch_cleanup(&batch, COLUMNS);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shared_hello hello;
    struct shared_welcome welcome;
    struct shared_ask ask;
    if (size == 0)
        return 0;
    trp_bytes bytes = {data + 1, size - 1};
    trp_status status = TRP_OK;
    if (data[0] == 0)
        status = samples_take(bytes);
    else if (data[0] == 1)
        status = shared_hello_decode(bytes, &hello);
    else if (data[0] == 2)
        status = shared_welcome_decode(bytes, &welcome);
    else if (data[0] == 3)
        status = shared_ask_decode(bytes, &ask);
    assert(status == TRP_OK || *trp_last_error());
    return 0;
}
