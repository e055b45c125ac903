/* Learners whose pushes to servers go compressed: what comes whole is as good as a plain push,
 * through lost answers and restarts; bytes are as the formulas say; what is no code is refused. */
#include "tests/learner/server/sites.h"

#include <math.h>

/* Sent whole, whatever its way, it is a push like others: answers get lost, servers begin again
 * from their logs, and to the bit it is what one learns alone. */
static void compressed_pushes_count_once_and_are_in_the_log(void **state)
{
    (void)state;
    for (size_t k = 0; k < RATES; k++) {
        struct site site;
        float params[COUNT], expected[COUNT];
        site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, false);
        for (size_t i = 0; i < SERVERS; i++)
            site.lines[i].lose_every = (uint32_t)i + 1;
        learn(&(struct lesson){.optimizer = &rates[k],
                               .site = &site,
                               .steps = 20,
                               .happens = restart_in_turn,
                               .context = &site,
                               .compression = {.kind = "top-k", .ratio = 1}},
              params);
        learn_alone(&rates[k], 20, expected);
        for (size_t i = 0; i < COUNT; i++)
            assert_float_equal(params[i], expected[i], rates[k].max_norm > 0 ? 1e-5F : 0);
        assert_int_equal(trp_parameter_server_read(site.lines[0].server).pushes, 20);
        assert_true(site.lines[0].pushes > 20);
        site_end(&site);
    }
}

/* With SGD, values are the first ones less all that was pushed: the rest is of less than a step. */
static void compressed_pushes_are_as_long_as_the_formulas_say_and_learn(void **state)
{
    static const trp_optimizer sgd = {.kind = TRP_SGD, .learning_rate = 0.125};
    static const struct {
        trp_compression_options compression;
        uint64_t bytes; /* of a push to all servers, in runs of 336; 176 and 160; 328 numbers */
    } rows[] = {{{.kind = "bf16"}, 2000},
                {{.kind = "f16"}, 2000},
                {{.kind = "one-bit"}, 4 * 8 + 4 * (11 + 6 + 5 + 11)},
                {{.kind = "qsgd", .bits = 8}, 1000 + 4 * 4},
                {{.kind = "top-k", .ratio = 0.25}, 2000}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct site site;
        float params[COUNT];
        uint64_t bytes = 0, steps = 60, runs = strcmp(rows[k].compression.kind, "top-k") ? 4 : 0;
        site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_SYNC}, true);
        learn(&(struct lesson){.optimizer = &sgd,
                               .site = &site,
                               .steps = steps,
                               .compression = rows[k].compression},
              params);
        for (size_t i = 0; i < SERVERS; i++)
            bytes += trp_parameter_server_read(site.lines[i].server).push_bytes;
        assert_int_equal(bytes, steps * (rows[k].bytes + 8 * runs));
        double away = 0;
        for (size_t i = 0; i < COUNT; i++) /* gradients are v - i % 11 + 0, 1 or 2 */
            away += fabs((double)params[i] - (double)(i % 11) + 1) / COUNT;
        assert_true(away < 0.75);
        site_end(&site);
    }
}

static void no_push(struct line *line, Troupe__ServerPushRequest request, const char *why)
{
    Troupe__ServerPushReply *reply;
    request.worker = 0;
    request.vector = "params";
    request.scale = request.scale != 0 ? request.scale : 1;
    const uint64_t bounds[] = {0, 336};
    request.keys = keys_hash(bounds, 2);
    request.ranges = (uint64_t *)(uintptr_t)bounds;
    request.n_ranges = 2;
    request.sequence = 2;
    trp_status status =
        trp_call(&line->service.base, "Push", &request.base, (ProtobufCMessage **)&reply, NULL);
    assert_int_equal(status, TRP_INVALID_ARGUMENT);
    if (!strstr(trp_last_error(), "learner/0 pushed to 'params' compressed") ||
        !strstr(trp_last_error(), why))
        fail_msg("'%s' does not say '%s'", trp_last_error(), why);
}

static void hostile_pushes_are_refused_by_name(void **state)
{
    (void)state;
    struct site site;
    float params[COUNT];
    site_begin(&site, (trp_parameter_server_options){.rule = TRP_SERVER_ASYNC}, true);
    learn(
        &(struct lesson){
            .optimizer = &rates[0], .site = &site, .steps = 2, .compression = {.kind = "one-bit"}},
        params);
    uint32_t words[13] = {0}, runs[] = {336, 1}, places[] = {336, 0}, nan = 0x7fc00000;
    struct line *line = &site.lines[0];
    Troupe__ServerPushRequest request = TROUPE__SERVER_PUSH_REQUEST__INIT;
    request.compression = "zip";
    no_push(line, request, "compression is 'zip', must be none, bf16");
    request.compression = "one-bit";
    request.n_runs = 2;
    request.runs = runs;
    request.gradients = (ProtobufCBinaryData){sizeof words - 1, (uint8_t *)words};
    no_push(line, request, "51 bytes are no words");
    request.gradients.len -= 3;
    no_push(line, request, "12 words and 2 of runs are no code one-bit of 336 numbers");
    request.gradients.len = sizeof words;
    words[0] = nan;
    no_push(line, request, "has a scale at 0 that is not finite");
    request.compression = "powersgd";
    no_push(line, request, "are no code powersgd");
    request.compression = "top-k";
    request.n_runs = 0;
    request.gradients = (ProtobufCBinaryData){sizeof places, (uint8_t *)places};
    no_push(line, request, "has number 336 of 336");
    places[0] = 335;
    places[1] = nan;
    no_push(line, request, "has a number at 335 that is not finite");
    assert_int_equal(trp_parameter_server_read(line->server).pushes, 2);
    assert_int_equal(trp_parameter_server_read(line->server).versions, 2);
    site_end(&site);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_pushes_count_once_and_are_in_the_log),
        cmocka_unit_test(compressed_pushes_are_as_long_as_the_formulas_say_and_learn),
        cmocka_unit_test(hostile_pushes_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
