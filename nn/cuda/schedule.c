/* Works are taken in the list's order. For each it is known how far each lane is sure to have come
 * when it begins: a vector clock, made of that of the work before it in its lane and of those that
 * it waits for. A work goes to the lane of the last one that it has to follow, if nobody has gone
 * there since, and waits for those others whom its clock does not cover. Afterwards each wait is
 * left out that the others make up for. */
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum { NOBODY = UINT32_MAX };

/* Of each lane, the works up to this place in it, counted from 1, are done. */
struct lane_clock {
    uint32_t reached[SCHEDULE_LANES];
};

/* What is known while a schedule is made. */
struct scheduling {
    struct cuda_schedule *schedule;
    uint32_t *places;               /* of each work in its lane, from 1 on */
    struct lane_clock *clocks;      /* of each work when it is done */
    uint32_t tails[SCHEDULE_LANES]; /* the last work of each lane; NOBODY */
};

static void clock_raise(struct lane_clock *clock, const struct lane_clock *by)
{
    for (uint32_t i = 0; i < SCHEDULE_LANES; i++)
        if (by->reached[i] > clock->reached[i])
            clock->reached[i] = by->reached[i];
}

static bool covers(const struct scheduling *s, const struct lane_clock *clock, uint32_t work)
{
    return clock->reached[s->schedule->steps[work].lane] >= s->places[work];
}

/* The lane whose last work is the latest of those that `work` has to follow; else the one where
 * least is waiting. */
static uint32_t choose_lane(const struct scheduling *s, uint32_t work)
{
    const struct cuda_work *works = s->schedule->list->works;
    uint32_t best = NOBODY, idle = 0;
    for (uint32_t lane = 0; lane < SCHEDULE_LANES; lane++) {
        uint32_t tail = s->tails[lane];
        if (tail != NOBODY && works_conflict(&works[tail], &works[work]) &&
            (best == NOBODY || tail > s->tails[best]))
            best = lane;
        bool earlier = s->tails[idle] != NOBODY && (tail == NOBODY || tail < s->tails[idle]);
        idle = earlier ? lane : idle;
    }
    return best != NOBODY ? best : idle;
}

/* When a work begins, as far as its lane says. */
static struct lane_clock clock_of_lane(const struct scheduling *s, uint32_t lane)
{
    static const struct lane_clock beginning;
    return s->tails[lane] == NOBODY ? beginning : s->clocks[s->tails[lane]];
}

static void enter_lane(struct scheduling *s, uint32_t work, struct lane_clock clock)
{
    struct cuda_step *step = &s->schedule->steps[work];
    uint32_t tail = s->tails[step->lane];
    s->places[work] = tail == NOBODY ? 1 : s->places[tail] + 1;
    clock.reached[step->lane] = s->places[work];
    s->clocks[work] = clock;
    s->tails[step->lane] = work;
}

static void place_work(struct scheduling *s, uint32_t work)
{
    const struct cuda_work *works = s->schedule->list->works;
    struct cuda_step *step = &s->schedule->steps[work];
    *step = (struct cuda_step){.lane = choose_lane(s, work)};
    struct lane_clock clock = clock_of_lane(s, step->lane);
    for (uint32_t before = work; before-- > 0;)
        if (!covers(s, &clock, before) && works_conflict(&works[before], &works[work])) {
            step->waits[step->wait_count++] = before; /* the last one of its lane: one each */
            clock_raise(&clock, &s->clocks[before]);
        }
    enter_lane(s, work, clock);
}

/* A wait for a work is made up for where the other waits, and the lane, cover it. */
static void drop_waits(const struct scheduling *s, uint32_t work, uint32_t lane_tail)
{
    struct cuda_step *step = &s->schedule->steps[work];
    for (uint32_t i = 0; i < step->wait_count;) {
        static const struct lane_clock beginning;
        struct lane_clock clock = lane_tail == NOBODY ? beginning : s->clocks[lane_tail];
        for (uint32_t k = 0; k < step->wait_count; k++)
            if (k != i)
                clock_raise(&clock, &s->clocks[step->waits[k]]);
        if (covers(s, &clock, step->waits[i]))
            step->waits[i] = step->waits[--step->wait_count];
        else
            i++;
    }
}

void schedule_make(struct cuda_schedule *schedule, const struct cuda_list *list)
{
    *schedule = (struct cuda_schedule){list, xcalloc(list->count + 1, sizeof *schedule->steps)};
    struct scheduling s = {schedule,
                           xcalloc(list->count + 1, sizeof *s.places),
                           xcalloc(list->count + 1, sizeof *s.clocks),
                           {NOBODY, NOBODY, NOBODY, NOBODY}};
    _Static_assert(SCHEDULE_LANES == 4, "as many are nobody's");
    for (uint32_t work = 0; work < list->count; work++) {
        uint32_t tails[SCHEDULE_LANES];
        memcpy(tails, s.tails, sizeof tails);
        place_work(&s, work);
        drop_waits(&s, work, tails[schedule->steps[work].lane]);
    }
    free(s.clocks);
    free(s.places);
}

void schedule_cleanup(struct cuda_schedule *schedule)
{
    free(schedule->steps);
    *schedule = (struct cuda_schedule){0};
}

bool schedule_orders(const struct cuda_schedule *schedule, uint32_t first, uint32_t then)
{
    bool *after = xcalloc(then + 1, sizeof *after); /* those that are sure to follow `first` */
    after[first] = true;
    for (uint32_t work = first + 1; work <= then; work++) {
        const struct cuda_step *step = &schedule->steps[work];
        for (uint32_t before = work; before-- > first && !after[work];)
            if (schedule->steps[before].lane == step->lane) {
                after[work] = after[before];
                break;
            }
        for (uint32_t i = 0; i < step->wait_count; i++)
            after[work] = after[work] || (step->waits[i] >= first && after[step->waits[i]]);
    }
    bool orders = after[then];
    free(after);
    return orders;
}
