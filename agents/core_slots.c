#include "core_slots.h"

#include <string.h>

#include <troupe/nn.h>

void core_slots_create(struct core_slots *core, size_t slots, size_t rows, size_t width)
{
    *core = (struct core_slots){.width = width};
    if (width == 0)
        return;
    core->slots = trp_floats_create(slots * width);
    core->states = trp_floats_create(rows * width);
}

void core_slots_cleanup(struct core_slots *core)
{
    trp_floats_destroy(core->slots);
    trp_floats_destroy(core->states);
}

void core_slots_recall(struct core_slots *core, const trp_act *act)
{
    for (uint32_t row = 0; row < act->rows && core->width > 0; row++) {
        const float *slot = core->slots + act->slots[row] * core->width;
        float *state = core->states + row * core->width;
        if (act->first[row])
            memset(state, 0, core->width * sizeof *state);
        else
            memcpy(state, slot, core->width * sizeof *state);
    }
}

void core_slots_keep(struct core_slots *core, const trp_act *act)
{
    for (uint32_t row = 0; row < act->rows && core->width > 0; row++)
        memcpy(core->slots + act->slots[row] * core->width, core->states + row * core->width,
               core->width * sizeof(float));
}
