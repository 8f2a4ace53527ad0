/*
 * The implicit matrix product: layers with many channels on Hopper's tensor cores, in f32 (TF32, or strict as three products of
 * TF32), f16 and bf16, of any kernel, stride and dilation that give an axis up to 16 phases; NHWC, and NCHW where images are
 * small. Outputs without a tap are filled by a launch before.
 *
 * A phase (../core/phases.h) is a matrix product for each of its taps: output channels by positions, over input channels. NHWC
 * lies as the tensor cores take it, so that the copy engine brings operands as they are: the input of a tile once for all
 * taps, where taps are then offsets into it, or once for each tap, which wastes nothing at borders; a tile may span images.
 * A small src in NCHW is turned to NHWC in the workspace first, where that is estimated to be faster than boxes of planes that
 * the kernel turns for each tile: by the launch that packs the weights, which execute then does itself.
 * The kernel is in igemm_kernel.cuh, the choice of tiles in igemm_plan.cu, the packed weights in igemm_pack.cu; images of one
 * pixel in NCHW are made one product, and groups of few channels one group, in igemm_view.cu.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../general/parameters.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
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
    if (layer->rows.count > TCONV_IGEMM_PHASES || layer->columns.count > TCONV_IGEMM_PHASES)
        return "needs at most 16 phases of an axis";
    if (layer->rows.count == 0 || layer->columns.count == 0)
        return "needs outputs with taps";
    if (problem->groups > 1 && problem->group_in * (int64_t)problem->element_size % 128 != 0)
        return "needs groups that make whole chunks of 128 bytes of channels";
    if (!has_code((const void *)tconv_igemm_shapes_of(tconv_igemm_mode_of(layer))[0].kernel, TCONV_IGEMM_THREADS,
                  layer->target.device))
        return "the build has no sm_90a code";
    return NULL;
}

bool igemm_supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tconv_igemm_view view;
    tconv_igemm_choice choice;
    tconv_igemm_plan plan;
    tconv_igemm_view_init(&view, layer);
    const char *why = why_not(&view.layer);
    if (why == NULL && !tconv_igemm_choose(&view.layer, multiprocessors_of(layer->target.device), &choice, &plan))
        why = "no tile fits in shared memory";
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    else
        layer->choice = tconv_igemm_number_of(&choice);
    return why == NULL;
}

/* How the layer is seen, and what supports chose for that. */
void describe_chosen(const tconv_layer *layer, tconv_igemm_view *view, tconv_igemm_plan *plan)
{
    const tconv_igemm_choice choice = tconv_igemm_choice_of(layer->choice);
    tconv_igemm_view_init(view, layer);
    tconv_igemm_describe(&view->layer, &choice, multiprocessors_of(layer->target.device), plan);
}

bool igemm_suits(const tconv_layer *layer, double *cycles, char[TCONV_REASON_SIZE])
{
    tconv_igemm_view view;
    tconv_igemm_plan plan;
    describe_chosen(layer, &view, &plan);
    *cycles = plan.cycles + HOPPER_LAUNCH_CYCLES;
    return true;
}

bool has_bias_only(const tconv_layer *layer)
{
    return layer->rows.bias_only > 0 || layer->columns.bias_only > 0;
}

/* Of the phase tables that lie after the weights, for what fills outputs without a tap. */
int64_t phase_bytes(const tconv_layer *layer)
{
    return has_bias_only(layer) ? (layer->rows.count + layer->columns.count) * (int64_t)sizeof(tconv_phase) : 0;
}

int64_t weight_bytes(const tconv_igemm_parameters *of)
{
    return of->group_slots * of->groups * (int64_t)of->slot_bytes;
}

tconv_status igemm_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    tconv_igemm_view view;
    tconv_igemm_plan plan;
    int64_t size;
    describe_chosen(layer, &view, &plan);
    const tconv_igemm_parameters *of = &plan.parameters;
    if (!tconv_checked_mul(of->group_slots * of->groups, (int64_t)of->slot_bytes, &size) ||
        !tconv_checked_add(size, phase_bytes(layer), &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = of->turned ? (size_t)tconv_igemm_turned_bytes(&layer->problem) : 0;
    sizes->execute_packs = of->turned;
    return TCONV_SUCCESS;
}

tconv_igemm_packing packing_of(const tconv_layer *layer, const tconv_igemm_view *view)
{
    tconv_igemm_packing packing;
    memset(&packing, 0, sizeof packing);
    packing.outputs = view->outputs;
    packing.out_columns = view->out_columns;
    packing.one_pixel = view->one_pixel;
    if (view->united > 1) {
        packing.lone_in = (int)layer->problem.group_in;
        packing.lone_out = (int)layer->problem.group_out;
    }
    packing.output_rows_step = layer->problem.weight.h;
    packing.output_columns_step = layer->problem.weight.w;
    const tconv_layer *seen = view->one_pixel ? layer : &view->layer;
    const tconv_phase_table *const axes[] = {&seen->rows, &seen->columns};
    for (int axis = 0; axis < 2; axis++) {
        packing.kernel_step[axis] = (int)axes[axis]->kernel_step;
        for (int64_t i = 0; i < (view->one_pixel ? 1 : axes[axis]->count); i++)
            packing.first_kernel[axis][i] = axes[axis]->phases[i].first_kernel;
    }
    for (int64_t i = 0; i < (view->one_pixel ? 0 : seen->columns.count); i++)
        packing.column_taps[i] = (int)seen->columns.phases[i].taps;
    packing.from = seen->problem.weight;
    packing.kernel_rows = (int)seen->problem.h.kernel;
    packing.kernel_columns = (int)seen->problem.w.kernel;
    return packing;
}

/* Packs the weights, unless NULL, and turns src, where there are tiles to be turned. */
tconv_status prepare(const tconv_layer *layer, const tconv_igemm_view *view, const tconv_igemm_plan *plan,
                     const tconv_igemm_turning *turning, const void *weights, void *packed, void *stream,
                     tconv_issue *issue)
{
    const tconv_igemm_packing packing = packing_of(layer, view);
    return on_device(layer->target.device, issue, [&] {
        tconv_status status =
            tconv_igemm_pack(&plan->parameters, &packing, turning, plan->mode, weights, packed, stream, issue);
        if (status == TCONV_SUCCESS && weights != NULL && has_bias_only(layer))
            status = general::pack_phases(layer, (tconv_phase *)((char *)packed + weight_bytes(&plan->parameters)),
                                          stream, issue);
        return status;
    });
}

tconv_status igemm_pack_weights(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                                tconv_issue *issue)
{
    tconv_igemm_view view;
    tconv_igemm_plan plan;
    tconv_igemm_turning turning;
    memset(&turning, 0, sizeof turning);
    describe_chosen(layer, &view, &plan);
    return prepare(layer, &view, &plan, &turning, weights, packed, stream, issue);
}

/* Describes src and the stages' boxes to the copy engine; false where it cannot read src as it lies. */
bool make_map(const tconv_layer *layer, const tconv_igemm_plan *plan, CUtensorMap *map)
{
    const tconv_igemm_parameters *of = &plan->parameters;
    const tconv_problem *problem = &layer->problem;
    const cuuint64_t element = problem->element_size, image = of->from.n * element;
    const cuuint32_t images = (cuuint32_t)of->tile_images, channels = (cuuint32_t)of->chunk_channels;
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
        return of->plane_boxes > 0 && encode_tensor_map(&planes, map);
    }
    const tensor_map_recipe pixels = {
        problem->dtype,
        of->row_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
        of->src,
        {all_channels, (cuuint64_t)of->in_columns, (cuuint64_t)of->in_rows, (cuuint64_t)of->images},
        {(cuuint64_t)of->from.w * element, (cuuint64_t)of->from.h * element, image},
        {channels, (cuuint32_t)of->box_columns, (cuuint32_t)(of->image_pixels / of->pitch), images},
        plan->mode == TCONV_IGEMM_TF32};
    return encode_tensor_map(&pixels, map);
}

/* Whether every pixel of dst has its channels in whole vectors of 16 bytes or, where columns are stored together, those are. */
bool can_store_vectors(const tconv_layer *layer, const tconv_igemm_parameters *of)
{
    const tconv_problem *problem = &layer->problem;
    const bool columns = of->paired || of->together > 1;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t vector = of->paired ? 2 : columns ? of->together : 16 / element;
    return problem->dst.n % vector == 0 && problem->dst.h % vector == 0 &&
           (columns ? problem->dst.c : problem->dst.w) % vector == 0 && (columns || problem->group_out % vector == 0) &&
           (uintptr_t)of->dst % (size_t)(vector * element) == 0;
}

/* Writes the bias to all outputs without a tap. */
tconv_status fill_bias_only(const tconv_layer *layer, const tconv_igemm_parameters *of,
                            const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_phase *phases = (const tconv_phase *)((const char *)arguments->packed + weight_bytes(of));
    return on_device(layer->target.device, issue,
                     [&] { return general::fill_bias_only(layer, phases, arguments, issue); });
}

tconv_status igemm_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_igemm_view view;
    tconv_igemm_plan plan;
    CUtensorMap map;
    tconv_igemm_turning turning;
    const int multiprocessors = multiprocessors_of(layer->target.device);
    describe_chosen(layer, &view, &plan);
    tconv_igemm_parameters *parameters = &plan.parameters;
    memset(&map, 0, sizeof map);
    if (parameters->turned) {
        turning = tconv_igemm_turning_of(&layer->problem, arguments->src, arguments->scratch);
        const tconv_status status = prepare(layer, &view, &plan, &turning, arguments->weights,
                                            (void *)arguments->packed, arguments->stream, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    parameters->src = parameters->turned ? arguments->scratch : arguments->src;
    parameters->weights = arguments->packed;
    parameters->bias = arguments->bias;
    parameters->dst = arguments->dst;
    parameters->bias_outputs = (int)view.outputs;
    parameters->together = view.one_pixel ? 1 : (int)view.outputs;
    parameters->by_boxes = make_map(&view.layer, &plan, &map);
    parameters->store_vectors = can_store_vectors(&view.layer, parameters);
    parameters->hands_over =
        parameters->hands_over && parameters->by_boxes && (parameters->store_vectors || !parameters->paired);
    if (has_bias_only(layer)) {
        const tconv_status status = fill_bias_only(layer, parameters, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    void *kernel_arguments[] = {parameters, &map};
    const launch_grid grid = {(const void *)plan.shape.kernel, tconv_igemm_thread_blocks(&plan, multiprocessors),
                              TCONV_IGEMM_THREADS, TCONV_IGEMM_SHARED_MEMORY,
                              (arguments->packs || parameters->turned) && !has_bias_only(layer)};
    return launch_on_device(&grid, kernel_arguments, layer->target.device, arguments->stream, issue);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_igemm = {
    "cuda_igemm",       TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, igemm_supports, igemm_memory,
    igemm_pack_weights, igemm_execute,      igemm_suits,         NULL,           0};

} // namespace tconv::igemm
