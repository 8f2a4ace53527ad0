/* The layers of two axes of a layer with depth: how they are described, and their plans. */
#include <string.h>

#include "../core/alloc.h"
#include "../core/status.h"
#include "../core/views.h"
#include "choose.h"
#include "resolve.h"
#include "volume_plan.h"

/* ------------------------------------------------------------------------------------------------- layers of two axes */

static void release_layer(tconv_plan *layer, const tconv_allocator *allocator)
{
    if (layer == NULL)
        return;
    tconv_release(allocator, layer->made);
    tconv_layer_release_phases(&layer->layer, allocator);
    tconv_release(allocator, layer);
}

bool tconv_volume_stacks(const tconv_problem *problem)
{
    return problem->desc.op == TCONV_FORWARD && tconv_has_single_taps(&problem->d) &&
           tconv_has_single_taps(&problem->h);
}

/* Has the rows of a layer be those of as many planes as the stride of depth says. */
static tconv_status stack_rows(const tconv_problem *volume, tconv_layer *layer, const tconv_allocator *allocator,
                               tconv_issue *issue)
{
    const int64_t planes = volume->d.stride, rows = layer->rows.count;
    void *memory;
    const tconv_status status =
        tconv_allocate_for(allocator, (size_t)(planes * rows) * sizeof(tconv_phase), "phases", &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tconv_phase *phases = memory;
    for (int64_t plane = 0; plane < planes; plane++)
        for (int64_t row = 0; row < rows; row++) {
            tconv_phase *phase = &phases[plane * rows + row];
            *phase = layer->rows.phases[row];
            phase->residue += plane * volume->h.out;
            phase->first_kernel += plane * volume->h.kernel;
        }
    tconv_release(allocator, layer->rows.phases);
    layer->rows.phases = phases;
    layer->rows.count *= planes;
    layer->stacked_rows = true;
    tconv_problem *problem = &layer->problem;
    problem->h.out *= planes;
    problem->h.kernel *= planes;
    problem->dst_extent += (planes - 1) * volume->dst.d;
    problem->weight = volume->weight;
    problem->weight_extent = volume->weight_extent;
    return TCONV_SUCCESS;
}

/* Has the images of a layer be those of volumes that lie so. */
static void set_volumes(tconv_problem *problem, const tconv_image_volumes *volumes)
{
    const bool of_src = problem->desc.op == TCONV_BACKWARD_DATA;
    problem->volumes = *volumes;
    if (volumes->images == 0)
        return;
    const int64_t apart = volumes->written - volumes->images * (of_src ? problem->src.n : problem->dst.n);
    *(of_src ? &problem->src_extent : &problem->dst_extent) += (tconv_volumes(problem) - 1) * apart;
}

/* Plans a layer of two axes by the implementation that the plan names, or by whichever is best. */
static tconv_status plan_layer(const tconv_plan *plan, const plane_layer *wanted, tconv_plan *layer, tconv_issue *issue)
{
    const tconv_plane_taps *taps = &wanted->taps;
    tconv_status status;
    *layer = *plan;
    layer->made = NULL;
    layer->volume = NULL;
    memset(&layer->layer.rows, 0, sizeof layer->layer.rows);
    memset(&layer->layer.columns, 0, sizeof layer->layer.columns);
    layer->layer.packed_before = wanted->packed_before;
    if ((status = tconv_problem_derive(&layer->layer.problem, &wanted->desc, issue)) ||
        (status = tconv_layer_create_phases(&layer->layer, &plan->allocator, issue)) ||
        (wanted->stacked && (status = stack_rows(&plan->layer.problem, &layer->layer, &plan->allocator, issue))))
        return status;
    set_volumes(&layer->layer.problem, &wanted->volumes);
    layer->layer.problem.plane_taps = *taps;
    if (taps->taps > 0) {
        const bool of_src = wanted->desc.op == TCONV_FORWARD;
        const tconv_strides *from = of_src ? &plan->layer.problem.src : &plan->layer.problem.dst;
        const tconv_strides planes = {.n = from->d, .c = from->c, .h = from->h, .w = from->w};
        *(of_src ? &layer->layer.problem.src : &layer->layer.problem.dst) = planes;
        layer->layer.problem.weight = plan->layer.problem.weight;
    }
    status = tconv_plan_choose_implementation(layer, issue);
    if (status != TCONV_ERROR_UNSUPPORTED || plan->named == NULL || taps->taps > 0 || wanted->volumes.images > 0 ||
        wanted->stacked || tconv_has_depth(&layer->layer.problem))
        return status;
    tconv_release(&plan->allocator, layer->made);
    tconv_issue_clear(issue);
    layer->made = NULL;
    layer->named = NULL;
    return tconv_plan_choose_implementation(layer, issue);
}

/* Makes room for one more layer. */
static tconv_status grow(tconv_volume_plan *volume, const tconv_allocator *allocator, tconv_issue *issue)
{
    void *memory;
    if (volume->layer_count < volume->layer_room)
        return TCONV_SUCCESS;
    const int64_t room = volume->layer_room * 2 + 8;
    const tconv_status status =
        tconv_allocate_for(allocator, (size_t)room * sizeof(tconv_plan *), "layers", &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (volume->layer_count > 0)
        memcpy(memory, volume->layers, (size_t)volume->layer_count * sizeof(tconv_plan *));
    tconv_release(allocator, volume->layers);
    volume->layers = memory;
    volume->layer_room = room;
    return TCONV_SUCCESS;
}

/* Whether a layer that was planned, or could not be, is the wanted one. */
static bool is_wanted(const tconv_layer *layer, const plane_layer *wanted)
{
    return layer->packed_before == wanted->packed_before && layer->stacked_rows == wanted->stacked &&
           memcmp(&layer->problem.desc, &wanted->desc, sizeof wanted->desc) == 0 &&
           memcmp(&layer->problem.plane_taps, &wanted->taps, sizeof wanted->taps) == 0 &&
           memcmp(&layer->problem.volumes, &wanted->volumes, sizeof wanted->volumes) == 0;
}

tconv_status tconv_volume_find_layer(const tconv_plan *plan, const plane_layer *wanted, int64_t *index,
                                     tconv_issue *issue)
{
    tconv_volume_plan *volume = plan->volume;
    void *memory;
    tconv_status status;
    for (*index = 0; *index < volume->layer_count; ++*index)
        if (is_wanted(&volume->layers[*index]->layer, wanted))
            return volume->layers[*index]->implementation != NULL
                       ? TCONV_SUCCESS
                       : tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "implementation", "none takes planes as they lie");
    if ((status = grow(volume, &plan->allocator, issue)) ||
        (status = tconv_allocate_for(&plan->allocator, sizeof *plan, "plan", &memory, issue)))
        return status;
    volume->layers[volume->layer_count++] = memory;
    return plan_layer(plan, wanted, memory, issue);
}

void tconv_volume_release_layers(tconv_volume_plan *volume, const tconv_allocator *allocator)
{
    for (int64_t i = 0; i < volume->layer_count; i++)
        release_layer(volume->layers[i], allocator);
    tconv_release(allocator, volume->layers);
}

/* ------------------------------------------------------------------------------------------------ descriptions of parts */

static tconv_desc begin_desc(const tconv_problem *problem)
{
    tconv_desc desc = problem->desc;
    tconv_drop_depth(&desc);
    memset(desc.src_strides, 0, sizeof desc.src_strides);
    memset(desc.dst_strides, 0, sizeof desc.dst_strides);
    memset(desc.addend_strides, 0, sizeof desc.addend_strides);
    return desc;
}

/* Sets strides of planes as they lie, which are `image` apart. */
static void lie(int64_t strides[4], const tconv_strides *from, int64_t image)
{
    strides[0] = image;
    strides[1] = from->c;
    strides[2] = from->h;
    strides[3] = from->w;
}

/* The distance of images that a call takes: of planes where it has several, else of volumes. */
static int64_t distance(const tconv_strides *strides, const tconv_plane_walk *walk, int64_t planes)
{
    return planes > 1 ? walk->step * strides->d : strides->n;
}

/* Makes an axis one of outputs without a tap: of two inputs, one falls before the first and one behind the last. */
static void remove_taps(int64_t outputs, int64_t *in, int64_t *kernel, int64_t *stride, int64_t *dilation,
                        int64_t *begin, int64_t *end, int64_t *output_padding)
{
    *in = 2;
    *kernel = *dilation = 1;
    *stride = outputs + 1;
    *begin = *end = 1;
    *output_padding = 0;
}

/* Describes planes of outputs that are the bias. Neighbours are rows of one image. */
static tconv_desc describe_bias(const tconv_problem *problem, const tconv_volume_part *part, int64_t volumes,
                                int64_t planes)
{
    const bool rows = part->dst.step == 1;
    tconv_desc desc = begin_desc(problem);
    desc.batch = rows ? volumes : volumes * planes;
    desc.in_channels = problem->groups;
    remove_taps((rows ? planes : 1) * problem->h.out, &desc.in_h, &desc.kernel_h, &desc.stride_h, &desc.dilation_h,
                &desc.pad_top, &desc.pad_bottom, &desc.output_padding_h);
    remove_taps(problem->w.out, &desc.in_w, &desc.kernel_w, &desc.stride_w, &desc.dilation_w, &desc.pad_left,
                &desc.pad_right, &desc.output_padding_w);
    lie(desc.dst_strides, &problem->dst, rows ? problem->dst.n : distance(&problem->dst, &part->dst, planes));
    if (problem->addend_extent > 0)
        lie(desc.addend_strides, &problem->addend,
            rows ? problem->addend.n : distance(&problem->addend, &part->dst, planes));
    return desc;
}

tconv_desc tconv_volume_describe_call(const tconv_problem *problem, const tconv_volume_part *part,
                                      const part_plan *made, int64_t volumes, int64_t planes, bool again)
{
    if (made->kind == BIAS)
        return describe_bias(problem, part, volumes, planes);
    tconv_desc desc = begin_desc(problem);
    desc.batch = volumes * planes;
    const int64_t in_place = made->tap_channels * part->taps; /* channels of several planes */
    if (made->copies_src)
        desc.in_channels *= part->taps;
    else if (in_place > 0 && desc.op == TCONV_FORWARD)
        desc.in_channels = in_place;
    else
        lie(desc.src_strides, &problem->src, distance(&problem->src, &part->src, planes));
    if (made->copies_dst)
        desc.out_channels *= part->taps;
    else if (in_place > 0 && desc.op == TCONV_BACKWARD_DATA)
        desc.out_channels = in_place;
    else
        lie(desc.dst_strides, &problem->dst, distance(&problem->dst, &part->dst, planes));
    if (problem->addend_extent > 0)
        lie(desc.addend_strides, &problem->addend, distance(&problem->addend, &part->dst, planes));
    desc.accumulate = desc.accumulate || again;
    return desc;
}

tconv_desc tconv_volume_describe_bias_gradient(const tconv_problem *problem)
{
    tconv_desc desc = begin_desc(problem);
    desc.in_channels = problem->groups;
    desc.in_h = problem->d.out * problem->h.out;
    desc.in_w = problem->w.out;
    desc.kernel_h = desc.kernel_w = desc.stride_h = desc.stride_w = desc.dilation_h = desc.dilation_w = 1;
    desc.pad_top = desc.pad_left = desc.pad_bottom = desc.pad_right = 0;
    desc.output_padding_h = desc.output_padding_w = 0;
    lie(desc.dst_strides, &problem->dst, problem->dst.n);
    return desc;
}

tconv_plane_taps tconv_volume_plane_taps(const tconv_problem *problem, const tconv_volume_part *part,
                                         const part_plan *made)
{
    if (made->tap_channels == 0)
        return (tconv_plane_taps){0};
    const bool of_src = problem->desc.op == TCONV_FORWARD;
    const tconv_plane_walk *walk = of_src ? &part->src : &part->dst;
    return (tconv_plane_taps){.taps = part->taps,
                              .channels = made->tap_channels,
                              .held = of_src ? problem->in_channels : problem->out_channels,
                              .first = walk->first,
                              .step = walk->tap,
                              .image_step = walk->step,
                              .planes = of_src ? problem->d.in : problem->d.out,
                              .weights = part->kernel.tap * problem->weight.d};
}

tconv_image_volumes tconv_volume_image_volumes(const tconv_problem *problem, const part_plan *made)
{
    if (!made->by_volumes)
        return (tconv_image_volumes){0};
    const bool of_src = problem->desc.op == TCONV_BACKWARD_DATA;
    const int64_t src = problem->src.n, dst = problem->dst.n;
    return (tconv_image_volumes){.images = made->planes, .read = of_src ? dst : src, .written = of_src ? src : dst};
}
