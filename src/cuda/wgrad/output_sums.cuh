/*
 * The gradient of the bias, summed by the warps of a kernel by boxes that multiply: products of the gradient of dst with ones, of
 * taps that together have each output once (plan_bias.c). Blocks whose tiles differ in input channels alone have the same
 * outputs, and take turns. Warps that neither multiply nor issue TMA write the block's partial sums, which bias.cu adds, and sum
 * the outputs before that no K-tile has.
 *
 * Numeric order: of a tap and a channel as the weights, what no K-tile has output by output; then the taps of a block, in double.
 */
#ifndef TCONV_CUDA_WGRAD_OUTPUT_SUMS_CUH
#define TCONV_CUDA_WGRAD_OUTPUT_SUMS_CUH

#include "../gemm/pipeline.cuh"
#include "slot_bias.cuh"

namespace tconv::wgrad
{

constexpr int WRITERS = 3 * WARP; /* threads that write partial sums */

/* A block keeps these behind its tables: the sum of each of so many pairs, and the ones. */
struct output_memory {
    uint32_t sums, ones;
};

template <int PAIRS>
__device__ __forceinline__ output_memory find_output_memory(const parameters &p, const stage_ring &ring)
{
    const uint32_t ones = ring.end() + p.table_bytes - ONES_BYTES;
    return {ones - PAIRS * (int)sizeof(float), ones};
}

/* Fills this memory. The caller has to synchronise. */
template <class Element, int PAIRS>
__device__ __forceinline__ void begin_output_sums(const parameters &p, const stage_ring &ring)
{
    if (p.bias_parts == NULL)
        return;
    static_assert(PAIRS <= BOX_BLOCK_THREADS, "a thread has one");
    const output_memory memory = find_output_memory<PAIRS>(p, ring);
    if (threadIdx.x < PAIRS)
        store_shared(memory.sums + threadIdx.x * (int)sizeof(float), 0.0f);
    using Vector = element_vector<Element, access_length<Element>>;
    if (threadIdx.x < ONES_BYTES / sizeof(Vector)) {
        Vector ones;
#pragma unroll
        for (int i = 0; i < access_length<Element>; i++)
            ones.at[i] = static_cast<Element>(1.0f);
        store_shared(memory.ones + threadIdx.x * (int)sizeof(Vector), ones);
        fence_proxy_async(); /* wgmma reads them */
    }
}

/* A thread's sums: of two of the 64 pairs of each of M tiles, in every other register. */
template <wgmma_type TYPE, int M> struct output_sums {
    float at[M][4] = {};
    uint32_t tiles = 0; /* a bit for each of them whose tap counts */
    bias_turns turns;

    __device__ __forceinline__ output_sums(const block_tile &block) : turns{(int)block.at.m_tile}
    {
    }

    __device__ __forceinline__ void include(const parameters &p, int m, const pair_places &tap)
    {
        if (p.bias_parts != NULL && tap.exists)
            tiles |= (p.counting_rows >> tap.row & p.counting_columns >> tap.column & 1) << m;
    }

    /* Adds a K-tile of STEPS products, whose operand for a tile and a step `slots` returns. */
    template <int STEPS, class Slots>
    __device__ __forceinline__ void add(const parameters &p, uint32_t ones, const Slots &slots)
    {
        /* The distance from eight rows of the operand to the next, whichever field has it. */
        constexpr uint64_t HALF = ONES_BYTES / 2 / 16;
        if (!turns.next(p) || tiles == 0)
            return;
#pragma unroll
        for (int m = 0; m < M; m++)
            if (tiles >> m & 1)
#pragma unroll
                for (int s = 0; s < STEPS; s++)
                    wgmma_ss<TYPE, 8>::add(at[m], slots(m, s), HALF << 32 | HALF << 16 | descriptor_address(ones), 1);
    }

    /* Adds the sums to those in shared memory, in one lane of each four. sums: of the lane's first pair. */
    __device__ __forceinline__ void flush(uint32_t sums, int lane)
    {
        constexpr int APART[2] = {MMA_M * (int)sizeof(float), WARP_M / 2 * (int)sizeof(float)};
        if (tiles == 0)
            return;
        float held[M][2];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                held[m][j] = load_shared<float>(sums + m * APART[0] + j * APART[1]);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                if (lane % 4 == 0)
                    store_shared(sums + m * APART[0] + j * APART[1], held[m][j] + at[m][2 * j]);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                at[m][i] = 0;
    }
};

constexpr int REST_CHANNELS = 8; /* of a thread that sums outputs which no K-tile has */

/* Adds the block's share of the outputs that its K-tiles do not sum: the rows below, and the columns on the right of the other
 * rows. They are read where they lie. */
template <class Element, bool vectors>
__device__ __forceinline__ void add_rest(const parameters &p, const bias_part &part, const tile_at &tile, int thread,
                                         float (&sums)[REST_CHANNELS])
{
    const int threads = (int)p.tiles.chunk / REST_CHANNELS, lanes = WRITERS / threads;
    const int lane = thread / threads, channel = thread % threads * REST_CHANNELS;
    const int below = (p.rows.out - p.counted_rows) * p.columns.out, side = p.columns.out - p.counted_columns;
    const int each = below + p.counted_rows * side; /* of an image */
    if (lane >= lanes || channel >= part.channels)
        return;
    const Element *data = static_cast<const Element *>(p.diff_dst) +
                          (tile.group * p.tiles.group_out + tile.chunk * p.tiles.chunk + channel) * p.dst_strides.c;
    const int64_t step = (int64_t)p.splits * p.tiles.m_tiles * p.tiles.rows.groups * p.tiles.columns.groups * lanes;
#pragma unroll 1
    for (int64_t i = part.number * lanes + lane; i < (int64_t)p.images.out * each; i += step) {
        const int image = (int)i / each, rest = (int)i - image * each;
        const bool is_below = rest < below;
        const int width = is_below ? p.columns.out : side, number = is_below ? rest : rest - below;
        const int row = number / width, column = number - row * width;
        const Element *from = data + image * p.dst_strides.n +
                              (row + (is_below ? p.counted_rows : 0)) * p.dst_strides.h +
                              (column + (is_below ? 0 : p.counted_columns)) * p.dst_strides.w;
        element_vector<Element, REST_CHANNELS> loaded;
        if constexpr (vectors) {
            const uint4 words = __ldg(reinterpret_cast<const uint4 *>(from));
            memcpy(&loaded, &words, sizeof words);
        } else {
#pragma unroll
            for (int j = 0; j < REST_CHANNELS; j++)
                loaded.at[j] = from[j * p.dst_strides.c];
        }
#pragma unroll
        for (int j = 0; j < REST_CHANNELS; j++)
            sums[j] += static_cast<float>(loaded.at[j]);
    }
}

/* Adds what threads have of that to the sums in shared memory, which no other threads use any more: one lane after the other. */
static __device__ __forceinline__ void keep_rest(const parameters &p, uint32_t sums, int thread,
                                                 const float (&rest)[REST_CHANNELS])
{
    const int threads = (int)p.tiles.chunk / REST_CHANNELS, lanes = WRITERS / threads;
    const uint32_t to = sums + thread % threads * REST_CHANNELS * (int)sizeof(float);
#pragma unroll 1
    for (int lane = 0; lane < lanes; lane++) {
        if (thread / threads == lane)
#pragma unroll
            for (int j = 0; j < REST_CHANNELS; j++)
                store_shared(to + j * (int)sizeof(float), load_shared<float>(to + j * (int)sizeof(float)) + rest[j]);
        named_barrier_sync<WRITERS, 5>();
    }
}

/* Writes the block's partial sums, once all threads that multiply have handed theirs over. */
template <class Element, int PAIRS, int threads, bool vectors>
__device__ __forceinline__ void write_output_sums(const parameters &p, const block_work &work, uint32_t sums,
                                                  int thread)
{
    const bias_part part = find_bias_part(p, work);
    const bool has_rest = p.counted_rows < p.rows.out || p.counted_columns < p.columns.out;
    float rest[REST_CHANNELS] = {};
    if (has_rest)
        add_rest<Element, vectors>(p, part, find_tile(p.by, (int)work.number), thread, rest);
    wait_for_handover<threads + WRITERS>();
    if (has_rest)
        keep_rest(p, sums, thread, rest);
#pragma unroll 1
    for (int c = thread; c < part.channels; c += WRITERS) {
        double sum = 0;
#pragma unroll 1
        for (int pair = c; pair < PAIRS; pair += (int)p.tiles.chunk)
            sum += (double)load_shared<float>(sums + pair * (int)sizeof(float));
        part.to[c] = make_double2(sum, 0);
    }
}

} // namespace tconv::wgrad

#endif
