/* Launches of a plan of cuda_wgrad. */
#include "launch.h"
#include "../cuda_target.h"

#include "../../core/checked.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"
#include "slot_pass.h"

/* The tensor maps that a kernel takes beside its parameters (tile_box.cuh, tensor_maps). */
typedef struct host_maps {
    tensor_map dst, src;
} host_maps;

/* Returns the bytes of the slices in the workspace, behind which copies lie. */
static size_t slices_bytes(const planned_layer *plan)
{
    if (plan->writes_weights)
        return 0;
    const int64_t sums = plan->params.splits * tconv_wgrad_slice_sums(&plan->params.tiles);
    const int64_t bytes = sums * (keeps_lost(plan, plan->params.splits) ? 2 : 1) * (int64_t)sizeof(float);
    return (size_t)tconv_round_up(bytes, COPY_ALIGNMENT);
}

/* Returns the offset of the partial sums of the bias in the workspace. */
static size_t bias_offset(const planned_layer *plan)
{
    return slices_bytes(plan) + (size_t)copied_bytes(&plan->copies);
}

/* Returns the launches of the kernel, each of which writes partial sums of the bias of its own. */
static int64_t launches_of(const planned_layer *plan)
{
    return plan->copies.images > 0 ? chunks_of(&plan->copies) : 1;
}

int64_t tconv_wgrad_scratch(const tconv_layer *layer, const planned_layer *plan)
{
    const size_t bias = plan->bias_apart ? tconv_wgrad_bias_scratch(layer)
                                         : tconv_wgrad_bias_parts_bytes(layer, plan->bias_parts * launches_of(plan));
    return (int64_t)(bias_offset(plan) + bias);
}

static void *bias_parts_in(const planned_layer *plan, const tconv_arguments *arguments)
{
    return (char *)arguments->scratch + bias_offset(plan);
}

/* Adapts parameters to the addresses of src and of the gradient of dst, and makes the tensor maps. Returns the load
 * mode. */
static load_mode adapt(const planned_layer *plan, parameters *params, host_maps *maps)
{
    const bool src_aligned = (uintptr_t)params->src % VECTOR_BYTES == 0;
    const bool aligned = src_aligned && (uintptr_t)params->diff_dst % VECTOR_BYTES == 0;
    load_mode load = ELEMENTS;
    if (aligned || plan->load == LINES || (src_aligned && plan->load == SRC_CHANNELS))
        load = plan->load;
    if (params->src == NULL && plan->copies.images > 0) /* the gradient of dst is read where it lies */
        load = ELEMENTS;
    tensor_map_recipe dst = plan->dst, src = plan->src;
    if (plan->bias_parts > 0) /* whose sums are of all bits: consumer warps round as well */
        dst.rounds = false;
    dst.extents[3] = (uint64_t)params->images.out;
    src.extents[3] = (uint64_t)params->images.in;
    if (load == ELEMENTS || params->box_bytes == 0 || !tconv_encode_tensor_map(&dst, params->diff_dst, &maps->dst))
        params->box_bytes = 0;
    if (load == BOXES &&
        (params->box_bytes == 0 || (params->src != NULL && !tconv_encode_tensor_map(&src, params->src, &maps->src))))
        load = ELEMENTS;
    if (load == ELEMENTS && plan->kernel->family != BY_BOXES)
        params->bias_parts = NULL;
    if ((uintptr_t)params->diff_dst % LINE_BYTES != 0)
        params->lines.unit = 1;
    if (!src_aligned) {
        params->src_unit = 1;
        params->lines.src_vectors = false;
    }
    if (params->lines.src_box_pixels > 0 && !tconv_encode_tensor_map(&src, params->src, &maps->src))
        params->lines.src_box_pixels = params->lines.src_boxes = 0;
    if (params->box_bytes == 0)
        params->sharers = 1;
    return load;
}

/* Launches the kernel that multiplies src and the gradient of dst. Where it does not write partial sums of the bias
 * that the parameters ask for, they do not afterwards. */
static tconv_status launch_products(const tconv_layer *layer, const planned_layer *plan, parameters *params,
                                    void *stream, tconv_issue *issue)
{
    host_maps maps = {0};
    const load_mode load = adapt(plan, params, &maps);
    const launch_grid grid = {.kernel = tconv_wgrad_kernel(plan->kernel, plan->math, load),
                              .blocks = plan->blocks,
                              .threads = plan->threads,
                              .shared_bytes = shared_bytes_of(params),
                              .cluster_blocks = params->sharers > 1 ? params->sharers : 0};
    void *arguments[] = {params, &maps};
    const tconv_status status =
        tconv_allow_shared(grid.kernel, tconv_cuda_target_of(&layer->target).shared_bytes, issue);
    return status == TCONV_SUCCESS ? tconv_launch_kernel(&grid, arguments, stream, issue) : status;
}

/* Launches the kernel that writes the partial sums of the bias alone, for each launch that the plan has. By boxes it is that of the
 * products, without src. */
static tconv_status sum_slots(const tconv_layer *layer, const planned_layer *plan, const void *diff_dst,
                              void *bias_parts, void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const copy_cut *cut = &plan->copies;
    const size_t bytes = tconv_wgrad_bias_parts_bytes(layer, plan->bias_parts); /* of a launch */
    const bool boxes = plan->kernel->family == BY_BOXES;
    parameters params = plan->params;
    params.dst_strides = problem->dst;
    params.bias_parts = bias_parts;
    tconv_status status = TCONV_SUCCESS;
    if (cut->images > 0) /* the rows of copies begin with the padding (tconv_wgrad_take_chunk) */
        for (int residue = 0; residue < MAX_TAPS; residue++)
            params.rows.least[residue] = (int16_t)(params.rows.least[residue] - problem->h.pad);
    for (int64_t launch = 0; launch < launches_of(plan) && status == TCONV_SUCCESS; launch++) {
        int64_t offset = 0;
        if (cut->images > 0) { /* the rows and images of a chunk */
            const int64_t row = launch % cut->row_parts * cut->rows * problem->h.stride;
            offset = launch / cut->row_parts * cut->images * problem->dst.n + row * problem->dst.h;
            params.images.in = params.images.out = (int)tconv_wgrad_images_of_chunk(problem, cut, launch);
            params.rows.out = (int)tconv_max(0, tconv_min(cut->out_rows - problem->h.pad, problem->h.out - row));
        }
        params.diff_dst = (const char *)diff_dst + offset * (int64_t)problem->element_size;
        void *arguments[] = {&params};
        status = boxes ? launch_products(layer, plan, &params, stream, issue)
                       : tconv_launch_blocks(tconv_wgrad_slot_kernel(problem->dtype, plan->load), plan->blocks,
                                             WARPGROUP_PRODUCERS, arguments, stream, issue, false);
        params.bias_parts = (char *)params.bias_parts + bytes;
    }
    return status;
}

/* Launches the same for each chunk, behind the kernels that copy it. */
static tconv_status launch_copied(const tconv_layer *layer, const planned_layer *plan, parameters *params,
                                  const tconv_arguments *arguments, tconv_issue *issue)
{
    const copy_cut *cut = &plan->copies;
    char *const src = (char *)arguments->scratch + slices_bytes(plan);
    tconv_status status = TCONV_SUCCESS;
    for (int64_t chunk = 0; chunk < chunks_of(cut) && status == TCONV_SUCCESS; chunk++) {
        parameters copied = *params;
        copied.src = copies_src(cut)
                         ? src
                         : (const char *)arguments->src + tconv_wgrad_first_of_chunk(&layer->problem, cut, chunk) *
                                                              (int64_t)layer->problem.element_size;
        copied.diff_dst = src + cut->src_bytes;
        copied.images.in = copied.images.out = (int)tconv_wgrad_images_of_chunk(&layer->problem, cut, chunk);
        copied.adds = chunk > 0;
        if (chunk < chunks_of(cut) - 1)
            copied.dependents = AS_LOADS_END;
        status =
            tconv_wgrad_make_copies(layer, cut, chunk, arguments->src, arguments->dst, src, arguments->stream, issue);
        if (status == TCONV_SUCCESS)
            status = launch_products(layer, plan, &copied, arguments->stream, issue);
        params->bias_parts = NULL;
        if (copied.bias_parts != NULL)
            params->bias_parts = (char *)copied.bias_parts + tconv_wgrad_bias_parts_bytes(layer, plan->bias_parts);
    }
    return status;
}

tconv_status tconv_wgrad_launch(const tconv_layer *layer, const planned_layer *plan, const tconv_arguments *arguments,
                                wgrad_slices *slices, tconv_issue *issue)
{
    parameters params = plan->params;
    void *const bias_parts = bias_parts_in(plan, arguments), *const stream = arguments->stream;
    const bool sums_bias_in_pass = arguments->bias != NULL && plan->bias_apart;
    tconv_status status = TCONV_SUCCESS;
    params.src = arguments->src;
    params.diff_dst = arguments->dst;
    params.slices = arguments->scratch;
    if (sums_bias_in_pass)
        params.dependents = plan->bias_early ? AS_BLOCKS_BEGIN : AS_BLOCKS_END;
    if (plan->writes_weights)
        params.weights.at = arguments->weights;
    if (arguments->bias != NULL && plan->bias_parts > 0)
        params.bias_parts = bias_parts;
    if (params.k_tiles > 0)
        status = plan->copies.images > 0 ? launch_copied(layer, plan, &params, arguments, issue)
                                         : launch_products(layer, plan, &params, stream, issue);
    int64_t parts = 0;
    if (arguments->bias != NULL && has_bias_parts(plan)) {
        parts = plan->bias_parts * launches_of(plan);
        if (params.bias_parts == NULL && status == TCONV_SUCCESS)
            status = sum_slots(layer, plan, arguments->dst, bias_parts, stream, issue);
    }
    if (status != TCONV_SUCCESS)
        return status;
    if (sums_bias_in_pass) {
        const bias_order order = params.k_tiles == 0 ? BIAS_AFTER : plan->bias_early ? BIAS_BESIDE : BIAS_OVERLAPPING;
        status = tconv_wgrad_sum_bias_parts(layer, arguments->dst, bias_parts, order, &parts, stream, issue);
    }
    if (status != TCONV_SUCCESS)
        return status;
    slices->bias_is_added = parts > 0;
    if (plan->writes_weights && params.k_tiles > 0)
        return parts > 0 ? tconv_wgrad_add_bias_parts(layer, bias_parts, parts, arguments->bias, stream, issue)
                         : status;
    wgrad_slices sums = {.tiles = params.tiles, .count = params.k_tiles > 0 ? params.splits : 0};
    if (parts > 0)
        sums.with = tconv_wgrad_bias_parts_of(layer, bias_parts, parts, arguments->bias);
    return tconv_wgrad_add_slices(layer, &sums, arguments->scratch, arguments->weights, stream, issue);
}

tconv_status tconv_wgrad_execute_bias(const tconv_layer *layer, const planned_layer *plan,
                                      const tconv_arguments *arguments, tconv_issue *issue)
{
    void *const parts = bias_parts_in(plan, arguments), *const stream = arguments->stream;
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = sum_slots(layer, plan, arguments->dst, parts, stream, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_wgrad_add_bias_parts(layer, parts, plan->bias_parts * launches_of(plan), arguments->bias, stream,
                                            issue);
    return tconv_device_leave(&guard, status, issue);
}
