/*
 * The boxes that TMA brings of every K-tile. A block finds their coordinates once, for the first K-tile. For each
 * K-tile every box is issued by a lane of its own, in few instructions: a warp executes the instructions of all its
 * boxes one after another, and that may take longer than the products.
 */
#ifndef TCONV_CUDA_WGRAD_TILE_BOX_CUH
#define TCONV_CUDA_WGRAD_TILE_BOX_CUH

#include "../ptx/mbarrier.cuh"
#include "../ptx/tma.cuh"
#include "load.cuh"

namespace tconv::wgrad
{

/* The tensor maps of the gradient of dst, and of src for LINES and BOXES. */
struct tensor_maps {
    CUtensorMap dst, src;
};

/* The offset of a box in a stage, and its coordinates in the tensor for the K-tile at the first input. */
struct alignas(16) tile_box {
    uint32_t to;
    int x, y, z;
};
static_assert(sizeof(tile_box) == BOX_TABLE_BYTES, "as planned");

/* Has TMA bring a box of the first images of a K-tile, of src or of the gradient of dst. */
static __device__ __forceinline__ void load_box(const parameters &p, const tile_box &box, const CUtensorMap *map,
                                                const k_walk &at, bool of_dst, uint32_t stage, uint32_t full)
{
    if (p.images.are_planes) {
        const image_at plane = find_plane(p, at, of_dst);
        tma_load(stage + box.to, map, box.x, box.y, box.z, plane.image, plane.volume, full);
    } else {
        tma_load(stage + box.to, map, box.x, box.y, box.z, at.image, full);
    }
}

/* The same for all blocks of a cluster. */
static __device__ __forceinline__ void share_box(const parameters &p, const tile_box &box, const CUtensorMap *map,
                                                 const k_walk &at, bool of_dst, uint32_t stage, uint32_t full)
{
    const uint16_t blocks = (uint16_t)((1 << p.sharers) - 1);
    if (p.images.are_planes) {
        const image_at plane = find_plane(p, at, of_dst);
        tma_load_multicast(stage + box.to, map, box.x, box.y, box.z, plane.image, plane.volume, full, blocks);
    } else {
        tma_load_multicast(stage + box.to, map, box.x, box.y, box.z, at.image, full, blocks);
    }
}

/* Return the box for another K-tile: a box of slots in NHWC, of lines, and of src in load mode LINES. */
__device__ __forceinline__ tile_box slots_at(const parameters &p, const tile_box &of, const k_walk &at)
{
    return {of.to, of.x, of.y + at.column * p.box_columns, of.z + at.row * p.rows.stride};
}
__device__ __forceinline__ tile_box lines_at(const parameters &p, const tile_box &of, const k_walk &at)
{
    return {of.to, of.x + at.column * p.columns.stride * p.lines.channels, of.y, of.z + at.row * p.rows.stride};
}
__device__ __forceinline__ tile_box src_at(const parameters &p, const tile_box &of, const k_walk &at)
{
    return {of.to, of.x + at.column + at.row * p.lines.src_row_columns, of.y,
            of.z + (p.lines.src_row_columns > 0 ? 0 : at.row)};
}

/* Finds the box of the slots of residue i in NHWC, from a channel on. Columns a stride apart may be neighbours to TMA, which then
 * finds those of a residue in the place of rows. */
static __device__ __forceinline__ tile_box find_slot_box(const parameters &p, const block_tile &block, int i,
                                                         int channel, uint32_t to)
{
    const int column = p.columns.least[block.column_first + i % block.column_residues];
    const int row = p.rows.least[block.row_first + i / block.column_residues];
    const int whole = column / p.columns.stride - (column % p.columns.stride < 0);
    const bool by_residue = p.box_columns < p.columns.stride;
    return {to, (int)(block.at.group * p.tiles.group_out + block.at.chunk * p.tiles.chunk) + channel,
            by_residue ? whole : column, by_residue ? column - whole * p.columns.stride : row};
}

/* Returns the number of a thread's box: boxes go to different warps first. There are fewer boxes than producers: a
 * block has at most 512 GEMM columns, and at least four channels of a tap where each pair of residues is a box. */
__device__ __forceinline__ int box_of(crew by)
{
    return by.thread / WARP + by.thread % WARP * (by.threads / WARP);
}

/* The box that a thread issues. The thread keeps one register for it, and its coordinates in shared memory: there are
 * no more registers. */
enum box_kind { OF_DST, OF_SRC, EXPECTED }; /* EXPECTED: a box of dst that another block of the cluster issues */
struct own_box {
    uint32_t place; /* the address of the box in shared memory, plus its kind; 0: the thread has no box */

    /* Has TMA bring the box to a stage, and the barrier `full` wait for it. */
    template <load_mode LOAD>
    __device__ __forceinline__ void load(const parameters &p, const tensor_maps *maps, const k_walk &at, uint32_t stage,
                                         uint32_t full) const
    {
        if (place == 0)
            return;
        const uint4 words = load_shared<uint4>(place & -(uint32_t)sizeof(tile_box));
        const tile_box first = {words.x, (int)words.y, (int)words.z, (int)words.w};
        if (place % sizeof(tile_box) == OF_SRC) {
            const tile_box box = src_at(p, first, at);
            mbarrier_expect_tx(full, p.lines.src_box_bytes);
            load_box(p, box, &maps->src, at, false, stage, full);
            return;
        }
        const tile_box box = LOAD == LINES ? lines_at(p, first, at) : slots_at(p, first, at);
        mbarrier_expect_tx(full, p.box_bytes);
        if (p.sharers == 1)
            load_box(p, box, &maps->dst, at, true, stage, full);
        else if (place % sizeof(tile_box) == OF_DST)
            share_box(p, box, &maps->dst, at, true, stage, full);
    }
};

} // namespace tconv::wgrad

#endif
