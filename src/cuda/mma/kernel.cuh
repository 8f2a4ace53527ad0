/*
 * The tensor-core kernel: a block walks over tiles of positions; each tile's patch of src and the block's weights pass
 * through a ring of stages in shared memory, a chunk of input channels at a time, filled by asynchronous copies that all
 * threads start ahead of the sums, into the next tile too; with TF32 each thread rounds what it has copied. See
 * mma_kernels.h for how a layer is cut.
 *
 * A tap is an offset into the patch, so nothing is gathered: the column operand of a matrix instruction is read straight
 * from the patch, once for all column residues and channels of the warp. All column residues of a position are in one
 * thread's registers, which therefore stores runs of neighbouring outputs (NCHW: 2 * stride columns; NHWC: channels).
 * Residues without a tap have sums that stay zero, and get the bias with the others.
 *
 * Numeric order of an output: input channels chunk by chunk, in each row taps, then column shifts, then steps. The matrix
 * instructions sum flush_steps steps, then f32 adds take that to the total (but for TF32), with compensation in the kernels
 * for sums of any length; the bias comes last.
 *
 * What is not finite: an output whose sum holds a NaN or Inf comes out of the matrix instructions as one of them, though
 * padding (0 * Inf) and the split of 3xTF32 (Inf - Inf) may make a NaN of anything. Each such output is summed again by
 * plain multiply-adds over the taps that it has.
 */
#ifndef TCONV_CUDA_MMA_KERNEL_CUH
#define TCONV_CUDA_MMA_KERNEL_CUH

#include "../numeric/compensated.cuh"
#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "load.cuh"
#include "operand.cuh"
#include "packed.cuh"
#include "parameters.h"

namespace tconv::mma
{

template <tconv_cuda_mma_mode MODE, int SW, int UB, int NT, bool COMPENSATED> struct tile_mma {
    using Element = typename mode_traits<MODE>::element;
    static constexpr bool HALVES = MODE == TCONV_CUDA_MMA_F16_PLANES || MODE == TCONV_CUDA_MMA_BF16_PLANES;
    static constexpr int CELL_BYTES = HALVES ? 2 : 4;
    static constexpr int PLANES = MODE == TCONV_CUDA_MMA_STRICT ? 2 : 1;
    static constexpr bool FLUSHES = MODE != TCONV_CUDA_MMA_TF32;
    static constexpr int SUMS = UB * SW * NT * 4;
    static constexpr int UNIT_QUADS = PLANES * LANES; /* 16-byte pieces of the weights of 16 channels at a step */

    const tconv_cuda_mma_parameters &layer;
    uint32_t *const shared;
    const int lane, warp, warp_position; /* of position_warps */
    static constexpr int run_words = WARP_GROUPS * WARP_GROUPS * SW;
    const int group, first_channel /* of the group, of this warp */, residue;
    const int row_taps, row_shift; /* of the residue; shift of tap 0 from the least */
    const int weights_at;          /* words from the start of a stage's weights to this part's */
    float sum[UB][SW][NT][4], partial[FLUSHES ? UB : 1][FLUSHES ? SW : 1][FLUSHES ? NT : 1][4];
    uint32_t cell[NT]; /* where this thread's column of each block of positions reads at the least shifts, in bytes */
    lost_parts<float, COMPENSATED ? SUMS : 2> lost; /* of the sums */
    int unflushed;                                  /* steps in partial */
    float bias[UB][2];                              /* by sums 2 * half of a block of 16 channels */

    __device__ __forceinline__ float (&target(int ub, int s, int nt))[4]
    {
        if constexpr (FLUSHES)
            return partial[ub][s][nt];
        else
            return sum[ub][s][nt];
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < UB * SW * NT * 4; i++) {
            sum[i / 4 / NT / SW][i / 4 / NT % SW][i / 4 % NT][i % 4] = 0;
            target(i / 4 / NT / SW, i / 4 / NT % SW, i / 4 % NT)[i % 4] = 0;
        }
        if constexpr (COMPENSATED)
            lost = {};
        unflushed = 0;
    }

    __device__ __forceinline__ void flush()
    {
        if constexpr (COMPENSATED) {
#pragma unroll
            for (int i = 0; i < SUMS; i += 2) {
                float(&to)[4] = sum[i / 4 / NT / SW][i / 4 / NT % SW][i / 4 % NT];
                float(&part)[4] = partial[i / 4 / NT / SW][i / 4 / NT % SW][i / 4 % NT];
                lost.add(i, to[i % 4], to[i % 4 + 1], part[i % 4], part[i % 4 + 1]);
                part[i % 4] = part[i % 4 + 1] = 0;
            }
            unflushed = 0;
        } else if constexpr (FLUSHES) {
#pragma unroll
            for (int i = 0; i < UB * SW * NT * 4; i++) {
                float &part = partial[i / 4 / NT / SW][i / 4 / NT % SW][i / 4 % NT][i % 4];
                sum[i / 4 / NT / SW][i / 4 / NT % SW][i / 4 % NT][i % 4] += part;
                part = 0;
            }
            unflushed = 0;
        }
    }

    struct operand {
        uint4 plane[PLANES];
    };

    static __device__ __forceinline__ operand load_weights(const uint4 *from)
    {
        operand loaded;
#pragma unroll
        for (int i = 0; i < PLANES; i++)
            loaded.plane[i] = from[i * LANES];
        return loaded;
    }

    /* 16 channels at one column residue: the small products first. */
    __device__ __forceinline__ void multiply_unit(int ub, int s, const operand &weights, const uint32_t (&src)[NT][2],
                                                  const uint32_t (&rest)[NT][2])
    {
        if constexpr (MODE == TCONV_CUDA_MMA_STRICT) {
#pragma unroll
            for (int nt = 0; nt < NT; nt++)
                multiply_add<MODE>(target(ub, s, nt), weights.plane[0], rest[nt]);
#pragma unroll
            for (int nt = 0; nt < NT; nt++)
                multiply_add<MODE>(target(ub, s, nt), weights.plane[PLANES - 1], src[nt]);
        }
#pragma unroll
        for (int nt = 0; nt < NT; nt++)
            multiply_add<MODE>(target(ub, s, nt), weights.plane[0], src[nt]);
    }

    /* The word of src at a shared address and so many bytes. Written out, because the compiler would rather compute 2 * NT
     * addresses than have the distances in the instructions. */
    template <int distance> static __device__ __forceinline__ uint32_t load_word(uint32_t at)
    {
        uint32_t word;
        if constexpr (HALVES)
            asm volatile("{ .reg .b16 half; ld.shared.u16 half, [%1+%2]; cvt.u32.u16 %0, half; }"
                         : "=r"(word)
                         : "r"(at), "n"(distance));
        else
            asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(word) : "r"(at), "n"(distance));
        return word;
    }

    /* One step's words of src, by register of the operand: of words t and t + 4 of lane t. */
    template <int NT_FIRST = 0>
    __device__ __forceinline__ void load_words(uint32_t at, uint32_t other, uint32_t (&words)[NT][2])
    {
        if constexpr (NT_FIRST < NT) {
            constexpr int DISTANCE = NT_FIRST * WARP_GROUPS * CELL_BYTES;
            words[NT_FIRST][0] = load_word<DISTANCE>(at);
            words[NT_FIRST][1] = load_word<DISTANCE>(other);
            load_words<NT_FIRST + 1>(at, other, words);
        }
    }

    __device__ __forceinline__ void load_src(uint32_t at, uint32_t (&words)[NT][2])
    {
        const uint32_t channel = CELL_BYTES * layer.word_step, other = at + 4 * channel;
        if (!is_nhwc<MODE>(layer) && layer.linear) {
            load_words(at + cell[0], other + cell[0], words);
            if constexpr (HALVES) {
                uint32_t odd[NT][2];
                load_words(at + cell[0] + channel / 2, other + cell[0] + channel / 2, odd);
#pragma unroll
                for (int i = 0; i < 2 * NT; i++)
                    words[i / 2][i % 2] = __byte_perm(words[i / 2][i % 2], odd[i / 2][i % 2], 0x5410);
            }
            return;
        }
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            words[nt][0] = load_word<0>(at + cell[nt]);
            words[nt][1] = load_word<0>(other + cell[nt]);
            if constexpr (HALVES) {
                words[nt][0] = __byte_perm(words[nt][0], load_word<0>(at + cell[nt] + channel / 2), 0x5410);
                words[nt][1] = __byte_perm(words[nt][1], load_word<0>(other + cell[nt] + channel / 2), 0x5410);
            }
        }
    }

    /* All units of a step whose column residues are given. Returns the weights behind. */
    __device__ __forceinline__ const uint4 *multiply_step(const uint4 *weights, uint32_t residues,
                                                          const uint32_t (&src)[NT][2], const uint32_t (&rest)[NT][2])
    {
        constexpr uint32_t ALL = (1u << SW) - 1;
        if (SW == 1 || residues == ALL) {
#pragma unroll
            for (int i = 0; i < SW * UB; i++)
                multiply_unit(i % UB, i / UB, load_weights(weights + i * UNIT_QUADS), src, rest);
            return weights + SW * UB * UNIT_QUADS;
        }
        if constexpr (SW > 1) {
#pragma unroll
            for (int s = 0; s < SW; s++) {
                if ((residues >> s & 1) == 0)
                    continue;
                operand operands[UB];
#pragma unroll
                for (int ub = 0; ub < UB; ub++)
                    operands[ub] = load_weights(weights + ub * UNIT_QUADS);
#pragma unroll
                for (int ub = 0; ub < UB; ub++)
                    multiply_unit(ub, s, operands[ub], src, rest);
                weights += UB * UNIT_QUADS;
            }
        }
        return weights;
    }

    /* One step, while the words of the next are loaded; step and ahead are the table's entries of this one and the next,
     * and move on. */
    __device__ __forceinline__ void do_step(uint32_t src_at, bool more, const uint32_t *&table, uint32_t &step,
                                            uint32_t &ahead, const uint4 *&weights, uint32_t (&words)[NT][2],
                                            uint32_t (&next)[NT][2])
    {
        const uint32_t residues = step >> 24;
        uint32_t rest[NT][2];
        if constexpr (MODE == TCONV_CUDA_MMA_STRICT) {
#pragma unroll
            for (int i = 0; i < 2 * NT; i++)
                split_to_tf32(words[i / 2][i % 2], &rest[i / 2][i % 2]);
        }
        if (more)
            load_src(src_at + (ahead & 0xffffffu), next);
        step = ahead;
        ahead = *table++; /* of the last steps, what lies behind the table */
        weights = multiply_step(weights, residues, words, rest);
        if (FLUSHES && ++unflushed >= layer.flush_steps)
            flush();
    }

    /* A chunk of input channels; skew: columns between the start of the patch and the first that a position reads. */
    __device__ __forceinline__ void multiply(const uint32_t *stage, int skew)
    {
        const uint4 *weights = reinterpret_cast<const uint4 *>(stage + layer.weights_at + weights_at) + lane;
        const uint32_t *table = shared + layer.steps_at;
        const int row = row_shift - (layer.most_row_taps - 1) * layer.row_shift_step; /* where the table counts from */
        const uint32_t src_at =
            shared_address(stage) + (uint32_t)((row * layer.patch_columns + skew) * layer.cell_step * CELL_BYTES);
        int left = row_taps * layer.steps;
        if (left == 0)
            return;
        uint32_t words[NT][2], others[NT][2], step = *table++, ahead = *table++;
        load_src(src_at + (step & 0xffffffu), words);
#pragma unroll 1
        while (true) {
            do_step(src_at, left > 1, table, step, ahead, weights, words, others);
            if (--left == 0)
                break;
            do_step(src_at, left > 1, table, step, ahead, weights, others, words);
            if (--left == 0)
                break;
        }
    }

    /* The channel, of this warp's, of sum 2 * half in 16-channel block ub: see channel_run in mma_packed.cuh. */
    __device__ __forceinline__ int channel_of(int ub, int half) const
    {
        return tconv_cuda_mma_channel(ub, half, lane / 4, layer.channel_run);
    }

    __device__ __forceinline__ void load_bias()
    {
        const Element *from = static_cast<const Element *>(layer.bias) + group * layer.group_out;
#pragma unroll
        for (int i = 0; i < 2 * UB; i++) {
            const int channel = first_channel + channel_of(i / 2, i % 2);
            bias[i / 2][i % 2] = layer.bias != NULL && channel < layer.group_out ? to_compute(from[channel]) : 0;
        }
    }

    /* Where the outputs of one of a block of 8 positions, and of those after it in its row, go. */
    struct target_place {
        Element *to;                    /* channel 0 of the group at the first column and residue */
        int row, first_column, columns; /* outputs from first_column on that exist */
        int image;
        int position_column;
        int src_row, src_column; /* where shift 0 reads */
    };

    __device__ __forceinline__ target_place find_target(const tile_place &tile, int nt, int position) const
    {
        const uint32_t packed = shared[layer.table_at + (warp_position * NT + nt) * WARP_GROUPS + position];
        target_place found;
        found.image = tile.image + (int)(packed >> 20);
        found.src_row = tile.row + (int)(packed >> 10 & TCONV_CUDA_MMA_EXTENT);
        found.src_column = tile.column + (int)(packed & TCONV_CUDA_MMA_EXTENT);
        bool exists = packed != NO_POSITION && found.image < layer.batch && residue < layer.row_residues;
        int position_row = found.src_row;
        found.position_column = found.src_column;
        if (layer.flat_columns != 0) {
            exists = exists && found.src_column < layer.src_columns;
            position_row = (int)((unsigned int)found.src_column / (unsigned int)layer.flat_columns);
            found.position_column -= position_row * layer.flat_columns;
        }
        found.row = position_row * layer.stride_rows + residue;
        found.first_column = found.position_column * SW;
        exists = exists && found.row < layer.dst_rows;
        found.columns = exists ? max(0, layer.dst_columns - found.first_column) : 0;
        found.to = static_cast<Element *>(layer.dst) + (int64_t)found.image * layer.dst_strides.n +
                   (int64_t)group * layer.group_out * layer.dst_strides.c + (int64_t)found.row * layer.dst_strides.h +
                   (int64_t)found.first_column * layer.dst_strides.w;
        return found;
    }

    static __device__ __forceinline__ bool is_finite(float value)
    {
        return fabsf(value) < __int_as_float(0x7f800000);
    }

    /* NCHW: runs of 2 * SW columns. Returns whether all sums are finite. */
    __device__ __forceinline__ bool store_columns(const tile_place &tile)
    {
        bool finite = true;
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            const target_place place = find_target(tile, nt, lane % 4 * 2);
#pragma unroll
            for (int ub = 0; ub < UB; ub++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int channel = first_channel + channel_of(ub, half);
                    float run[2 * SW];
#pragma unroll
                    for (int i = 0; i < 2 * SW; i++) {
                        run[i] = sum[ub][i % SW][nt][half * 2 + i / SW] + bias[ub][half];
                        finite = finite && is_finite(run[i]);
                    }
                    if (channel < layer.group_out)
                        store_run<Element>(place.to + channel * layer.dst_strides.c, run, place.columns,
                                           layer.store_vector);
                }
        }
        return finite;
    }

    /*
     * NCHW where runs of 2 * SW columns are no multiple of a vector: eight positions of eight channels at a time through
     * shared memory, so that neighbouring lanes store neighbouring columns.
     */
    __device__ __forceinline__ bool store_staged(const tile_place &tile, float *staging)
    {
        constexpr int LENGTH = WARP_GROUPS * SW; /* of a row of outputs */
        bool finite = true;
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            const target_place place = find_target(tile, nt, 0);
#pragma unroll
            for (int i = 0; i < 2 * UB; i++) {
                const int ub = i / 2, half = i % 2;
                __syncwarp();
#pragma unroll
                for (int j = 0; j < 2 * SW; j++) {
                    const float value = sum[ub][j % SW][nt][half * 2 + j / SW] + bias[ub][half];
                    finite = finite && is_finite(value);
                    staging[lane / 4 * LENGTH + lane % 4 * 2 * SW + j] = value;
                }
                __syncwarp();
#pragma unroll
                for (int j = 0; j < LENGTH * WARP_GROUPS / LANES; j++) {
                    const int at = j * LANES + lane, row = at / LENGTH, column = at % LENGTH;
                    const int channel = first_channel + tconv_cuda_mma_channel(ub, half, row, layer.channel_run);
                    const Element value = from_compute<Element>(staging[at]);
                    if (column < place.columns && channel < layer.group_out)
                        store_streaming<Element, 1>(place.to + channel * layer.dst_strides.c + column, &value);
                }
            }
        }
        return finite;
    }

    /* NHWC: runs of channels. Returns whether all sums are finite. */
    __device__ __forceinline__ bool store_channels(const tile_place &tile)
    {
        constexpr int RUN = tconv_cuda_mma_run(UB, sizeof(Element));
        bool finite = true;
#pragma unroll
        for (int first = 0; first < 2 * UB; first += RUN) {
            const int channel = first_channel + channel_of(first / 2, first % 2);
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
                const target_place place = find_target(tile, nt, lane % 4 * 2);
#pragma unroll
                for (int column = 0; column < 2 * SW; column++) {
                    float run[RUN];
#pragma unroll
                    for (int i = 0; i < RUN; i++) {
                        run[i] = sum[(first + i) / 2][column % SW][nt][(first + i) % 2 * 2 + column / SW] +
                                 bias[(first + i) / 2][(first + i) % 2];
                        finite = finite && is_finite(run[i]);
                    }
                    if (column < place.columns)
                        store_run<Element>(place.to + column * layer.dst_strides.w + channel, run,
                                           layer.group_out - channel, layer.store_vector);
                }
            }
        }
        return finite;
    }

    /* One output by multiply-adds over the taps that it has. */
    __device__ float sum_again(const target_place &place, int column_residue, int column, int channel) const
    {
        const Element *src = static_cast<const Element *>(layer.src) + (int64_t)place.image * layer.src_strides.n +
                             (int64_t)group * layer.group_in * layer.src_strides.c;
        float total = 0;
        for (int tap = 0; tap < row_taps; tap++) {
            const int row = place.src_row + layer.min_row_shift + row_shift - tap * layer.row_shift_step;
            for (int i = 0; i < layer.shifts; i++) {
                const int from = column + layer.min_column_shift + layer.columns[i].shift;
                if ((layer.columns[i].residues >> column_residue & 1) == 0 || row < 0 || row >= layer.src_rows ||
                    from < 0 || from >= layer.src_columns)
                    continue;
                const Element *at = src + row * layer.src_strides.h + from * layer.src_strides.w;
#pragma unroll 1
                for (int in = 0; in < layer.group_in; in++)
                    total =
                        fmaf(to_compute(at[in * layer.src_strides.c]),
                             packed_weight<Element>(layer, blockIdx.x, weights_at, tap, i, column_residue, channel, in),
                             total);
            }
        }
        return total;
    }

    /* Sums again what came out not finite; the sums in registers are not needed any more. */
    __device__ __forceinline__ void repair(const tile_place &tile)
    {
        wait_for_weights(); /* this thread too: it reads them itself */
#pragma unroll 1
        for (int i = 0; i < NT * 2 * SW * UB * 2; i++) {
            const int channel = channel_of(i / 2 % UB, i % 2), at = i / 2 / UB % (2 * SW);
            const target_place place = find_target(tile, i / 2 / UB / (2 * SW), lane % 4 * 2);
            if (at >= place.columns || first_channel + channel >= layer.group_out)
                continue;
            Element *to = place.to + at * layer.dst_strides.w + (first_channel + channel) * layer.dst_strides.c;
            if (!is_finite(to_compute(*to)))
                *to = from_compute<Element>(sum_again(place, at % SW, place.src_column + at / SW, channel) +
                                            (layer.bias != NULL
                                                 ? to_compute(static_cast<const Element *>(
                                                       layer.bias)[group * layer.group_out + first_channel + channel])
                                                 : 0));
        }
    }

    __device__ __forceinline__ void finish(const tile_place &tile)
    {
        flush();
        bool finite;
        if (is_nhwc<MODE>(layer))
            finite = store_channels(tile);
        else if ((SW == 3 || SW == 5 || SW == 6) && layer.staged)
            finite = store_staged(tile, reinterpret_cast<float *>(shared + layer.run_at) + run_words * warp);
        else
            finite = store_columns(tile);
        if (__any_sync(0xffffffffu, !finite)) {
            __syncwarp(); /* one lane's outputs may have been stored by another */
            repair(tile);
        }
        clear();
    }

    __device__ __forceinline__ void find_cells()
    {
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
            const uint32_t packed = shared[layer.table_at + (warp_position * NT + nt) * WARP_GROUPS + lane / 4];
            const int image = packed != NO_POSITION ? (int)(packed >> 20) : 0;
            const int row = packed != NO_POSITION ? (int)(packed >> 10 & TCONV_CUDA_MMA_EXTENT) : 0;
            const int column = packed != NO_POSITION ? (int)(packed & TCONV_CUDA_MMA_EXTENT) : 0;
            cell[nt] = (((image * layer.patch_rows + row) * layer.patch_columns + column) * layer.cell_step +
                        lane % 4 * layer.word_step) *
                       CELL_BYTES;
            asm volatile("" : "+r"(cell[nt])); /* else the product is made again at every use */
        }
    }
};

/* The warps that a multiprocessor holds, by the sums of a thread: what registers are then left is enough for them. */
constexpr int resident_warps(int sums)
{
    return sums >= 80 ? 8 : sums >= 48 ? 12 : 16;
}

constexpr int registers_of(int warps)
{
    return warps <= 8 ? 255 : 65536 / LANES / warps / 8 * 8;
}

template <tconv_cuda_mma_mode MODE, int SW, int UB, int NT, bool COMPENSATED>
constexpr int warps_of = resident_warps(SW *UB *NT * 2 *
                                        (MODE == TCONV_CUDA_MMA_TF32 ? 2
                                         : COMPENSATED               ? 5
                                                                     : 4));

template <tconv_cuda_mma_mode MODE, int SW, int UB, int NT, bool COMPENSATED>
__global__ void __launch_bounds__(TCONV_CUDA_MMA_WARPS *LANES)
    __maxnreg__(registers_of(warps_of<MODE, SW, UB, NT, COMPENSATED>))
        mma_tiles(const __grid_constant__ tconv_cuda_mma_parameters layer)
{
    extern __shared__ __align__(128) uint32_t shared[];
    __shared__ uint64_t full[TCONV_CUDA_MMA_STAGES];
    using Work = tile_mma<MODE, SW, UB, NT, COMPENSATED>;
    const block_place block = find_block(layer, blockIdx.x);
    copier<MODE> copy(layer, shared, block);
    copy.make_tables();
    if (threadIdx.x == 0) {
        for (int i = 0; i < layer.stages; i++)
            make_barrier(full + i, 1);
        publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x == 0) /* which copies them */
        wait_for_weights();

    /* In the same loop as all others, so that what issue inlines is compiled once; but compensated sums leave no register. */
    constexpr bool FILLS_IN_LOOP = !COMPENSATED;
    for (int i = 1; !FILLS_IN_LOOP && i < layer.stages; i++) {
        copy.issue(full);
        __syncthreads(); /* the next may be of another tile */
    }

    const int warp = (int)threadIdx.x / LANES, part = warp / layer.position_warps;
    const int residue = block.residue_set * layer.residue_parts + part % layer.residue_parts;
    const int channel_part = part / layer.residue_parts;
    const bool has_taps = residue < layer.row_residues;
    Work work = {layer,
                 shared,
                 (int)threadIdx.x % LANES,
                 warp,
                 warp % layer.position_warps,
                 block.group,
                 (block.channel_tile * layer.channel_parts + channel_part) * layer.part_channels,
                 residue,
                 has_taps ? layer.rows[residue].taps : 0,
                 has_taps ? layer.rows[residue].first_shift : 0,
                 part_offset(layer, block.residue_set, channel_part, part % layer.residue_parts)};
    work.find_cells();
    work.load_bias();
    work.clear();
    int stage = 0;
    uint32_t parity = 0;
    tile_walk walk(layer);
    while (walk.exists()) {
        uint32_t *words = shared + stage * layer.stage_words;
        const bool fills = FILLS_IN_LOOP && copy.issued < layer.stages - 1; /* the first ones: none to wait for yet */
        if (!fills)
            copy.wait(words);
        __syncthreads(); /* the stage is free, and so is the table of cells: the next chunk may be of another tile */
        copy.issue(full);
        if (fills)
            continue;
        wait_for(full + stage, parity);
        work.multiply(words, walk.tile.skew);
        if (++stage == layer.stages) {
            stage = 0;
            parity ^= 1;
        }
        if (walk.chunk == layer.chunks - 1)
            work.finish(walk.tile);
        walk.next_chunk();
    }
}

template <tconv_cuda_mma_mode MODE, int SW, int UB, int NT, bool COMPENSATED = false>
constexpr tconv_cuda_mma_kernel mma_kernel = {mma_tiles<MODE, SW, UB, NT, COMPENSATED>, SW,         UB, NT,
                                              warps_of<MODE, SW, UB, NT, COMPENSATED>,  COMPENSATED};

} // namespace tconv::mma

#endif
