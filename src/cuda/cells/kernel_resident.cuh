/*
 * The kernel of the cells algorithm where each pixel of src is read at its own position alone (a kernel as large as the stride)
 * and all of K fits: the weights of some output channels stay in shared memory, positions pass by.
 *
 * A block has the weights of one slice of N: a cell of some channels, all input channels. Four warpgroups multiply, in two
 * pairs that take tiles in turn: while one multiplies, the other stores. A tile is two units of 64 positions, one of each
 * warpgroup of a pair. Units are cut from the images one after another; what is left at the end of an image, less than a unit,
 * shares a unit with that of the images that follow. The blocks of a cluster have the same tiles and two slices: each brings
 * one unit's pixels for both. Where slices do not come in pairs, they have different tiles.
 *
 * Numeric order: as in cells_kernel.cuh with one entry, chunks of channels in order.
 */
#ifndef TCONV_CUDA_CELLS_KERNEL_RESIDENT_CUH
#define TCONV_CUDA_CELLS_KERNEL_RESIDENT_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "kernel.cuh"

namespace tconv::cells
{

constexpr int RESIDENT_WARPS = TCONV_CELLS_TURNS * TCONV_CELLS_UNITS * GROUP_WARPS; /* that multiply */
constexpr int RESIDENT_BOXES = TCONV_CELLS_BUFFERS * TCONV_CELLS_UNITS, RESIDENT_STEPS = 4;
constexpr int RESIDENT_REGISTERS = 112, RESIDENT_OTHER_REGISTERS = 32; /* 96 of all threads */
constexpr int UNIT = TCONV_CELLS_UNIT, UNIT_PITCH = TCONV_CELLS_UNIT_PITCH;
constexpr uint32_t BOX_CHANNELS = RESIDENT_STEPS * TCONV_CELLS_STEP,
                   BOX_BYTES = BOX_CHANNELS * UNIT_PITCH * (uint32_t)sizeof(float);

struct resident_layout {
    uint32_t box_full, box_empty, weights_full /* of a chunk */, weights_empty /* of all */, turn_ends;
    uint32_t bias /* of a slice's channels */, weights, boxes;
};

/* Of the pixels that a unit has. main: of one image; else columns of several, from `column` on of each. */
struct unit_place {
    int image, column;
    bool main;
};

__device__ __forceinline__ unit_place find_unit(const tconv_cells_parameters &layer, int number)
{
    const int main_units = layer.images * layer.image_units;
    if (number >= layer.units)
        return {layer.images, 0, true};
    if (number >= main_units)
        return {(number - main_units) * layer.rest_images, layer.image_units * UNIT, false};
    const int image = number / layer.image_units;
    return {image, (number - image * layer.image_units) * UNIT, true};
}

/* Whose slices and tiles a block has: a cluster's, whose blocks have two of the former, or its own. */
struct team {
    int set, set_step, first_tile;
    __device__ __forceinline__ team(const tconv_cells_parameters &layer)
    {
        const int number = (int)blockIdx.x / layer.sharing;
        set_step = layer.team_step;
        set = number % set_step;
        first_tile = number / set_step;
    }
    /* The block's slice, of all groups and programs. */
    __device__ __forceinline__ int slice(const tconv_cells_parameters &layer) const
    {
        return set * layer.sharing + (layer.sharing > 1 ? cluster_rank() : 0);
    }
    __device__ __forceinline__ bool has_tiles(const tconv_cells_parameters &layer) const
    {
        return set < layer.sets && first_tile < layer.tile_step;
    }
};

/* The first output channel, program and group of a slice. */
__device__ __forceinline__ tile_place find_slice(const tconv_cells_parameters &layer, int number)
{
    tile_place tile;
    tile.exists = number < layer.slices;
    number = min(number, layer.slices - 1);
    tile.channel = number % layer.channel_tiles * layer.channels;
    number /= layer.channel_tiles;
    tile.program = number % layer.programs;
    tile.group = number / layer.programs;
    return tile;
}

/* What follows where others read so many buffers between. */
__device__ __forceinline__ void skip(pipeline_state &stage, int stages, int count)
{
    stage.at += stages;
    while (stage.at >= count) {
        stage.at -= count;
        stage.parity ^= 1;
    }
}

/* ------------------------------------------------------------------------------------------------------------- the roles */

/* A thread's positions of a unit, half 0 and 1: neighbours, but in cells of 4 columns, each of which is a vector by itself. Four
 * channels of eight positions, or of four pairs of them, lie in 32 banks. */
template <int COLUMNS> __device__ __forceinline__ int unit_position(int warp, int lane, int half)
{
    return warp % GROUP_WARPS * 16 + (COLUMNS < 4 ? lane / 4 * 2 + half : lane / 4 + 8 * half);
}

/* Factors of two steps. by: bytes to the channel 4 on. */
template <int COLUMNS>
__device__ __forceinline__ void load_steps(pixel_pair at, uint32_t by, uint32_t (&to)[RESIDENT_STEPS / 2][4])
{
#pragma unroll
    for (int i = 0; i < RESIDENT_STEPS; i++) {
        uint32_t *words = &to[i / 2][i % 2 * 2];
        if (COLUMNS < 4) {
            asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(at.of[0] + i * by));
        } else {
            words[0] = load_shared(at.of[0] + i * by);
            words[1] = load_shared(at.of[1] + i * by);
        }
    }
}

/* Stores a thread's cells, of which `to` are the first elements: by vectors, of both cells where they are neighbours in dst, or
 * by single elements. channels: of the cell, from the thread's first one on, that there are. */
template <int COLUMNS, bool VECTORS>
__device__ __forceinline__ void
store_cells_of(const tconv_cells_parameters &layer, const float (&sums)[TCONV_CELLS_RESIDENT_SUMS / 2],
               float *const (&to)[2], const bool (&exists)[2], int channels, uint32_t bias)
{
    constexpr int COLUMN_SUMS = TCONV_CELLS_RESIDENT_SUMS / 2 / COLUMNS, VECTOR = COLUMNS < 4 ? 2 * COLUMNS : COLUMNS;
#pragma unroll
    for (int i = 0; i < COLUMN_SUMS; i += 4) {
        const int channel = 2 * i & (layer.channels - 1), row = 2 * i >> layer.channel_shift;
        const int64_t offset = row * layer.to.h + channel * layer.to.c;
        float add[2];
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(add[0]), "=f"(add[1])
                     : "r"(bias + channel * (uint32_t)sizeof(float)));
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const bool is = channel + pair < channels;
            float values[2 * COLUMNS];
#pragma unroll
            for (int c = 0; c < 2 * COLUMNS; c++)
                values[c] = sums[c % COLUMNS * COLUMN_SUMS + i + c / COLUMNS * 2 + pair] + add[pair];
            if constexpr (VECTORS) {
#pragma unroll
                for (int first = 0; first < 2 * COLUMNS; first += VECTOR) {
                    float vector[VECTOR];
#pragma unroll
                    for (int c = 0; c < VECTOR; c++)
                        vector[c] = values[first + c];
                    store_columns_if(is && exists[first / COLUMNS], to[first / COLUMNS] + offset + pair * layer.to.c,
                                     vector);
                }
            } else {
#pragma unroll
                for (int c = 0; c < 2 * COLUMNS; c++)
                    if (is && exists[c / COLUMNS])
                        to[c / COLUMNS][offset + pair * layer.to.c + c % COLUMNS] = values[c];
            }
        }
    }
}

/* What follows from these numbers is not found out before the products, which need the registers. */
template <int COLUMNS>
__device__ __forceinline__ void store_unit(const tconv_cells_parameters &layer, const resident_layout &shared,
                                           const float (&sums)[TCONV_CELLS_RESIDENT_SUMS / 2], int number, team team,
                                           int warp, int lane)
{
    asm volatile("" : "+r"(number), "+r"(team.set), "+r"(warp), "+r"(lane));
    const tile_place of = find_slice(layer, team.slice(layer));
    const unit_place place = find_unit(layer, number);
    const int first_channel = of.channel + lane % 4 * 2;
    float *to[2];
    bool exists[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int position = unit_position<COLUMNS>(warp, lane, h), image = place.image;
        exists[h] = of.exists;
        if (!place.main) {
            const int images = position / layer.rest_columns;
            exists[h] = of.exists && images < layer.rest_images;
            position -= images * layer.rest_columns;
            image += images;
        }
        exists[h] = exists[h] && image < layer.images;
        const int pixel = place.column + position, row = pixel / layer.flat_columns;
        to[h] = static_cast<float *>(layer.dst) + image * layer.to.n +
                (of.group * (int64_t)layer.group_out + first_channel) * layer.to.c +
                (row * layer.out_row_step + layer.program[of.program].residue) * layer.to.h +
                (pixel - row * layer.flat_columns) * COLUMNS;
    }
    const uint32_t bias = shared.bias + lane % 4 * 2 * (uint32_t)sizeof(float);
    bool vectors = layer.vectors;
    if (COLUMNS < 4)
        vectors =
            layer.pair_vectors && to[1] == to[0] + COLUMNS && (uintptr_t)to[0] % (2 * COLUMNS * sizeof(float)) == 0;
    if (vectors)
        store_cells_of<COLUMNS, true>(layer, sums, to, exists, layer.group_out - first_channel, bias);
    else
        store_cells_of<COLUMNS, false>(layer, sums, to, exists, layer.group_out - first_channel, bias);
}

template <int COLUMNS>
__device__ __forceinline__ void consume_units(const tconv_cells_parameters &layer, const resident_layout &shared,
                                              int warp, int lane)
{
    constexpr int N = TCONV_CELLS_RESIDENT_SUMS, HALF = RESIDENT_STEPS / 2;
    const int turn = warp / (TCONV_CELLS_UNITS * GROUP_WARPS), unit = warp / GROUP_WARPS % TCONV_CELLS_UNITS;
    const bool arms = layer.by_boxes && warp % GROUP_WARPS == 0 && lane == 0, never = layer.units <= 0;
    const int teller = layer.boxes_shared ? unit : cluster_rank(); /* whose copy engine brings the unit */
    const strides by = {0, 0, 2 * N, 0};
    pipeline_state stage = {0, 0};
    uint32_t round = 0;
    int sequence = 0;
    for (team team(layer); team.has_tiles(layer); team.set += team.set_step, round ^= 1) {
        for (int number = team.first_tile; number < layer.place_tiles; number += layer.tile_step, sequence++) {
            if (sequence % TCONV_CELLS_TURNS != turn) {
                skip(stage, layer.chunks, layer.stages);
                continue;
            }
            const unit_place place = find_unit(layer, number * TCONV_CELLS_UNITS + unit);
            const int pitch = place.main ? UNIT_PITCH : layer.rest_pitch;
            pixel_pair own;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int pixel = unit_position<COLUMNS>(warp, lane, h);
                if (!place.main) {
                    const int image = pixel / layer.rest_columns;
                    pixel +=
                        image < layer.rest_images ? image * ((int)BOX_CHANNELS * pitch - layer.rest_columns) : -pixel;
                }
                own.of[h] = shared.boxes + unit * BOX_BYTES + (pixel + lane % 4 * pitch) * (uint32_t)sizeof(float);
            }
            const uint32_t quad = 4 * pitch * (uint32_t)sizeof(float);
            float sums[N / 2];
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                sums[i] = 0;
            /* A buffer's phase is told from the one before alone: the other pair must have read those before this tile's. */
            if (sequence > 0)
                mbarrier_wait(shared.turn_ends + 8 * (TCONV_CELLS_UNITS * (1 - turn) + unit),
                              (sequence - 1) / TCONV_CELLS_TURNS & 1);
            /* Half of a chunk's factors are loaded while the products of the other half run. */
            factors_of<false, HALF> factors[2];
            uint32_t weights = descriptor_low(shared.weights, N * 4 * (uint32_t)sizeof(float));
#pragma unroll 1
            for (int chunk = 0; chunk < layer.chunks; chunk++) {
                const uint32_t full = shared.box_full + 8 * (TCONV_CELLS_UNITS * stage.at + unit);
                mbarriers_wait(full, stage.parity, shared.weights_full + 8 * chunk, round);
                if (arms)
                    mbarrier_arrive_expect_tx(full, BOX_BYTES); /* for the next that comes here */
                const uint32_t box = stage.at * (TCONV_CELLS_UNITS * BOX_BYTES);
                pixel_pair at = {{box + own.of[0], box + own.of[1]}};
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    load_steps<COLUMNS>(at, quad, factors[half].big);
                    at.of[0] += RESIDENT_STEPS * quad;
                    at.of[1] += RESIDENT_STEPS * quad;
                    multiply_window<false, N, 0, 1>(sums, factors[half], weights, by);
                    wgmma_wait<1>();
                    keep_until_here(factors[1 - half], never);
                    weights += HALF * by.weights;
                }
                if (arrives_for_warp(lane))
                    mbarrier_arrive_remote(shared.box_empty + 8 * (TCONV_CELLS_UNITS * stage.at + unit), teller);
                stage.next(layer.stages);
            }
            if (arrives_for_warp(lane))
                mbarrier_arrive(shared.turn_ends + 8 * (TCONV_CELLS_UNITS * turn + unit));
            wgmma_wait<0>();
            keep_until_here(factors[1], never);
            store_unit<COLUMNS>(layer, shared, sums, number * TCONV_CELLS_UNITS + unit, team, warp, lane);
        }
        if (arrives_for_warp(lane))
            mbarrier_arrive(shared.weights_empty);
    }
}

/* Where the copy engine cannot, by a warp: element by element. */
__device__ __forceinline__ void read_unit(const tconv_cells_parameters &layer, const unit_place &place, int channel,
                                          uint32_t to, uint32_t full, int lane)
{
    const int pitch = place.main ? UNIT_PITCH : layer.rest_pitch, rows = UNIT_PITCH / pitch * (int)BOX_CHANNELS;
#pragma unroll 1
    for (int row = 0; row < rows; row++) {
        const int image = place.image + row / (int)BOX_CHANNELS, of = channel + row % (int)BOX_CHANNELS;
        const bool exists = image < layer.images && of < layer.groups * layer.group_in;
        const float *from = static_cast<const float *>(layer.src) + image * layer.from.n + of * layer.from.c;
#pragma unroll 1
        for (int i = lane; i < pitch; i += WARP) {
            const int column = place.column + i;
            const float value = exists && column < layer.in_columns ? from[column] : 0.0f;
            const uint32_t bits = round_to_tf32(__float_as_uint(value));
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + (row * pitch + i) * (int)sizeof(float)), "r"(bits)
                         : "memory");
        }
    }
    __syncwarp();
    if (arrives_for_warp(lane))
        mbarrier_arrive(full);
}

/* By a warp: the bias and the weights of each slice. */
__device__ __forceinline__ void bring_slices(const tconv_cells_parameters &layer, const resident_layout &shared,
                                             int lane)
{
    uint32_t round = 1;
    for (team team(layer); team.has_tiles(layer); team.set += team.set_step, round ^= 1) {
        const tile_place of = find_slice(layer, team.slice(layer));
        const int64_t cell = of.group * layer.channel_tiles + (of.channel >> layer.channel_shift);
        const int64_t row = (cell * layer.all_rows + layer.program[of.program].first_row) * layer.chunks;
        const char *from = static_cast<const char *>(layer.weights) + row * layer.row_bytes;
        uint32_t to = shared.weights, full = shared.weights_full;
        mbarrier_wait(shared.weights_empty, round);
        for (int i = lane; i < layer.channels; i += WARP) {
            float value = 0;
            if (layer.bias != NULL && of.channel + i < layer.group_out)
                value = static_cast<const float *>(layer.bias)[of.group * layer.group_out + of.channel + i];
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared.bias + i * (int)sizeof(float)), "f"(value) : "memory");
        }
        __syncwarp();
        if (lane > 0 && arrives_for_warp(lane))
            mbarrier_arrive(full); /* of the bias; lane 0 with the first copy */
#pragma unroll 1
        for (int chunk = 0; lane == 0 && chunk < layer.chunks; chunk++) {
            mbarrier_arrive_expect_tx(full, layer.slot_bytes);
            bulk_load(to, from, layer.slot_bytes, full);
            from += layer.slot_bytes;
            to += layer.slot_bytes;
            full += 8;
        }
    }
}

/* The boxes of one unit of each tile: by one thread or, where the copy engine cannot, by a warp. */
template <bool BY_BOXES>
__device__ __forceinline__ void bring_units(const tconv_cells_parameters &layer, const CUtensorMap *main_map,
                                            const CUtensorMap *rest_map, const resident_layout &shared, int unit,
                                            int lane)
{
    const uint16_t blocks = layer.boxes_shared ? ALL_BLOCKS : (uint16_t)(1 << cluster_rank());
    pipeline_state stage = {0, 1};
    for (team team(layer); team.has_tiles(layer); team.set += team.set_step) {
        const int group = team.slice(layer) / (layer.channel_tiles * layer.programs);
        for (int number = team.first_tile; number < layer.place_tiles; number += layer.tile_step) {
            const unit_place place = find_unit(layer, number * TCONV_CELLS_UNITS + unit);
            int channel = group * layer.group_in;
#pragma unroll 1
            for (int chunk = 0; chunk < layer.chunks; chunk++) {
                const int box = TCONV_CELLS_UNITS * stage.at + unit;
                const uint32_t to = shared.boxes + box * BOX_BYTES, full = shared.box_full + 8 * box;
                mbarrier_wait(shared.box_empty + 8 * box, stage.parity);
                if (!BY_BOXES)
                    read_unit(layer, place, channel, to, full, lane);
                else
                    tma_load_multicast(to, place.main ? main_map : rest_map, place.column, 0, channel, place.image,
                                       full, blocks);
                channel += (int)BOX_CHANNELS;
                stage.next(layer.stages);
            }
        }
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TCONV_CELLS_RESIDENT_BOUNDS                                                                                    \
    __cluster_dims__(TCONV_CELLS_CLUSTER) __launch_bounds__(TCONV_CELLS_RESIDENT_THREADS, 1)
#else
#define TCONV_CELLS_RESIDENT_BOUNDS __launch_bounds__(32)
#endif

template <int COLUMNS>
__global__ void TCONV_CELLS_RESIDENT_BOUNDS cells_resident(const __grid_constant__ tconv_cells_parameters layer,
                                                           const __grid_constant__ CUtensorMap main_map,
                                                           const __grid_constant__ CUtensorMap rest_map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(128) char buffers[];
    __shared__ float bias[TCONV_CELLS_RESIDENT_SUMS];
    __shared__ __align__(8)
        uint64_t barriers[2 * RESIDENT_BOXES + TCONV_CELLS_RESIDENT_CHUNKS + 1 + TCONV_CELLS_TURNS * TCONV_CELLS_UNITS];
    const uint32_t first = shared_address(barriers), memory = shared_address(buffers);
    const resident_layout shared = {first,
                                    first + 8 * RESIDENT_BOXES,
                                    first + 16 * RESIDENT_BOXES,
                                    first + 16 * RESIDENT_BOXES + 8 * TCONV_CELLS_RESIDENT_CHUNKS,
                                    first + 16 * RESIDENT_BOXES + 8 * TCONV_CELLS_RESIDENT_CHUNKS + 8,
                                    shared_address(bias),
                                    memory,
                                    memory + layer.chunks * layer.slot_bytes};
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / WARP, 0), lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < RESIDENT_BOXES; i++) {
            mbarrier_init(shared.box_full + 8 * i, layer.by_boxes ? 1 : WARP_ARRIVALS);
            mbarrier_init(shared.box_empty + 8 * i,
                          GROUP_WARPS * WARP_ARRIVALS * (layer.boxes_shared ? TCONV_CELLS_CLUSTER : 1));
        }
        for (int i = 0; i < TCONV_CELLS_RESIDENT_CHUNKS; i++)
            mbarrier_init(shared.weights_full + 8 * i, i == 0 ? WARP_ARRIVALS : 1);
        mbarrier_init(shared.weights_empty, RESIDENT_WARPS * WARP_ARRIVALS);
        for (int i = 0; i < TCONV_CELLS_TURNS * TCONV_CELLS_UNITS; i++)
            mbarrier_init(shared.turn_ends + 8 * i, GROUP_WARPS * WARP_ARRIVALS);
        mbarrier_init_fence();
        if (layer.by_boxes)
            for (int i = 0; i < RESIDENT_BOXES; i++)
                mbarrier_arrive_expect_tx(shared.box_full + 8 * i, BOX_BYTES);
    }
    cluster_sync();
    if (warp < RESIDENT_WARPS) {
        setmaxnreg_increase<RESIDENT_REGISTERS>();
        consume_units<COLUMNS>(layer, shared, warp, lane);
    } else {
        setmaxnreg_decrease<RESIDENT_OTHER_REGISTERS>();
        const int role = warp - RESIDENT_WARPS;
        const bool brings = layer.boxes_shared ? role == cluster_rank() : role < TCONV_CELLS_UNITS;
        if (brings && !layer.by_boxes) {
            bring_units<false>(layer, &main_map, &rest_map, shared, role, lane);
        } else if (brings && lane == 0) {
            bring_units<true>(layer, &main_map, &rest_map, shared, role, lane);
        } else if (role == TCONV_CELLS_UNITS) {
            wait_for_weights();
            bring_slices(layer, shared, lane);
        }
    }
    cluster_sync();
#endif
}

} // namespace tconv::cells

#endif
