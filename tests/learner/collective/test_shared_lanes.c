/* Lanes through shared memory: who has one, whom nobody believes, and who is asleep. */
#include "ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <troupe/rng.h>

#include "../../core/patience.h"
#include "core/clock.h"
#include "core/hash.h"
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
    liar->addresses[1] = liar->addresses[0]; /* which nobody calls */
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

/* What rank 0 found there, who is told that the liar found `mine`. */
static enum hello_found said_found(struct liar *liar, const struct hello_place *place,
                                   enum hello_found mine)
{
    struct hello_place theirs;
    uint32_t found = mine;
    say(liar->line, place, sizeof *place);
    hear(liar->line, &theirs, sizeof theirs);
    assert_int_equal(theirs.memory.bytes, lane_memory_bytes(2));
    say(liar->line, &found, sizeof found);
    hear(liar->line, &found, sizeof found);
    ranks_join(&liar->real);
    ranks_expect_right(&liar->real);
    assert_int_equal(trp_collective_read(liar->real.at[0].group).shared_ranks,
                     found != HELLO_FOUND_NOTHING && mine != HELLO_FOUND_NOTHING);
    return (enum hello_found)found;
}

static struct hello_place true_place(const struct liar *liar)
{
    struct hello_place place = {.memory = liar->memory.place,
                                .address = (uintptr_t)liar->memory.memory};
    boot_id_read(place.boot);
    return place;
}

static void meet_by_socket(struct liar *liar)
{
    struct group_call mine = {.kind = CALL_BARRIER, .sequence = 1}, theirs;
    uint64_t ticket = trp_collective_barrier(liar->real.at[0].group);
    say(liar->lane, &mine, sizeof mine);
    hear(liar->lane, &theirs, sizeof theirs);
    assert_memory_equal(&theirs, &mine, sizeof mine);
    assert_int_equal(trp_collective_wait(liar->real.at[0].group, ticket), TRP_OK);
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

/* All that is said of it is true. */
static int that_is_too_short_as_it_says(struct hello_place *place)
{
    struct sealed small;
    assert_int_equal(sealed_create(&small, "test", lane_memory_bytes(1)), TRP_OK);
    place->memory = small.place;
    munmap(small.memory, small.place.bytes);
    return small.fd;
}

static void who_claims_memory_that_is_not_there_is_reached_by_its_socket(void **state)
{
    (void)state;
    static claim *const claims[] = {
        of_another_host,
        of_no_host,
        of_nobody,
        that_is_closed,
        of_another_file,
        with_another_nonce,
        claimed_too_short,
        claimed_too_long,
        that_is_not_sealed,
        that_is_too_short,
        that_is_too_short_as_it_says,
    };
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        struct liar liar;
        liar_init(&liar);
        struct hello_place place = true_place(&liar);
        int fd = claims[i](&place);
        if (said_found(&liar, &place, HELLO_FOUND_MEMORY) != HELLO_FOUND_NOTHING)
            fail_msg("claim %zu was believed", i);
        meet_by_socket(&liar);
        if (fd >= 0)
            close(fd);
        liar_cleanup(&liar);
    }
}

static void who_does_not_find_the_others_memory_is_reached_by_its_socket(void **state)
{
    (void)state;
    struct liar liar;
    liar_init(&liar);
    struct hello_place place = true_place(&liar);
    assert_int_equal(said_found(&liar, &place, HELLO_FOUND_NOTHING), HELLO_FOUND_PROCESS);
    meet_by_socket(&liar);
    liar_cleanup(&liar);
}

/* Rank 0 waits in an operation, while rank 1's memory holds numbers that no lane has. */
static void expect_cut_off(struct liar *liar, uint64_t ticket, size_t bytes)
{
    trp_collective *group = liar->real.at[0].group;
    memset(liar->memory.memory + lane_memory_bytes(0), 0x7f, bytes);
    assert_int_equal(trp_collective_wait(group, ticket), TRP_UNAVAILABLE);
    assert_string_equal(trp_last_error(), "rank 0 of 2 is cut off from rank 1");
}

static void who_writes_nonsense_into_its_memory_is_cut_off(void **state)
{
    static const struct {
        size_t bytes;       /* of nonsense: what both count; everything */
        uint64_t elsewhere; /* its memory, than it says */
        bool sends;         /* rank 0 */
    } cases[] = {{128, 0, false},
                 {128, 0, true},
                 {SIZE_MAX, 0, false},
                 {SIZE_MAX, 4096, false},
                 {SIZE_MAX, 4096, true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct liar liar;
        liar_init(&liar);
        struct hello_place place = true_place(&liar);
        place.address += cases[i].elsewhere;
        assert_int_equal(said_found(&liar, &place, HELLO_FOUND_MEMORY),
                         cases[i].elsewhere ? HELLO_FOUND_MEMORY : HELLO_FOUND_PROCESS);
        float *values = xcalloc(1 << 20, sizeof *values);
        trp_collective *group = liar.real.at[0].group;
        size_t all = lane_memory_bytes(2) - lane_memory_bytes(0);
        expect_cut_off(&liar,
                       cases[i].sends ? trp_collective_broadcast(group, NULL, values, 1 << 20,
                                                                 TRP_COLLECTIVE_F32, 0)
                                      : trp_collective_barrier(group),
                       cases[i].bytes < all ? cases[i].bytes : all);
        free(values);
        liar_cleanup(&liar);
    }
}

/* ---- one lane ------------------------------------------------------------------------------- */

/* Both ends of one, in this process. */
struct pair {
    struct lane_memory *memories[2];
    struct peer_lane *ends[2];
};

static void pair_init(struct pair *pair, bool in_place)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(lane_memory_create(&pair->memories[i], 2), TRP_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const uint8_t *theirs;
        assert_int_equal(sealed_map(&theirs, &pair->memories[1 - i]->sealed.place), TRP_OK);
        struct lane_ends ends = {.mine = i,
                                 .theirs = 1 - i,
                                 .size = 2,
                                 .pid = in_place ? getpid() : 0,
                                 .is_read = in_place};
        pair->ends[i] = shared_lane_create(fds[i], pair->memories[i], theirs, &ends);
    }
}

static void pair_cleanup(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        pair->ends[i]->impl->destroy(pair->ends[i]);
        lane_memory_leave(pair->memories[i]);
    }
}

enum { LONG = 3 * COLLECTIVE_IN_PLACE_BYTES + 13, STREAM = 12 << 20 };

static void a_long_part_stays_where_it_is_until_it_is_read(void **state)
{
    (void)state;
    uint8_t *values = xcalloc(1, LONG), *got = xcalloc(1, LONG);
    struct pair pair;
    pair_init(&pair, true);
    struct peer_lane *from = pair.ends[0], *to = pair.ends[1];
    struct iovec part = {values, LONG};
    size_t taken, came, all = 0, sent = 0;
    assert_int_equal(from->impl->send(from, &part, 1, &taken), TRP_OK);
    assert_int_equal(taken, 0);
    for (size_t i = 0; i < LONG; i++)
        values[i] = (uint8_t)(i * 7 + i / 256);
    while (sent < LONG) {
        assert_int_equal(to->impl->receive(to, got + all, LONG - all, &came), TRP_OK);
        all += came;
        part = (struct iovec){values + sent, LONG - sent};
        assert_int_equal(from->impl->send(from, &part, 1, &taken), TRP_OK);
        assert_int_equal(taken, came);
        sent += taken;
    }
    assert_memory_equal(got, values, LONG);
    pair_cleanup(&pair);
    free(values);
    free(got);
}

static void nobody_reads_what_was_withdrawn(void **state)
{
    (void)state;
    uint8_t *values = xcalloc(1, LONG), *got = xcalloc(1, LONG);
    struct pair pair;
    pair_init(&pair, true);
    struct peer_lane *from = pair.ends[0], *to = pair.ends[1];
    struct iovec part = {values, LONG};
    const void *bytes;
    size_t taken, came;
    assert_int_equal(from->impl->send(from, &part, 1, &taken), TRP_OK);
    assert_int_equal(to->impl->receive(to, got, 4, &came), TRP_OK);
    assert_int_equal(came, 4);
    from->impl->withdraw(from);
    assert_int_equal(to->impl->receive(to, got, LONG, &came), TRP_UNAVAILABLE);
    assert_int_equal(to->impl->peek(to, 4, LONG, &bytes, &came), TRP_UNAVAILABLE);
    pair_cleanup(&pair);
    free(values);
    free(got);
}

/* As calls are, and values between the end of the ring and its beginning. */
static void what_lies_across_the_rings_end_is_whole(void **state)
{
    (void)state;
    enum { RECORD = 28 };
    struct pair pair;
    pair_init(&pair, false);
    struct peer_lane *from = pair.ends[0], *to = pair.ends[1];
    for (uint32_t i = 0; i < 9 * COLLECTIVE_RING_BYTES / RECORD; i++) {
        uint32_t record[RECORD / 4] = {i, ~i, i * 3, i * 5, i * 7, i * 9, i * 11};
        struct iovec part = {record, RECORD};
        const void *bytes;
        size_t taken, came;
        assert_int_equal(from->impl->send(from, &part, 1, &taken), TRP_OK);
        assert_int_equal(taken, RECORD);
        assert_int_equal(to->impl->peek(to, RECORD, RECORD, &bytes, &came), TRP_OK);
        assert_int_equal(came, RECORD);
        assert_memory_equal(bytes, record, RECORD);
        (to->impl->skip)(to, RECORD); /* skip() is cmocka's, too */
    }
    pair_cleanup(&pair);
}

/* Parts of any length and what belongs to a call before them, taken in any portions, by both ways
 * of receiving. */
static void stream_any(bool in_place)
{
    uint8_t *values = xmalloc(STREAM), *got = xcalloc(1, STREAM);
    struct pair pair;
    trp_rng rng;
    trp_rng_init(&rng, 11, in_place);
    for (size_t i = 0; i < STREAM; i++)
        values[i] = (uint8_t)trp_rng_u64(&rng);
    pair_init(&pair, in_place);
    struct peer_lane *from = pair.ends[0], *to = pair.ends[1];
    size_t sent = 0, all = 0, taken, came, part_end = 0;
    while (all < STREAM) {
        if (part_end == sent)
            part_end += 1 + trp_rng_below(&rng, trp_rng_below(&rng, 4) ? 3000 : LONG);
        part_end = part_end < STREAM ? part_end : STREAM;
        size_t head = (part_end - sent) / 3;
        struct iovec parts[2] = {{values + sent, part_end - sent}, {NULL, 0}};
        if (head > 0 && head <= 24) {
            parts[0].iov_len = head;
            parts[1] = (struct iovec){values + sent + head, part_end - sent - head};
        }
        if (sent < STREAM && trp_rng_below(&rng, 3)) {
            assert_int_equal(from->impl->send(from, parts, 1 + (parts[1].iov_len > 0), &taken),
                             TRP_OK);
            sent += taken;
        }
        size_t most = 1 + trp_rng_below(&rng, trp_rng_below(&rng, 4) ? 5000 : LONG);
        most = most < STREAM - all ? most : STREAM - all;
        if (trp_rng_below(&rng, 2)) {
            assert_int_equal(to->impl->receive(to, got + all, most, &came), TRP_OK);
        } else {
            const void *bytes;
            size_t least = most < 24 ? most : 24;
            assert_int_equal(to->impl->peek(to, least, most, &bytes, &came), TRP_OK);
            assert_true(came == 0 || came >= least);
            assert_true(came <= most);
            if (came > 0) {
                memcpy(got + all, bytes, came);
                (to->impl->skip)(to, came);
            }
        }
        all += came;
    }
    assert_memory_equal(got, values, STREAM);
    pair_cleanup(&pair);
    free(values);
    free(got);
}

static void bytes_come_as_they_went_in_whatever_portions(void **state)
{
    (void)state;
    stream_any(true);
    stream_any(false);
}

/* ---- long vectors --------------------------------------------------------------------------- */

enum { VECTOR = 1200007, OPERATIONS = 5 };

/* What each rank had after each operation. */
struct results {
    uint64_t hashes[RANKS_MAX][OPERATIONS];
};

/* No integers, so that the order of sums shows. */
static void fill_any(const struct rank *rank, float *values)
{
    trp_rng rng;
    trp_rng_init(&rng, 5, rank->rank);
    for (size_t i = 0; i < VECTOR; i++)
        values[i] = (float)(trp_rng_double(&rng) - 0.5) * (float)(1 << i % 20);
}

static void do_everything(struct rank *rank)
{
    uint64_t *hashes = ((struct results *)rank->context)->hashes[rank->rank];
    float *values = xmalloc(VECTOR * sizeof *values);
    trp_collective *group = rank->group;
    size_t low, high;
    trp_collective_range(group, VECTOR, rank->rank, &low, &high);
    for (int i = 0; i < OPERATIONS && rank->status == TRP_OK; i++) {
        if (i != 2) /* gathers what the one before left */
            fill_any(rank, values);
        uint64_t tickets[OPERATIONS] = {0};
        if (i == 0)
            tickets[i] = trp_collective_allreduce(group, NULL, values, VECTOR, TRP_COLLECTIVE_F32,
                                                  TRP_COLLECTIVE_SUM);
        else if (i == 1)
            tickets[i] = trp_collective_reduce_scatter(group, NULL, values, VECTOR,
                                                       TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
        else if (i == 2)
            tickets[i] = trp_collective_all_gather(group, NULL, values, VECTOR, TRP_COLLECTIVE_F32);
        else if (i == 3)
            tickets[i] = trp_collective_broadcast(group, NULL, values, VECTOR, TRP_COLLECTIVE_F32,
                                                  rank->size - 1);
        else
            tickets[i] = trp_collective_all_to_all(group, values, VECTOR / (2 * rank->size),
                                                   TRP_COLLECTIVE_F32);
        rank_wait(rank, tickets[i]);
        bool part = i == 1;
        hashes[i] = hash_bytes(HASH_BYTES_EMPTY, values + (part ? low : 0),
                               (part ? high - low : VECTOR) * sizeof *values);
    }
    free(values);
}

static void long_vectors_have_the_bits_that_sockets_give(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 3; size++) {
        struct results results[2] = {0};
        for (int shared = 0; shared < 2; shared++) {
            struct ranks ranks;
            ranks_kind = shared ? RANKS_SHARED : RANKS_TCP;
            ranks_create(&ranks, size);
            ranks_run(&ranks, do_everything, &results[shared]);
            ranks_expect_right(&ranks);
            ranks_destroy(&ranks);
        }
        assert_memory_equal(&results[0], &results[1], sizeof results[0]);
        assert_true(results[0].hashes[0][0] == results[0].hashes[1][0]);
        assert_true(results[0].hashes[0][0] == results[0].hashes[0][2]);
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
        cmocka_unit_test(who_does_not_find_the_others_memory_is_reached_by_its_socket),
        cmocka_unit_test(who_writes_nonsense_into_its_memory_is_cut_off),
        cmocka_unit_test(a_long_part_stays_where_it_is_until_it_is_read),
        cmocka_unit_test(nobody_reads_what_was_withdrawn),
        cmocka_unit_test(what_lies_across_the_rings_end_is_whole),
        cmocka_unit_test(bytes_come_as_they_went_in_whatever_portions),
        cmocka_unit_test(long_vectors_have_the_bits_that_sockets_give),
        cmocka_unit_test(who_sleeps_is_woken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
