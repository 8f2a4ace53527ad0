/* The blocking of cpu_col2im: how it cuts a layer into tasks, once with its plan. The words are those of col2im.c. */
#ifndef TCONV_CPU_COL2IM_PLAN_H
#define TCONV_CPU_COL2IM_PLAN_H

#include "../blocking/blocking.h"
#include "../kernels/pixels_kernels.h"

/* Terms of a segment: 24 that are alike are off by 6.5 roundings at most, a cascade by 2, and the sum of an output's
 * products, of which there are 16 at most, by a quarter of their number and one: 16 for terms that are alike, as
 * blocking.h has them. */
enum { TCONV_CPU_COL2IM_SEGMENT = 24 };

/* The most pixels of a tile: a task's products stay in the second-level cache. It is chosen, not measured. */
enum { TCONV_CPU_COL2IM_MAX_PIXELS = 128 };

typedef struct tconv_cpu_col2im_plan {
    const tconv_cpu_pixel_kernels *kernels;
    int real; /* index to kernels->real */
    int64_t real_size;
    tconv_cpu_axis row_axis, column_axis;
    bool channels_inside; /* columns are taps, and output channels within; else the other way round */
    bool sweeps;          /* few pixels: rows of weights are multiplied as they lie, and not packed */
    bool keeps_strip;     /* the strip has all input channels, for all tasks of a tile; else a K-block's */
    int64_t tile_images, tile_rows, tile_columns; /* of a tile: images, and positions */
    int64_t image_tiles, row_tiles, column_tiles, tiles;
    int64_t pixels, outputs; /* the most of a tile: pixels of all its images; outputs of a channel of an image */
    int64_t store_rows;      /* the most rows of a tile that are stored at a time: NCHW its own, NHWC pixels of a row */
    int64_t taps, part_taps; /* of the kernel; those whose products are there at a time */
    int64_t width;           /* columns of a panel */
    int64_t block_channels, blocks, pitch; /* output channels of a task; columns from pixel to pixel */
    int64_t k_block, level;                /* level: from one level of the calls' cascade to the next */
    /* Scratch, in bytes: bias, and what adds nothing; then of each thread. */
    int64_t bias_bytes, nothing_bytes, strip_bytes, weights_bytes, sums_bytes, levels_bytes, products_bytes,
        outputs_bytes;
    int64_t places_bytes, thread_bytes;
    int64_t tasks;
    int threads;
} tconv_cpu_col2im_plan;

/* Plans a layer; returns why the algorithm does not take it, else NULL. */
const char *tconv_cpu_col2im_plan_init(tconv_cpu_col2im_plan *plan, const tconv_layer *layer);

#endif
