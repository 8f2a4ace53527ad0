/* Makes channels of taps, and a row of images. */
#include "outer_view.h"

#include "../core/space_to_depth.h"

/* Taps along an axis that are many: those of one output channel become channels, which are loaded side by side. 16 taps of
 * a stride of 8 took as long either way, 4,096 of a stride of 1,024 .64 to .76 of the time
 * (docs/log/2026-11-26-cpu-gradients.md). */
enum { MANY_TAPS = 256 };

static bool has_one_input(const tconv_problem *before, const tconv_problem *after, bool columns)
{
    (void)after;
    return (columns ? before->w.in : before->h.in) == 1;
}

static bool has_many_taps(const tconv_problem *before, const tconv_problem *after, bool columns)
{
    (void)after;
    return (columns ? before->w.kernel : before->h.kernel) > MANY_TAPS;
}

/* Makes space-to-depth of the layer, if that is one layer whose outputs are loaded by rows or by pixels. */
static bool apply_space_to_depth(const tconv_layer *layer, tconv_depth_is_worth *is_worth, tconv_problem *to)
{
    tconv_depth_layer made[TCONV_MOST_DEPTH_LAYERS];
    if (layer->problem.batch == 0 || tconv_space_to_depth(&layer->problem, 1, is_worth, made) != 1 ||
        made->count != 1 || (made->problem.dst.c != 1 && made->problem.dst.w != 1))
        return false;
    *to = made->problem;
    return true;
}

/* The phases of an axis that space-to-depth made, of stride 1. */
static tconv_phase_table one_phase(const tconv_axis *axis, tconv_phase *phase)
{
    *phase = (tconv_phase){.outputs = axis->out, .taps = axis->kernel, .first_shift = axis->pad};
    return (tconv_phase_table){.stride = 1,
                               .kernel_step = 1,
                               .shift_step = 1,
                               .count = 1,
                               .max_taps = axis->kernel,
                               .min_shift = axis->pad - (axis->kernel - 1),
                               .max_shift = axis->pad,
                               .phases = phase};
}

/* Whether an image is an input and an output for each of its channels, which are neighbours. */
static bool is_pixel(const tconv_problem *of)
{
    const tconv_axis *h = &of->h, *w = &of->w;
    return h->in == 1 && h->out == 1 && h->kernel == 1 && h->pad == 0 && w->in == 1 && w->out == 1 && w->kernel == 1 &&
           w->pad == 0 && (of->in_channels == 1 || of->src.c == 1) && (of->out_channels == 1 || of->dst.c == 1) &&
           (of->group_out == 1 || of->weight.out == 1);
}

bool tconv_cpu_view_images(tconv_cpu_outer_view *view, const tconv_layer *layer)
{
    tconv_problem *seen = &view->layer.problem;
    view->layer = *layer;
    apply_space_to_depth(layer, has_one_input, seen);
    if (layer->problem.batch == 0 || !is_pixel(seen)) {
        view->layer = *layer;
        return false;
    }
    seen->layout = TCONV_NHWC;
    seen->h = seen->w = (tconv_axis){.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
    seen->w.in = seen->w.out = seen->batch;
    seen->batch = 1;
    seen->src.c = seen->dst.c = seen->weight.out = 1;
    seen->src.w = seen->src.n;
    seen->dst.w = seen->dst.n;
    view->layer.rows = one_phase(&seen->h, &view->row);
    view->layer.columns = one_phase(&seen->w, &view->column);
    return true;
}

void tconv_cpu_outer_view_init(tconv_cpu_outer_view *view, const tconv_layer *layer)
{
    tconv_problem *seen = &view->layer.problem;
    if (tconv_cpu_view_images(view, layer) || !apply_space_to_depth(layer, has_many_taps, seen))
        return;
    if (seen->h.kernel != layer->problem.h.kernel)
        view->layer.rows = one_phase(&seen->h, &view->row);
    if (seen->w.kernel != layer->problem.w.kernel)
        view->layer.columns = one_phase(&seen->w, &view->column);
}
