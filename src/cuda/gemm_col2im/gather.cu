/*
 * Outputs from products, and src and weights put densely in f32.
 *
 * Each output sums the products of its pixels with its taps: parts of the channels in order, rows of taps within,
 * columns of taps within, in f32, in strict f32 with compensation; then the bias, then the post-ops. Products that the
 * border cuts off are not read.
 *
 * NCHW: products lie by channel and tap, pixels are neighbours. The lanes of a warp take one residue of neighbouring
 * places, whose taps are alike, and read neighbours; outputs of all residues are put in order in shared memory.
 * NHWC, and operands exchanged: products lie by pixel, taps or channels are neighbours. Threads take outputs as they
 * lie.
 */
#include "gather.h"

#include "../epilogue/finish.cuh"
#include "../epilogue/layer_posts.cuh"
#include "../numeric/compensated.cuh"
#include "../numeric/divisor.cuh"
#include "../ptx/dependent_launch.cuh"

namespace tconv::gemm_col2im
{

namespace
{

constexpr int THREADS = GATHER_THREADS, WARPS = THREADS / 32;
constexpr int RESIDENT = 4; /* blocks of a multiprocessor, which leave registers enough */
/* Outputs of a tile, with a word more for an even count of residues. */
constexpr int MAX_PITCHED = GATHER_TILE + GATHER_TILE / 2;

/* Taps of an output along an axis: the first kernel index and the input that it reads, and how many follow. */
struct taps {
    int kernel, input, count;
};

/* The first tap of a residue, and the input that it reads, less the quotient. */
struct first_tap {
    int kernel, shift; /* kernel: at least the extent of the kernel where there is none */
};

__device__ __forceinline__ first_tap find_first(const gather_axis &axis, int residue)
{
    if (axis.dilation == 1)
        return {residue, 0};
    const quotient shared = divide(residue, axis.common);
    const int kernel = divide(shared.whole * axis.inverse, axis.kernel_step).rest;
    if (shared.rest != 0 || kernel >= axis.kernel)
        return {axis.kernel, 0};
    return {kernel, -divide(kernel * axis.dilation - residue, axis.stride).whole}; /* exact, and not negative */
}

/* Leaves out what lies beyond src. */
__device__ __forceinline__ taps clip_taps(const gather_axis &axis, const first_tap &first, int quotient)
{
    const int input = quotient + first.shift, left = axis.kernel - 1 - first.kernel;
    if (input < 0 || left < 0)
        return {0, 0, 0};
    const int step = axis.shift_step.divisor;
    const int skipped = divide(max(input - axis.in, -1) + step, axis.shift_step).whole;
    return {first.kernel + skipped * axis.kernel_step.divisor, input - skipped * step,
            min(divide(left, axis.kernel_step).whole, divide(input, axis.shift_step).whole) - skipped + 1};
}

/*
 * Sums the products of outputs of COUNT neighbouring residues. The first has the taps `columns`, the others those
 * beside them; counts says how many each has. at: of the products of the channel and image, in elements. Products of a
 * chunk are few enough for 32-bit offsets, in bytes.
 */
template <bool compensated, int COUNT>
__device__ __forceinline__ void sum_products(const gather_shape &of, int at, const taps &rows, const taps &columns,
                                             const int (&counts)[COUNT], float (&sums)[COUNT])
{
    const uint32_t tap = (uint32_t)of.tap_pitch * 4, row_pitch = (uint32_t)of.row_pitch * 4;
    const uint32_t column_pitch = (uint32_t)of.column_pitch * 4, row_tap = (uint32_t)of.columns.kernel * tap;
    const uint32_t row_step =
        (uint32_t)of.rows.kernel_step.divisor * row_tap - (uint32_t)of.rows.shift_step.divisor * row_pitch;
    const uint32_t step =
        (uint32_t)of.columns.kernel_step.divisor * tap - (uint32_t)of.columns.shift_step.divisor * column_pitch;
    uint32_t begin = (uint32_t)at * 4 + (uint32_t)rows.kernel * row_tap +
                     (uint32_t)(rows.input - of.rows.first) * row_pitch + (uint32_t)columns.kernel * tap +
                     (uint32_t)(columns.input - of.columns.first) * column_pitch;
    const auto add = [&](float(&lost)[COUNT], int i, float term) {
        if constexpr (compensated)
            add_compensated(sums[i], lost[i], term);
        else
            sums[i] += term;
    };
    int least = counts[0], most = counts[0];
#pragma unroll
    for (int i = 1; i < COUNT; i++) {
        least = min(least, counts[i]);
        most = max(most, counts[i]);
    }
    float lost[COUNT] = {};
    const char *products = reinterpret_cast<const char *>(of.products);
#pragma unroll 1
    for (int part = 0; part < of.parts; part++, begin += (uint32_t)of.part_pitch * 4) {
        uint32_t first = begin;
#pragma unroll 1
        for (int row = 0; row < rows.count; row++, first += row_step) {
            uint32_t next = first;
            int column = 0;
#pragma unroll 2
            for (; column < least; column++, next += step) {
                float loaded[COUNT];
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    loaded[i] = *reinterpret_cast<const float *>(products + (next + (uint32_t)i * tap));
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    add(lost, i, loaded[i]);
            }
#pragma unroll 1
            for (; column < most; column++, next += step)
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    if (column < counts[i])
                        add(lost, i, *reinterpret_cast<const float *>(products + (next + (uint32_t)i * tap)));
        }
    }
}

/* An output row of a channel of an image. */
struct output_row {
    int64_t dst;  /* where the row begins */
    int products; /* where those of the channel and image begin */
    int channel;  /* of the layer */
    taps rows;
};

/* channel: of the chunk, all groups. row: of the chunk's outputs. */
__device__ __forceinline__ output_row find_row(const gather_shape &of, int image, int channel, int row)
{
    const quotient group = divide(channel, of.channels), padded = divide(of.rows.begin + row, of.rows.stride);
    output_row found;
    found.products = image * (int)of.image_pitch + group.whole * (int)of.group_pitch + group.rest * (int)of.out_pitch;
    found.channel = group.whole * of.group_out + of.first_channel + group.rest;
    found.dst = image * of.dst_strides.n + found.channel * of.dst_strides.c +
                (of.rows.begin + row - of.rows.pad) * of.dst_strides.h;
    found.rows = clip_taps(of.rows, find_first(of.rows, padded.rest), padded.whole);
    return found;
}

/* An output of the chunk. */
struct output_place {
    int image, channel, row, column;
};

/* Takes the value of an output, which has its bias, through the post-ops. find() returns where it is in the
 * chunk; it is called only where that is needed. */
template <class Element, class Find>
__device__ __forceinline__ float run_output_posts(const gather_shape &of, float value, const Find &find)
{
    float values[] = {value};
    const auto channel_of = [&](const output_place &output) {
        const quotient group = divide(output.channel, of.channels);
        return group.whole * of.group_out + of.first_channel + group.rest;
    };
    run_layer_posts<Element>(
        of.posts, values, [&](int) { return channel_of(find()); },
        [&](int) {
            const tconv_strides &strides = of.posts.addend_strides;
            const output_place output = find();
            return output.image * strides.n + channel_of(output) * strides.c +
                   (of.rows.begin + output.row - of.rows.pad) * strides.h +
                   (of.columns.begin + output.column - of.columns.pad) * strides.w;
        });
    return values[0];
}

/* Tile after tile, their residues fastest; threads sum COUNT residues at a time. */
template <class Element, bool compensated, int COUNT>
__global__ void __launch_bounds__(THREADS, RESIDENT) gather_planes(const __grid_constant__ gather_shape of, int tiles)
{
    wait_for_weights(); /* and products */
    __shared__ float tile_sums[MAX_PITCHED];
    __shared__ int64_t starts[GATHER_TILE];  /* of a place, in dst: that of the residue 0 */
    __shared__ int coordinates[GATHER_TILE]; /* padded, the same */
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int residues = of.residues.divisor, pitch = residues | 1, stride = of.columns.stride.divisor;
    const int first_quotient = divide(of.columns.begin, of.columns.stride).whole, begin = first_quotient * stride;
    const int blocks = of.tile_places / 32, sharers = max(WARPS / blocks, 1); /* warps that share a block of places */
    for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
        const quotient cut = divide(tile, of.residue_tiles);
        const int first_residue = cut.rest * residues, tile_residues = min(residues, stride - first_residue);
        for (int block = warp / sharers; block < blocks; block += WARPS / sharers) {
            const int number = block * 32 + lane;
            const int64_t place = (int64_t)cut.whole * of.tile_places + number;
            const quotient line = divide((int)min(place, of.places - 1), of.quotients);
            const quotient plane = divide(line.whole, of.out_rows), image = divide(plane.whole, of.all_channels);
            const output_row row = find_row(of, image.whole, image.rest, plane.rest);
            const int padded = begin + line.rest * stride;
            const float bias = channel_bias<Element>(of.bias, row.channel);
            if (warp % sharers == 0) {
                coordinates[number] = place < of.places ? padded : -stride; /* before all outputs */
                starts[number] = row.dst + ((int64_t)padded - of.columns.pad) * of.dst_strides.w;
            }
            if (place >= of.places)
                continue;
            for (int r = warp % sharers * COUNT; r < tile_residues; r += sharers * COUNT) {
                taps columns = {};
                int counts[COUNT];
                float sums[COUNT] = {};
#pragma unroll
                for (int i = COUNT - 1; i >= 0; i--) {
                    const first_tap first = find_first(of.columns, first_residue + r + i);
                    columns = clip_taps(of.columns, first, first_quotient + line.rest);
                    counts[i] = r + i < tile_residues ? columns.count : 0;
                }
                sum_products<compensated, COUNT>(of, row.products, row.rows, columns, counts, sums);
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    if (r + i < tile_residues)
                        tile_sums[number * pitch + r + i] = finish_sum(sums[i], bias);
            }
        }
        __syncthreads();
        for (int output = (int)threadIdx.x; output < residues * of.tile_places; output += THREADS) {
            const quotient at = divide(output, of.residues);
            const int residue = first_residue + at.rest, padded = coordinates[at.whole] + residue;
            if (padded < of.columns.begin || padded >= of.columns.end || at.rest >= tile_residues)
                continue;
            float value = tile_sums[at.whole * pitch + at.rest];
            if (of.posts.steps.count > 0)
                value = run_output_posts<Element>(of, value, [&]() {
                    const quotient line = divide(cut.whole * of.tile_places + at.whole, of.quotients);
                    const quotient plane = divide(line.whole, of.out_rows),
                                   image = divide(plane.whole, of.all_channels);
                    return output_place{image.whole, image.rest, plane.rest, padded - of.columns.begin};
                });
            static_cast<Element *>(of.dst)[starts[at.whole] + residue * of.dst_strides.w] = to_output<Element>(value);
        }
        __syncthreads();
    }
}

__device__ __forceinline__ output_place find_output(const gather_shape &of, int place)
{
    const quotient pixel = of.channels_last ? divide(place, of.all_channels) : quotient{place, 0};
    const quotient line = divide(pixel.whole, of.out_columns), plane = divide(line.whole, of.out_rows);
    if (of.channels_last)
        return {plane.whole, pixel.rest, plane.rest, line.rest};
    const quotient image = divide(plane.whole, of.all_channels);
    return {image.whole, image.rest, plane.rest, line.rest};
}

/* Output after output as they lie. */
template <class Element, bool compensated>
__global__ void __launch_bounds__(THREADS) gather_outputs(const __grid_constant__ gather_shape of, int)
{
    wait_for_weights(); /* and products */
    for (int64_t place = blockIdx.x * (int64_t)THREADS + threadIdx.x; place < of.places;
         place += gridDim.x * (int64_t)THREADS) {
        const output_place output = find_output(of, (int)place);
        const output_row row = find_row(of, output.image, output.channel, output.row);
        const int padded = of.columns.begin + output.column;
        const quotient column = divide(padded, of.columns.stride);
        const taps columns = clip_taps(of.columns, find_first(of.columns, column.rest), column.whole);
        const int counts[] = {columns.count};
        float sums[] = {0};
        sum_products<compensated, 1>(of, row.products, row.rows, columns, counts, sums);
        float value = finish_sum(sums[0], channel_bias<Element>(of.bias, row.channel));
        if (of.posts.steps.count > 0)
            value = run_output_posts<Element>(of, value, [&]() { return find_output(of, forgotten((int)place)); });
        static_cast<Element *>(of.dst)[row.dst + (padded - of.columns.pad) * of.dst_strides.w] =
            to_output<Element>(value);
    }
}

template <class Element, class To>
__global__ void __launch_bounds__(THREADS)
    put_densely_kernel(const __grid_constant__ nested_axes axes, const Element *from, To *to)
{
    launch_dependents();
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < axes.count; i += gridDim.x * (int64_t)THREADS) {
        const quotient inside = divide((int)i, axes.extents[3]);
        int rest = inside.whole;
        int64_t at =
            min(inside.rest, axes.inside - 1) * axes.strides[3]; /* loads without a condition go out together */
#pragma unroll
        for (int axis = 2; axis >= 0; axis--) {
            const quotient next = divide(rest, axes.extents[axis]);
            at += next.rest * axes.strides[axis];
            rest = next.whole;
        }
        const To value = static_cast<To>(from[at]);
        to[i] = inside.rest < axes.inside ? value : static_cast<To>(0.0f);
    }
}

template <class Element> const void *dense_kernel(bool widens)
{
    return widens ? (const void *)put_densely_kernel<Element, float>
                  : (const void *)put_densely_kernel<Element, Element>;
}

template <class Element, bool compensated = false> const void *gather_kernel(bool by_output, int at_once)
{
    return by_output      ? (const void *)gather_outputs<Element, compensated>
           : at_once == 1 ? (const void *)gather_planes<Element, compensated, 1>
           : at_once == 2 ? (const void *)gather_planes<Element, compensated, 2>
                          : (const void *)gather_planes<Element, compensated, 4>;
}

} // namespace

const void *tconv_gemm_col2im_gather_kernel(numerics kind, bool by_output, int at_once)
{
    switch (kind) {
    case NUMERICS_F16: return gather_kernel<__half>(by_output, at_once);
    case NUMERICS_BF16: return gather_kernel<__nv_bfloat16>(by_output, at_once);
    case NUMERICS_TF32: return gather_kernel<float>(by_output, at_once);
    default: return gather_kernel<float, true>(by_output, at_once);
    }
}

const void *tconv_gemm_col2im_dense_kernel(tconv_dtype dtype, bool widens)
{
    return dtype == TCONV_F32   ? (const void *)put_densely_kernel<float, float>
           : dtype == TCONV_F16 ? dense_kernel<__half>(widens)
                                : dense_kernel<__nv_bfloat16>(widens);
}

} // namespace tconv::gemm_col2im
