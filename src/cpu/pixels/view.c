/* Finds pixels with contiguous channels in an NCHW layer: images of one input pixel, see tconv_cpu_pixel_view. */
#include "view.h"

#include "../../core/views.h"

bool tconv_cpu_pixel_view_init(tconv_cpu_pixel_view *view, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t outputs = problem->h.out * problem->w.out;
    *view = (tconv_cpu_pixel_view){.layer = *layer, .outputs = 1};
    if (problem->layout == TCONV_NHWC)
        return true;
    if (!tconv_is_one_pixel(layer) || (problem->in_channels > 1 && problem->src.c != 1) ||
        (problem->out_channels > 1 && problem->dst.c != outputs))
        return false;
    tconv_problem *flat = &view->layer.problem;
    view->outputs = outputs;
    tconv_flatten_one_pixel(flat);
    flat->src.w = flat->src.h = flat->in_channels; /* the one pixel is dense, whatever the distance of images */
    flat->dst.w = flat->dst.h = flat->out_channels;
    view->layer.rows = view->layer.columns = tconv_one_phase(&flat->h, &view->phase);
    return true;
}
