/* What lies where in a flat vector: places of several networks in one of them, and a text by which
 * two processes, or a process and a file, see that they mean the same network. */
#include <troupe/nn.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/buffer.h"

size_t trp_net_tensors_at(const trp_net_spec *spec, size_t first,
                          trp_net_tensor tensors[TRP_NET_TENSORS_MAX])
{
    size_t count = trp_net_tensors(spec, tensors);
    for (size_t i = 0; i < count; i++)
        tensors[i].offset += first;
    return count;
}

__attribute__((format(printf, 2, 3))) static void layout_append(struct buffer *text,
                                                                const char *format, ...)
{
    char part[128]; /* the longest is a name */
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof part, format, args);
    va_end(args);
    buffer_append(text, text_bytes(part));
}
_Static_assert(sizeof((trp_net_tensor *)0)->name < 128, "a name is a part");

static void append_tensor(struct buffer *text, const trp_net_tensor *tensor, size_t first)
{
    layout_append(text, "%s ", tensor->name);
    for (uint32_t i = 0; i < tensor->rank; i++)
        layout_append(text, "[%" PRIu64 "]", tensor->shape[i]);
    layout_append(text, " at %zu (", tensor->offset - first);
    for (uint32_t i = 0; i < tensor->axis_count; i++)
        layout_append(text, "%s%zu by %zu", i > 0 ? ", " : "", tensor->axes[i].count,
                      tensor->axes[i].stride);
    layout_append(text, ")\n");
}

char *trp_net_layout(const trp_net_tensor *tensors, size_t count, size_t first)
{
    struct buffer text = {0};
    for (size_t i = 0; i < count; i++)
        append_tensor(&text, &tensors[i], first);
    return buffer_text(&text);
}

trp_status trp_net_layout_compare(const char *layout, const char *whose, const char *other,
                                  const char *whose_other)
{
    if (layout[0] == '\0' || other[0] == '\0')
        return TRP_OK;
    while (layout[0] != '\0' || other[0] != '\0') {
        size_t mine = strcspn(layout, "\n"), theirs = strcspn(other, "\n");
        if (mine != theirs || memcmp(layout, other, mine) != 0)
            return trp_fail(TRP_FAILED_PRECONDITION, "%s has %.*s where %s has %.*s", whose,
                            mine ? (int)mine : 14, mine ? layout : "no more tensor", whose_other,
                            theirs ? (int)theirs : 14, theirs ? other : "no more tensor");
        layout += mine + (layout[mine] == '\n');
        other += theirs + (other[theirs] == '\n');
    }
    return TRP_OK;
}
