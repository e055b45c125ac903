/* A replay server and `troupe` commands that go to it, as a user would type them. */
#ifndef TRP_TESTS_CLI_TOOLS_H
#define TRP_TESTS_CLI_TOOLS_H

#include "tests/launch/launch_tools.h"

#include <cjson/cJSON.h>

enum { WORDS_MAX = 24 };

/* Commands run in `at.dir`, where the server's store is "store". */
struct desk {
    struct scene at;
    struct scene *server; /* its own directory has its output */
    char *address;        /* NULL: no server runs */
};

static inline int desk_setup(void **state)
{
    struct desk *desk = xcalloc(1, sizeof *desk);
    void *scene;
    scene_setup(&scene);
    desk->at = *(struct scene *)scene;
    free(scene);
    scene_setup((void **)&desk->server);
    *state = desk;
    return 0;
}

static inline int desk_teardown(void **state)
{
    struct desk *desk = *state;
    void *server = desk->server;
    scene_teardown(&server);
    struct scene *at = xcalloc(1, sizeof *at);
    *at = desk->at;
    void *scene = at;
    scene_teardown(&scene);
    free(desk->address);
    free(desk);
    return 0;
}

/* The words of a line, as a shell would split it: '...' keeps spaces. Words lie in `line`. */
static inline void split(char *line, const char **words)
{
    size_t count = 0;
    words[count++] = TROUPE_CLI;
    for (char *at = line; *at;) {
        at += strspn(at, " ");
        if (!*at)
            break;
        assert_true(count < WORDS_MAX);
        char end = *at == '\'' ? '\'' : ' ';
        at += end == '\'';
        words[count++] = at;
        at += strcspn(at, (char[]){end, '\0'});
        if (*at)
            *at++ = '\0';
    }
    words[count] = NULL;
}

/* Runs `troupe LINE`; its exit status. */
static inline int troupe(struct desk *desk, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline int troupe(struct desk *desk, const char *format, ...)
{
    const char *words[WORDS_MAX + 1];
    char *line;
    va_list args;
    va_start(args, format);
    assert_true(vasprintf(&line, format, args) >= 0);
    va_end(args);
    split(line, words);
    int status = scene_run(&desk->at, words);
    free(line);
    return status;
}

#define assert_troupe(desk, status, ...)                                                           \
    do {                                                                                           \
        int status_ = troupe(desk, __VA_ARGS__);                                                   \
        if (status_ != (status))                                                                   \
            print_error("%s", scene_read(&(desk)->at, "err"));                                     \
        assert_int_equal(status_, status);                                                         \
    } while (0)

static const char tables[] = "--table 'name=t sampler=max_heap' --table 'name=u sampler=fifo'";

/* Serves the store with these flags. */
static inline void desk_serve(struct desk *desk, const char *flags)
{
    const char *words[WORDS_MAX + 1];
    char *line = xasprintf("replay serve --dir=%s/store %s", desk->at.dir, flags);
    split(line, words);
    scene_start(desk->server, words);
    free(line);
    struct deadline deadline = patience();
    for (;;) {
        char *out = scene_read(desk->server, "out");
        char *newline = strchr(out, '\n');
        if (newline) {
            *newline = '\0';
            free(desk->address);
            desk->address = xstrdup(out + strlen("listening on "));
            free(out);
            return;
        }
        free(out);
        look_again_soon(deadline, "the server");
    }
}

static inline void desk_stop(struct desk *desk)
{
    kill(desk->server->pid, SIGTERM);
    assert_int_equal(scene_wait(desk->server), 0);
    free(desk->address);
    desk->address = NULL;
}

static inline void desk_write(struct desk *desk, const char *name, const char *text)
{
    char *path = scene_path(&desk->at, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    fclose(file);
    free(path);
}

/* What the command printed, as JSON; the caller deletes it. */
static inline cJSON *desk_json(struct desk *desk)
{
    char *text = scene_read(&desk->at, "out");
    cJSON *json = cJSON_Parse(text);
    if (!json)
        print_error("no JSON: %s\n", text);
    assert_non_null(json);
    free(text);
    return json;
}

static inline double json_at(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(json, name);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

/* Exactly one line on standard error, with `part`. */
static inline void assert_one_error(struct desk *desk, const char *part)
{
    char *text = scene_read(&desk->at, "err");
    size_t size = strlen(text);
    if (size == 0 || strchr(text, '\n') != text + size - 1 || !strstr(text, part))
        fail_msg("expected one line with '%s', not: %s", part, text);
    free(text);
}

static inline void assert_no_error(struct desk *desk)
{
    char *text = scene_read(&desk->at, "err");
    assert_string_equal(text, "");
    free(text);
}

/* Five items of table t, keys 1 to 5, priority and version as the key: int64 [key] and float32
 * [2] 1.5 2.5. */
static inline void desk_write_items(struct desk *desk, const char *name)
{
    static const char *const values[] = {
        "AQAAAAAAAAA=", "AgAAAAAAAAA=", "AwAAAAAAAAA=", "BAAAAAAAAAA=", "BQAAAAAAAAA="};
    char *text = xstrdup("{\"troupe_dump\":1,\"table\":\"t\",\"options\":\"name=t\","
                         "\"signature\":\"\"}\n");
    for (int i = 0; i < 5; i++) {
        char *longer =
            xasprintf("%s{\"table\":\"t\",\"key\":\"%d\",\"priority\":%d,\"times_sampled\":0,"
                      "\"inserted_at_ns\":0,\"policy_version\":\"%d\",\"columns\":[{\"dtype\":"
                      "\"int64\",\"shape\":[1],"
                      "\"squeezed\":false,\"data\":\"%s\"},{\"dtype\":\"float32\",\"shape\":[2],"
                      "\"squeezed\":true,\"data\":\"AADAPwAAIEA=\"}]}\n",
                      text, i + 1, i + 1, i + 1, values[i]);
        free(text);
        text = longer;
    }
    desk_write(desk, name, text);
    free(text);
}

/* A server with five items in t; then `look` at its address, and at its directory when it has
 * stopped. */
static inline void live_and_stopped(struct desk *desk,
                                    void (*look)(struct desk *, const char *target))
{
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    look(desk, desk->address);
    desk_stop(desk);
    look(desk, "store");
}

/* What `items -o json` printed has these keys: "3 1 ". */
static inline void assert_keys(struct desk *desk, const char *keys)
{
    char text[128] = "";
    cJSON *json = desk_json(desk), *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "items"))
    {
        const char *key = cJSON_GetStringValue(cJSON_GetObjectItem(item, "key"));
        assert_non_null(key); /* text, so that no digit is lost */
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", key);
    }
    assert_string_equal(text, keys);
    cJSON_Delete(json);
}

#endif
