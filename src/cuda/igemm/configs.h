/* The kernels that there are of the implicit GEMM, as the planner knows them. Files of kernels (configs_*.cu) have them
 * in the same order. */
#ifndef TCONV_CUDA_IGEMM_CONFIGS_H
#define TCONV_CUDA_IGEMM_CONFIGS_H

#include "parameters.h"

#ifdef __cplusplus
#define TCONV_IGEMM_CONFIGS static constexpr kernel_config
#else
#define TCONV_IGEMM_CONFIGS static const kernel_config
#endif

TCONV_ROOM_BEGIN(tconv::igemm)

enum { CONFIGS = 7 }; /* of an arithmetic, at most */

typedef struct kernel_config {
    int N;          /* of a wgmma: positions of an MMA tile; 0: there is no such config */
    int mma_tiles;  /* of a warpgroup */
    bool long_sums; /* takes any number of partial sums, else (strict f32) STRICT_ADDITIONS */
    int parts;      /* HALVES or QUARTERS, but of pairs: a staging buffer has one */
    bool clustered; /* blocks of a cluster share out the K-blocks of a tile; there are no post-ops */
} kernel_config;

/* Whether the kernel of a config runs post-ops that are not affine. In 16 bits there are no registers for them beside as
 * many accumulators as a thread can have. */
TCONV_ROOM_CONSTANT bool runs_any_posts(int N, int mma_tiles, int element_size)
{
    return element_size == 4 || mma_tiles * N < MAX_MMA_TILES * 128;
}

TCONV_IGEMM_CONFIGS tf32_configs[CONFIGS] = {{128, 2, true, HALVES, false},   {96, 2, true, HALVES, false},
                                             {64, 2, true, HALVES, false},    {64, 1, true, HALVES, false},
                                             {128, 2, true, QUARTERS, false}, {64, 2, true, HALVES, true},
                                             {64, 1, true, HALVES, true}};
TCONV_IGEMM_CONFIGS strict_configs[CONFIGS] = {{128, 1, false, HALVES, false},
                                               {128, 1, true, HALVES, false},
                                               {64, 1, true, HALVES, false},
                                               {64, 1, true, HALVES, true}};

/* Of f16 and bf16 alike. */
TCONV_IGEMM_CONFIGS half_configs[CONFIGS] = {{128, 2, true, HALVES, false}, {96, 2, true, HALVES, false},
                                             {64, 2, true, HALVES, false},  {64, 1, true, HALVES, false},
                                             {64, 2, true, HALVES, true},   {64, 1, true, HALVES, true}};

/* The same with sums in f32 for outputs. */
TCONV_IGEMM_CONFIGS half_sums_configs[CONFIGS] = {
    {128, 2, true, HALVES, false}, {64, 2, true, HALVES, false}, {64, 1, true, HALVES, false}};

TCONV_ROOM_END

#endif
