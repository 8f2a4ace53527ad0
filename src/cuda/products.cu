/*
 * The products algorithm on CUDA: layers with few output channels and many input channels per group, on tensor cores. Each
 * pixel of src is multiplied once with all weights of its group, and the outputs are gathered from the products
 * (products_kernel.cu): src is read about once, in any phase, and dst is written once. f32 (strict by 3xTF32, or TF32),
 * f16 and bf16; strides up to 16, up to 88 weights per input channel; any padding, dilation, slice and alignment.
 *
 * Numeric order: see the kernel; it depends on the layer alone.
 */
#include "products.h"

#include <cstdio>
#include <cuda_runtime_api.h>

#include "../core/checked.h"
#include "../core/status.h"
#include "guard.h"
#include "products_kernels.h"

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

const char *refusal(const tconv_layer *layer, tconv_cuda_products_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    if (problem->dtype == TCONV_F64)
        return "f64";
    if (problem->group_in < MIN_IN || problem->group_out > MAX_OUT)
        return "fewer than 16 input or more than 4 output channels per group";
    if (!tconv_cuda_is_small_axis(&problem->h) || !tconv_cuda_is_small_axis(&problem->w))
        return "a stride above 16, or an extent too large for 32-bit coordinates";
    if (problem->h.kernel * problem->w.kernel > TCONV_CUDA_PRODUCTS_MAX_TILES * TILE ||
        products_of(problem) > TCONV_CUDA_PRODUCTS_MAX_TILES * TILE)
        return "more than 88 weights per input channel";
    if (problem->dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32 && additions_of(layer) > MAX_ADDITIONS)
        return "strict f32 sums of more than 48 segments of 64 channels, rows and columns of taps";
    if (problem->h.in * problem->w.in < MIN_PIXELS || problem->w.in < MIN_COLUMNS)
        return "fewer than 64 pixels, or 8 columns";
    if (problem->w.in * problem->w.stride >= TCONV_CUDA_SMALL_EXTENT)
        return "rows too long for 32-bit coordinates";
    if (problem->in_channels >= TCONV_CUDA_SMALL_EXTENT)
        return "too many channels for 32-bit numbers";
    if (!cut_columns(problem, made))
        return "columns of outputs reach back too far";
    if (problem->batch * problem->groups > INT32_MAX / row_quotients(&problem->h) / made->column_tiles)
        return "too many images for 32-bit numbers of tiles";
    /* Of a row's outputs, those of `stride` rows are complete and the others wait. */
    const int64_t rows = tconv_max((problem->h.kernel - 1) * problem->h.dilation + 1 - problem->h.stride, 1);
    made->gather = gather_of(problem);
    if (rows * made->sum_columns * problem->group_out >= TCONV_CUDA_SMALL_EXTENT)
        return "sums too many for shared memory";
    made->sum_rows = (int)rows;
    return shared_bytes_of(problem, made) > max_shared(layer->target.compute_capability)
               ? "weights or sums too many for shared memory"
               : NULL;
}

bool products_supports(const tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tconv_cuda_products_parameters unused = {};
    const char *why = refusal(layer, &unused);
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    return why == NULL;
}

tconv_status products_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    (void)issue; /* at most 88 weights per input channel cannot overflow */
    sizes->packed = TCONV_CUDA_PRODUCTS_HEADER + (size_t)(layer->problem.groups * fragments_of(&layer->problem)) *
                                                     TCONV_CUDA_PRODUCTS_FRAGMENT_BYTES;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status products_pack(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                           tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cuda_guard guard;
    tconv_status status = tconv_cuda_enter(&guard, layer->target.device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status =
        tconv_cuda_pack_products(problem, (int)steps_of(problem), tiles_of(problem), weights, packed, stream, issue);
    tconv_cuda_leave(&guard);
    return status;
}

/* Cuts the rows into strips, so that the multiprocessors work off all blocks in a few whole turns and the least time. */
void cut_rows(const tconv_layer *layer, int multiprocessors, tconv_cuda_products_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t blocks =
        (max_shared(layer->target.compute_capability) + RESERVED) / (shared_bytes_of(problem, made) + RESERVED);
    const int64_t quotients = row_quotients(&problem->h), step = PIXELS >> made->row_pixels_log2;
    const int64_t others = problem->batch * problem->groups * made->column_tiles;
    const int64_t places = multiprocessors * tconv_min(blocks, TCONV_CUDA_PRODUCTS_BLOCKS(tiles_of(problem)));
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

/* Completes parameters that refusal began. */
void complete(const tconv_layer *layer, const tconv_arguments *arguments, int multiprocessors,
              tconv_cuda_products_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const bool nhwc = problem->layout == TCONV_NHWC;
    made->src = arguments->src;
    made->weights = arguments->packed;
    made->bias = arguments->bias;
    made->dst = arguments->dst;
    made->rows = tconv_cuda_make_small_axis(&problem->h, &layer->rows);
    made->columns = tconv_cuda_make_small_axis(&problem->w, &layer->columns);
    made->src_strides = problem->src;
    made->dst_strides = problem->dst;
    made->group_in = (int)problem->group_in;
    made->group_out = (int)problem->group_out;
    made->groups = (int)problem->groups;
    made->steps = (int)steps_of(problem);
    made->channels_inside = nhwc;
    made->src_aligned = (uintptr_t)arguments->src % ACCESS == 0 && problem->src.n % length == 0 &&
                        problem->src.h % length == 0 && (nhwc ? problem->src.w : problem->src.c) % length == 0 &&
                        (nhwc ? problem->group_in : problem->w.in) % length == 0;
    made->tap_step = made->columns.kernel_step * TCONV_CUDA_PRODUCTS_PITCH - made->columns.shift_step;
    cut_rows(layer, multiprocessors, made);
}

tconv_status launch(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cuda_products_parameters parameters = {};
    void *kernel_arguments[] = {&parameters};
    int multiprocessors = 0;
    refusal(layer, &parameters);
    tconv_status status =
        tconv_cuda_check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, layer->target.device),
                         "cudaDeviceGetAttribute", issue);
    if (status != TCONV_SUCCESS)
        return status;
    complete(layer, arguments, multiprocessors, &parameters);

    const void *kernel = (const void *)tconv_cuda_products_find(problem->dtype, layer->target.math == TCONV_MATH_TF32,
                                                                problem->layout, tiles_of(problem));
    /* The same limit for all layers, so that threads that launch the same kernel do not lower each other's. */
    status = tconv_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   (int)max_shared(layer->target.compute_capability)),
                              "cudaFuncSetAttribute", issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t blocks = problem->batch * problem->groups * parameters.strips * parameters.column_tiles;
    return tconv_cuda_check(cudaLaunchKernel(kernel, dim3((unsigned)blocks), dim3(TCONV_CUDA_PRODUCTS_WARPS * 32),
                                             kernel_arguments, (size_t)shared_bytes_of(problem, &parameters),
                                             (cudaStream_t)arguments->stream),
                            "cudaLaunchKernel", issue);
}

tconv_status products_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_cuda_guard guard;
    tconv_status status = tconv_cuda_enter(&guard, layer->target.device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = launch(layer, arguments, issue);
    tconv_cuda_leave(&guard);
    return status;
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_products = {
    "cuda_products", TCONV_BACKEND_CUDA, products_supports, products_memory, products_pack, products_execute, NULL};
