/*
 * cuda_wgmma: NCHW layers with many channels on Hopper's tensor cores, in f32 (TF32, or strict as three products of
 * TF32), f16 and bf16; strides 1 and 2.
 *
 * A phase (src/core/phases.h) is a matrix product for each of its taps: output channels by positions, over input
 * channels. A tile of positions loads its patch of src, halo included, once for each K-block; taps are offsets into it.
 * Both column phases of stride 2 are in one tile, so that rows are written whole, and so are both row phases. Few
 * output channels share the 64 rows of an MMA among neighbouring output rows (a stack), or columns (space-to-depth
 * along W). In f16 and bf16, where each pixel is read at its own position alone, planes of src are an MN-major B
 * operand as they lie.
 *
 * parameters.h has the words. The plan is made by plan.cu (the choice of the tile), tile.cu (where it lies in the
 * layer), stages.cu (shared memory and the order of weights) and cost.cu; pack.cu packs the weights. kernel.cuh is the
 * kernel and has the numeric order; its roles are load.cuh and load_misaligned.cuh (TMA), transpose.cuh (to K-major),
 * mainloop.cuh, and epilogue.cuh with store.cuh. configs_f32.cu and configs_half.cu have its instances.
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
#include <utility>

namespace tconv::wgmma
{

namespace
{

constexpr int MAX_REALIGNED = 8; /* bytes that a lane realigns at once */
constexpr int MAX_VECTOR = 16;   /* bytes that are stored at once */
constexpr int SECTOR = 32;       /* bytes that the second-level cache and the memory write at once */
constexpr int LEAST_BULK = 384;  /* bytes of a row: a bulk copy takes 28 cycles, however short (measured) */

const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = why_not_hopper(layer);
    if (why != NULL)
        return why;
    if (problem->layout != TCONV_NCHW)
        return "needs NCHW";
    if (layer->rows.stride > 2 || layer->columns.stride > 2)
        return "needs strides of 1 or 2";
    if (layer->rows.count != layer->rows.stride || layer->columns.count != layer->columns.stride)
        return "needs taps for every output";
    const arithmetic mode = mode_of(layer);
    if (!has_code((const void *)configs_of(mode)[0].kernel, threads_of(mode), layer->target.device))
        return "the build has no sm_90a code";
    return NULL;
}

bool supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    plan made;
    const char *why = why_not(layer);
    if (why == NULL && !choose_plan(layer, multiprocessors_of(layer->target.device), &made))
        why = "no tile fits in shared memory, or sums are too long for strict f32";
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    else
        layer->choice = made.choice;
    return why == NULL;
}

/* Makes the plan that `supports` chose. */
void restore_chosen(const tconv_layer *layer, plan *made)
{
    restore_plan(layer, layer->choice, multiprocessors_of(layer->target.device), made);
}

/* Tells whether the stride of channels is none that TMA takes. */
bool channels_are_misaligned(const tconv_problem *problem)
{
    return problem->src.c * (int64_t)problem->element_size % BOX_ALIGNMENT != 0;
}

bool suits(const tconv_layer *layer, double *cycles, char reason[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    plan made;
    restore_chosen(layer, &made);
    /* The transpose warps gather rows with a halo slowly. */
    if (made.params.flat_columns == 0 &&
        (channels_are_misaligned(problem) || problem->src.h * (int64_t)problem->element_size % BOX_ALIGNMENT != 0)) {
        snprintf(reason, TCONV_REASON_SIZE, "rows and channels of src are no multiples of %d bytes", BOX_ALIGNMENT);
        return false;
    }
    *cycles = cost_among_implementations(&made);
    return true;
}

tconv_status memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    plan made;
    int64_t size;
    restore_chosen(layer, &made);
    const parameters *params = &made.params;
    if (!tconv_checked_mul((int64_t)params->m_blocks * params->k_blocks,
                           (int64_t)params->max_k_block_a_stages * params->a_stage_bytes, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    plan made;
    restore_chosen(layer, &made);
    const packing_layout packing = packing_of(layer, &made);
    return on_device(layer->target.device, issue,
                     [&] { return pack_weights(&packing, made.mode, weights, packed, stream, issue); });
}

/* -----------------------------------------------------------------------------------------------------------
 * executing */

/* Returns the elements by which src begins past a multiple of 16 bytes. */
int misalignment_of(const tconv_problem *problem, const void *src)
{
    return (int)((uintptr_t)src % BOX_ALIGNMENT / problem->element_size);
}

/* Returns the bytes at whose multiples all channels begin. */
int alignment_of(const tconv_problem *problem, const void *src)
{
    const int64_t channel = problem->src.c * (int64_t)problem->element_size;
    return (int)tconv_gcd(tconv_gcd(MAX_REALIGNED, channel), (int64_t)((uintptr_t)src % BOX_ALIGNMENT));
}

/*
 * Makes the tensor map of planes that are realigned, from the multiple of 16 bytes before src on: a row is all pixels
 * of map_row_channels channels, as they follow one another. A box that begins in one of them may end in the next, but
 * what is beyond the tile's columns goes to accumulators that are not stored.
 */
bool make_misaligned_map(const tconv_layer *layer, const plan *made, const void *src, CUtensorMap *map)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &made->params;
    const int64_t element = (int64_t)problem->element_size, before = misalignment_of(problem, src);
    const int64_t row = params->map_row_channels * problem->src.c;
    const tensor_map_recipe planes = {
        problem->dtype,
        CU_TENSOR_MAP_SWIZZLE_NONE,
        static_cast<const char *>(src) - before * element,
        {(cuuint64_t)(row - problem->src.c + params->in_columns + before), 1,
         (cuuint64_t)(problem->in_channels / params->map_row_channels), (cuuint64_t)problem->batch},
        {(cuuint64_t)(row * element), (cuuint64_t)(row * element), (cuuint64_t)(problem->src.n * element)},
        {(cuuint32_t)params->part_pitch, 1, (cuuint32_t)(params->k_block_channels / params->map_row_channels), 1}};
    return encode_tensor_map(&planes, map);
}

/* Makes the tensor map of src with the tile's box; false where TMA cannot read src as it lies. */
bool make_map(const tconv_layer *layer, const plan *made, const void *src, CUtensorMap *map)
{
    if (made->realigned)
        return make_misaligned_map(layer, made, src, map);
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &made->params;
    const cuuint64_t element = problem->element_size;
    /* From a row to the next; where there is but one, a number that TMA takes. */
    const int64_t row = params->in_rows > 1 ? problem->src.h : problem->src.c;
    tensor_map_recipe planes = {
        problem->dtype,
        made->mn_major ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
        src,
        {(cuuint64_t)params->in_columns, (cuuint64_t)params->in_rows, (cuuint64_t)problem->in_channels,
         (cuuint64_t)problem->batch},
        {(cuuint64_t)row * element, (cuuint64_t)problem->src.c * element, (cuuint64_t)problem->src.n * element},
        {(cuuint32_t)(made->mn_major ? SWIZZLE_PIXELS : params->box_pitch), (cuuint32_t)made->patch_rows,
         (cuuint32_t)params->k_block_channels, 1}};
    if (params->in_place) { /* rows outside of channels, those of a core */
        std::swap(planes.extents[1], planes.extents[2]);
        std::swap(planes.strides[0], planes.strides[1]);
        planes.box[1] = (cuuint32_t)(CORE_ROW_BYTES / element);
        planes.box[2] = (cuuint32_t)made->patch_rows;
        planes.rounds = made->mode == arithmetic::TF32;
    }
    return encode_tensor_map(&planes, map);
}

/* Returns the widest store, in elements, that every row of every tile allows. */
int store_vector(const tconv_layer *layer, const plan *made, const void *dst)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &made->params;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t tile = (int64_t)params->tile_columns * params->position_columns,
                  mma_tile = params->mma_tile_columns * params->position_columns;
    const int64_t staged =
        params->mma_tile_rows == 1 ? 0 : (int64_t)params->pitch * params->position_columns; /* from a row to the next */
    int64_t vector = MAX_VECTOR / element;
    while (vector > 1 && (problem->dst.n % vector != 0 || problem->dst.c % vector != 0 ||
                          params->out_columns % vector != 0 || tile % vector != 0 || mma_tile % vector != 0 ||
                          staged % vector != 0 || (uintptr_t)dst % (size_t)(vector * element) != 0))
        vector /= 2;
    return (int)vector;
}

/* Tells whether staged rows and the rows of dst that they go to lie alike modulo 16 bytes, all of them as the first. */
bool rows_keep_alignment(const tconv_layer *layer, const parameters *params)
{
    const int64_t row = (int64_t)params->out_columns * params->stride_h;
    const int64_t staged = (params->flat_columns > 0 ? params->flat_columns : params->pitch) * params->position_columns;
    const bool one_row = params->flat_columns > 0 ? params->out_rows == 1 : params->mma_tile_rows == 1;
    return one_row || (row - staged) * (int64_t)layer->problem.element_size % BOX_ALIGNMENT == 0;
}

/* Returns the channels after which rows of dst lie alike modulo 16 bytes. */
int alignment_period(const tconv_problem *problem)
{
    const int64_t beyond = problem->dst.c * (int64_t)problem->element_size % BOX_ALIGNMENT;
    return (int)(BOX_ALIGNMENT / tconv_gcd(BOX_ALIGNMENT, beyond));
}

/*
 * Tells whether bulk copies can write the rows: they begin at multiples of two elements, as they are staged, and all
 * rows of an MMA tile equally far past a multiple of 16 bytes, all channels too unless there is room to stage them at
 * offsets of their own. Short rows are faster by the widest vectors, if those can write them.
 */
bool can_store_bulk(const tconv_layer *layer, const plan *made, const void *dst, int vector)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &made->params;
    const int64_t element = (int64_t)problem->element_size, pair = 2 * element;
    const int64_t row =
        (params->flat_columns > 0 ? tconv_min(params->flat_columns, params->mma_tile_columns) : params->tile_columns) *
        params->position_columns * element;
    return (alignment_period(problem) == 1 || element == 2) && problem->dst.c % 2 == 0 &&
           problem->dst.n * element % pair == 0 && params->out_columns % 2 == 0 && (uintptr_t)dst % (size_t)pair == 0 &&
           params->tile_columns * params->position_columns % 2 == 0 &&
           params->mma_tile_columns * params->position_columns % 2 == 0 &&
           (vector < MAX_VECTOR / element || row >= LEAST_BULK) && rows_keep_alignment(layer, params);
}

/*
 * Tells whether the same epilogue warps should store both row phases of a flat layer: the warpgroups have the rows of
 * dst in turn, and these end within sectors, which are written at half the speed where each part comes by itself. Not
 * where a tile has less than two rows, of which the first and the last may be cut.
 */
bool store_row_phases_together(const tconv_layer *layer, const parameters *params)
{
    const int64_t row = params->out_columns * (int64_t)layer->problem.element_size;
    return !params->bulk_store && params->flat_columns > 0 && params->stride_h == 2 && params->column_phases == 2 &&
           params->row_residue[0] == 0 && params->row_residue[1] == 1 && row % SECTOR != 0 &&
           params->mma_tile_columns >= 2 * params->flat_columns;
}

/*
 * Tells whether an epilogue warp should wait for its bulk copies to have read the last staging buffer while there is no
 * other to store. Not where there are two buffers and rows are whole vectors: there, and in strict f32, that delayed
 * the next one by more than it won.
 */
bool release_early(const plan *made, const parameters *params)
{
    return made->mode != arithmetic::STRICT && (params->staging_buffers == 1 || params->staged_misaligned);
}

tconv_status execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    plan made;
    CUtensorMap map;
    const int multiprocessors = multiprocessors_of(layer->target.device);
    memset(&map, 0, sizeof map);
    restore_plan(layer, layer->choice, multiprocessors, &made);
    bool by_tma = make_map(layer, &made, arguments->src, &map);
    if (made.mn_major && !by_tma)
        by_tma = restore_plan(layer, realigned_choice(layer->choice), multiprocessors, &made) &&
                 make_map(layer, &made, arguments->src, &map);
    if (made.mn_major && !by_tma) {
        restore_plan(layer, k_major_choice(layer->choice), multiprocessors, &made);
        by_tma = make_map(layer, &made, arguments->src, &map);
    }
    parameters params = made.params;
    params.src = arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.by_tma = by_tma;
    params.channel_alignment = made.realigned ? alignment_of(&layer->problem, arguments->src) : 0;
    params.src_misalignment = made.realigned ? misalignment_of(&layer->problem, arguments->src) : 0;
    params.store_vector = store_vector(layer, &made, arguments->dst);
    params.bulk_store = can_store_bulk(layer, &made, arguments->dst, params.store_vector);
    params.row_phases_together = store_row_phases_together(layer, &params);
    params.staged_misaligned = params.bulk_store && params.store_vector < MAX_VECTOR / (int)layer->problem.element_size;
    params.release_early = release_early(&made, &params);
    params.bulk_period = alignment_period(&layer->problem);
    void *kernel_arguments[] = {&params, &map};
    const launch_grid grid = {(const void *)made.config.kernel, made.thread_blocks, threads_of(made.mode),
                              SHARED_MEMORY_BYTES, arguments->packs};
    return launch_on_device(&grid, kernel_arguments, layer->target.device, arguments->stream, issue);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_wgmma = {
    "cuda_wgmma", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, supports, memory, pack, execute, suits, NULL, 0};

} // namespace tconv::wgmma
