/* GossipGraD: its rule on a network of tests, in any order of delivery, against a reference in
 * double that knows of no messages; and learners that keep to it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "learner/modes/gossip_known.h"
#include "learner/modes/gossip_rule.h"
#include "tests/learner/coded.h"
#include "tests/learner/group_fixture.h"
#include "tests/learner/scripted.h"

enum { PEERS_MAX = 9, VALUES = 8, ROUNDS_MAX = 256, INBOX_MAX = 512 };

/* ---- peers on a network -------------------------------------------------------------------- */

struct gossip_message {
    uint64_t generation;
    struct gossip_head head;
    float values[2 * VALUES + 2]; /* or words */
};

struct peer {
    struct gossip gossip;
    struct gossip_known known;
    float values[VALUES];
    bool sent; /* in this round */
    struct gossip_message inbox[INBOX_MAX];
    uint32_t waiting;           /* messages in it */
    uint32_t flags[ROUNDS_MAX]; /* at the end of each round */
    bool all_know[ROUNDS_MAX];
};

/* Whoever acts takes a step and sends what it has, or waits for what it has to hear. */
struct chat {
    struct scripted *net;
    struct peer peers[PEERS_MAX];
    uint32_t size, endpoints[PEERS_MAX]; /* by rank */
    uint64_t generation, rounds;
    bool quiet; /* steps change nothing */
    struct compress_options compress;
    double scale; /* of steps */
    struct {
        uint32_t rank, flag;
        uint64_t round;
    } wish;
};

static double step_of(uint32_t endpoint, uint64_t round, size_t i)
{
    return (double)((endpoint * 5 + round * 3 + i) % 7) - 3;
}

static void hear_values(const struct chat *chat, struct peer *peer,
                        const struct gossip_message *message)
{
    uint32_t words[2 * VALUES + 2];
    memcpy(words, message->values, sizeof words);
    if (chat->compress.kind == COMPRESS_NONE)
        gossip_average(peer->values, message->values, VALUES);
    else
        assert_int_equal(gossip_known_hear(&peer->known, gossip_distance(&peer->gossip),
                                           message->head.round, words, peer->values),
                         TRP_OK);
}

static void hear_what_came(const struct chat *chat, struct peer *peer)
{
    for (uint32_t i = 0; i < peer->waiting && peer->sent; i++) {
        const struct gossip_message *message = &peer->inbox[i];
        uint64_t round = peer->gossip.head.round;
        if (gossip_hear(&peer->gossip, &message->head) != GOSSIP_TAKEN)
            continue;
        hear_values(chat, peer, message);
        peer->all_know[round] = gossip_end(&peer->gossip, &peer->flags[round]);
        peer->sent = false;
    }
}

static uint32_t rank_of(const struct chat *chat, uint32_t endpoint)
{
    uint32_t rank = 0;
    while (chat->endpoints[rank] != endpoint)
        rank++;
    return rank;
}

static void say_words(const struct chat *chat, struct peer *peer, struct gossip_message *message)
{
    uint32_t words[2 * VALUES + 2] = {0};
    uint64_t round = message->head.round;
    assert_in_range(gossip_known_words(&peer->known, round), 1, 2 * VALUES + 2);
    assert_int_equal(gossip_known_say(&peer->known, gossip_distance(&peer->gossip), round,
                                      round * chat->size + peer->gossip.rank, peer->values, words),
                     TRP_OK);
    memcpy(message->values, words, sizeof words);
}

static void take_a_round(void *context, uint32_t self)
{
    struct chat *chat = context;
    struct peer *peer = &chat->peers[self];
    struct gossip *gossip = &peer->gossip;
    uint64_t round = gossip->head.round;
    if (peer->sent || round == chat->rounds)
        return;
    for (size_t i = 0; i < VALUES && !chat->quiet; i++)
        peer->values[i] -= (float)(step_of(self, round, i) * chat->scale);
    if (chat->wish.rank == gossip->rank && chat->wish.round == round)
        gossip_say(gossip, (enum gossip_flag)chat->wish.flag);
    struct gossip_message message = {.generation = chat->generation, .head = gossip->head};
    memcpy(message.values, peer->values, sizeof peer->values);
    if (chat->compress.kind != COMPRESS_NONE)
        say_words(chat, peer, &message);
    uint32_t to = (gossip->rank + gossip_distance(gossip)) % gossip->size;
    scripted_send(chat->net, self, chat->endpoints[to], &message, sizeof message);
    peer->sent = true;
    hear_what_came(chat, peer);
}

static void take_a_message(void *context, uint32_t self, uint32_t from, const void *bytes,
                           size_t size)
{
    struct chat *chat = context;
    struct peer *peer = &chat->peers[self];
    struct gossip_message message;
    assert_int_equal(size, sizeof message);
    memcpy(&message, bytes, size);
    if (message.generation != chat->generation)
        return; /* connections are a generation's */
    struct gossip *gossip = &peer->gossip;
    if (message.head.round == gossip->head.round)
        assert_int_equal((rank_of(chat, from) + gossip_distance(gossip)) % gossip->size,
                         gossip->rank);
    peer->inbox[peer->waiting++] = message;
    assert_true(peer->waiting < INBOX_MAX);
    hear_what_came(chat, peer);
}

static const struct scripted_impl gossiping = {.act = take_a_round, .hear = take_a_message};

/* What goes compressed is the difference to 0, first. */
static struct chat *chat_create_with(uint32_t size, uint64_t rounds,
                                     const struct compress_options *compress)
{
    static const float zeros[VALUES];
    struct chat *chat = xcalloc(1, sizeof *chat);
    chat->size = size;
    chat->scale = 1;
    chat->compress = *compress;
    chat->rounds = rounds;
    chat->wish.round = UINT64_MAX;
    chat->net = scripted_create(size, &gossiping, chat);
    for (uint32_t self = 0; self < size; self++) {
        chat->endpoints[self] = self;
        gossip_init(&chat->peers[self].gossip, self, size);
        gossip_known_create(&chat->peers[self].known, VALUES, compress);
        gossip_known_begin(&chat->peers[self].known, size, zeros);
        for (size_t i = 0; i < VALUES; i++)
            chat->peers[self].values[i] = (float)(self * 7 + i);
    }
    return chat;
}

static struct chat *chat_create(uint32_t size, uint64_t rounds)
{
    return chat_create_with(size, rounds, &(struct compress_options){0});
}

static void chat_destroy(struct chat *chat)
{
    scripted_destroy(chat->net);
    for (uint32_t self = 0; self < PEERS_MAX; self++)
        gossip_known_destroy(&chat->peers[self].known);
    free(chat);
}

/* Messages late, twice, and past each other. */
static void chat_draw(struct chat *chat, uint64_t seed, uint32_t events)
{
    static const struct scripted_odds odds = {.acts = 50, .twice = 20, .ahead = 50};
    trp_rng rng;
    trp_rng_init(&rng, seed, chat->size);
    for (uint32_t n = 0; n < events; n++)
        scripted_draw(chat->net, &rng, &odds);
}

static void chat_finish(struct chat *chat)
{
    for (uint64_t round = 0; round <= chat->rounds; round++)
        for (uint32_t rank = 0; rank < chat->size; rank++) {
            char script[32];
            snprintf(script, sizeof script, "* %u", chat->endpoints[rank]);
            scripted_play(chat->net, script);
        }
    scripted_play(chat->net, "*");
    for (uint32_t rank = 0; rank < chat->size; rank++)
        assert_int_equal(chat->peers[chat->endpoints[rank]].gossip.head.round, chat->rounds);
}

/* ---- the rule ------------------------------------------------------------------------------ */

/* Whom rank 0 sends to, written down: 1 2 4 times the numbers without a divisor of the size. */
static const struct {
    uint32_t size;
    uint32_t distances[12];
} partners[] = {
    {2, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}, {3, {1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 1}},
    {4, {1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2}}, {6, {1, 2, 4, 5, 4, 2, 1, 2, 4, 5, 4, 2}},
    {8, {1, 2, 4, 3, 6, 4, 5, 2, 4, 7, 6, 4}}, {9, {1, 2, 4, 8, 2, 4, 8, 7, 4, 8, 7, 5}},
};

static void gossipgrad_partners_go_round(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof partners / sizeof *partners; k++)
        for (uint64_t round = 0; round < 12; round++) {
            struct gossip gossip;
            uint32_t flags;
            gossip_init(&gossip, 0, partners[k].size);
            for (uint64_t n = 0; n < round; n++)
                gossip_end(&gossip, &flags);
            assert_int_equal(gossip_distance(&gossip), partners[k].distances[round]);
        }
}

static void gossipgrad_replays_as_a_reference_in_double(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof partners / sizeof *partners; k++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            uint32_t size = partners[k].size;
            double x[PEERS_MAX][VALUES], before[PEERS_MAX][VALUES];
            struct chat *chat = chat_create(size, 12);
            chat_draw(chat, seed, 60 * size);
            chat_finish(chat);
            for (uint32_t self = 0; self < size; self++)
                for (size_t i = 0; i < VALUES; i++)
                    x[self][i] = self * 7 + (double)i;
            for (uint64_t round = 0; round < 12; round++) {
                for (uint32_t self = 0; self < size; self++)
                    for (size_t i = 0; i < VALUES; i++)
                        before[self][i] = x[self][i] - step_of(self, round, i);
                for (uint32_t self = 0; self < size; self++) {
                    uint32_t to = (self + partners[k].distances[round]) % size;
                    for (size_t i = 0; i < VALUES; i++)
                        x[to][i] = (before[to][i] + before[self][i]) / 2;
                }
            }
            for (uint32_t self = 0; self < size; self++)
                for (size_t i = 0; i < VALUES; i++)
                    assert_float_equal(chat->peers[self].values[i], x[self][i], 1e-4);
            chat_destroy(chat);
        }
}

static const struct compress_options codes[] = {{.kind = COMPRESS_BF16},
                                                {.kind = COMPRESS_F16},
                                                {.kind = COMPRESS_TOP_K, .ratio = 0.25},
                                                {.kind = COMPRESS_TOP_K, .ratio = 1},
                                                {.kind = COMPRESS_ONE_BIT},
                                                {.kind = COMPRESS_QSGD, .bits = 8},
                                                {.kind = COMPRESS_QSGD, .bits = 3}};
enum { EXACT_CODES = 4, CODES = sizeof codes / sizeof *codes };

/* A round of all: h of each distance and rank, in double, and then what they come to. */
static void known_round(const struct compress_options *compress, uint32_t size, uint32_t distance,
                        double x[PEERS_MAX][VALUES], double h[PEERS_MAX][VALUES])
{
    double part = compress->kind == COMPRESS_TOP_K && compress->ratio < 1 ? 0.5 : 1;
    for (uint32_t self = 0; self < size; self++) {
        double difference[VALUES], sent[VALUES];
        for (size_t i = 0; i < VALUES; i++)
            difference[i] = x[self][i] - h[self][i];
        coded_numbers(compress, difference, NULL, VALUES, sent);
        for (size_t i = 0; i < VALUES; i++)
            h[self][i] += sent[i];
    }
    for (uint32_t self = 0; self < size; self++)
        for (size_t i = 0; i < VALUES; i++)
            x[(self + distance) % size][i] +=
                part / 2 * (h[self][i] - h[(self + distance) % size][i]);
}

/* To the bit, with steps of more bits than codes have, in so few rounds that sums are exact. */
static void compressed_gossip_replays_as_a_reference_in_double(void **state)
{
    enum { ROUNDS = 6 };
    (void)state;
    for (size_t k = 0; k < EXACT_CODES * sizeof partners / sizeof *partners; k++) {
        const struct compress_options *compress = &codes[k % EXACT_CODES];
        size_t row = k / EXACT_CODES;
        uint32_t size = partners[row].size;
        double x[PEERS_MAX][VALUES], h[PEERS_MAX][PEERS_MAX][VALUES] = {0};
        struct chat *chat = chat_create_with(size, ROUNDS, compress);
        chat->scale = 977;
        chat_draw(chat, k, 60 * size);
        chat_finish(chat);
        for (uint32_t self = 0; self < size; self++)
            for (size_t i = 0; i < VALUES; i++)
                x[self][i] = self * 7 + (double)i;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint32_t distance = partners[row].distances[round];
            for (uint32_t self = 0; self < size; self++)
                for (size_t i = 0; i < VALUES; i++)
                    x[self][i] -= 977 * step_of(self, round, i);
            known_round(compress, size, distance, x, h[distance]);
        }
        for (uint32_t self = 0; self < size; self++)
            for (size_t i = 0; i < VALUES; i++)
                assert_true((double)chat->peers[self].values[i] == x[self][i]);
        chat_destroy(chat);
    }
}

/* Whatever codes leave, nothing of the sum is lost: once steps rest all come to the mean. */
static void compressed_gossip_keeps_the_mean_and_comes_to_it(void **state)
{
    (void)state;
    for (size_t k = 0; k < CODES; k++)
        for (uint32_t size = 2; size <= PEERS_MAX; size++) {
            struct chat *chat = chat_create_with(size, 20, &codes[k]);
            double mean[VALUES] = {0};
            chat_finish(chat);
            for (uint32_t self = 0; self < size; self++)
                for (size_t i = 0; i < VALUES; i++)
                    mean[i] += (double)(self * 7 + i) / size;
            for (uint32_t self = 0; self < size; self++)
                for (size_t i = 0; i < VALUES; i++)
                    for (uint64_t round = 0; round < 20; round++)
                        mean[i] -= step_of(self, round, i) / size;
            chat->quiet = true;
            chat->rounds = ROUNDS_MAX;
            chat_finish(chat);
            for (uint32_t self = 0; self < size; self++)
                for (size_t i = 0; i < VALUES; i++)
                    assert_float_equal(chat->peers[self].values[i], mean[i], 0.2);
            chat_destroy(chat);
        }
}

/* Long vectors in 3 bits: taken at their word codes would drive the two apart. */
static void noise_of_codes_does_not_grow(void **state)
{
    enum { MANY = 512 };
    static float values[2][MANY], zeros[MANY];
    (void)state;
    struct gossip_known known[2];
    const struct compress_options qsgd = {.kind = COMPRESS_QSGD, .bits = 3};
    double apart[2] = {0};
    for (uint32_t self = 0; self < 2; self++) {
        gossip_known_create(&known[self], MANY, &qsgd);
        gossip_known_begin(&known[self], 2, zeros);
        for (size_t i = 0; i < MANY; i++)
            values[self][i] = (float)((i * 37 + self * 11) % 41);
    }
    for (uint64_t round = 0; round < 300; round++) {
        uint32_t words[2][MANY];
        for (uint32_t self = 0; self < 2; self++)
            assert_int_equal(gossip_known_say(&known[self], 1, round, 2 * round + self,
                                              values[self], words[self]),
                             TRP_OK);
        for (size_t i = 0; i < MANY && round == 0; i++)
            apart[0] += fabs((double)values[0][i] - (double)values[1][i]);
        for (uint32_t self = 0; self < 2; self++)
            assert_int_equal(
                gossip_known_hear(&known[self], 1, round, words[1 - self], values[self]), TRP_OK);
    }
    for (size_t i = 0; i < MANY; i++)
        apart[1] += fabs((double)values[0][i] - (double)values[1][i]);
    assert_true(apart[1] < apart[0] / 8);
    for (uint32_t self = 0; self < 2; self++)
        gossip_known_destroy(&known[self]);
}

static void numbers_beyond_all_codes_are_refused(void **state)
{
    static const float zeros[VALUES];
    (void)state;
    const float unfit[] = {NAN, INFINITY, 0x1p51F};
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++) {
        struct gossip_known known;
        uint32_t words[VALUES];
        float values[VALUES] = {[3] = unfit[i]};
        gossip_known_create(&known, VALUES, &codes[0]);
        gossip_known_begin(&known, 2, zeros);
        assert_int_equal(gossip_known_say(&known, 1, 0, 0, values, words), TRP_INVALID_ARGUMENT);
        memset(words, 0xff, sizeof words);
        assert_int_equal(gossip_known_hear(&known, 1, 0, words, values), TRP_INVALID_ARGUMENT);
        gossip_known_destroy(&known);
    }
}

/* To the bit, from wherever it begins. With other numbers the mean stays, and all come near it. */
static void gossipgrad_has_the_exact_mean_after_log2_p_rounds(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= PEERS_MAX; size++)
        for (uint64_t from = 0; from < 7; from++) {
            uint32_t log2 = 0;
            while (1U << log2 < size)
                log2++;
            bool exact = 1U << log2 == size;
            struct chat *chat = chat_create(size, from);
            chat_finish(chat);
            double mean[VALUES] = {0}, spread = 0;
            for (uint32_t self = 0; self < size; self++)
                for (size_t i = 0; i < VALUES; i++)
                    mean[i] += (double)chat->peers[self].values[i] / size;
            for (uint32_t self = 0; self < size; self++)
                spread = fmax(spread, fabs((double)chat->peers[self].values[0] - mean[0]));
            chat->quiet = true;
            chat->rounds = from + (exact ? log2 : 4 * log2);
            chat_finish(chat);
            for (uint32_t self = 0; self < size; self++)
                for (size_t i = 0; i < VALUES; i++)
                    assert_float_equal(chat->peers[self].values[i], mean[i],
                                       exact ? 0 : 1e-6 + spread / 16);
            chat_destroy(chat);
        }
}

/* One message out and one in, each round. */
static void gossipgrad_sends_one_message_a_round(void **state)
{
    (void)state;
    struct chat *chat = chat_create(8, 20);
    chat_draw(chat, 1, 500);
    chat_finish(chat);
    for (uint32_t self = 0; self < 8; self++) {
        assert_int_equal(scripted_sent(chat->net, self, SCRIPTED_ANY).messages, 20);
        assert_int_equal(scripted_sent(chat->net, SCRIPTED_ANY, self).messages, 20);
        for (uint32_t other = 0; other < 8;
             other++) /* and everybody has been everybody's partner */
            assert_true(other == self || scripted_sent(chat->net, self, other).messages > 0);
    }
    chat_destroy(chat);
}

/* Which all know of after the same round, and nobody before. */
static void all_hear_of_a_wish_after_the_same_round(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= PEERS_MAX; size++)
        for (uint32_t rank = 0; rank < size; rank++)
            for (uint64_t round = 0; round < 9; round++) {
                struct chat *chat = chat_create(size, 24);
                uint32_t span = chat->peers[0].gossip.span;
                chat->wish.rank = rank;
                chat->wish.round = round;
                chat->wish.flag = rank % GOSSIP_FLAGS;
                chat_draw(chat, round, 100);
                chat_finish(chat);
                for (uint32_t self = 0; self < size; self++)
                    for (uint64_t n = 0; n < 24; n++) {
                        bool here = n == round + span - 1;
                        assert_int_equal(chat->peers[self].flags[n],
                                         here ? 1U << chat->wish.flag : 0);
                        assert_int_equal(chat->peers[self].all_know[n], n + 1 >= span);
                    }
                chat_destroy(chat);
            }
}

/* Nobody gets further ahead of who is lost than all that hear of it; those who are left go on from
 * the vector of the one that is furthest. */
static void who_is_left_goes_on_without_the_dead(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct chat *chat = chat_create(5, 60);
        chat_draw(chat, seed, 40);
        scripted_play(chat->net, "1!");
        uint64_t lost_in = chat->peers[1].gossip.head.round, furthest = 0;
        chat_draw(chat, seed + 100, 1500);
        float values[VALUES];
        for (uint32_t self = 0; self < 5; self++) {
            uint64_t round = chat->peers[self].gossip.head.round;
            assert_true(round <= lost_in + chat->peers[self].gossip.span);
            if (self != 1 && round >= furthest) {
                furthest = round;
                memcpy(values, chat->peers[self].values, sizeof values);
            }
        }
        assert_true(furthest >= lost_in);
        chat->generation++;
        chat->size = 4;
        chat->quiet = true;
        chat->rounds = 2;
        for (uint32_t rank = 0; rank < 4; rank++) {
            chat->endpoints[rank] = rank + (rank > 0);
            struct peer *peer = &chat->peers[chat->endpoints[rank]];
            gossip_init(&peer->gossip, rank, 4);
            memcpy(peer->values, values, sizeof values);
            peer->values[0] += (float)rank;
            peer->waiting = 0;
            peer->sent = false;
        }
        chat_finish(chat);
        for (uint32_t rank = 0; rank < 4; rank++)
            assert_float_equal(chat->peers[chat->endpoints[rank]].values[0], values[0] + 1.5, 1e-5);
        chat_destroy(chat);
    }
}

/* ---- learners ------------------------------------------------------------------------------ */

static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 1};

enum { WATCHED = 7 };

static uint32_t span_of(uint32_t members)
{
    struct gossip gossip;
    gossip_init(&gossip, 0, members);
    return gossip.span;
}

/* Number WATCHED of each member as each step begins, and of all as the last one has ended. */
static void check_rule(const struct plan *plan)
{
    static const uint32_t distances[][4] = {
        [1] = {0, 0, 0, 0}, {1, 1, 1, 1}, {1, 2, 2, 1}, {1, 2, 3, 2}};
    struct run *run = run_all(plan);
    double x[MEMBERS_MAX], before[MEMBERS_MAX], sum = 0;
    uint32_t members = plan->members;
    uint64_t rounds = plan->steps + span_of(members) - 1;
    for (uint32_t member = 0; member < members; member++)
        x[member] = (WATCHED * 5 % 11) - 5;
    for (uint64_t step = 1; step <= rounds; step++) {
        for (uint32_t member = 0; member < members; member++) {
            double gradient = 0;
            for (uint32_t row = 0; row < ROWS; row++) {
                uint64_t number = ((step - 1) * members + member) * ROWS + row;
                gradient += (double)gradient_of(plan, (float)number, WATCHED);
            }
            assert_float_equal(run->members[member].began_with[step], x[member], 1e-4);
            before[member] = x[member] - gradient / ROWS;
        }
        for (uint32_t member = 0; member < members; member++) {
            uint32_t to = (member + distances[members][(step - 1) % 4]) % members;
            x[to] = (before[to] + before[member]) / 2;
        }
    }
    for (uint32_t member = 0; member < members; member++)
        sum += x[member];
    for (uint32_t member = 0; member < members; member++) {
        assert_int_equal(run->members[member].status, TRP_OK);
        assert_int_equal(run->members[member].counters.steps, plan->steps);
        assert_float_equal(run->members[member].params[WATCHED], sum / members, 1e-4);
        assert_memory_equal(run->members[member].params, run->members[0].params,
                            NUMBERS * sizeof(float));
    }
    run_free(run);
}

static void gossipgrad_learners_are_by_the_rule_and_end_on_their_mean(void **state)
{
    (void)state;
    for (uint32_t members = 1; members <= 4; members++)
        check_rule(
            &(struct plan){.members = members, .steps = 9, .optimizer = sgd, .mode = "gossip"});
}

static void a_step_sends_a_message_for_each_vector(void **state)
{
    (void)state;
    for (uint32_t members = 2; members <= 4; members++) {
        struct plan plan = {
            .members = members, .steps = 12, .optimizer = sgd, .second = true, .mode = "gossip"};
        struct run *run = run_all(&plan);
        for (uint32_t member = 0; member < members; member++) {
            const trp_collective_counters *sent = run->members[member].sent;
            uint64_t numbers = NUMBERS + NUMBERS / 2 + 1 + NUMBERS;
            for (uint64_t step = 2; step <= 12; step++) {
                assert_int_equal(sent[step].messages_sent - sent[step - 1].messages_sent, 3);
                assert_int_equal(sent[step].bytes_sent - sent[step - 1].bytes_sent,
                                 3 * 64 + numbers * sizeof(float));
            }
        }
        run_free(run);
    }
}

/* The last mean of all is that of learners that send their vectors whole. */
static void learners_that_compress_end_on_the_same_mean(void **state)
{
    (void)state;
    struct plan plan = {
        .members = 4, .steps = 12, .optimizer = sgd, .second = true, .mode = "gossip"};
    struct run *whole = run_all(&plan);
    const char *const kinds[] = {"bf16", "f16", "top-k", "one-bit", "qsgd"};
    const uint64_t words[] = {500 + 251 + 500, 500 + 251 + 500, 2 * (100 + 51 + 100),
                              (2 + 16 + 2 + 16) * 2 + 2 + 16, (1 + 128 + 1 + 122) * 2 + 1 + 126};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        plan.compression = (trp_compression_options){.kind = kinds[k], .ratio = 0.1};
        struct run *run = run_all(&plan);
        for (uint32_t member = 0; member < 4; member++) {
            const struct member *each = &run->members[member];
            if (each->status != TRP_OK)
                fail_msg("%s: member %u: %s", kinds[k], member, each->words);
            check_same(each, &run->members[0]);
            for (size_t i = 0; i < NUMBERS; i++)
                assert_float_equal(each->params[i], whole->members[0].params[i], 1e-2);
            assert_int_equal(each->sent[6].bytes_sent - each->sent[5].bytes_sent,
                             3 * 64 + words[k] * sizeof(float));
        }
        run_free(run);
    }
    run_free(whole);
}

static void who_is_lost_costs_the_step_that_was_going_on(void **state)
{
    (void)state;
    for (enum moment place = AT_BATCH; place <= AT_THE_END; place++) {
        struct plan plan = {.members = 4,
                            .steps = 12,
                            .optimizer = sgd,
                            .second = true,
                            .mode = "gossip",
                            .dies = {.member = place % 4, .step = 5, .place = place}};
        struct run *run = run_all(&plan);
        const struct member *first = &run->members[(place + 1) % 4];
        for (uint32_t member = 0; member < 4; member++) {
            const struct member *each = &run->members[member];
            assert_true((each->status != TRP_OK) == (member == (uint32_t)place % 4));
            if (each->status != TRP_OK)
                continue;
            assert_int_equal(each->counters.steps, 12);
            assert_memory_equal(each->params, first->params, NUMBERS * sizeof(float));
            assert_memory_equal(each->target, first->target, NUMBERS * sizeof(float));
        }
        run_free(run);
    }
}

/* Nobody is lost: all go on from the one with most steps, and none is counted twice or left out, of
 * those that not all had heard of either. */
static void a_generation_that_breaks_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = BEFORE_READY; place <= AT_THE_END; place++)
        for (uint32_t member = 0; member < 4; member++) {
            struct plan plan = {.members = 4,
                                .steps = 12,
                                .optimizer = sgd,
                                .second = true,
                                .constant = true,
                                .mode = "gossip"};
            struct run *smooth = run_all(&plan);
            plan.breaks.member = member;
            plan.breaks.step = 5;
            plan.breaks.place = place;
            struct run *run = run_all(&plan);
            assert_true(run->members[member].has_broken);
            for (uint32_t i = 0; i < 4; i++) {
                if (run->members[i].status != TRP_OK)
                    fail_msg("member %u: %s", i, run->members[i].words);
                assert_int_equal(run->members[i].counters.steps, 12);
                assert_int_equal(run->members[i].counted, smooth->members[i].counted);
                check_same(&run->members[i], &smooth->members[i]);
            }
            run_free(run);
            run_free(smooth);
        }
}

/* Before one joins, the others come to their mean. */
static void who_joins_gets_the_mean(void **state)
{
    (void)state;
    struct plan plan = {.members = 4,
                        .steps = 60,
                        .optimizer = sgd,
                        .mode = "gossip",
                        .dies = {.member = 1, .step = 5, .place = AFTER_READY}};
    plan.joined = trp_stop_create();
    plan.halfway = trp_stop_create();
    struct run *run = run_start(&plan);
    member_join(run, 1);
    member_free(&run->members[1]);
    assert_true(trp_stop_wait(plan.halfway, 20000));
    trp_gang_expect(run->gang, 1);
    member_start(run, 1, 1);
    for (uint32_t i = 0; i < 4; i++)
        member_join(run, i);
    uint64_t first = 1;
    const struct member *joined = &run->members[1];
    while (first < 60 && !joined->seen[first])
        first++;
    assert_in_range(first, 28, 40);
    double sum = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const struct member *each = &run->members[i];
        assert_int_equal(each->status, TRP_OK);
        assert_float_equal(each->began_with[first], joined->began_with[first], 0);
        if (each != joined)
            sum += (double)(each->began_with[first - 1] - each->gradients[first - 1]);
    }
    assert_float_equal(joined->began_with[first], sum / 3, 1e-4);
    run_free(run);
    trp_stop_destroy(plan.joined);
    trp_stop_destroy(plan.halfway);
}

/* They take part without one; when the last one's have ended, all end. */
static void who_has_no_batch_goes_on_with_the_others(void **state)
{
    (void)state;
    struct plan plan = {
        .members = 3, .steps = STEPS_MAX, .optimizer = sgd, .mode = "gossip", .ends_at = {3, 9, 6}};
    struct run *run = run_all(&plan);
    for (uint32_t member = 0; member < 3; member++) {
        assert_int_equal(run->members[member].status, TRP_OK);
        assert_int_equal(run->members[member].batches, plan.ends_at[member] - 1);
        assert_int_equal(run->members[member].counters.steps, 8);
        assert_memory_equal(run->members[member].params, run->members[0].params,
                            NUMBERS * sizeof(float));
    }
    run_free(run);
}

static void one_that_stops_stops_all(void **state)
{
    (void)state;
    struct plan plan = {.members = 4,
                        .steps = STEPS_MAX,
                        .optimizer = sgd,
                        .mode = "gossip",
                        .stops = {.member = 2, .step = 7}};
    struct run *run = run_all(&plan);
    for (uint32_t member = 0; member < 4; member++) {
        assert_int_equal(run->members[member].status, TRP_OK);
        assert_int_equal(run->members[member].counters.steps, run->members[0].counters.steps);
        assert_memory_equal(run->members[member].params, run->members[0].params,
                            NUMBERS * sizeof(float));
    }
    assert_in_range(run->members[0].counters.steps, 6, 10);
    run_free(run);
}

/* Of all, and one for each time that one is due. */
static void a_checkpoint_has_the_mean(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_gossip.XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct plan plan = {.members = 4,
                        .steps = 20,
                        .optimizer = sgd,
                        .mode = "gossip",
                        .checkpoints = dir,
                        .checkpoint_every = 8};
    struct run *run = run_all(&plan);
    assert_int_equal(run->members[0].counters.checkpoints, 3); /* and one at the end */
    plan.resume = true;
    plan.members = 1;
    plan.steps = 21;
    struct run *again = run_all(&plan);
    assert_int_equal(again->members[0].counters.resumed_from, 20);
    assert_float_equal(again->members[0].began_with[21], run->members[3].params[WATCHED], 0);
    run_free(run);
    run_free(again);
    char *command = xasprintf("rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gossipgrad_partners_go_round),
        cmocka_unit_test(gossipgrad_replays_as_a_reference_in_double),
        cmocka_unit_test(compressed_gossip_replays_as_a_reference_in_double),
        cmocka_unit_test(compressed_gossip_keeps_the_mean_and_comes_to_it),
        cmocka_unit_test(noise_of_codes_does_not_grow),
        cmocka_unit_test(numbers_beyond_all_codes_are_refused),
        cmocka_unit_test(gossipgrad_has_the_exact_mean_after_log2_p_rounds),
        cmocka_unit_test(gossipgrad_sends_one_message_a_round),
        cmocka_unit_test(all_hear_of_a_wish_after_the_same_round),
        cmocka_unit_test(who_is_left_goes_on_without_the_dead),
        cmocka_unit_test(gossipgrad_learners_are_by_the_rule_and_end_on_their_mean),
        cmocka_unit_test(a_step_sends_a_message_for_each_vector),
        cmocka_unit_test(learners_that_compress_end_on_the_same_mean),
        cmocka_unit_test(who_is_lost_costs_the_step_that_was_going_on),
        cmocka_unit_test(a_generation_that_breaks_leaves_no_trace),
        cmocka_unit_test(who_joins_gets_the_mean),
        cmocka_unit_test(who_has_no_batch_goes_on_with_the_others),
        cmocka_unit_test(one_that_stops_stops_all),
        cmocka_unit_test(a_checkpoint_has_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
