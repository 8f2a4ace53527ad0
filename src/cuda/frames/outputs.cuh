/* The outputs of a thread block of cuda_frames, and the carry of a stream, from its products in shared memory: a product is the
 * sum of its slices in turn, an output a sum of products by ascending input. KEPT: the slices of a product that lie in
 * shared memory, SLICES or, where they are added already, 1. */
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
template <class Mode, int KEPT>
__device__ __forceinline__ float product_of(const parameters &of, const block_tile &tile, const float *products,
                                            int row, int column)
{
    const float *from = products + column * of.product_pitch + row;
    const int slice = tile.columns * of.product_pitch;
    float slices[KEPT], sum;
#pragma unroll
    for (int i = 0; i < KEPT; i++)
        slices[i] = from[i * slice];
    sum = slices[0];
#pragma unroll
    for (int i = 1; i < KEPT; i++)
        sum += slices[i];
    if (!Mode::STRICT || isfinite(sum))
        return sum;
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

/* A place of outputs of a block: its image, its row, and its column, which is one of the tail's where behind is not
 * negative. first_x: the column of src that the block's first is to it. */
struct output_place {
    int image, row, column, behind, first_x;
};

__device__ __forceinline__ output_place find_place(const parameters &of, const block_tile &tile, int number)
{
    const quotient column = divide(number, of.strip_outs), row = divide(column.whole, of.row_outs);
    output_place place;
    place.image = row.whole;
    place.row = row.rest;
    place.behind = tile.first_column + column.rest - tile.end;
    place.column = place.behind + (place.behind < 0 ? tile.end : of.columns.out);
    place.first_x = tile.first_x + (place.behind < 0 || tile.first_x >= 0 ? 0 : of.columns.in);
    return place;
}

/* Calls add(row, column) for each product of a place's outputs of the block's first output channel, by ascending column of
 * inputs and in each by ascending row. */
template <class Add>
__device__ __forceinline__ void walk_taps(const parameters &of, const block_tile &tile, const output_place &place,
                                          const Add &add)
{
    const int first_column = place.image * of.image_pixels.divisor - place.first_x;
    if (of.is_one_row) { /* taps lie a stride apart */
        const quotient input = divide(place.column + of.columns.pad, of.columns.stride);
        const int first = max(input.whole - of.more_taps + (input.rest > of.last_tap_rest ? 1 : 0), 0);
        const int last = min(input.whole, of.columns.in - 1), stride = of.columns.stride.divisor;
        int row = tile.row_shift + input.rest + (input.whole - first) * stride;
        for (int x = first; x <= last; x++, row -= stride)
            add(row, first_column + x);
        return;
    }
    const inputs rows = find_inputs(of.rows, place.row), columns = find_inputs(of.columns, place.column);
    for (int x = columns.first; x <= columns.last; x++) {
        const quotient column_tap = find_tap(of.columns, place.column, x);
        if (column_tap.rest != 0)
            continue;
        for (int y = rows.first; y <= rows.last; y++) {
            const quotient row_tap = find_tap(of.rows, place.row, y);
            if (row_tap.rest == 0)
                add(tile.row_shift + row_tap.whole * of.kernel_columns + column_tap.whole,
                    first_column + y * of.image_columns.divisor + x);
        }
    }
}

/* A row of outputs of a block, of the carry: its image, its output channel, which may not exist, and where in them it is. */
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

template <int KEPT>
__device__ __forceinline__ carried find_carried(const parameters &of, const block_tile &tile, float *products)
{
    int *slots = reinterpret_cast<int *>(products + KEPT * tile.columns * of.product_pitch);
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
template <class Mode, int KEPT>
__device__ __forceinline__ void load_carry(const parameters &of, const block_tile &tile, float *products)
{
    using Element = typename Mode::Element;
    const carried to = find_carried<KEPT>(of, tile, products);
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

/* Takes an output through the post-ops, apart from the code that most layers run: a small kernel's time is that of fetching its
 * instructions. */
template <class Element>
__device__ __noinline__ float run_posts_apart(const layer_posts &posts, float sum, int channel, int64_t place)
{
    float value[] = {sum};
    run_layer_posts<Element>(
        posts, value, [&](int) { return channel; }, [&](int) { return place; });
    return value[0];
}

/* Stores sums of a place, of output channels `parts` apart from the first on, as far as there are any: outputs, or a stream's
 * tail. */
template <class Mode, int AT_ONCE>
__device__ __forceinline__ void store_sums(const parameters &of, const block_tile &tile, const carried &carry,
                                           const output_place &place, int first, int parts, float (&sums)[AT_ONCE])
{
    using Element = typename Mode::Element;
    const auto out_of = [&](int i) { return min(first + i * parts, tile.outs - 1); };
    if (place.behind >= 0) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const output_row at = {place.image, out_of(i), place.row};
            if (first + i * parts < tile.outs)
                store_carry<Mode>(of.carry, find_tail(of, tile, at, carry.slots[place.image]) + place.behind, sums[i]);
        }
        return;
    }
    const int first_channel = tile.group * of.group_out + tile.first_out;
    const auto channel_of = [&](int i) { return first_channel + out_of(i); };
    const auto offset = [&](const tconv_strides &strides, int i) {
        return (tile.first_image + place.image) * strides.n + place.row * strides.h + place.column * strides.w +
               channel_of(i) * strides.c;
    };
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        sums[i] = finish_sum(sums[i], channel_bias<Element>(of.bias, channel_of(i)));
    if (of.posts.steps.count > 0) {
        if constexpr (AT_ONCE == 1)
            sums[0] = run_posts_apart<Element>(of.posts, sums[0], channel_of(0), offset(of.posts.addend_strides, 0));
        else
            run_layer_posts<Element>(of.posts, sums, channel_of,
                                     [&](int i) { return offset(of.posts.addend_strides, i); });
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        if (first + i * parts < tile.outs)
            static_cast<Element *>(of.dst)[offset(of.dst_strides, i)] = to_output<Element>(sums[i]);
}

/* Stores the outputs of a block, whose products are in shared memory, and a stream's tail. Neighbouring threads have
 * neighbouring places, each of them several output channels, whose taps are found once: all of the block's, or a part. */
template <class Mode, int KEPT>
__device__ __forceinline__ void store_outputs(const parameters &of, const block_tile &tile, float *products)
{
    constexpr int AT_ONCE = KEPT == 1 ? WIDE_OUTS : 1; /* output channels */
    const carried carry = find_carried<KEPT>(of, tile, products);
    const int places = tile.images * of.row_outs.divisor * of.strip_outs.divisor;
    const int threads = (int)blockDim.x >> of.parts_log2, part = (int)threadIdx.x / threads, parts = 1 << of.parts_log2;
    for (int number = (int)threadIdx.x % threads; number < places; number += threads) {
        const output_place place = find_place(of, tile, number);
        if (place.behind >= tile.tail || (of.carry.slot_count > 0 && carry.slots[place.image] < 0))
            continue;
        for (int first = part; first < tile.outs; first += AT_ONCE * parts) {
            float sums[AT_ONCE] = {};
            if (place.column < tile.tail)
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    const int out = min(first + i * parts, tile.outs - 1);
                    const int row = (place.image * of.block_out + out) * of.row_outs.divisor + place.row;
                    sums[i] = carry.sums[row * tile.tail + place.column];
                }
            walk_taps(of, tile, place, [&](int row, int column) {
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    const int out = min(first + i * parts, tile.outs - 1);
                    sums[i] += product_of<Mode, KEPT>(of, tile, products, row + out * of.taps, column);
                }
            });
            store_sums<Mode>(of, tile, carry, place, first, parts, sums);
        }
    }
}

} // namespace

} // namespace tconv::frames

#endif
