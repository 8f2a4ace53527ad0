/* Space-to-depth of a layer. */
#include "space_to_depth.h"

#include "checked.h"
#include "views.h"

#define MOST_LAYERS 64 /* that are alike: each is launched by itself */

/* An axis of a problem, with what belongs to it, and the other one. */
typedef struct axis_view {
    tconv_axis *axis, *other;
    int64_t *src, *dst, *weight; /* strides along it */
    int64_t *other_dst, *other_weight;
} axis_view;

static axis_view view(tconv_problem *of, bool columns)
{
    if (columns)
        return (axis_view){&of->w, &of->h, &of->src.w, &of->dst.w, &of->weight.w, &of->dst.h, &of->weight.h};
    return (axis_view){&of->h, &of->w, &of->src.h, &of->dst.h, &of->weight.h, &of->dst.w, &of->weight.w};
}

/* Makes channels of so many residues, which are neighbours along an axis; false where they lie otherwise. */
static bool join_channels(tconv_problem *of, const axis_view *along, int64_t residues)
{
    const int64_t channels = of->out_channels;
    if (channels == 1 || (of->dst.c == residues * *along->dst && of->weight.out == residues * *along->weight)) {
        of->dst.c = *along->dst;
        of->weight.out = *along->weight;
    } else if (of->groups != 1 || *along->dst != channels * of->dst.c || *along->weight != channels * of->weight.out) {
        return false;
    }
    of->out_channels *= residues;
    of->group_out *= residues;
    return true;
}

/* Makes outputs and taps of them of the other axis, as many as tables hold in each of several layers. */
static bool join_other(tconv_depth_layer *of, const axis_view *along, int64_t residues, int64_t most_taps)
{
    if (!tconv_is_one_pixel_axis(along->other))
        return false;
    int64_t taps = tconv_min(residues, most_taps);
    while (residues % taps != 0)
        taps--;
    if (residues > MOST_LAYERS * taps)
        return false;
    *along->other = (tconv_axis){1, taps, taps, taps, 1, 0, 0};
    *along->other_dst = *along->dst;
    *along->other_weight = *along->weight;
    of->count = residues / taps;
    of->dst_step = taps * *along->dst;
    of->weights_step = taps * *along->weight;
    return true;
}

/* Space-to-depth of taps s * j + r of an axis, for `taps` numbers j from `first` on and r < residues; false where that is no layer. */
static bool axis_to_depth(tconv_depth_layer *of, bool columns, int64_t first, int64_t taps, int64_t residues,
                          int64_t most_taps)
{
    const axis_view along = view(&of->problem, columns);
    const tconv_axis axis = *along.axis;
    const int64_t pad = axis.pad / axis.stride - first; /* of outputs q; below 0: the first ones are read by no tap */
    const int64_t skipped = pad < 0 ? -pad : 0, left = axis.out - skipped * axis.stride;
    const int64_t out = left < residues ? 0 : (left - residues) / axis.stride + 1;
    const int64_t last = axis.in - 1 + taps - 1 - tconv_max(pad, 0);
    if (axis.dilation != 1 || axis.pad % axis.stride != 0 || of->count != 1 || out < 1 ||
        (last >= out && left > out * axis.stride))
        return false;
    if (!join_channels(&of->problem, &along, residues) && !join_other(of, &along, residues, most_taps))
        return false;
    of->dst += skipped * axis.stride * *along.dst;
    of->weights += first * axis.stride * *along.weight;
    *along.axis = (tconv_axis){axis.in, out, taps, axis.in == 1 ? taps : 1, 1, tconv_max(pad, 0), 0};
    /* What is not used is a multiple of what others are. */
    *along.src = axis.in == 1 ? of->problem.src.n : *along.src;
    *along.dst = out == 1 ? of->problem.dst.n : *along.dst * axis.stride;
    *along.weight *= axis.stride;
    return true;
}

int tconv_space_to_depth(const tconv_problem *problem, int64_t most_taps, tconv_depth_is_worth *is_worth,
                         tconv_depth_layer made[TCONV_MOST_DEPTH_LAYERS])
{
    static const bool order[] = {true, false,
                                 true}; /* columns or rows: one's channels may be those that the other needs */
    int count = 0;
    made[0] = (tconv_depth_layer){*problem, 0, 0, 1, 0, 0};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        const bool columns = order[i];
        const tconv_axis *axis = columns ? &made[0].problem.w : &made[0].problem.h;
        const int64_t whole = axis->kernel / axis->stride, rest = axis->kernel % axis->stride;
        if (axis->kernel == 1 || axis->stride == 1 || whole == 0 || (rest > 0 && count > 0))
            continue;
        tconv_depth_layer first = made[0], behind = made[0];
        if (!axis_to_depth(&first, columns, 0, whole, axis->stride, most_taps) ||
            (rest > 0 && !axis_to_depth(&behind, columns, whole, 1, rest, most_taps)))
            continue;
        first.problem.layout = behind.problem.layout = TCONV_NHWC; /* columns are no neighbours any more */
        if (!is_worth(&made[0].problem, &first.problem, columns))
            continue;
        made[0] = first;
        made[1] = behind;
        count = rest > 0 ? 2 : count > 0 ? count : 1;
    }
    return count;
}
