/* The streaming kernels of cuda_cells by their shapes: planning chooses among these tables, whose order the kernels in
 * configs.cu and configs_half.cu have. */
#ifndef TCONV_CUDA_CELLS_CONFIGS_H
#define TCONV_CUDA_CELLS_CONFIGS_H

#include "../numeric/numerics.h"

#ifdef __cplusplus
#define TCONV_CELLS_TABLE static constexpr
#else
#define TCONV_CELLS_TABLE static const
#endif

TCONV_ROOM_BEGIN(tconv::cells)

/* With mma_n = block_n a kernel serves only layers whose schedules are one entry each, with taps for all of N. */
typedef struct kernel_config {
    int mma_n;     /* N of a wgmma; 0: there is no such kernel */
    int mma_steps; /* wgmmas along a K-block */
} kernel_config;

enum { TF32_CONFIGS = 8, STRICT_CONFIGS = 3, HALF_CONFIGS = 4 };

TCONV_CELLS_TABLE kernel_config tf32_configs[TF32_CONFIGS] = {{256, 4}, {256, 2}, {128, 4}, {128, 2},
                                                              {64, 4},  {64, 2},  {32, 4},  {32, 2}};
TCONV_CELLS_TABLE kernel_config strict_configs[STRICT_CONFIGS] = {{128, 4}, {64, 4}, {32, 4}};
/* In 16 bits cells have one column. */
TCONV_CELLS_TABLE kernel_config half_configs[HALF_CONFIGS] = {{128, 4}, {128, 2}, {64, 4}, {64, 2}};

/* Returns the kernel with that number in its table; NULL in a build without CUDA. straddle: words are parts of two in
 * memory, in 16 bits alone. */
const void *tconv_cells_streaming_kernel(numerics mode, bool straddle, int number);

TCONV_ROOM_END

#endif
