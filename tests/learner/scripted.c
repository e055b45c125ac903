/* Messages are in one list, in the order in which they were sent. Every event is one of a few that
 * a script can say exactly, so whatever happened can be played again. */
#include "scripted.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"

enum { ALL_EVENTS_MAX = 1 << 20 }; /* more are a loop */

struct scripted_message {
    uint32_t from, to;
    uint64_t number, due;
    uint8_t *bytes;
    size_t size;
};

struct scripted_link {
    uint64_t takes;
    struct scripted_sent sent;
};

struct scripted {
    uint32_t count;
    struct scripted_impl impl;
    void *context;
    bool dead[SCRIPTED_ENDPOINTS_MAX];
    struct scripted_link links[SCRIPTED_ENDPOINTS_MAX][SCRIPTED_ENDPOINTS_MAX];
    struct scripted_message *messages;
    size_t message_count, message_room;
    uint64_t time;
    struct scripted_event *events;
    size_t event_count, event_room;
    char *story; /* of event_count words */
    size_t story_bytes;
};

struct scripted *scripted_create(uint32_t count, const struct scripted_impl *impl, void *context)
{
    assert_in_range(count, 1, SCRIPTED_ENDPOINTS_MAX);
    struct scripted *net = xcalloc(1, sizeof *net);
    net->count = count;
    net->impl = *impl;
    net->context = context;
    net->story = xcalloc(1, 1);
    scripted_delay(net, SCRIPTED_ANY, SCRIPTED_ANY, 1);
    return net;
}

void scripted_destroy(struct scripted *net)
{
    if (!net)
        return;
    for (size_t i = 0; i < net->message_count; i++)
        free(net->messages[i].bytes);
    free(net->messages);
    free(net->events);
    free(net->story);
    free(net);
}

static bool is_any_of(uint32_t asked, uint32_t endpoint)
{
    return asked == (uint32_t)SCRIPTED_ANY || asked == endpoint;
}

void scripted_delay(struct scripted *net, uint32_t from, uint32_t to, uint64_t time)
{
    for (uint32_t a = 0; a < net->count; a++)
        for (uint32_t b = 0; b < net->count; b++)
            if (is_any_of(from, a) && is_any_of(to, b))
                net->links[a][b].takes = time;
}

struct scripted_sent scripted_sent(const struct scripted *net, uint32_t from, uint32_t to)
{
    struct scripted_sent sum = {0};
    for (uint32_t a = 0; a < net->count; a++)
        for (uint32_t b = 0; b < net->count; b++)
            if (is_any_of(from, a) && is_any_of(to, b)) {
                sum.messages += net->links[a][b].sent.messages;
                sum.bytes += net->links[a][b].sent.bytes;
            }
    return sum;
}

void scripted_send(struct scripted *net, uint32_t from, uint32_t to, const void *bytes, size_t size)
{
    assert_true(from < net->count && to < net->count);
    struct scripted_link *link = &net->links[from][to];
    if (net->message_count == net->message_room) {
        net->message_room = 2 * net->message_room + 16;
        net->messages = xrealloc(net->messages, net->message_room * sizeof *net->messages);
    }
    net->messages[net->message_count++] = (struct scripted_message){.from = from,
                                                                    .to = to,
                                                                    .number = link->sent.messages++,
                                                                    .due = net->time + link->takes,
                                                                    .bytes = xmemdup(bytes, size),
                                                                    .size = size};
    link->sent.bytes += size;
}

bool scripted_lives(const struct scripted *net, uint32_t endpoint)
{
    return endpoint < net->count && !net->dead[endpoint];
}

size_t scripted_on_their_way(const struct scripted *net)
{
    return net->message_count;
}

uint64_t scripted_time(const struct scripted *net)
{
    return net->time;
}

const struct scripted_event *scripted_events(const struct scripted *net, size_t *count)
{
    *count = net->event_count;
    return net->events;
}

char *scripted_story(const struct scripted *net)
{
    return xstrdup(net->story);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void note_event(struct scripted *net, struct scripted_event event, const char *word)
{
    if (net->event_count == net->event_room) {
        net->event_room = 2 * net->event_room + 64;
        net->events = xrealloc(net->events, net->event_room * sizeof *net->events);
    }
    net->events[net->event_count++] = event;
    size_t more = strlen(word);
    net->story = xrealloc(net->story, net->story_bytes + more + 2);
    memcpy(net->story + net->story_bytes, word, more);
    memcpy(net->story + net->story_bytes + more, " ", 2);
    net->story_bytes += more + 1;
}

static void happen_to(struct scripted *net, uint32_t self, char sign)
{
    char word[16];
    struct scripted_event event = {.from = self, .to = self};
    event.kind = sign == '!' ? SCRIPTED_KILLED : sign == '^' ? SCRIPTED_BEGINS : SCRIPTED_ACTS;
    snprintf(word, sizeof word, "%" PRIu32 "%.1s", self, sign ? &sign : "");
    note_event(net, event, word);
    net->dead[self] = (net->dead[self] && sign != '^') || sign == '!';
    if (sign == 0 && net->impl.act)
        net->impl.act(net->context, self);
    if (sign == '^' && net->impl.begin)
        net->impl.begin(net->context, self);
}

/* How many older ones are on the same way. */
static size_t older(const struct scripted *net, size_t index)
{
    size_t count = 0;
    for (size_t i = 0; i < index; i++)
        count += net->messages[i].from == net->messages[index].from &&
                 net->messages[i].to == net->messages[index].to;
    return count;
}

static void take_off(struct scripted *net, size_t index)
{
    net->message_count--;
    memmove(net->messages + index, net->messages + index + 1,
            (net->message_count - index) * sizeof *net->messages);
}

/* '>': it arrives; '+': and stays; '-': it is lost. */
static void happen_to_message(struct scripted *net, size_t index, char sign)
{
    struct scripted_message message = net->messages[index];
    char word[48];
    bool lost = sign == '-' || net->dead[message.to];
    snprintf(word, sizeof word, "%" PRIu32 "%c%" PRIu32 "#%zu", message.from, sign, message.to,
             older(net, index));
    note_event(net,
               (struct scripted_event){.kind = lost ? SCRIPTED_LOST : SCRIPTED_ARRIVES,
                                       .from = message.from,
                                       .to = message.to,
                                       .message = message.number},
               word);
    if (sign == '+')
        message.bytes = xmemdup(message.bytes, message.size);
    else
        take_off(net, index);
    if (!lost && net->impl.hear)
        net->impl.hear(net->context, message.to, message.from, message.bytes, message.size);
    free(message.bytes);
}

/* Those that are due, in the order of their times; what is sent meanwhile comes later. */
static void pass_time(struct scripted *net)
{
    net->time++;
    for (;;) {
        size_t next = net->message_count;
        for (size_t i = 0; i < net->message_count; i++)
            if (net->messages[i].due <= net->time &&
                (next == net->message_count || net->messages[i].due < net->messages[next].due))
                next = i;
        if (next == net->message_count)
            return;
        happen_to_message(net, next, '>');
    }
}

static void let_all_arrive(struct scripted *net)
{
    for (size_t i = 0; net->message_count > 0; i++) {
        if (i == ALL_EVENTS_MAX)
            fail_msg("there is no end of messages");
        happen_to_message(net, 0, '>');
    }
}

/* ---- scripts --------------------------------------------------------------------------------- */

static size_t find_message(const struct scripted *net, uint32_t from, uint32_t to, size_t which)
{
    for (size_t i = 0; i < net->message_count; i++)
        if (net->messages[i].from == from && net->messages[i].to == to && which-- == 0)
            return i;
    return net->message_count;
}

/* False: that cannot be. */
static bool play_word(struct scripted *net, const char *word)
{
    uint32_t a = net->count, b;
    size_t which = 0;
    char sign = 0;
    int end = 0, whole = 0;
    if (strcmp(word, ".") == 0 || strcmp(word, "*") == 0) {
        (*word == '.' ? pass_time : let_all_arrive)(net);
        return true;
    }
    if (sscanf(word, "%" SCNu32 "%n%c%n%" SCNu32 "%n#%zu%n", &a, &end, &sign, &end, &b, &whole,
               &which, &whole) >= 3) {
        size_t index = find_message(net, a, b, which);
        if (word[whole] || index == net->message_count || !strchr(">+-", sign))
            return false;
        happen_to_message(net, index, sign);
        return true;
    }
    if (a >= net->count || word[end] || (sign && !strchr("!^", sign)) ||
        net->dead[a] != (sign == '^'))
        return false;
    happen_to(net, a, sign);
    return true;
}

void scripted_play(struct scripted *net, const char *script)
{
    char word[64];
    int used;
    for (const char *at = script; sscanf(at, "%63s%n", word, &used) == 1; at += used)
        if (!play_word(net, word))
            fail_msg("script: '%s' cannot be, %zu bytes before its end; before that: %s", word,
                     strlen(at), net->story);
}

void scripted_draw(struct scripted *net, trp_rng *rng, const struct scripted_odds *odds)
{
    if (net->message_count == 0 || trp_rng_below(rng, 100) < odds->acts) {
        uint32_t self = (uint32_t)trp_rng_below(rng, net->count);
        if (!net->dead[self])
            happen_to(net, self, 0);
        return;
    }
    size_t index = (size_t)trp_rng_below(rng, net->message_count);
    if (trp_rng_below(rng, 100) >= odds->ahead)
        index = find_message(net, net->messages[index].from, net->messages[index].to, 0);
    uint32_t fate = (uint32_t)trp_rng_below(rng, 100);
    happen_to_message(net, index,
                      fate < odds->lost                 ? '-'
                      : fate < odds->lost + odds->twice ? '+'
                                                        : '>');
}
