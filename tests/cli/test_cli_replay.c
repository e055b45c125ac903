/* Every command of `troupe replay` end to end: on a live server, and on the store it leaves. */
#include "cli_tools.h"

#include <sys/stat.h>

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- looking ----------------------------------------------------------------------------- */

static void look_at_tables(struct desk *desk, const char *target)
{
    assert_troupe(desk, 0, "replay ls %s", target);
    assert_file_contains(&desk->at, "out", "max_heap");
    assert_file_contains(&desk->at, "out", "SPI");
    assert_troupe(desk, 0, "replay ls %s --names", target);
    char *names = scene_read(&desk->at, "out");
    assert_string_equal(names, "t\nu\n");
    free(names);
    assert_troupe(desk, 0, "replay ls %s --names -o json", target);
    cJSON *array = desk_json(desk);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(array, 1)), "u");
    cJSON_Delete(array);
    assert_troupe(desk, 0, "replay ls %s -o json", target);
    cJSON *json = desk_json(desk), *list = cJSON_GetObjectItem(json, "tables");
    assert_int_equal(cJSON_GetArraySize(list), 2);
    const cJSON *table = cJSON_GetArrayItem(list, 0), *limiter;
    assert_true(json_at(table, "size") == 5);
    limiter = cJSON_GetObjectItem(table, "limiter");
    assert_true(json_at(limiter, "inserts") == 5);
    assert_true(json_at(cJSON_GetObjectItem(table, "staleness"), "removed_times_sampled") == 0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(limiter, "min_diff")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(limiter, "max_diff")));
    assert_true(json_at(cJSON_GetObjectItem(json, "store"), "items") == 5);
    assert_true(json_at(cJSON_GetObjectItem(json, "store"), "file_bytes") > 0);
    cJSON_Delete(json);
    assert_troupe(desk, 0, "replay info %s t", target);
    assert_file_contains(&desk->at, "out", "size      5 of 1000000");
    assert_file_contains(&desk->at, "out", "episodes  5, "); /* not one a column */
    assert_troupe(desk, 0, "replay info %s t -o json", target);
    json = desk_json(desk);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "tables")), 1);
    cJSON_Delete(json);
}

static void tables_are_listed_live_and_stopped(void **state)
{
    live_and_stopped(*state, look_at_tables);
}

static void look_at_items(struct desk *desk, const char *target)
{
    assert_troupe(desk, 0, "replay items %s t -n2", target);
    assert_file_contains(&desk->at, "out", "2 of 5 items, by priority, highest first");
    assert_troupe(desk, 0, "replay items %s t --offset=9", target);
    assert_file_contains(&desk->at, "out", "number 9 is beyond the end");
    const struct {
        const char *flags, *keys;
        int status;
    } rows[] = {
        {"--sort=sampler", "5 4 3 2 1 ", 0},
        {"--sort=oldest", "1 2 3 4 5 ", 0},
        {"--sort=lowest -n2 --offset=1", "2 3 ", 0},
        {"--sort newest -n 1", "5 ", 0},
        {"--min-priority=4", "5 4 ", 0},
        {"--max-priority=2.5 --sort=highest", "2 1 ", 0},
        {"--min-sampled=0 --key=3 --key=1 --sort=oldest", "1 3 ", 0},
        {"--min-age=0 --max-age=1000 -n1", "5 ", 0},
        {"--min-sampled=1", "", 3},
        {"--min-version=5", "5 ", 0},
        {"--max-version=1", "1 ", 0},
        {"--key=77", "", 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_troupe(desk, rows[i].status, "replay items %s t %s -o json", target, rows[i].flags);
        assert_keys(desk, rows[i].keys);
    }
}

/* Pipes, which nobody writes to, in place of what a store has. */
static void a_pipe_in_a_store_keeps_nobody_waiting(void **state)
{
    struct desk *desk = *state;
    char *address = scene_path(&desk->at, "store/ADDRESS"), *other = scene_path(&desk->at, "other");
    char *format = scene_path(&desk->at, "other/FORMAT");
    desk_serve(desk, "--table name=t");
    assert_int_equal(unlink(address), 0);
    assert_int_equal(mkfifo(address, 0600), 0);
    assert_troupe(desk, 1, "replay ls store");
    assert_one_error(desk, "replay store store is in use by pid");
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mkfifo(format, 0600), 0);
    assert_troupe(desk, 2, "replay ls other");
    assert_one_error(desk, "it is a pipe or a device");
    free(format);
    free(other);
    free(address);
}

static void items_are_sorted_filtered_and_paged(void **state)
{
    live_and_stopped(*state, look_at_items);
}

static void look_into_an_item(struct desk *desk, const char *target)
{
    assert_troupe(desk, 0, "replay peek %s t 4", target);
    assert_file_contains(&desk->at, "out", "0       int64    [1]    [4]");
    assert_file_contains(&desk->at, "out", "1       float32  [2]    [1.5 2.5]");
    assert_troupe(desk, 0, "replay peek %s t -o json", target);
    cJSON *json = desk_json(desk);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(json, "key")), "5");
    const cJSON *columns = cJSON_GetObjectItem(json, "columns");
    const cJSON *values = cJSON_GetObjectItem(cJSON_GetArrayItem(columns, 1), "values");
    assert_true(cJSON_GetArrayItem(values, 1)->valuedouble == 2.5);
    cJSON_Delete(json);
    assert_troupe(desk, 3, "replay peek %s t 44", target);
    assert_one_error(desk, "44");
    assert_troupe(desk, 3, "replay peek %s u", target);
    assert_one_error(desk, "u is empty");
    assert_troupe(desk, 3, "replay peek %s w", target);
    assert_one_error(desk, "no table w; it has: t u");
}

static void peek_shows_values(void **state)
{
    live_and_stopped(*state, look_into_an_item);
}

/* Its numbers have no room on a line. */
static void a_large_column_is_summarised(void **state)
{
    struct desk *desk = *state;
    char *zeros = xcalloc(1, 10665);
    memset(zeros, 'A', 10664); /* 7998 bytes, base64 */
    char *text =
        xasprintf("{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"uint8\","
                  "\"shape\":[2,3999],\"squeezed\":false,\"data\":\"%s\"}]}\n",
                  zeros);
    desk_write(desk, "large.jsonl", text);
    desk_serve(desk, tables);
    assert_troupe(desk, 0, "replay load %s large.jsonl", desk->address);
    assert_troupe(desk, 0, "replay peek %s t 1", desk->address);
    assert_file_contains(&desk->at, "out", "[2,3999]  min 0, max 0, mean 0; 0 0 0 0 0 0 ...");
    desk_stop(desk);
    free(text);
    free(zeros);
}

static void sampling_counts(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table 'name=t sampler=fifo max_times_sampled=1'");
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay sample %s t -n2", desk->address);
    assert_file_contains(&desk->at, "out", "\n\nkey 2  priority 2");
    desk_stop(desk);
    assert_troupe(desk, 0, "replay sample store t -n1 -o json");
    cJSON *json = desk_json(desk);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(json, "key")), "3");
    cJSON_Delete(json);
    assert_troupe(desk, 1, "replay sample store t --save=nodir/rest.npz");
    assert_one_error(desk, "nodir/rest.npz: cannot write in nodir: No such file");
    assert_troupe(desk, 0, "replay sample store t --save=rest.jsonl");
    assert_file_contains(&desk->at, "out", "1 item in rest.jsonl");
    assert_file_contains(&desk->at, "rest.jsonl", "\"key\":\"4\"");
    assert_troupe(desk, 1, "replay sample store t -n2 --timeout=-1"); /* and yet it ends */
    assert_one_error(desk,
                     "1 of 2 items came: nobody inserts into a stopped store, and the limiter "
                     "of table t allowed no more; the table has 0 of the 1 items");
    assert_troupe(desk, 2, "replay sample store t --timeout=-2");
    assert_one_error(desk, "or -1, for ever");
}

/* How often item 1 was sampled, as `items` and `peek` print it. */
static void assert_sampled(struct desk *desk, const char *target, const char *table,
                           const char *sampled)
{
    char *cells = xasprintf("\n  1         1  %7s ", sampled);
    char *words = xasprintf("key 1  priority 1  sampled %s time", sampled);
    assert_troupe(desk, 0, "replay items %s %s --key 1 --key 2", target, table);
    assert_file_contains(&desk->at, "out", cells);
    assert_troupe(desk, 0, "replay peek %s %s 1", target, table);
    assert_file_contains(&desk->at, "out", words);
    free(cells);
    free(words);
}

static void sample_both(struct desk *desk)
{
    assert_troupe(desk, 0, "replay sample %s t", desk->address);
    assert_troupe(desk, 0, "replay sample %s u", desk->address);
}

/* Of u it is kept; of t each life of the server counts, and those before it are not known of. */
static void samplings_that_nobody_counted_are_no_0(void **state)
{
    struct desk *desk = *state;
    static const char both[] =
        "--table 'name=t sampler=fifo' --table 'name=u sampler=fifo max_times_sampled=9'";
    desk_write_items(desk, "items.jsonl");
    desk_serve(desk, both);
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay load %s items.jsonl --table u", desk->address);
    assert_sampled(desk, desk->address, "t", "0");
    sample_both(desk);
    assert_sampled(desk, desk->address, "t", "1");
    desk_stop(desk);
    assert_sampled(desk, "store", "t", "-");
    assert_sampled(desk, "store", "u", "1");
    desk_serve(desk, both);
    assert_sampled(desk, desk->address, "t", "-");
    sample_both(desk);
    assert_sampled(desk, desk->address, "t", "1+");
    assert_sampled(desk, desk->address, "u", "2");
    assert_troupe(desk, 0, "replay reset %s t --yes", desk->address);
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_sampled(desk, desk->address, "t", "0"); /* of this life */
    desk_stop(desk);
}

/* ---- changing ---------------------------------------------------------------------------- */

static void change(struct desk *desk, const char *target)
{
    assert_troupe(desk, 0, "replay create %s name=n sampler=lifo max_size=10", target);
    assert_troupe(desk, 1, "replay create %s name=n", target);
    assert_one_error(desk, "n exists");
    assert_troupe(desk, 2, "replay create %s name=m sampler=best", target);
    assert_one_error(desk, "best");
    assert_troupe(desk, 0, "replay alter %s name=n max_size=20 --dry-run", target);
    assert_troupe(desk, 0, "replay alter %s name=n max_size=20", target);
    assert_file_contains(&desk->at, "out", "max_size: 10 -> 20");
    assert_troupe(desk, 3, "replay alter %s name=z max_size=20", target);
    assert_troupe(desk, 0, "replay drop %s n --if-empty", target);
    assert_troupe(desk, 3, "replay drop %s n", target);

    assert_troupe(desk, 0, "replay set-priority %s t 1=9.5 2=0", target);
    assert_troupe(desk, 0, "replay items %s t --min-priority=9 -o json", target);
    assert_keys(desk, "1 ");
    assert_troupe(desk, 0, "replay set-priority %s t 2=7.5 1=9 2=8", target);
    assert_file_contains(&desk->at, "out", "priorities set: 2 items");
    assert_troupe(desk, 0, "replay items %s t --min-priority=8 -o json", target);
    assert_keys(desk, "1 2 ");
    assert_troupe(desk, 3, "replay set-priority %s t 1=1 77=1", target);
    assert_one_error(desk, "nothing was changed");
    static const char *const none[] = {"1=nan", "1=0x10", "1=1e400", "1=infinity", "1= 1", "1="};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_troupe(desk, 2, "replay set-priority %s t '%s'", target, none[i]);
        assert_one_error(desk, none[i]);
    }
    assert_troupe(desk, 0, "replay set-priority %s t 4=1.5e308 5=inf", target);
    assert_troupe(desk, 0, "replay items %s t -n2", target);
    assert_file_contains(&desk->at, "out", "1.5e+308");
    assert_troupe(desk, 0, "replay set-priority %s t 4=4 5=5", target);
    assert_troupe(desk, 0, "replay set-priority %s t 2=-inf 3=-1", target);
    assert_troupe(desk, 0, "replay items %s t --min-priority=9 -o json", target);
    assert_keys(desk, "1 ");

    assert_troupe(desk, 2, "replay delete %s t", target);
    assert_troupe(desk, 3, "replay delete %s t 1 77", target);
    assert_troupe(desk, 0, "replay delete %s t 1 1", target);
    assert_file_contains(&desk->at, "out", "deleted: 1 item\n");
    assert_troupe(desk, 2, "replay delete %s t --max-priority=3", target);
    assert_one_error(desk, "--yes");
    assert_troupe(desk, 0, "replay delete %s t --max-priority=3 --yes -o json", target);
    cJSON *json = desk_json(desk);
    assert_true(json_at(json, "items") == 2);
    cJSON_Delete(json);
    assert_troupe(desk, 0, "replay items %s t --sort=oldest -o json", target);
    assert_keys(desk, "4 5 ");

    assert_troupe(desk, 2, "replay reset %s t", target);
    assert_one_error(desk, "--yes");
    assert_troupe(desk, 0, "replay reset %s t --yes", target);
    assert_file_contains(&desk->at, "out", "reset: 2 items");
    assert_troupe(desk, 0, "replay load %s items.jsonl", target);
}

static void tables_and_items_are_changed_live_and_stopped(void **state)
{
    live_and_stopped(*state, change);
}

static void what_was_altered_on_a_stopped_store_stays(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table 'name=t max_size=10'");
    desk_stop(desk);
    assert_troupe(desk, 0, "replay alter store name=t max_size=20");
    desk_serve(desk, "--table 'name=t max_size=10'"); /* as it was started before */
    assert_troupe(desk, 0, "replay info %s t", desk->address);
    assert_file_contains(&desk->at, "out", "max_size=20");
    desk_stop(desk);
    desk_serve(desk, ""); /* with the tables that there are */
    assert_troupe(desk, 0, "replay info %s t", desk->address);
    assert_file_contains(&desk->at, "out", "max_size=20");
    desk_stop(desk);
}

/* ---- finding the server ------------------------------------------------------------------ */

static void the_directory_of_a_live_server_leads_to_it(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    assert_troupe(desk, 0, "replay ls store");
    assert_one_error(desk, desk->address);
    assert_file_contains(&desk->at, "out", "max_heap");
    assert_troupe(desk, 0, "replay create store name=n");
    desk_stop(desk);
    char *path = scene_path(&desk->at, "store/ADDRESS");
    assert_int_not_equal(access(path, F_OK), 0);
    free(path);
    assert_troupe(desk, 0, "replay ls store --names");
    assert_file_contains(&desk->at, "out", "n");
}

/* What a killed server left is not believed. */
static void an_address_that_nobody_has_any_more_is_harmless(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    kill(desk->server->pid, SIGKILL);
    assert_int_equal(scene_wait(desk->server), 1000 + SIGKILL);
    assert_troupe(desk, 0, "replay ls store");
    assert_troupe(desk, 0, "replay create store name=n");
    assert_troupe(desk, 0, "replay ls store --names");
    assert_file_contains(&desk->at, "out", "n");
}

static void a_run_directory_leads_to_its_replay(void **state)
{
    struct desk *desk = *state;
    char *store = scene_path(&desk->at, "store"), *run = scene_path(&desk->at, "run");
    char *inner = scene_path(&desk->at, "run/replay");
    desk_serve(desk, tables);
    desk_stop(desk);
    assert_int_equal(mkdir(run, 0777), 0);
    assert_int_equal(rename(store, inner), 0);
    assert_troupe(desk, 0, "replay ls run");
    assert_file_contains(&desk->at, "out", "max_heap");
    free(inner);
    free(run);
    free(store);
}

/* ---- serving ----------------------------------------------------------------------------- */

static void a_taken_port_leaves_no_store_behind(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    assert_troupe(desk, 1, "replay serve --dir=other --listen=%s --table name=t", desk->address);
    assert_one_error(desk, desk->address);
    char *path = scene_path(&desk->at, "other");
    assert_int_not_equal(access(path, F_OK), 0);
    free(path);
    desk_stop(desk);
}

static void sizes_have_units_and_the_address_that_is_bound_is_told(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--listen=0.0.0.0:0 --insecure --table 'name=t max_size=2K'");
    assert_int_equal(strncmp(desk->address, "0.0.0.0:", 8), 0);
    assert_troupe(desk, 0, "replay info %s t", desk->address);
    assert_file_contains(&desk->at, "out", "max_size=2048");
    desk_stop(desk);
}

static void a_program_reads_where_a_server_listens(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "-o json");
    char *line = scene_read(desk->server, "out");
    cJSON *json = cJSON_Parse(line);
    assert_true(json_at(json, "pid") == desk->server->pid);
    assert_non_null(strstr(cJSON_GetStringValue(cJSON_GetObjectItem(json, "dir")), "/store"));
    const char *address = cJSON_GetStringValue(cJSON_GetObjectItem(json, "address"));
    assert_troupe(desk, 0, "replay ls %s", address);
    cJSON_Delete(json);
    free(line);
    desk_stop(desk);
}

static void a_table_that_can_never_be_sampled_is_warned_about(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table 'name=t max_size=10 limiter=min_size(20)'");
    assert_file_contains(desk->server, "err", "max_size 10");
    assert_troupe(desk, 0, "replay create %s name=u max_size=1 limiter=min_size(2)", desk->address);
    assert_one_error(desk, "warning: table u: max_size 1 is less");
    assert_troupe(desk, 0, "replay alter %s name=u limiter=min_size(3)", desk->address);
    assert_one_error(desk, "min_size 3: nothing can ever be sampled");
    assert_troupe(desk, 0, "replay alter %s name=u limiter=min_size(1)", desk->address);
    assert_no_error(desk);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay alter %s name=t max_size=30 limiter=rate(1,1,5,5.5)",
                  desk->address);
    assert_one_error(desk, "table t: with 5 inserts and 0 samples so far");
    assert_troupe(desk, 0, "replay info %s t", desk->address);
    assert_file_contains(&desk->at, "out", "WARNING   with 5 inserts");
    assert_file_contains(&desk->at, "out", "nobody can ever go on; widen");
    assert_troupe(desk, 0, "replay create %s name=dl limiter=rate(3,1,100,101)", desk->address);
    assert_one_error(desk, "should be samples_per_insert + 1 = 4 or more, not 1");
    assert_troupe(desk, 0, "replay create %s name=q limiter=queue(1)", desk->address);
    assert_no_error(desk);
    assert_troupe(desk, 2, "replay create %s name=s limiter=samples_per_insert(1,10,0.1)",
                  desk->address);
    desk_stop(desk);
    assert_troupe(desk, 0, "replay alter store name=t limiter=rate(1,1,5,5.25)");
    assert_one_error(desk, "warning: table t: with 5 inserts"); /* once */
    assert_troupe(desk, 0, "replay alter store name=t limiter=rate(1,1,5,7)");
    assert_no_error(desk);
}

/* Tables come later, or are all dropped: the server stays. */
static void a_server_needs_no_tables_to_start(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "");
    assert_troupe(desk, 0, "replay ls %s", desk->address);
    assert_troupe(desk, 3, "replay peek %s t", desk->address);
    assert_one_error(desk, "has no table t; it has: none");
    assert_troupe(desk, 0, "replay create %s name=steps", desk->address);
    assert_troupe(desk, 3, "replay peek %s step", desk->address);
    assert_one_error(desk, "has no table step; it has: steps; did you mean 'steps'?");
    assert_troupe(desk, 0, "replay drop %s steps", desk->address);
    assert_troupe(desk, 0, "replay create %s name=t", desk->address);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay drop %s t --yes", desk->address);
    assert_troupe(desk, 0, "replay checkpoint %s", desk->address);
    desk_stop(desk);
    assert_file_contains(desk->server, "err", "troupe replay create 127.0.0.1:");
    assert_troupe(desk, 0, "replay ls store --names");
    assert_troupe(desk, 0, "replay create store name=u");
    desk_serve(desk, "");
    assert_troupe(desk, 0, "replay ls %s --names", desk->address);
    assert_file_contains(&desk->at, "out", "u\n");
    desk_stop(desk);
}

/* ---- top and bench ----------------------------------------------------------------------- */

static void top_prints_a_line_of_json_a_look(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    assert_troupe(desk, 0, "replay top %s -n3 -d0.01 -o json", desk->address);
    char *text = scene_read(&desk->at, "out"), *rest = text;
    for (int i = 0; i < 3; i++) {
        char *newline = strchr(rest, '\n');
        assert_non_null(newline);
        *newline = '\0';
        cJSON *json = cJSON_Parse(rest);
        const cJSON *table = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "tables"), 0);
        assert_true(json_at(table, "inserts_per_second") == 0);
        cJSON_Delete(json);
        rest = newline + 1;
    }
    assert_string_equal(rest, "");
    free(text);
    assert_troupe(desk, 0, "replay top %s -n2 -d0.01", desk->address);
    assert_file_contains(&desk->at, "out", "INSERT/S");
    assert_file_contains(&desk->at, "out", "empty");
    assert_file_contains(&desk->at, "out", "  up ");
    desk_stop(desk);
    assert_troupe(desk, 0, "replay top store -n1");
    assert_file_contains(&desk->at, "out", "store  stopped  store ");
}

/* Reads what comes out of the terminal until `part` is there. */
static void await_on(int fd, char *text, size_t size, const char *part)
{
    size_t length = strlen(text);
    struct deadline deadline = patience();
    while (!strstr(text, part)) {
        struct pollfd poll_of = {.fd = fd, .events = POLLIN};
        if (deadline_passed(deadline, &clock_monotonic) || length + 1 >= size)
            fail_msg("'%s' is not in '%s'", part, text);
        if (poll(&poll_of, 1, 100) != 1)
            continue;
        ssize_t got = read(fd, text + length, size - 1 - length);
        length += got > 0 ? (size_t)got : 0;
        text[length] = '\0';
    }
}

/* Whether the next look that is drawn whole is without `part`. */
static bool look_has_no(int fd, char *text, size_t size, const char *part)
{
    await_on(fd, text, size, "\033[J");
    return strstr(text, "LIMITER") && !strstr(text, part);
}

/* Runs `troupe LINE` on a terminal of its own, whose other end is returned. */
static int on_terminal(struct desk *desk, char *line)
{
    const char *words[WORDS_MAX + 1];
    int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0);
    char *name = xstrdup(ptsname(fd));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, desk->at.dir);
    posix_spawn_file_actions_addopen(&actions, 0, name, O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    split(line, words);
    assert_int_equal(posix_spawn(&desk->at.pid, words[0], &actions, NULL,
                                 (char *const *)(uintptr_t)words, environ),
                     0);
    posix_spawn_file_actions_destroy(&actions);
    free(name);
    return fd;
}

static void top_gives_the_terminal_back(void **state)
{
    struct desk *desk = *state;
    char text[1 << 14] = "";
    desk_serve(desk, tables);
    char *line = xasprintf("replay top %s -d 60", desk->address);
    int fd = on_terminal(desk, line);
    await_on(fd, text, sizeof text, "INSERT/S");
    assert_non_null(strstr(text, "\033[?25l"));
    kill(desk->at.pid, SIGINT);
    await_on(fd, text, sizeof text, "\033[?25h");
    assert_int_equal(scene_wait(&desk->at), 0);
    close(fd);
    free(line);
    desk_stop(desk);
}

static void top_fits_its_terminal_and_stops_and_goes_on_and_quits(void **state)
{
    struct desk *desk = *state;
    char text[1 << 14] = "", *line;
    desk_serve(desk, tables);
    line = xasprintf("replay top %s -d 60", desk->address);
    int fd = on_terminal(desk, line), status;
    struct winsize size = {.ws_row = 3, .ws_col = 20};
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
    await_on(fd, text, sizeof text, "\033[?25l");
    kill(desk->at.pid, SIGWINCH);
    await_on(fd, text, sizeof text, "\nt  ");
    assert_null(strstr(text, "INSERT/S")); /* too far to the right */
    assert_null(strstr(text, "\nu  "));    /* too far down */
    kill(desk->at.pid, SIGTSTP);
    assert_int_equal(waitpid(desk->at.pid, &status, WUNTRACED), desk->at.pid);
    assert_true(WIFSTOPPED(status));
    await_on(fd, text, sizeof text, "\033[?25h");
    text[0] = '\0';
    kill(desk->at.pid, SIGCONT);
    await_on(fd, text, sizeof text, "\033[?25l");
    await_on(fd, text, sizeof text, "\nt  ");
    assert_int_equal(write(fd, "q", 1), 1);
    assert_int_equal(scene_wait(&desk->at), 0);
    close(fd);
    free(line);
    desk_stop(desk);
}

static void top_waits_for_a_server_that_comes_back(void **state)
{
    struct desk *desk = *state;
    char text[1 << 14] = "";
    char *flags = xasprintf("%s --listen unix:%s/socket", tables, desk->at.dir);
    desk_serve(desk, flags);
    char *line = xasprintf("replay top %s -d 0.1", desk->address);
    int fd = on_terminal(desk, line);
    await_on(fd, text, sizeof text, "SAMPLE/S");
    desk_stop(desk);
    text[0] = '\0';
    await_on(fd, text, sizeof text, "waiting for the server: ");
    desk_serve(desk, flags);
    do
        text[0] = '\0';
    while (!look_has_no(fd, text, sizeof text, "waiting"));
    assert_int_equal(write(fd, "q", 1), 1);
    assert_int_equal(scene_wait(&desk->at), 0);
    close(fd);
    desk_stop(desk);
    assert_troupe(desk, 1, "replay top unix:%s/socket -n 2 -d 0.1", desk->at.dir);
    free(line);
    free(flags);
}

static void top_ends_without_a_terminal_when_its_server_stays_away(void **state)
{
    struct desk *desk = *state;
    const char *words[WORDS_MAX + 1];
    desk_serve(desk, tables);
    char *line = xasprintf("replay top %s -d 0.05 --timeout 1", desk->address);
    split(line, words);
    scene_start(&desk->at, words);
    scene_await(&desk->at, "out", "SAMPLE/S");
    desk_stop(desk);
    assert_int_equal(scene_wait(&desk->at), 1);
    assert_file_contains(&desk->at, "err", "; waiting 1 s for it\n");
    assert_last_line(&desk->at, "err", "; it did not come back in 1 s (--timeout)");
    free(line);
}

static void top_shows_a_stopped_store_once_without_a_terminal(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_stop(desk);
    assert_troupe(desk, 1, "replay top store -d 0.01 -o json");
    assert_one_error(desk,
                     "store: no server runs on it, so nothing changes: --count says how many");
    char *text = scene_read(&desk->at, "out");
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one look */
    free(text);
    assert_troupe(desk, 0, "replay top store -d 0.01 -n 2");
    char *line = xstrdup("replay top store -d 0.05"), drawn[1 << 14] = "";
    int fd = on_terminal(desk, line);
    for (int looks = 0; looks < 3; looks++) {
        await_on(fd, drawn, sizeof drawn, "\033[J");
        drawn[0] = '\0';
    }
    assert_int_equal(write(fd, "q", 1), 1);
    assert_int_equal(scene_wait(&desk->at), 0);
    close(fd);
    free(line);
}

/* Somebody listens and says nothing. */
static void a_command_waits_as_long_as_it_is_told_to(void **state)
{
    struct desk *desk = *state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/mute", desk->at.dir);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_troupe(desk, 1, "replay ls unix:mute --timeout=0.2");
    assert_one_error(desk, "no answer in 0.2 s");
    close(fd);
    assert_troupe(desk, 2, "replay ls unix:mute --timeout=soon");
}

static void a_terminal_is_asked_before_items_go(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    const struct {
        const char *answer;
        int status;
        const char *size;
    } rows[] = {{"n\n", 1, "size      5 of"}, {"y\n", 0, "size      0 of"}};
    for (size_t i = 0; i < 2; i++) {
        char text[4096] = "", *line = xasprintf("replay reset %s t", desk->address);
        int fd = on_terminal(desk, line);
        await_on(fd, text, sizeof text, "Remove the 5 items of table t? [y/N]");
        assert_int_equal(write(fd, rows[i].answer, 2), 2);
        assert_int_equal(scene_wait(&desk->at), rows[i].status);
        close(fd);
        free(line);
        assert_troupe(desk, 0, "replay info %s t", desk->address);
        assert_file_contains(&desk->at, "out", rows[i].size);
    }
    desk_stop(desk);
}

static void assert_names(struct desk *desk, const char *expected)
{
    assert_troupe(desk, 0, "replay ls %s --names", desk->address);
    char *names = scene_read(&desk->at, "out");
    assert_string_equal(names, expected);
    free(names);
}

static void a_bench_leaves_no_table_whatever_ends_it(void **state)
{
    struct desk *desk = *state;
    const int signals[] = {SIGHUP, SIGQUIT, SIGKILL};
    desk_serve(desk, tables);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        char text[4096] = "", *line = xasprintf("replay bench %s --seconds=100", desk->address);
        int fd = on_terminal(desk, line);
        await_on(fd, text, sizeof text, "bench: ");
        kill(desk->at.pid, signals[i]);
        (void)scene_wait(&desk->at);
        close(fd);
        free(line);
        if (signals[i] == SIGKILL) /* then the next one does */
            assert_troupe(desk, 0, "replay bench %s --seconds=0.1", desk->address);
        assert_names(desk, "t\nu\n");
    }
    desk_stop(desk);
}

static void bench_measures_and_cleans_up(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    cJSON *json = NULL;
    for (double seconds = 0.2; !json || (json_at(json, "samples") == 0 && seconds < 10);
         seconds *= 5) { /* a busy machine may need longer for the first */
        cJSON_Delete(json);
        assert_troupe(desk, 0,
                      "replay bench %s --seconds=%g --writers=2 --samplers=1 --item-bytes=100 "
                      "--batch=16 -o json",
                      desk->address, seconds);
        json = desk_json(desk);
    }
    assert_true(json_at(json, "inserts") > 0);
    assert_true(json_at(json, "samples") > 0);
    assert_true(json_at(json, "confirm_ms_50") > 0);
    assert_true(json_at(json, "confirm_ms_50") <= json_at(json, "confirm_ms_99"));
    cJSON_Delete(json);
    assert_troupe(desk, 0, "replay ls %s --names", desk->address);
    char *names = scene_read(&desk->at, "out");
    assert_string_equal(names, "t\nu\n");
    free(names);
    char *line = xasprintf("replay bench %s --seconds=100", desk->address);
    int fd = on_terminal(desk, line);
    char text[4096] = "";
    await_on(fd, text, sizeof text, "bench: ");
    kill(desk->at.pid, SIGINT);
    await_on(fd, text, sizeof text, "(interrupted)");
    assert_int_equal(scene_wait(&desk->at), 0);
    close(fd);
    free(line);
    assert_troupe(desk, 0, "replay ls %s --names", desk->address);
    names = scene_read(&desk->at, "out");
    assert_string_equal(names, "t\nu\n");
    free(names);
    desk_stop(desk);
    assert_troupe(desk, 2, "replay bench store --seconds=0");
    assert_one_error(desk, "--seconds=0: not a number of seconds above 0");
    assert_troupe(desk, 2, "replay bench store --writers=0");
    assert_troupe(desk, 2, "replay top store -d 0");
    assert_troupe(desk, 2, "replay serve --dir=other --max-bytes=1");
    assert_one_error(desk, "--max-bytes=1: at least 2097152");
    assert_troupe(desk, 1, "replay bench store");
    assert_one_error(desk, "no live server");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, desk_setup, desk_teardown)
    const struct CMUnitTest tests[] = {
        TEST(tables_are_listed_live_and_stopped),
        TEST(a_pipe_in_a_store_keeps_nobody_waiting),
        TEST(items_are_sorted_filtered_and_paged),
        TEST(peek_shows_values),
        TEST(a_large_column_is_summarised),
        TEST(sampling_counts),
        TEST(samplings_that_nobody_counted_are_no_0),
        TEST(tables_and_items_are_changed_live_and_stopped),
        TEST(what_was_altered_on_a_stopped_store_stays),
        TEST(the_directory_of_a_live_server_leads_to_it),
        TEST(an_address_that_nobody_has_any_more_is_harmless),
        TEST(a_run_directory_leads_to_its_replay),
        TEST(a_server_needs_no_tables_to_start),
        TEST(a_taken_port_leaves_no_store_behind),
        TEST(sizes_have_units_and_the_address_that_is_bound_is_told),
        TEST(a_program_reads_where_a_server_listens),
        TEST(a_table_that_can_never_be_sampled_is_warned_about),
        TEST(top_prints_a_line_of_json_a_look),
        TEST(top_gives_the_terminal_back),
        TEST(top_fits_its_terminal_and_stops_and_goes_on_and_quits),
        TEST(a_terminal_is_asked_before_items_go),
        TEST(bench_measures_and_cleans_up),
        TEST(a_bench_leaves_no_table_whatever_ends_it),
        TEST(top_waits_for_a_server_that_comes_back),
        TEST(top_ends_without_a_terminal_when_its_server_stays_away),
        TEST(top_shows_a_stopped_store_once_without_a_terminal),
        TEST(a_command_waits_as_long_as_it_is_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
