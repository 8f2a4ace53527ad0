/* The plan of the kernel for any device, and the cut into tiles and strips that all kernels share. */
#include "plan.h"

#include "../../core/checked.h"
#include "../maps/small_axis.h"
#include "../model/planned.h"

namespace tconv::col2im
{

namespace
{

constexpr int64_t MAX_WAVES = 8;  /* of blocks, that are tried: with more, the last one is a small part of all */
constexpr int64_t MIN_IN = 16;    /* channels: fewer leave an MMA's K half empty and too little to do for each output */
constexpr int64_t MAX_OUT = 4;    /* channels: with more an ordinary GEMM is as good */
constexpr int64_t MAX_TAPS = 256; /* no kernel has more N */

/* Fewer pixels of an image, or of a row, leave most of a block tile empty. */
constexpr int64_t MIN_PIXELS = 64;
constexpr int64_t MIN_COLUMNS = 8;

constexpr int N_TILES[] = {2, 4, 6, 8, MAX_N_TILES}; /* of the kernels that there are */

int64_t gemm_n_of(const tconv_problem *problem)
{
    return problem->group_out * problem->h.kernel * problem->w.kernel;
}

/* N tiles of the kernel for any device. */
int n_tiles_of(const tconv_problem *problem)
{
    size_t i = 0;
    while (N_TILES[i] * (int64_t)TILE_N < gemm_n_of(problem))
        i++;
    return N_TILES[i];
}

int64_t fragments_of(const tconv_problem *problem)
{
    return steps_of(problem) * n_tiles_of(problem) * 32;
}

/* The way of gathering that the layer can take. */
int gather_of(const tconv_problem *problem)
{
    static const struct {
        int64_t kernel, stride;
        int gather;
    } unrolled[] = {{3, 1, GATHER_3_BY_1}, {3, 2, GATHER_3_BY_2}, {4, 2, GATHER_4_BY_2}, {9, 4, GATHER_9_BY_4}};
    const tconv_axis *h = &problem->h, *w = &problem->w;
    if (h->dilation != 1 || w->dilation != 1 || h->stride != w->stride || h->kernel != w->kernel)
        return GATHER_ANY;
    for (size_t i = 0; i < sizeof unrolled / sizeof unrolled[0]; i++)
        if (h->kernel == unrolled[i].kernel && h->stride == unrolled[i].stride)
            return unrolled[i].gather;
    return GATHER_ANY;
}

/* Additions that follow one another in an output's sum: of segments, then of taps, which are added row by row, each by
 * itself, or all one after another. */
int64_t additions_of(const tconv_layer *layer)
{
    const int64_t rows = layer->rows.max_taps, columns = layer->columns.max_taps;
    return tconv_ceil_div(steps_of(&layer->problem), SEGMENT) +
           (gather_of(&layer->problem) == GATHER_ANY ? rows + columns : rows * columns);
}

/* Fills in how columns are cut into tiles. Returns false where outputs reach back over nearly a whole tile. */
bool cut_columns(const tconv_problem *problem, parameters *made)
{
    const tconv_axis *w = &problem->w;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const int64_t back = (w->kernel - 1) * w->dilation / w->stride;
    int log2 = 5;
    while (1 << log2 < BLOCK_M && 1 << log2 < w->in)
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

int64_t shared_bytes_of(const tconv_problem *problem, const parameters *made)
{
    const int64_t weights = fragments_of(problem) * FRAGMENT_BYTES;
    const int64_t stages = (int64_t)STAGE_BYTES * STAGES * WARPS;
    const int64_t column_buffer = n_tiles_of(problem) * (int64_t)TILE_N * PITCH;
    const int64_t sums = (int64_t)made->sum_rows * made->sum_columns * problem->group_out;
    const int64_t columns = made->sum_columns * 2; /* taps of each: two numbers */
    return weights + stages + (column_buffer + columns + sums + problem->group_out) * (int64_t)sizeof(float);
}

} // namespace

int64_t steps_of(const tconv_problem *problem)
{
    return tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, MMA_K_BYTES);
}

int64_t row_quotients(const tconv_axis *h)
{
    return (h->pad + h->out - 1) / h->stride + 1 - h->pad / h->stride;
}

const char *refusal(const tconv_layer *layer, parameters *made)
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

void cut_rows(const tconv_problem *problem, const row_cut *cut, int64_t places, parameters *made)
{
    int64_t best = INT64_MAX;
    made->row_back = (int)((problem->h.kernel - 1) * problem->h.dilation / problem->h.stride);
    for (int64_t waves = 1; waves <= MAX_WAVES; waves++) {
        const int64_t strips = tconv_min(tconv_max(places * waves / cut->others, 1), cut->quotients);
        const int64_t rows = tconv_ceil_div(cut->quotients, strips);
        const int64_t taken = tconv_ceil_div(cut->others * tconv_ceil_div(cut->quotients, rows), places);
        const int64_t time = taken * tconv_ceil_div(rows + made->row_back, cut->step);
        if (time < best) {
            best = time;
            made->strip_rows = (int)rows;
        }
    }
    made->strips = (int)tconv_ceil_div(cut->quotients, made->strip_rows);
}

const char *plan_mma(const tconv_layer *layer, const parameters *begun, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    if (gemm_n_of(problem) > MAX_N_TILES * TILE_N)
        return "more than 88 weights per input channel";
    if (model::is_strict(layer) && additions_of(layer) > MAX_ADDITIONS)
        return "strict f32 sums of more than 48 segments of 64 channels, rows and columns of taps";
    /* A row of src completes `stride` rows of its outputs, and the others wait. */
    const int64_t rows = tconv_max((problem->h.kernel - 1) * problem->h.dilation + 1 - problem->h.stride, 1);
    if (rows * begun->sum_columns * problem->group_out >= SMALL_AXIS_EXTENT)
        return "sums too many for shared memory";
    planned_launch *launch = &made->any_src;
    launch->parameters = *begun;
    launch->parameters.gather = gather_of(problem);
    launch->parameters.sum_rows = (int)rows;
    launch->shared_bytes = shared_bytes_of(problem, &launch->parameters);
    if (launch->shared_bytes > layer->target.shared_bytes)
        return "weights or sums too many for shared memory";
    const int64_t resident = (layer->target.shared_bytes + RESERVED) / (launch->shared_bytes + RESERVED);
    made->config = MMA_KERNEL;
    made->n_tiles = n_tiles_of(problem);
    made->cut = {row_quotients(&problem->h), tconv_max(problem->batch * problem->groups * begun->column_tiles, 1),
                 BLOCK_M >> begun->row_pixels_log2};
    cut_rows(problem, &made->cut, layer->target.multiprocessors * tconv_min(resident, blocks_of(made->n_tiles)),
             &launch->parameters);
    launch->kernel =
        (const void *)mma_kernel(problem->dtype, layer->target.math == TCONV_MATH_TF32, problem->layout, made->n_tiles);
    launch->blocks = made->cut.others * launch->parameters.strips;
    launch->threads = WARPS * 32;
    return NULL;
}

int64_t mma_packed_bytes(const tconv_problem *problem)
{
    return HEADER_BYTES + problem->groups * fragments_of(problem) * FRAGMENT_BYTES;
}

} // namespace tconv::col2im
