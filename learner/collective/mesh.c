/* All connections are made at once, by one thread that polls: who is late, silent or a stranger
 * holds up nobody. A connection that comes has said nothing yet: it has a place, a moment to say
 * one hello of fixed size, and is closed when that is not a rank's of this generation. */
#include "mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/thread.h"

/* A connection to a lower rank that is being made. */
struct mesh_dial {
    int fd; /* -1: to be tried at `at_ns` */
    int64_t at_ns;
    size_t said, heard; /* bytes of hello and answer */
    struct hello_answer answer;
    bool done;
};

/* One that came, and whose hello is not whole yet. */
struct mesh_arrival {
    int fd;
    int64_t until_ns;
    size_t heard;
    struct hello hello;
};

struct mesh_work {
    struct mesh *mesh;
    struct mesh_dial *dials; /* two for each lower rank */
    uint32_t dial_count;
    struct mesh_arrival *arrivals;
    uint32_t arrival_count, arrival_max;
    struct pollfd *fds;
};

void mesh_init(struct mesh *mesh, const trp_collective_options *options,
               struct trp_collective_listener *listener, struct deadline deadline, int stop_event)
{
    *mesh = (struct mesh){
        .options = options, .listener = listener, .deadline = deadline, .stop_event = stop_event};
    mesh->other_wires = xcalloc(options->size, sizeof *mesh->other_wires);
    for (int purpose = 0; purpose < HELLO_PURPOSES; purpose++) {
        mesh->fds[purpose] = xmalloc(options->size * sizeof(int));
        for (uint32_t rank = 0; rank < options->size; rank++)
            mesh->fds[purpose][rank] = -1;
    }
}

void mesh_cleanup(struct mesh *mesh)
{
    for (int purpose = 0; purpose < HELLO_PURPOSES; purpose++) {
        for (uint32_t rank = 0; rank < mesh->options->size; rank++)
            fd_close(mesh->fds[purpose][rank]);
        free(mesh->fds[purpose]);
    }
    free(mesh->other_wires);
}

/* Sleeps for at most `ms`, negative: for ever; also until the stop. */
static trp_status mesh_sleep(const struct mesh *mesh, struct pollfd *fds, unsigned count,
                             int64_t ms)
{
    if (mesh->options->is_over && (ms < 0 || ms > COLLECTIVE_LOOK_MS))
        ms = COLLECTIVE_LOOK_MS;
    fds[count] = (struct pollfd){.fd = mesh->stop_event, .events = POLLIN};
    poll(fds, count + 1, turns_active() ? 0 : (int)ms);
    turns_pass();
    if (mesh->options->stop && trp_stop_requested(mesh->options->stop))
        return trp_fail(TRP_CANCELLED, "stopped while ranks connected");
    if (mesh->options->is_over && mesh->options->is_over(mesh->options->context))
        return trp_fail(TRP_UNAVAILABLE, "generation %" PRIu64 " is over, a later one is there",
                        mesh->options->generation);
    return TRP_OK;
}

static trp_status rank_is_gone(const struct mesh *mesh, uint32_t rank)
{
    return trp_fail(TRP_UNAVAILABLE, "rank %" PRIu32 " of %" PRIu32 " is gone", rank,
                    mesh->options->size);
}

static trp_status not_in_time(const struct mesh *mesh, uint32_t rank)
{
    return trp_fail(TRP_DEADLINE_EXCEEDED, "rank %" PRIu32 " of %" PRIu32 " did not come in time",
                    rank, mesh->options->size);
}

static bool is_later(ssize_t result)
{
    return result < 0 && errno_is_again(errno);
}

/* ---- to lower ranks ------------------------------------------------------------------------ */

static uint32_t dial_rank(uint32_t index)
{
    return index / HELLO_PURPOSES;
}

static void dial_again(struct mesh_dial *dial, int64_t now)
{
    fd_close(dial->fd);
    *dial = (struct mesh_dial){.fd = -1, .at_ns = now + COLLECTIVE_REDIAL_MS * INT64_C(1000000)};
}

static trp_status heed_answer(struct mesh_work *work, uint32_t index, int64_t now)
{
    struct mesh_dial *dial = &work->dials[index];
    const struct hello_answer *answer = &dial->answer;
    struct mesh *mesh = work->mesh;
    uint32_t rank = dial_rank(index);
    if (!hello_is_answer(answer)) {
        dial_again(dial, now);
        return TRP_OK;
    }
    if (answer->verdict == HELLO_OTHER_WIRE && rank == 0) /* else it is what rank 0 says to both */
        return hello_other_wire(&(struct hello_wires){
            .of_first = answer->wire, .rank = mesh->options->rank, .of_rank = COLLECTIVE_WIRE});
    if (answer->verdict == HELLO_OTHER_GENERATION && answer->generation > mesh->options->generation)
        return trp_fail(TRP_UNAVAILABLE,
                        "generation %" PRIu64 " is over: rank %" PRIu32
                        " connects for generation %" PRIu64,
                        mesh->options->generation, rank, answer->generation);
    if (answer->verdict != HELLO_WELCOME) {
        dial_again(dial, now);
        return TRP_OK;
    }
    dial->done = true;
    mesh->fds[index % HELLO_PURPOSES][rank] = dial->fd;
    dial->fd = -1;
    return TRP_OK;
}

/* Says hello, then hears the answer. */
static trp_status go_on(struct mesh_work *work, uint32_t index, int64_t now)
{
    struct mesh_dial *dial = &work->dials[index];
    struct hello hello;
    hello_init(&hello, work->mesh->options, (enum hello_purpose)(index % HELLO_PURPOSES));
    ssize_t moved;
    if (dial->said < sizeof hello) {
        moved =
            send(dial->fd, (uint8_t *)&hello + dial->said, sizeof hello - dial->said, MSG_NOSIGNAL);
        dial->said += moved > 0 ? (size_t)moved : 0;
    } else {
        moved = recv(dial->fd, (uint8_t *)&dial->answer + dial->heard,
                     sizeof dial->answer - dial->heard, 0);
        dial->heard += moved > 0 ? (size_t)moved : 0;
    }
    if (moved <= 0 && !is_later(moved))
        dial_again(dial, now);
    else if (dial->heard == sizeof dial->answer)
        return heed_answer(work, index, now);
    return TRP_OK;
}

static trp_status begin_dials(struct mesh_work *work, int64_t now)
{
    for (uint32_t i = 0; i < work->dial_count; i++) {
        struct mesh_dial *dial = &work->dials[i];
        if (dial->done || dial->fd >= 0 || now < dial->at_ns)
            continue;
        trp_status status = listener_dial(work->mesh->options->addresses[dial_rank(i)], &dial->fd);
        if (status == TRP_INVALID_ARGUMENT)
            return status;
        if (status != TRP_OK)
            dial_again(dial, now);
    }
    return TRP_OK;
}

/* ---- from higher ranks --------------------------------------------------------------------- */

static void drop_arrival(struct mesh_work *work, uint32_t index)
{
    fd_close(work->arrivals[index].fd);
    work->arrival_count--;
    memmove(&work->arrivals[index], &work->arrivals[index + 1],
            (work->arrival_count - index) * sizeof *work->arrivals);
}

static void accept_arrivals(struct mesh_work *work, int64_t now)
{
    for (int fd; (fd = listener_accept(work->mesh->listener)) >= 0;) {
        if (work->arrival_count == work->arrival_max)
            drop_arrival(work, 0);
        work->arrivals[work->arrival_count++] = (struct mesh_arrival){
            .fd = fd, .until_ns = now + COLLECTIVE_HELLO_MS * INT64_C(1000000)};
    }
}

/* A rank that comes again lost its first connection before it was answered. */
static void welcome(struct mesh_work *work, struct mesh_arrival *arrival)
{
    int *fd = &work->mesh->fds[arrival->hello.purpose][arrival->hello.rank];
    fd_close(*fd);
    *fd = arrival->fd;
    arrival->fd = -1;
}

static bool is_due(const struct mesh_arrival *arrival, int64_t now)
{
    return arrival->heard == sizeof arrival->hello || now >= arrival->until_ns;
}

/* True: it has no place here any more. */
static bool hear_arrival(struct mesh_work *work, struct mesh_arrival *arrival, int64_t now)
{
    ssize_t came = recv(arrival->fd, (uint8_t *)&arrival->hello + arrival->heard,
                        sizeof arrival->hello - arrival->heard, 0);
    if (came > 0)
        arrival->heard += (size_t)came;
    else if (!is_later(came))
        return true;
    if (arrival->heard < sizeof arrival->hello)
        return is_due(arrival, now);
    struct hello_answer answer;
    if (!hello_judge(&arrival->hello, work->mesh->options, &answer))
        return true;
    bool said = send(arrival->fd, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer;
    bool is_ours = hello_is_ours(&arrival->hello, work->mesh->options);
    if (answer.verdict == HELLO_OTHER_WIRE && is_ours && work->mesh->options->rank == 0)
        work->mesh->other_wires[arrival->hello.rank] = arrival->hello.wire;
    if (said && answer.verdict == HELLO_WELCOME)
        welcome(work, arrival);
    return true;
}

static void hear_arrivals(struct mesh_work *work, int64_t now)
{
    for (uint32_t i = work->arrival_count; i-- > 0;)
        if (hear_arrival(work, &work->arrivals[i], now))
            drop_arrival(work, i);
}

/* ---- all ----------------------------------------------------------------------------------- */

static bool is_missing(const struct mesh *mesh, uint32_t rank)
{
    return rank != mesh->options->rank && mesh->other_wires[rank] == 0 &&
           (mesh->fds[HELLO_LINE][rank] < 0 || mesh->fds[HELLO_LANE][rank] < 0);
}

static uint32_t first_missing(const struct mesh *mesh)
{
    uint32_t rank = 0;
    while (rank < mesh->options->size && !is_missing(mesh, rank))
        rank++;
    return rank;
}

static unsigned mesh_fds(struct mesh_work *work)
{
    unsigned count = 0;
    work->fds[count++] = (struct pollfd){.fd = work->mesh->listener->fd, .events = POLLIN};
    for (uint32_t i = 0; i < work->dial_count; i++) {
        const struct mesh_dial *dial = &work->dials[i];
        if (dial->fd >= 0)
            work->fds[count++] = (struct pollfd){
                .fd = dial->fd, .events = dial->said < sizeof(struct hello) ? POLLOUT : POLLIN};
    }
    for (uint32_t i = 0; i < work->arrival_count; i++)
        work->fds[count++] = (struct pollfd){.fd = work->arrivals[i].fd, .events = POLLIN};
    return count;
}

static ssize_t peek_at(const struct mesh *mesh, uint32_t rank)
{
    char byte;
    return recv(mesh->fds[HELLO_LINE][rank], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

/* Rank 0's word is for when all have come, but where one of them cannot. Who has heard it goes, so
 * it is about to come, too, where another rank goes. */
static trp_status hear_rank_0(struct mesh *mesh, bool another_goes)
{
    bool came;
    if (mesh->options->rank == 0 || mesh->fds[HELLO_LINE][0] < 0)
        return TRP_OK;
    if (another_goes)
        TRP_TRY(mesh_look(mesh, 0, COLLECTIVE_AGREEMENT_MS, &came));
    mesh->told = peek_at(mesh, 0) > 0;
    return TRP_OK;
}

/* A rank that came may go again: its line ends. */
static trp_status check_lines(struct mesh *mesh)
{
    TRP_TRY(hear_rank_0(mesh, false));
    for (uint32_t rank = 0; rank < mesh->options->size && !mesh->told; rank++) {
        ssize_t came = mesh->fds[HELLO_LINE][rank] < 0 ? 1 : peek_at(mesh, rank);
        if (came > 0 || is_later(came))
            continue;
        TRP_TRY(hear_rank_0(mesh, rank > 0));
        return mesh->told ? TRP_OK : rank_is_gone(mesh, rank);
    }
    return TRP_OK;
}

static trp_status mesh_round(struct mesh_work *work)
{
    struct mesh *mesh = work->mesh;
    int64_t now = clock_now_ns(&clock_monotonic);
    TRP_TRY(begin_dials(work, now));
    unsigned count = mesh_fds(work);
    int64_t left = deadline_left_ms(mesh->deadline, &clock_monotonic);
    TRP_TRY(mesh_sleep(mesh, work->fds, count,
                       left >= 0 && left < COLLECTIVE_REDIAL_MS ? left : COLLECTIVE_REDIAL_MS));
    now = clock_now_ns(&clock_monotonic);
    for (uint32_t i = 0; i < work->dial_count; i++)
        if (work->dials[i].fd >= 0)
            TRP_TRY(go_on(work, i, now));
    accept_arrivals(work, now);
    hear_arrivals(work, now);
    TRP_TRY(check_lines(mesh));
    uint32_t missing = first_missing(mesh);
    if (missing < mesh->options->size && deadline_passed(mesh->deadline, &clock_monotonic))
        return not_in_time(mesh, missing);
    return TRP_OK;
}

trp_status mesh_connect(struct mesh *mesh)
{
    uint32_t size = mesh->options->size;
    struct mesh_work work = {.mesh = mesh,
                             .dial_count = HELLO_PURPOSES * mesh->options->rank,
                             .arrival_max = COLLECTIVE_STRANGERS_MAX + HELLO_PURPOSES * size};
    work.dials = xcalloc(work.dial_count + 1, sizeof *work.dials);
    for (uint32_t i = 0; i < work.dial_count; i++)
        work.dials[i].fd = -1;
    work.arrivals = xcalloc(work.arrival_max, sizeof *work.arrivals);
    work.fds = xcalloc(work.dial_count + work.arrival_max + 2, sizeof *work.fds);
    trp_status status = TRP_OK;
    while (status == TRP_OK && first_missing(mesh) < size && !mesh->told)
        status = mesh_round(&work);
    for (uint32_t i = 0; i < work.dial_count; i++)
        fd_close(work.dials[i].fd);
    while (work.arrival_count > 0)
        drop_arrival(&work, 0);
    free(work.dials);
    free(work.arrivals);
    free(work.fds);
    return status;
}

/* ---- on a line ----------------------------------------------------------------------------- */

trp_status mesh_write(struct mesh *mesh, uint32_t rank, const void *bytes, size_t size)
{
    ssize_t sent = send(mesh->fds[HELLO_LINE][rank], bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent == (ssize_t)size ? TRP_OK : rank_is_gone(mesh, rank); /* its buffer was empty */
}

trp_status mesh_read(struct mesh *mesh, uint32_t rank, void *bytes, size_t size)
{
    int fd = mesh->fds[HELLO_LINE][rank];
    for (size_t have = 0; have < size;) {
        ssize_t came = recv(fd, (uint8_t *)bytes + have, size - have, MSG_DONTWAIT);
        if (came > 0) {
            have += (size_t)came;
            continue;
        }
        if (!is_later(came))
            return rank_is_gone(mesh, rank);
        if (deadline_passed(mesh->deadline, &clock_monotonic))
            return not_in_time(mesh, rank);
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}};
        TRP_TRY(mesh_sleep(mesh, fds, 1, deadline_left_ms(mesh->deadline, &clock_monotonic)));
    }
    return TRP_OK;
}

trp_status mesh_look(struct mesh *mesh, uint32_t rank, int ms, bool *came)
{
    struct pollfd fds[2] = {{.fd = mesh->fds[HELLO_LINE][rank], .events = POLLIN}};
    trp_status status = mesh_sleep(mesh, fds, 1, ms);
    *came = fds[0].revents != 0;
    return status;
}
