/* Allreduce between two processes over TCP and through shared memory, next to what the machine can
 * do at most, and to gloo. All of them are measured in turns by the same two processes; a row is a
 * median of turns, because the machine may have other things to do. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <signal.h>

#include <troupe/collective.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "learner/collective/limits.h"
#include "learner/collective/reduce.h"
#include "median.h"
#include "scratch.h"
#ifdef TROUPE_GLOO
#include "tests/learner/gloo_group.h"
#endif

enum {
    RANKS = 2,
    TURNS = 15,
    ADDRESS_BYTES = 128,
    BYTES_MAX = 64 << 20,
    TURN_BYTES = 8 << 20, /* of a turn, but */
    TURN_OPERATIONS_MAX = 200,
    LATENCY_BYTES = 64 << 10, /* smaller ones are compared with a ping-pong, not a rate */
    CACHED_BYTES = 1 << 20,   /* whose halves do not leave the cores' caches by themselves */
    TIMEOUT_MS = 60000,
};

/* What the two processes have in common. */
struct common {
    _Atomic uint32_t arrived;
    char addresses[RANKS][ADDRESS_BYTES];
    int64_t ns[RANKS];
    struct {
        _Alignas(64) _Atomic uint32_t written; /* halves */
        _Alignas(64) float halves[2][CACHED_BYTES / 2 / sizeof(float)];
    } handed[RANKS];
};

struct rank {
    struct common *common;
    uint32_t rank, meetings;
    trp_collective *tcp, *memory;
    struct gloo_group *gloo;
    int raw; /* a TCP connection */
    uint32_t handed;
    float *values, *from, *to;
};

static void stop_if(bool failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "bench_collective: %s\n", what);
    exit(1);
}

static void meet(struct rank *rank)
{
    uint32_t all = ++rank->meetings * RANKS;
    atomic_fetch_add(&rank->common->arrived, 1);
    while (atomic_load(&rank->common->arrived) < all)
        sched_yield();
}

/* ---- what is measured: one operation -------------------------------------------------------- */

typedef void operation(struct rank *rank, size_t bytes);

static void ours(trp_collective *collective, float *values, size_t bytes)
{
    uint64_t ticket = trp_collective_allreduce(collective, NULL, values, bytes / sizeof *values,
                                               TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
    stop_if(trp_collective_wait(collective, ticket) != TRP_OK, trp_last_error());
}

static void over_tcp(struct rank *rank, size_t bytes)
{
    ours(rank->tcp, rank->values, bytes);
}

static void through_memory(struct rank *rank, size_t bytes)
{
    ours(rank->memory, rank->values, bytes);
}

/* Half of the values is summed, and half comes from the other rank, which does the same. */
static void copy_and_add(struct rank *rank, size_t bytes)
{
    size_t half = bytes / 2 / sizeof(float);
    memcpy(rank->to, rank->from, half * sizeof(float));
    reduce_find(TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM)(rank->values, rank->from + half, half);
}

/* Both are waited for in turn, each half a turn. */
static const float *hand_half(struct rank *rank, const float *half, size_t bytes)
{
    uint32_t turn = rank->handed++;
    memcpy(rank->common->handed[rank->rank].halves[turn % 2], half, bytes);
    atomic_store(&rank->common->handed[rank->rank].written, rank->handed);
    while (atomic_load(&rank->common->handed[1 - rank->rank].written) < rank->handed)
        ;
    return rank->common->handed[1 - rank->rank].halves[turn % 2];
}

/* An allreduce with nothing around it: what it costs that halves go from core to core. */
static void hand_over(struct rank *rank, size_t bytes)
{
    size_t half = bytes / 2 / sizeof(float);
    float *own = rank->values + rank->rank * half, *other = rank->values + (1 - rank->rank) * half;
    const float *came = hand_half(rank, other, half * sizeof(float));
    reduce_find(TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM)(own, came, half);
    memcpy(other, hand_half(rank, own, half * sizeof(float)), half * sizeof(float));
}

#ifdef TROUPE_GLOO
static void by_gloo(struct rank *rank, size_t bytes)
{
    gloo_allreduce(rank->gloo, rank->values, bytes / sizeof(float), GLOO_F32, GLOO_SUM);
}
#endif

static void raw_send(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(fd, (const uint8_t *)bytes + done, size - done, MSG_NOSIGNAL);
        stop_if(sent < 0, "send");
        done += (size_t)sent;
    }
}

/* As a waiting thread of the collective does: looks again and again, soon also giving the processor
 * away. */
static void look_again(uint32_t *looks)
{
    if (++*looks > COLLECTIVE_SPIN_LOOKS)
        sched_yield();
}

static void raw_receive(int fd, void *bytes, size_t size)
{
    uint32_t looks = 0;
    for (size_t done = 0; done < size; look_again(&looks)) {
        ssize_t came = recv(fd, (uint8_t *)bytes + done, size - done, MSG_DONTWAIT);
        stop_if(came == 0, "the other process is gone");
        done += came > 0 ? (size_t)came : 0;
        looks = came > 0 ? 0 : looks;
    }
}

static void ping_pong(struct rank *rank, size_t bytes)
{
    if (rank->rank == 0)
        raw_send(rank->raw, rank->from, bytes);
    raw_receive(rank->raw, rank->to, bytes);
    if (rank->rank == 1)
        raw_send(rank->raw, rank->from, bytes);
}

static void one_way(struct rank *rank, size_t bytes)
{
    if (rank->rank == 0)
        raw_send(rank->raw, rank->from, bytes);
    else
        raw_receive(rank->raw, rank->to, bytes);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Microseconds of an operation: until both ranks have done so many. */
static double turn_us(struct rank *rank, operation *run, size_t bytes, uint32_t operations)
{
    meet(rank);
    int64_t start = clock_now_ns(&clock_monotonic);
    for (uint32_t i = 0; i < operations; i++)
        run(rank, bytes);
    rank->common->ns[rank->rank] = clock_now_ns(&clock_monotonic) - start;
    meet(rank);
    int64_t a = rank->common->ns[0], b = rank->common->ns[1];
    return (double)(a > b ? a : b) / operations / 1e3;
}

struct measured {
    double us[TURNS];
};

/* "64 KiB" */
static void bytes_words(size_t bytes, char *words, size_t size)
{
    if (bytes >= 1 << 20)
        snprintf(words, size, "%zu MiB", bytes >> 20);
    else if (bytes >= 1 << 10)
        snprintf(words, size, "%zu KiB", bytes >> 10);
    else
        snprintf(words, size, "%zu B", bytes);
}

enum { TCP, WIRE, MEMORY, COPY, HANDS, GLOO, WAYS };

static void measure_all(struct rank *rank, size_t bytes, double us[WAYS])
{
    operation *ways[WAYS] = {
        [TCP] = over_tcp,
        [WIRE] = bytes < LATENCY_BYTES ? ping_pong : one_way,
        [MEMORY] = through_memory,
        [COPY] = bytes < LATENCY_BYTES ? NULL : copy_and_add,
        [HANDS] = bytes < LATENCY_BYTES || bytes > CACHED_BYTES ? NULL : hand_over,
#ifdef TROUPE_GLOO
        [GLOO] = by_gloo,
#endif
    };
    struct measured measured[WAYS] = {0};
    size_t operations = TURN_BYTES / bytes;
    operations = operations < 1 ? 1 : operations;
    operations = operations > TURN_OPERATIONS_MAX ? TURN_OPERATIONS_MAX : operations;
    memset(rank->values, 0, BYTES_MAX);       /* sums stay what they are */
    for (int turn = -1; turn < TURNS; turn++) /* the first one warms up */
        for (int way = 0; way < WAYS; way++)
            if (ways[way])
                measured[way].us[turn < 0 ? 0 : turn] =
                    turn_us(rank, ways[way], bytes, (uint32_t)operations);
    for (int way = 0; way < WAYS; way++)
        us[way] = median(measured[way].us, TURNS);
}

static void print_rows(size_t bytes, const double us[WAYS])
{
    char words[32];
    bool small = bytes < LATENCY_BYTES;
    bytes_words(bytes, words, sizeof words);
    printf("allreduce %s, 2 ranks, TCP\t%.4g\tus\t%.4g\t%s", words, us[TCP], us[WIRE],
           small ? "raw ping-pong" : "raw TCP, one way");
    if (us[GLOO] > 0)
        printf("\t%.4g\tgloo", us[GLOO]);
    printf("\nallreduce %s, 2 ranks, shared memory\t%.4g\tus\t%.4g\t%s\t%.4g\tTCP\n", words,
           us[MEMORY], us[COPY], small ? "" : "memcpy and add", us[TCP]);
    if (us[HANDS] > 0)
        printf("allreduce %s, 2 ranks, shared memory, of that\t%.4g\tus\t%.4g\tthe same bytes from "
               "core to core\n",
               words, us[MEMORY], us[HANDS]);
    fflush(stdout);
}

/* ---- two processes --------------------------------------------------------------------------- */

static trp_collective *connect_ranks(struct rank *rank, bool no_share)
{
    trp_collective_listener *listener;
    trp_collective *collective;
    const char *addresses[RANKS];
    stop_if(trp_collective_listener_create(&listener, NULL, false) != TRP_OK, trp_last_error());
    snprintf(rank->common->addresses[rank->rank], ADDRESS_BYTES, "%s",
             trp_collective_listener_address(listener));
    meet(rank);
    for (uint32_t i = 0; i < RANKS; i++)
        addresses[i] = rank->common->addresses[i];
    trp_status status =
        trp_collective_connect(&collective, listener,
                               &(trp_collective_options){.group = "bench",
                                                         .generation = 1,
                                                         .nonce = (uint64_t)getppid(),
                                                         .rank = rank->rank,
                                                         .size = RANKS,
                                                         .addresses = addresses,
                                                         .no_share = no_share,
                                                         .timeout_ms = TIMEOUT_MS});
    stop_if(status != TRP_OK, trp_last_error());
    stop_if(trp_collective_read(collective).shared_ranks != (no_share ? 0 : RANKS - 1), "lanes");
    meet(rank);
    trp_collective_listener_destroy(listener);
    return collective;
}

/* Both ends of a connection over loopback. */
static void raw_pair(int fds[RANKS])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    stop_if(listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 ||
                listen(listener, 1) != 0 ||
                getsockname(listener, (struct sockaddr *)&address, &size) != 0,
            "no socket");
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    stop_if(fds[0] < 0 || connect(fds[0], (struct sockaddr *)&address, size) != 0, "connect");
    fds[1] = accept(listener, NULL, NULL);
    stop_if(fds[1] < 0, "accept");
    for (int i = 0; i < RANKS; i++)
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

static float *touched(void)
{
    float *memory = xaligned(HUGE_PAGE, BYTES_MAX);
    memset(memory, 0, BYTES_MAX);
    return memory;
}

static void run_rank(struct rank *rank, const char *dir)
{
    static const size_t sizes[] = {4,         64,      1 << 10, 4 << 10,  16 << 10, 64 << 10,
                                   256 << 10, 1 << 20, 4 << 20, 16 << 20, BYTES_MAX};
    rank->values = touched();
    rank->from = touched();
    rank->to = touched();
    rank->tcp = connect_ranks(rank, true);
    rank->memory = connect_ranks(rank, false);
#ifdef TROUPE_GLOO
    rank->gloo = gloo_group_create(dir, rank->rank, RANKS);
#else
    (void)dir;
#endif
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double us[WAYS];
        measure_all(rank, sizes[i], us);
        if (rank->rank == 0)
            print_rows(sizes[i], us);
    }
    trp_collective_destroy(rank->tcp);
    trp_collective_destroy(rank->memory);
#ifdef TROUPE_GLOO
    gloo_group_destroy(rank->gloo);
#endif
}

int main(void)
{
    char *dir = make_dir("/tmp");
    int fds[RANKS], failed = 0, status;
    pid_t children[RANKS];
    raw_pair(fds);
    struct common *common =
        mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stop_if(common == MAP_FAILED, "no memory");
    for (uint32_t i = 0; i < RANKS; i++) {
        children[i] = fork();
        stop_if(children[i] < 0, "fork");
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(fds[1 - i]);
            run_rank(&(struct rank){.common = common, .rank = i, .raw = fds[i]}, dir);
            exit(0);
        }
    }
    /* Not whoever ends: what removes the directory is a child, too, and waits for this process. */
    for (uint32_t i = 0; i < RANKS; i++) {
        stop_if(waitpid(children[i], &status, 0) != children[i], "waitpid");
        failed |= status;
    }
    remove_dir(dir);
    return failed ? 1 : 0;
}
