/* Any bytes as the configuration of a program: none crashes it, a refused one has a message that
 * begins with its path, and what is applied is written and read back as the same program.
 * libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/dqn.h>
#include "launch/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static trp_program *make_program(void)
{
    trp_program *program = trp_program_create("p");
    trp_agent agent = trp_dqn(NULL);
    trp_actor_options acting = {.agent = &agent, .env = "Catch"};
    acting.replay = trp_add_replay(program, "r", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "l", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    trp_add_actors(program, "a", 1, &acting);
    return program;
}

static trp_status apply(trp_program *program, const char *text, size_t size)
{
    struct config config;
    trp_status status = config_parse(&config, "FILE", text, size, "p");
    if (status == TRP_OK)
        status = config_apply(&config, program);
    config_cleanup(&config);
    return status;
}

static void check_round_trip(const trp_program *program)
{
    char name[] = "p", *argv[] = {name, NULL};
    struct launch_options options = {.build_argc = 1, .build_argv = argv};
    char *text = config_text(program, &options,
                             &(struct config_facts){.socket_dir = "", .argc = 1, .argv = argv});
    trp_program *same = make_program();
    trp_status status = apply(same, text, strlen(text) + 1);
    assert(status == TRP_OK);
    assert(program_hash(same) == program_hash(program));
    trp_program_destroy(same);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trp_program *program = make_program();
    if (apply(program, (const char *)data, size) == TRP_OK)
        check_round_trip(program);
    else
        assert(strncmp(trp_last_error(), "FILE: ", strlen("FILE: ")) == 0);
    trp_program_destroy(program);
    return 0;
}
