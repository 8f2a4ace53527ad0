/*
 * The kernel of the cells algorithm: f32 in NCHW on Hopper's tensor cores, in TF32 or, in strict f32, by three products of it.
 *
 * A persistent block computes tiles of 128 positions by one cell. Two warpgroups multiply, each 64 positions: a position is
 * a row of M, read from the planes of src as they lie in shared memory straight into registers, where it is rounded; the
 * sums of its cell are N. So nothing is transposed, a shift is an address, and what all taps of a shift have in common is
 * read once. Of the other four warps one asks the copy engine for boxes of src, one for slots of weights.
 * The two blocks of a cluster differ in their positions alone: each brings half of a slot for both.
 *
 * Numeric order: chunks of channels, then the program's entries, then steps, as the layer and the device alone decide. In
 * strict f32 each factor is split, x = big + small, and small * big + big * small + big * big of an entry are summed by the
 * tensor cores from zero, and then added to f32 sums; those of long segments, one after another, to one another. Bias last.
 */
#ifndef TCONV_CUDA_CELLS_KERNEL_CUH
#define TCONV_CUDA_CELLS_KERNEL_CUH

#include "../gemm/pipeline.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"
#include "mainloop.cuh"

namespace tconv::cells
{

constexpr int WARP = 32, GROUP_WARPS = 4, CONSUMER_WARPS = TCONV_CELLS_GROUPS * GROUP_WARPS;
constexpr int BOX_WARP = 0, SLOT_WARP = 1, FIRST_READER = 2, READERS = 2; /* of those that load */
constexpr int CONSUMER_REGISTERS = 232, OTHER_REGISTERS = 40;             /* 168 of all threads */
constexpr int BARRIERS = 4 * TCONV_CELLS_BUFFERS;
constexpr uint16_t ALL_BLOCKS = (1 << TCONV_CELLS_CLUSTER) - 1;

struct shared_layout {
    uint32_t stage_full, stage_empty, slot_full, slot_empty;
    uint32_t stages, slots, aside;
};

struct tile_place {
    int channel, program, group; /* first output channel, of the group */
    int image, row, column;      /* the first position */
    bool exists;                 /* else a copy of the last, that its cluster has for want of another */
};

/* The blocks of a cluster take tiles that differ only in their place. */
__device__ __forceinline__ int first_tile()
{
    return (int)blockIdx.x / TCONV_CELLS_CLUSTER;
}
__device__ __forceinline__ int tile_step()
{
    return (int)gridDim.x / TCONV_CELLS_CLUSTER;
}
__device__ __forceinline__ int cluster_rank()
{
    return (int)blockIdx.x % TCONV_CELLS_CLUSTER;
}

__device__ __forceinline__ tile_place find_tile(const tconv_cells_parameters &layer, int number)
{
    tile_place tile;
    tile.channel = number % layer.channel_tiles * layer.channels;
    number /= layer.channel_tiles;
    tile.program = number % layer.programs;
    number /= layer.programs;
    tile.group = number % layer.groups;
    number = number / layer.groups * TCONV_CELLS_CLUSTER + cluster_rank();
    tile.exists = number < layer.place_tiles;
    number = min(number, layer.place_tiles - 1);
    tile.column = number % layer.column_tiles * layer.tile_columns;
    number /= layer.column_tiles;
    tile.row = number % layer.row_tiles * layer.tile_rows;
    tile.image = number / layer.row_tiles * layer.tile_images;
    return tile;
}

/* The first column of a tile's stage: the copy engine wants boxes to begin at multiples of 16 bytes. */
__device__ __forceinline__ int stage_column(const tconv_cells_parameters &layer, const tile_place &tile)
{
    return (tile.column + layer.first_column) & ~(TCONV_CELLS_ALIGNMENT - 1);
}

/* A position of a tile. */
struct position_place {
    int image, row, column;
    bool exists;
};

__device__ __forceinline__ position_place find_position(const tconv_cells_parameters &layer, int number)
{
    position_place place;
    place.column = number % layer.tile_columns;
    number /= layer.tile_columns;
    place.row = number % layer.tile_rows;
    place.image = number / layer.tile_rows;
    place.exists = place.image < layer.tile_images;
    return place;
}

/* A thread's two positions, half 0 and 1. */
__device__ __forceinline__ int own_position(const tconv_cells_parameters &layer, int warp, int lane, int half)
{
    return warp * 16 + tconv_cells_position(layer.neighbours, lane / 4, half);
}

/* -------------------------------------------------------------------------------------------------------------- storing */

/* A thread's position in dst: where the cell begins, less its channel, and how much of it there is. */
struct cell_place {
    float *to;
    int rows, columns;
};

__device__ __forceinline__ cell_place find_cell(const tconv_cells_parameters &layer, const tile_place &tile, int number)
{
    const position_place own = find_position(layer, number);
    cell_place cell;
    int row = tile.row + own.row, column = tile.column + own.column;
    const int image = tile.image + own.image;
    bool exists = tile.exists && own.exists && image < layer.images;
    if (layer.flat_columns > 0) {
        exists = exists && column < layer.in_columns;
        row = column / layer.flat_columns;
        column -= row * layer.flat_columns;
    }
    row = row * layer.out_row_step + layer.program[tile.program].residue;
    column *= layer.cell_columns;
    cell.rows = layer.out_rows - row;
    cell.columns = exists ? layer.out_columns - column : 0;
    cell.to = static_cast<float *>(layer.dst) + image * layer.to.n + row * layer.to.h + column;
    return cell;
}

/* Stores a vector of so many columns, or nothing, without a branch. */
template <int columns>
__device__ __forceinline__ void store_columns_if(bool is, float *to, const float (&values)[columns])
{
    if constexpr (columns == 4)
        asm volatile("{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.v4.f32 [%1], {%2, %3, %4, %5};\n}" ::"r"(
                         (uint32_t)is),
                     "l"(to), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
                     : "memory");
    else if constexpr (columns == 2)
        asm volatile(
            "{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.v2.f32 [%1], {%2, %3};\n}" ::"r"((uint32_t)is),
            "l"(to), "f"(values[0]), "f"(values[1])
            : "memory");
    else
        asm volatile("{\n.reg .pred is;\nsetp.ne.u32 is, %0, 0;\n@is st.global.f32 [%1], %2;\n}" ::"r"((uint32_t)is),
                     "l"(to), "f"(values[0])
                     : "memory");
}

/* The cells of a thread, by vectors of `width` columns: of both cells, which are then one twice as wide, of one or of part
 * of it. The sums of a cell's first column are the first of N / columns, and so on. */
template <int columns, int width, int all>
__device__ __forceinline__ void store_by(const tconv_cells_parameters &layer, const float (&sums)[all],
                                         const cell_place (&cells)[2], int first_channel, const float *bias)
{
    constexpr int COLUMN_SUMS = all / columns; /* of a thread; 4 for 8 channels */
    constexpr int BATCH = 16;                  /* sums of a column for which bias is read at once */
    constexpr bool TOGETHER = width > columns;
    /* From 8 channels to the next: of the same row, or from the last of a row to the first of the next. */
    const int64_t channel_step = layer.to.c, next_channels = 8 * channel_step,
                  next_row = layer.to.h - (layer.channels - 8) * channel_step;
    int cell_channels = layer.channels;
    /* What follows from it is not found out in advance, for all stores, which would take too many registers. */
    asm volatile("" : "+r"(cell_channels));
    float *to[2] = {cells[0].to, cells[1].to};
    int row = 0;
#pragma unroll
    for (int batch = 0; batch < COLUMN_SUMS; batch += BATCH) {
        float add[BATCH / 2];
#pragma unroll
        for (int i = 0; i < BATCH / 2; i++) {
            const int channel = first_channel + ((2 * batch + i / 2 * 8) & (cell_channels - 1)) + i % 2;
            add[i] = layer.bias != NULL ? __ldg(bias + min(channel, layer.group_out - 1)) : 0.0f;
        }
#pragma unroll
        for (int i = batch; i < batch + BATCH; i += 4) {
            const int channels = layer.group_out - first_channel - (2 * i & (cell_channels - 1));
#pragma unroll
            for (int pair = 0; pair < 2; pair++) {
                float values[2 * columns];
#pragma unroll
                for (int c = 0; c < columns; c++) {
                    values[c] = sums[c * COLUMN_SUMS + i + pair] + add[(i - batch) / 2 + pair];
                    values[columns + c] = sums[c * COLUMN_SUMS + i + 2 + pair] + add[(i - batch) / 2 + pair];
                }
#pragma unroll
                for (int first = 0; first < 2 * columns; first += width) {
                    const int cell = first / columns, column = first % columns;
                    const bool is = pair < channels && row < cells[cell].rows &&
                                    (TOGETHER || column + width <= cells[cell].columns);
                    float vector[width];
#pragma unroll
                    for (int c = 0; c < width; c++)
                        vector[c] = values[first + c];
                    store_columns_if<width>(is, to[cell] + column + pair * channel_step, vector);
                }
            }
            const bool row_ends = ((2 * i + 8) & (cell_channels - 1)) == 0;
            row += row_ends;
            to[0] += row_ends ? next_row : next_channels;
            to[1] += row_ends ? next_row : next_channels;
        }
    }
}

/* Cells of so many columns. Those of two columns or one are stored in pairs where they are neighbours in dst: the first of
 * them is half 1 in the lanes whose rows are in the other order (tconv_cells_position). */
template <int columns, int all>
__device__ __forceinline__ void store_cells(const tconv_cells_parameters &layer, float (&sums)[all],
                                            const tile_place &tile, int warp, int lane)
{
    constexpr int PAIR = columns < 4 ? 2 * columns : columns;
    const bool swapped = columns < 4 && lane >= WARP / 2;
    cell_place cells[2];
    const int first_channel = tile.channel + lane % 4 * 2;
    const float *bias = static_cast<const float *>(layer.bias) + tile.group * layer.group_out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        cells[i] = find_cell(layer, tile, own_position(layer, warp, lane, swapped ? 1 - i : i));
        cells[i].to += (tile.group * (int64_t)layer.group_out + first_channel) * layer.to.c;
    }
    if (columns < 4) {
#pragma unroll
        for (int i = 0; i < all; i += i % 2 == 0 ? 1 : 3) {
            const float half = sums[i], other = sums[i + 2];
            sums[i] = swapped ? other : half;
            sums[i + 2] = swapped ? half : other;
        }
    }
    const bool together = layer.pair_vectors && cells[1].to == cells[0].to + columns &&
                          cells[0].rows == cells[1].rows && cells[1].columns >= columns && cells[0].columns > 0 &&
                          (uintptr_t)cells[0].to % (PAIR * sizeof(float)) == 0;
    const bool each = layer.vectors && (cells[0].columns >= columns || cells[0].columns <= 0) &&
                      (cells[1].columns >= columns || cells[1].columns <= 0);
    if (columns < 4 && together)
        store_by<columns, PAIR>(layer, sums, cells, first_channel, bias);
    else if (columns > 1 && each)
        store_by<columns, columns>(layer, sums, cells, first_channel, bias);
    else
        store_by<columns, 1>(layer, sums, cells, first_channel, bias);
}

/* --------------------------------------------------------------------------------------------------------------- the roles */

/* The entries of a block's tiles, one after another. whole: each program is one entry, of all sums. */
template <bool whole, bool segments, int SUMS> struct entry_walk {
    int number, chunks_left, entry, first_entry; /* number: of the tile */
    int segment_end;                             /* the chunks that are left where the segment ends */
    uint32_t pixels;                             /* bytes from a stage to its tile's first column */
    pipeline_state stage, slot;
    uint32_t pixel, window, flags, weights, rows; /* of this entry */

    __device__ __forceinline__ entry_walk(const tconv_cells_parameters &layer)
        : number(first_tile()), stage{0, 0}, slot{0, 0}
    {
        begin_tile(layer);
        read_entry(layer);
    }
    __device__ __forceinline__ void begin_tile(const tconv_cells_parameters &layer)
    {
        const tile_place tile = find_tile(layer, number);
        pixels = (uint32_t)(tile.column + layer.first_column - stage_column(layer, tile)) * sizeof(float);
        entry = first_entry = layer.program[tile.program].first_entry;
        chunks_left = layer.chunks;
        begin_segment(layer);
    }
    __device__ __forceinline__ void begin_segment(const tconv_cells_parameters &layer)
    {
        segment_end = segments ? max(chunks_left - layer.segment_chunks, 0) : 0;
    }
    __device__ __forceinline__ void read_entry(const tconv_cells_parameters &layer)
    {
        const uint2 words = whole ? make_uint2(0, 0) : *reinterpret_cast<const uint2 *>(&layer.entry[entry]);
        pixel = words.x & 0xffff;
        window = words.x >> 16 & 0xff;
        flags = whole ? TCONV_CELLS_SLOT_ENDS | TCONV_CELLS_STAGE_ENDS : words.x >> 24;
        weights = words.y & 0xffff;
        rows = whole ? SUMS : words.y >> 16;
    }
    /* True where a segment ends: number has changed where its tile does. */
    __device__ __forceinline__ bool advance(const tconv_cells_parameters &layer)
    {
        const bool stage_ends = flags & TCONV_CELLS_STAGE_ENDS;
        if (flags & TCONV_CELLS_SLOT_ENDS)
            slot.next(layer.slots);
        if (stage_ends)
            stage.next(layer.stages);
        entry = stage_ends ? first_entry : entry + 1;
        chunks_left -= stage_ends;
        const bool segment_ends = chunks_left == segment_end;
        if (segment_ends && chunks_left > 0) {
            begin_segment(layer);
        } else if (segment_ends) {
            number += tile_step();
            if (number < layer.tiles)
                begin_tile(layer);
        }
        read_entry(layer);
        return segment_ends;
    }
};

/* Adds the sums of the tile's segments before to a thread's, but in the first one, and puts them aside for the next, but in the
 * last one. Each thread has its own: `aside` is where the first four are, of all threads side by side. */
template <int count>
__device__ __forceinline__ void join_segments(float (&sums)[count], uint32_t aside, bool first, bool last)
{
#pragma unroll
    for (int i = 0; i < count; i += 4) {
        const uint32_t at = aside + i * TCONV_CELLS_GROUPS * GROUP_WARPS * WARP * (uint32_t)sizeof(float);
        if (!first) {
            float before[4];
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(before[0]), "=f"(before[1]), "=f"(before[2]), "=f"(before[3])
                         : "r"(at));
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[i + j] += before[j];
        }
        if (!last)
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(sums[i]), "f"(sums[i + 1]),
                         "f"(sums[i + 2]), "f"(sums[i + 3])
                         : "memory");
    }
}

/*
 * While the tensor cores multiply an entry, everything for the next one is done: its buffers are waited for, its factors
 * loaded and rounded. Then the products are waited for: two warpgroups keep the tensor cores busy in turn. That needs two
 * buffers of each kind: one is waited for before the one before it is released.
 */
template <bool STRICT, int BLOCK, int STEPS>
__device__ __forceinline__ void consume(const tconv_cells_parameters &layer, shared_layout shared, int warp, int lane)
{
    constexpr int N = TCONV_CELLS_SUMS(STRICT);
    float sums[N / 2], entry_sums[STRICT ? N / 2 : 2];
    const bool signals = warp % GROUP_WARPS == 0 && lane == 0;
    const bool never = layer.tiles <= 0;
    float one = 1.0f;
    asm volatile("" : "+f"(one));
    strides by;
    by.quad = 4 * layer.plane * sizeof(float);
    by.pixels = 2 * by.quad;
    pixel_pair own; /* where a thread's positions are read, from the beginning of a stage */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int pixel = tconv_cells_pixel(&layer, own_position(layer, warp, lane, h));
        own.of[h] = (uint32_t)(pixel + lane % 4 * layer.plane) * sizeof(float);
    }
    const uint32_t aside = shared.aside + (warp * WARP + lane) * 4 * (uint32_t)sizeof(float);
    /* Kept in registers: the compiler would find them out again for every entry. */
    asm volatile("" : "+r"(shared.stage_full), "+r"(shared.stage_empty), "+r"(shared.slot_full));
    asm volatile("" : "+r"(shared.slot_empty), "+r"(shared.stages), "+r"(shared.slots));
    entry_walk<BLOCK == N, STRICT, N> at(layer);
    const auto prepare = [&](uint32_t(&to)[STEPS][4]) {
        mbarriers_wait(shared.stage_full + 8 * at.stage.at, at.stage.parity, shared.slot_full + 8 * at.slot.at,
                       at.slot.parity);
        const uint32_t pixels = shared.stages + at.stage.at * layer.stage_bytes + at.pixels + at.pixel * sizeof(float);
        load({{pixels + own.of[0], pixels + own.of[1]}}, by, to);
        if (!STRICT)
            round_factors(to, one);
    };
    factors_of<STRICT, STEPS> factors;
    {
        uint32_t first[STEPS][4];
        prepare(first);
        take_factors(first, factors);
    }
    for (int number = at.number; number < layer.tiles; number = at.number) {
        const tile_place tile = find_tile(layer, number);
        bool first = true, last = true;
        do {
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                sums[i] = 0;
            bool segment_ends;
#pragma unroll 1
            do {
                by.small = 2 * at.rows;
                by.weights = (STRICT ? 2 : 1) * by.small;
                const uint32_t weights = descriptor_low(shared.slots + at.slot.at * layer.slot_bytes,
                                                        at.rows * 4 * (uint32_t)sizeof(float)) +
                                         at.weights;
                const int window = (int)at.window;
                with_window<BLOCK, N>(window, [&](auto blocks) {
                    if constexpr (STRICT)
                        multiply_window<STRICT, BLOCK, blocks.first, blocks.count>(entry_sums, factors, weights, by);
                    else
                        multiply_window<STRICT, BLOCK, blocks.first, blocks.count>(sums, factors, weights, by);
                });
                const uint32_t flags = at.flags, slot_empty = shared.slot_empty + 8 * at.slot.at,
                               stage_empty = shared.stage_empty + 8 * at.stage.at;
                segment_ends = at.advance(layer);
                uint32_t next[STEPS][4];
                if (at.number < layer.tiles)
                    prepare(next);
                wgmma_wait<0>();
                keep_until_here(factors, never);
                if (flags & TCONV_CELLS_SLOT_ENDS && signals)
                    for (int rank = 0; rank < TCONV_CELLS_CLUSTER; rank++)
                        mbarrier_arrive_remote(slot_empty, rank);
                if (flags & TCONV_CELLS_STAGE_ENDS && arrives_for_warp(lane))
                    mbarrier_arrive(stage_empty);
                if constexpr (STRICT)
                    with_window<BLOCK, N>(window, [&](auto blocks) {
#pragma unroll
                        for (int i = blocks.first * BLOCK / 2; i < (blocks.first + blocks.count) * BLOCK / 2; i++)
                            sums[i] += entry_sums[i];
                    });
                take_factors(next, factors);
            } while (!segment_ends);
            last = !STRICT || at.number != number;
            if (STRICT && !(first && last))
                join_segments(sums, aside, first, last);
            first = false;
        } while (!last);
        if (layer.cell_columns == 1)
            store_cells<1>(layer, sums, tile, warp, lane);
        else if (layer.cell_columns == 2)
            store_cells<2>(layer, sums, tile, warp, lane);
        else
            store_cells<4>(layer, sums, tile, warp, lane);
    }
}

__device__ __forceinline__ void copy_boxes(const tconv_cells_parameters &layer, const CUtensorMap *map,
                                           const shared_layout &shared)
{
    pipeline_state stage = {0, 1};
    for (int number = first_tile(); number < layer.tiles; number += tile_step()) {
        const tile_place tile = find_tile(layer, number);
        const int row = tile.row * layer.row_step + layer.first_row, column = stage_column(layer, tile);
        int channel = tile.group * layer.group_in;
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            const uint32_t full = shared.stage_full + 8 * stage.at;
            mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            mbarrier_arrive_expect_tx(full, layer.stage_bytes);
            tma_load(shared.stages + stage.at * layer.stage_bytes, map, column, row, channel, tile.image, full);
            channel += layer.chunk_channels;
            stage.next(layer.stages);
        }
    }
}

/* Where the copy engine cannot: element by element, zeros outside. */
__device__ __forceinline__ void read_src(const tconv_cells_parameters &layer, const shared_layout &shared, int thread)
{
    pipeline_state stage = {0, 1};
    const float *src = static_cast<const float *>(layer.src);
    const int rows = layer.plane / layer.row_pitch, count = (int)(layer.stage_bytes / sizeof(float));
    for (int number = first_tile(); number < layer.tiles; number += tile_step()) {
        const tile_place tile = find_tile(layer, number);
        const int first_row = tile.row * layer.row_step + layer.first_row, first_column = stage_column(layer, tile);
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
            const uint32_t to = shared.stages + stage.at * layer.stage_bytes;
#pragma unroll 1
            for (int i = thread; i < count; i += READERS * WARP) {
                int rest = i / layer.row_pitch;
                const int column = first_column + i - rest * layer.row_pitch;
                const int row = first_row + rest % rows;
                rest /= rows;
                const int channel = chunk * layer.chunk_channels + rest % layer.chunk_channels;
                const int image = tile.image + rest / layer.chunk_channels;
                const bool inside = column >= 0 && column < layer.in_columns && row >= 0 && row < layer.in_rows &&
                                    channel < layer.group_in && image < layer.images;
                float value = 0;
                if (inside)
                    value = src[image * layer.from.n + (tile.group * (int64_t)layer.group_in + channel) * layer.from.c +
                                row * layer.from.h + column * layer.from.w];
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + i * (int)sizeof(float)), "f"(value) : "memory");
            }
            __syncwarp();
            if (arrives_for_warp(thread % WARP))
                mbarrier_arrive(shared.stage_full + 8 * stage.at);
            stage.next(layer.stages);
        }
    }
}

/* Each block of the cluster copies its part of a slot to all of them. */
__device__ __forceinline__ void copy_slots(const tconv_cells_parameters &layer, const shared_layout &shared)
{
    pipeline_state slot = {0, 1};
    const char *weights = static_cast<const char *>(layer.weights);
    for (int number = first_tile(); number < layer.tiles; number += tile_step()) {
        const tile_place tile = find_tile(layer, number);
        const tconv_cells_program &program = layer.program[tile.program];
        const int64_t cell = tile.group * layer.channel_tiles + (tile.channel >> layer.channel_shift);
        int64_t row = (cell * layer.all_rows + program.first_row) * layer.chunks;
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
#pragma unroll 1
            for (int s = program.first_slot; s < program.end_slot; s++) {
                const uint32_t full = shared.slot_full + 8 * slot.at, bytes = layer.slot[s].rows * layer.row_bytes;
                const uint32_t part = bytes / TCONV_CELLS_CLUSTER, first = part * cluster_rank();
                mbarrier_wait(shared.slot_empty + 8 * slot.at, slot.parity);
                mbarrier_arrive_expect_tx(full, bytes);
                bulk_load_multicast(shared.slots + slot.at * layer.slot_bytes + first,
                                    weights + row * layer.row_bytes + first, part, full, ALL_BLOCKS);
                row += layer.slot[s].rows;
                slot.next(layer.slots);
            }
        }
    }
}

/* The kernel needs sm_90a. Elsewhere it is empty and, so that the host can tell, made for one warp. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TCONV_CELLS_BOUNDS __cluster_dims__(TCONV_CELLS_CLUSTER) __launch_bounds__(TCONV_CELLS_THREADS, 1)
#else
#define TCONV_CELLS_BOUNDS __launch_bounds__(32)
#endif

template <bool STRICT, int BLOCK, int STEPS>
__global__ void TCONV_CELLS_BOUNDS cells_layer(const __grid_constant__ tconv_cells_parameters layer,
                                               const __grid_constant__ CUtensorMap map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(128) char buffers[];
    __shared__ __align__(8) uint64_t barriers[BARRIERS];
    constexpr uint32_t EACH = 8 * TCONV_CELLS_BUFFERS;
    const uint32_t first = shared_address(barriers), memory = shared_address(buffers);
    const shared_layout shared = {first,
                                  first + EACH,
                                  first + 2 * EACH,
                                  first + 3 * EACH,
                                  memory,
                                  memory + layer.stages * layer.stage_bytes,
                                  memory + layer.stages * layer.stage_bytes + layer.slots * layer.slot_bytes};
    /* Through a shuffle, so that the compiler knows that it is one number for the warp. */
    const int warp = __shfl_sync(~0u, (int)threadIdx.x / WARP, 0), lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < TCONV_CELLS_BUFFERS; i++) {
            mbarrier_init(shared.stage_full + 8 * i, layer.by_boxes ? 1 : READERS * WARP_ARRIVALS);
            mbarrier_init(shared.stage_empty + 8 * i, CONSUMER_WARPS * WARP_ARRIVALS);
            mbarrier_init(shared.slot_full + 8 * i, 1);
            mbarrier_init(shared.slot_empty + 8 * i, TCONV_CELLS_GROUPS * TCONV_CELLS_CLUSTER);
        }
        mbarrier_init_fence();
    }
    cluster_sync();
    if (warp < CONSUMER_WARPS) {
        setmaxnreg_increase<CONSUMER_REGISTERS>();
        consume<STRICT, BLOCK, STEPS>(layer, shared, warp, lane);
    } else {
        setmaxnreg_decrease<OTHER_REGISTERS>();
        const int role = warp - CONSUMER_WARPS;
        if (role == BOX_WARP) {
            if (lane == 0 && layer.by_boxes)
                copy_boxes(layer, &map, shared);
        } else if (role == SLOT_WARP) {
            if (lane == 0) {
                wait_for_weights();
                copy_slots(layer, shared);
            }
        } else if (!layer.by_boxes) {
            read_src(layer, shared, (role - FIRST_READER) * WARP + lane);
        }
    }
    cluster_sync(); /* no block ends while another still copies to it or arrives at its barriers */
#endif
}

} // namespace tconv::cells

#endif
