/* Bounds of actor/ that are no option, with their arithmetic. */
#ifndef TRP_ACTOR_LIMITS_H
#define TRP_ACTOR_LIMITS_H

#include <stdint.h>

enum {
    /* actor/: copies of one environment in one actor: 65 536 CartPoles are 10 MB. */
    ACTOR_COPIES_MAX = 65536,
    /* adder.c: items unconfirmed per copy and at least: 256 items hide 25 ms of a table's answer
     * at 10 000 steps/s, and are little beside a table's error buffer. */
    ADDER_IN_FLIGHT_PER_COPY = 64,
    ADDER_IN_FLIGHT_MIN = 256,
    /* adder.c: the same while the table answers at once: 5 ms of 400 000 steps/s. */
    ADDER_IN_FLIGHT_FAST = 2048,
    /* adder.c: how long items wait for a message's others: of 130 steps/s and more, none is sent
     * before its message is full. */
    ADDER_KEEP_MS = 500,
    /* sequence_adder.c: steps of an item: an hour of Atari at 15 decisions a second. */
    SEQUENCE_MAX = 65536,
    /* The rows of an episode that share a chunk: headers are little beside them, and a copy keeps
     * no more of them. */
    EPISODE_BURST = 64,
    /* adder.c: the name of a column, "next_observation/" and the environment's own. */
    ADDER_NAME_BYTES_MAX = 256,
    /* params_client.c: one pull of a few megabytes takes milliseconds; a learner restarts within
     * a minute. Retries wait 10 ms, doubling up to 640 ms. */
    PARAMS_TIMEOUT_MS = 2000,
    PARAMS_GIVE_UP_MS = 60000,
    PARAMS_RETRY_MS = 10,
    /* params_client.c: between reports of the counts to a learner whose memory is read; how often
     * a version is copied again that was replaced meanwhile before it is asked for in a call. */
    PARAMS_REPORT_MS = 100,
    PARAMS_COPY_TRIES = 4,
    /* actor.c: staleness of a policy that still costs nothing: 20 pulls/s. Deterministic runs
     * know no time and pull every so many steps. */
    ACTOR_PULL_MS = 50,
    ACTOR_PULL_STEPS = 64,
    /* feed.c: how long one wait for an answer lasts before the stop is looked at. */
    ACTOR_FEED_MS = 50,
    /* actor.c: pauses between questions for a version that has to come, and how long it may take:
     * an update of a large network on a slow machine takes minutes. */
    ACTOR_SYNC_MS = 2,
    ACTOR_SYNC_GIVE_UP_MS = 600000,
    /* actor.c: how long one wait for the replay table lasts before the stop is looked at (it is
     * not woken by it, and a wait ends with a question to the server: 20 a second), how long a
     * missing server is waited for, and the last flush: of an actor that did all its steps, and of
     * one that was stopped, when nobody may sample any more and a table that holds back goes on so;
     * another confirms within milliseconds. */
    ACTOR_PUSH_MS = 50,
    ACTOR_REPLAY_GIVE_UP_MS = 60000,
    ACTOR_RETRY_MS = 50,
    ACTOR_FLUSH_MS = 2000,
    ACTOR_STOPPED_FLUSH_MS = 200,
    /* actor.c: finished episodes that the mean return covers. */
    ACTOR_RETURNS = 100,
    /* evaluate.c: copies stepped together: a batch that fits the caches. */
    EVALUATE_COPIES = 128,
    EVALUATE_EPISODES = 100,
    EVALUATE_EPISODES_MAX = 1000000,
    /* Of each copy: longer than episodes usually are by far. 128 copies of a small environment
     * make them in ten seconds or so. */
    EVALUATE_LONG_STEPS = 100000,
    /* recording.c: of one episode: 150 000 frames of 84 x 84. */
    RECORDING_BYTES_MAX = 1 << 30,
};

#endif
