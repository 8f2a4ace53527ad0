/* A block has the tile and the part of the pixels of one of the products, and as many threads as sum there: each adds
 * the outputs that it has there, in that order, but straight from global memory. */
#include "slot_pass.h"

#include "warpgroup_kernel.cuh"

namespace tconv::wgrad
{

namespace
{

/* The outputs of a K-tile for a block, wherever they lie. */
template <class Element> struct outputs {
    const parameters &p;
    const Element *data; /* of the block's first channel */
    int column, row, image, channels;

    __device__ __forceinline__ outputs(const parameters &p_, const block_tile &block, const k_walk &at)
        : p(p_), column(at.column * p_.columns.stride), row(at.row * p_.rows.stride), image(at.image)
    {
        const int64_t first = block.at.chunk * p.tiles.chunk;
        data =
            static_cast<const Element *>(p.diff_dst) + (block.at.group * p.tiles.group_out + first) * p.dst_strides.c;
        channels = (int)min(p.tiles.group_out - first, p.tiles.chunk);
    }
    /* The output of a channel at a place, so many columns on; 0 where there is none. */
    __device__ __forceinline__ Element at(const place &from, int columns, int channel) const
    {
        const int64_t x = column + from.column + columns, y = row + from.row, n = image + from.image;
        const bool exists =
            x >= 0 && x < p.columns.out && y >= 0 && y < p.rows.out && n < p.images.in && channel < channels;
        return exists
                   ? data[n * p.dst_strides.n + channel * p.dst_strides.c + y * p.dst_strides.h + x * p.dst_strides.w]
                   : static_cast<Element>(0.0f);
    }
};

/* slot_sums::add. */
template <class Element>
__device__ __forceinline__ void add_outputs(slot_sums<Element> &sums, const parameters &p, const block_tile &block,
                                            crew by, const outputs<Element> &from)
{
    constexpr int AT_ONCE = SLOTS_AT_ONCE;
    const auto share = slot_sums<Element>::share_of(p, by);
    if (share.first >= share.rows)
        return;
    for (int i = share.first; i < block.slots; i += AT_ONCE * share.rows) {
        element_vector<Element, SLOT_CHANNELS> loaded[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int slot = i + j * share.rows;
            const place at = find_slot(p, block, min(slot, block.slots - 1), 0);
#pragma unroll
            for (int c = 0; c < SLOT_CHANNELS; c++)
                loaded[j].at[c] = slot < block.slots ? from.at(at, 0, share.channel + c) : static_cast<Element>(0.0f);
        }
        add_slots(sums.at, loaded);
    }
}

/* line_sums::add. */
template <class Element>
__device__ __forceinline__ void add_outputs(line_sums<Element> &sums, const parameters &p, const block_tile &block,
                                            crew by, const outputs<Element> &from)
{
    constexpr int LENGTH = access_length<Element>;
    const auto share = line_sums<Element>::share_of(p, by);
    const int vectors = (p.columns.stride << p.columns.tile_log2) / LENGTH, rows = line_rows(p, block);
    if (share.channel >= (int)p.tiles.chunk)
        return;
    for (int row = 0; row < rows; row++) {
        const place line = find_line<Element>(p, block, row);
        for (int j = share.first; j < vectors; j += share.threads) {
            element_vector<Element, LENGTH> loaded;
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                loaded.at[i] = from.at(line, j * LENGTH + i, share.channel);
            sums.add_vector(loaded);
        }
    }
}

template <class Element, load_mode LOAD>
__global__ void __launch_bounds__(PRODUCERS) sum_slots_kernel(const __grid_constant__ parameters p)
{
    __shared__ __align__(16) char shared[PRODUCERS * SLOT_CHANNELS * sizeof(lossless_sum<float>)];
    const crew by = {(int)threadIdx.x, PRODUCERS};
    const block_work work = find_work(p);
    launch_dependents(); /* what adds the parts */
    const block_tile block = find_block(p, work.number);
    const auto [first, count] = find_k_tiles(p, work.split);
    std::conditional_t<LOAD == LINES, line_sums<Element>, slot_sums<Element>> sums;
    bias_turns turns = {(int)block.at.m_tile};
    k_walk walk;
    walk.begin(p, first);
    for (int k = 0; k < count; k++, walk.advance(p))
        if (turns.next(p))
            add_outputs(sums, p, block, by, outputs<Element>(p, block, walk));
    sums.template finish<PRODUCERS>(p, work, by, shared_address(shared));
}

} // namespace

const void *tconv_wgrad_slot_kernel(tconv_dtype dtype, load_mode load)
{
    if (load == CHANNELS)
        return (const void *)sum_slots_kernel<float, CHANNELS>;
    return dtype == TCONV_F32   ? (const void *)sum_slots_kernel<float, LINES>
           : dtype == TCONV_F16 ? (const void *)sum_slots_kernel<__half, LINES>
                                : (const void *)sum_slots_kernel<__nv_bfloat16, LINES>;
}

} // namespace tconv::wgrad
