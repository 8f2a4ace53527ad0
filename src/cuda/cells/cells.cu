/*
 * cuda_cells: NCHW layers of f32 with many channels on Hopper's tensor cores, strided ones above all; in TF32 or, in
 * strict f32, as 3xTF32.
 *
 * A cell is the outputs (the N tile) that one position of the GEMM's pixel side, M, computes: a block of rows and
 * columns of some channels. For each shift of the input, wgmma adds to the window of the cell's accumulators that have
 * a tap there (parameters.h defines these words). wgmma reads pixels from registers, to which they come from the planes
 * of src by single loads: no layout transform of src is made, and where outputs share an input it is read once.
 *
 * plan.cu chooses the tile by the cost model in cost.cu, tap_schedule.cu writes the tap schedules, stages.cu the
 * pipeline stages; pack.cu packs weights. The kernel in kernel.cuh streams weights. Where each pixel is read at its own
 * position alone and the weights of all input channels fit in shared memory, kernel_stationary.cuh has a
 * weight-stationary one for TF32.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
#include "plan.h"

#include <cstdio>
#include <cstring>

namespace tconv::cells
{

namespace
{

const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = why_not_hopper(layer);
    if (why != NULL)
        return why;
    if (problem->layout != TCONV_NCHW)
        return "needs NCHW";
    if (layer->columns.stride != 1 && layer->columns.stride != 2 && layer->columns.stride != 4)
        return "needs column strides of 1, 2 or 4";
    if (layer->rows.count != layer->rows.stride || layer->columns.count != layer->columns.stride)
        return "needs taps for every output";
    if (!has_code((const void *)tf32_configs[0].kernel, STREAMING_THREADS, layer->target.device))
        return "the build has no sm_90a code";
    return NULL;
}

bool supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tile_choice choice;
    layer_plan plan;
    const char *why = why_not(layer);
    if (why == NULL && !choose(layer, multiprocessors_of(layer->target.device), &choice, &plan))
        why = "no tile fits in shared memory, there are too many taps, or sums are too long for strict f32";
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    else
        layer->choice = choice_to_number(&choice);
    return why == NULL;
}

/* Plans the layer with the choice that supports() made. */
void describe_chosen(const tconv_layer *layer, layer_plan *plan)
{
    const tile_choice choice = choice_from_number(layer->choice);
    describe(layer, &choice, multiprocessors_of(layer->target.device), plan);
}

bool suits(const tconv_layer *layer, double *cycles, char reason[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    layer_plan plan;
    describe_chosen(layer, &plan);
    /* Where TMA cannot read src, producer warps load it element by element, which is slow. */
    if (problem->src.n % COLUMN_ALIGNMENT != 0 || problem->src.c % COLUMN_ALIGNMENT != 0 ||
        (plan.parameters.in_rows > 1 && problem->src.h % COLUMN_ALIGNMENT != 0)) {
        snprintf(reason, TCONV_REASON_SIZE, "rows and channels of src are no multiples of 16 bytes");
        return false;
    }
    *cycles = plan.cycles;
    return true;
}

tconv_status memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    layer_plan plan;
    int64_t size;
    describe_chosen(layer, &plan);
    if (!tconv_checked_mul(plan.packing.core_rows, (plan.strict ? 2 : 1) * 4 * (int64_t)sizeof(float), &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status pack_weights(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    layer_plan plan;
    describe_chosen(layer, &plan);
    return on_device(layer->target.device, issue, [&] {
        return pack(&plan.parameters, &plan.packing, plan.strict, weights, packed, stream, issue);
    });
}

/* Makes the tensor map of src with boxes of so many columns, rows and images of a K-block's channels; false where
 * TMA cannot read src. */
bool make_map(const tconv_layer *layer, const layer_plan *plan, const void *src, int columns, int rows, int images,
              CUtensorMap *map)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->parameters;
    const cuuint64_t element = problem->element_size;
    /* The stride of a single row is not used, but TMA must accept it. */
    const int64_t row = params->in_rows > 1 ? problem->src.h : problem->src.c;
    const tensor_map_recipe planes = {
        problem->dtype,
        CU_TENSOR_MAP_SWIZZLE_NONE,
        src,
        {(cuuint64_t)params->in_columns, (cuuint64_t)params->in_rows, (cuuint64_t)problem->in_channels,
         (cuuint64_t)problem->batch},
        {(cuuint64_t)row * element, (cuuint64_t)problem->src.c * element, (cuuint64_t)problem->src.n * element},
        {(cuuint32_t)columns, (cuuint32_t)rows, (cuuint32_t)params->block_k, (cuuint32_t)images},
        params->stationary};
    return encode_tensor_map(&planes, map);
}

/* Makes the tensor maps that the kernel reads; false where TMA cannot read src. */
bool make_maps(const tconv_layer *layer, const layer_plan *plan, const void *src, CUtensorMap maps[2])
{
    const parameters *params = &plan->parameters;
    if (!params->stationary)
        return make_map(layer, plan, src, params->row_pitch, plan->box_rows, params->tile_images, &maps[0]);
    return make_map(layer, plan, src, BOX_PITCH, 1, 1, &maps[0]) &&
           make_map(layer, plan, src, params->tail_pitch, 1, BOX_PITCH / params->tail_pitch, &maps[1]);
}

/* Returns whether all columns of a cell lie in one vector of dst. */
bool can_store_vectors(const tconv_layer *layer, const parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = params->cell_columns;
    return tconv_rows_begin_at_multiples(&problem->dst, vector) &&
           (uintptr_t)params->dst % (size_t)(vector * (int64_t)problem->element_size) == 0;
}

/* Returns whether the columns of two cells, where they lie in one vector in one channel and row, do so in all. */
bool can_store_pairs(const tconv_layer *layer, const parameters *params)
{
    const int64_t vector = 2 * params->cell_columns;
    return params->neighbours && layer->problem.dst.c % vector == 0 &&
           (params->cell_rows == 1 || layer->problem.dst.h % vector == 0);
}

tconv_status execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    layer_plan plan;
    CUtensorMap maps[2]; /* the second for tails of images */
    describe_chosen(layer, &plan);
    parameters *params = &plan.parameters;
    memset(maps, 0, sizeof maps);
    params->src = arguments->src;
    params->weights = arguments->packed;
    params->bias = arguments->bias;
    params->dst = arguments->dst;
    params->by_tma = make_maps(layer, &plan, arguments->src, maps);
    params->multicast_pixels = params->by_tma && params->set_blocks > 1;
    params->vector_stores = can_store_vectors(layer, params);
    params->pair_stores = can_store_pairs(layer, params);
    void *kernel_arguments[] = {params, &maps[0], &maps[1]};
    const int clusters = multiprocessors_of(layer->target.device) / CLUSTER_BLOCKS;
    const int64_t tiles =
        params->stationary
            ? tconv_ceil_div((int64_t)params->set_step * params->tile_step * params->set_blocks, CLUSTER_BLOCKS)
            : params->tiles;
    const int blocks = (int)tconv_min(tiles, tconv_max(1, clusters)) * CLUSTER_BLOCKS;
    const launch_grid grid = {
        params->stationary ? (const void *)find_stationary(params->cell_columns) : (const void *)plan.config.kernel,
        blocks, params->stationary ? STATIONARY_THREADS : STREAMING_THREADS, SHARED_MEMORY, arguments->packs};
    return launch_on_device(&grid, kernel_arguments, layer->target.device, arguments->stream, issue);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_cells = {"cuda_cells",
                                                          TCONV_BACKEND_CUDA,
                                                          TCONV_DTYPE_BIT(TCONV_F32),
                                                          supports,
                                                          memory,
                                                          pack_weights,
                                                          execute,
                                                          suits,
                                                          NULL,
                                                          0};

} // namespace tconv::cells
