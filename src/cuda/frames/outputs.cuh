/* The outputs of a thread block of cuda_frames, and the carry of a stream, from its products in shared memory: a product is a
 * tree of its slices, an output a sum of products by ascending input. */
#ifndef TCONV_CUDA_FRAMES_OUTPUTS_CUH
#define TCONV_CUDA_FRAMES_OUTPUTS_CUH

#include "tile.cuh"

#include "../epilogue/finish.cuh"
#include "../epilogue/layer_posts.cuh"
#include "../ptx/memory.cuh"

namespace tconv::frames
{

namespace
{

/* A product of f32 by multiply-adds. */
__device__ __noinline__ float sum_plainly(const parameters &of, int64_t weight, int64_t pixel)
{
    const float *weights = static_cast<const float *>(of.weights) + weight;
    const float *src = static_cast<const float *>(of.src) + pixel;
    float sum = 0;
    for (int i = 0; i < of.group_in; i++, weights += of.weight_pitch, src += of.src_strides.c)
        sum = fmaf(*weights, *src, sum);
    return sum;
}

/* Returns a product, the sum of its slices. */
template <class Mode>
__device__ __forceinline__ float product_of(const parameters &of, const block_tile &tile, const float *products,
                                            int row, int column)
{
    const float *from = products + column * of.product_pitch + row;
    const int slice = tile.columns * of.product_pitch;
    float sums[SLICES];
#pragma unroll
    for (int i = 0; i < SLICES; i++)
        sums[i] = from[i * slice];
#pragma unroll
    for (int apart = 1; apart < SLICES; apart *= 2)
#pragma unroll
        for (int i = 0; i < SLICES; i += 2 * apart)
            sums[i] += sums[i + apart];
    if (!Mode::STRICT || isfinite(sums[0]))
        return sums[0];
    const int64_t in_channel = (int64_t)tile.group * of.group_in;
    return sum_plainly(of, in_channel * of.weight_pitch + tile.first_row + row,
                       find_pixel(of, tile, column) + in_channel * of.src_strides.c);
}

/* The inputs that may have a tap of an output. */
struct inputs {
    int first, last;
};

__device__ __forceinline__ inputs find_inputs(const frames_axis &axis, int output)
{
    const int padded = output + axis.pad, beyond = padded - axis.span;
    return {beyond > 0 ? divide(beyond + axis.stride.divisor - 1, axis.stride).whole : 0,
            min(divide(padded, axis.stride).whole, axis.in - 1)};
}

/* The tap of an output that reads an input, whose rest is 0 if there is one. */
__device__ __forceinline__ quotient find_tap(const frames_axis &axis, int output, int input)
{
    return divide(output + axis.pad - input * axis.stride.divisor, axis.dilation);
}

/* The sum of an output over its taps, by ascending column of inputs and in each by ascending row, from what a stream carries
 * of it on. first_x: the column of src that the block's first is to this output. */
template <class Mode>
__device__ __forceinline__ float fold_taps(const parameters &of, const block_tile &tile, const float *products,
                                           int image, int out, int row, int column, int first_x, float sum)
{
    const inputs rows = find_inputs(of.rows, row), columns = find_inputs(of.columns, column);
    for (int x = columns.first; x <= columns.last; x++) {
        const quotient column_tap = find_tap(of.columns, column, x);
        if (column_tap.rest != 0)
            continue;
        for (int y = rows.first; y <= rows.last; y++) {
            const quotient row_tap = find_tap(of.rows, row, y);
            if (row_tap.rest == 0)
                sum += product_of<Mode>(of, tile, products,
                                        tile.row_shift + out * of.taps + row_tap.whole * of.kernel_columns +
                                            column_tap.whole,
                                        image * of.image_pixels.divisor + y * of.image_columns.divisor + x - first_x);
        }
    }
    return sum;
}

/* A row of outputs of a block: its image, its output channel, which may not exist, and where in them it is. */
struct output_row {
    int image, out, row;
};

__device__ __forceinline__ output_row find_output_row(const parameters &of, int number)
{
    const quotient row = divide(number, of.row_outs), image = divide(row.whole, of.block_channels);
    return {image.whole, image.rest, row.rest};
}

/* The part of the carry that a block keeps in shared memory, behind its products: slots of images, and tails of rows. */
struct carried {
    int *slots;
    float *sums;
};

__device__ __forceinline__ carried find_carried(const parameters &of, const block_tile &tile, float *products)
{
    int *slots = reinterpret_cast<int *>(products + SLICES * tile.columns * of.product_pitch);
    return {slots, reinterpret_cast<float *>(slots + tile.images)};
}

/* Returns the slot of an image; negative where the image has no part. */
__device__ __forceinline__ int find_slot(const frames_carry &of, int image)
{
    if (of.active != NULL && of.active[image] == 0)
        return -1;
    const int slot = of.slots != NULL ? of.slots[image] : image;
    return slot < of.slot_count ? slot : -1;
}

/* Elements from the carry to the tail of a row. */
__device__ __forceinline__ int64_t find_tail(const parameters &of, const block_tile &tile, const output_row &at,
                                             int slot)
{
    const int64_t channel = (int64_t)slot * of.carry.channels + tile.group * of.group_out + tile.first_out + at.out;
    return (channel * of.row_outs.divisor + at.row) * of.carry.tail;
}

/* Brings the carry to shared memory, where all of it is before the first of it is overwritten. f32 is under way until
 * cp_async_wait_all. */
template <class Mode>
__device__ __forceinline__ void load_carry(const parameters &of, const block_tile &tile, float *products)
{
    using Element = typename Mode::Element;
    const carried to = find_carried(of, tile, products);
    const int places = tile.images * of.block_out * of.row_outs.divisor * tile.tail;
    for (int i = (int)threadIdx.x; i < tile.images; i += (int)blockDim.x)
        to.slots[i] = find_slot(of.carry, tile.first_image + i);
    for (int i = (int)threadIdx.x; i < places; i += (int)blockDim.x) {
        const quotient place = divide(i, of.carry.tail_places);
        const output_row at = find_output_row(of, place.whole);
        const int image = tile.first_image + at.image, slot = find_slot(of.carry, image);
        const bool exists = at.out < tile.outs && slot >= 0 && (of.carry.reset == NULL || of.carry.reset[image] == 0);
        const int64_t from = exists ? find_tail(of, tile, at, slot) + place.rest : 0;
        if (Mode::SIZE == 2 && of.carry.narrow)
            to.sums[i] = exists ? to_compute(static_cast<const Element *>(of.carry.sums)[from]) : 0.0f;
        else
            cp_async_padded<4>(shared_address(to.sums + i), static_cast<const float *>(of.carry.sums) + from,
                               exists ? 4 : 0);
    }
}

/* Stores a sum of the tail. */
template <class Mode> __device__ __forceinline__ void store_carry(const frames_carry &of, int64_t to, float sum)
{
    using Element = typename Mode::Element;
    if (Mode::SIZE == 2 && of.narrow)
        static_cast<Element *>(of.sums)[to] = from_compute<Element>(sum);
    else
        static_cast<float *>(of.sums)[to] = sum;
}

/* Stores the outputs of a block, whose products are in shared memory, and a stream's tail. */
template <class Mode>
__device__ __forceinline__ void store_outputs(const parameters &of, const block_tile &tile, float *products)
{
    using Element = typename Mode::Element;
    const carried carry = find_carried(of, tile, products);
    const int outputs = tile.images * of.block_out * of.row_outs.divisor * of.strip_outs.divisor;
    for (int i = (int)threadIdx.x; i < outputs; i += (int)blockDim.x) {
        const quotient place = divide(i, of.strip_outs);
        const output_row at = find_output_row(of, place.whole);
        const int channel = tile.group * of.group_out + tile.first_out + at.out;
        const int behind = tile.first_column + place.rest - tile.end; /* in the tail, where it is not negative */
        if (at.out >= tile.outs || behind >= tile.tail || (of.carry.slot_count > 0 && carry.slots[at.image] < 0))
            continue;
        const int column = behind + (behind < 0 ? tile.end : of.columns.out);
        const int first_x = tile.first_x + (behind < 0 || tile.first_x >= 0 ? 0 : of.columns.in);
        const float begin = column < tile.tail ? carry.sums[place.whole * tile.tail + column] : 0;
        const float sum = fold_taps<Mode>(of, tile, products, at.image, at.out, at.row, column, first_x, begin);
        if (behind >= 0) {
            store_carry<Mode>(of.carry, find_tail(of, tile, at, carry.slots[at.image]) + behind, sum);
            continue;
        }
        const auto offset = [&](const tconv_strides &strides) {
            return (tile.first_image + at.image) * strides.n + channel * strides.c + at.row * strides.h +
                   column * strides.w;
        };
        float value[] = {finish_sum(sum, channel_bias<Element>(of.bias, channel))};
        if (of.posts.steps.count > 0)
            run_layer_posts<Element>(
                of.posts, value, [&](int) { return channel; }, [&](int) { return offset(of.posts.addend_strides); });
        static_cast<Element *>(of.dst)[offset(of.dst_strides)] = to_output<Element>(value[0]);
    }
}

} // namespace

} // namespace tconv::frames

#endif
