/* What tests tell fake_dnn.c, and what it tells them. */
#ifndef TRP_TESTS_FAKE_DNN_H
#define TRP_TESTS_FAKE_DNN_H

#include <stdbool.h>

/* In the order in which it recommends them. */
enum fake_engine {
    FAKE_ANY_ORDER, /* sums in any order */
    FAKE_TF32,      /* factors of ten bits */
    FAKE_HALVES,    /* rounded to halves */
    FAKE_WINOGRAD,
    FAKE_GREEDY, /* wants a gigabyte */
    FAKE_EXACT,  /* with a workspace, where images are odd */
    FAKE_PLAIN,  /* what is left if nothing else is: the fallback's */
    FAKE_ENGINES,
};

struct fake_dnn {
    unsigned calls, fails_at; /* the call of that number, from 1 on, fails */
    bool only_fallback;       /* the other heuristic has nothing */
    bool none;                /* no heuristic has anything */
    unsigned descriptors;     /* that there are */
    unsigned plans;           /* that were made */
    unsigned runs[FAKE_ENGINES];
};

#endif
