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
 * parameters.h has the words, plan.h the choice of tiles, kernel.cuh the kernel, pack.cu the packed weights, and view.h
 * the layers that are seen as others: images of one pixel as one GEMM, groups of few channels fused.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../general/parameters.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
#include "pack.h"
#include "plan.h"
#include "view.h"

#include <cstdio>
#include <cstring>

namespace tconv::igemm
{

namespace
{

const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = why_not_hopper(layer);
    if (why != NULL)
        return why;
    if (layer->rows.count > MAX_PHASES || layer->columns.count > MAX_PHASES)
        return "needs at most 16 phases of an axis";
    if (layer->rows.count == 0 || layer->columns.count == 0)
        return "needs outputs with taps";
    if (problem->groups > 1 && problem->group_in * (int64_t)problem->element_size % 128 != 0)
        return "needs groups that make whole K-blocks of 128 bytes of channels";
    if (!has_code((const void *)configs_of(mode_of(layer))[0].kernel, THREADS, layer->target.device))
        return "the build has no sm_90a code";
    return NULL;
}

bool supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    layer_view view;
    tile_choice choice;
    layer_plan plan;
    init_view(&view, layer);
    const char *why = why_not(&view.layer);
    if (why == NULL && !choose(&view.layer, multiprocessors_of(layer->target.device), &choice, &plan))
        why = "no tile fits in shared memory";
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    else
        layer->choice = number_of(&choice);
    return why == NULL;
}

/* Makes the view of the layer, and the plan that supports chose for it. */
void describe_chosen(const tconv_layer *layer, layer_view *view, layer_plan *plan)
{
    const tile_choice choice = choice_of(layer->choice);
    init_view(view, layer);
    describe(&view->layer, &choice, multiprocessors_of(layer->target.device), plan);
}

bool suits(const tconv_layer *layer, double *cycles, char[TCONV_REASON_SIZE])
{
    layer_view view;
    layer_plan plan;
    describe_chosen(layer, &view, &plan);
    *cycles = plan.cycles + HOPPER_LAUNCH_CYCLES;
    return true;
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

tconv_status memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    layer_view view;
    layer_plan plan;
    int64_t size;
    describe_chosen(layer, &view, &plan);
    const parameters *of = &plan.parameters;
    if (!tconv_checked_mul(of->group_a_tiles * of->groups, (int64_t)of->a_tile_bytes, &size) ||
        !tconv_checked_add(size, phase_bytes(layer), &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = of->src_transposed ? (size_t)transposed_bytes(&layer->problem) : 0;
    sizes->execute_packs = of->src_transposed;
    return TCONV_SUCCESS;
}

weight_source source_of(const tconv_layer *layer, const layer_view *view)
{
    weight_source source;
    memset(&source, 0, sizeof source);
    source.outputs = view->outputs;
    source.out_columns = view->out_columns;
    source.one_pixel = view->one_pixel;
    if (view->fused_groups > 1) {
        source.diagonal_in = (int)layer->problem.group_in;
        source.diagonal_out = (int)layer->problem.group_out;
    }
    source.output_rows_step = layer->problem.weight.h;
    source.output_columns_step = layer->problem.weight.w;
    const tconv_layer *seen = view->one_pixel ? layer : &view->layer;
    const tconv_phase_table *const axes[] = {&seen->rows, &seen->columns};
    for (int axis = 0; axis < 2; axis++) {
        source.kernel_step[axis] = (int)axes[axis]->kernel_step;
        for (int64_t i = 0; i < (view->one_pixel ? 1 : axes[axis]->count); i++)
            source.first_kernel[axis][i] = axes[axis]->phases[i].first_kernel;
    }
    for (int64_t i = 0; i < (view->one_pixel ? 0 : seen->columns.count); i++)
        source.column_taps[i] = (int)seen->columns.phases[i].taps;
    source.from = seen->problem.weight;
    source.kernel_rows = (int)seen->problem.h.kernel;
    source.kernel_columns = (int)seen->problem.w.kernel;
    return source;
}

/* Packs the weights, unless they are NULL, and transposes src, unless there is nothing to transpose. */
tconv_status prepare(const tconv_layer *layer, const layer_view *view, const layer_plan *plan,
                     const src_transpose *transpose, const void *weights, void *packed, void *stream,
                     tconv_issue *issue)
{
    const weight_source source = source_of(layer, view);
    return on_device(layer->target.device, issue, [&] {
        tconv_status status = pack(&plan->parameters, &source, transpose, plan->mode, weights, packed, stream, issue);
        if (status == TCONV_SUCCESS && weights != NULL && has_bias_only(layer))
            status = general::pack_phases(layer, (tconv_phase *)((char *)packed + packed_bytes(&plan->parameters)),
                                          stream, issue);
        return status;
    });
}

tconv_status pack_weights(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    layer_view view;
    layer_plan plan;
    src_transpose transpose;
    memset(&transpose, 0, sizeof transpose);
    describe_chosen(layer, &view, &plan);
    return prepare(layer, &view, &plan, &transpose, weights, packed, stream, issue);
}

/* Makes the tensor map of src; false where TMA cannot read src as it lies. */
bool make_map(const tconv_layer *layer, const layer_plan *plan, CUtensorMap *map)
{
    const parameters *of = &plan->parameters;
    const tconv_problem *problem = &layer->problem;
    const cuuint64_t element = problem->element_size, image = of->from.n * element;
    const cuuint32_t images = (cuuint32_t)of->tile_images, channels = (cuuint32_t)of->k_block_channels;
    const cuuint64_t all_channels = (cuuint64_t)problem->in_channels;
    if (!of->src_channels_last) {
        const tensor_map_recipe planes = {
            problem->dtype,
            CU_TENSOR_MAP_SWIZZLE_NONE,
            of->src,
            {(cuuint64_t)(problem->h.in * problem->w.in), all_channels, (cuuint64_t)problem->batch, 1},
            {(cuuint64_t)of->from.c * element, image, image},
            {(cuuint32_t)of->box_columns, channels, images, 1},
            false};
        return of->raw_stages > 0 && encode_tensor_map(&planes, map);
    }
    const tensor_map_recipe pixels = {
        problem->dtype,
        of->pixel_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
        of->src,
        {all_channels, (cuuint64_t)of->in_columns, (cuuint64_t)of->in_rows, (cuuint64_t)of->images},
        {(cuuint64_t)of->from.w * element, (cuuint64_t)of->from.h * element, image},
        {channels, (cuuint32_t)of->box_columns, (cuuint32_t)(of->image_pixels / of->pitch), images},
        plan->mode == MODE_TF32};
    return encode_tensor_map(&pixels, map);
}

/* Tells whether every pixel of dst has its channels in whole vectors of 16 bytes or, where columns are stored together,
 * those are. */
bool can_store_vectors(const tconv_layer *layer, const parameters *of)
{
    const tconv_problem *problem = &layer->problem;
    const bool columns = of->paired || of->depth_columns > 1;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t vector = of->paired ? 2 : columns ? of->depth_columns : 16 / element;
    return problem->dst.n % vector == 0 && problem->dst.h % vector == 0 &&
           (columns ? problem->dst.c : problem->dst.w) % vector == 0 && (columns || problem->group_out % vector == 0) &&
           (uintptr_t)of->dst % (size_t)(vector * element) == 0;
}

/* Writes the bias to all outputs without a tap. */
tconv_status fill_bias_only(const tconv_layer *layer, const parameters *of, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_phase *phases = (const tconv_phase *)((const char *)arguments->packed + packed_bytes(of));
    return on_device(layer->target.device, issue,
                     [&] { return general::fill_bias_only(layer, phases, arguments, issue); });
}

tconv_status execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    layer_view view;
    layer_plan plan;
    CUtensorMap map;
    src_transpose transpose;
    const int multiprocessors = multiprocessors_of(layer->target.device);
    describe_chosen(layer, &view, &plan);
    parameters *parameters = &plan.parameters;
    memset(&map, 0, sizeof map);
    if (parameters->src_transposed) {
        transpose = transpose_of(&layer->problem, arguments->src, arguments->scratch);
        const tconv_status status = prepare(layer, &view, &plan, &transpose, arguments->weights,
                                            (void *)arguments->packed, arguments->stream, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    parameters->src = parameters->src_transposed ? arguments->scratch : arguments->src;
    parameters->weights = arguments->packed;
    parameters->bias = arguments->bias;
    parameters->dst = arguments->dst;
    parameters->bias_outputs = (int)view.outputs;
    parameters->depth_columns = view.one_pixel ? 1 : (int)view.outputs;
    parameters->by_tma = make_map(&view.layer, &plan, &map);
    parameters->store_vectors = can_store_vectors(&view.layer, parameters);
    parameters->epilogue_warps =
        parameters->epilogue_warps && parameters->by_tma && (parameters->store_vectors || !parameters->paired);
    if (has_bias_only(layer)) {
        const tconv_status status = fill_bias_only(layer, parameters, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    void *kernel_arguments[] = {parameters, &map};
    const launch_grid grid = {(const void *)plan.config.kernel, thread_blocks(&plan, multiprocessors), THREADS,
                              SHARED_MEMORY, (arguments->packs || parameters->src_transposed) && !has_bias_only(layer)};
    return launch_on_device(&grid, kernel_arguments, layer->target.device, arguments->stream, issue);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_igemm = {
    "cuda_igemm", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, supports, memory, pack_weights, execute, suits, NULL, 0};

} // namespace tconv::igemm
