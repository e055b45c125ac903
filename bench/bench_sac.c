/* The whole update of SAC (Haarnoja et al. 2018): targets of the next states, two critics, the
 * policy through them, the temperature, and target critics that follow; with --peer DIR next to
 * eager PyTorch's, on the same number of threads, and the agent's, on one, next to these calls
 * alone. All see one batch again and again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/actor_critic_losses.h>
#include <troupe/distributions.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include <troupe/sac.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "learner/update.h"
#include "median.h"
#include "torch_peer.h"

enum {
    STATE = 17,
    ACTION = 6,
    HIDDEN = 256,
    BATCH = 256,
    CRITICS = 2,
    TURNS = 20,
    STEPS = 25,
    WARM = 20
};

/* One that learns. */
struct network {
    trp_net *net;
    size_t count;
    float *params, *grads, *moments[2];
};

struct sac {
    struct network policy, critics[CRITICS];
    trp_net *forward_critic; /* for targets */
    float *targets[CRITICS]; /* parameters of the target critics */
    float log_alpha, alpha_moments[2];
    uint64_t step;
    trp_rng rng;
    float states[BATCH * STATE], next_states[BATCH * STATE], taken[BATCH * ACTION];
    float rewards[BATCH], discounts[BATCH];
    float mean[BATCH * ACTION], log_std[BATCH * ACTION], noise[BATCH * ACTION];
    float actions[BATCH * ACTION], daction[CRITICS][BATCH * ACTION];
    float log_probs[BATCH], q[CRITICS][BATCH], target[BATCH];
};

static void check(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_sac: %s\n", trp_last_error());
    exit(1);
}

/* ---- networks ------------------------------------------------------------------------------ */

static uint32_t add_body(trp_net_spec *spec, uint32_t from)
{
    static const char *const names[] = {"body.0", "body.1"};
    for (int i = 0; i < 2; i++) {
        trp_layer layer = {
            .kind = TRP_LINEAR, .from = {from}, .size = HIDDEN, .activation = TRP_RELU};
        strcpy(layer.name, names[i]);
        from = trp_net_add(spec, layer);
    }
    return from;
}

static trp_net_spec policy_spec(void)
{
    trp_net_spec spec = {0};
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {STATE}});
    trp_net_add_gaussian(&spec, add_body(&spec, x), ACTION, false);
    return spec;
}

static trp_net_spec critic_spec(void)
{
    trp_net_spec spec = {0};
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {STATE}});
    uint32_t a = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {ACTION}});
    uint32_t both =
        trp_net_add(&spec, (trp_layer){.kind = TRP_CONCAT, .from = {x, a}, .from_count = 2});
    trp_layer value = {
        .kind = TRP_LINEAR, .name = "value", .from = {add_body(&spec, both)}, .size = 1};
    trp_net_output(&spec, trp_net_add(&spec, value));
    return spec;
}

static void network_init(struct network *n, const trp_net_spec *spec, uint32_t threads,
                         trp_rng *rng)
{
    check(trp_net_create(&n->net,
                         &(trp_net_options){.spec = spec, .batch = BATCH, .threads = threads}));
    n->count = trp_net_param_count(spec);
    float **vectors[] = {&n->params, &n->grads, &n->moments[0], &n->moments[1]};
    for (int i = 0; i < 4; i++)
        *vectors[i] = trp_floats_create(n->count);
    trp_net_init(spec, rng, n->params);
}

static void network_cleanup(struct network *n)
{
    trp_net_destroy(n->net);
    trp_floats_destroy(n->params);
    trp_floats_destroy(n->grads);
    trp_floats_destroy(n->moments[0]);
    trp_floats_destroy(n->moments[1]);
}

static void network_step(struct network *n, uint64_t step)
{
    static const trp_optimizer adam = {.learning_rate = 3e-4};
    trp_optimizer_step(&adam, step, 1, n->params, n->grads, n->moments, 0, n->count);
    memset(n->grads, 0, n->count * sizeof *n->grads);
}

/* ---- an update ----------------------------------------------------------------------------- */

/* Actions of the policy, with noise and log-probabilities. */
static trp_gaussian draw(struct sac *s, const float *states)
{
    trp_net_rows rows = {.rows = BATCH, .inputs = {states}, .outputs = {s->mean, s->log_std}};
    trp_net_forward(s->policy.net, s->policy.params, &rows);
    trp_gaussian policy = {.rows = BATCH,
                           .size = ACTION,
                           .mean = s->mean,
                           .log_std = s->log_std,
                           .squashed = true,
                           .least_log_std = -20,
                           .most_log_std = 2};
    trp_gaussian_sample(&policy, &s->rng, s->noise, s->actions, s->log_probs);
    return policy;
}

static void make_targets(struct sac *s)
{
    draw(s, s->next_states);
    for (int i = 0; i < CRITICS; i++)
        trp_net_forward(s->forward_critic, s->targets[i],
                        &(trp_net_rows){.rows = BATCH,
                                        .inputs = {s->next_states, s->actions},
                                        .outputs = {s->q[i]}});
    trp_critic_targets(&(trp_critic_batch){.rows = BATCH,
                                           .rewards = s->rewards,
                                           .discounts = s->discounts,
                                           .next_q = s->q[0],
                                           .next_q2 = s->q[1],
                                           .next_log_probs = s->log_probs,
                                           .temperature = expf(s->log_alpha)},
                       s->target);
}

static void learn_critics(struct sac *s)
{
    for (int i = 0; i < CRITICS; i++) {
        struct network *critic = &s->critics[i];
        trp_net_rows rows = {.rows = BATCH, .inputs = {s->states, s->taken}, .outputs = {s->q[i]}};
        trp_net_forward(critic->net, critic->params, &rows);
        trp_value_loss(&(trp_value_batch){.rows = BATCH, .targets = s->target}, s->q[i], NULL,
                       s->q[i]);
        trp_net_backward(critic->net, critic->params, &rows,
                         &(trp_net_grads){.outputs = {s->q[i]}, .params = critic->grads});
        network_step(critic, s->step);
    }
}

static void learn_policy(struct sac *s)
{
    trp_gaussian policy = draw(s, s->states);
    trp_net_rows rows[CRITICS];
    for (int i = 0; i < CRITICS; i++) {
        rows[i] =
            (trp_net_rows){.rows = BATCH, .inputs = {s->states, s->actions}, .outputs = {s->q[i]}};
        trp_net_forward(s->critics[i].net, s->critics[i].params, &rows[i]);
    }
    double mean = 0;
    for (int i = 0; i < BATCH; i++)
        mean += (double)s->log_probs[i] / BATCH;
    trp_sac_policy_loss(&(trp_sac_batch){.rows = BATCH,
                                         .q = s->q[0],
                                         .q2 = s->q[1],
                                         .log_probs = s->log_probs,
                                         .temperature = expf(s->log_alpha)},
                        s->q[0], s->q[1], s->log_probs);
    for (int i = 0; i < CRITICS; i++)
        trp_net_backward(s->critics[i].net, s->critics[i].params, &rows[i],
                         &(trp_net_grads){.outputs = {s->q[i]}, .inputs = {NULL, s->daction[i]}});
    for (int i = 0; i < BATCH * ACTION; i++)
        s->daction[0][i] += s->daction[1][i];
    trp_gaussian_backward(&policy, &(trp_gaussian_grads){.noise = s->noise,
                                                         .sample_actions = s->daction[0],
                                                         .sample_log_probs = s->log_probs,
                                                         .mean = s->mean,
                                                         .log_std = s->log_std});
    trp_net_backward(
        s->policy.net, s->policy.params,
        &(trp_net_rows){.rows = BATCH, .inputs = {s->states}, .outputs = {s->mean, s->log_std}},
        &(trp_net_grads){.outputs = {s->mean, s->log_std}, .params = s->policy.grads});
    network_step(&s->policy, s->step);
    float dlog, *moments[2] = {&s->alpha_moments[0], &s->alpha_moments[1]};
    trp_multiplier_loss(s->log_alpha, (float)mean, ACTION, &dlog);
    trp_optimizer_step(&(trp_optimizer){.learning_rate = 3e-4}, s->step, 1, &s->log_alpha, &dlog,
                       moments, 0, 1);
}

static void follow(struct sac *s)
{
    for (int i = 0; i < CRITICS; i++)
        for (size_t k = 0; k < s->critics[i].count; k++)
            s->targets[i][k] += 0.005f * (s->critics[i].params[k] - s->targets[i][k]);
}

static void update(void *sac)
{
    struct sac *s = sac;
    s->step++;
    make_targets(s);
    learn_critics(s);
    learn_policy(s);
    follow(s);
}

/* ---- times --------------------------------------------------------------------------------- */

static void fill(trp_rng *rng, float *values, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++)
        values[i] = scale * (float)trp_rng_normal(rng);
}

static struct sac *sac_create(uint32_t threads)
{
    struct sac *s = xcalloc(1, sizeof *s);
    trp_net_spec policy = policy_spec(), critic = critic_spec();
    trp_rng_init(&s->rng, 1, 0);
    network_init(&s->policy, &policy, threads, &s->rng);
    for (int i = 0; i < CRITICS; i++) {
        network_init(&s->critics[i], &critic, threads, &s->rng);
        s->targets[i] = trp_floats_create(s->critics[i].count);
        memcpy(s->targets[i], s->critics[i].params, s->critics[i].count * sizeof(float));
    }
    check(trp_net_create(&s->forward_critic, &(trp_net_options){.spec = &critic,
                                                                .batch = BATCH,
                                                                .threads = threads,
                                                                .forward_only = true}));
    fill(&s->rng, s->states, (size_t)BATCH * STATE, 1);
    fill(&s->rng, s->next_states, (size_t)BATCH * STATE, 1);
    fill(&s->rng, s->taken, (size_t)BATCH * ACTION, 0.3f);
    fill(&s->rng, s->rewards, BATCH, 1);
    for (int i = 0; i < BATCH; i++)
        s->discounts[i] = 0.99f;
    return s;
}

static void sac_destroy(struct sac *s)
{
    network_cleanup(&s->policy);
    for (int i = 0; i < CRITICS; i++) {
        network_cleanup(&s->critics[i]);
        trp_floats_destroy(s->targets[i]);
    }
    trp_net_destroy(s->forward_critic);
    free(s);
}

/* The median over turns of a few updates each. */
static double median_us(void (*one)(void *), void *context)
{
    double us[TURNS];
    for (int i = 0; i < WARM; i++)
        one(context);
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start = clock_now_ns(&clock_monotonic);
        for (int i = 0; i < STEPS; i++)
            one(context);
        us[turn] = (double)(clock_now_ns(&clock_monotonic) - start) / 1e3 / STEPS;
    }
    return median(us, TURNS);
}

static double update_us(uint32_t threads)
{
    struct sac *s = sac_create(threads);
    double us = median_us(update, s);
    if (!isfinite(s->q[0][0]) || !isfinite(s->log_alpha))
        check(trp_fail(TRP_INTERNAL, "what is learned is not finite any more"));
    sac_destroy(s);
    return us;
}

/* ---- the agent ----------------------------------------------------------------------------- */

struct agent_run {
    struct trp_update_run run;
    trp_batch batch;
    uint64_t step;
};

static void agent_update(void *context)
{
    struct agent_run *agent = context;
    check(update_step(&agent->run, ++agent->step, &agent->batch));
}

static double agent_us(void)
{
    static const float low[ACTION] = {-1, -1, -1, -1, -1, -1}, high[ACTION] = {1, 1, 1, 1, 1, 1};
    static const trp_env_spec env = {
        .name = "bench",
        .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {STATE}}},
        .action_kind = TRP_ACTION_BOX,
        .action_count = ACTION,
        .action_low = low,
        .action_high = high};
    struct agent_run agent = {.batch = {.rows = BATCH}};
    trp_agent sac = trp_sac(&(trp_sac_options){.hidden = {HIDDEN, HIDDEN}, .batch_size = BATCH});
    trp_updater *updater;
    check(sac.impl->updater(&sac, &env, &(trp_updater_options){.batch_size = BATCH}, &updater));
    check(update_prepare(&agent.run, updater, 1));
    const trp_columns *columns = &updater->sources[0].columns;
    void **rows = xcalloc(columns->count, sizeof *rows);
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (size_t i = 0; i < columns->count; i++) {
        size_t bytes = BATCH * trp_tensor_bytes(&columns->specs[i]);
        rows[i] = xcalloc(1, bytes);
        if (columns->specs[i].dtype == TRP_FLOAT32)
            fill(&rng, rows[i], bytes / sizeof(float), 0.3f);
    }
    agent.batch.columns = rows;
    double us = median_us(agent_update, &agent);
    update_cleanup(&agent.run);
    for (size_t i = 0; i < columns->count; i++)
        free(rows[i]);
    free(rows);
    trp_updater_destroy(updater);
    return us;
}

int main(int argc, char **argv)
{
    const char *peer = torch_peer_dir(argc, argv);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (uint32_t threads = 1; threads <= 2 && (long)threads <= online; threads++) {
        double theirs = torch_peer_us(peer, threads == 1 ? "torch_sac.py 1" : "torch_sac.py 2");
        double ours = update_us(threads);
        if (threads == 1)
            printf("SAC agent's update, MLP 2x256, batch 256\t%.1f\tus\t%.1f\tits calls alone\n",
                   agent_us(), ours);
        printf("SAC update, MLP 2x256, batch 256 (%u thread%s)\t%.1f\tus", threads,
               threads > 1 ? "s" : "", ours);
        if (theirs > 0)
            printf("\t0.0\t-\t%.1f\tPyTorch eager", theirs);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
