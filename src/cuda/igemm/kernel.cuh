/*
 * The kernel of the implicit matrix product, for one type of factors (Mode) and N pixels to a unit.
 *
 * A persistent block of 16 warps computes tiles. Two warpgroups multiply; of the other eight warps one asks the copy engine
 * for boxes of src, one for slots of weights, two find where pixels go in dst. Four have what the layer needs: they split f32
 * in place, bring src where the copy engine cannot, or else store sums while the next tile is multiplied. A pixel of a stage is
 * 32 to 128 bytes of channels, swizzled: as the copy engine brings NHWC, and as the tensor cores take it. A tap is an offset
 * into the stage, or has a stage of its own.
 *
 * Numeric order: chunks of channels, taps by rows, then channels, as the layer alone decides. In strict f32 each factor is
 * split, x = big + small, and small * big + big * small + big * big of a tap and chunk are summed by the tensor cores from
 * zero, and then added to f32 sums, with compensation where they may be many. Bias last.
 */
#ifndef TCONV_CUDA_IGEMM_KERNEL_CUH
#define TCONV_CUDA_IGEMM_KERNEL_CUH

#include "../gemm/pipeline.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/wgmma.cuh"
#include "epilogue_warps.cuh"
#include "load.cuh"
#include "mainloop.cuh"

namespace tconv::igemm
{

/* Where a warpgroup's factors lie in any buffer, and how far a tap's are from another's. */
template <class Mode> struct factor_places {
    uint32_t weights[Mode::UNITS], pixels[Mode::UNITS], high;
    int quads, row_step, column_step;
    __device__ __forceinline__ factor_places(const tconv_igemm_parameters &layer, int group)
        : high(swizzled_high(layer.row_bytes, layer.across > 0 ? layer.pitch : TCONV_IGEMM_ROW)),
          quads(layer.row_bytes / TCONV_IGEMM_QUAD), row_step(layer.row_step * layer.pitch * quads),
          column_step(layer.column_step * quads)
    {
#pragma unroll
        for (int unit = 0; unit < Mode::UNITS; unit++) {
            weights[unit] =
                descriptor_low(0, PRODUCT_HALF) + layer.unit_block[group][unit] * layer.steps * WEIGHTS_STEP<Mode>;
            pixels[unit] = descriptor_low(0, 16) + layer.unit_pixel[group][unit] * quads;
        }
    }
};

/* All products of a tile. Uneven: a unit may lack column taps that the other has. */
template <class Mode, int N, bool uneven>
__device__ __forceinline__ void multiply_tile(const tconv_igemm_parameters &layer, const tile_record &tile, int group,
                                              bool has_pixels, bool signals, consumer_state &stage,
                                              consumer_state &slot, all_sums<Mode, N> &sums)
{
    constexpr uint32_t EMPTY = 8 * TCONV_IGEMM_STAGES; /* from a buffer's full to its empty barrier */
    const factor_places<Mode> places(layer, group);
    tap_walk tap(tile);
    const int taps = tap.count(), first_shift = tile.first_shift * places.quads;
    pending_release pending = {0, 0};
    int accumulate = 0;
    factors<Mode> at;
    at.pixels_high = places.high;
    at.weights_small = PRODUCT_BYTES / 16;
    at.pixels_small = layer.plane_bytes / 16;
#pragma unroll 1
    for (int chunk = 0; chunk < layer.chunks; chunk++) {
#pragma unroll 1
        for (int left = taps; left > 0; left -= layer.slot_taps) {
            if (layer.per_tap || left == taps)
                wait_for_stage<Mode::STRICT>(stage.barrier, stage.parity, pending);
            wait_for_stage<Mode::STRICT>(slot.barrier, slot.parity, pending);
            const int slot_taps = min(left, layer.slot_taps);
            uint32_t weights = slot.buffer;
#pragma unroll 1
            for (int i = 0; i < slot_taps; i++) {
                const uint32_t shift =
                    layer.per_tap ? 0 : first_shift - tap.row * places.row_step - tap.column * places.column_step;
#pragma unroll
                for (int unit = 0; unit < Mode::UNITS; unit++) {
                    at.weights[unit] = places.weights[unit] + weights;
                    at.pixels[unit] = places.pixels[unit] + stage.buffer + shift;
                }
                if (has_pixels) {
                    if constexpr (uneven)
                        multiply_tap<Mode, N>(layer, sums, at, tap.column, accumulate);
                    else
                        multiply_slot<Mode, N, 0, Mode::UNITS>(sums, at, layer.steps, accumulate);
                }
                accumulate = 1;
                weights += layer.slot_bytes / 16;
                tap.next();
            }
            if (!Mode::STRICT && has_pixels)
                wait_for_taps_before(slot_taps);
            pending.release(); /* before anything else: who fills these may be waiting */
            pending.a = signals ? slot.barrier + EMPTY : 0;
            slot.next();
            if (layer.per_tap || left <= layer.slot_taps) {
                pending.b = signals ? stage.barrier + EMPTY : 0;
                stage.next();
            }
            if (Mode::STRICT) /* whose products have been waited for */
                pending.release();
        }
    }
    wgmma_wait<0>();
    pending.release();
}

template <class Mode, int N>
__device__ __forceinline__ void consume(const tconv_igemm_parameters &layer, const shared_layout &shared, int warp,
                                        int lane)
{
    all_sums<Mode, N> sums;
    const int group = warp / GROUP_WARPS;
    const bool signals = (int)threadIdx.x % (GROUP_WARPS * WARP) == 0;
    const bool has_pixels = layer.unit_pixel[group][0] < layer.patch; /* else it only keeps the rings turning */
    consumer_state stage(shared.stage_full, shared.stages, layer.stage_bytes, layer.stages);
    consumer_state slot(shared.slot_full, shared.slots, layer.slot_taps * layer.slot_bytes, layer.slots);
    pipeline_state table = {0, 0}, half = {0, 1};

    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_record &tile = shared.records[table.at];
        mbarrier_wait(shared.outputs_full + 8 * table.at, table.parity);
        if (PAIRS<Mode> && layer.uneven)
            multiply_tile<Mode, N, PAIRS<Mode>>(layer, tile, group, has_pixels, signals, stage, slot, sums);
        else
            multiply_tile<Mode, N, false>(layer, tile, group, has_pixels, signals, stage, slot, sums);
        if (PAIRS<Mode> && layer.hands_over && layer.paired)
            hand_over<Mode, N, PAIRS<Mode>>(layer, shared, sums.of, tile, half, warp, lane);
        else if (layer.hands_over)
            hand_over<Mode, N, false>(layer, shared, sums.of, tile, half, warp, lane);
        else
            store_sums<Mode, N>(layer, sums.of, tile, shared.outputs + table.at * layer.covered,
                                shared.staged + warp * STAGED_BYTES<typename Mode::Element, N>, warp, lane);
        __syncwarp();
        if (arrives_for_warp(lane))
            mbarrier_arrive(shared.outputs_empty + 8 * table.at);
        table.next(layer.tables);
    }
}

__device__ __forceinline__ shared_layout lay_out(const tconv_igemm_parameters &layer, uint64_t *barriers,
                                                 tile_record *records, int staged_bytes, char *buffers)
{
    const uint32_t each = 8 * TCONV_IGEMM_STAGES, first = shared_address(barriers), memory = shared_address(buffers);
    shared_layout shared;
    shared.stage_full = first;
    shared.stage_empty = first + each;
    shared.slot_full = first + 2 * each;
    shared.slot_empty = first + 3 * each;
    shared.box_full = first + 4 * each;
    shared.box_empty = first + 5 * each;
    shared.outputs_full = first + 6 * each;
    shared.outputs_empty = shared.outputs_full + 8 * TABLES;
    shared.staged_full = shared.outputs_empty + 8 * TABLES;
    shared.staged_empty = shared.staged_full + 8 * TCONV_IGEMM_GROUPS * TCONV_IGEMM_HALVES;
    shared.records = records;
    shared.stages = memory;
    shared.slots = shared.stages + layer.stages * layer.stage_bytes;
    shared.boxes = shared.slots + layer.slots * layer.slot_taps * layer.slot_bytes;
    char *tables = buffers + layer.stages * layer.stage_bytes + layer.slots * layer.slot_taps * layer.slot_bytes +
                   layer.plane_boxes * layer.plane_box_bytes;
    shared.outputs = reinterpret_cast<int64_t *>(tables);
    shared.staged = tables + layer.tables * layer.covered * sizeof *shared.outputs;
    shared.places = reinterpret_cast<uint32_t *>(shared.staged + staged_bytes);
    return shared;
}

__device__ __forceinline__ void init_barriers(const shared_layout &shared, int stage_arrivals, int table_readers)
{
    for (int i = 0; i < TCONV_IGEMM_STAGES; i++) {
        mbarrier_init(shared.stage_full + 8 * i, stage_arrivals);
        mbarrier_init(shared.stage_empty + 8 * i, TCONV_IGEMM_GROUPS);
        mbarrier_init(shared.slot_full + 8 * i, 1);
        mbarrier_init(shared.slot_empty + 8 * i, TCONV_IGEMM_GROUPS);
        mbarrier_init(shared.box_full + 8 * i, 1);
        mbarrier_init(shared.box_empty + 8 * i, LOADERS * WARP_ARRIVALS);
    }
    for (int i = 0; i < TABLES; i++) {
        mbarrier_init(shared.outputs_full + 8 * i, ADDRESS_WARPS * WARP_ARRIVALS);
        mbarrier_init(shared.outputs_empty + 8 * i, table_readers * WARP_ARRIVALS);
    }
    for (int i = 0; i < TCONV_IGEMM_GROUPS * TCONV_IGEMM_HALVES; i++) {
        mbarrier_init(shared.staged_full + 8 * i, GROUP_WARPS * WARP_ARRIVALS);
        mbarrier_init(shared.staged_empty + 8 * i, GROUP_STORERS * WARP_ARRIVALS);
    }
    mbarrier_init_fence();
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
    __shared__ tile_record records[TABLES];
    const shared_layout shared =
        lay_out(layer, barriers, records, CONSUMER_WARPS * STAGED_BYTES<typename Mode::Element, N>, buffers);
    /* Through a shuffle, so that the compiler knows that it is one number for the warp. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / WARP, 0), lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == 0)
        init_barriers(shared, layer.by_boxes && layer.src_channels_last && !Mode::SPLITS ? 1 : LOADERS * WARP_ARRIVALS,
                      CONSUMER_WARPS + (layer.hands_over ? LOADERS : 0));
    __syncthreads();
    if (warp < CONSUMER_WARPS) {
        setmaxnreg_increase<Mode::CONSUMER_REGISTERS>();
        consume<Mode, N>(layer, shared, warp, lane);
    } else {
        setmaxnreg_decrease<Mode::OTHER_REGISTERS>();
        const int role = warp - CONSUMER_WARPS;
        if (layer.turned && role <= BOX_WARP)
            wait_for_weights(); /* src is turned by the same launch */
        if (role < LOADERS) {
            if (!layer.by_boxes)
                gather<Mode>(layer, shared, role * WARP + lane);
            else if (!layer.src_channels_last && 2 * layer.patch <= LOADERS * WARP)
                convert_planes<Mode, 2>(layer, shared, role * WARP + lane);
            else if (!layer.src_channels_last)
                convert_planes<Mode, 1>(layer, shared, role * WARP + lane);
            else if constexpr (Mode::SPLITS)
                split_boxes<Mode>(layer, shared, role * WARP + lane);
            else if (PAIRS<Mode> && layer.hands_over && layer.paired)
                store_handed<Mode, N, PAIRS<Mode>>(layer, shared, role, lane);
            else if (layer.hands_over)
                store_handed<Mode, N, false>(layer, shared, role, lane);
        } else if (role == BOX_WARP) {
            if (lane == 0 && layer.by_boxes && layer.src_channels_last)
                copy_boxes<Mode>(layer, &map, shared);
            else if (lane == 0 && layer.by_boxes)
                copy_planes(layer, &map, shared);
        } else if (role == SLOT_WARP) {
            if (lane == 0) {
                wait_for_weights();
                copy_slots(layer, shared);
            }
        } else {
            find_outputs<typename Mode::Element>(layer, shared, (role - FIRST_ADDRESS_WARP) * WARP + lane);
        }
    }
#endif
}

} // namespace tconv::igemm

#endif
