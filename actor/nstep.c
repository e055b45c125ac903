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
    const struct nstep_sizes *sizes;
    bool running;
    uint32_t oldest, count; /* of the ring; count <= n_step */
    struct step *steps;     /* n_step */
    uint8_t *observations;  /* n_step blobs: what each step acted on */
    uint8_t *choices;       /* n_step blobs */
    uint8_t *latest;        /* a blob: what the next step acts on */
};

struct nstep_window *nstep_create(const struct nstep_sizes *sizes)
{
    struct nstep_window *window = xcalloc(1, sizeof *window);
    window->sizes = sizes;
    window->steps = xcalloc(sizes->n_step, sizeof *window->steps);
    window->observations = xcalloc(sizes->n_step, sizes->observation.size);
    window->choices = xcalloc(sizes->n_step, sizes->choice.size);
    window->latest = xcalloc(1, sizes->observation.size);
    return window;
}

void nstep_destroy(struct nstep_window *window)
{
    if (!window)
        return;
    free(window->steps);
    free(window->observations);
    free(window->choices);
    free(window->latest);
    free(window);
}

void nstep_first(struct nstep_window *window, const void *const *observations)
{
    window->running = true;
    window->count = 0;
    blob_fill(&window->sizes->observation, window->latest, observations);
}

static void drop_oldest(struct nstep_window *window)
{
    window->oldest = (window->oldest + 1) % window->sizes->n_step;
    window->count--;
}

static void keep(struct nstep_window *window, const trp_transition *transition)
{
    const struct nstep_sizes *sizes = window->sizes;
    uint32_t slot = (window->oldest + window->count) % sizes->n_step;
    window->steps[slot] = (struct step){.reward = transition->reward,
                                        .discount = transition->discount,
                                        .version = transition->version};
    memcpy(window->observations + slot * sizes->observation.size, window->latest,
           sizes->observation.size);
    const void *choice[BLOB_PARTS_MAX] = {transition->action};
    for (size_t i = 1; i < sizes->choice.count; i++)
        choice[i] = transition->extras[i - 1];
    blob_fill(&sizes->choice, window->choices + slot * sizes->choice.size, choice);
    window->count++;
}

/* The whole window as one item: R and D as include/troupe/actor.h defines them. */
static void emit_window(const struct nstep_window *window, const trp_transition *newest,
                        nstep_emit emit, void *context)
{
    double reward = 0, factor = 1, discount = 1;
    for (uint32_t k = 0; k < window->count; k++) {
        const struct step *step = &window->steps[(window->oldest + k) % window->sizes->n_step];
        reward += factor * step->reward;
        factor *= window->sizes->discount * step->discount;
        discount *= step->discount * (k > 0 ? window->sizes->discount : 1);
    }
    uint32_t slot = window->oldest;
    struct nstep_item item = {
        .observation = window->observations + slot * window->sizes->observation.size,
        .choice = window->choices + slot * window->sizes->choice.size,
        .next_observations = newest->next_observations,
        .next_mask = newest->next_mask,
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
    if (window->count == window->sizes->n_step)
        drop_oldest(window);
    keep(window, transition);
    emit_window(window, transition, emit, context);
    if (!transition->last) {
        blob_fill(&window->sizes->observation, window->latest, transition->next_observations);
        return;
    }
    while (window->count > 1) {
        drop_oldest(window);
        emit_window(window, transition, emit, context);
    }
    window->count = 0;
    window->running = false;
}
