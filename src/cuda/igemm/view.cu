/* Finds layers whose outputs can be seen as channels, or groups as one: see init_view. */
#include "../../core/checked.h"
#include "view.h"

namespace tconv::igemm
{

namespace
{

constexpr int64_t VECTOR = 16;                          /* bytes that are stored at once */
constexpr int64_t K_BLOCK_BYTES = 128;                  /* bytes of input channels of a K-block */
constexpr int64_t MOST_FUSED_BYTES = 4 * K_BLOCK_BYTES; /* bytes of input channels of fused groups, at most */

/* Tells whether an axis of one input has a tap for each output. Its stride is as long as the kernel reaches
 * (tconv_axis_canonical), so that each output is a phase of its own, with one tap. */
bool has_all_taps(const tconv_axis *axis, const tconv_phase_table *table)
{
    if (axis->in != 1 || table->count != axis->out)
        return false;
    for (int64_t i = 0; i < table->count; i++)
        if (table->phases[i].taps != 1 || table->phases[i].first_shift != 0)
            return false;
    return true;
}

bool is_one_pixel(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return has_all_taps(&problem->h, &layer->rows) && has_all_taps(&problem->w, &layer->columns) &&
           problem->src.c == 1 && problem->dst.c == problem->h.out * problem->w.out;
}

void flatten_one_pixel(layer_view *view)
{
    tconv_problem *flat = &view->layer.problem;
    const int64_t outputs = flat->h.out * flat->w.out;
    tconv_phase_table plain = {1, 1, 1, 1, 0, 1, 0, 0, view->phases};
    view->phases[0] = {0, 1, 1, 0, 0};
    view->layer.rows = view->layer.columns = plain;
    view->one_pixel = true;
    view->outputs = outputs;
    view->out_columns = flat->w.out;
    flat->layout = TCONV_NHWC;
    flat->h = flat->w = {1, 1, 1, 1, 1, 0, 0};
    flat->group_out *= outputs;
    flat->out_channels *= outputs;
    flat->dst.c = 1;
    flat->src.w = flat->src.h = flat->src.n;
    flat->dst.w = flat->dst.h = flat->dst.n;
}

/* The columns that space-to-depth makes channels of; 1 for none. Two are worth it in strict f32 alone: where warpgroups
 * have two MMA tiles, those of neighbouring phases are stored as a pair, which is faster. */
int64_t space_to_depth_factor(const tconv_layer *layer)
{
    const tconv_axis *axis = &layer->problem.w;
    const tconv_phase_table *table = &layer->columns;
    const bool strict = layer->problem.dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32;
    const int64_t least = strict ? 2 : 4;
    int64_t factor = VECTOR / (int64_t)layer->problem.element_size;
    if (axis->dilation != 1 || table->bias_only > 0)
        return 1;
    while (factor > 1 && (axis->stride % factor != 0 || axis->pad % factor != 0 || axis->kernel % factor != 0 ||
                          axis->out % factor != 0))
        factor /= 2;
    return factor >= least && table->count / factor <= MAX_VIEW_PHASES ? factor : 1;
}

void apply_space_to_depth(layer_view *view, int64_t factor)
{
    tconv_problem *problem = &view->layer.problem;
    tconv_phase_table *table = &view->layer.columns;
    const tconv_phase *all = table->phases;
    view->outputs = view->out_columns = factor;
    problem->w.stride /= factor;
    problem->w.pad /= factor;
    problem->w.kernel /= factor;
    problem->w.out /= factor;
    problem->group_out *= factor;
    problem->out_channels *= factor;
    problem->dst.w *= factor;
    problem->weight.w *= factor;
    table->stride /= factor;
    table->kernel_step /= factor;
    table->count /= factor;
    table->phases = view->phases;
    for (int64_t i = 0; i < table->count; i++) {
        view->phases[i] = all[i * factor]; /* phases are sorted by residue, and all residues are there */
        view->phases[i].residue /= factor;
        view->phases[i].first_kernel /= factor;
    }
}

void fuse_groups(layer_view *view)
{
    tconv_problem *problem = &view->layer.problem;
    const int64_t bytes = problem->group_in * (int64_t)problem->element_size,
                  whole = K_BLOCK_BYTES / tconv_gcd(bytes, K_BLOCK_BYTES);
    view->fused_groups = problem->groups % whole == 0 ? whole : problem->groups;
    if (view->fused_groups * bytes > MOST_FUSED_BYTES)
        view->fused_groups = 1;
    problem->groups /= view->fused_groups;
    problem->group_in *= view->fused_groups;
    problem->group_out *= view->fused_groups;
}

} // namespace

void init_view(layer_view *view, const tconv_layer *layer)
{
    view->layer = *layer;
    view->outputs = view->out_columns = 1;
    view->one_pixel = false;
    fuse_groups(view);
    if (layer->problem.layout != TCONV_NCHW)
        return;
    if (is_one_pixel(layer))
        flatten_one_pixel(view);
    else if (const int64_t factor = space_to_depth_factor(layer); factor > 1)
        apply_space_to_depth(view, factor);
}

} // namespace tconv::igemm
