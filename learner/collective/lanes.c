/* Every rank tells each other one where its memory is, maps what it was told, and tells whether it
 * could: two that both could use it, so one that could not means sockets for both. Nobody waits
 * before it has said its own. */
#include "lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <troupe/log.h>

#include "core/alloc.h"
#include "shared_lane.h"
#include "socket_lane.h"

struct lanes_work {
    struct mesh *mesh;
    struct lane_memory *memory; /* NULL: none is offered */
    struct hello_place place;
    const uint8_t **maps; /* by rank; NULL: none */
    pid_t *pids;          /* that can be copied from; 0: it cannot */
    bool *is_read;        /* the other way round */
    char reason[256];     /* why one of this host has none, the first */
};

static void keep_reason(struct lanes_work *work)
{
    if (!work->reason[0])
        snprintf(work->reason, sizeof work->reason, "%s", trp_last_error());
}

static void lanes_offer(struct lanes_work *work)
{
    const trp_collective_options *options = work->mesh->options;
    if (options->no_share || options->size == 1)
        return;
    if (lane_memory_create(&work->memory, options->size) != TRP_OK)
        keep_reason(work);
    else
        work->place.memory = work->memory->sealed.place;
    work->place.address = work->memory ? (uintptr_t)work->memory->sealed.memory : 0;
    boot_id_read(work->place.boot);
}

static bool is_of_this_host(const struct lanes_work *work, const struct hello_place *place)
{
    static const char nowhere[BOOT_ID_BYTES];
    return memcmp(place->boot, nowhere, sizeof nowhere) != 0 &&
           memcmp(place->boot, work->place.boot, sizeof nowhere) == 0;
}

static void lanes_map(struct lanes_work *work, uint32_t rank, const struct hello_place *place)
{
    if (!work->memory || place->memory.bytes == 0 || !is_of_this_host(work, place))
        return;
    if (place->memory.bytes != lane_memory_bytes(work->mesh->options->size)) {
        snprintf(work->reason, sizeof work->reason,
                 "rank %" PRIu32 " says that it has %" PRIu64 " bytes", rank, place->memory.bytes);
        return;
    }
    if (sealed_map(&work->maps[rank], &place->memory) != TRP_OK) {
        work->maps[rank] = NULL;
        keep_reason(work);
    } else if (lane_memory_can_copy(&place->memory, place->address)) {
        work->pids[rank] = (pid_t)place->memory.pid;
    }
}

static void lanes_unmap(struct lanes_work *work, uint32_t rank)
{
    if (work->maps[rank])
        munmap((void *)(uintptr_t)work->maps[rank], lane_memory_bytes(work->mesh->options->size));
    work->maps[rank] = NULL;
}

/* All say and hear the same number of things, whatever they have. */
static trp_status exchange_places(struct lanes_work *work)
{
    struct mesh *mesh = work->mesh;
    uint32_t rank = mesh->options->rank, size = mesh->options->size;
    for (uint32_t peer = 0; peer < size; peer++)
        if (peer != rank)
            TRP_TRY(mesh_write(mesh, peer, &work->place, sizeof work->place));
    for (uint32_t peer = 0; peer < size; peer++) {
        struct hello_place place;
        if (peer == rank)
            continue;
        TRP_TRY(mesh_read(mesh, peer, &place, sizeof place));
        lanes_map(work, peer, &place);
        uint32_t found = work->pids[peer]   ? HELLO_FOUND_PROCESS
                         : work->maps[peer] ? HELLO_FOUND_MEMORY
                                            : HELLO_FOUND_NOTHING;
        TRP_TRY(mesh_write(mesh, peer, &found, sizeof found));
    }
    for (uint32_t peer = 0; peer < size; peer++) {
        uint32_t found;
        if (peer == rank)
            continue;
        TRP_TRY(mesh_read(mesh, peer, &found, sizeof found));
        work->is_read[peer] = found == HELLO_FOUND_PROCESS;
        if (found == HELLO_FOUND_NOTHING)
            lanes_unmap(work, peer);
    }
    return TRP_OK;
}

static void lanes_create_one(struct lanes_work *work, uint32_t peer, struct peer_lane **lane)
{
    const trp_collective_options *options = work->mesh->options;
    int fd = work->mesh->fds[HELLO_LANE][peer];
    work->mesh->fds[HELLO_LANE][peer] = -1;
    struct lane_ends ends = {.mine = options->rank,
                             .theirs = peer,
                             .size = options->size,
                             .pid = work->pids[peer],
                             .is_read = work->is_read[peer]};
    *lane = work->maps[peer] ? shared_lane_create(fd, work->memory, work->maps[peer], &ends)
                             : socket_lane_create(fd);
}

static void log_lanes(const struct lanes_work *work, uint32_t shared)
{
    const trp_collective_options *options = work->mesh->options;
    if (work->reason[0])
        trp_log(TRP_WARN, "no memory is shared with a rank of this host group=%s rank=%u reason=%s",
                options->group ? options->group : "", options->rank, work->reason);
    uint32_t in_place = 0;
    for (uint32_t peer = 0; peer < options->size; peer++)
        in_place += work->maps[peer] && work->is_read[peer];
    trp_log(TRP_INFO,
            "lanes group=%s generation=%" PRIu64 " rank=%u shared_memory=%u in_place=%u sockets=%u",
            options->group ? options->group : "", options->generation, options->rank, shared,
            in_place, options->size - 1 - shared);
}

trp_status lanes_connect(struct mesh *mesh, struct peer_lane **lanes, uint32_t *shared)
{
    uint32_t size = mesh->options->size;
    struct lanes_work work = {.mesh = mesh,
                              .maps = xcalloc(size, sizeof *work.maps),
                              .pids = xcalloc(size, sizeof *work.pids),
                              .is_read = xcalloc(size, sizeof *work.is_read)};
    *shared = 0;
    lanes_offer(&work);
    mesh->deadline.at_ns += COLLECTIVE_AGREEMENT_MS * INT64_C(1000000);
    trp_status status = exchange_places(&work);
    for (uint32_t peer = 0; peer < size; peer++) {
        if (status != TRP_OK)
            lanes_unmap(&work, peer);
        else if (peer != mesh->options->rank)
            lanes_create_one(&work, peer, &lanes[peer]);
        *shared += work.maps[peer] != NULL;
    }
    if (status == TRP_OK && size > 1)
        log_lanes(&work, *shared);
    lane_memory_leave(work.memory);
    free(work.maps);
    free(work.pids);
    free(work.is_read);
    return status;
}

void lanes_destroy(struct peer_lane **lanes, uint32_t size)
{
    for (uint32_t peer = 0; peer < size; peer++)
        if (lanes[peer])
            lanes[peer]->impl->destroy(lanes[peer]);
}
