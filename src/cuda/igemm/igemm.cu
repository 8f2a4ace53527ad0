/*
 * The implicit GEMM: layers with many channels on Hopper's tensor cores, in f32 (TF32, or strict as three products of
 * TF32), f16 and bf16, of any kernel, stride and dilation that give an axis up to 16 phases; NHWC, and NCHW where
 * images are small. A launch before fills outputs without a tap.
 *
 * A phase (src/core/phases.h) is a GEMM for each of its taps: output channels by positions, over input channels. In
 * NHWC src lies as wgmma takes a K-major B operand, so that TMA brings it as it is: the input of a block tile once for
 * all taps, which are then offsets into it, or once for each tap, which wastes nothing at halos; a block tile may span
 * images. A small src in NCHW is transposed to NHWC in the workspace first, by the launch that packs the weights,
 * which execute then does itself, where the cost model finds that faster than raw stages of channel planes that the
 * kernel transposes for each tile.
 *
 * Where phases are those of src (cuda_dgrad's layers) a tile sums over all of them: the box of a phase is of every
 * stride-th pixel, which TMA brings as if they were neighbours.
 *
 * parameters.h has the words, plan.h the choice of tiles, kernel.cuh the kernel, pack.cu the packed weights, and view.h
 * the layers that are seen as others: images of one pixel as one GEMM, groups of few channels fused.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../general/fill.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../model/planned.h"
#include "plan.h"
#include "sums.h"

#include <cstdio>

namespace tconv::igemm
{

namespace
{

/* A view by filled runs has to be so much faster by prediction. */
constexpr double WORTH_FILLING = 0.97;

const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = tconv_cuda_why_not_hopper(layer);
    if (why != NULL)
        return why;
    if (layer->rows.count > MAX_PHASES || layer->columns.count > MAX_PHASES)
        return "needs at most 16 phases of an axis";
    if (layer->rows.count == 0 || layer->columns.count == 0)
        return "needs outputs with taps";
    if (problem->groups > 1 && problem->group_in * (int64_t)problem->element_size % 128 != 0)
        return "needs groups that make whole K-blocks of 128 bytes of channels";
    return NULL;
}

bool has_bias_only(const tconv_layer *layer)
{
    return layer->rows.bias_only > 0 || layer->columns.bias_only > 0;
}

/* The bytes of the phase tables that lie after the packed weights, for the launch that fills outputs without a tap. */
int64_t phase_bytes(const tconv_layer *layer)
{
    return has_bias_only(layer) ? (layer->rows.count + layer->columns.count) * (int64_t)sizeof(tconv_phase) : 0;
}

int64_t packed_bytes(const parameters *of)
{
    return of->group_a_tiles * of->groups * (int64_t)of->a_tile_bytes;
}

/* What views are compared by: the prediction, and writing the packed weights where each call does. */
double compared_seconds(const tconv_layer *layer, const layer_plan *plan)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    const double written = layer->packed_before ? 0 : (double)packed_bytes(&plan->parameters);
    return plan->seconds + written / (machine.pass * machine.multiprocessors * machine.hz);
}

void describe_weights(const tconv_layer *layer, const layer_view *view, planned_layer *made)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_layer *seen = view->one_pixel ? layer : &view->layer;
    const tconv_phase_table *const axes[] = {&seen->rows, &seen->columns};
    weight_source *source = &made->weights;
    pack_boxes *boxes = &source->boxes;
    boxes->from = seen->problem.weight;
    boxes->group_in = made->plan.parameters.group_in;
    boxes->group_step = boxes->group_in * boxes->from.in;
    boxes->group_out = made->plan.parameters.group_out;
    boxes->outer_step = seen->problem.weight.out;
    boxes->inner = {(int)view->outputs, (int)view->out_columns, problem->weight.h, problem->weight.w};
    boxes->diagonal_in = (int)problem->group_in;
    boxes->diagonal_rows = (int)(problem->group_out * view->outputs);
    if (layer->phases_of_src) {
        boxes->group_step = view->fused_groups * layer->group_weights;
        boxes->diagonal_step = layer->group_weights - problem->group_in * boxes->from.in;
    }
    if (view->channels_inside) {
        boxes->outer_step = problem->weight.w;
        boxes->inner = {(int)problem->out_channels, 1, problem->weight.out, 0};
    } else if (view->runs.rows > view->runs.columns ||
               (view->runs.rows > 1 && view->runs.columns * seen->problem.w.kernel > problem->w.kernel))
        boxes->filling = {(int)seen->problem.w.kernel, view->runs.columns, (int)problem->w.kernel, problem->weight.h};
    boxes->elements = seen->problem.h.kernel * seen->problem.w.kernel;
    source->one_pixel = view->one_pixel;
    source->kernel_columns = seen->problem.w.kernel;
    if (view->one_pixel) { /* of the layer's kernel, a channel's first output takes this */
        boxes->elements = 1;
        boxes->first_element =
            axes[0]->phases[0].first_kernel * source->kernel_columns + axes[1]->phases[0].first_kernel;
    } else {
        for (int axis = 0; axis < 2; axis++) {
            source->kernel_step[axis] = (int)axes[axis]->kernel_step;
            for (int64_t i = 0; i < axes[axis]->count; i++)
                source->first_kernel[axis][i] = axes[axis]->phases[i].first_kernel;
        }
        for (int64_t i = 0; i < axes[1]->count; i++)
            source->column_taps[i] = (int)axes[1]->phases[i].taps;
    }
    plan_packing(made);
}

/* Returns the tensor map of src, as the layer that is seen has it, without its address. */
tensor_map_recipe describe_map(const tconv_layer *seen, const layer_plan *plan)
{
    const parameters *of = &plan->parameters;
    const tconv_problem *problem = &seen->problem;
    const cuuint64_t element = problem->element_size, image = of->from.n * element;
    const cuuint32_t images = (cuuint32_t)of->tile_images, channels = (cuuint32_t)of->k_block_channels;
    const cuuint64_t all_channels = (cuuint64_t)problem->in_channels;
    const cuuint32_t row_step = (cuuint32_t)of->src_row_stride, column_step = (cuuint32_t)of->src_column_stride;
    const auto span = [](cuuint32_t pixels, cuuint32_t step) { return (pixels - 1) * step + 1; };
    if (!of->src_channels_last)
        return {problem->dtype,
                CU_TENSOR_MAP_SWIZZLE_NONE,
                NULL,
                {(cuuint64_t)(problem->h.in * problem->w.in), all_channels, (cuuint64_t)problem->batch, 1},
                {(cuuint64_t)of->from.c * element, image, image},
                {(cuuint32_t)of->box_columns, channels, images, 1},
                false};
    tensor_map_recipe map = {
        problem->dtype,
        of->pixel_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
        NULL,
        {all_channels, (cuuint64_t)of->in_columns, (cuuint64_t)of->in_rows, (cuuint64_t)of->images},
        {(cuuint64_t)of->from.w * element, (cuuint64_t)of->from.h * element, image},
        {channels, span((cuuint32_t)of->box_columns, column_step),
         span((cuuint32_t)(of->image_pixels / of->pitch), row_step), images},
        plan->mode == MODE_TF32,
        {1, column_step, row_step, 1}};
    if (of->im2col) {
        const int last_column = of->first_column + (of->flat_columns - 1) * of->src_column_stride;
        const int last_row = of->first_row + (of->flat_rows - 1) * of->src_row_stride;
        map.im2col_pixels = (cuuint32_t)of->stage_pixels;
        map.lower[0] = of->first_column;
        map.lower[1] = of->first_row;
        map.upper[0] = last_column - (of->in_columns - 1);
        map.upper[1] = last_row - (of->in_rows - 1);
    }
    return map;
}

constexpr int64_t SECTOR_BYTES = 32; /* of the second-level cache */

/* Whether TMA brings A tiles from the weights as they lie, where calls would pack them: the input channels of an output
 * channel and tap follow one another, where cuda_dgrad's layers have weights in channels_last. Not where rows of
 * boxes are parts of sectors, or are few: that took up to 1.8 times as long, all others no longer than without packing. */
bool may_read_weights(const layer_view *view, const layer_plan *plan)
{
    const tconv_layer *seen = &view->layer;
    const tconv_problem *problem = &seen->problem;
    const int64_t element = (int64_t)problem->element_size, taps = problem->h.kernel * problem->w.kernel;
    const auto fits = [&](int64_t step) { return step > 0 && step * element % SECTOR_BYTES == 0; };
    return seen->phases_of_src && !seen->packed_before && is_fed_by_tma(plan) && !plan->parameters.src_transposed &&
           view->fused_groups == 1 && problem->weight.in == 1 && problem->group_out >= WARP_M &&
           fits(problem->weight.out) && taps < HOPPER_MAX_EXTENT &&
           (taps == 1 || (fits(problem->weight.w) && problem->weight.h == problem->w.kernel * problem->weight.w)) &&
           (problem->groups == 1 || fits(seen->group_weights));
}

/* Returns the tensor map of the weights: a box is an A tile. */
tensor_map_recipe describe_map_of_weights(const tconv_layer *seen, const layer_plan *plan)
{
    const parameters *of = &plan->parameters;
    const tconv_problem *problem = &seen->problem;
    const cuuint64_t element = problem->element_size, taps = (cuuint64_t)(problem->h.kernel * problem->w.kernel);
    const cuuint64_t row = (cuuint64_t)problem->weight.out * element;
    return {problem->dtype,
            of->pixel_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
            NULL,
            {(cuuint64_t)of->group_in, taps, (cuuint64_t)of->group_out, (cuuint64_t)of->groups},
            {taps > 1 ? (cuuint64_t)problem->weight.w * element : row, row,
             of->groups > 1 ? (cuuint64_t)seen->group_weights * element : row},
            {(cuuint32_t)of->k_block_channels, 1, (cuuint32_t)(of->m_tiles * MMA_M), 1},
            plan->mode == MODE_TF32};
}

/* Returns the bytes of a vector if every pixel of dst has its channels in whole vectors of 16 bytes or, where columns
 * are stored together, those are one; else 0. */
size_t vector_bytes_of(const parameters *of, int64_t element)
{
    if (of->runs.rows > 1)
        return (size_t)(of->run_vector * element);
    if (of->cuts_pairs)
        return 0;
    const int64_t vector = of->paired ? 2 : VECTOR_BYTES / element;
    const bool whole = of->to.n % vector == 0 && of->to.h % vector == 0 &&
                       (of->paired ? of->to.c : of->to.w) % vector == 0 && (of->paired || of->group_out % vector == 0);
    return whole ? (size_t)(vector * element) : 0;
}

/* Describes the operands and the launch of the chosen plan. */
void describe_launch(const tconv_layer *layer, const layer_view *view, planned_layer *made)
{
    const parameters *of = &made->plan.parameters;
    describe_weights(layer, view, made);
    if (of->src_transposed)
        made->transpose = transpose_of(&layer->problem);
    if (of->by_tma)
        made->src = describe_map(&view->layer, &made->plan);
    if (may_read_weights(view, &made->plan))
        made->map_of_weights = describe_map_of_weights(&view->layer, &made->plan);
    made->vector_bytes = vector_bytes_of(of, made->plan.output_bytes);
    made->grid = {(const void *)made->plan.config.kernel, tconv_min(of->tiles, layer->target.multiprocessors), THREADS,
                  SHARED_MEMORY, false};
}

/* Whether a call that is given weights at multiples of 16 bytes reads them as they lie. */
bool reads_weights(const planned_layer *made)
{
    return made->map_of_weights.extents[0] > 0;
}

/* Plans a view of the layer, to take less than a limit. Returns why not, or NULL. */
const char *plan_view(const tconv_layer *layer, const layer_view *view, bool sums, double limit, layer_plan *plan,
                      tconv_cuda_work *work)
{
    const search in = begin_search(layer, view, sums, limit);
    const char *why = why_not(&view->layer);
    if (why == NULL && !choose(&in, plan))
        why = limit > 0 ? TCONV_NO_FASTER : "no tile fits in shared memory";
    if (why == NULL)
        *work = work_of(&in, plan);
    return why;
}

tconv_status plan_outputs(const tconv_layer *layer, bool sums, void *to, tconv_planned *planned, tconv_issue *issue)
{
    planned_layer *made = (planned_layer *)to;
    parameters *of = &made->plan.parameters;
    layer_view views[2];
    tconv_cuda_work work;
    int64_t size;
    init_view(&views[0], layer);
    const layer_view *view = &views[0];
    const char *why = plan_view(layer, view, sums, planned->limit, &made->plan, &work);
    if (init_filled_view(&views[1], layer)) {
        layer_plan plan = {};
        tconv_cuda_work filled;
        if (plan_view(layer, &views[1], sums, why == NULL ? made->plan.seconds : planned->limit, &plan, &filled) ==
                NULL &&
            (why != NULL || compared_seconds(layer, &plan) < WORTH_FILLING * compared_seconds(layer, &made->plan))) {
            view = &views[1];
            why = NULL;
            made->plan = plan;
            work = filled;
        }
    }
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    if (!tconv_checked_mul(of->group_a_tiles * of->groups, (int64_t)of->a_tile_bytes, &size) ||
        !tconv_checked_add(size, phase_bytes(layer), &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    planned->sizes.packed = (size_t)size;
    planned->sizes.scratch = of->src_transposed ? (size_t)transposed_bytes(&layer->problem) : 0;
    of->runs = view->runs;
    of->run_vector = run_vector_of(of->runs, &layer->problem.dst, made->plan.output_bytes);
    made->bias_outputs = view->channels_inside ? 1 : (int)view->outputs;
    describe_launch(layer, view, made);
    planned->sizes.reads_unpacked = reads_weights(made);
    planned->sizes.execute_packs = of->src_transposed || planned->sizes.reads_unpacked;
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status plan_layer(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    return plan_outputs(layer, false, to, planned, issue);
}

tconv_status plan_sums(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    return plan_outputs(layer, true, to, planned, issue);
}

/* Packs the weights, unless they are NULL, and transposes src, unless there is nothing to transpose. */
tconv_status prepare(const tconv_layer *layer, const planned_layer *made, const src_transpose *transpose,
                     const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    return on_device(layer->target.device, issue, [&] {
        tconv_status status = pack(made, transpose, weights, packed, stream, issue);
        if (status == TCONV_SUCCESS && weights != NULL && has_bias_only(layer))
            status = tconv_general_pack_phases(layer, (tconv_phase *)((char *)packed + packed_bytes(&made->plan.parameters)),
                                          stream, issue);
        return status;
    });
}

tconv_status pack_weights(const tconv_layer *layer, const void *made, const void *weights, void *packed, void *stream,
                          tconv_issue *issue)
{
    const src_transpose none = {};
    return prepare(layer, (const planned_layer *)made, &none, weights, packed, stream, issue);
}

/* Packs the weights, where the plan does not hold them packed, and transposes src into the workspace. */
tconv_status transpose_src(const tconv_layer *layer, const planned_layer *made, const tconv_arguments *arguments,
                           tconv_issue *issue)
{
    src_transpose transpose = made->transpose;
    transpose.src = arguments->src;
    transpose.to = arguments->scratch;
    transpose.vectors = transpose.vectors && (uintptr_t)arguments->src % CORE_ROW_BYTES == 0;
    return prepare(layer, made, &transpose, arguments->weights, (void *)arguments->packed, arguments->stream, issue);
}

/* Makes a tensor map at an address; false where TMA cannot read that. */
bool make_map(const tensor_map_recipe *of, const void *data, CUtensorMap *map)
{
    tensor_map_recipe recipe = *of;
    recipe.data = data;
    return tconv_encode_tensor_map(&recipe, map);
}

/* Writes the bias to all outputs without a tap. */
tconv_status fill_bias_only(const tconv_layer *layer, const parameters *of, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_phase *phases = (const tconv_phase *)((const char *)arguments->packed + packed_bytes(of));
    return on_device(layer->target.device, issue,
                     [&] { return tconv_general_fill_bias_only(layer, phases, arguments, issue); });
}

void leave_out_epilogue_warps(const fewer_stages *with, parameters *of)
{
    of->epilogue_warps = false;
    of->tables = with->tables;
    of->b_stages = with->b_stages;
    of->a_stages = with->a_stages;
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)from;
    parameters parameters = made->plan.parameters;
    launch_grid grid = made->grid;
    CUtensorMap map = {}, weights_map = {};
    tconv_status status = TCONV_SUCCESS;
    parameters.weights_in_place = reads_weights(made) && arguments->weights != NULL &&
                                  make_map(&made->map_of_weights, arguments->weights, &weights_map);
    const bool packs = arguments->weights != NULL && !parameters.weights_in_place; /* else it was done before */
    if (parameters.src_transposed)
        status = transpose_src(layer, made, arguments, issue);
    else if (packs)
        status = pack_weights(layer, made, arguments->weights, (void *)arguments->packed, arguments->stream, issue);
    if (status != TCONV_SUCCESS)
        return status;
    parameters.src = parameters.src_transposed ? arguments->scratch : arguments->src;
    parameters.weights = arguments->packed;
    parameters.bias = arguments->bias;
    parameters.dst = arguments->dst;
    parameters.bias_outputs = made->bias_outputs;
    parameters.bias_channels = (int)layer->problem.out_channels;
    parameters.by_tma = parameters.by_tma && make_map(&made->src, parameters.src, &map);
    parameters.gathers_pairs =
        parameters.gathers_pairs && (uintptr_t)arguments->src % (2 * layer->problem.element_size) == 0;
    parameters.store_vectors = made->vector_bytes > 0 && (uintptr_t)arguments->dst % made->vector_bytes == 0;
    parameters.run_vector = parameters.store_vectors ? parameters.run_vector : 1;
    if (parameters.epilogue_warps && !(parameters.by_tma && (parameters.store_vectors || !parameters.paired)))
        leave_out_epilogue_warps(&made->plan.without_epilogue_warps, &parameters);
    if (has_bias_only(layer))
        status = fill_bias_only(layer, &parameters, arguments, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const bool packed_before = arguments->packs && !reads_weights(made); /* just before, by this call */
    grid.overlaps = (packed_before || packs || parameters.src_transposed) && !has_bias_only(layer);
    void *kernel_arguments[] = {&parameters, &map, &weights_map};
    return tconv_launch_on_device(&grid, kernel_arguments, layer->target.device, arguments->stream, issue);
}

void describe(const tconv_layer *layer, const void *from, char *text, size_t capacity)
{
    static const char *const modes[] = {"tf32", "strict", "f16", "bf16"};
    const layer_plan *plan = &((const planned_layer *)from)->plan;
    const parameters *of = &plan->parameters;
    char runs[32] = "";
    if (of->runs.rows > 1)
        snprintf(runs, sizeof runs, " runs=%dof%d", of->runs.columns, of->runs.rows);
    else if (of->dst_channels_last && (int64_t)of->groups * of->group_out > layer->problem.out_channels)
        snprintf(runs, sizeof runs, " columns=%d", of->groups * of->group_out / (int)layer->problem.out_channels);
    snprintf(text, capacity,
             "mode=%s mma_tile=%dx%d block_tile=%dx%d positions=%dx%dx%d k_block=%d b_stages=%d a_stages=%d "
             "src=%s%s%s%s%s%s",
             modes[plan->mode], MMA_M, plan->config.N, of->m_tiles * MMA_M, of->block_n, of->tile_images, of->tile_rows,
             of->tile_columns, of->k_block_channels, of->b_stages, of->a_stages,
             of->src_transposed ? "transposed"
             : !of->by_tma      ? of->gathers_pairs ? "gathered_in_pairs" : "gathered"
             : of->raw_stages   ? "raw_stages"
                                : "tma",
             of->im2col    ? " im2col=1"
             : of->per_tap ? " per_tap=1"
                           : "",
             runs, of->flat && !of->im2col ? " flat=1" : "", of->paired ? " paired=1" : "",
             of->epilogue_warps ? " epilogue_warps=1" : "");
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_igemm = {"cuda_igemm",
                                                          TCONV_BACKEND_CUDA,
                                                          TCONV_DTYPES_TO_F32,
                                                          sizeof(planned_layer),
                                                          plan_layer,
                                                          pack_weights,
                                                          execute,
                                                          describe,
                                                          false,
                                                          NULL};

const tconv_implementation sums = {"cuda_igemm",
                                   TCONV_BACKEND_CUDA,
                                   TCONV_DTYPES_TO_F32,
                                   sizeof(planned_layer),
                                   plan_sums,
                                   pack_weights,
                                   execute,
                                   describe,
                                   false,
                                   NULL};

} // namespace tconv::igemm
