/* What updaters that learn from unrolls share: a network on a device, one vector, one source, and
 * what they look at before they use a batch. */
#ifndef TRP_AGENTS_UNROLL_UPDATER_H
#define TRP_AGENTS_UNROLL_UPDATER_H

#include "room.h"
#include "unroll.h"

enum { UNROLL_PARAMS };

struct unroll_updater {
    trp_updater base;
    const char *who;
    uint32_t rows; /* of an item */
    struct action_space space;
    trp_net_spec spec;
    trp_net *net;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    struct torso_image image;
    size_t x_bytes, action_bytes; /* of a row */
    const char *action_column;
    struct room room;                    /* that this lies in: */
    uint8_t *pixels;                     /* rows of the image; NULL: as they come */
    int32_t *sizes;                      /* of the action space */
    struct actor_critic_outputs outputs; /* of all rows of a batch */
};

/* Fills a zeroed one in. `optimizer` is that of its vector. Fails as unroll_check_batch()
 * and trp_net_create(); then, too, the updater is to be destroyed. */
TRP_MUST_USE trp_status unroll_updater_init(struct unroll_updater *updater,
                                            const struct unroll *unroll, const trp_env_spec *env,
                                            const trp_updater_options *options,
                                            const trp_optimizer *optimizer);

/* Of everything but the memory of the struct itself. */
void unroll_updater_cleanup(struct unroll_updater *updater);

/* trp_updater_impl.init. */
void unroll_updater_draw(trp_updater *base, trp_rng *rng, float *const *vectors);

/* DATA_LOSS names the item of the batch that would be indexed out of bounds, and its column. */
TRP_MUST_USE trp_status unroll_updater_check(const struct unroll_updater *updater,
                                             const trp_update *update);

/* In a batch. */
uint32_t unroll_updater_rows(const struct unroll_updater *updater, const trp_update *update);

/* A pass of `rows` of `x`, as the network reads them, into the outputs. */
trp_net_rows unroll_updater_pass(const struct unroll_updater *updater, const trp_update *update,
                                 const void *x, uint32_t rows);

/* The outputs of such a pass as decisions, beside `mask` and `actions` of the same rows. */
struct decisions unroll_updater_decisions(const struct unroll_updater *updater,
                                          const trp_update *update, uint32_t rows, const bool *mask,
                                          const void *actions);

/* Adds the gradient of the pass, whose outputs were overwritten by theirs. */
void unroll_updater_backward(struct unroll_updater *updater, const trp_update *update,
                             const trp_net_rows *pass);

/* Reports how many versions of the parameters, in the mean over items, were published since the
 * one that their first rows are of: "lag". Nothing where no item says it. */
void unroll_updater_report_lag(const trp_update *update);

#endif
