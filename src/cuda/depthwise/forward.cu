/*
 * The stencil on CUDA serves layers with one input channel per group (depthwise, with or without a multiplier), which
 * are bound by bandwidth. All phases of a stretch of dst are computed together, from a tile of src in shared memory
 * (NCHW, planes.cu; NHWC, pixels.cu) or from the caches (NHWC), so that dst is written in whole runs,
 * outputs without taps included, and src is read about once. It takes any dtype, padding, slice and alignment, and
 * strides up to 16.
 *
 * NCHW reads the weights of a block's channel where they lie, and packs none in a call.
 *
 * The numeric order is that of walk.cuh, or strip.cuh; it depends on the layer alone.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../general/fill.h"
#include "../implementations.h"
#include "../maps/small_axis.h"
#include "../model/planned.h"
#include "../numeric/compensated.cuh"
#include "../numeric/divisor.h"
#include "../runtime/launch.h"
#include "forward_plan.h"

#include <cstdio>
#include <cuda_runtime_api.h>
#include <utility>

namespace tconv::depthwise::forward
{

namespace
{

constexpr int64_t ACCESS = 16;            /* bytes of a vector, which a thread loads or stores at once */
constexpr int64_t MAX_SHARED = 48 * 1024; /* bytes of shared memory that a kernel may have without asking */
constexpr int64_t MAX_KERNEL = 512;       /* taps, which are summed one by one: with more, arithmetic is the bound */

constexpr int MIN_LANES = 8; /* threads along a row: one store of 128 bytes */

/* A thread walks down many rows, so that setting up is small beside them, as long as there are enough blocks to fill a
 * large GPU several times over. */
constexpr int64_t MAX_WALK = 16;              /* quotients */
constexpr int64_t MIN_WALK = 4;               /* quotients */
constexpr int64_t MAX_RUNS = 4;               /* vectors of columns of a thread, which make strips */
constexpr int64_t ENOUGH_PLANE_BLOCKS = 2048; /* NCHW */
constexpr int64_t ENOUGH_PIXEL_BLOCKS = 1024; /* NHWC */

/* NHWC: fewer rows of a tile are read by threads themselves as fast as through shared memory. */
constexpr int64_t MIN_TILE_ROWS = 8;

/* NHWC: a block's channels fill a memory transaction of 128 bytes; the rest of it are columns, which share what they
 * load. */
constexpr int64_t CHANNEL_VECTORS = 8;  /* vectors of 16 bytes */
constexpr int64_t SINGLE_CHANNELS = 32; /* elements: 128 bytes of f32 */

/* Smaller planes leave most threads of a block without work, and those of cuda_general take pixels of many images. */
constexpr int64_t MIN_PLANE = 64;

int64_t access_of(const tconv_problem *problem)
{
    return ACCESS / (int64_t)problem->element_size;
}

int taps_of(const tconv_layer *layer)
{
    return (int)tconv_max(tconv_max(layer->rows.max_taps, layer->columns.max_taps), 1);
}

/* Says whether taps are more than a row apart, so that a walk cannot pass a row's values on to the next. */
bool rows_apart(const tconv_layer *layer)
{
    return layer->rows.max_taps > 1 && layer->rows.shift_step != 1;
}

/* Says whether taps are summed in a loop: more than registers have room for, or rows apart. */
bool loops(const tconv_layer *layer)
{
    return taps_of(layer) > MAX_TAPS || rows_apart(layer);
}

/* Says whether a sum has more terms than a segment of f32 may have. */
bool is_long(const tconv_layer *layer)
{
    return layer->problem.dtype != TCONV_F64 && layer->rows.max_taps * layer->columns.max_taps > SEGMENT_TERMS;
}

int64_t quotients_of(const tconv_axis *axis)
{
    return tconv_ceil_div(axis->out, axis->stride);
}

/* Cuts the rows into tiles of `parts` walks of at least `least` rows. blocks: those that tiles of all rows would need,
 * of which `enough` are wanted. */
void cut_rows(tile_shape *tile, const tconv_axis *rows, int64_t parts, int64_t least, int64_t blocks, int64_t enough)
{
    const int64_t quotients = quotients_of(rows);
    int64_t walk = MAX_WALK;
    while (walk > least && blocks * tconv_ceil_div(quotients, walk * parts) < enough)
        walk /= 2;
    tile->row_tiles = divisor_of((int)tconv_ceil_div(quotients, walk * parts));
    tile->rows = (int)tconv_ceil_div(quotients, tile->row_tiles.divisor);
    tile->part_rows = (int)tconv_ceil_div(tile->rows, tconv_min(parts, tile->rows));
    tile->parts = (int)tconv_ceil_div(tile->rows, tile->part_rows);
}

/* The tile of a plane; *shared_bytes may be more than there is. */
tile_shape plane_tile(const tconv_layer *layer, int64_t *shared_bytes)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = access_of(problem), reach = layer->columns.max_shift - layer->columns.min_shift;
    tile_shape made = {};
    made.lanes_log2 = log2_at_least(tconv_max(MIN_LANES, tconv_min(tconv_ceil_div(problem->w.out, length), THREADS)));
    int64_t least = MIN_WALK;
    made.columns = (int)length << made.lanes_log2;
    if (loops(layer)) { /* a thread's columns are of one phase; where they make strips, it has more of them */
        const int64_t lanes = tconv_max((int64_t)1 << made.lanes_log2, SMALL_AXIS_STRIDE);
        made.lanes_log2 = log2_at_least(lanes);
        made.column_step = (int)(lanes / problem->w.stride * problem->w.stride);
        made.columns = (int)(length * made.column_step);
        if (quotients_of(&problem->h) < LEAST_OF_STRIP)
            made.columns *= (int)tconv_min(MAX_RUNS, tconv_ceil_div(problem->w.out, made.columns));
        else
            least = STRIP;
    }
    const int64_t tile_columns = made.columns;
    const int64_t lines = THREADS >> made.lanes_log2; /* threads along a column */
    made.column_tiles = divisor_of((int)tconv_ceil_div(problem->w.out, tile_columns));
    cut_rows(&made, &problem->h, tconv_ceil_div(lines, problem->h.stride), least,
             problem->batch * problem->out_channels * made.column_tiles.divisor, ENOUGH_PLANE_BLOCKS);

    /* Quotients of the tile's columns, the halo, and up to an access less one before them. */
    const int64_t src_columns = (tile_columns - 1) / problem->w.stride + 2 + reach + length - 1;
    made.row_vectors = (int)tconv_ceil_div(src_columns, length);
    made.pitch = (int)((made.row_vectors + 1) * length);
    made.load_rows = made.rows + (int)(layer->rows.max_shift - layer->rows.min_shift);
    made.load_lanes = divisor_of((int)tconv_min(made.row_vectors, THREADS));
    const int64_t compute_size = problem->dtype == TCONV_F64 ? 8 : 4;
    *shared_bytes = (int64_t)made.load_rows * made.pitch * (int64_t)problem->element_size +
                    (problem->h.kernel * problem->w.kernel + 1) * compute_size;
    return made;
}

/* Completes a tile of pixels whose src is copied to shared memory, of fewer rows where it is too large. Returns false
 * where too few would be left. */
bool fit_pixel_tile(const tconv_layer *layer, tile_shape *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t parts = made->channel_vectors;
    const int64_t vectors = parts * tile_length(problem->element_size, taps_of(layer)) / access_of(problem);
    const int64_t quotients = tconv_ceil_div(problem->h.out, problem->h.stride);
    /* A block may begin and end in the middle of a column, and its columns of src in the middle of a quotient; one more
     * column is zeros. */
    const int64_t whole = THREADS / parts;
    const int64_t columns = tconv_min(THREADS % parts == 0 ? whole : whole + 2, problem->w.out);
    const int64_t src_columns =
        (columns + problem->w.stride - 2) / problem->w.stride + 2 + layer->columns.max_shift - layer->columns.min_shift;
    const int64_t reach = layer->rows.max_shift - layer->rows.min_shift;
    if (src_columns >= MAX_SHARED || reach >= MAX_SHARED)
        return false;
    const int64_t rows = MAX_SHARED / (src_columns * vectors * ACCESS) - reach;
    if (rows < 1)
        return false;
    made->row_tiles = divisor_of((int)tconv_max(made->row_tiles.divisor, tconv_ceil_div(quotients, rows)));
    made->rows = (int)tconv_ceil_div(quotients, made->row_tiles.divisor);
    if (made->rows < MIN_TILE_ROWS)
        return false;
    made->load_rows = made->rows + (int)reach;
    made->load_lanes = divisor_of((int)vectors);
    made->row_vectors = (int)(src_columns * vectors);
    made->pitch = (int)(made->row_vectors * access_of(problem));
    return true;
}

/* The tile of pixels, for that way of a thread's channels and columns. */
tile_shape pixel_tile(const tconv_layer *layer, int way)
{
    const tconv_problem *problem = &layer->problem;
    const bool vectors = way == PIXEL_VECTORS || way == PIXEL_TILE;
    const int64_t all = vectors ? problem->out_channels / access_of(problem) : problem->out_channels;
    tile_shape made = {};
    if (way == PIXEL_RUNS) {
        made.channel_tiles = 1;
        made.channel_vectors = (int)(problem->w.out * problem->out_channels / PIXEL_RUN);
        made.column_tiles = divisor_of((int)tconv_ceil_div(made.channel_vectors, THREADS));
    } else {
        made.channel_tiles = (int)tconv_ceil_div(all, vectors ? CHANNEL_VECTORS : SINGLE_CHANNELS);
        made.channel_vectors = (int)tconv_ceil_div(all, made.channel_tiles);
        if (way == PIXEL_TILE)
            made.channel_vectors *= (int)access_of(problem) / tile_length(problem->element_size, taps_of(layer));
        made.column_tiles = divisor_of((int)tconv_ceil_div(problem->w.out * made.channel_vectors, THREADS));
    }
    cut_rows(&made, &problem->h, 1, way >= PIXEL_LOOP ? STRIP : MIN_WALK,
             problem->batch * made.channel_tiles * made.column_tiles.divisor, ENOUGH_PIXEL_BLOCKS);
    return made;
}

/* The way of finding columns that the layer allows, for `vectors` as planes_kernel has it. */
int columns_of(const tconv_layer *layer, int taps, bool vectors)
{
    const tconv_axis *w = &layer->problem.w;
    if (is_long(layer))
        return COLUMNS_LONG_LOOP;
    if (loops(layer))
        return COLUMNS_LOOP;
    if (!vectors || w->dilation != 1 || w->kernel != taps * w->stride)
        return COLUMNS_TABLE;
    const int64_t length = access_of(&layer->problem);
    if (taps == 3 && w->stride == 1)
        return COLUMNS_WINDOW_1;
    if (taps != 2 || w->stride == 1)
        return COLUMNS_TABLE;
    if (w->stride == 2)
        return w->pad % 2 == 0 ? COLUMNS_WINDOW_2_EVEN : COLUMNS_WINDOW_2_ODD;
    if (w->stride % length == 0 && w->pad % length == 0)
        return COLUMNS_SHARED;
    return w->stride == length && w->pad % length == length / 2 ? COLUMNS_WINDOW_HALF : COLUMNS_TABLE;
}

/* The reason why the layer is not taken, NULL where it is or where a plane may be too large for shared memory. */
const char *refusal(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    if (problem->group_in != 1)
        return "more than one input channel per group";
    if (problem->out_channels >= SMALL_AXIS_EXTENT)
        return "too many channels for 32-bit numbers";
    if (!tconv_cuda_is_small_axis(&problem->h) || !tconv_cuda_is_small_axis(&problem->w))
        return "a stride above 16, or an extent too large for 32-bit coordinates";
    if (problem->h.kernel * problem->w.kernel > MAX_KERNEL)
        return "more than 512 taps";
    if (problem->h.out * problem->w.out < MIN_PLANE)
        return "fewer than 64 outputs in a plane";
    /* Tiles of planes, and of images of as many rows, hold a quarter of MIN_PLANE outputs on average. */
    if (problem->dst_extent / (MIN_PLANE / 4) >= INT32_MAX)
        return "too many outputs for 32-bit numbers of tiles";
    if (problem->layout == TCONV_NHWC) {
        if (tconv_max(problem->h.out, problem->w.out) * SINGLE_CHANNELS >= INT32_MAX ||
            (!loops(layer) && problem->src.w * MAX_TAPS * layer->columns.shift_step >= SMALL_AXIS_EXTENT))
            return "rows too long for 32-bit offsets";
    }
    return NULL;
}

/* Adds the variants for planes. Returns the reason why they do not take the layer, else NULL. */
const char *plan_planes(const tconv_layer *layer, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = access_of(problem);
    variant planes = {};
    planes.tile = plane_tile(layer, &planes.shared_bytes);
    if (planes.shared_bytes > MAX_SHARED)
        return "dilation or kernel too large for a tile in shared memory";
    planes.blocks =
        problem->batch * problem->out_channels * planes.tile.row_tiles.divisor * planes.tile.column_tiles.divisor;
    planes.src_multiple = 1;
    made->src_vectors = problem->w.in % length == 0 && tconv_cuda_begins_at_multiples(problem, &problem->src, length);
    for (const bool vectors : {true, false}) {
        if (vectors &&
            (problem->w.out % length != 0 || !tconv_cuda_begins_at_multiples(problem, &problem->dst, length)))
            continue;
        planes.dst_multiple = vectors ? ACCESS : 1;
        planes.way = columns_of(layer, made->taps, vectors);
        planes.kernel = planes_kernel(problem->dtype, planes.way, made->taps, vectors);
        made->by_address[made->variants++] = planes;
    }
    return NULL;
}

/* NHWC: says whether the rows of dst are runs of memory that can be cut into aligned runs of a thread without rest. */
bool has_runs(const tconv_problem *problem)
{
    return problem->dtype != TCONV_F64 && problem->dst.c == 1 && problem->dst.w == problem->out_channels &&
           problem->w.out * problem->out_channels % PIXEL_RUN == 0 && problem->dst.h % PIXEL_RUN == 0 &&
           problem->dst.n % PIXEL_RUN == 0 && problem->w.out * problem->out_channels < SMALL_AXIS_EXTENT &&
           problem->h.kernel * problem->w.kernel * problem->out_channels < SMALL_AXIS_EXTENT &&
           problem->w.in * problem->src.w < SMALL_AXIS_EXTENT;
}

/* Adds the variant for pixels of that way. */
void add_pixels(const tconv_layer *layer, int way, uintptr_t src_multiple, uintptr_t dst_multiple, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    variant *pixels = &made->by_address[made->variants++];
    tile_shape *tile = &pixels->tile;
    *tile = pixel_tile(layer, way);
    if (way == PIXEL_TILE && !fit_pixel_tile(layer, tile)) {
        way = PIXEL_VECTORS;
        *tile = pixel_tile(layer, way);
    }
    pixels->kernel = pixels_kernel(problem->dtype, made->taps, way);
    pixels->blocks = problem->batch * tile->row_tiles.divisor * tile->column_tiles.divisor * tile->channel_tiles;
    pixels->shared_bytes = way == PIXEL_TILE ? tile->load_rows * (int64_t)tile->row_vectors * ACCESS : 0;
    pixels->src_multiple = src_multiple;
    pixels->dst_multiple = dst_multiple;
    pixels->way = way;
}

/* Adds the variants for pixels, which always fit. */
void plan_pixels(const tconv_layer *layer, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = access_of(problem);
    if (problem->group_out == 1 && problem->out_channels % length == 0 &&
        tconv_cuda_begins_at_multiples(problem, &problem->src, length) &&
        tconv_cuda_begins_at_multiples(problem, &problem->dst, length))
        add_pixels(layer, PIXEL_TILE, ACCESS, ACCESS, made);
    if (has_runs(problem))
        add_pixels(layer, PIXEL_RUNS, 1, PIXEL_RUN * problem->element_size, made);
    add_pixels(layer, PIXEL_SINGLE, 1, 1, made);
}

void fill_parameters(const tconv_layer *layer, parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    made->rows = tconv_cuda_make_small_axis(&problem->h, &layer->rows);
    made->columns = tconv_cuda_make_small_axis(&problem->w, &layer->columns);
    made->src_strides = problem->src;
    made->dst_strides = problem->dst;
    made->row_stride = divisor_of(made->rows.stride);
    made->column_stride = divisor_of(made->columns.stride);
    made->weight_column = problem->out_channels;
    made->weight_row = problem->w.kernel * problem->out_channels;
    made->channels = divisor_of((int)problem->out_channels);
    made->multiplier = divisor_of((int)problem->group_out);
}

/* NHWC: the layer whose rows are its columns. */
tconv_layer turn(const tconv_layer *layer)
{
    tconv_layer turned = *layer;
    std::swap(turned.problem.h, turned.problem.w);
    std::swap(turned.problem.src.h, turned.problem.src.w);
    std::swap(turned.problem.dst.h, turned.problem.dst.w);
    std::swap(turned.rows, turned.columns);
    return turned;
}

/* Plans pixels of any number of taps, with strips along the longer axis. */
void plan_pixel_loop(const tconv_layer *layer, plan *made)
{
    const bool turns = quotients_of(&layer->problem.h) < quotients_of(&layer->problem.w);
    const tconv_layer turned = turn(layer), *planned = turns ? &turned : layer;
    add_pixels(planned, is_long(layer) ? PIXEL_LONG_LOOP : PIXEL_LOOP, 1, 1, made);
    fill_parameters(planned, &made->parameters);
    made->parameters.weight_row = (turns ? 1 : layer->problem.w.kernel) * layer->problem.out_channels;
    made->parameters.weight_column = (turns ? layer->problem.w.kernel : 1) * layer->problem.out_channels;
}

tconv_status plan_layer(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    plan *made = static_cast<plan *>(to);
    const char *why = refusal(layer);
    made->taps = taps_of(layer);
    if (why == NULL)
        fill_parameters(layer, &made->parameters);
    if (why == NULL && problem->layout == TCONV_NHWC && loops(layer))
        plan_pixel_loop(layer, made);
    else if (why == NULL && problem->layout == TCONV_NHWC)
        plan_pixels(layer, made);
    else if (why == NULL)
        why = plan_planes(layer, made);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed =
        (size_t)(problem->h.kernel * problem->w.kernel * problem->out_channels) * problem->element_size;
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = problem->layout == TCONV_NCHW;
    const tconv_cuda_work work = work_of(layer, made);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *made, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    (void)made; /* what is packed depends on the layer alone */
    return on_device(layer->target.device, issue, [&] {
        return general::pack_weights(&layer->problem, layer->problem.group_out, weights, packed, stream, issue);
    });
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const plan *made = static_cast<const plan *>(from);
    const tconv_problem *problem = &layer->problem;
    const uintptr_t src = (uintptr_t)arguments->src, dst = (uintptr_t)arguments->dst;
    const variant *taken = made->by_address;
    while (src % taken->src_multiple != 0 || dst % taken->dst_multiple != 0)
        taken++;
    parameters parameters = made->parameters;
    parameters.src = arguments->src;
    const bool unpacked = arguments->weights != NULL; /* NCHW: they are read where they lie */
    parameters.weights = unpacked ? arguments->weights : arguments->packed;
    parameters.weight_in = unpacked ? problem->weight.in : problem->group_out;
    parameters.weight_out = unpacked ? problem->weight.out : 1;
    parameters.weight_tap = unpacked ? problem->weight.w : problem->out_channels;
    parameters.bias = arguments->bias;
    parameters.dst = arguments->dst;
    parameters.tile = taken->tile;
    parameters.tile.src_aligned = made->src_vectors && src % ACCESS == 0;
    void *kernel_arguments[] = {&parameters};
    const launch_grid grid = {(const void *)taken->kernel, taken->blocks, THREADS, taken->shared_bytes,
                              arguments->packs && !unpacked &&
                                  layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY};
    return on_device(layer->target.device, issue,
                     [&] { return tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue); });
}

void describe(const tconv_layer *layer, const void *from, char *text, size_t capacity)
{
    static const char *const columns[] = {"table",       "window_1", "window_2_even", "window_2_odd",
                                          "window_half", "shared",   "loop",          "long_loop"};
    static const char *const pixels[PIXEL_WAYS] = {"single", "vectors", "tile", "runs", "loop", "long_loop"};
    const plan *made = static_cast<const plan *>(from);
    const variant *best = made->by_address;
    const tile_shape *tile = &best->tile;
    if (layer->problem.layout == TCONV_NHWC)
        snprintf(text, capacity, "pixels=%s taps=%d rows=%d row_tiles=%d column_tiles=%d channel_tiles=%d",
                 pixels[best->way], made->taps, tile->rows, tile->row_tiles.divisor, tile->column_tiles.divisor,
                 tile->channel_tiles);
    else
        snprintf(text, capacity, "columns=%s taps=%d rows=%d row_tiles=%d column_tiles=%d lanes=%d part_rows=%d",
                 columns[best->way], made->taps, tile->rows, tile->row_tiles.divisor, tile->column_tiles.divisor,
                 1 << tile->lanes_log2, tile->part_rows);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_depthwise_forward = {"cuda_depthwise",
                                                                      TCONV_BACKEND_CUDA,
                                                                      TCONV_DTYPES_TO_F64,
                                                                      sizeof(plan),
                                                                      plan_layer,
                                                                      pack,
                                                                      execute,
                                                                      describe,
                                                                      false,
                                                                      NULL};

} // namespace tconv::depthwise::forward
