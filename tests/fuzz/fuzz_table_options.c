/* Any line into the parser of table options: it crashes on none, a refused line has a message, and
 * what parses has a text that parses to the same text. libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/replay.h>
#include "core/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const trp_table_options *options)
{
    assert(trp_table_options_check(options) == TRP_OK);
    char *text = trp_table_options_format(options);
    trp_table_options *back;
    trp_status status = trp_table_options_parse(text, &back);
    assert(status == TRP_OK);
    char *again = trp_table_options_format(back);
    assert(strcmp(text, again) == 0);
    trp_table_options_destroy(back);
    free(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *line = xmalloc(size + 1);
    memcpy(line, data, size);
    line[size] = '\0';
    if (!strstr(line, "signature=")) { /* would open files of the machine it runs on */
        trp_table_options *options;
        if (trp_table_options_parse(line, &options) == TRP_OK)
            check_round_trip(options);
        else
            assert(trp_last_error()[0] != '\0');
        trp_table_options_destroy(options);
    }
    free(line);
    return 0;
}
