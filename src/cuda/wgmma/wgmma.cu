/*
 * The wgmma algorithm: NCHW layers with many channels on Hopper's tensor cores, in f32 (TF32, or strict as three products
 * of TF32), f16 and bf16; strides 1 and 2.
 *
 * A phase (../core/phases.h) is a matrix product for each of its taps: output channels by positions, over input channels.
 * A tile of positions takes its input, borders included, once for each chunk of channels; taps are offsets into it. Both
 * column phases of stride 2 are in one tile, so that rows are written whole, and so are both row phases; few output
 * channels share the tensor cores' 64 rows among neighbouring output rows, or columns (folded). In f16 and bf16, where each pixel is read at its own
 * position alone, planes are the products' operands as they lie. The kernel is in wgmma_kernel.cuh, the packed
 * weights in wgmma_pack.cu. The tile is chosen in wgmma_plan.cu.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
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

constexpr int MOST_SHIFTED = 8; /* bytes that a lane moves at once of planes that are operands */
constexpr int MAX_VECTOR = 16;  /* bytes that are stored at once */
constexpr int SECTOR = 32;      /* bytes that the second-level cache and the memory write at once */
constexpr int LEAST_BULK = 384; /* bytes of a row; a bulk copy takes 28 cycles, however short */

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
    const tconv_wgmma_mode mode = tconv_wgmma_mode_of(layer);
    if (!has_code((const void *)tconv_wgmma_shapes_of(mode)[0].kernel, tconv_wgmma_threads(mode), layer->target.device))
        return "the build has no sm_90a code";
    return NULL;
}

bool wgmma_supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tconv_wgmma_plan made;
    const char *why = why_not(layer);
    if (why == NULL && !tconv_wgmma_choose(layer, multiprocessors_of(layer->target.device), &made))
        why = "no tile fits in shared memory, or sums are too long for strict f32";
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    else
        layer->choice = made.choice;
    return why == NULL;
}

/* What supports chose. */
void describe_chosen(const tconv_layer *layer, tconv_wgmma_plan *made)
{
    tconv_wgmma_describe(layer, layer->choice, multiprocessors_of(layer->target.device), made);
}

/* Whether the copy engine cannot read a run of channels. */
bool reads_apart(const tconv_problem *problem)
{
    return problem->src.c * (int64_t)problem->element_size % BOX_ALIGNMENT != 0;
}

bool wgmma_suits(const tconv_layer *layer, double *cycles, char reason[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    tconv_wgmma_plan made;
    describe_chosen(layer, &made);
    /* Those that convert read rows with borders slowly. */
    if (made.parameters.run_columns == 0 &&
        (reads_apart(problem) || problem->src.h * (int64_t)problem->element_size % BOX_ALIGNMENT != 0)) {
        snprintf(reason, TCONV_REASON_SIZE, "rows and channels of src are no multiples of %d bytes", BOX_ALIGNMENT);
        return false;
    }
    *cycles = tconv_wgmma_whole_cycles(&made);
    return true;
}

tconv_status wgmma_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    tconv_wgmma_plan made;
    int64_t size;
    describe_chosen(layer, &made);
    const tconv_wgmma_parameters *of = &made.parameters;
    if (!tconv_checked_mul((int64_t)of->blocks * of->chunks, (int64_t)of->max_chunk_slots * of->slot_bytes, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status wgmma_pack_weights(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                                tconv_issue *issue)
{
    tconv_wgmma_plan made;
    describe_chosen(layer, &made);
    const tconv_wgmma_packing packing = tconv_wgmma_packing_of(layer, &made);
    return on_device(layer->target.device, issue,
                     [&] { return tconv_wgmma_pack(&packing, made.mode, weights, packed, stream, issue); });
}

/* ----------------------------------------------------------------------------------------------------------- executing */

/* Elements by which src begins past a multiple of 16 bytes. */
int shift_of(const tconv_problem *problem, const void *src)
{
    return (int)((uintptr_t)src % BOX_ALIGNMENT / problem->element_size);
}

/* The bytes at whose multiples all channels begin. */
int alignment_of(const tconv_problem *problem, const void *src)
{
    const int64_t channel = problem->src.c * (int64_t)problem->element_size;
    return (int)tconv_gcd(tconv_gcd(MOST_SHIFTED, channel), (int64_t)((uintptr_t)src % BOX_ALIGNMENT));
}

/*
 * As make_map, of planes that are moved to be operands, from the multiple of 16 bytes before src on: a row is all pixels of
 * row_channels channels, as they follow one another. A box that begins in one of them may end in the next, but what is beyond the
 * tile's columns goes to sums that are not stored.
 */
bool make_shifted_map(const tconv_layer *layer, const tconv_wgmma_plan *made, const void *src, CUtensorMap *map)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_wgmma_parameters *of = &made->parameters;
    const int64_t element = (int64_t)problem->element_size, shift = shift_of(problem, src);
    const int64_t row = of->row_channels * problem->src.c;
    const tensor_map_recipe planes = {
        problem->dtype,
        CU_TENSOR_MAP_SWIZZLE_NONE,
        static_cast<const char *>(src) - shift * element,
        {(cuuint64_t)(row - problem->src.c + of->in_columns + shift), 1,
         (cuuint64_t)(problem->in_channels / of->row_channels), (cuuint64_t)problem->batch},
        {(cuuint64_t)(row * element), (cuuint64_t)(row * element), (cuuint64_t)(problem->src.n * element)},
        {(cuuint32_t)of->part_pitch, 1, (cuuint32_t)(of->chunk_channels / of->row_channels), 1}};
    return encode_tensor_map(&planes, map);
}

/* Describes src and the tile's box to the copy engine; false where it cannot read src as it lies. */
bool make_map(const tconv_layer *layer, const tconv_wgmma_plan *made, const void *src, CUtensorMap *map)
{
    if (made->shifted)
        return make_shifted_map(layer, made, src, map);
    const tconv_problem *problem = &layer->problem;
    const tconv_wgmma_parameters *of = &made->parameters;
    const cuuint64_t element = problem->element_size;
    /* From a row to the next: where there is but one, a number that the copy engine takes. */
    const int64_t row = of->in_rows > 1 ? problem->src.h : problem->src.c;
    tensor_map_recipe planes = {
        problem->dtype,
        made->transposed ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
        src,
        {(cuuint64_t)of->in_columns, (cuuint64_t)of->in_rows, (cuuint64_t)problem->in_channels,
         (cuuint64_t)problem->batch},
        {(cuuint64_t)row * element, (cuuint64_t)problem->src.c * element, (cuuint64_t)problem->src.n * element},
        {(cuuint32_t)(made->transposed ? TCONV_WGMMA_BOX : of->box_pitch), (cuuint32_t)made->patch_rows,
         (cuuint32_t)of->chunk_channels, 1}};
    if (of->in_place) { /* rows outside of channels, those of a quad */
        std::swap(planes.extents[1], planes.extents[2]);
        std::swap(planes.strides[0], planes.strides[1]);
        planes.box[1] = (cuuint32_t)(TCONV_WGMMA_QUAD / element);
        planes.box[2] = (cuuint32_t)made->patch_rows;
        planes.rounds = made->mode == TCONV_WGMMA_TF32;
    }
    return encode_tensor_map(&planes, map);
}

/* The widest store that every row of every tile allows. */
int store_vector(const tconv_layer *layer, const tconv_wgmma_plan *made, const void *dst)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_wgmma_parameters *of = &made->parameters;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t tile = (int64_t)of->tile_columns * of->row_pixels, unit = of->unit_columns * of->row_pixels;
    const int64_t staged = of->unit_rows == 1 ? 0 : (int64_t)of->pitch * of->row_pixels; /* from a row to the next */
    int64_t vector = MAX_VECTOR / element;
    while (vector > 1 && (problem->dst.n % vector != 0 || problem->dst.c % vector != 0 ||
                          of->out_columns % vector != 0 || tile % vector != 0 || unit % vector != 0 ||
                          staged % vector != 0 || (uintptr_t)dst % (size_t)(vector * element) != 0))
        vector /= 2;
    return (int)vector;
}

/* Where dst lies modulo 16 bytes does not differ between what a tile's warps stage and the rows of dst that it goes to. */
bool rows_keep_alignment(const tconv_layer *layer, const tconv_wgmma_parameters *of)
{
    const int64_t row = (int64_t)of->out_columns * of->stride_h;
    const int64_t staged = (of->run_columns > 0 ? of->run_columns : of->pitch) * of->row_pixels;
    const bool one_row = of->run_columns > 0 ? of->out_rows == 1 : of->unit_rows == 1;
    return one_row || (row - staged) * (int64_t)layer->problem.element_size % BOX_ALIGNMENT == 0;
}

/* The channels after which rows of dst lie alike modulo 16 bytes. */
int alignment_period(const tconv_problem *problem)
{
    const int64_t beyond = problem->dst.c * (int64_t)problem->element_size % BOX_ALIGNMENT;
    return (int)(BOX_ALIGNMENT / tconv_gcd(BOX_ALIGNMENT, beyond));
}

/*
 * Whether bulk copies can write the rows: they begin at multiples of two elements, as sums are staged, and all rows of a unit
 * equally far past a multiple of 16 bytes, all channels too unless there is room to stage them apart. Short rows are faster by
 * the widest vectors, if those can write them.
 */
bool can_store_bulk(const tconv_layer *layer, const tconv_wgmma_plan *made, const void *dst, int vector)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_wgmma_parameters *of = &made->parameters;
    const int64_t element = (int64_t)problem->element_size, pair = 2 * element;
    const int64_t row = (of->run_columns > 0 ? tconv_min(of->run_columns, of->unit_columns) : of->tile_columns) *
                        of->row_pixels * element;
    return (alignment_period(problem) == 1 || element == 2) && problem->dst.c % 2 == 0 &&
           problem->dst.n * element % pair == 0 && of->out_columns % 2 == 0 && (uintptr_t)dst % (size_t)pair == 0 &&
           of->tile_columns * of->row_pixels % 2 == 0 && of->unit_columns * of->row_pixels % 2 == 0 &&
           (vector < MAX_VECTOR / element || row >= LEAST_BULK) && rows_keep_alignment(layer, of);
}

/*
 * Whether the same warps should store both row phases of a run: the warpgroups have the rows of dst in turn, and these end
 * within sectors, which are written at half the speed where each part comes by itself. Not where a tile has less than two rows,
 * of which the first and the last may be cut.
 */
bool store_rows_together(const tconv_layer *layer, const tconv_wgmma_parameters *of)
{
    const int64_t row = of->out_columns * (int64_t)layer->problem.element_size;
    return !of->bulk_store && of->run_columns > 0 && of->stride_h == 2 && of->column_phases == 2 &&
           of->row_residue[0] == 0 && of->row_residue[1] == 1 && row % SECTOR != 0 &&
           of->unit_columns >= 2 * of->run_columns;
}

/*
 * Whether a storing warp should wait for the copy engine to have read its last buffer while there is no other to store. Not where
 * there are two buffers and rows are whole vectors: there, and in strict f32, that delayed the next one by more than it won.
 */
bool release_early(const tconv_wgmma_plan *made, const tconv_wgmma_parameters *of)
{
    return made->mode != TCONV_WGMMA_STRICT && (of->staged_turns == 1 || of->staged_shifts);
}

tconv_status wgmma_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_wgmma_plan made;
    CUtensorMap map;
    const int multiprocessors = multiprocessors_of(layer->target.device);
    memset(&map, 0, sizeof map);
    tconv_wgmma_describe(layer, layer->choice, multiprocessors, &made);
    bool by_boxes = make_map(layer, &made, arguments->src, &map);
    if (made.transposed && !by_boxes)
        by_boxes = tconv_wgmma_describe(layer, tconv_wgmma_shifting(layer->choice), multiprocessors, &made) &&
                   make_map(layer, &made, arguments->src, &map);
    if (made.transposed && !by_boxes) {
        tconv_wgmma_describe(layer, tconv_wgmma_converting(layer->choice), multiprocessors, &made);
        by_boxes = make_map(layer, &made, arguments->src, &map);
    }
    tconv_wgmma_parameters parameters = made.parameters;
    parameters.src = arguments->src;
    parameters.weights = arguments->packed;
    parameters.bias = arguments->bias;
    parameters.dst = arguments->dst;
    parameters.by_boxes = by_boxes;
    parameters.alignment = made.shifted ? alignment_of(&layer->problem, arguments->src) : 0;
    parameters.src_shift = made.shifted ? shift_of(&layer->problem, arguments->src) : 0;
    parameters.store_vector = store_vector(layer, &made, arguments->dst);
    parameters.bulk_store = can_store_bulk(layer, &made, arguments->dst, parameters.store_vector);
    parameters.rows_together = store_rows_together(layer, &parameters);
    parameters.staged_shifts =
        parameters.bulk_store && parameters.store_vector < MAX_VECTOR / (int)layer->problem.element_size;
    parameters.release_early = release_early(&made, &parameters);
    parameters.bulk_period = alignment_period(&layer->problem);
    void *kernel_arguments[] = {&parameters, &map};
    const launch_grid grid = {(const void *)made.shape.kernel, made.thread_blocks, tconv_wgmma_threads(made.mode),
                              TCONV_WGMMA_SHARED_MEMORY, arguments->packs};
    return launch_on_device(&grid, kernel_arguments, layer->target.device, arguments->stream, issue);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_wgmma = {
    "cuda_wgmma",       TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, wgmma_supports, wgmma_memory,
    wgmma_pack_weights, wgmma_execute,      wgmma_suits,         NULL,           0};

} // namespace tconv::wgmma
