/* Bounds of learner/modes/ that are no option, with their arithmetic. */
#ifndef TRP_LEARNER_MODES_LIMITS_H
#define TRP_LEARNER_MODES_LIMITS_H

enum {
    /* learners.c: how long the next generation is waited for before the stop is looked at. */
    LEARNERS_LOOK_MS = 200,
};

#endif
