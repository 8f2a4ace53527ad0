/* Layers whose columns a stride apart are pixels, with the columns between as channels. */
#include "plan.h"

#include "../../core/space_to_depth.h"

static bool is_along_columns(const tconv_problem *before, const tconv_problem *after, bool columns)
{
    (void)before, (void)after;
    return columns;
}

bool tconv_dgrad_columns_to_depth(const tconv_layer *layer, tconv_layer *deep)
{
    tconv_depth_layer made[TCONV_MOST_DEPTH_LAYERS];
    tconv_problem plane = layer->problem;
    tconv_plane_taps *const taps = &deep->problem.plane_taps;
    if (plane.plane_taps.taps > 0)
        plane.out_channels = plane.group_out = plane.plane_taps.channels;
    if (plane.plane_taps.held != (plane.plane_taps.taps > 0 ? plane.out_channels : 0) ||
        tconv_space_to_depth(&plane, 1, is_along_columns, made) != 1 || made[0].count != 1)
        return false;
    *deep = *layer;
    deep->problem = made[0].problem;
    deep->problem.layout = layer->problem.layout;
    if (taps->taps > 0) {
        taps->channels = taps->held = deep->problem.out_channels;
        deep->problem.out_channels = deep->problem.group_out = taps->taps * taps->channels;
    }
    return deep->problem.dst.c == 1 && deep->problem.out_channels <= INT32_MAX && layer->problem.w.in > 1;
}

bool tconv_dgrad_has_short_pixels(const tconv_problem *problem)
{
    const int64_t channels = problem->plane_taps.taps > 0 ? problem->plane_taps.channels : problem->group_out;
    return problem->element_size == 2 && channels <= 32;
}
