/* Makes channels of taps, and a row of images. */
#include "view.h"

#include "../../core/space_to_depth.h"
#include "../../core/views.h"

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

/* Makes space-to-depth of the layer, if that is one layer whose outputs are loaded by rows or by pixels; else the view is the
 * layer. */
static void apply_space_to_depth(tconv_cpu_wgrad_view *view, const tconv_layer *layer, tconv_depth_is_worth *is_worth)
{
    tconv_depth_layer made[TCONV_MOST_DEPTH_LAYERS];
    const tconv_problem *problem = &layer->problem, *to = &made->problem;
    view->layer = *layer;
    if (tconv_space_to_depth(problem, 1, is_worth, made) != 1 || made->count != 1 || (to->dst.c != 1 && to->dst.w != 1))
        return;
    view->layer.problem = *to;
    if (to->h.kernel != problem->h.kernel)
        view->layer.rows = tconv_one_phase(&to->h, &view->row);
    if (to->w.kernel != problem->w.kernel)
        view->layer.columns = tconv_one_phase(&to->w, &view->column);
}

/* Whether an image is an input and an output for each of its channels, which are neighbours. */
static bool is_pixel(const tconv_problem *of)
{
    return tconv_is_one_pixel_axis(&of->h) && tconv_is_one_pixel_axis(&of->w) &&
           (of->in_channels == 1 || of->src.c == 1) && (of->out_channels == 1 || of->dst.c == 1) &&
           (of->group_out == 1 || of->weight.out == 1);
}

/* Makes pixels of a row of images that are each a pixel. */
static void join_images(tconv_cpu_wgrad_view *view)
{
    tconv_problem *of = &view->layer.problem;
    of->layout = TCONV_NHWC;
    of->h = of->w = tconv_one_pixel_axis();
    of->w.in = of->w.out = of->batch;
    of->batch = 1;
    of->src.c = of->dst.c = of->weight.out = 1;
    of->src.w = of->src.n;
    of->dst.w = of->dst.n;
    view->layer.rows = tconv_one_phase(&of->h, &view->row);
    view->layer.columns = tconv_one_phase(&of->w, &view->column);
}

void tconv_cpu_wgrad_view_init(tconv_cpu_wgrad_view *view, const tconv_layer *layer)
{
    view->layer = *layer;
    if (layer->problem.batch == 0)
        return;
    apply_space_to_depth(view, layer, has_one_input);
    if (is_pixel(&view->layer.problem))
        join_images(view);
    else
        apply_space_to_depth(view, layer, has_many_taps);
}
