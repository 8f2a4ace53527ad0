/*
 * Products of few pixels with many weights of 16 bits, as they lie, by wgmma (sm_90a): pixels along M, weights along N,
 * input channels along K. TMA brings both: the weights of a channel are a row of N, so that the B operand is MN-major,
 * and pixels' channels are K. Two warpgroups have two MMA tiles each, of 64 pixels by 128 weights: beside each other
 * along the weights where there are few pixels.
 *
 * Numeric order: channels.
 */
#include "direct.cuh"

#include "../gemm/kernel.cuh"
#include "../gemm/pipeline.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/tma.cuh"

namespace tconv::gemm_col2im
{

/* What device code alone uses lies outside of the unnamed namespace: the host's compiler would warn of it. */

constexpr int CONSUMERS = WARPGROUPS * WARPGROUP_WARPS * WARP, THREADS = CONSUMERS + WARP;
constexpr int N = DIRECT_WGMMA_N, MMA_TILES = DIRECT_WGMMA_TILES;
constexpr int BOX = DIRECT_BOX, BOX_BYTES = DIRECT_BOX_BYTES;
static_assert(THREADS == DIRECT_WGMMA_THREADS, "as the host launches");

/* A tile of so many times 64 pixels. */
template <int M_TILES> struct wgmma_shape {
    static constexpr int N_TILES = WARPGROUPS * MMA_TILES / M_TILES, ROWS = N_TILES * N;
    static constexpr int A_BYTES = M_TILES * BOX_BYTES, STAGE_BYTES = A_BYTES + ROWS / BOX * BOX_BYTES;
    static constexpr int STAGES = direct_wgmma_stages(M_TILES * MMA_M), STEPS = DIRECT_K_BYTES / MMA_K_BYTES;
    static_assert(ROWS == direct_wgmma_rows(M_TILES * MMA_M) &&
                      STAGE_BYTES == direct_wgmma_stage_bytes(M_TILES * MMA_M),
                  "as the host counts");

    /* Both operands' descriptors: rows of 128 bytes in TMA's swizzle, eight of them one after another (PTX ISA, "Matrix
     * Descriptor Format"). */
    static constexpr uint64_t SWIZZLED = (uint64_t)(1u << 30 | 8 * 128 / 16) << 32;
    static constexpr uint32_t A_STEP = MMA_K_BYTES / 16;                      /* along a pixel's channels */
    static constexpr uint32_t B_STEP = MMA_K_BYTES / 2 * DIRECT_K_BYTES / 16; /* along rows of channels */
};

namespace
{

template <int M_TILES>
__device__ __forceinline__ void load(const direct_shape &of, const direct_tile &tile, const stage_ring &ring,
                                     const CUtensorMap *src, const CUtensorMap *weights)
{
    using Shape = wgmma_shape<M_TILES>;
    const int first = tile.group * of.channels;
    const auto load_weights = [&](const stage_walk &stage, int channel) {
        mbarrier_arrive_expect_tx(stage.full(), Shape::STAGE_BYTES);
#pragma unroll
        for (int i = 0; i < Shape::ROWS / BOX; i++)
            tma_load(stage.buffer() + Shape::A_BYTES + i * BOX_BYTES, weights, tile.row + i * BOX, first + channel, 0,
                     0, stage.full());
    };
    const auto load_src = [&](const stage_walk &stage, int channel) {
        tma_load(stage.buffer(), src, first + channel, tile.pixel, 0, 0, stage.full());
    };
    /* The first stages' weights are on their way before src is waited for. */
    stage_walk ahead(ring, 1), stage(ring, 1);
    int channel = tile.first_channel, asked = channel;
    for (int i = 0; i < Shape::STAGES && asked < tile.end_channel; i++, asked += BOX, ahead.next())
        load_weights(ahead, asked);
    wait_for_weights(); /* and src */
#pragma unroll 1
    for (; channel < tile.end_channel; channel += BOX, stage.next()) {
        if (channel >= asked) {
            stage.wait_empty();
            load_weights(stage, channel);
        }
        load_src(stage, channel);
    }
}

template <wgmma_type TYPE, int M_TILES>
__device__ __forceinline__ void multiply(const direct_shape &of, const direct_tile &tile, const stage_ring &ring,
                                         int warp, int lane)
{
    using Shape = wgmma_shape<M_TILES>;
    const int warpgroup = warp / WARPGROUP_WARPS;
    const auto m_tile = [&](int i) { return M_TILES == 4 ? warpgroup * 2 + i : M_TILES == 2 ? warpgroup : 0; };
    const auto n_tile = [&](int i) { return M_TILES == 4 ? 0 : M_TILES == 2 ? i : warpgroup * 2 + i; };
    float sums[MMA_TILES][N / 2];
    int accumulate = 0;
    uint32_t release = 0; /* the empty barrier of the stage before */
    const bool signals = (int)threadIdx.x % (WARPGROUP_WARPS * WARP) == 0;
    stage_walk stage(ring, 0);
#pragma unroll 1
    for (int channel = tile.first_channel; channel < tile.end_channel; channel += BOX, stage.next()) {
        stage.wait_full();
        const uint32_t a = descriptor_address(stage.buffer()), b = a + Shape::A_BYTES / 16;
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < Shape::STEPS; step++)
#pragma unroll
            for (int i = 0; i < MMA_TILES; i++)
                wgmma_ss<TYPE, N>::add(sums[i],
                                       Shape::SWIZZLED | (a + m_tile(i) * BOX_BYTES / 16 + step * Shape::A_STEP),
                                       Shape::SWIZZLED | (uint32_t)BOX_BYTES / 16 << 16 |
                                           (b + n_tile(i) * 2 * BOX_BYTES / 16 + step * Shape::B_STEP),
                                       step > 0 ? 1 : accumulate);
        wgmma_commit();
        wgmma_wait<1>();
        mbarrier_arrive_unless_0(release);
        release = signals ? stage.empty() : 0;
        accumulate = 1;
    }
    wgmma_wait<0>();

    float *products = of.products + tile.part * of.part_pitch + tile.group * of.group_pitch;
#pragma unroll
    for (int i = 0; i < MMA_TILES; i++)
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            const int pixel =
                tile.pixel + m_tile(i) * MMA_M + warp % WARPGROUP_WARPS * WARP_M + lane / 4 + n / 2 % 2 * 8;
            const int row = tile.row + n_tile(i) * N + n / 4 * 8 + lane % 4 * 2 + n % 2;
            if (pixel < of.pixels && row < of.rows)
                products[row * of.row_pitch + pixel * of.pixel_pitch] = sums[i][n];
        }
}

template <wgmma_type TYPE, int M_TILES>
__global__ void TCONV_HOPPER_BOUNDS(THREADS)
    multiply_weights(const __grid_constant__ direct_shape of, const __grid_constant__ CUtensorMap src,
                     const __grid_constant__ CUtensorMap weights)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Shape = wgmma_shape<M_TILES>;
    extern __shared__ __align__(1024) char buffers[];
    __shared__ __align__(8) uint64_t barriers[STAGE_BARRIERS];
    launch_dependents();
    if (threadIdx.x == blockDim.x - 1) {
        prefetch_tensor_map(&src);
        prefetch_tensor_map(&weights);
    }
    const direct_tile tile = find_tile(of, (int)blockIdx.x);
    const stage_ring ring = {forgotten(shared_address(barriers)), forgotten(shared_address(buffers)),
                             Shape::STAGE_BYTES, Shape::STAGES};
    const int warp = warp_of_block(), lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        ring.init(1, WARPGROUPS);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (warp < CONSUMERS / WARP)
        multiply<TYPE, M_TILES>(of, tile, ring, warp, lane);
    else if (elected())
        load<M_TILES>(of, tile, ring, &src, &weights);
#endif
}

template <wgmma_type TYPE> const void *choose_kernel(int tile_pixels)
{
    return tile_pixels == 4 * MMA_M   ? (const void *)multiply_weights<TYPE, 4>
           : tile_pixels == 2 * MMA_M ? (const void *)multiply_weights<TYPE, 2>
                                      : (const void *)multiply_weights<TYPE, 1>;
}

} // namespace

const void *tconv_gemm_col2im_wgmma_kernel(numerics kind, int tile_pixels)
{
    return kind == NUMERICS_F16 ? choose_kernel<WGMMA_F16_MN_MAJOR>(tile_pixels)
                                : choose_kernel<WGMMA_BF16_MN_MAJOR>(tile_pixels);
}

} // namespace tconv::gemm_col2im
