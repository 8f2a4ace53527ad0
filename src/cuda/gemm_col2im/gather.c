/* Cuts the outputs of a chunk into the tiles that are gathered at a time, and launches the kernels of gather.cu. */
#include "gather.h"

#include "../../core/checked.h"
#include "../hardware.h"
#include "../runtime/launch.h"

enum {
    MIN_TILES = 512, /* with fewer, they are smaller */
    MAX_BLOCKS = 1 << 20
};

bool tconv_gemm_col2im_cut_tiles(gather_shape *shape)
{
    const gather_axis *columns = &shape->columns;
    const int64_t stride = columns->stride.divisor, rows = shape->rows.end - shape->rows.begin;
    const int64_t lines = (int64_t)shape->images * shape->groups * shape->channels.divisor * rows;
    const int64_t quotients = tconv_ceil_div(columns->end, stride) - columns->begin / stride;
    const int64_t parts = tconv_ceil_div(stride, MAX_RESIDUES);
    const int residues = (int)(parts > 1 ? MAX_RESIDUES : stride);
    if ((double)lines * (double)(shape->by_output ? columns->end - columns->begin : quotients * parts) >=
        (double)INT32_MAX - GATHER_TILE)
        return false;
    shape->out_rows = divisor_of((int)rows);
    shape->out_columns = divisor_of(columns->end - columns->begin);
    shape->all_channels = divisor_of(shape->groups * shape->channels.divisor);
    shape->quotients = divisor_of((int)quotients);
    shape->places = lines * (shape->by_output ? columns->end - columns->begin : quotients);
    shape->residues = divisor_of(residues);
    shape->residue_tiles = divisor_of((int)parts);
    shape->tile_places = GATHER_TILE / MAX_RESIDUES * (MAX_RESIDUES / residues);
    while (shape->tile_places > WARP && shape->tile_places * residues > GATHER_THREADS &&
           shape->places / shape->tile_places * parts < MIN_TILES)
        shape->tile_places = (shape->tile_places / 2 + WARP - 1) / WARP * WARP;
    return true;
}

static int64_t count_blocks(int64_t elements)
{
    return tconv_min(tconv_ceil_div(elements, GATHER_THREADS), MAX_BLOCKS);
}

tconv_status tconv_gemm_col2im_gather(const tconv_layer *layer, const gather_shape *shape, bool overlaps, void *stream,
                                      tconv_issue *issue)
{
    const int at_once = shape->columns.dilation != 1       ? 1
                        : shape->residues.divisor % 4 == 0 ? 4
                        : shape->residues.divisor % 2 == 0 ? 2
                                                           : 1;
    gather_shape gathered = *shape;
    int tiles = (int)(tconv_ceil_div(shape->places, shape->tile_places) * shape->residue_tiles.divisor);
    void *arguments[] = {&gathered, &tiles};
    const launch_grid grid = {
        .kernel = tconv_gemm_col2im_gather_kernel(numerics_of(layer), shape->by_output, at_once),
        .blocks = shape->by_output ? count_blocks(shape->places) : tconv_min(tiles, MAX_BLOCKS),
        .threads = GATHER_THREADS,
        .overlaps = overlaps,
    };
    return tconv_launch_kernel(&grid, arguments, stream, issue);
}

/* Returns the axes of a copy in its order. */
static nested_axes nest_axes(const dense_copy *copy)
{
    const tconv_strides *strides = &copy->strides;
    const fast_divisor images = divisor_of((int)copy->images), channels = divisor_of((int)copy->channels);
    const fast_divisor rows = divisor_of((int)copy->rows), columns = divisor_of((int)copy->columns);
    nested_axes axes = {{images, channels, rows, columns}, {strides->n, strides->c, strides->h, strides->w}, 0, 0};
    if (copy->order == CHANNELS_FIRST)
        axes = (nested_axes){{channels, images, rows, columns}, {strides->c, strides->n, strides->h, strides->w}, 0, 0};
    if (copy->order == CHANNELS_LAST)
        axes = (nested_axes){{images, rows, columns, divisor_of((int)copy->pitch)},
                             {strides->n, strides->h, strides->w, strides->c},
                             0,
                             0};
    const int64_t inside = copy->order == CHANNELS_LAST ? copy->channels : copy->columns;
    axes.inside = (int)inside;
    axes.count = (int)(copy->images * copy->channels * copy->rows * copy->columns / inside * axes.extents[3].divisor);
    return axes;
}

tconv_status tconv_gemm_col2im_put_densely(tconv_dtype dtype, const dense_copy *copy, void *stream, tconv_issue *issue)
{
    nested_axes axes = nest_axes(copy);
    const void *kernel = tconv_gemm_col2im_dense_kernel(dtype, copy->widens);
    const void *from = copy->from;
    void *dense = copy->dense;
    void *arguments[] = {&axes, &from, &dense};
    return tconv_launch_blocks(kernel, count_blocks(axes.count), GATHER_THREADS, arguments, stream, issue, false);
}

tconv_status tconv_gemm_col2im_widen(tconv_dtype dtype, const void *from, void *dense, int64_t count, void *stream,
                                     tconv_issue *issue)
{
    const dense_copy copy = {
        .from = from,
        .dense = dense,
        .widens = true,
        .pitch = 1,
        .strides = {.w = 1},
        .images = 1,
        .channels = 1,
        .rows = 1,
        .columns = count,
        .order = IMAGES_FIRST,
    };
    return tconv_gemm_col2im_put_densely(dtype, &copy, stream, issue);
}
