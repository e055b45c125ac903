/* Lanes through shared memory: who has one, whom nobody believes, and who is asleep. */
#include "ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "../../core/patience.h"
#include "core/clock.h"
#include "learner/collective/hello.h"
#include "learner/collective/shared_lane.h"

/* ---- some share, and some do not ------------------------------------------------------------ */

enum { COUNT = 30011 };

static void add_up(struct rank *rank)
{
    uint64_t *values = xmalloc(COUNT * sizeof *values);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = i * (rank->rank + 1);
    rank_wait(rank, trp_collective_allreduce(rank->group, NULL, values, COUNT, TRP_COLLECTIVE_U64,
                                             TRP_COLLECTIVE_SUM));
    for (size_t i = 0; i < COUNT; i++)
        rank->wrong += values[i] != i * rank->size * (rank->size + 1) / 2;
    free(values);
}

static void first_does_not_share(trp_collective_options *options)
{
    options->no_share = options->rank == 0;
}

static void a_rank_that_does_not_share_is_reached_by_its_socket(void **state)
{
    (void)state;
    struct ranks ranks = {.size = 4};
    for (uint32_t rank = 0; rank < ranks.size; rank++)
        ranks.at[rank] = (struct rank){.rank = rank, .size = ranks.size};
    ranks_connect(&ranks, &(trp_collective_options){.group = "test", .timeout_ms = PATIENCE_MS},
                  first_does_not_share);
    ranks_expect_right(&ranks);
    for (uint32_t rank = 0; rank < ranks.size; rank++)
        assert_int_equal(trp_collective_read(ranks.at[rank].group).shared_ranks, rank > 0 ? 2 : 0);
    ranks_run(&ranks, add_up, NULL);
    ranks_expect_right(&ranks);
    ranks_destroy(&ranks);
}

/* ---- a rank that lies ----------------------------------------------------------------------- */

/* Rank 1, which the test plays; rank 0 is real, on a thread. */
struct liar {
    trp_collective_listener *listener;
    const char *addresses[2];
    trp_collective_options options;
    struct ranks real;
    int line, lane;
    struct sealed memory;
};

static void connect_first(struct rank *rank)
{
    const struct liar *liar = rank->context;
    trp_collective_options options = liar->options;
    options.rank = 0;
    rank_keep(rank, trp_collective_connect(&rank->group, liar->listener, &options));
}

static void say(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), size);
}

static void hear(int fd, void *bytes, size_t size)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, PATIENCE_MS), 1);
    assert_int_equal(recv(fd, bytes, size, MSG_WAITALL), size);
}

static int introduce(const struct liar *liar, enum hello_purpose purpose)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    name.sin_port = htons((uint16_t)atoi(strrchr(liar->addresses[0], ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct hello hello;
    struct hello_answer answer;
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    hello_init(&hello, &liar->options, purpose);
    say(fd, &hello, sizeof hello);
    hear(fd, &answer, sizeof answer);
    assert_int_equal(answer.verdict, HELLO_WELCOME);
    return fd;
}

/* All is true so far: the group has agreed, and places are said next. */
static void liar_init(struct liar *liar)
{
    *liar = (struct liar){.real = {.size = 1, .at = {{.rank = 0, .size = 2}}}};
    ranks_listen(&liar->listener, liar->addresses, 1, RANKS_TCP);
    liar->options = (trp_collective_options){.group = "test",
                                             .rank = 1,
                                             .size = 2,
                                             .addresses = liar->addresses,
                                             .timeout_ms = PATIENCE_MS};
    ranks_start(&liar->real, connect_first, liar);
    liar->line = introduce(liar, HELLO_LINE);
    liar->lane = introduce(liar, HELLO_LANE);
    struct hello_profile profile;
    struct hello_agreement agreement;
    hello_profile_init(&profile, &liar->options);
    say(liar->line, &profile, sizeof profile);
    hear(liar->line, &agreement, sizeof agreement);
    assert_int_equal(agreement.status, TRP_OK);
    assert_int_equal(sealed_create(&liar->memory, "test", lane_memory_bytes(2)), TRP_OK);
}

static void liar_cleanup(struct liar *liar)
{
    close(liar->line);
    close(liar->lane);
    trp_collective_destroy(liar->real.at[0].group);
    trp_collective_listener_destroy(liar->listener);
    sealed_cleanup(&liar->memory);
}

/* Whether rank 0 found memory there. */
static bool is_believed(struct liar *liar, const struct hello_place *place)
{
    struct hello_place theirs;
    uint32_t found = 1; /* the liar's word for theirs */
    say(liar->line, place, sizeof *place);
    hear(liar->line, &theirs, sizeof theirs);
    assert_int_equal(theirs.memory.bytes, lane_memory_bytes(2));
    say(liar->line, &found, sizeof found);
    hear(liar->line, &found, sizeof found);
    ranks_join(&liar->real);
    ranks_expect_right(&liar->real);
    assert_int_equal(trp_collective_read(liar->real.at[0].group).shared_ranks, found);
    return found;
}

/* Some claim, from one that is true. Returns a descriptor that it needs, or -1. */
typedef int claim(struct hello_place *place);

static int of_another_host(struct hello_place *place)
{
    place->boot[0] ^= 1;
    return -1;
}

static int of_no_host(struct hello_place *place)
{
    memset(place->boot, 0, sizeof place->boot);
    return -1;
}

static int of_nobody(struct hello_place *place)
{
    place->memory.pid = 0x7fffffff;
    return -1;
}

static int that_is_closed(struct hello_place *place)
{
    place->memory.fd = 1 << 20;
    return -1;
}

static int of_another_file(struct hello_place *place)
{
    place->memory.inode++;
    return -1;
}

static int with_another_nonce(struct hello_place *place)
{
    place->memory.nonce[0] ^= 1;
    return -1;
}

static int claimed_too_short(struct hello_place *place)
{
    place->memory.bytes = lane_memory_bytes(1);
    return -1;
}

static int claimed_too_long(struct hello_place *place)
{
    place->memory.bytes = UINT64_MAX;
    return -1;
}

static int file_at(struct hello_place *place, int fd)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    place->memory.fd = (uint32_t)fd;
    place->memory.inode = info.st_ino;
    place->memory.device = info.st_dev;
    assert_int_equal(write(fd, place->memory.nonce, SEALED_NONCE_BYTES), SEALED_NONCE_BYTES);
    return fd;
}

/* It would be cut under who has mapped it. */
static int that_is_not_sealed(struct hello_place *place)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)place->memory.bytes), 0);
    return file_at(place, fd);
}

static int that_is_too_short(struct hello_place *place)
{
    return file_at(place, memfd_create("test", MFD_CLOEXEC));
}

static void who_claims_memory_that_is_not_there_is_reached_by_its_socket(void **state)
{
    (void)state;
    static claim *const claims[] = {of_another_host,   of_no_host,       of_nobody,
                                    that_is_closed,    of_another_file,  with_another_nonce,
                                    claimed_too_short, claimed_too_long, that_is_not_sealed,
                                    that_is_too_short};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        struct liar liar;
        liar_init(&liar);
        struct hello_place place = {.memory = liar.memory.place};
        boot_id_read(place.boot);
        int fd = claims[i](&place);
        if (is_believed(&liar, &place))
            fail_msg("claim %zu was believed", i);
        struct group_call mine = {.kind = CALL_BARRIER, .sequence = 1}, theirs;
        uint64_t ticket = trp_collective_barrier(liar.real.at[0].group);
        say(liar.lane, &mine, sizeof mine);
        hear(liar.lane, &theirs, sizeof theirs);
        assert_memory_equal(&theirs, &mine, sizeof mine);
        assert_int_equal(trp_collective_wait(liar.real.at[0].group, ticket), TRP_OK);
        if (fd >= 0)
            close(fd);
        liar_cleanup(&liar);
    }
}

/* Rank 0 waits in an operation, while rank 1's memory holds numbers that no lane has. */
static void expect_cut_off(struct liar *liar, uint64_t ticket)
{
    trp_collective *group = liar->real.at[0].group;
    memset(liar->memory.memory + SEALED_NONCE_BYTES, 0x7f,
           lane_memory_bytes(2) - SEALED_NONCE_BYTES);
    assert_int_equal(trp_collective_wait(group, ticket), TRP_UNAVAILABLE);
    assert_string_equal(trp_last_error(), "rank 1 of 2 is cut off from rank 0");
}

static void who_writes_nonsense_into_its_memory_is_cut_off(void **state)
{
    (void)state;
    for (int sends = 0; sends < 2; sends++) {
        struct liar liar;
        liar_init(&liar);
        struct hello_place place = {.memory = liar.memory.place};
        boot_id_read(place.boot);
        assert_true(is_believed(&liar, &place));
        float *values = xcalloc(1 << 20, sizeof *values);
        trp_collective *group = liar.real.at[0].group;
        expect_cut_off(&liar, sends ? trp_collective_broadcast(group, NULL, values, 1 << 20,
                                                               TRP_COLLECTIVE_F32, 0)
                                    : trp_collective_barrier(group));
        free(values);
        liar_cleanup(&liar);
    }
}

/* ---- sleeping ------------------------------------------------------------------------------- */

enum { ROUNDS = 40, LATE_MS = 2, LARGE = 1 << 19 };

/* The root is late, and the other one sleeps until something comes; or the other one, and the root
 * sleeps until there is room. */
static void be_late_in_turn(struct rank *rank)
{
    float *values = xcalloc(LARGE, sizeof *values);
    for (uint32_t round = 0; round < ROUNDS && rank->status == TRP_OK; round++) {
        if (round / 2 % 2 == rank->rank)
            poll(NULL, 0, LATE_MS);
        rank_wait(rank, trp_collective_broadcast(rank->group, NULL, values, LARGE,
                                                 TRP_COLLECTIVE_F32, round % 2));
    }
    free(values);
}

static void who_sleeps_is_woken(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_create_with(&ranks, 2, &(trp_collective_options){.timeout_ms = PATIENCE_MS});
    int64_t before = clock_now_ns(&clock_monotonic);
    ranks_run(&ranks, be_late_in_turn, NULL);
    int64_t ms = (clock_now_ns(&clock_monotonic) - before) / 1000000;
    ranks_expect_right(&ranks);
    assert_in_range(ms, 0, ROUNDS * COLLECTIVE_WORRY_MS_MAX / 2); /* who worries looks again */
    ranks_destroy(&ranks);
}

int main(void)
{
    ranks_kind = RANKS_SHARED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_does_not_share_is_reached_by_its_socket),
        cmocka_unit_test(who_claims_memory_that_is_not_there_is_reached_by_its_socket),
        cmocka_unit_test(who_writes_nonsense_into_its_memory_is_cut_off),
        cmocka_unit_test(who_sleeps_is_woken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
