/* The configuration of a run as JSON: every option with its value, and what was started. A run
 * directory has one, written whole before anything starts; --config takes one. */
#ifndef TRP_LAUNCH_CONFIG_H
#define TRP_LAUNCH_CONFIG_H

#include "graph.h"
#include "options.h"

struct cJSON;

/* A configuration that was read. A zeroed struct is none. */
struct config {
    char *path;
    struct cJSON *json;
};

/* Reads a file, which may be a pipe. NOT_FOUND, DATA_LOSS (no JSON, with the line),
 * INVALID_ARGUMENT (no configuration, with the member), FAILED_PRECONDITION (another program's), or
 * what the file system says; messages begin with the path. */
TRP_MUST_USE trp_status config_read(struct config *config, const char *path, const char *program);

/* A run's, which own_file_open() takes: nobody waits at a pipe that lies in its place. */
TRP_MUST_USE trp_status config_read_own(struct config *config, const char *path,
                                        const char *program);

/* The same from memory. */
TRP_MUST_USE trp_status config_parse(struct config *config, const char *path, const char *text,
                                     size_t size, const char *program);
void config_cleanup(struct config *config);

/* Gives `options` what the command line did not say: seed, how to launch, when to stop, arguments
 * of `build` (the strings stay the config's). INVALID_ARGUMENT names the member. */
TRP_MUST_USE trp_status config_launch(const struct config *config, struct launch_options *options);

/* Sets the options of `program`. As program_set(). */
TRP_MUST_USE trp_status config_apply(const struct config *config, trp_program *program);

/* Whether a run that was started so may go on as `program`, which has been checked.
 * FAILED_PRECONDITION: what the run has stored was made with other values (each is named). */
TRP_MUST_USE trp_status config_compare(const struct config *config, const trp_program *program);

/* Prints to standard error what differs, with both values; of a run that goes on. */
void config_tell_changes(const struct config *config, const trp_program *program);

/* A whole number that was written as text ("seed", "life"). INVALID_ARGUMENT: it is not there. */
TRP_MUST_USE trp_status config_u64(const struct config *config, const char *member,
                                   uint64_t *value);

/* What else a configuration tells than the program and the launcher's options do. */
struct config_facts {
    uint64_t life;
    int64_t started; /* seconds since 1970 */
    const char *socket_dir;
    int argc;
    char **argv;
};

/* The configuration of a run that starts; caller frees. */
char *config_text(const trp_program *program, const struct launch_options *options,
                  const struct config_facts *facts);

#endif
