/* A generation's beginning between processes: all connect to all, rank 0 hears what has to be the
 * same on all ranks, and says to all whether it is, in one choice of words. */
#include "collective.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/stop.h"
#include "event.h"
#include "hello.h"
#include "lanes.h"
#include "mesh.h"
#include "native.h"
#include "table.h"
#include "virtual_ranks.h"

/* ---- rank 0 and the others ----------------------------------------------------------------- */

/* Whether all ranks have the same of those in which they may differ. */
struct shared_ways {
    bool nccl, home;
};

/* Of ranks that speak another wire, which have heard so from rank 0. */
static trp_status check_wires(const struct mesh *mesh)
{
    for (uint32_t rank = 1; rank < mesh->options->size; rank++)
        if (mesh->other_wires[rank] != 0)
            return hello_other_wire(&(struct hello_wires){
                .of_first = COLLECTIVE_WIRE, .rank = rank, .of_rank = mesh->other_wires[rank]});
    return TRP_OK;
}

/* Nobody hears anything before all have come: who hears of a difference goes at once. */
static trp_status compare_all(struct mesh *mesh, const struct hello_profile *mine,
                              struct shared_ways *all)
{
    uint32_t size = mesh->options->size;
    TRP_TRY(check_wires(mesh));
    struct hello_profile *profiles = xcalloc(size, sizeof *profiles);
    trp_status status = TRP_OK;
    for (uint32_t rank = 1; rank < size && status == TRP_OK; rank++)
        status = mesh_read(mesh, rank, &profiles[rank], sizeof *profiles);
    *all = (struct shared_ways){mine->nccl != 0, mine->home != 0};
    for (uint32_t rank = 1; rank < size && status == TRP_OK; rank++) {
        status = hello_compare(0, mine, rank, &profiles[rank]);
        all->nccl = all->nccl && profiles[rank].nccl == mine->nccl;
        all->home = all->home && profiles[rank].home == mine->home;
    }
    free(profiles);
    return status;
}

static trp_status preside(struct mesh *mesh, const struct hello_profile *mine,
                          const struct nccl_api *api, struct hello_agreement *agreement)
{
    struct shared_ways all;
    trp_status status = compare_all(mesh, mine, &all);
    *agreement = (struct hello_agreement){.status = status};
    table_choose(&agreement->table);
    if (status != TRP_OK)
        strncpy(agreement->words, trp_last_error(), sizeof agreement->words - 1);
    else if (all.home)
        agreement->meeting = virtual_meeting();
    else
        native_agree(agreement, api, all.nccl);
    for (uint32_t rank = 1; rank < mesh->options->size; rank++) {
        if (mesh->other_wires[rank] != 0)
            continue;
        trp_status said = mesh_write(mesh, rank, agreement, sizeof *agreement);
        status = status == TRP_OK ? said : status;
    }
    return status == TRP_OK || agreement->status == TRP_OK
               ? status
               : trp_fail(status, "%s", agreement->words);
}

static trp_status attend(struct mesh *mesh, const struct hello_profile *mine,
                         struct hello_agreement *agreement)
{
    if (!mesh->told)
        TRP_TRY(mesh_write(mesh, 0, mine, sizeof *mine));
    mesh->deadline.at_ns += COLLECTIVE_AGREEMENT_MS * INT64_C(1000000);
    TRP_TRY(mesh_read(mesh, 0, agreement, sizeof *agreement));
    agreement->words[sizeof agreement->words - 1] = '\0';
    if (agreement->status != TRP_OK)
        return trp_fail((trp_status)agreement->status, "%s", agreement->words);
    bool bounded = agreement->table.doubling_bytes <= SCHEDULE_DOUBLING_BYTES_MAX;
    return bounded ? TRP_OK : trp_fail(TRP_INTERNAL, "rank 0 sent a table that is none");
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* Takes carrier, which may be NULL, and lanes. */
static trp_status create_end(trp_collective **out, struct mesh *mesh, struct carrier *carrier,
                             struct peer_lane **lanes, const struct schedule_table *table)
{
    uint32_t size = mesh->options->size;
    trp_status status = collective_init(out, mesh->options, mesh->fds[HELLO_LINE]);
    memset(mesh->fds[HELLO_LINE], 0xff, size * sizeof(int)); /* -1 */
    if (status != TRP_OK) {
        if (carrier)
            carrier->impl->destroy(carrier);
        lanes_destroy(lanes, size);
        return status;
    }
    (*out)->carrier = carrier;
    status = collective_start(*out, lanes, table);
    if (status != TRP_OK) {
        trp_collective_destroy(*out);
        *out = NULL;
    }
    return status;
}

static trp_status connect_end(trp_collective **out, struct mesh *mesh, struct carrier *carrier,
                              const struct schedule_table *table)
{
    uint32_t shared;
    struct peer_lane **lanes = xcalloc(mesh->options->size, sizeof *lanes);
    trp_status status = lanes_connect(mesh, lanes, &shared);
    if (status == TRP_OK)
        status = create_end(out, mesh, carrier, lanes, table);
    else if (carrier)
        carrier->impl->destroy(carrier);
    if (status == TRP_OK)
        (*out)->counters.shared_ranks = shared;
    free(lanes);
    return status;
}

static trp_status connect_all(trp_collective **out, struct mesh *mesh)
{
    struct nccl_api api = {.version = 0};
    struct carrier *carrier;
    struct hello_profile mine;
    struct hello_agreement agreement;
    hello_profile_init(&mine, mesh->options);
    mine.nccl = native_version(&api, mesh->options);
    TRP_TRY(mesh_connect(mesh));
    TRP_TRY(mesh->options->rank == 0 ? preside(mesh, &mine, &api, &agreement)
                                     : attend(mesh, &mine, &agreement));
    TRP_TRY(native_connect(&carrier, mesh, &api, &agreement));
    return connect_end(out, mesh, carrier, &agreement.table);
}

struct connect_watch {
    struct stop_watch watch;
    int event;
};

static void stop_connecting(struct stop_watch *watch)
{
    event_set(((struct connect_watch *)watch)->event);
}

trp_status trp_collective_connect(trp_collective **out, trp_collective_listener *listener,
                                  const trp_collective_options *options)
{
    assert(options->size > 0);
    assert(options->rank < options->size);
    assert(options->size <= COLLECTIVE_RANKS_MAX);
    *out = NULL;
    struct connect_watch watch = {.event = -1};
    TRP_TRY(event_create(&watch.event));
    stop_watch_add(options->stop, &watch.watch, stop_connecting);
    uint32_t ms = options->connect_timeout_ms > 0 ? options->connect_timeout_ms
                                                  : collective_timeout_ms(options);
    struct mesh mesh;
    mesh_init(&mesh, options, listener, deadline_in_ms(&clock_monotonic, ms), watch.event);
    trp_status status = connect_all(out, &mesh);
    mesh_cleanup(&mesh);
    stop_watch_remove(&watch.watch);
    fd_close(watch.event);
    return status;
}
