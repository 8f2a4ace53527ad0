/* The kernels of cuda_carry. Their time is that of the products' bytes, and of launches. */
#include "fold.h"

#include <cuda_runtime_api.h>

#include "../epilogue/finish.cuh"
#include "../epilogue/posts.cuh"
#include "../numeric/divisor.cuh"
#include "../ptx/dependent_launch.cuh"

namespace tconv::carry
{

namespace
{

template <class From> __global__ void __launch_bounds__(FOLD_THREADS) stage_kernel(const __grid_constant__ stage of)
{
    using Compute = compute_type<From>;
    const int64_t pixels = of.images * of.frames * of.others;
    for (int64_t i = blockIdx.x * (int64_t)FOLD_THREADS + threadIdx.x; i < of.rows * of.channels;
         i += gridDim.x * (int64_t)FOLD_THREADS) {
        const int64_t pixel = divide(i, of.channels), channel = i - pixel * of.channels;
        Compute value = 0;
        if (pixel < pixels) {
            const int64_t row = divide(pixel, of.others), image = divide(row, of.frames);
            value = to_compute(static_cast<const From *>(
                of.src)[image * of.strides.image + channel * of.strides.channel +
                        (row - image * of.frames) * of.strides.frame + (pixel - row * of.others) * of.strides.other]);
        }
        static_cast<Compute *>(of.pixels)[i] = value;
    }
}

/* The outputs of a thread: the places of a residue, of an image, a channel and a place of the other axis. */
struct owned {
    int64_t image, part, channel, residue, other;
};

__device__ __forceinline__ owned find_owned(const fold &of, int64_t i)
{
    owned found;
    const auto split = [&](int64_t extent) { /* the innermost place, of so many, of what is left of the number */
                                             const int64_t all = i;
                                             i = divide(all, extent);
                                             return all - i * extent;
    };
    if (of.order == CHANNELS_INSIDE)
        found.channel = split(of.channels);
    if (of.order == OTHERS_INSIDE)
        found.other = split(of.other.out);
    if (of.order != CHANNELS_INSIDE)
        found.residue = split(of.step);
    if (of.order == PARTS_INSIDE)
        found.part = split(of.parts);
    if (of.order != OTHERS_INSIDE)
        found.other = split(of.other.out);
    if (of.order == CHANNELS_INSIDE)
        found.residue = split(of.step);
    else
        found.channel = split(of.channels);
    if (of.order != PARTS_INSIDE)
        found.part = split(of.parts);
    found.image = i;
    return found;
}

/* Returns the slot of an image; negative where the image has no part. */
__device__ __forceinline__ int64_t find_slot(const fold &of, int64_t image)
{
    if (of.active != NULL && of.active[image] == 0)
        return -1;
    const int64_t slot = of.slots != NULL ? of.slots[image] : of.first_image + image;
    return slot < of.slot_count ? slot : -1;
}

/* The products of an image and an output channel, which another kernel has left. */
template <class Element> struct stored_products {
    const compute_type<Element> *at;

    __device__ __forceinline__ stored_products(const fold &of, const owned &own, int64_t group)
        : at(static_cast<const compute_type<Element> *>(of.products) + own.image * of.frames * of.other.in * of.pixel +
             group * of.group + (own.channel - group * of.group_out) * of.channel)
    {
    }

    __device__ __forceinline__ compute_type<Element> product(const fold &of, int64_t frame, int64_t pixel, int64_t tap,
                                                             int64_t other_tap) const
    {
        return at[(frame * of.other.in + pixel) * of.pixel + tap * of.tap + other_tap * of.other_tap];
    }
};

/* Forms a product where it is asked for, as a sum over the input channels of the group. */
template <class Element> struct formed_products {
    const Element *src, *weights;

    __device__ __forceinline__ formed_products(const fold &of, const owned &own, int64_t group)
        : src(static_cast<const Element *>(of.src) + own.image * of.src_strides.image +
              group * of.group_in * of.src_strides.channel),
          weights(static_cast<const Element *>(of.weights) + group * of.group_in * of.weight_in +
                  (own.channel - group * of.group_out) * of.channel)
    {
    }

    __device__ __forceinline__ compute_type<Element> product(const fold &of, int64_t frame, int64_t pixel, int64_t tap,
                                                             int64_t other_tap) const
    {
        const Element *factor = src + frame * of.src_strides.frame + pixel * of.src_strides.other;
        const Element *weight = weights + tap * of.tap + other_tap * of.other_tap;
        compute_type<Element> sum = 0;
#pragma unroll 1
        for (int64_t i = 0; i < of.group_in; i++, factor += of.src_strides.channel, weight += of.weight_in)
            sum = multiply_add_rounded(to_compute(*factor), to_compute(*weight), sum);
        return sum;
    }
};

/* Adds the products of a frame's pixels to the sum of an output: by rising pixels, each by one tap at most. */
template <class Compute, class Products>
__device__ __forceinline__ Compute add_frame(const fold &of, Compute sum, const Products &products, int64_t frame,
                                             int64_t tap, int64_t other)
{
    const fold_axis &axis = of.other;
    const int64_t padded = other + axis.pad, reach = axis.dilation * (axis.kernel - 1);
    const int64_t first = padded <= reach ? 0 : divide(padded - reach + axis.stride - 1, axis.stride);
    const int64_t last = min(divide(padded, axis.stride), axis.in - 1);
#pragma unroll 1
    for (int64_t pixel = first; pixel <= last; pixel++) {
        const int64_t behind = padded - pixel * axis.stride, other_tap = divide(behind, axis.dilation);
        if (other_tap * axis.dilation == behind)
            sum += products.product(of, frame, pixel, tap, other_tap);
    }
    return sum;
}

/* Adds the products of all frames that reach a place, the oldest first. */
template <class Compute, class Products>
__device__ __forceinline__ Compute add_frames(const fold &of, Compute sum, const Products &products, int64_t place,
                                              int64_t other)
{
    const int64_t reach = of.dilation * (of.kernel - 1);
    const int64_t first = place <= reach ? 0 : divide(place - reach + of.stride - 1, of.stride);
    const int64_t last = min(divide(place, of.stride), of.frames - 1);
#pragma unroll 1
    for (int64_t frame = first; frame <= last; frame++) {
        const int64_t behind = place - frame * of.stride, tap = divide(behind, of.dilation);
        if (tap * of.dilation == behind)
            sum = add_frame(of, sum, products, frame, tap, other);
    }
    return sum;
}

template <class To, class Functions>
__device__ __forceinline__ void store_output(const fold &of, const owned &own, compute_type<To> sum, int64_t place)
{
    using Compute = compute_type<To>;
    const auto offset = [&](const frame_strides &strides) {
        return own.image * strides.image + own.channel * strides.channel + place * strides.frame +
               own.other * strides.other;
    };
    Compute values[1] = {add_bias<To>(sum, of.bias, own.channel)};
    const auto channels = [&](const void *array) {
        return element_vector<Compute, 1>{{static_cast<const Compute *>(array)[own.channel]}};
    };
    const auto addend = [&]() {
        return element_vector<Compute, 1>{{to_compute(static_cast<const To *>(of.addend)[offset(of.addend_strides)])}};
    };
#pragma unroll 1
    for (int step = 0; step < of.steps.count; step++)
        run_post<Compute, Functions>(of.steps.of[step], values, channels, addend);
    static_cast<To *>(of.dst)[offset(of.dst_strides)] = to_output<To>(values[0]);
}

/* Makes the outputs, or the carry, of a thread's places [first, end), counted in steps. */
template <class To, class Functions, class Products>
__device__ __forceinline__ void fold_places(const fold &of, const owned &own, int64_t slot, bool begins,
                                            const Products &products, int64_t first, int64_t end)
{
    using Compute = compute_type<To>;
    const int64_t at =
        slot * of.carry_strides.image + own.channel * of.carry_strides.channel + own.other * of.carry_strides.other;
    To *narrow = static_cast<To *>(of.carry) + at;
    Compute *wide = static_cast<Compute *>(of.carry) + at;
#pragma unroll 1
    for (int64_t q = first; q < end; q++) {
        const int64_t place = q * of.step + own.residue, kept = place - of.given;
        Compute sum = 0;
        if (kept >= of.tail)
            return;
        if (place < of.tail && !begins)
            sum = of.narrow_carry ? to_compute(narrow[place * of.carry_strides.frame])
                                  : wide[place * of.carry_strides.frame];
        sum = add_frames(of, sum, products, place, own.other);
        if (kept < 0)
            store_output<To, Functions>(of, own, sum, place);
        else if (of.narrow_carry)
            narrow[kept * of.carry_strides.frame] = from_compute<To>(sum);
        else
            wide[kept * of.carry_strides.frame] = sum;
    }
}

/* With at least two blocks of a multiprocessor, ptxas takes registers enough for f64. */
template <class To, class Functions, template <class> class Products>
__global__ void __launch_bounds__(FOLD_THREADS, 2) fold_kernel(const __grid_constant__ fold of)
{
    launch_dependents();
    wait_for_kernel_ahead();
    const int64_t all = of.images * of.parts * of.channels * of.other.out * of.step;
    for (int64_t i = blockIdx.x * (int64_t)FOLD_THREADS + threadIdx.x; i < all;
         i += gridDim.x * (int64_t)FOLD_THREADS) {
        const owned own = find_owned(of, i);
        const int64_t slot = find_slot(of, own.image);
        if (slot < 0)
            continue;
        const bool begins = of.reset != NULL && of.reset[own.image] != 0;
        const Products<To> products(of, own, divide(own.channel, of.group_out));
        const int64_t given = divide(of.given, of.step), first = own.part * of.part;
        fold_places<To, Functions>(of, own, slot, begins, products, first, min(first + of.part, given));
        if (own.part == 0) /* the tail; behind its last place nothing is done */
            fold_places<To, Functions>(of, own, slot, begins, products, given, INT64_MAX);
    }
}

} // namespace

extern "C" const void *tconv_carry_stage_kernel(tconv_dtype dtype)
{
    return with_element(dtype,
                        [](auto element) -> const void * { return (const void *)stage_kernel<decltype(element)>; });
}

template <template <class> class Products> static const void *choose_fold(tconv_dtype dtype, bool exact)
{
    return with_element(dtype, [=](auto element) -> const void * {
        using To = decltype(element);
        if constexpr (std::is_same<To, double>::value)
            return (const void *)fold_kernel<To, exact_functions, Products>;
        else if constexpr (std::is_same<To, float>::value)
            return exact ? (const void *)fold_kernel<To, exact_functions, Products>
                         : (const void *)fold_kernel<To, fast_functions, Products>;
        else
            return (const void *)fold_kernel<To, fast_functions, Products>;
    });
}

extern "C" const void *tconv_carry_fold_kernel(tconv_dtype dtype, bool exact, bool forms)
{
    return forms ? choose_fold<formed_products>(dtype, exact) : choose_fold<stored_products>(dtype, exact);
}

} // namespace tconv::carry
