/*
 * The products algorithm on CUDA: layers with few output channels and many input channels per group, on tensor cores. Each
 * pixel of src is multiplied once with all weights of its group, and the outputs are gathered from the products
 * (products_kernel.cu): src is read about once, in any phase, and dst is written once. f32 (strict by 3xTF32, or TF32),
 * f16 and bf16; strides up to 16, up to 88 weights per input channel; any padding, dilation, slice and alignment. Hopper has
 * kernels of its own (products_rows.cu, products_boxes.cu), for up to 168 weights, for layers whose kernel rows are neighbours
 * and fit one of their shapes; which shape, is the layer's choice.
 *
 * Numeric order: see the kernel; it depends on the layer alone.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../maps/small_axis.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
#include "parameters.h"

#include <cstdio>
#include <cuda_runtime_api.h>

namespace tconv::col2im
{

namespace
{

constexpr int64_t ACCESS = 16;     /* bytes that a thread copies at once */
constexpr int64_t RESERVED = 1024; /* of shared memory, for each block */
constexpr int64_t STAGE =
    (int64_t)TCONV_CUDA_PRODUCTS_STAGE_BYTES * TCONV_CUDA_PRODUCTS_STAGES * TCONV_CUDA_PRODUCTS_WARPS;
constexpr int64_t PIXELS = TCONV_CUDA_PRODUCTS_PIXELS;
constexpr int64_t TILE = TCONV_CUDA_PRODUCTS_TILE;
constexpr int64_t MAX_TURNS = 8; /* of blocks, that are tried: with more, the last one is a small part of all */

/* Fewer channels leave a step of the tensor cores half empty and too little to do per output. */
constexpr int64_t MIN_IN = 16;

/* More would leave most of the 8-wide tiles to layers for which an ordinary GEMM is as good. */
constexpr int64_t MAX_OUT = 4;

/* Additions of like terms may be off by a quarter of their number, so that strict f32 stays within the bound of 16 for so
 * many: of a sum's segments of channels, and of the products of its taps. */
constexpr int64_t MAX_ADDITIONS = 48;

constexpr int64_t MAX_TAPS = 256; /* no kernel has more products */

/* Fewer pixels of an image, or of a row, leave most of a step empty. */
constexpr int64_t MIN_PIXELS = 64, MIN_COLUMNS = 8;

constexpr int TILES[] = {2, 4, 6, 8, TCONV_CUDA_PRODUCTS_MAX_TILES}; /* of products, that there are kernels for */

/* Shared memory that a block may ask for, by compute capability. */
int64_t max_shared(int compute_capability)
{
    return compute_capability >= 90                               ? 227 * 1024
           : compute_capability == 80 || compute_capability == 87 ? 163 * 1024
                                                                  : 99 * 1024;
}

bool is_strict(const tconv_layer *layer)
{
    return layer->problem.dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32;
}

int64_t products_of(const tconv_problem *problem)
{
    return problem->group_out * problem->h.kernel * problem->w.kernel;
}

/* Tiles of the kernel that the layer takes. */
int tiles_of(const tconv_problem *problem)
{
    size_t i = 0;
    while (TILES[i] * TILE < products_of(problem))
        i++;
    return TILES[i];
}

int64_t steps_of(const tconv_problem *problem)
{
    return tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, TCONV_CUDA_PRODUCTS_STEP_BYTES);
}

int64_t fragments_of(const tconv_problem *problem)
{
    return steps_of(problem) * tiles_of(problem) * 32;
}

/* The way of gathering that the layer can take. */
int gather_of(const tconv_problem *problem)
{
    static const struct {
        int64_t kernel, stride;
        int gather;
    } unrolled[] = {{3, 1, TCONV_CUDA_PRODUCTS_3_BY_1},
                    {3, 2, TCONV_CUDA_PRODUCTS_3_BY_2},
                    {4, 2, TCONV_CUDA_PRODUCTS_4_BY_2},
                    {9, 4, TCONV_CUDA_PRODUCTS_9_BY_4}};
    const tconv_axis *h = &problem->h, *w = &problem->w;
    if (h->dilation != 1 || w->dilation != 1 || h->stride != w->stride || h->kernel != w->kernel)
        return TCONV_CUDA_PRODUCTS_ANY;
    for (size_t i = 0; i < sizeof unrolled / sizeof unrolled[0]; i++)
        if (h->kernel == unrolled[i].kernel && h->stride == unrolled[i].stride)
            return unrolled[i].gather;
    return TCONV_CUDA_PRODUCTS_ANY;
}

/* Additions that follow one another in an output's sum: of segments, then of taps, which are added row by row, each by
 * itself, or all in turn. */
int64_t additions_of(const tconv_layer *layer)
{
    const int64_t rows = layer->rows.max_taps, columns = layer->columns.max_taps;
    return tconv_ceil_div(steps_of(&layer->problem), TCONV_CUDA_PRODUCTS_SEGMENT) +
           (gather_of(&layer->problem) == TCONV_CUDA_PRODUCTS_ANY ? rows + columns : rows * columns);
}

/* Fills in how columns are cut into tiles. Returns false where outputs reach back over nearly a whole tile. */
bool cut_columns(const tconv_problem *problem, tconv_cuda_products_parameters *made)
{
    const tconv_axis *w = &problem->w;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const int64_t back = (w->kernel - 1) * w->dilation / w->stride;
    int log2 = 5;
    while (1 << log2 < PIXELS && 1 << log2 < w->in)
        log2++;
    const int64_t row_pixels = (int64_t)1 << log2, step = (row_pixels - back) / length * length;
    if (w->in > row_pixels && step < row_pixels / 2)
        return false;
    made->row_pixels_log2 = log2;
    made->column_back = (int)back;
    made->column_step = (int)(w->in <= row_pixels ? row_pixels : step);
    made->column_tiles = w->in <= row_pixels ? 1 : (int)(1 + tconv_ceil_div(w->in - row_pixels, step));
    /* A tile alone has all columns; others the outputs of at most a tile of columns, and what reaches beyond src. */
    made->sum_columns =
        (int)tconv_min(w->out, made->column_tiles == 1 ? w->out : (row_pixels + back + 2) * w->stride + w->dilation);
    return true;
}

int64_t shared_bytes_of(const tconv_problem *problem, const tconv_cuda_products_parameters *made)
{
    const int64_t weights = fragments_of(problem) * TCONV_CUDA_PRODUCTS_FRAGMENT_BYTES;
    const int64_t products = tiles_of(problem) * TILE * TCONV_CUDA_PRODUCTS_PITCH;
    const int64_t sums = (int64_t)made->sum_rows * made->sum_columns * problem->group_out;
    const int64_t columns = made->sum_columns * 2; /* taps of each: two numbers */
    return weights + STAGE + (products + columns + sums + problem->group_out) * (int64_t)sizeof(float);
}

int64_t row_quotients(const tconv_axis *h)
{
    return (h->pad + h->out - 1) / h->stride + 1 - h->pad / h->stride;
}

/* Of all kernels, but for what each one says for itself. */
const char *refusal(const tconv_layer *layer, tconv_cuda_products_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    if (problem->group_in < MIN_IN || problem->group_out > MAX_OUT)
        return "fewer than 16 input or more than 4 output channels per group";
    if (!is_small_axis(&problem->h) || !is_small_axis(&problem->w))
        return "a stride above 16, or an extent too large for 32-bit coordinates";
    if (problem->h.kernel * problem->w.kernel > MAX_TAPS)
        return "more than 256 taps";
    if (problem->h.in * problem->w.in < MIN_PIXELS || problem->w.in < MIN_COLUMNS)
        return "fewer than 64 pixels, or 8 columns";
    if (problem->w.in * problem->w.stride >= SMALL_AXIS_EXTENT)
        return "rows too long for 32-bit coordinates";
    if (problem->in_channels >= SMALL_AXIS_EXTENT)
        return "too many channels for 32-bit numbers";
    if (!cut_columns(problem, made))
        return "columns of outputs reach back too far";
    return problem->batch * problem->groups > INT32_MAX / row_quotients(&problem->h) / made->column_tiles
               ? "too many images for 32-bit numbers of tiles"
               : NULL;
}

/* Of the kernel for any device. */
const char *refusal_of_any(const tconv_layer *layer, tconv_cuda_products_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    if (products_of(problem) > TCONV_CUDA_PRODUCTS_MAX_TILES * TILE)
        return "more than 88 weights per input channel";
    if (is_strict(layer) && additions_of(layer) > MAX_ADDITIONS)
        return "strict f32 sums of more than 48 segments of 64 channels, rows and columns of taps";
    /* Of a row's outputs, those of `stride` rows are complete and the others wait. */
    const int64_t rows = tconv_max((problem->h.kernel - 1) * problem->h.dilation + 1 - problem->h.stride, 1);
    made->gather = gather_of(problem);
    if (rows * made->sum_columns * problem->group_out >= SMALL_AXIS_EXTENT)
        return "sums too many for shared memory";
    made->sum_rows = (int)rows;
    return shared_bytes_of(problem, made) > max_shared(layer->target.compute_capability)
               ? "weights or sums too many for shared memory"
               : NULL;
}

/* ------------------------------------------------------------------------------------------------- Hopper's kernel */

constexpr int64_t ANY_KERNEL = 0;     /* as a layer's choice; others are 1 and the shape of Hopper's kernel */
constexpr int64_t MAX_IDLE_SHARE = 4; /* of a block's images, at most one in so many may be missing in the last block */

/* Blocks for all images, of as many as their rows leave room for. */
int64_t images_together(const tconv_problem *problem, const tconv_cuda_products_parameters *made)
{
    return tconv_ceil_div(problem->batch, PIXELS >> made->row_pixels_log2);
}

/* Products of a kernel row. */
int64_t row_products_of(const tconv_problem *problem)
{
    return problem->group_out * problem->w.kernel;
}

int64_t rows_weights_of(const tconv_layer *layer, int shape)
{
    return steps_of(&layer->problem) * tconv_cuda_product_rows_shapes[shape].tiles * TILE *
           TCONV_CUDA_PRODUCTS_STEP_BYTES * (is_strict(layer) ? 2 : 1);
}

/* Blocks on a multiprocessor for whose sums registers are enough. */
int64_t rows_blocks_of(const tconv_layer *layer, int shape)
{
    const tconv_cuda_product_rows_shape *of = &tconv_cuda_product_rows_shapes[shape];
    return is_strict(layer) ? of->strict_blocks : of->blocks;
}

/* How outputs are gathered: by runs of columns, but not where these are apart in dst, and those of other threads between
 * them. */
int rows_gather_of(const tconv_layer *layer, int shape)
{
    const tconv_axis *w = &layer->problem.w;
    const int64_t taps = tconv_max(layer->columns.max_taps, TCONV_CUDA_PRODUCT_MIN_TAPS);
    const bool together = layer->problem.dst.w == 1 || w->stride == 1;
    const bool unrolled = w->dilation == 1 && w->kernel >= w->stride && w->stride <= TCONV_CUDA_PRODUCT_MAX_RUN &&
                          taps <= TCONV_CUDA_PRODUCT_MAX_TAPS &&
                          (tconv_cuda_product_runs_of.of_shape[shape] >> TCONV_CUDA_PRODUCT_RUNS(w->stride, taps) & 1);
    return together && unrolled ? (int)TCONV_CUDA_PRODUCT_RUNS(w->stride, taps)
                                : (int)TCONV_CUDA_PRODUCT_COLUMNS(tconv_min(taps, TCONV_CUDA_PRODUCT_MAX_TAPS));
}

bool gathers_runs(const tconv_layer *layer, int shape)
{
    return rows_gather_of(layer, shape) >= TCONV_CUDA_PRODUCT_RUNS(1, 0);
}

/* Shared memory of a block, of which stages of src take so many bytes. */
int64_t rows_shared_bytes_of(const tconv_layer *layer, int shape, int64_t stage_bytes, int buffers,
                             const tconv_cuda_products_parameters *made)
{
    const int64_t products =
        (int64_t)buffers * tconv_cuda_product_rows_shapes[shape].group_tiles * TILE * TCONV_CUDA_PRODUCT_ROWS_PITCH +
        TCONV_CUDA_PRODUCT_ROWS_GUARD;
    const int64_t columns = gathers_runs(layer, shape) ? 0 : made->sum_columns + made->sum_columns % 2;
    const int64_t outputs = layer->problem.h.stride * layer->problem.group_out;
    return stage_bytes + rows_weights_of(layer, shape) + products * (int64_t)sizeof(float) +
           outputs * TCONV_CUDA_PRODUCT_ROWS_OUTPUT_BYTES + columns * TCONV_CUDA_PRODUCT_ROWS_COLUMN_BYTES;
}

int64_t copied_stage_bytes(const tconv_layer *layer)
{
    return (int64_t)TCONV_CUDA_PRODUCT_ROWS_WARPS * TCONV_CUDA_PRODUCT_ROWS_STAGE_BYTES *
           TCONV_CUDA_PRODUCT_ROWS_STAGES(is_strict(layer), layer->problem.element_size);
}

/* With their barriers. */
constexpr int64_t BOXES_STAGE_BYTES =
    TCONV_CUDA_PRODUCT_BOXES_STAGES * TCONV_CUDA_PRODUCT_BOXES_STAGE_BYTES + TCONV_CUDA_PRODUCT_BOXES_BARRIER_BYTES;

/* Blocks on a multiprocessor. */
int64_t rows_resident_of(const tconv_layer *layer, int shape, int64_t shared_bytes)
{
    return tconv_min((max_shared(layer->target.compute_capability) + RESERVED) / (shared_bytes + RESERVED),
                     rows_blocks_of(layer, shape));
}

/* Two buffers of products save a barrier for each row; not where they cost a block. */
int rows_buffers_of(const tconv_layer *layer, int shape, int64_t stage_bytes,
                    const tconv_cuda_products_parameters *made)
{
    return rows_resident_of(layer, shape, rows_shared_bytes_of(layer, shape, stage_bytes, 2, made)) <
                   rows_resident_of(layer, shape, rows_shared_bytes_of(layer, shape, stage_bytes, 1, made))
               ? 1
               : 2;
}

/* Whether the build has the kernel's code for the device: elsewhere it is made for one warp. */
bool has_rows_code(const tconv_layer *layer, int shape)
{
    cudaFuncAttributes attributes;
    device_guard guard;
    if (enter_device(&guard, layer->target.device, NULL) != TCONV_SUCCESS)
        return false;
    const tconv_cuda_products_kernel kernel = tconv_cuda_product_rows_find(
        layer->problem.dtype, layer->target.math == TCONV_MATH_TF32, layer->problem.layout, shape);
    const bool has = cudaFuncGetAttributes(&attributes, (const void *)kernel) == cudaSuccess &&
                     attributes.maxThreadsPerBlock >= TCONV_CUDA_PRODUCT_ROWS_WARPS * 32;
    leave_device(&guard);
    return has;
}

/* Additions that follow one another in an output's sum in strict f32: stages of all its rows, then column taps. */
int64_t rows_additions_of(const tconv_layer *layer)
{
    return tconv_ceil_div(steps_of(&layer->problem), TCONV_CUDA_PRODUCT_ROWS_STEPS) * layer->rows.max_taps +
           layer->columns.max_taps;
}

/* The choice of kernel for a layer that is supported. */
int64_t rows_choice(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t images = problem->batch;
    tconv_cuda_products_parameters made = {};
    if (layer->target.compute_capability != 90 || problem->h.dilation != 1 || problem->h.kernel < problem->h.stride ||
        refusal(layer, &made) != NULL)
        return ANY_KERNEL;
    if (is_strict(layer) && rows_additions_of(layer) > MAX_ADDITIONS)
        return ANY_KERNEL;
    const int64_t together = images_together(problem, &made) * (PIXELS >> made.row_pixels_log2);
    if ((together - images) * MAX_IDLE_SHARE > together)
        return ANY_KERNEL;
    const int shape = tconv_cuda_product_rows_shape_of(problem->h.kernel, problem->h.stride, row_products_of(problem));
    return shape < TCONV_CUDA_PRODUCT_ROWS_SHAPES &&
                   rows_shared_bytes_of(layer, shape, copied_stage_bytes(layer), 1, &made) <=
                       max_shared(layer->target.compute_capability) &&
                   has_rows_code(layer, shape)
               ? shape + 1
               : ANY_KERNEL;
}

bool products_supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tconv_cuda_products_parameters unused = {};
    const char *why = refusal(layer, &unused);
    if (why == NULL) {
        layer->choice = rows_choice(layer);
        why = layer->choice == ANY_KERNEL ? refusal_of_any(layer, &unused) : NULL;
    }
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    return why == NULL;
}

tconv_status products_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    (void)issue; /* so few weights per input channel cannot overflow */
    sizes->packed = layer->choice != ANY_KERNEL
                        ? (size_t)(layer->problem.groups * rows_weights_of(layer, (int)layer->choice - 1))
                        : TCONV_CUDA_PRODUCTS_HEADER + (size_t)(layer->problem.groups * fragments_of(&layer->problem)) *
                                                           TCONV_CUDA_PRODUCTS_FRAGMENT_BYTES;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status products_pack(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                           tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int steps = (int)steps_of(problem);
    return on_device(layer->target.device, issue, [&] {
        return layer->choice == ANY_KERNEL
                   ? tconv_cuda_pack_products(problem, steps, tiles_of(problem), weights, packed, stream, issue)
                   : tconv_cuda_pack_product_rows(problem, layer->target.math == TCONV_MATH_TF32, steps,
                                                  &tconv_cuda_product_rows_shapes[layer->choice - 1], weights, packed,
                                                  stream, issue);
    });
}

/* Cuts so many quotients of rows into strips, so that `places` blocks at a time work off all in a few whole turns and the
 * least time. others: blocks of each strip; step: rows of src at a time. */
void cut_rows(const tconv_problem *problem, int64_t quotients, int64_t places, int64_t others, int64_t step,
              tconv_cuda_products_parameters *made)
{
    int64_t best = INT64_MAX;
    made->row_back = (int)((problem->h.kernel - 1) * problem->h.dilation / problem->h.stride);
    for (int64_t turns = 1; turns <= MAX_TURNS; turns++) {
        const int64_t strips = tconv_min(tconv_max(places * turns / others, 1), quotients);
        const int64_t rows = tconv_ceil_div(quotients, strips);
        const int64_t taken = tconv_ceil_div(others * tconv_ceil_div(quotients, rows), places);
        const int64_t time = taken * tconv_ceil_div(rows + made->row_back, step);
        if (time < best) {
            best = time;
            made->strip_rows = (int)rows;
        }
    }
    made->strips = (int)tconv_ceil_div(quotients, made->strip_rows);
}

/* Completes parameters that refusal began, but for what differs between the kernels. */
void complete(const tconv_layer *layer, const tconv_arguments *arguments, tconv_cuda_products_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const bool nhwc = problem->layout == TCONV_NHWC;
    made->src = arguments->src;
    made->weights = arguments->packed;
    made->bias = arguments->bias;
    made->dst = arguments->dst;
    made->rows = make_small_axis(&problem->h, &layer->rows);
    made->columns = make_small_axis(&problem->w, &layer->columns);
    made->src_strides = problem->src;
    made->dst_strides = problem->dst;
    made->group_in = (int)problem->group_in;
    made->group_out = (int)problem->group_out;
    made->groups = (int)problem->groups;
    made->images = (int)problem->batch;
    made->steps = made->stages = (int)steps_of(problem);
    made->channels_inside = nhwc;
    made->src_aligned = (uintptr_t)arguments->src % ACCESS == 0 && problem->src.n % length == 0 &&
                        problem->src.h % length == 0 && (nhwc ? problem->src.w : problem->src.c) % length == 0 &&
                        (nhwc ? problem->group_in : problem->w.in) % length == 0;
    made->tap_step = made->columns.kernel_step * TCONV_CUDA_PRODUCTS_PITCH - made->columns.shift_step;
}

/* What is launched, with the parameters. */
struct launch_shape {
    const void *kernel;
    int64_t blocks, shared_bytes;
    int threads;
};

launch_shape any_launch(const tconv_layer *layer, int multiprocessors, tconv_cuda_products_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    refusal_of_any(layer, made);
    const int64_t shared_bytes = shared_bytes_of(problem, made);
    const int64_t resident = (max_shared(layer->target.compute_capability) + RESERVED) / (shared_bytes + RESERVED);
    const int64_t others = problem->batch * problem->groups * made->column_tiles;
    cut_rows(problem, row_quotients(&problem->h),
             multiprocessors * tconv_min(resident, TCONV_CUDA_PRODUCTS_BLOCKS(tiles_of(problem))), others,
             PIXELS >> made->row_pixels_log2, made);
    return {(const void *)tconv_cuda_products_find(problem->dtype, layer->target.math == TCONV_MATH_TF32,
                                                   problem->layout, tiles_of(problem)),
            others * made->strips, shared_bytes, TCONV_CUDA_PRODUCTS_WARPS * 32};
}

bool has_dst_runs(const tconv_problem *problem, const void *dst)
{
    const int64_t run = problem->w.stride;
    return (run & (run - 1)) == 0 && problem->dst.w == 1 && tconv_rows_begin_at_multiples(&problem->dst, run) &&
           (uintptr_t)dst % ((uintptr_t)run * problem->element_size) == 0;
}

const void *find_boxes_kernel(const tconv_layer *layer, int shape)
{
    return (const void *)tconv_cuda_product_boxes_find(layer->problem.dtype, layer->target.math == TCONV_MATH_TF32,
                                                       shape);
}

/* Describes src and a stage's boxes to the copy engine, and sets how many there are; 0 where it cannot read src as it lies, or
 * boxes would reach into the channels of the next group or take too much memory. */
void find_boxes(const tconv_layer *layer, int shape, tconv_cuda_products_parameters *made, CUtensorMap *map)
{
    const tconv_problem *problem = &layer->problem;
    constexpr int64_t WIDTH = 128; /* bytes, the most that are swizzled */
    const int64_t element = (int64_t)problem->element_size;
    const int64_t channels = TCONV_CUDA_PRODUCT_ROWS_STEPS * TCONV_CUDA_PRODUCTS_STEP_BYTES / element;
    const int64_t pixels = tconv_min(WIDTH / element, (int64_t)1 << made->row_pixels_log2);
    made->boxes = 0;
    if (problem->layout != TCONV_NCHW || find_boxes_kernel(layer, shape) == NULL ||
        (problem->groups > 1 && problem->group_in % channels != 0) ||
        rows_shared_bytes_of(layer, shape, BOXES_STAGE_BYTES, 1, made) > max_shared(layer->target.compute_capability))
        return;
    /* From a row to the next: where there is but one, a number that the copy engine takes. */
    const int64_t row = problem->h.in > 1 ? problem->src.h : problem->src.c;
    tensor_map_recipe boxes = {
        problem->dtype,
        pixels * element == WIDTH ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
        made->src,
        {(cuuint64_t)problem->w.in, (cuuint64_t)problem->h.in, (cuuint64_t)problem->in_channels,
         (cuuint64_t)problem->batch},
        {(cuuint64_t)(row * element), (cuuint64_t)(problem->src.c * element), (cuuint64_t)(problem->src.n * element)},
        {(cuuint32_t)pixels, 1, (cuuint32_t)channels, 1}};
    boxes.rounds = problem->dtype == TCONV_F32 && !is_strict(layer);
    if (problem->src.w == 1 && encode_tensor_map(&boxes, map))
        made->boxes = (int)(PIXELS / pixels);
}

/* How the products of a run of `stride` columns lie, of which the first is at a multiple of it in dst. */
void find_run(const tconv_problem *problem, int64_t taps, tconv_cuda_products_parameters *made)
{
    const int64_t stride = problem->w.stride;
    made->run_ends = 0;
    for (int64_t j = 0; j < stride; j++) {
        const int64_t ahead = problem->w.pad % stride + j, residue = ahead % stride;
        made->run_taps[j] = (int)(residue * TCONV_CUDA_PRODUCT_ROWS_PITCH + ahead / stride);
        made->run_ends |= (residue + (taps - 1) * stride < problem->w.kernel ? 1u : 0u) << j;
    }
}

launch_shape rows_launch(const tconv_layer *layer, int multiprocessors, tconv_cuda_products_parameters *made,
                         CUtensorMap *map)
{
    const tconv_problem *problem = &layer->problem;
    const int shape = (int)layer->choice - 1;
    const int64_t others = images_together(problem, made) * problem->groups * made->column_tiles;
    find_boxes(layer, shape, made, map);
    const bool boxes = made->boxes > 0;
    const int64_t stage_bytes = boxes ? BOXES_STAGE_BYTES : copied_stage_bytes(layer);
    made->stages = (int)tconv_ceil_div(made->steps, TCONV_CUDA_PRODUCT_ROWS_STEPS);
    made->gather = rows_gather_of(layer, shape);
    made->tap_step = made->columns.kernel_step * TCONV_CUDA_PRODUCT_ROWS_PITCH - made->columns.shift_step;
    made->dst_runs = has_dst_runs(problem, made->dst);
    if (gathers_runs(layer, shape))
        find_run(problem, TCONV_CUDA_PRODUCT_RUN_TAPS(made->gather), made);
    made->products =
        (int)tconv_cuda_product_rows_products(shape, problem->h.kernel, problem->h.stride, row_products_of(problem));
    made->buffers = rows_buffers_of(layer, shape, stage_bytes, made);
    const int64_t shared_bytes = rows_shared_bytes_of(layer, shape, stage_bytes, made->buffers, made);
    /* Quotients beyond src are only stored: the last strip takes them too. */
    const int64_t quotients = tconv_min(problem->h.in - problem->h.pad / problem->h.stride, row_quotients(&problem->h));
    cut_rows(problem, tconv_max(quotients, 1), multiprocessors * rows_resident_of(layer, shape, shared_bytes), others,
             1, made);
    return {boxes ? find_boxes_kernel(layer, shape)
                  : (const void *)tconv_cuda_product_rows_find(problem->dtype, layer->target.math == TCONV_MATH_TF32,
                                                               problem->layout, shape),
            others * made->strips, shared_bytes, (TCONV_CUDA_PRODUCT_ROWS_WARPS + (boxes ? 1 : 0)) * 32};
}

tconv_status launch(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_cuda_products_parameters parameters = {};
    CUtensorMap map = {};
    void *kernel_arguments[] = {&parameters, &map};
    int multiprocessors = 0;
    refusal(layer, &parameters);
    tconv_status status =
        check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, layer->target.device),
                   "cudaDeviceGetAttribute", issue);
    if (status != TCONV_SUCCESS)
        return status;
    complete(layer, arguments, &parameters);
    const launch_shape made = layer->choice == ANY_KERNEL ? any_launch(layer, multiprocessors, &parameters)
                                                          : rows_launch(layer, multiprocessors, &parameters, &map);

    status = allow_shared(made.kernel, max_shared(layer->target.compute_capability), issue);
    if (status != TCONV_SUCCESS)
        return status;
    const launch_grid grid = {made.kernel, made.blocks, (int)made.threads, made.shared_bytes, arguments->packs};
    return launch_kernel(&grid, kernel_arguments, arguments->stream, issue);
}

tconv_status products_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    return on_device(layer->target.device, issue, [&] { return launch(layer, arguments, issue); });
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_col2im = {"cuda_col2im",
                                                           TCONV_BACKEND_CUDA,
                                                           TCONV_DTYPES_TO_F32,
                                                           products_supports,
                                                           products_memory,
                                                           products_pack,
                                                           products_execute,
                                                           NULL,
                                                           NULL,
                                                           0};

} // namespace tconv::col2im
