/*
 * The rows kernel: a block walks down the rows of one image for 16 output channels of a group, and writes whole rows of dst,
 * for these layers take the time of writing dst. All column phases of a position are in one thread's registers, so that each
 * piece of src is taken from shared memory once for all of them. Rows of src lie in a ring, the next one on its way.
 *
 * A row of dst is staged in shared memory and goes out by bulk copies while the next is multiplied: no thread waits for its
 * own stores. Rows without taps, which are the bias, go out with the row before them or are written directly. Devices before
 * Hopper store from shared memory.
 *
 * Numeric order of an output: columns from the first back, row taps, steps of channels (rows_multiply.cuh), the bias. Taps cut
 * off by the left and right border are multiplied as zeros, those of rows are skipped.
 */
#ifndef TCONV_CUDA_ROWS_KERNEL_CUH
#define TCONV_CUDA_ROWS_KERNEL_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "epilogue.cuh"
#include "mainloop.cuh"

namespace tconv::rows
{

template <class Mode, int SW> struct walk {
    using Element = typename Mode::Element;
    static constexpr int TILES = TCONV_CUDA_ROWS_TILES(SW), POSITIONS = TILES * TCONV_CUDA_ROWS_TILE;
    static constexpr int LENGTH = access_length<Element>;
    static constexpr int CHANNELS = TCONV_CUDA_ROWS_STEP_BYTES / (int)sizeof(Element); /* of a step */

    const tconv_cuda_rows_parameters &layer;
    const uint4 *weights;
    Element *slots;
    const Element *src; /* of the image and group, at the first column that is loaded, which may be before src */
    int src_column;     /* that column */
    int slot_column;    /* of the tile's first position, in a slot */
    int first_row, end_row;
    int lane, warp;
    int unit, piece; /* of src, that this thread copies first */
    row_writer<Element> writer;

    __device__ __forceinline__ walk(const tconv_cuda_rows_parameters &layer, uint4 *shared) : layer(layer)
    {
        unsigned int rest = blockIdx.x;
        const int block = (int)(rest % layer.channel_blocks);
        rest /= layer.channel_blocks;
        const int tile = (int)(rest % layer.column_tiles);
        rest /= layer.column_tiles;
        const int strip = (int)(rest % layer.strips);
        rest /= layer.strips;
        const int group = (int)(rest % layer.groups);
        const int64_t image = rest / layer.groups;
        lane = (int)threadIdx.x % 32;
        warp = (int)threadIdx.x / 32;
        unit = warp / layer.unit_warps * Mode::UNIT; /* of fewer units than warps, several share one */
        piece = (warp % layer.unit_warps * 32 + lane) * LENGTH;
        first_row = layer.first_row + strip * layer.strip_rows;
        end_row = min(first_row + layer.strip_rows, layer.end_row);

        const int column = layer.first_column + tile * layer.columns, needed = column - layer.most_column_back;
        src_column = needed - (needed & (LENGTH - 1));
        slot_column = column - src_column;
        src = static_cast<const Element *>(layer.src) + image * layer.src_image +
              (int64_t)group * layer.group_in * layer.src_channel + src_column;
        weights = shared;
        slots = reinterpret_cast<Element *>(shared + layer.weight_quads);
        load_weights(static_cast<const uint4 *>(layer.weights) +
                         ((int64_t)group * layer.channel_blocks + block) * layer.weight_quads,
                     shared);

        const int channel = block * TCONV_CUDA_ROWS_CHANNELS;
        const int64_t channel_of_all = (int64_t)group * layer.group_out + channel;
        writer = row_writer<Element>(
            layer, slots + layer.slots * layer.slot_size,
            static_cast<Element *>(layer.dst) + image * layer.dst_image + channel_of_all * layer.dst_channel,
            layer.bias == NULL ? NULL : static_cast<const Element *>(layer.bias) + channel_of_all,
            layer.group_out - channel, column * SW - layer.column_pad, layer.columns * SW,
            min(end_row * layer.row_stride - layer.row_pad, layer.out_rows) - 1);
    }

    /* Begins to copy the block's weights, and clears the channels of the slots that src does not have. */
    __device__ __forceinline__ void load_weights(const uint4 *from, uint4 *to)
    {
        wait_for_weights();
        for (int i = (int)threadIdx.x; i < layer.weight_quads; i += (int)blockDim.x)
            cp_async(to + i, from + i, true);
        const int channels = (layer.group_in + Mode::UNIT - 1) / Mode::UNIT * Mode::UNIT;
        const int present = channels * layer.src_pitch, slot = layer.slot_size;
        for (int s = 0; s < layer.slots; s++)
            for (int i = present + (int)threadIdx.x * LENGTH; i < slot; i += (int)blockDim.x * LENGTH)
                *reinterpret_cast<uint4 *>(slots + s * slot + i) = uint4{0, 0, 0, 0};
    }

    __device__ __forceinline__ Element *slot_at(int slot) const
    {
        return slots + slot * layer.slot_size;
    }

    /* Begins to copy a row of src, if it exists, into a slot; zeros beyond its ends, and for a second channel of a unit that
     * does not exist. */
    __device__ __forceinline__ void load_row(int row, int slot) const
    {
        if ((unsigned int)row >= (unsigned int)layer.in_rows)
            return;
        for (int first = unit; first < layer.group_in; first += layer.unit_step)
#pragma unroll
            for (int c = first; c < first + Mode::UNIT; c++) {
                const Element *from = src + c * layer.src_channel + (int64_t)row * layer.in_columns;
                Element *to = slot_at(slot) + c * layer.src_pitch;
                for (int column = piece; column < layer.src_loaded; column += layer.piece_step)
                    load_piece(to + column, from + column, src_column + column, c < layer.group_in);
            }
    }

    __device__ __forceinline__ void load_piece(Element *to, const Element *from, int column, bool channel_exists) const
    {
        if (layer.src_aligned) {
            const bool exists = channel_exists && (unsigned int)column < (unsigned int)layer.in_columns;
            cp_async(to, exists ? from : layer.src, exists);
        } else {
#pragma unroll 1
            for (int i = 0; i < LENGTH; i++)
                to[i] = channel_exists && (unsigned int)(column + i) < (unsigned int)layer.in_columns ? from[i]
                                                                                                      : Element(0.0f);
        }
    }

    /* Makes what this thread has copied of a row ready for the matrix instructions. */
    __device__ __forceinline__ void prepare_row(int row, int slot) const
    {
        if constexpr (Mode::PREPARES) {
            if ((unsigned int)row >= (unsigned int)layer.in_rows)
                return;
            for (int first = unit; first < layer.group_in; first += layer.unit_step)
                for (int column = piece; column < layer.src_loaded; column += layer.piece_step)
                    Mode::prepare(slot_at(slot) + first * layer.src_pitch + column, layer.src_pitch);
        }
    }

    /* Adds the products of one column of one row of the kernel for each residue that has one `back` columns before: src from
     * `from` on, weights of this lane at tap. */
    __device__ __forceinline__ void multiply_column(float (&sums)[SW][TILES][4], const Element *from, const uint4 *tap,
                                                    int residues) const
    {
        constexpr int STEP_QUADS = Mode::PLANES * 32;
        const int steps = Mode::STEPS != 0 ? Mode::STEPS : layer.steps;
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            operand operands[TILES];
#pragma unroll
            for (int t = 0; t < TILES; t++)
                operands[t] = Mode::load(from + t * TCONV_CUDA_ROWS_TILE, layer.src_pitch);
            const uint4 *of_residue = tap;
#pragma unroll
            for (int s = 0; s < SW; s++) {
                if ((residues >> s & 1) != 0) {
                    Mode::multiply(sums[s], Mode::load_weights(of_residue), operands);
                    of_residue += steps * STEP_QUADS;
                }
            }
            from += CHANNELS * layer.src_pitch;
            tap += STEP_QUADS;
        }
    }

    /* The sums of the outputs of a residue at one quotient of rows, whose row of src is in `slot`, older ones before it. */
    __device__ __forceinline__ void multiply(float (&sums)[SW][TILES][4], int quotient, int residue, int slot) const
    {
#pragma unroll
        for (int i = 0; i < SW * TILES * 4; i++)
            sums[i / 4 / TILES][i / 4 % TILES][i % 4] = 0;
        const int column = slot_column + warp * POSITIONS + lane / 4;
        const int first_back = layer.row_back[residue], row_taps = layer.row_taps[residue];
        for (int back = 0; back <= layer.most_column_back; back++) {
            const int residues = layer.column_residues[back];
            const Element *of_column = slots + Mode::place(column - back, lane % 4, layer.src_pitch);
            const uint4 *taps =
                weights + layer.column_quads[back] + layer.row_kernel[residue] * layer.kernel_row_quads + lane;
            int from = slot - first_back + (slot < first_back ? layer.slots : 0), row = quotient - first_back;
            for (int tap = 0; tap < row_taps; tap++) {
                if ((unsigned int)row < (unsigned int)layer.in_rows)
                    multiply_column(sums, of_column + from * layer.slot_size, taps, residues);
                row -= layer.row_back_step;
                from -= layer.row_back_step;
                from += from < 0 ? layer.slots : 0;
                taps += layer.row_kernel_step * layer.kernel_row_quads;
            }
        }
    }

    /* Stages a row's sums: those of a thread for a tile are side by side, `before` single ones, then `together` at a time. */
    template <int before, int together>
    __device__ __forceinline__ void stage(const float (&sums)[SW][TILES][4], int shift) const
    {
        Element *first = writer.staged + shift + (warp * POSITIONS + lane % 4 * 2) * SW;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Element *to = first + (lane / 4 + half * 8) * layer.staged_pitch;
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                const auto output = [&](int i) { return from_compute<Element>(sums[i % SW][t][2 * half + i / SW]); };
                Element *of_tile = to + t * TCONV_CUDA_ROWS_TILE * SW;
                constexpr int END = before + (2 * SW - before) / together * together;
#pragma unroll
                for (int i = 0; i < before; i++)
                    of_tile[i] = output(i);
#pragma unroll
                for (int i = before; i < END; i += together) {
                    element_vector<Element, together> elements;
#pragma unroll
                    for (int e = 0; e < together; e++)
                        elements.at[e] = output(i + e);
                    *reinterpret_cast<element_vector<Element, together> *>(of_tile + i) = elements;
                }
#pragma unroll
                for (int i = END; i < 2 * SW; i++)
                    of_tile[i] = output(i);
            }
        }
    }

    /* All rows of dst of a quotient, in their order; meanwhile the next row of src comes. */
    __device__ __forceinline__ void write_quotient(int quotient, int slot, int next)
    {
        bool arrived = false;
        for (int residue = 0; residue < layer.row_stride; residue++) {
            const int row = quotient * layer.row_stride - layer.row_pad + residue;
            if ((unsigned int)row >= (unsigned int)layer.out_rows)
                continue;
            if (layer.row_taps[residue] == 0) {
                if (row > writer.written)
                    writer.write_bias(row);
                continue;
            }
            float sums[SW][TILES][4];
            multiply(sums, quotient, residue, slot);
            if (!arrived)
                receive_row(quotient + 1, next); /* the barriers of this row of dst are those of the next row of src */
            arrived = true;
            if (layer.bias != NULL)
                add_bias(sums);
            writer.wait_for_stage();
            const int shift = writer.shift_of_row(row);
            if (!layer.stage_pairs)
                stage<0, 1>(sums, shift);
            else if ((shift & 1) == 0)
                stage<0, 2>(sums, shift);
            else
                stage<1, 2>(sums, shift);
            if (layer.blank_rows == 0)
                writer.template write_staged<false>(row, shift, 0, 0);
            else
                writer.template write_staged<true>(row, shift, min(layer.row_blanks[residue], writer.last_row - row),
                                                   layer.columns * SW);
        }
        if (!arrived) {
            receive_row(quotient + 1, next);
            __syncthreads();
        }
    }

    __device__ __forceinline__ void receive_row(int row, int slot) const
    {
        cp_async_wait<0>();
        if (row < end_row)
            prepare_row(row, slot);
    }

    __device__ __forceinline__ void add_bias(float (&sums)[SW][TILES][4]) const
    {
        const float bias[2] = {writer.bias_of(lane / 4), writer.bias_of(lane / 4 + 8)}; /* here: registers are few */
#pragma unroll
        for (int i = 0; i < SW * TILES * 4; i++)
            sums[i / 4 / TILES][i / 4 % TILES][i % 4] += bias[i % 4 / 2];
    }

    __device__ __forceinline__ void run()
    {
        for (int back = layer.most_row_back; back >= 0; back--)
            load_row(first_row - back, back == 0 ? 0 : layer.slots - back);
        cp_async_commit();
        cp_async_wait<0>();
        for (int back = layer.most_row_back; back >= 0; back--)
            prepare_row(first_row - back, back == 0 ? 0 : layer.slots - back);
        writer.begin_block(layer.blank_rows);
        __syncthreads();
        int slot = 0;
        for (int quotient = first_row; quotient < end_row; quotient++) {
            const int next = slot + 1 == layer.slots ? 0 : slot + 1;
            if (quotient + 1 < end_row)
                load_row(quotient + 1, next);
            cp_async_commit();
            write_quotient(quotient, slot, next);
            slot = next;
        }
        writer.finish();
    }
};

template <class Mode, int SW>
__global__ void __launch_bounds__(TCONV_CUDA_ROWS_WARPS * 32,
                                  TCONV_CUDA_ROWS_MOST_BLOCKS(sizeof(typename Mode::Element), Mode::DIRECT, SW))
    write_rows(const __grid_constant__ tconv_cuda_rows_parameters layer)
{
    extern __shared__ uint4 shared[];
    walk<Mode, SW>(layer, shared).run();
}

/* The kernel of a column stride; NULL where there is none. */
template <class Mode> tconv_cuda_rows_kernel find_kernel(int64_t column_stride)
{
    static const tconv_cuda_rows_kernel kernels[] = {write_rows<Mode, 1>,
                                                     write_rows<Mode, 2>,
                                                     write_rows<Mode, 3>,
                                                     write_rows<Mode, 4>,
                                                     write_rows<Mode, 5>,
                                                     write_rows<Mode, 6>,
                                                     NULL,
                                                     write_rows<Mode, 8>};
    return column_stride <= (int64_t)(sizeof kernels / sizeof kernels[0]) ? kernels[column_stride - 1] : NULL;
}

} // namespace tconv::rows

#endif
