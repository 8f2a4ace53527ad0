/*
 * cuda_depthwise, forward: layers with one input channel per group (depthwise, with or without a multiplier), which
 * are bound by bandwidth. All phases of a stretch of dst are computed together, from a tile of src in shared memory
 * (NCHW, planes.cu; NHWC, pixels.cu) or from the caches (NHWC), so that dst is written in whole runs,
 * outputs without taps included, and src is read about once. It takes any dtype, padding, slice and alignment, and
 * strides up to 16.
 *
 * NCHW, and NHWC by vectors, reads the weights of a block's channels where they lie, and packs none in a call.
 *
 * Post-ops are run on a row's outputs in registers, of a walk that is unrolled: affine lists alone, not in f64.
 *
 * The numeric order is that of walk.cuh, or strip.cuh; it depends on the layer alone.
 */
#include "../../core/checked.h"
#include "../../core/post.h"
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../general/fill.h"
#include "../implementations.h"
#include "../maps/small_axis.h"
#include "../model/planned.h"
#include "../numeric/divisor.h"
#include "../numeric/segment.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"
#include "forward_plan.h"
#include "kernels.h"
#include "packing.h"

#include <stdio.h>

enum {
    MAX_SHARED = 48 * 1024, /* bytes of shared memory that a kernel may have without asking */
    MAX_KERNEL = 512,       /* taps, which are summed one by one: with more, arithmetic is the bound */
    /* A thread walks down many rows, so that setting up is small beside them, as long as there are enough blocks to fill
     * a large GPU several times over. */
    MAX_WALK = 16,              /* quotients */
    MIN_WALK = 4,               /* quotients */
    MAX_RUNS = 4,               /* vectors of columns of a thread, which make strips */
    ENOUGH_PLANE_BLOCKS = 2048, /* NCHW */
    ENOUGH_PIXEL_BLOCKS = 1024, /* NHWC */

    /* NHWC: fewer rows of a tile are read by threads themselves as fast as through shared memory. */
    MIN_TILE_ROWS = 8,
    /* NHWC: a block copies the weights of a kernel of so many taps at most. With more, of which a thread needs but some, packing
     * is faster, as it is for threads of few rows; unless blocks are so few that the launch is what counts. */
    MAX_STAGED_TAPS = 16,
    MAX_TAPS_OF_FEW = 64,
    FEW_BLOCKS = 512,

    /* NHWC: a block's channels fill a memory transaction of 128 bytes; the rest of it are columns, which share what they
     * load. */
    CHANNEL_VECTORS = 8,  /* vectors of 16 bytes */
    SINGLE_CHANNELS = 32, /* elements: 128 bytes of f32 */

    /* Smaller planes leave most threads without work, and other implementations take pixels of many images. */
    MIN_PLANE = 64,
    MIN_PIXELS = 16 /* NHWC, f32 and f64 */
};

/* Returns the elements of a vector, which a thread loads or stores at once. */
static int64_t access_of(const tconv_problem *problem)
{
    return VECTOR_BYTES / (int64_t)problem->element_size;
}

static int taps_of(const tconv_layer *layer)
{
    return (int)tconv_max(tconv_max(layer->rows.max_taps, layer->columns.max_taps), 1);
}

/* Says whether taps are more than a row apart, so that a walk cannot pass a row's values on to the next. */
static bool rows_apart(const tconv_layer *layer)
{
    return layer->rows.max_taps > 1 && layer->rows.shift_step != 1;
}

/* Says whether taps are summed in a loop: more than registers have room for, or rows apart. */
static bool loops(const tconv_layer *layer)
{
    return taps_of(layer) > MAX_TAPS || rows_apart(layer);
}

/* Says whether a sum has more terms than a segment of f32 may have. */
static bool is_long(const tconv_layer *layer)
{
    return layer->problem.dtype != TCONV_F64 && layer->rows.max_taps * layer->columns.max_taps > SEGMENT_TERMS;
}

static int64_t quotients_of(const tconv_axis *axis)
{
    return tconv_ceil_div(axis->out, axis->stride);
}

/* Cuts the rows into tiles of `parts` walks of at least `least` rows. blocks: those that tiles of all rows would need,
 * of which `enough` are wanted. */
static void cut_rows(tile_shape *tile, const tconv_axis *rows, int64_t parts, int64_t least, int64_t blocks,
                     int64_t enough)
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

/* Returns the threads of a tile of a plane of so many tiles of all rows: a warp or more. Fewer make longer walks, where tiles
 * are enough, and leave none without a row. */
static int64_t threads_of_tile(const tconv_axis *rows, int64_t lanes, int64_t least, int64_t tiles)
{
    int64_t threads = THREADS;
    while (threads > WARP && threads > lanes) {
        const int64_t half = threads / 2, walks = threads / lanes;
        const bool are_short = rows->out < walks * least && tiles * half >= ENOUGH_PLANE_BLOCKS * THREADS;
        if (!are_short && half / lanes < rows->out)
            break;
        threads = half;
    }
    return threads;
}

/* Returns the tile of a plane of whose columns a thread has `length`, side by side unless it is for a loop. A tile has a
 * power of two of threads, so many or, at 0, as many as are good; its shared memory may be more than there is. */
static tile_shape plane_tile(const tconv_layer *layer, int64_t length, int64_t threads)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t access = access_of(problem), reach = layer->columns.max_shift - layer->columns.min_shift;
    tile_shape tile = {0};
    tile.lanes_log2 = log2_at_least(tconv_min(tconv_ceil_div(problem->w.out, length), THREADS));
    int64_t least = MIN_WALK;
    tile.columns = (int)length << tile.lanes_log2;
    if (loops(layer)) { /* a thread's columns are of one phase; where they make strips, it has more of them */
        const int64_t lanes = tconv_max((int64_t)1 << tile.lanes_log2, SMALL_AXIS_STRIDE);
        tile.lanes_log2 = log2_at_least(lanes);
        tile.column_step = (int)(lanes / problem->w.stride * problem->w.stride);
        tile.columns = (int)(length * tile.column_step);
        if (quotients_of(&problem->h) < LEAST_OF_STRIP)
            tile.columns *= (int)tconv_min(MAX_RUNS, tconv_ceil_div(problem->w.out, tile.columns));
        else
            least = STRIP;
    }
    const int64_t tile_columns = tile.columns, lanes = (int64_t)1 << tile.lanes_log2;
    tile.column_tiles = divisor_of((int)tconv_ceil_div(problem->w.out, tile_columns));
    const int64_t tiles = problem->batch * problem->out_channels * tile.column_tiles.divisor;
    if (threads == 0)
        threads = threads_of_tile(&problem->h, lanes, least, tiles);
    tile.threads_log2 = log2_at_least(threads);
    const int64_t lines = threads / lanes; /* threads along a column */
    cut_rows(&tile, &problem->h, tconv_ceil_div(lines, problem->h.stride), least, tiles * threads / THREADS,
             ENOUGH_PLANE_BLOCKS);
    tile.count = (int)(tiles * tile.row_tiles.divisor);

    /* Quotients of the tile's columns, the halo, and up to an access less one before them. */
    const int64_t src_columns = (tile_columns - 1) / problem->w.stride + 2 + reach + access - 1;
    tile.row_vectors = (int)tconv_ceil_div(src_columns, access);
    tile.pitch = (int)((tile.row_vectors + 1) * access);
    tile.load_rows = tile.rows + (int)(layer->rows.max_shift - layer->rows.min_shift);
    tile.load_lanes = divisor_of((int)tconv_min(tile.row_vectors, threads));
    const int64_t compute_size = problem->dtype == TCONV_F64 ? 8 : 4;
    const int64_t bytes = (int64_t)tile.load_rows * tile.pitch * (int64_t)problem->element_size +
                          (problem->h.kernel * problem->w.kernel + 1) * compute_size;
    tile.shared_bytes = (int)tconv_min(tconv_ceil_div(bytes, VECTOR_BYTES) * VECTOR_BYTES, INT32_MAX);
    return tile;
}

/* Returns the shared memory of a block of such tiles. */
static int64_t plane_bytes(const tile_shape *tile)
{
    return (int64_t)tile->shared_bytes * (THREADS >> tile->threads_log2);
}

/* Returns the shared memory for the weights of so many channels. */
static int64_t weight_bytes(const tconv_problem *problem, int64_t channels)
{
    return problem->h.kernel * problem->w.kernel * channels * (int64_t)problem->element_size;
}

/* Completes a tile of pixels whose src is copied to shared memory, of fewer rows where it is too large. Returns false
 * where too few would be left. */
static bool fit_pixel_tile(const tconv_layer *layer, tile_shape *tile)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t parts = tile->channel_vectors;
    const int64_t vectors = parts * vector_length(problem->element_size, taps_of(layer)) / access_of(problem);
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
    const int64_t weights = weight_bytes(problem, vectors * access_of(problem));
    if (weights >= MAX_SHARED)
        return false;
    const int64_t rows = (MAX_SHARED - weights) / (src_columns * vectors * VECTOR_BYTES) - reach;
    if (rows < 1)
        return false;
    tile->row_tiles = divisor_of((int)tconv_max(tile->row_tiles.divisor, tconv_ceil_div(quotients, rows)));
    tile->rows = (int)tconv_ceil_div(quotients, tile->row_tiles.divisor);
    if (tile->rows < MIN_TILE_ROWS)
        return false;
    tile->load_rows = tile->rows + (int)reach;
    tile->load_lanes = divisor_of((int)vectors);
    tile->row_vectors = (int)(src_columns * vectors);
    tile->pitch = (int)(tile->row_vectors * access_of(problem));
    return true;
}

/* Returns the tile of pixels, for threads with that kind of elements (PIXEL_...). */
static tile_shape pixel_tile(const tconv_layer *layer, int kind)
{
    const tconv_problem *problem = &layer->problem;
    const bool vectors = kind == PIXEL_VECTORS || kind == PIXEL_TILE;
    const int64_t all = vectors ? problem->out_channels / access_of(problem) : problem->out_channels;
    tile_shape tile = {0};
    if (kind == PIXEL_RUNS) {
        tile.channel_tiles = 1;
        tile.channel_vectors = (int)(problem->w.out * problem->out_channels / PIXEL_RUN);
        tile.column_tiles = divisor_of((int)tconv_ceil_div(tile.channel_vectors, THREADS));
    } else {
        tile.channel_tiles = (int)tconv_ceil_div(all, vectors ? CHANNEL_VECTORS : SINGLE_CHANNELS);
        tile.channel_vectors = (int)tconv_ceil_div(all, tile.channel_tiles);
        if (vectors)
            tile.channel_vectors *= (int)access_of(problem) / vector_length(problem->element_size, taps_of(layer));
        tile.column_tiles = divisor_of((int)tconv_ceil_div(problem->w.out * tile.channel_vectors, THREADS));
    }
    cut_rows(&tile, &problem->h, 1, kind >= PIXEL_LOOP ? STRIP : MIN_WALK,
             problem->batch * tile.channel_tiles * tile.column_tiles.divisor, ENOUGH_PIXEL_BLOCKS);
    return tile;
}

/* Returns how a kernel for planes may find the layer's columns (COLUMNS_...), of which a thread has `length`. whole: rows of dst
 * are so many times as long, and begin at such multiples. */
static int columns_of(const tconv_layer *layer, int taps, int64_t length, bool whole)
{
    const tconv_axis *w = &layer->problem.w;
    if (is_long(layer))
        return COLUMNS_LONG_LOOP;
    if (loops(layer))
        return COLUMNS_LOOP;
    if (w->dilation != 1 || tconv_ceil_div(w->kernel, w->stride) != taps)
        return COLUMNS_TABLE;
    if (w->stride == 1 && w->kernel == 3)
        return COLUMNS_WINDOW_1;
    if (w->stride == 2 && w->kernel >= 3 && w->kernel <= 5)
        return (int)(COLUMNS_WINDOW_3_EVEN + 2 * (w->kernel - 3) + (w->pad % 2 != 0));
    if (!whole || length != access_of(&layer->problem) || taps != 2 || w->kernel != 2 * w->stride)
        return COLUMNS_TABLE;
    if (w->stride % length == 0 && w->pad % length == 0)
        return COLUMNS_SHARED;
    return w->stride == length && w->pad % length == length / 2 ? COLUMNS_WINDOW_HALF : COLUMNS_TABLE;
}

/* Returns the fewest outputs of a plane of which a layer is taken. */
static int64_t least_plane(const tconv_problem *problem)
{
    return problem->layout == TCONV_NHWC && problem->element_size > 2 ? MIN_PIXELS : MIN_PLANE;
}

/* Returns the reason why the layer is not taken, NULL where it is or where a plane may be too large for shared memory. */
static const char *refusal(const tconv_layer *layer)
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
    if (problem->h.out * problem->w.out < least_plane(problem))
        return "too few outputs in a plane";
    /* Tiles of planes, and of images of as many rows, hold a quarter of the least plane's outputs on average. */
    if (problem->dst_extent / (least_plane(problem) / 4) >= INT32_MAX)
        return "too many outputs for 32-bit numbers of tiles";
    if (problem->layout == TCONV_NHWC) {
        if (tconv_max(problem->h.out, problem->w.out) * SINGLE_CHANNELS >= INT32_MAX ||
            (!loops(layer) && problem->src.w * MAX_TAPS * layer->columns.shift_step >= SMALL_AXIS_EXTENT))
            return "rows too long for 32-bit offsets";
    }
    return NULL;
}

/* Says whether rows of dst are vectors of so many elements where dst begins at such a one. */
static bool rows_are_whole(const tconv_problem *problem, int64_t length)
{
    return problem->w.out % length == 0 && tconv_cuda_begins_at_multiples(problem, &problem->dst, length);
}

/* Adds the variant for planes of whose columns a thread has `length`. whole: dst begins, and its rows are, multiples of so
 * many. Returns false where shared memory is too small for a tile. */
static bool add_planes(const tconv_layer *layer, int64_t length, bool whole, layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    variant planes = {.src_multiple = 1, .dst_multiple = 1};
    planes.kind = columns_of(layer, plan->taps, length, whole);
    if (planes.kind >= COLUMNS_LOOP)
        length = access_of(problem);
    else if (planes.kind == COLUMNS_TABLE && problem->element_size == 2)
        length = HALF_LENGTH;
    if (whole)
        planes.dst_multiple = (uintptr_t)length * problem->element_size;
    /* Vectors of 16 bytes are for tiles of whole blocks, whose kernel is the faster one; loops have one kernel. */
    const bool is_window = planes.kind != COLUMNS_TABLE && planes.kind < COLUMNS_WINDOW_HALF;
    const bool half = length < access_of(problem);
    const bool fits_tiles =
        planes.kind >= COLUMNS_LOOP || (is_window && !(whole && problem->element_size == 2 && !half));
    planes.tile = plane_tile(layer, length, fits_tiles ? 0 : THREADS);
    if (plane_bytes(&planes.tile) > MAX_SHARED)
        planes.tile = plane_tile(layer, length, THREADS);
    planes.tile.stores_runs = whole;
    const bool vectors = whole && (!is_window || (!half && 1 << planes.tile.threads_log2 == THREADS));
    planes.shared_bytes = plane_bytes(&planes.tile);
    planes.blocks = tconv_ceil_div(planes.tile.count, THREADS >> planes.tile.threads_log2);
    planes.kernel =
        tconv_depthwise_planes_kernel(problem->dtype, planes.kind, plan->taps, vectors, tconv_has_posts(problem));
    plan->by_address[plan->variants++] = planes;
    return planes.shared_bytes <= MAX_SHARED;
}

/* Adds the variants for planes. Returns the reason why they do not take the layer, else NULL. */
static const char *plan_planes(const tconv_layer *layer, layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = access_of(problem), half = problem->element_size == 2 ? HALF_LENGTH : length;
    const int64_t whole = rows_are_whole(problem, length) ? length : half;
    plan->src_vectors = problem->w.in % length == 0 && tconv_cuda_begins_at_multiples(problem, &problem->src, length);
    if ((rows_are_whole(problem, whole) && !add_planes(layer, whole, true, plan)) ||
        !add_planes(layer, half, false, plan))
        return "dilation or kernel too large for a tile in shared memory";
    return NULL;
}

/* NHWC: says whether the rows of dst are runs of memory that can be cut into aligned runs of a thread without rest. */
static bool has_runs(const tconv_problem *problem)
{
    return problem->dtype != TCONV_F64 && problem->dst.c == 1 && problem->dst.w == problem->out_channels &&
           problem->w.out * problem->out_channels % PIXEL_RUN == 0 && problem->dst.h % PIXEL_RUN == 0 &&
           problem->dst.n % PIXEL_RUN == 0 && problem->w.out * problem->out_channels < SMALL_AXIS_EXTENT &&
           problem->h.kernel * problem->w.kernel * problem->out_channels < SMALL_AXIS_EXTENT &&
           problem->w.in * problem->src.w < SMALL_AXIS_EXTENT;
}

/* Adds the variant for pixels whose threads have that kind of elements. */
static void add_pixels(const tconv_layer *layer, int kind, uintptr_t src_multiple, uintptr_t dst_multiple,
                       layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    variant *pixels = &plan->by_address[plan->variants++];
    tile_shape *tile = &pixels->tile;
    *tile = pixel_tile(layer, kind);
    if (kind == PIXEL_TILE && !fit_pixel_tile(layer, tile)) {
        kind = PIXEL_VECTORS;
        *tile = pixel_tile(layer, kind);
    }
    pixels->kernel = tconv_depthwise_pixels_kernel(problem->dtype, plan->taps, kind, tconv_has_posts(problem));
    pixels->blocks = problem->batch * tile->row_tiles.divisor * tile->column_tiles.divisor * tile->channel_tiles;
    tile->stages_weights =
        (kind == PIXEL_VECTORS || kind == PIXEL_TILE) &&
        problem->h.kernel * problem->w.kernel <= (pixels->blocks <= FEW_BLOCKS ? MAX_TAPS_OF_FEW : MAX_STAGED_TAPS) &&
        tile->rows * problem->h.stride >= MIN_WALK;
    pixels->shared_bytes =
        tile->stages_weights
            ? weight_bytes(problem, tile->channel_vectors * vector_length(problem->element_size, taps_of(layer)))
            : 0;
    if (kind == PIXEL_TILE)
        pixels->shared_bytes += tile->load_rows * (int64_t)tile->row_vectors * VECTOR_BYTES;
    pixels->src_multiple = src_multiple;
    pixels->dst_multiple = dst_multiple;
    pixels->kind = kind;
}

/* Says whether all kernels of a plan can read the weights where they lie: of planes, and of pixels but for runs. */
static bool reads_unpacked(const tconv_problem *problem, const layer_plan *plan)
{
    return problem->layout == TCONV_NCHW ||
           (plan->by_address[0].tile.stages_weights && problem->weight_extent < SMALL_AXIS_EXTENT);
}

/* Adds the variants for pixels, which always fit. */
static void plan_pixels(const tconv_layer *layer, layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = access_of(problem);
    if (problem->group_out == 1 && problem->out_channels % length == 0 &&
        tconv_cuda_begins_at_multiples(problem, &problem->src, length) &&
        tconv_cuda_begins_at_multiples(problem, &problem->dst, length))
        add_pixels(layer, PIXEL_TILE, VECTOR_BYTES, VECTOR_BYTES, plan);
    if ((plan->variants == 0 || !reads_unpacked(problem, plan)) && has_runs(problem))
        add_pixels(layer, PIXEL_RUNS, 1, PIXEL_RUN * problem->element_size, plan);
    add_pixels(layer, PIXEL_SINGLE, 1, 1, plan);
}

static void fill_parameters(const tconv_layer *layer, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    params->rows = tconv_cuda_make_small_axis(&problem->h, &layer->rows);
    params->columns = tconv_cuda_make_small_axis(&problem->w, &layer->columns);
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->row_stride = divisor_of(params->rows.stride);
    params->column_stride = divisor_of(params->columns.stride);
    params->weight_column = problem->out_channels;
    params->weight_row = problem->w.kernel * problem->out_channels;
    params->weight_taps = divisor_of((int)(problem->h.kernel * problem->w.kernel));
    params->channels = divisor_of((int)problem->out_channels);
    params->multiplier = divisor_of((int)problem->group_out);
}

/* NHWC: returns the layer whose rows are the columns of this one. */
static tconv_layer turn(const tconv_layer *layer)
{
    tconv_layer turned = *layer;
    turned.problem.h = layer->problem.w;
    turned.problem.w = layer->problem.h;
    turned.problem.src.h = layer->problem.src.w;
    turned.problem.src.w = layer->problem.src.h;
    turned.problem.dst.h = layer->problem.dst.w;
    turned.problem.dst.w = layer->problem.dst.h;
    turned.rows = layer->columns;
    turned.columns = layer->rows;
    return turned;
}

/* Plans pixels of any number of taps, with strips along the longer axis. */
static void plan_pixel_loop(const tconv_layer *layer, layer_plan *plan)
{
    const bool turns = quotients_of(&layer->problem.h) < quotients_of(&layer->problem.w);
    const tconv_layer turned = turn(layer), *planned = turns ? &turned : layer;
    add_pixels(planned, is_long(layer) ? PIXEL_LONG_LOOP : PIXEL_LOOP, 1, 1, plan);
    fill_parameters(planned, &plan->params);
    plan->params.weight_row = (turns ? 1 : layer->problem.w.kernel) * layer->problem.out_channels;
    plan->params.weight_column = (turns ? layer->problem.w.kernel : 1) * layer->problem.out_channels;
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    layer_plan *plan = memory;
    const char *why = refusal(layer);
    plan->taps = taps_of(layer);
    if (why == NULL)
        fill_parameters(layer, &plan->params);
    if (why == NULL && problem->layout == TCONV_NHWC && loops(layer))
        plan_pixel_loop(layer, plan);
    else if (why == NULL && problem->layout == TCONV_NHWC)
        plan_pixels(layer, plan);
    else if (why == NULL)
        why = plan_planes(layer, plan);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    if (problem->dtype == TCONV_F64 && tconv_has_posts(problem))
        return tconv_decline(issue, "post-ops in f64");
    const tconv_status status = tconv_cuda_check_posts(problem, issue);
    if (status != TCONV_SUCCESS)
        return status;
    planned->sizes = tconv_depthwise_packed_sizes(problem, reads_unpacked(problem, plan));
    const tconv_cuda_work work = tconv_depthwise_forward_work_of(layer, plan);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const layer_plan *plan = memory;
    const tconv_problem *problem = &layer->problem;
    const uintptr_t src = (uintptr_t)arguments->src, dst = (uintptr_t)arguments->dst;
    const variant *taken = plan->by_address;
    while (src % taken->src_multiple != 0 || dst % taken->dst_multiple != 0)
        taken++;
    parameters params = plan->params;
    params.src = arguments->src;
    const bool unpacked = arguments->weights != NULL; /* they are read where they lie */
    params.weights = unpacked ? arguments->weights : arguments->packed;
    params.weight_in = unpacked ? problem->weight.in : problem->group_out;
    params.weight_out = unpacked ? problem->weight.out : 1;
    params.weight_tap = unpacked ? problem->weight.w : problem->out_channels;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.posts = tconv_cuda_affine_posts(problem, arguments->post);
    params.tile = taken->tile;
    params.tile.stages_weights = unpacked && taken->tile.stages_weights;
    params.tile.src_aligned = plan->src_vectors && src % VECTOR_BYTES == 0;
    void *kernel_arguments[] = {&params};
    const launch_grid grid = {.kernel = taken->kernel,
                              .blocks = taken->blocks,
                              .threads = THREADS,
                              .shared_bytes = taken->shared_bytes,
                              .overlaps = arguments->packs && !unpacked &&
                                          tconv_cuda_target_of(&layer->target).compute_capability >=
                                              DEPENDENT_LAUNCH_CAPABILITY};
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue), issue);
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    static const char *const columns[] = {"table",         "window_1",     "window_3_even", "window_3_odd",
                                          "window_4_even", "window_4_odd", "window_5_even", "window_5_odd",
                                          "window_half",   "shared",       "loop",          "long_loop"};
    static const char *const pixels[PIXEL_KINDS] = {"single", "vectors", "tile", "runs", "loop", "long_loop"};
    const layer_plan *plan = memory;
    const variant *best = plan->by_address;
    const tile_shape *tile = &best->tile;
    if (layer->problem.layout == TCONV_NHWC)
        snprintf(text, capacity, "pixels=%s taps=%d rows=%d row_tiles=%d column_tiles=%d channel_tiles=%d",
                 pixels[best->kind], plan->taps, tile->rows, tile->row_tiles.divisor, tile->column_tiles.divisor,
                 tile->channel_tiles);
    else
        snprintf(text, capacity,
                 "columns=%s taps=%d rows=%d row_tiles=%d column_tiles=%d threads=%d lanes=%d part_rows=%d",
                 columns[best->kind], plan->taps, tile->rows, tile->row_tiles.divisor, tile->column_tiles.divisor,
                 1 << tile->threads_log2, 1 << tile->lanes_log2, tile->part_rows);
}

const tconv_implementation tconv_cuda_depthwise_forward = {.name = "cuda_depthwise",
                                                           .backend = TCONV_BACKEND_CUDA,
                                                           .dtypes = TCONV_DTYPES_TO_F64,
                                                           .plan_bytes = sizeof(layer_plan),
                                                           .plan = plan_layer,
                                                           .pack = tconv_depthwise_pack,
                                                           .execute = execute,
                                                           .describe = describe,
                                                           .applies_posts = true};
