/* Runs a fuzz target without a fuzzer: on every file of the given directories, on every prefix of
 * it, and with every byte changed in four ways. Fails when it was given nothing to run. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly this size, so that a sanitizer sees the first byte beyond it. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = xmalloc(size ? size : 1);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_variants(uint8_t *data, size_t size)
{
    static const uint8_t masks[] = {0x01, 0x08, 0x80, 0xff};
    for (size_t i = 0; i <= size; ++i)
        run(data, i);
    for (size_t i = 0; i < size; ++i) {
        for (size_t m = 0; m < sizeof masks; ++m) {
            data[i] ^= masks[m];
            run(data, size);
            data[i] ^= masks[m];
        }
    }
}

static int run_file(const char *path)
{
    enum { SIZE_MAX_HERE = 64 * 1024 };
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 0;
    }
    uint8_t *data = xmalloc(SIZE_MAX_HERE);
    size_t size = fread(data, 1, SIZE_MAX_HERE, file);
    fclose(file);
    run_variants(data, size);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; ++i) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            perror(argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(dir));) {
            if (entry->d_name[0] == '.')
                continue;
            char *path = xasprintf("%s/%s", argv[i], entry->d_name);
            files += run_file(path);
            free(path);
        }
        closedir(dir);
    }
    printf("%d files\n", files);
    return files > 0 ? 0 : 1;
}
