/* Finds layers whose outputs can be seen as channels, or groups as one: see tconv_igemm_view_init. */
#include "../../core/checked.h"
#include "view.h"

namespace tconv::igemm
{

namespace
{

constexpr int64_t VECTOR = 16;                          /* bytes that are stored at once */
constexpr int64_t CHUNK = 128, MOST_UNITED = 4 * CHUNK; /* bytes of input channels */

/* Whether an axis of one input has a tap for each output. Its stride is as long as the kernel reaches (tconv_axis_canonical),
 * so that each output is a phase of its own, with one tap. */
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

void see_one_pixel(tconv_igemm_view *view)
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

/* The columns that are seen as channels; 1 for none. Two are worth it in strict f32 alone: where warpgroups have two units those
 * of neighbouring phases are stored in pairs, which is faster. */
int64_t columns_together(const tconv_layer *layer)
{
    const tconv_axis *axis = &layer->problem.w;
    const tconv_phase_table *table = &layer->columns;
    const bool strict = layer->problem.dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32;
    const int64_t least = strict ? 2 : 4;
    int64_t together = VECTOR / (int64_t)layer->problem.element_size;
    if (axis->dilation != 1 || table->bias_only > 0)
        return 1;
    while (together > 1 && (axis->stride % together != 0 || axis->pad % together != 0 || axis->kernel % together != 0 ||
                            axis->out % together != 0))
        together /= 2;
    return together >= least && table->count / together <= TCONV_IGEMM_VIEW_PHASES ? together : 1;
}

void see_columns(tconv_igemm_view *view, int64_t together)
{
    tconv_problem *problem = &view->layer.problem;
    tconv_phase_table *table = &view->layer.columns;
    const tconv_phase *all = table->phases;
    view->outputs = view->out_columns = together;
    problem->w.stride /= together;
    problem->w.pad /= together;
    problem->w.kernel /= together;
    problem->w.out /= together;
    problem->group_out *= together;
    problem->out_channels *= together;
    problem->dst.w *= together;
    problem->weight.w *= together;
    table->stride /= together;
    table->kernel_step /= together;
    table->count /= together;
    table->phases = view->phases;
    for (int64_t i = 0; i < table->count; i++) {
        view->phases[i] = all[i * together]; /* by residue: all residues are there */
        view->phases[i].residue /= together;
        view->phases[i].first_kernel /= together;
    }
}

void unite_groups(tconv_igemm_view *view)
{
    tconv_problem *problem = &view->layer.problem;
    const int64_t bytes = problem->group_in * (int64_t)problem->element_size, whole = CHUNK / tconv_gcd(bytes, CHUNK);
    view->united = problem->groups % whole == 0 ? whole : problem->groups;
    if (view->united * bytes > MOST_UNITED)
        view->united = 1;
    problem->groups /= view->united;
    problem->group_in *= view->united;
    problem->group_out *= view->united;
}

} // namespace

void tconv_igemm_view_init(tconv_igemm_view *view, const tconv_layer *layer)
{
    view->layer = *layer;
    view->outputs = view->out_columns = 1;
    view->one_pixel = false;
    unite_groups(view);
    if (layer->problem.layout != TCONV_NCHW)
        return;
    if (is_one_pixel(layer))
        see_one_pixel(view);
    else if (const int64_t together = columns_together(layer); together > 1)
        see_columns(view, together);
}

} // namespace tconv::igemm
