/* How the packed weights of the tensor-core algorithm lie (mma_kernels.h has the picture): what packs them and what reads
 * them agree here. */
#ifndef TCONV_CUDA_MMA_PACKED_CUH
#define TCONV_CUDA_MMA_PACKED_CUH

#include "../numeric/element.cuh"
#include "parameters.h"

namespace tconv::mma
{

constexpr int UNIT_ROWS = 16;    /* of a matrix operand of weights */
constexpr int PLANE_WORDS = 128; /* of 16 channels at a step */

/* How many neighbouring channels a thread holds in NHWC: of the 2 * blocks that it has, what a 16-byte store takes. */
static __host__ __device__ constexpr int tconv_cuda_mma_run(int blocks, size_t element_size)
{
    return 2 * blocks < 16 / (int)element_size ? 2 * blocks : 16 / (int)element_size;
}

/* The channel, of 16 * UB, in row 8 * half + row of block ub: threads hold `run` neighbours, 1 as the rows come. */
static __device__ __forceinline__ int tconv_cuda_mma_channel(int ub, int half, int row, int run)
{
    const int index = 2 * ub + half;
    return index / run * 8 * run + row * run + index % run;
}

struct block_place {
    int group, channel_tile, residue_set;
};

/* What a block computes at all its tiles. */
static __device__ __forceinline__ block_place find_block(const tconv_cuda_mma_parameters &layer, unsigned int number)
{
    number %= (unsigned int)(layer.groups * layer.channel_tiles * layer.residue_sets);
    block_place found;
    found.residue_set = (int)(number % (unsigned int)layer.residue_sets);
    number /= (unsigned int)layer.residue_sets;
    found.channel_tile = (int)(number % (unsigned int)layer.channel_tiles);
    found.group = (int)(number / (unsigned int)layer.channel_tiles);
    return found;
}

static __device__ __forceinline__ int row_tap_words(const tconv_cuda_mma_parameters &layer)
{
    return layer.column_taps * (layer.chunk_words / TCONV_CUDA_MMA_STEP_WORDS) * (layer.part_channels / UNIT_ROWS) *
           layer.planes * PLANE_WORDS;
}

static __device__ __forceinline__ int residue_taps(const tconv_cuda_mma_parameters &layer, int residue)
{
    return residue < layer.row_residues ? layer.rows[residue].taps : 0;
}

/* Words from the start of a blob to a part. */
static __device__ __forceinline__ int part_offset(const tconv_cuda_mma_parameters &layer, int residue_set,
                                                  int channel_part, int residue_part)
{
    int all = 0, before = 0;
    for (int i = 0; i < layer.residue_parts; i++) {
        const int taps = residue_taps(layer, residue_set * layer.residue_parts + i);
        all += taps;
        before += i < residue_part ? taps : 0;
    }
    return (channel_part * all + before) * row_tap_words(layer);
}

template <class Element> static __device__ __forceinline__ Element element_of_word(uint32_t word, int index)
{
    if constexpr (sizeof(Element) == 4)
        return __uint_as_float(word);
    else {
        const unsigned short bits = (unsigned short)(word >> 16 * index);
        return *reinterpret_cast<const Element *>(&bits);
    }
}

/* One weight, as f32, by its channels; the slow way. part_at: words from the start of a blob to the part. */
template <class Element>
__device__ __forceinline__ float packed_weight(const tconv_cuda_mma_parameters &layer, unsigned int block, int part_at,
                                               int row_tap, int shift, int column_residue, int channel, int in)
{
    constexpr int PER_WORD = 4 / (int)sizeof(Element);
    const tconv_cuda_mma_shift &column = layer.columns[shift];
    const int blocks = layer.part_channels / UNIT_ROWS, steps = layer.chunk_words / TCONV_CUDA_MMA_STEP_WORDS;
    const int word = in / PER_WORD % layer.chunk_words, chunk = in / PER_WORD / layer.chunk_words;
    const int rank = __popc(column.residues & ((1 << column_residue) - 1));
    const int run = layer.channel_run, index = channel / (8 * run) * run + channel % run, row = channel / run % 8;
    const int unit = ((row_tap * layer.column_taps + column.before) * steps +
                      word / TCONV_CUDA_MMA_STEP_WORDS * __popc(column.residues) + rank) *
                         blocks +
                     index / 2;
    const int lane = row * 4 + word % 4;
    const int64_t blobs =
        (int64_t)(block % (unsigned int)(layer.groups * layer.channel_tiles * layer.residue_sets)) * layer.chunks +
        chunk;
    const uint32_t *at = static_cast<const uint32_t *>(layer.packed) + blobs * layer.blob_words + part_at +
                         unit * layer.planes * PLANE_WORDS + lane * 4 + word / 4 % 2 * 2 + index % 2;
    float value = to_compute(element_of_word<Element>(*at, in % PER_WORD));
    if (layer.planes == 2)
        value += __uint_as_float(at[PLANE_WORDS]);
    return value;
}

} // namespace tconv::mma

#endif
