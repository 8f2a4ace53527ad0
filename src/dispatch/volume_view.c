/* Views of layers with depth: which are worth their copies, and their calls. CUDA alone has them. */
#include "volume_view.h"

#include <string.h>

#include "../core/alloc.h"
#include "../core/checked.h"
#include "../core/operation.h"
#include "../core/post.h"
#include "../core/status.h"
#include "../cuda/cuda_backend.h"
#include "../cuda/cuda_target.h"
#include "choose.h"
#include "resolve.h"
#include "volume.h"
#include "volume_plan.h"

/* The most groups that are joined, and bytes of a pixel of src that have them: what kernels multiply by zeros grows with both.
 * They are those of groups that cuda_igemm joins by itself. */
static const int64_t MOST_JOINED_GROUPS = 64, MOST_JOINED_BYTES = 512;

/* Bytes in a second of a transposition on a GPU, by elements of 2 bytes and of more: timed on an H200. */
static const double TURN_RATE_HALF = 2.7e12, TURN_RATE = 3.7e12;

/* ------------------------------------------------------------------------------------------------------------ planning */

static size_t aligned_bytes(int64_t elements, const tconv_problem *problem)
{
    return tconv_align_up((size_t)elements * problem->element_size, TCONV_CUDA_ALIGNMENT);
}

/* Whether what the operation writes is copied to where the caller wants it, so that nothing can be added there. */
static bool copies_results(const tconv_problem *problem, bool turns)
{
    return turns != (problem->desc.op == TCONV_BACKWARD_WEIGHTS);
}

/* Describes the layer of the view; false where there is none. */
static bool describe_view(const tconv_plan *plan, bool turns, tconv_desc *desc)
{
    const tconv_problem *problem = &plan->layer.problem;
    *desc = problem->desc;
    if (plan->layer.target.backend != TCONV_BACKEND_CUDA || problem->batch == 0 ||
        (problem->desc.accumulate && copies_results(problem, turns)))
        return false;
    if (!turns) {
        desc->groups = 1;
        return problem->groups > 1 && problem->groups <= MOST_JOINED_GROUPS &&
               problem->in_channels * (int64_t)problem->element_size <= MOST_JOINED_BYTES;
    }
    desc->layout = TCONV_NHWC;
    desc->src_stride_d = desc->dst_stride_d = 0;
    memset(desc->src_strides, 0, sizeof desc->src_strides);
    memset(desc->dst_strides, 0, sizeof desc->dst_strides);
    return problem->addend_extent == 0;
}

/* Plans the layer of a view, and counts the bytes of the view's copies: those of the layer, whose sizes were checked. */
static tconv_status plan_inner(const tconv_plan *plan, const tconv_desc *desc, tconv_volume_view *view,
                               tconv_issue *issue)
{
    tconv_plan *inner = view->inner;
    const tconv_problem *problem = &inner->layer.problem;
    tconv_status status;
    *inner = *plan;
    inner->made = NULL;
    inner->volume = NULL;
    memset(&inner->layer.rows, 0, sizeof inner->layer.rows);
    memset(&inner->layer.columns, 0, sizeof inner->layer.columns);
    if ((status = tconv_problem_derive(&inner->layer.problem, desc, issue)) ||
        (status = tconv_layer_create_phases(&inner->layer, &plan->allocator, issue)))
        return status;
    view->src_bytes = view->turns ? aligned_bytes(problem->src_extent, problem) : 0;
    view->dst_bytes = view->turns ? aligned_bytes(problem->dst_extent, problem) : 0;
    view->weights_bytes = view->turns ? 0 : aligned_bytes(problem->weight_extent, problem);
    return tconv_plan_choose(inner, issue);
}

/* Seconds of the copies of a view. Joined weights are zeros first. */
static double seconds_of_copies(const tconv_plan *plan, const tconv_volume_view *view)
{
    const tconv_problem *problem = &plan->layer.problem;
    const int64_t size = (int64_t)problem->element_size;
    if (!view->turns)
        return 2 * tconv_volume_copy_seconds((double)view->weights_bytes, problem->group_out * size);
    return 2 * (TCONV_VOLUME_LAUNCH_SECONDS +
                ((double)view->src_bytes + (double)view->dst_bytes) / (size == 2 ? TURN_RATE_HALF : TURN_RATE));
}

/* Has the plan be of the view, whose inner plan it owns then. */
static tconv_status take_view(tconv_plan *plan, const tconv_volume_view *view, tconv_issue *issue)
{
    const tconv_plan *inner = view->inner;
    void *memory;
    const tconv_status status = tconv_allocate_for(&plan->allocator, sizeof *plan->volume, "plan", &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tconv_volume_release(plan->volume, &plan->allocator);
    plan->volume = memset(memory, 0, sizeof *plan->volume);
    plan->volume->main = plan->volume->bias = -1;
    plan->volume->view = *view;
    plan->implementation = inner->implementation;
    plan->seconds = inner->seconds + seconds_of_copies(plan, view);
    plan->sizes = inner->sizes;
    plan->sizes.scratch += view->src_bytes + view->dst_bytes + view->weights_bytes;
    return TCONV_SUCCESS;
}

tconv_status tconv_volume_try_view(tconv_plan *plan, tconv_issue *issue)
{
    tconv_volume_view view = {.turns = plan->layer.problem.layout == TCONV_NCHW};
    tconv_desc desc;
    void *memory;
    tconv_status status;
    if (!describe_view(plan, view.turns, &desc))
        return TCONV_SUCCESS;
    if ((status = tconv_allocate_for(&plan->allocator, sizeof *plan, "plan", &memory, issue)))
        return status;
    view.inner = memory;
    status = plan_inner(plan, &desc, &view, issue);
    if (status == TCONV_SUCCESS && view.inner->seconds + seconds_of_copies(plan, &view) < plan->seconds &&
        (status = take_view(plan, &view, issue)) == TCONV_SUCCESS)
        return TCONV_SUCCESS;
    tconv_volume_release_view(&view, &plan->allocator);
    tconv_volume_is_none(&status, issue);
    return status;
}

void tconv_volume_release_view(tconv_volume_view *view, const tconv_allocator *allocator)
{
    if (view->inner == NULL)
        return;
    tconv_plan_forget(view->inner);
    tconv_layer_release_phases(&view->inner->layer, allocator);
    tconv_release(allocator, view->inner);
    view->inner = NULL;
}

/* -------------------------------------------------------------------------------------------------------------- copies */

/* Transposes src or dst from NCHW to NHWC, or back. */
static tconv_status turn(const tconv_plan *plan, bool src, bool back, const void *from, void *to, void *stream,
                         tconv_issue *issue)
{
    const tconv_transposition to_nhwc = tconv_transpose_to_nhwc(&plan->layer.problem, src);
    const tconv_transposition of = back ? tconv_transpose_back(&to_nhwc) : to_nhwc;
    return tconv_cuda_transpose(tconv_cuda_target_of(&plan->layer.target).device, &of, from, to, stream, issue);
}

/* Describes the copy of the weights of each group to those of the one group that has all channels. */
static tconv_plane_copy joining_axes(const tconv_problem *problem, const tconv_problem *joined)
{
    const tconv_weight_strides *from = &problem->weight, *to = &joined->weight;
    const int64_t in = problem->group_in, out = problem->group_out;
    const int64_t kernel = problem->d.kernel * problem->h.kernel * problem->w.kernel;
    const tconv_weight_layout layout = problem->desc.weight_layout;
    const bool inputs_last = layout == TCONV_WEIGHT_HWOI, outputs_last = layout == TCONV_WEIGHT_IHWO;
    tconv_plane_copy axes = {.planes = 1};
    tconv_volume_set_axis(&axes, 0, problem->groups, in * from->in, in * to->in + out * to->out);
    tconv_volume_set_axis(&axes, 1, inputs_last ? 1 : in, from->in, to->in);
    tconv_volume_set_axis(&axes, 2, outputs_last ? 1 : out, from->out, to->out);
    tconv_volume_set_axis(&axes, 3, 1, 0, 0);
    tconv_volume_set_axis(&axes, 4, inputs_last || outputs_last ? kernel : 1, from->w, to->w);
    tconv_volume_set_axis(&axes, 5, inputs_last ? in : outputs_last ? out : kernel, 1, 1);
    return axes;
}

/* Copies the weights of all groups to those of one, which has zeros between them; or back, from its gradient. */
static tconv_status join(const tconv_plan *plan, bool back, const void *from, void *to, void *stream,
                         tconv_issue *issue)
{
    const tconv_problem *joined = &plan->volume->view.inner->layer.problem;
    tconv_plane_copy axes = joining_axes(&plan->layer.problem, joined);
    tconv_plane_copy zeros = {0};
    tconv_status status;
    if (back)
        tconv_volume_reverse_copy(&axes);
    for (int axis = 0; axis < TCONV_COPY_AXES; axis++)
        tconv_volume_set_axis(&zeros, axis, 1, 0, 0);
    tconv_volume_set_axis(&zeros, TCONV_COPY_AXES - 1, joined->weight_extent, 1, 1);
    if (!back && (status = tconv_volume_copy(plan, &zeros, NULL, to, stream, issue)))
        return status;
    return tconv_volume_copy(plan, &axes, from, to, stream, issue);
}

/* --------------------------------------------------------------------------------------------------------------- calls */

tconv_status tconv_volume_pack_view(const tconv_plan *plan, const void *weights, void *packed, void *stream,
                                    tconv_issue *issue)
{
    const tconv_volume_view *view = &plan->volume->view;
    const int device = tconv_cuda_target_of(&plan->layer.target).device;
    void *joined = NULL;
    tconv_status status;
    if (view->turns)
        return tconv_volume_pack(view->inner, weights, packed, stream, issue);
    if ((status = tconv_cuda_allocate_async(device, view->weights_bytes, stream, &joined, issue)))
        return status;
    if ((status = join(plan, false, weights, joined, stream, issue)) == TCONV_SUCCESS)
        status = tconv_volume_pack(view->inner, joined, packed, stream, issue);
    tconv_cuda_release_async(device, joined, stream);
    return status;
}

/* Computes a layer in NHWC from transposed tensors. */
static tconv_status execute_turned(const tconv_plan *plan, const tconv_arguments *given, tconv_arguments *inner,
                                   char *src, char *dst, tconv_issue *issue)
{
    const tconv_op op = plan->layer.problem.desc.op;
    tconv_status status;
    inner->src = src;
    inner->dst = dst;
    if ((op != TCONV_BACKWARD_DATA && (status = turn(plan, true, false, given->src, src, given->stream, issue))) ||
        (op != TCONV_FORWARD && (status = turn(plan, false, false, given->dst, dst, given->stream, issue))) ||
        (status = tconv_volume_execute(plan->volume->view.inner, inner, issue)) || op == TCONV_BACKWARD_WEIGHTS)
        return status;
    return op == TCONV_FORWARD ? turn(plan, false, true, dst, given->dst, given->stream, issue)
                               : turn(plan, true, true, src, given->src, given->stream, issue);
}

/* Computes a layer of one group by weights that have zeros between the groups. */
static tconv_status execute_joined(const tconv_plan *plan, const tconv_arguments *given, tconv_arguments *inner,
                                   char *weights, tconv_issue *issue)
{
    const bool gradient = plan->layer.problem.desc.op == TCONV_BACKWARD_WEIGHTS;
    tconv_status status;
    if (given->weights != NULL)
        inner->weights = weights;
    if (given->weights != NULL && !gradient &&
        (status = join(plan, false, given->weights, weights, given->stream, issue)))
        return status;
    if ((status = tconv_volume_execute(plan->volume->view.inner, inner, issue)) || !gradient || given->weights == NULL)
        return status;
    return join(plan, true, weights, given->weights, given->stream, issue);
}

tconv_status tconv_volume_execute_view(const tconv_plan *plan, const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_volume_view *view = &plan->volume->view;
    tconv_arguments inner = *arguments;
    char *const src = arguments->scratch, *const dst = src + view->src_bytes, *const weights = dst + view->dst_bytes;
    inner.scratch = weights + view->weights_bytes;
    return view->turns ? execute_turned(plan, arguments, &inner, src, dst, issue)
                       : execute_joined(plan, arguments, &inner, weights, issue);
}
