/* The epilogue where the blocks of a cluster share out the K-blocks of a tile (split-K): each stages its accumulators in its
 * shared memory, and reads there, in the others' too, the part of the tile that it adds and stores. The blocks' sums are
 * added in their order, so that the result does not depend on which block is first. */
#ifndef TCONV_CUDA_IGEMM_CLUSTER_CUH
#define TCONV_CUDA_IGEMM_CLUSTER_CUH

#include "epilogue.cuh"

namespace tconv::igemm
{

constexpr int CONSUMERS = CONSUMER_WARPS * WARP; /* threads */

/* The sums of a tile are staged pixel by pixel in NHWC, and row of M by row of M in NCHW, so far apart that neighbouring lanes do
 * not meet in a bank. */
struct staged_sums {
    uint32_t first;
    int pitch; /* sums from a pixel, or a row, to the next */
    __device__ __forceinline__ staged_sums(const parameters &layer, uint32_t memory)
        : first(memory), pitch(layer.cluster_pitch)
    {
    }
    __device__ __forceinline__ uint32_t at(int line, int of_line) const
    {
        return first + (line * pitch + of_line) * (int)sizeof(float);
    }
};

/* Stages a warp's accumulators, those of the first block with their bias. */
template <class Mode, int N>
__device__ __forceinline__ void stage_for_cluster(const parameters &layer, const float (&sums)[Mode::MMA_TILES][N / 2],
                                                  const tile_record &tile, const staged_sums &staged, int warp,
                                                  int lane)
{
    const int warpgroup = warp / WARPGROUP_WARPS, pixel = lane % 4 * 2;
    const int of_m_tile = warp % WARPGROUP_WARPS * WARP_M + lane / 4;
    const bool is_first = blockIdx.x % layer.cluster_blocks == 0;
#pragma unroll
    for (int mma = 0; mma < Mode::MMA_TILES; mma++) {
        if (layer.mma_pixel[warpgroup][mma] >= layer.stage_pixels)
            continue; /* it has no positions */
        const int position = layer.mma_position[warpgroup][mma] + pixel, m_tile = layer.mma_m_tile[warpgroup][mma];
        const int row = m_tile * MMA_M + of_m_tile;
        const float bias[2] = {is_first ? tile.bias[m_tile][of_m_tile] : NO_BIAS,
                               is_first ? tile.bias[m_tile][of_m_tile + 8] : NO_BIAS};
#pragma unroll
        for (int i = 0; i < N / 2; i += 2) {
            const int of_row = row + i / 2 % 2 * 8, of_position = position + i / 4 * 8;
            const float2 pair = finish_pair(sums[mma][i], sums[mma][i + 1], bias[i / 2 % 2]);
            if (layer.dst_channels_last) {
                store_shared(staged.at(of_position, of_row), pair.x);
                store_shared(staged.at(of_position + 1, of_row), pair.y);
            } else {
                store_shared(staged.at(of_row, of_position), pair);
            }
        }
    }
}

/* Adds the sums at an address of all blocks' memory, a vector at a time. In strict f32 they are added in double. */
template <class Mode> using cluster_sum = std::conditional_t<Mode::STRICT, double, float>;
template <class Mode, int count>
__device__ __forceinline__ void add_staged(cluster_sum<Mode> (&sums)[count], uint32_t address, int blocks)
{
    constexpr int LENGTH = VECTOR_BYTES / (int)sizeof(float);
#pragma unroll
    for (int first = 0; first < count; first += LENGTH) {
        element_vector<float, LENGTH> loaded[MAX_CLUSTER_BLOCKS];
#pragma unroll
        for (int block = 0; block < MAX_CLUSTER_BLOCKS; block++)
            if (block < blocks)
                loaded[block] =
                    load_cluster<element_vector<float, LENGTH>>(address + first * (int)sizeof(float), block);
#pragma unroll
        for (int block = 0; block < MAX_CLUSTER_BLOCKS; block++)
            if (block < blocks)
#pragma unroll
                for (int i = 0; i < LENGTH; i++)
                    sums[first + i] = block == 0 ? loaded[block].at[i] : sums[first + i] + loaded[block].at[i];
    }
}

/* Stores the block's part of a tile in NHWC: every so many-th pixel, vectors of channels. */
template <class Mode>
__device__ __forceinline__ void store_cluster_pixels(const parameters &layer, const tile_record &tile,
                                                     const int64_t *offset_table, const staged_sums &staged, int thread)
{
    using Element = typename Mode::Output;
    constexpr int LENGTH = VECTOR_BYTES / (int)sizeof(Element);
    const int blocks = layer.cluster_blocks, rank = (int)blockIdx.x % blocks;
    const int vectors = layer.m_tiles * (MMA_M / LENGTH), row = thread % vectors * LENGTH; /* powers of two */
    const int m_tile = row / MMA_M, of_m_tile = row % MMA_M, channels = tile.channels[m_tile] - of_m_tile;
    char *const dst = static_cast<char *>(layer.dst) + offset_of_row<Element>(layer, tile, m_tile, of_m_tile);
    if (channels <= 0)
        return;
#pragma unroll 1
    for (int pixel = rank + blocks * (thread / vectors); pixel < layer.block_n;
         pixel += blocks * (CONSUMERS / vectors)) {
        if (offset_table[pixel] < 0)
            continue;
        cluster_sum<Mode> sums[LENGTH];
        element_vector<Element, LENGTH> outputs;
        add_staged<Mode>(sums, staged.at(pixel, row), blocks);
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            outputs.at[i] = finish_total<Element>(sums[i]);
        Element *const to = reinterpret_cast<Element *>(dst + offset_table[pixel]);
        if (layer.store_vectors)
            *reinterpret_cast<element_vector<Element, LENGTH> *>(to) = outputs;
        else
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                if (i < channels)
                    to[i] = outputs.at[i];
    }
}

/* Stores the block's part of a tile in NCHW: every so many-th row of M, of which a lane adds four neighbouring pixels. */
template <class Mode>
__device__ __forceinline__ void store_cluster_rows(const parameters &layer, const tile_record &tile,
                                                   const int64_t *offset_table, const staged_sums &staged, int warp,
                                                   int lane)
{
    using Element = typename Mode::Output;
    constexpr int PIXELS = VECTOR_BYTES / (int)sizeof(float);
    const int blocks = layer.cluster_blocks, rank = (int)blockIdx.x % blocks;
#pragma unroll 1
    for (int row = rank + blocks * warp; row < layer.m_tiles * MMA_M; row += blocks * CONSUMER_WARPS) {
        const int m_tile = row / MMA_M, of_m_tile = row % MMA_M;
        if (of_m_tile >= tile.channels[m_tile])
            continue;
        char *const dst = static_cast<char *>(layer.dst) + offset_of_row<Element>(layer, tile, m_tile, of_m_tile);
#pragma unroll 1
        for (int pixel = lane * PIXELS; pixel < layer.block_n; pixel += WARP * PIXELS) {
            cluster_sum<Mode> sums[PIXELS];
            add_staged<Mode>(sums, staged.at(row, pixel), blocks);
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
                if (offset_table[pixel + i] >= 0)
                    *reinterpret_cast<Element *>(dst + offset_table[pixel + i]) = finish_total<Element>(sums[i]);
        }
    }
}

/* Stores a tile whose K-blocks the blocks of the cluster have shared out. memory: that of the stages, which none uses any
 * more once the consumers have met. */
template <class Mode, int N>
__device__ __forceinline__ void store_by_cluster(const parameters &layer, const float (&sums)[Mode::MMA_TILES][N / 2],
                                                 const tile_record &tile, const int64_t *offset_table, uint32_t memory,
                                                 int warp, int lane)
{
    const staged_sums staged(layer, memory);
    wgmma_wait<0>(); /* as was done before, but without it ptxas serializes all products */
    named_barrier_sync<CONSUMERS, 5>();
    stage_for_cluster<Mode, N>(layer, sums, tile, staged, warp, lane);
    cluster_sync();
    if (layer.dst_channels_last)
        store_cluster_pixels<Mode>(layer, tile, offset_table, staged, warp * WARP + lane);
    else
        store_cluster_rows<Mode>(layer, tile, offset_table, staged, warp, lane);
    cluster_sync(); /* no block ends while another still reads what it has staged */
}

} // namespace tconv::igemm

#endif
