/*
 * Between the host side of the products algorithm (products.cu) and its kernels: what a kernel is told, which there are.
 *
 * A group's weights are a matrix of depths (input channels) by products (output channel, kernel row, kernel column), both
 * padded with zeros: depths to steps of one tensor-core instruction, products to tiles of 8. They are packed in the order
 * in which the lanes of a warp take them: [group][step][tile][lane][FRAGMENT_BYTES], behind a header that holds an int:
 * whether some weight is Inf, NaN or so large that it would round to Inf.
 */
#ifndef TCONV_CUDA_COL2IM_PARAMETERS_H
#define TCONV_CUDA_COL2IM_PARAMETERS_H

#include <cuda.h>

#include "../maps/small_axis.h"

namespace tconv::col2im
{

#define TCONV_CUDA_PRODUCTS_WARPS          4
#define TCONV_CUDA_PRODUCTS_WARP_PIXELS    32 /* two rows of tensor-core tiles share each fragment of weights */
#define TCONV_CUDA_PRODUCTS_PIXELS         (TCONV_CUDA_PRODUCTS_WARPS * TCONV_CUDA_PRODUCTS_WARP_PIXELS)
#define TCONV_CUDA_PRODUCTS_PITCH          (TCONV_CUDA_PRODUCTS_PIXELS + 4) /* the lanes' stores hit different banks */
#define TCONV_CUDA_PRODUCTS_STAGES         3
#define TCONV_CUDA_PRODUCTS_TILE           8    /* products */
#define TCONV_CUDA_PRODUCTS_FRAGMENT_BYTES 8    /* of weights, per lane, step and tile */
#define TCONV_CUDA_PRODUCTS_STAGE_BYTES    1536 /* of src in shared memory, per warp: the larger of both layouts' */
#define TCONV_CUDA_PRODUCTS_STEP_BYTES     32   /* of one pixel's channels in a step */
/* Steps whose sums the tensor cores keep: their own additions lose bits, of 8 steps of like terms up to 30 units. */
#define TCONV_CUDA_PRODUCTS_SEGMENT 4
#define TCONV_CUDA_PRODUCTS_HEADER  256 /* bytes of the packed weights' header */
/* Blocks on a multiprocessor, as the registers of so many tiles' sums allow. */
#define TCONV_CUDA_PRODUCTS_BLOCKS(tiles) ((tiles) >= 8 ? 2 : 3)
#define TCONV_CUDA_PRODUCTS_MAX_TILES     11 /* 9 x 9 taps of one channel; the sums are 88 registers */

/* How outputs are gathered: unrolled for kernels of so many rows and columns by that stride, dilation 1; or any. */
enum {
    TCONV_CUDA_PRODUCTS_ANY,
    TCONV_CUDA_PRODUCTS_3_BY_1,
    TCONV_CUDA_PRODUCTS_3_BY_2,
    TCONV_CUDA_PRODUCTS_4_BY_2,
    TCONV_CUDA_PRODUCTS_9_BY_4
};

/*
 * Hopper's kernel (products_rows.cu) multiplies the same matrix by wgmma, and its products are in another order: kernel rows
 * in groups of `stride`, each [kernel row of it][output channel][kernel column], padded to group_tiles tiles; the last group
 * to what is left of `tiles`. Weights are packed as [group][step][plane][half of K][product][16 bytes], planes being two in
 * strict f32 (see tf32_device.cuh), and f32 is rounded to TF32; of f32 the first half of K has the even channels.
 */
#define TCONV_CUDA_PRODUCT_ROWS_WARPS        8 /* two warpgroups */
#define TCONV_CUDA_PRODUCT_ROWS_WARP_PIXELS  (TCONV_CUDA_PRODUCTS_PIXELS / TCONV_CUDA_PRODUCT_ROWS_WARPS)
#define TCONV_CUDA_PRODUCT_ROWS_STEPS        2    /* of a stage */
#define TCONV_CUDA_PRODUCT_ROWS_STAGE_BYTES  1536 /* of src in shared memory, per warp: the larger of both layouts' */
#define TCONV_CUDA_PRODUCT_ROWS_OUTPUT_BYTES 16   /* of shared memory, for an output row of a channel; */
#define TCONV_CUDA_PRODUCT_ROWS_COLUMN_BYTES 4    /* and for an output column, where they are not gathered by runs */
#define TCONV_CUDA_PRODUCT_ROWS_GUARD        4    /* zeros around the pixels of each of up to four images: */
#define TCONV_CUDA_PRODUCT_ROWS_PITCH        (TCONV_CUDA_PRODUCTS_PIXELS + 5 * TCONV_CUDA_PRODUCT_ROWS_GUARD)
#define TCONV_CUDA_PRODUCT_ROWS_SHAPES       9

/* The same where src comes by boxes (products_boxes.cu): stages of all pixels of a block, and barriers. */
#define TCONV_CUDA_PRODUCT_BOXES_STAGES 6
#define TCONV_CUDA_PRODUCT_BOXES_STAGE_BYTES                                                                           \
    (TCONV_CUDA_PRODUCTS_PIXELS * TCONV_CUDA_PRODUCT_ROWS_STEPS * TCONV_CUDA_PRODUCTS_STEP_BYTES)
#define TCONV_CUDA_PRODUCT_BOXES_BARRIER_BYTES (8 * (2 * TCONV_CUDA_PRODUCT_BOXES_STAGES + 1))

/* Tiles of the kernels, and for how many blocks on a multiprocessor registers are enough. */
struct tconv_cuda_product_rows_shape {
    int group_tiles, tiles, blocks, strict_blocks;
};
constexpr tconv_cuda_product_rows_shape tconv_cuda_product_rows_shapes[TCONV_CUDA_PRODUCT_ROWS_SHAPES] = {
    {1, 3, 2, 2},  {2, 4, 2, 2},  {2, 6, 2, 2},  {3, 6, 2, 2}, {4, 8, 2, 2},
    {2, 10, 2, 1}, {4, 12, 2, 1}, {5, 12, 2, 1}, {3, 21, 1, 1}};

/* The products of so many kernel rows in the order of a shape, without what pads the last group of rows. row: of one row. */
constexpr int64_t tconv_cuda_product_rows_products(int shape, int64_t rows, int64_t stride, int64_t row)
{
    const int64_t groups = (rows - 1) / stride;
    return groups * tconv_cuda_product_rows_shapes[shape].group_tiles * TCONV_CUDA_PRODUCTS_TILE +
           (rows - groups * stride) * row;
}

/* The shape that a kernel of so many rows takes, the first that holds it; TCONV_CUDA_PRODUCT_ROWS_SHAPES where none does. */
constexpr int tconv_cuda_product_rows_shape_of(int64_t rows, int64_t stride, int64_t row)
{
    int shape = 0;
    while (shape < TCONV_CUDA_PRODUCT_ROWS_SHAPES &&
           (stride * row > tconv_cuda_product_rows_shapes[shape].group_tiles * TCONV_CUDA_PRODUCTS_TILE ||
            tconv_cuda_product_rows_products(shape, rows, stride, row) >
                tconv_cuda_product_rows_shapes[shape].tiles * TCONV_CUDA_PRODUCTS_TILE))
        shape++;
    return shape;
}

/* How Hopper's kernel gathers outputs: RUNS of column stride and the most taps of a column, or COLUMNS, one by one, of the taps
 * that are unrolled. */
#define TCONV_CUDA_PRODUCT_MAX_RUN            4 /* columns */
#define TCONV_CUDA_PRODUCT_RUNS(stride, taps) ((stride)*4 + (taps))
#define TCONV_CUDA_PRODUCT_COLUMNS(taps)      (taps)
#define TCONV_CUDA_PRODUCT_RUN_TAPS(gather)   ((gather) % 4)
#define TCONV_CUDA_PRODUCT_MIN_TAPS           2 /* that are unrolled */
#define TCONV_CUDA_PRODUCT_MAX_TAPS           3
#define TCONV_CUDA_PRODUCT_MAX_OUTPUTS        4 /* of a group */

/* By shape, a bit for each RUNS that its kernels have code for: those of square kernels and strides that take the shape. All
 * others are gathered by COLUMNS; code for all of them in each kernel was half of what there was to compile. */
struct tconv_cuda_product_runs {
    uint32_t of_shape[TCONV_CUDA_PRODUCT_ROWS_SHAPES + 1];
};
constexpr tconv_cuda_product_runs tconv_cuda_find_product_runs()
{
    tconv_cuda_product_runs found = {};
    for (int stride = 1; stride <= TCONV_CUDA_PRODUCT_MAX_RUN; stride++)
        for (int kernel = stride; kernel <= stride * TCONV_CUDA_PRODUCT_MAX_TAPS; kernel++)
            for (int outputs = 1; outputs <= TCONV_CUDA_PRODUCT_MAX_OUTPUTS; outputs++) {
                const int most = (kernel + stride - 1) / stride;
                const int taps = most < TCONV_CUDA_PRODUCT_MIN_TAPS ? TCONV_CUDA_PRODUCT_MIN_TAPS : most;
                found.of_shape[tconv_cuda_product_rows_shape_of(kernel, stride, outputs * kernel)] |=
                    1u << TCONV_CUDA_PRODUCT_RUNS(stride, taps);
            }
    return found;
}
constexpr tconv_cuda_product_runs tconv_cuda_product_runs_of = tconv_cuda_find_product_runs();

/* Stages of src that take turns: as many as leave room for two blocks of pix2pix's last layer (128 channels, 4 x 4 taps, 3
 * outputs), since all of them are on their way while the first is multiplied. */
#define TCONV_CUDA_PRODUCT_ROWS_STAGES(strict, element_size) ((strict) ? 4 : (element_size) == 4 ? 5 : 6)

struct tconv_cuda_products_parameters {
    const void *src, *weights /* packed */, *bias /* or NULL */;
    void *dst;
    small_axis rows, columns;
    tconv_strides src_strides, dst_strides;
    int group_in, group_out, groups, stages; /* stages: steps, of which each is a stage of src in shared memory */
    int row_pixels_log2;           /* columns of src that a block multiplies at once; its other pixels are more rows */
    int column_tiles, column_step; /* and from one tile of columns to the next, */
    int column_back, row_back;     /* because outputs take inputs up to so many columns and rows before them */
    int strips, strip_rows;        /* quotients of padded rows of a block */
    int sum_rows, sum_columns;     /* of outputs that are not yet complete, in shared memory */
    int tap_step;                  /* from a product that an output takes of a row to the next */
    int gather;                    /* how outputs are gathered, see above */
    bool src_aligned;
    bool channels_inside; /* NHWC */
    /* Of Hopper's kernel, which keeps no rows of sums; gather is RUNS or COLUMNS. */
    int run_taps[TCONV_CUDA_PRODUCT_MAX_RUN]; /* of a run's columns: their first taps, from the run's first pixel on */
    unsigned run_ends;                        /* and a bit for each: whether it has as many taps as any */
    bool dst_runs;                            /* stride columns from a multiple of it on are a vector of dst */
    int images, steps;
    int products; /* of all kernel rows, padding between them included */
    int buffers;  /* of products, that take turns: 1 or 2 */
    int boxes;    /* of src that make a stage; 0: it does not come by boxes */
};

typedef void (*tconv_cuda_products_kernel)(tconv_cuda_products_parameters);

/* Kernels with 2, 4, 6, 8 or 11 tiles of products; NULL for f64. tf32: f32 is rounded to TF32, else split in three. */
tconv_cuda_products_kernel tconv_cuda_products_find(tconv_dtype dtype, bool tf32, tconv_layout layout, int tiles);

/* Hopper's kernel; NULL for f64. Without sm_90a code it is made for one warp. */
tconv_cuda_products_kernel tconv_cuda_product_rows_find(tconv_dtype dtype, bool tf32, tconv_layout layout, int shape);

/* The same for src that comes by boxes; NULL for a shape that does not come so. */
typedef void (*tconv_cuda_product_boxes_kernel)(tconv_cuda_products_parameters, CUtensorMap);
tconv_cuda_product_boxes_kernel tconv_cuda_product_boxes_find(tconv_dtype dtype, bool tf32, int shape);

/* Launches what packs the weights for them. */
tconv_status tconv_cuda_pack_product_rows(const tconv_problem *problem, bool tf32, int steps,
                                          const tconv_cuda_product_rows_shape *shape, const void *weights, void *packed,
                                          void *stream, tconv_issue *issue);

/* Launches what packs the weights as said above. */
tconv_status tconv_cuda_pack_products(const tconv_problem *problem, int steps, int tiles, const void *weights,
                                      void *packed, void *stream, tconv_issue *issue);

} // namespace tconv::col2im

#endif
