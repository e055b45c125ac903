/* n-step returns. A window holds the last n steps of one copy's episode as a ring. Every new step
 * emits the window that starts at its oldest step; the end of the episode then emits what is left,
 * oldest step dropped one at a time. The sums are made anew for each item, in double and in order
 * of time, so that an item depends on its own steps only: nothing drifts over an episode. */
#include "nstep.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

struct step {
    float reward, discount;
    uint64_t version;
};

struct nstep_window {
    struct nstep_sizes sizes;
    bool running;
    uint32_t oldest, count;      /* of the ring; count <= n_step */
    struct step *steps;          /* n_step */
    uint8_t *observations;       /* n_step rows: what each step acted on */
    uint8_t *actions;            /* n_step rows */
    uint8_t *latest_observation; /* what the next step acts on */
};

struct nstep_window *nstep_create(const struct nstep_sizes *sizes)
{
    struct nstep_window *window = xcalloc(1, sizeof *window);
    window->sizes = *sizes;
    window->steps = xcalloc(sizes->n_step, sizeof *window->steps);
    window->observations = xcalloc(sizes->n_step, sizes->observation_bytes);
    window->actions = xcalloc(sizes->n_step, sizes->action_bytes);
    window->latest_observation = xcalloc(1, sizes->observation_bytes);
    return window;
}

void nstep_destroy(struct nstep_window *window)
{
    if (!window)
        return;
    free(window->steps);
    free(window->observations);
    free(window->actions);
    free(window->latest_observation);
    free(window);
}

void nstep_first(struct nstep_window *window, const void *observation)
{
    window->running = true;
    window->count = 0;
    memcpy(window->latest_observation, observation, window->sizes.observation_bytes);
}

static void drop_oldest(struct nstep_window *window)
{
    window->oldest = (window->oldest + 1) % window->sizes.n_step;
    window->count--;
}

static void keep(struct nstep_window *window, const trp_transition *transition)
{
    uint32_t slot = (window->oldest + window->count) % window->sizes.n_step;
    size_t observation_bytes = window->sizes.observation_bytes;
    size_t action_bytes = window->sizes.action_bytes;
    window->steps[slot] = (struct step){.reward = transition->reward,
                                        .discount = transition->discount,
                                        .version = transition->version};
    memcpy(window->observations + slot * observation_bytes, window->latest_observation,
           observation_bytes);
    memcpy(window->actions + slot * action_bytes, transition->action, action_bytes);
    window->count++;
}

/* The whole window as one item: R and D as include/troupe/actor.h defines them. */
static void emit_window(const struct nstep_window *window, const void *next_observation,
                        nstep_emit emit, void *context)
{
    double reward = 0, factor = 1, discount = 1;
    for (uint32_t k = 0; k < window->count; k++) {
        const struct step *step = &window->steps[(window->oldest + k) % window->sizes.n_step];
        reward += factor * step->reward;
        factor *= window->sizes.discount * step->discount;
        discount *= step->discount * (k > 0 ? window->sizes.discount : 1);
    }
    uint32_t slot = window->oldest;
    struct nstep_item item = {
        .observation = window->observations + slot * window->sizes.observation_bytes,
        .action = window->actions + slot * window->sizes.action_bytes,
        .next_observation = next_observation,
        .reward = (float)reward,
        .discount = (float)discount,
        .version = window->steps[slot].version,
    };
    emit(context, &item);
}

void nstep_add(struct nstep_window *window, const trp_transition *transition, nstep_emit emit,
               void *context)
{
    assert(window->running);
    if (window->count == window->sizes.n_step)
        drop_oldest(window);
    keep(window, transition);
    emit_window(window, transition->next_observation, emit, context);
    if (!transition->last) {
        memcpy(window->latest_observation, transition->next_observation,
               window->sizes.observation_bytes);
        return;
    }
    while (window->count > 1) {
        drop_oldest(window);
        emit_window(window, transition->next_observation, emit, context);
    }
    window->count = 0;
    window->running = false;
}
