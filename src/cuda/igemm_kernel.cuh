/*
 * The kernel of the implicit matrix product, for one type of factors (Mode) and N pixels to a unit.
 *
 * A persistent block of 16 warps computes tiles. Two warpgroups multiply; of the other eight warps one asks the copy engine
 * for boxes of src, one for slots of weights, four round or split f32 in place (or bring src themselves, where the copy engine
 * cannot), two store. A pixel of a stage is 32 to 128 bytes of channels, swizzled: as the copy engine brings NHWC, and as the
 * tensor cores take it. A tap is an offset into the stage, or has a stage of its own.
 *
 * Numeric order: chunks of channels, taps by rows, then channels, as the layer alone decides. In strict f32 each factor is
 * split, x = big + small, and small * big + big * small + big * big of a tap and chunk are summed by the tensor cores from
 * zero, and then added to f32 sums, with compensation where they may be many. Bias last.
 */
#ifndef TCONV_CUDA_IGEMM_KERNEL_CUH
#define TCONV_CUDA_IGEMM_KERNEL_CUH

#include "igemm_load.cuh"
#include "igemm_multiply.cuh"
#include "igemm_store.cuh"

namespace tconv_igemm
{

/* Of rows lane / 4 and lane / 4 + 8 of the warp's 16. */
template <class Element>
__device__ __forceinline__ void load_bias(const tconv_igemm_parameters &layer, const tile_place &tile, int first_channel,
                                          int lane, float (&bias)[2])
{
    const Element *from = static_cast<const Element *>(layer.bias) + tile.group * layer.group_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int channel = first_channel + lane / 4 + 8 * i;
        bias[i] = layer.bias != NULL && channel < layer.group_out ? to_compute(from[channel]) : 0.0f;
    }
}

/* Half of a warp's sums of a unit, from number `first` on, to its staging memory. */
template <class Mode, int N, int first>
__device__ __forceinline__ void stage(const tconv_igemm_parameters &layer, const float (&sums)[N / 2],
                                      const float (&bias)[2], char *staged, int lane)
{
    const typename Mode::Element type = {};
    if (layer.channels_last)
        stage_pixels<N, first>(sums, bias, staged, lane, type);
    else
        stage_rows<N, first>(sums, bias, staged, lane, type);
}

/* All of a warp's sums of a tile, for the warps that store. */
template <class Mode, int N>
__device__ __forceinline__ void hand_over(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                          const tile_place &tile, const all_sums<Mode, N> &sums, uint32_t *parity,
                                          int warp, int lane)
{
    using Element = typename Mode::Element;
    const int group = warp / GROUP_WARPS;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        const int buffer = layer.staged_turns == 2 ? turn % 2 : 0, place = 8 * (warp * STAGED_BUFFERS + buffer);
        char *staged = shared.staged + (warp * layer.staged_turns + buffer) * STAGED_BYTES<Element, N>;
        const block_place block = find_block(layer, tile, layer.unit_block[group][turn / 2]);
        float bias[2];
        load_bias<Element>(layer, tile, block.channel + warp % GROUP_WARPS * TCONV_IGEMM_STAGED, lane, bias);
        barrier_wait(shared.staged_empty + place, *parity >> buffer & 1);
        *parity ^= 1 << buffer;
        if (turn % 2 == 0)
            stage<Mode, N, 0>(layer, sums.of[turn / 2], bias, staged, lane);
        else
            stage<Mode, N, N / 4>(layer, sums.of[turn / 2], bias, staged, lane);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(shared.staged_full + place);
    }
}

template <class Mode, int N>
__device__ __forceinline__ void consume(const tconv_igemm_parameters &layer, const shared_layout &shared, int warp,
                                        int lane)
{
    constexpr uint32_t EMPTY = 8 * TCONV_IGEMM_STAGES; /* from a buffer's full to its empty barrier */
    all_sums<Mode, N> sums;
    const int group = warp / GROUP_WARPS;
    const bool signals = (int)threadIdx.x % (GROUP_WARPS * WARP) == 0;
    buffer_walk stage(shared.stage_full, shared.stages, layer.stage_bytes, layer.stages);
    buffer_walk slot(shared.slot_full, shared.slots, layer.slot_bytes, layer.slots);
    uint32_t staged_parity = ~0u; /* a bit for each buffer */

    factors at;
    uint32_t first_weights[UNITS], first_pixels[UNITS];
    const int quads = layer.row_bytes / TCONV_IGEMM_QUAD;
    at.pixels_high = swizzled_high(layer.row_bytes);
    at.weights_small = PRODUCT_BYTES / 16;
    at.pixels_small = layer.plane_bytes / 16;
#pragma unroll
    for (int unit = 0; unit < UNITS; unit++) {
        first_weights[unit] =
            operand_low(0, PRODUCT_HALF) + layer.unit_block[group][unit] * layer.steps * WEIGHTS_STEP<Mode>;
        first_pixels[unit] = operand_low(0, 16) + layer.unit_pixel[group][unit] * quads;
    }

    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        tap_walk tap(layer, tile);
        const int taps = tap.count();
        pending_release pending = {0, 0};
        int accumulate = 0;
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
#pragma unroll 1
            for (int i = 0; i < taps; i++) {
                uint32_t shift = 0;
                if (layer.per_tap || i == 0)
                    barrier_wait(stage.barrier, stage.parity);
                if (!layer.per_tap)
                    shift = ((row_shift(layer, tile, tap) - layer.first_row) * layer.pitch +
                             column_shift(layer, tile, tap) - layer.first_column) *
                            quads;
                barrier_wait(slot.barrier, slot.parity);
#pragma unroll
                for (int unit = 0; unit < UNITS; unit++) {
                    at.weights[unit] = first_weights[unit] + slot.buffer;
                    at.pixels[unit] = first_pixels[unit] + stage.buffer + shift;
                }
                multiply_slot<Mode, N>(sums, at, layer.steps, accumulate);
                pending.release();
                accumulate = 1;
                pending.slot = signals ? slot.barrier + EMPTY : 0;
                slot.next();
                if (layer.per_tap || i == taps - 1) {
                    pending.stage = signals ? stage.barrier + EMPTY : 0;
                    stage.next();
                }
                tap.next();
            }
        }
        products_wait<0>();
        pending.release();
        hand_over<Mode, N>(layer, shared, tile, sums, &staged_parity, warp, lane);
    }
}

__device__ __forceinline__ shared_layout lay_out(const tconv_igemm_parameters &layer, uint64_t *barriers, char *buffers)
{
    const uint32_t each = 8 * TCONV_IGEMM_STAGES, first = shared_address(barriers), memory = shared_address(buffers);
    shared_layout shared;
    shared.stage_full = first;
    shared.stage_empty = first + each;
    shared.slot_full = first + 2 * each;
    shared.slot_empty = first + 3 * each;
    shared.box_full = first + 4 * each;
    shared.staged_full = first + 5 * each;
    shared.staged_empty = shared.staged_full + 8 * CONSUMER_WARPS * STAGED_BUFFERS;
    shared.stages = memory;
    shared.slots = shared.stages + layer.stages * layer.stage_bytes;
    shared.staged = buffers + layer.stages * layer.stage_bytes + layer.slots * layer.slot_bytes;
    return shared;
}

__device__ __forceinline__ void init_barriers(const shared_layout &shared, int stage_arrivals)
{
    for (int i = 0; i < TCONV_IGEMM_STAGES; i++) {
        barrier_init(shared.stage_full + 8 * i, stage_arrivals);
        barrier_init(shared.stage_empty + 8 * i, TCONV_IGEMM_GROUPS);
        barrier_init(shared.slot_full + 8 * i, 1);
        barrier_init(shared.slot_empty + 8 * i, TCONV_IGEMM_GROUPS);
        barrier_init(shared.box_full + 8 * i, 1);
    }
    for (int i = 0; i < CONSUMER_WARPS * STAGED_BUFFERS; i++) {
        barrier_init(shared.staged_full + 8 * i, 1);
        barrier_init(shared.staged_empty + 8 * i, 1);
    }
    barrier_init_done();
}

/* The kernel needs sm_90a. Elsewhere it is empty and, so that the host can tell, made for one warp. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TCONV_IGEMM_BOUNDS __launch_bounds__(TCONV_IGEMM_THREADS, 1)
#else
#define TCONV_IGEMM_BOUNDS __launch_bounds__(32)
#endif

template <class Mode, int N>
__global__ void TCONV_IGEMM_BOUNDS igemm_layer(const __grid_constant__ tconv_igemm_parameters layer,
                                               const __grid_constant__ CUtensorMap map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char buffers[];
    __shared__ __align__(8) uint64_t barriers[BARRIERS];
    __shared__ int64_t outputs[TCONV_IGEMM_GROUPS][N / 2];
    const shared_layout shared = lay_out(layer, barriers, buffers);
    /* Through a shuffle, so that the compiler knows that it is one number for the warp. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / WARP, 0), lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == 0)
        init_barriers(shared, layer.by_boxes && !Mode::CONVERTS ? 1 : LOADERS);
    __syncthreads();
    if (warp < CONSUMER_WARPS) {
        grow_registers<Mode::CONSUMER_REGISTERS>();
        consume<Mode, N>(layer, shared, warp, lane);
    } else {
        shrink_registers<Mode::OTHER_REGISTERS>();
        const int role = warp - CONSUMER_WARPS;
        if (role < LOADERS) {
            if (!layer.by_boxes)
                gather<Mode>(layer, shared, role, lane);
            else if constexpr (Mode::CONVERTS)
                convert_boxes<Mode>(layer, shared, role, lane);
        } else if (role == BOX_WARP) {
            if (lane == 0 && layer.by_boxes)
                copy_boxes<Mode>(layer, &map, shared);
        } else if (role == SLOT_WARP) {
            if (lane == 0)
                copy_slots(layer, shared);
        } else {
            store_tiles<Mode, N>(layer, shared, outputs[role - FIRST_STORE_WARP], role - FIRST_STORE_WARP, lane);
        }
    }
#endif
}

} // namespace tconv_igemm

#endif
