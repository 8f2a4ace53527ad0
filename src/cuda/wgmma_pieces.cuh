/* Boxes of planes that are operands as they lie, of a src that the copy engine cannot read: the warps that would convert copy
 * them to where it would have put them, in pieces of 8 or 4 bytes, which is how planes must be aligned. */
#ifndef TCONV_CUDA_WGMMA_PIECES_CUH
#define TCONV_CUDA_WGMMA_PIECES_CUH

#include "access.cuh"
#include "wgmma_tile.cuh"

namespace tconv_wgmma
{

constexpr int ROW_BYTES = 128; /* of a channel in a swizzled box */

/* Where in its box a channel's 16 bytes lie that `at` is in: the copy engine's swizzle of 128 bytes. */
__device__ __forceinline__ uint32_t swizzled(int channel, int at)
{
    return channel * ROW_BYTES + (at ^ (channel & 7) * 16);
}

/* A warp's boxes of which pieces are under way. They are told to be full in the order in which they were asked for, all but
 * the last few at once: fewer than there are boxes, since who waits for an empty one tells of no other. */
struct boxes_under_way {
    static constexpr int MOST = 3;
    int count, at;
    __device__ __forceinline__ void tell(const tconv_wgmma_parameters &layer, const shared_layout &shared, int lane)
    {
        fence_for_async_proxy();
        __syncwarp();
        if (lane == 0)
            barrier_arrive(shared.box_full + 8 * at);
        at = at + 1 == layer.boxes ? 0 : at + 1;
    }
    /* After the last piece of a box. */
    __device__ __forceinline__ void add(const tconv_wgmma_parameters &layer, const shared_layout &shared, int lane)
    {
        const int most = min(layer.boxes - 1, MOST);
        copy_async_commit();
        if (count < most) {
            count++;
            return;
        }
        if (most == 3)
            copy_async_wait<3>();
        else if (most == 2)
            copy_async_wait<2>();
        else
            copy_async_wait<1>();
        tell(layer, shared, lane);
    }
    __device__ __forceinline__ void finish(const tconv_wgmma_parameters &layer, const shared_layout &shared, int lane)
    {
        copy_async_wait<0>();
        for (; count > 0; count--)
            tell(layer, shared, lane);
    }
};

/* Columns beyond the tile are left as they are: their sums are not stored. */
template <class Mode, int bytes>
__device__ __forceinline__ void copy_pieces(const tconv_wgmma_parameters &layer, const shared_layout &shared, int warp,
                                            int lane)
{
    using Element = typename Mode::Element;
    constexpr int element = sizeof(Element), ROW_PIECES = ROW_BYTES / bytes;
    constexpr int AT_ONCE = CONVERTERS * WARP / ROW_PIECES; /* channels */
    const int own = warp * WARP + lane, first_channel = own / ROW_PIECES, at = own % ROW_PIECES * bytes;
    boxes_under_way copies = {0, 0};
    ring box = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int end = min(layer.tile_columns, layer.in_columns - tile.column);
        const Element *src = static_cast<const Element *>(layer.src) + tile.image * layer.src_image +
                             (int64_t)(tile.group * layer.group_in + first_channel) * layer.src_channel + tile.column;
        int channels = layer.group_in;
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            barrier_wait(shared.box_empty + 8 * box.at, box.parity);
            uint32_t to = shared.boxes + box.at * layer.box_bytes;
            for (int pixel = at / element; pixel < end; pixel += TCONV_WGMMA_BOX, to += layer.pixels_leading) {
                const int existing = min(bytes, (end - pixel) * element);
                const Element *from = src + pixel;
                for (int channel = first_channel; channel < layer.chunk_channels; channel += AT_ONCE) {
                    copy_async_piece<bytes>(to + swizzled(channel, at), from, channel < channels ? existing : 0);
                    from += AT_ONCE * layer.src_channel;
                }
            }
            copies.add(layer, shared, lane);
            box.next(layer.boxes);
            src += layer.chunk_channels * layer.src_channel;
            channels -= layer.chunk_channels;
        }
    }
    copies.finish(layer, shared, lane);
}

} // namespace tconv_wgmma

#endif
