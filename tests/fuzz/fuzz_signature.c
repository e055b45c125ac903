/* Any bytes as a table's signature: refused with a message, or every leaf of it can be named,
 * described and compared, and a table may have it. libFuzzer's entry point. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include <troupe/replay.h>
#include "replay/model/signature.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_leaf(const struct signature *signature, const struct signature_leaf *leaf)
{
    char text[64];
    uint32_t known = leaf->rank < TRP_RANK_MAX ? leaf->rank : TRP_RANK_MAX;
    tensor_describe(text, sizeof text, leaf->dtype, known, leaf->dims);
    assert(strlen(text) < sizeof text);
    trp_tensor_spec column = {.name = leaf->path, .dtype = TRP_INT64};
    if (signature_check(signature, &column, 1, "t") != TRP_OK)
        assert(strlen(trp_last_error()) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct signature signature = {0};
    trp_status status = signature_decode((trp_bytes){data, size}, &signature);
    if (status != TRP_OK)
        assert(strlen(trp_last_error()) > 0);
    for (size_t i = 0; status == TRP_OK && i < signature.count; ++i)
        check_leaf(&signature, &signature.leaves[i]);
    signature_cleanup(&signature);
    trp_table_options options = {.name = "t", .max_size = 1, .signature = {data, size}};
    assert(size == 0 || trp_table_options_check(&options) == status);
    return 0;
}
