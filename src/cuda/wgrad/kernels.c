/* What planning knows of cuda_wgrad's kernels. */
#include "kernels.h"

#define MMA_TILE(strict, height, width)                                                                                \
    {BY_MMA, 16 * (height), 8 * (width), WGRAD_MMA_RESIDENT_WARPS(strict, height), MAX_PIXELS},
#define MMA_PLAIN(height, width)  MMA_TILE(false, height, width)
#define MMA_STRICT(height, width) MMA_TILE(true, height, width)

#define WGMMA_TILE(size, m, n)                                                                                         \
    {BY_WGMMA, (n), WARPGROUPS * (m)*MMA_M, WARPGROUP_BLOCK_THREADS / WARP,                                            \
     WGRAD_HELD_PIXELS(n, size) < MAX_PIXELS ? WGRAD_HELD_PIXELS(n, size) : MAX_PIXELS},
#define WGMMA_F32(m, n)  WGMMA_TILE(4, m, n)
#define WGMMA_HALF(m, n) WGMMA_TILE(2, m, n)

#define BOX_TILE(m, n) {BY_BOXES, (n), WARPGROUPS * (m)*MMA_M, BOX_BLOCK_THREADS / WARP, BOX_PIXELS},

static const kernel_choice mma[] = {WGRAD_MMA_TILES(MMA_PLAIN)};
static const kernel_choice mma_strict[] = {WGRAD_MMA_STRICT_TILES(MMA_STRICT)};
static const kernel_choice wgmma_tf32[] = {WGRAD_WGMMA_TILES(WGMMA_F32)};
static const kernel_choice wgmma_strict[] = {WGRAD_WGMMA_STRICT_TILES(WGMMA_F32)};
static const kernel_choice wgmma_half[] = {WGRAD_WGMMA_TILES(WGMMA_HALF)};
static const kernel_choice boxes[] = {WGRAD_BOX_TILES(BOX_TILE)};

#define LIST(kernels) ((kernel_list){(kernels), (int)(sizeof(kernels) / sizeof((kernels)[0]))})

kernel_list tconv_wgrad_kernels(kernel_family family, numerics math)
{
    const bool half = numerics_bytes(math) == 2, strict = math == NUMERICS_STRICT;
    switch (family) {
    case BY_MMA: return strict ? LIST(mma_strict) : LIST(mma);
    case BY_WGMMA: return half ? LIST(wgmma_half) : strict ? LIST(wgmma_strict) : LIST(wgmma_tf32);
    default: return half ? LIST(boxes) : (kernel_list){NULL, 0};
    }
}

const void *tconv_wgrad_kernel(const kernel_choice *kernel, numerics math, load_mode load)
{
    const int number = (int)(kernel - tconv_wgrad_kernels(kernel->family, math).kernels);
    switch (kernel->family) {
    case BY_MMA: return (numerics_bytes(math) == 2 ? tconv_wgrad_mma_half : tconv_wgrad_mma_f32)(math, number).at[load];
    case BY_WGMMA:
        return (math == NUMERICS_TF32     ? tconv_wgrad_wgmma_tf32
                : math == NUMERICS_STRICT ? tconv_wgrad_wgmma_strict
                : math == NUMERICS_F16    ? tconv_wgrad_wgmma_f16
                                          : tconv_wgrad_wgmma_bf16)(number)
            .at[load];
    default: return (math == NUMERICS_F16 ? tconv_wgrad_boxes_f16 : tconv_wgrad_boxes_bf16)(number).at[load];
    }
}
