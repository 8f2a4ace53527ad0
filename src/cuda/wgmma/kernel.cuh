/*
 * The kernel of the wgmma algorithm, for one type of factors (Mode) and N pixels.
 *
 * A persistent block of 20 warps (16 in strict f32) computes tiles. Two warpgroups multiply; of the other warps one asks the
 * copy engine for boxes of src, one for slots of weights, four convert boxes into stages (from a plane for each channel to
 * pixels of 16 bytes of channels, which is how the tensor cores want them, rounded or split on the way), four store (two).
 * Each buffer has a pair of barriers, full and empty. A tap is an offset into the stage: consecutive pixels of the patch are
 * consecutive columns of the product, so that nothing is copied for a tap. In place, there are no boxes: the copy engine puts planes
 * into the stage itself, a row of a quad's channels after another, which one warp reads whole and writes back as as many pixels.
 *
 * Transposed, there are no stages: boxes are 64 pixels of a chunk's channels each, swizzled, which products of 16-bit types
 * take as they lie. Such an operand begins at a multiple of 8 pixels, so that layers of one tap to a phase alone do so. Where
 * channels do not begin at multiples of 16 bytes, boxes bring them from the multiple before, and the warps that else convert
 * move them into stages.
 *
 * Numeric order: chunks of channels, taps by rows, then steps and columns, as the layer and the device alone decide. In strict f32 each
 * factor is split, x = big + small, and small * big + big * small + big * big of up to four products at a time are summed by
 * the tensor cores from zero, and then added to f32 sums. Bias last.
 */
#ifndef TCONV_CUDA_WGMMA_KERNEL_CUH
#define TCONV_CUDA_WGMMA_KERNEL_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/wgmma.cuh"
#include "epilogue.cuh"
#include "load.cuh"
#include "load_shifted.cuh"
#include "mainloop.cuh"

namespace tconv::wgmma
{

/* Whether boxes are operands as they come; else they are converted into stages, or moved there. */
template <class Mode> __device__ __forceinline__ bool boxes_are_operands(const tconv_wgmma_parameters &layer)
{
    return Mode::TRANSPOSED && layer.alignment == 0;
}

/* Of rows lane / 4 and lane / 4 + 8 of the warp's 16. Not yet converted, so that nothing waits for them before the products. */
template <class Element>
__device__ __forceinline__ void load_bias(const tconv_wgmma_parameters &layer, const tile_place &tile, int group,
                                          int warp, int lane, Element (&bias)[2])
{
    const Element *from = static_cast<const Element *>(layer.bias) + tile.group * layer.group_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int m =
            layer.fold_log2 == 1 ? warp * TCONV_WGMMA_FOLD_CHANNELS + lane / 4 : warp * STAGED_ROWS + lane / 4 + 8 * i;
        const int channel =
            tile.channel + group * layer.group_channels + (m & (layer.block_channels - 1)); /* 32 or 64 */
        bias[i] = layer.bias != NULL && channel < layer.group_out ? from[channel] : from_compute<Element>(0);
    }
}

template <class Mode, int N>
__device__ __forceinline__ void consume(const tconv_wgmma_parameters &layer, const shared_layout &shared, int warp,
                                        int lane)
{
    constexpr uint32_t EMPTY = 8 * TCONV_WGMMA_STAGES; /* from a buffer's full to its empty barrier */
    float sums[UNITS][N / 2];
    const int group = warp / GROUP_WARPS;
    const bool signals = (int)threadIdx.x % (GROUP_WARPS * WARP) == 0;
    using Element = typename Mode::Element;
    consumer_state stage = boxes_are_operands<Mode>(layer)
                               ? consumer_state(shared.box_full, shared.boxes, layer.box_bytes, layer.boxes)
                               : consumer_state(shared.stage_full, shared.stages, layer.stage_bytes, layer.stages);
    consumer_state slot(shared.slot_full, shared.slots, layer.slot_bytes, layer.slots);
    uint32_t staged_parity = ~0u; /* a bit for each buffer */
    bool slots_are_full = false;

    factors at;
    const tconv_wgmma_order order = in_registers(layer.order[0]);
    at.pixels_small = layer.steps * 2 * layer.patch;
    const int slots = layer.chunk_slots[group], max_slots = layer.max_chunk_slots, chunks = layer.chunks;
    uint32_t first_weights[UNITS], first_pixel[UNITS];
#pragma unroll
    for (int unit = 0; unit < UNITS; unit++) {
        first_weights[unit] =
            descriptor_low(0, layer.weights_leading) + group * layer.group_weights + unit * layer.unit_weights;
        first_pixel[unit] = descriptor_low(0, layer.pixels_leading) + layer.unit_pixel[group][unit];
    }

    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int skipped = (first_column(layer, tile) - stage_column(layer, tile)) >> layer.fold_log2;
        Element loaded_bias[2];
        load_bias<Element>(layer, tile, group, warp % GROUP_WARPS, lane, loaded_bias);
        pending_release pending = {0, 0};
        int accumulate = 0;
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; chunk++) {
            wait_for_stage<Mode::STRICT>(stage.barrier, stage.parity, pending);
            uint32_t pixels = stage.buffer + skipped;
#pragma unroll 1
            for (int i = 0; i < max_slots; i++) {
                if (!slots_are_full)
                    wait_for_stage<Mode::STRICT>(slot.barrier, slot.parity, pending);
                if (i < slots) {
#pragma unroll
                    for (int unit = 0; unit < UNITS; unit++) {
                        at.weights[unit] = first_weights[unit] + slot.buffer;
                        at.pixels[unit] = first_pixel[unit] + pixels;
                    }
                    if (layer.same_order) {
                        multiply_slot<Mode, N, 0, UNITS>(sums, at, order, accumulate, pending);
                    } else {
                        int first_sum = accumulate;
                        multiply_slot<Mode, N, 0, 1>(sums, at, layer.order[0], first_sum, pending);
                        multiply_slot<Mode, N, 1, 1>(sums, at, layer.order[1], accumulate, pending);
                    }
                } else {
                    wgmma_wait<0>();
                    pending.release();
                }
                pixels -= layer.slot_step;
                pending.a = signals && !layer.resident ? slot.barrier + EMPTY : 0;
                if (Mode::STRICT)
                    pending.release();
                slot.next();
            }
            pending.b = signals ? stage.barrier + EMPTY : 0;
            if (Mode::STRICT)
                pending.release();
            stage.next();
        }
        wgmma_wait<0>();
        pending.release();
        slots_are_full = layer.resident;
        const float bias[2] = {to_compute(loaded_bias[0]), to_compute(loaded_bias[1])};

        const bool interleaved = layer.column_phases == 2;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            const int buffer = layer.staged_turns == 2 ? turn : 0, place_of_warp = warp * TURNS + buffer;
            char *staged = shared.staged + (warp * layer.staged_turns + buffer) * STAGED_BYTES<Mode, N>;
            mbarrier_wait(shared.staged_empty + 8 * place_of_warp, staged_parity >> buffer & 1);
            staged_parity ^= 1 << buffer;
            const int own = warp % GROUP_WARPS;
            if (interleaved)
                stage_phases<Mode, N>(
                    sums, bias, layer.first_phase == 1,
                    staged + staged_shift<Mode, staging<Mode, N, PHASES>>(layer, tile, group, own, turn, lane), turn,
                    lane);
            else if (!Mode::STRICT && !Mode::TRANSPOSED && layer.fold_log2 == 1)
                stage_folded<Mode, N>(
                    sums, bias[0],
                    staged + staged_shift<Mode, staging<Mode, N, FOLDED>>(layer, tile, group, own, turn, lane), turn,
                    lane);
            else
                stage_rows<Mode, N>(
                    sums, bias,
                    staged + staged_shift<Mode, staging<Mode, N, SINGLE>>(layer, tile, group, own, turn, lane), turn,
                    lane);
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane))
                mbarrier_arrive(shared.staged_full + 8 * place_of_warp);
        }
    }
}

__device__ __forceinline__ shared_layout lay_out(const tconv_wgmma_parameters &layer, uint64_t *barriers, char *buffers)
{
    const uint32_t each = 8 * TCONV_WGMMA_STAGES, first = shared_address(barriers), memory = shared_address(buffers);
    shared_layout shared;
    shared.stage_full = first;
    shared.stage_empty = first + each;
    shared.box_full = first + 2 * each;
    shared.box_empty = first + 3 * each;
    shared.slot_full = first + 4 * each;
    shared.slot_empty = first + 5 * each;
    shared.staged_full = first + 6 * each;
    shared.staged_empty = shared.staged_full + 8 * CONSUMER_WARPS * TURNS;
    shared.boxes = memory;
    shared.slots = shared.boxes + layer.boxes * layer.box_bytes;
    shared.stages = shared.slots + layer.slots * layer.slot_bytes;
    shared.staged =
        buffers + layer.boxes * layer.box_bytes + layer.slots * layer.slot_bytes + layer.stages * layer.stage_bytes;
    return shared;
}

template <class Mode>
__device__ __forceinline__ void init_barriers(const shared_layout &shared, const tconv_wgmma_parameters &layer)
{
    for (int i = 0; i < TCONV_WGMMA_STAGES; i++) {
        mbarrier_init(shared.stage_full + 8 * i, CONVERTERS * WARP_ARRIVALS);
        mbarrier_init(shared.stage_empty + 8 * i, TCONV_WGMMA_GROUPS);
        mbarrier_init(shared.box_full + 8 * i, 1);
        mbarrier_init(shared.box_empty + 8 * i,
                      boxes_are_operands<Mode>(layer) ? TCONV_WGMMA_GROUPS : CONVERTERS * WARP_ARRIVALS);
        mbarrier_init(shared.slot_full + 8 * i, 1);
        mbarrier_init(shared.slot_empty + 8 * i, TCONV_WGMMA_GROUPS);
    }
    for (int i = 0; i < CONSUMER_WARPS * TURNS; i++) {
        mbarrier_init(shared.staged_full + 8 * i, WARP_ARRIVALS);
        mbarrier_init(shared.staged_empty + 8 * i, WARP_ARRIVALS);
    }
    mbarrier_init_fence();
}

/* Each role asks anew for what it is, so that no registers keep it for all of them. The warp comes through a shuffle, so that the
 * compiler knows that it is one number for the warp. */
__device__ __forceinline__ int warp_of_block()
{
    return __shfl_sync(~0u, (int)threadIdx.x / WARP, 0);
}
__device__ __forceinline__ int lane_of_warp()
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* The kernel needs sm_90a. Elsewhere it is empty and, so that the host can tell, made for one warp. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TCONV_WGMMA_BOUNDS(threads) __launch_bounds__(threads, 1)
#else
#define TCONV_WGMMA_BOUNDS(threads) __launch_bounds__(32)
#endif

template <class Mode, int N>
__global__ void TCONV_WGMMA_BOUNDS(Mode::THREADS)
    wgmma_layer(const __grid_constant__ tconv_wgmma_parameters layer, const __grid_constant__ CUtensorMap map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char buffers[]; /* as swizzled boxes want it */
    __shared__ __align__(8) uint64_t barriers[BARRIERS];
    const shared_layout shared = lay_out(layer, barriers, buffers);
    const int warp = warp_of_block();
    if (threadIdx.x == 0)
        init_barriers<Mode>(shared, layer);
    __syncthreads();
    if (warp < CONSUMER_WARPS) {
        setmaxnreg_increase<Mode::CONSUMER_REGISTERS>();
        consume<Mode, N>(layer, shared, warp_of_block(), lane_of_warp());
    } else {
        setmaxnreg_decrease<Mode::OTHER_REGISTERS>();
        const int role = warp_of_block() - CONSUMER_WARPS, lane = lane_of_warp();
        if (role < CONVERTERS) {
            if constexpr (Mode::TRANSPOSED) {
                if (layer.alignment == 8)
                    shift_boxes<8>(layer, shared, role, lane);
                else if (layer.alignment == 4)
                    shift_boxes<4>(layer, shared, role, lane);
                else if (layer.alignment == 2)
                    shift_boxes<2>(layer, shared, role, lane);
            } else {
                if (!Mode::STRICT && layer.by_boxes && layer.fold_log2 == 1)
                    turn_in_place<Mode, true>(layer, shared, role, lane);
                else if (!Mode::STRICT && layer.by_boxes && layer.in_place)
                    turn_in_place<Mode, false>(layer, shared, role, lane);
                else if (layer.by_boxes && layer.tight)
                    convert_tight<Mode>(layer, shared, role, lane);
                else if (layer.by_boxes)
                    convert_boxes<Mode>(layer, shared, role, lane);
                else
                    convert_src<Mode>(layer, shared, role, lane);
            }
        } else if (role == BOX_WARP) {
            if (lane == 0 && layer.by_boxes) {
                if (Mode::TRANSPOSED && layer.alignment > 0)
                    copy_shifted_boxes(layer, &map, shared);
                else if (!Mode::STRICT && layer.in_place)
                    copy_to_stages<Mode>(layer, &map, shared);
                else
                    copy_boxes(layer, &map, shared);
            }
        } else if (role == SLOT_WARP) {
            if (lane == 0) {
                wait_for_weights();
                copy_slots(layer, shared);
            }
        } else if (role < FIRST_STORE_WARP + TCONV_WGMMA_GROUPS * Mode::STORE_WARPS) {
            if (layer.rows_together)
                store_tiles_of_both<Mode, N>(layer, shared, role - FIRST_STORE_WARP, lane);
            else
                store_tiles<Mode, N>(layer, shared, role - FIRST_STORE_WARP, lane);
        }
    }
#endif
}

} // namespace tconv::wgmma

#endif
