/* Libraries of NVIDIA's are found where wheels put them, and what is nowhere is named. */
#include "core/nvidia.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"

#define WHEEL "/lib/python3.11/site-packages/nvidia/things/lib"

/* An environment that nobody entered, and the Python that it was made of, under a prefix that has
 * more than a Python. */
#define ENTERED "/env/lib64/python3.12/site-packages/nvidia/cu13/lib"
#define MADE_OF "/system/lib/python3/dist-packages/nvidia/cudnn/lib"

/* There is one wherever a program runs. */
#define THE_LOADERS "libc.so.6"

static char prefix[] = "/tmp/troupe-nvidia-XXXXXX";

static void in_prefix(const char *command)
{
    char *line = xasprintf("cd %s && %s", prefix, command);
    assert_int_equal(system(line), 0);
    free(line);
}

/* Any library is one of NVIDIA's to it. */
static int begin(void **state)
{
    (void)state;
    Dl_info cmocka;
    assert_non_null(mkdtemp(prefix));
    in_prefix("mkdir -p ." WHEEL " ." ENTERED " ." MADE_OF " env/bin toolkit/lib64");
    in_prefix("mkdir -p system/bin system/lib64; touch env/pyvenv.cfg");
    assert_int_not_equal(dladdr((const void *)(uintptr_t)_cmocka_run_group_tests, &cmocka), 0);
    char *copy = xasprintf("cp -L %s ." WHEEL "/libthing.so.1", cmocka.dli_fname);
    in_prefix(copy);
    free(copy);
    in_prefix("cp ." WHEEL "/libthing.so.1 ." ENTERED "/libentered.so.1");
    in_prefix("cp ." WHEEL "/libthing.so.1 ." ENTERED "/libboth.so.1");
    in_prefix("cp ." WHEEL "/libthing.so.1 ." MADE_OF "/libmade.so.1");
    in_prefix("cp ." MADE_OF "/libmade.so.1 ." MADE_OF "/libboth.so.1");
    in_prefix("cp ." MADE_OF "/libmade.so.1 ." MADE_OF "/" THE_LOADERS);
    in_prefix("cp ." MADE_OF "/libmade.so.1 system/lib64/libsystem.so.1");
    in_prefix("cp -L /bin/sh system/bin/python3.12; ln -s python3.12 system/bin/python3");
    in_prefix("ln -s ../../system/bin/python3 env/bin/python3");
    return 0;
}

static int end(void **state)
{
    (void)state;
    in_prefix("rm -r env lib system toolkit");
    return rmdir(prefix);
}

static void the_loader_is_asked_after_prefixes_and_before_those_behind_an_empty_one(void **state)
{
    (void)state;
    struct nvidia_library before, after;
    char *first = xasprintf("%s/system:", prefix), *last = xasprintf("/nowhere::%s/system", prefix);
    nvidia_look_under(first);
    nvidia_open(&before, THE_LOADERS);
    nvidia_look_under(last);
    nvidia_open(&after, THE_LOADERS);
    nvidia_look_under("");
    assert_memory_equal(before.path, prefix, strlen(prefix));
    assert_memory_not_equal(after.path, prefix, strlen(prefix));
    dlclose(before.handle);
    dlclose(after.handle);
    free(first);
    free(last);
}

static void a_wheel_of_a_python_under_a_prefix_is_found(void **state)
{
    (void)state;
    struct nvidia_library library;
    char *prefixes = xasprintf("/nowhere::%s/toolkit:%s", prefix, prefix);
    char *path = xasprintf("%s" WHEEL "/libthing.so.1", prefix);
    nvidia_look_under(prefixes);
    nvidia_open(&library, "libthing.so.1");
    assert_non_null(library.handle);
    assert_non_null(dlsym(library.handle, "_cmocka_run_group_tests"));
    assert_string_equal(library.path, path);
    dlclose(library.handle);
    nvidia_look_under("");
    nvidia_open(&library, "libthing.so.1");
    assert_null(library.handle);
    free(path);
    free(prefixes);
}

static void a_library_that_is_nowhere_is_named(void **state)
{
    (void)state;
    struct nvidia_library library;
    nvidia_open(&library, "libthing.so.2");
    assert_null(library.handle);
    assert_non_null(strstr(library.path, "libthing.so.2 is neither"));
}

static void a_file_that_is_no_library_says_why(void **state)
{
    (void)state;
    struct nvidia_library library;
    char *toolkit = xasprintf("%s/toolkit", prefix);
    in_prefix("echo nothing > toolkit/lib64/libbroken.so.1");
    nvidia_look_under(toolkit);
    nvidia_open(&library, "libbroken.so.1");
    nvidia_look_under("");
    assert_null(library.handle);
    assert_non_null(strstr(library.path, "toolkit/lib64/libbroken.so.1: "));
    free(toolkit);
}

static char *variables_of_the_test(const char *name)
{
    static char path[256], toolkit[256];
    snprintf(path, sizeof path, "bin:/nowhere/bin:%s/system/bin:%s/env/bin", prefix, prefix);
    snprintf(toolkit, sizeof toolkit, "%s", prefix);
    if (strcmp(name, "PATH") == 0)
        return path;
    return strcmp(name, "CUDA_HOME") == 0 ? toolkit : NULL;
}

static void open_named(const char *name, const char *folder)
{
    struct nvidia_library library;
    nvidia_open(&library, name);
    char *path = xasprintf("%s%s/%s", prefix, folder, name);
    if (!library.handle)
        fail_msg("%s: %s", name, library.path);
    char *found = realpath(library.path, NULL);
    assert_string_equal(found, path);
    dlclose(library.handle);
    free(found);
    free(path);
}

static void wheels_of_a_python_on_the_path_are_found_and_of_what_it_was_made_of(void **state)
{
    (void)state;
    nvidia_look_about(variables_of_the_test);
    open_named("libthing.so.1", WHEEL);
    open_named("libentered.so.1", ENTERED);
    open_named("libmade.so.1", MADE_OF);
    nvidia_look_under("");
}

static void of_a_python_that_is_no_environment_wheels_alone_count_and_last(void **state)
{
    (void)state;
    struct nvidia_library library;
    nvidia_look_about(variables_of_the_test);
    open_named("libboth.so.1", ENTERED);
    nvidia_open(&library, THE_LOADERS);
    assert_memory_not_equal(library.path, prefix, strlen(prefix));
    dlclose(library.handle);
    nvidia_open(&library, "libsystem.so.1");
    assert_null(library.handle);
    nvidia_look_under("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wheel_of_a_python_under_a_prefix_is_found),
        cmocka_unit_test(the_loader_is_asked_after_prefixes_and_before_those_behind_an_empty_one),
        cmocka_unit_test(of_a_python_that_is_no_environment_wheels_alone_count_and_last),
        cmocka_unit_test(wheels_of_a_python_on_the_path_are_found_and_of_what_it_was_made_of),
        cmocka_unit_test(a_library_that_is_nowhere_is_named),
        cmocka_unit_test(a_file_that_is_no_library_says_why),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
