/* What the environments of bsuite share: their experiments, their argument, and what is counted. */
#ifndef TRP_ENVS_BSUITE_H
#define TRP_ENVS_BSUITE_H

#include <stddef.h>

#include <troupe/bsuite.h>
#include <troupe/env.h>

enum { BSUITE_SETTINGS_MAX = 23, BSUITE_PER_LEVEL = 4 };

enum bsuite_variant { BSUITE_PLAIN, BSUITE_NOISE, BSUITE_SCALE };

/* How the regret of an episode becomes a score. */
enum bsuite_rule {
    BSUITE_RATIO,     /* how far it lies below `base` */
    BSUITE_THRESHOLD, /* whether it does */
    BSUITE_SOLVED,    /* instead: whether the chest was found before chance would find it */
};

/* Runs that are averaged before they are scored. */
enum bsuite_groups { BSUITE_TOGETHER, BSUITE_BY_LEVEL, BSUITE_BY_SETTING };

struct bsuite_experiment {
    trp_bsuite_experiment public; /* first: the one is found by the other */
    enum bsuite_variant variant;
    enum bsuite_rule rule;
    enum bsuite_groups groups;
    double ideal;    /* total of a perfect episode; NaN: the total is the regret */
    double base;     /* regret that scores 0 */
    double good;     /* half of the score is that an episode's return was above it; 0: no */
    double bad_rate; /* BSUITE_SOLVED: fewer episodes than that went wrong ... */
    int64_t from;    /* ... at an episode of the log, this or later */
};

/* The argument `setting`, and what of it is the same for all. */
struct bsuite_arguments {
    uint32_t setting;
    const struct bsuite_experiment *experiment;
    double noise, scale; /* of rewards: a deviation, a factor */
};

/* What a copy did since it was made: resets leave it alone. */
struct bsuite_count {
    int64_t episode;
    double total, best;
    double running; /* of the episode, where the best one's is asked for; a reset begins it */
};

/* What the state of every copy begins with; what is saved is all behind the pointer. */
struct bsuite_copy {
    const struct bsuite_arguments *arguments;
    struct bsuite_count count;
};

enum { BSUITE_SAVED_AT = offsetof(struct bsuite_copy, count) };

/* WORD_table: the options of "bsuite/WORD", whose arguments are an ARGUMENTS that begins with
 * struct bsuite_arguments `base`. */
#define BSUITE_OPTIONS(word, arguments, last)                                                      \
    static const trp_option word##_rows[] = {                                                      \
        {.name = "setting",                                                                        \
         .type = TRP_OPTION_U32,                                                                   \
         .offset = offsetof(arguments, base.setting),                                              \
         .bytes = sizeof(uint32_t),                                                                \
         .max = last,                                                                              \
         .help = "of bsuite's sweep"},                                                             \
    };                                                                                             \
    static const trp_option_table word##_table =                                                   \
        TRP_OPTION_TABLE("bsuite/" #word, word##_rows, arguments)

/* What configure of an environment begins with: its infos and struct bsuite_arguments are set. */
trp_status bsuite_configure(void *arguments, void *user, trp_env_spec *spec);

trp_status bsuite_create(void *state, const void *arguments, void *user);

/* Numbers that are dense where they are small: lengths of chains and the like. */
int32_t bsuite_log_spaced(uint32_t setting);

/* How many cells a side of the sea has. */
int32_t bsuite_deep_sea_size(uint32_t setting);

/* A task's reward as the agent sees it: bsuite's RewardNoise and RewardScale. */
float bsuite_reward(const struct bsuite_copy *copy, trp_rng *rng, double reward);

/* Adds to the total of the run and of the episode. */
void bsuite_add(struct bsuite_copy *copy, double amount);

/* The episode terminates: counts it and says the infos. */
void bsuite_end(struct bsuite_copy *copy, trp_env_outcome *outcome);

/* For load: INVALID_ARGUMENT, the count can be none. */
TRP_MUST_USE trp_status bsuite_check_count(const struct bsuite_copy *copy);

#endif
