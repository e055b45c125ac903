#include "utf8.h"

size_t utf8_size(const uint8_t *at, const uint8_t *end)
{
    size_t size = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (size > (size_t)(end - at))
        return 0;
    uint32_t code = size == 1 ? at[0] : at[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    bool lead = size == 1 || (at[0] >= 0xc2 && at[0] <= 0xf4);
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return lead && code >= smallest[size] && code <= 0x10ffff && !surrogate ? size : 0;
}

bool utf8_is_text(trp_bytes bytes)
{
    for (size_t i = 0, step; i < bytes.size; i += step) {
        step = utf8_size(bytes.data + i, bytes.data + bytes.size);
        if (step == 0)
            return false;
    }
    return true;
}
