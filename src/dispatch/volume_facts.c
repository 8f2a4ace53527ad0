/* Answers what is asked of the plan of a layer with depth: its calls, the part with the most work, whose bits its images have. */
#include "../core/impl.h"
#include "volume.h"
#include "volume_plan.h"

/* The plan that computes the layer: of the view, or of a view's view, if there is one. */
static const tconv_volume_plan *innermost(const tconv_volume_plan *volume)
{
    while (volume->view.inner != NULL)
        volume = volume->view.inner->volume;
    return volume;
}

bool tconv_volume_is_batch_invariant(const tconv_volume_plan *volume)
{
    volume = innermost(volume);
    for (int64_t i = 0; i < volume->plan_count; i++)
        for (int slot = 0; slot < SLOTS; slot++) {
            const tconv_plan *layer = tconv_volume_layer_of(volume, i, slot);
            if (layer != NULL && !tconv_is_batch_invariant(layer->implementation, &layer->layer, layer->made))
                return false;
        }
    return true;
}

int64_t tconv_volume_calls(const tconv_plan *plan)
{
    const tconv_volume_plan *volume = innermost(plan->volume);
    int64_t calls = 0;
    for (int64_t i = 0; i < volume->plan_count; i++)
        calls += volume->plans[i].kind == FLAT
                     ? 1
                     : tconv_volume_calls_of(&plan->layer.problem, &volume->parts.parts[i], &volume->plans[i]);
    return calls;
}

const tconv_plan *tconv_volume_main(const tconv_volume_plan *volume)
{
    volume = innermost(volume);
    return volume->main >= 0 ? volume->layers[volume->main] : NULL;
}
