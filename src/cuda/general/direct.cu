/*
 * Layers with few channels per group (depthwise, a few output channels, a few input channels) are read straight from
 * global memory, because a tile in shared memory would be mostly padding.
 *
 * A thread computes CHANNELS output channels of one group at PIXELS pixels of one phase, all sums in registers: for
 * each tap and input channel one vector of packed weights and one element of src a pixel. Neighbouring threads have
 * neighbouring pixels in NCHW, and in NHWC neighbouring channel blocks first, so that src and dst are accessed in runs;
 * in NHWC a thread also reads several input channels at once where their addresses allow it.
 *
 * Taps outside src and the numeric order: general.c.
 */
#include "../epilogue/finish.cuh"
#include "../epilogue/layer_posts.cuh"
#include "../numeric/compensated.cuh"
#include "tile.cuh"

namespace tconv::general
{

namespace
{

constexpr int THREADS = 256;
constexpr int BATCH = SRC_RUN; /* input channels whose loads are under way together */

template <class Element_, int CHANNELS_, int PIXELS_, int BLOCKS_> struct shape {
    using Element = Element_;
    using Compute = compute_type<Element>;
    static constexpr int CHANNELS = CHANNELS_, PIXELS = PIXELS_, BLOCKS = BLOCKS_;
    using Vector = element_vector<Element, CHANNELS>;
};

/* The sums of one thread, by pixel, then channel; they begin at zero. */
template <class S> struct thread_sums {
    using Element = typename S::Element;
    using Compute = typename S::Compute;
    static constexpr int SUMS = S::PIXELS * S::CHANNELS;
    Compute segment[SUMS], total[SUMS];
    lost_parts<Compute, SUMS> lost; /* of the totals */

    __device__ __forceinline__ void end_segment()
    {
#pragma unroll
        for (int i = 0; i < SUMS; i += 2) {
            lost.add(i, total[i], total[i + 1], segment[i], segment[i + 1]);
            segment[i] = segment[i + 1] = 0;
        }
    }

    /* Adds COUNT input channels of one tap: present has a bit for each pixel that has the tap. All loads come first, so
     * that they are under way together. in_run: the channels of a pixel are neighbours in memory, aligned. */
    template <int COUNT, bool in_run, class Index>
    __device__ __forceinline__ void add(const Element *src, const unsigned_index<Index> (&offsets)[S::PIXELS],
                                        Index src_pitch, uint32_t present, const Element *weights, Index weight_pitch)
    {
        using Run = element_vector<Element, COUNT>;
        Run x[S::PIXELS];
        typename S::Vector w[COUNT];
#pragma unroll
        for (int p = 0; p < S::PIXELS; p++) {
            const bool has = present >> p & 1;
            const Element *from = src + (Index)offsets[p];
            if (in_run) {
                x[p] = has ? *reinterpret_cast<const Run *>(from) : Run();
            } else {
#pragma unroll
                for (int k = 0; k < COUNT; k++)
                    x[p].at[k] = has ? from[k * src_pitch] : Element(0.0f);
            }
        }
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            w[k] = *reinterpret_cast<const typename S::Vector *>(weights + k * weight_pitch);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
#pragma unroll
            for (int p = 0; p < S::PIXELS; p++) {
                if ((present >> p & 1) == 0)
                    continue;
#pragma unroll
                for (int c = 0; c < S::CHANNELS; c++) {
                    Compute &sum = segment[p * S::CHANNELS + c];
                    sum = fma(to_compute(w[k].at[c]), to_compute(x[p].at[k]), sum);
                }
            }
        }
    }
};

/* Adds a tap's input channels, as many at once as BATCH allows. */
template <class S, class Index>
__device__ __forceinline__ void sum_channels(const parameters &layer, const typename S::Element *src,
                                             const unsigned_index<Index> (&offsets)[S::PIXELS], uint32_t present,
                                             const typename S::Element *weights, Index channels, thread_sums<S> &sums)
{
    const Index src_pitch = (Index)layer.src_strides.c, weight_pitch = (Index)layer.weight_pitch;
    if (layer.src_in_runs) {
        for (; channels >= BATCH; channels -= BATCH, src += BATCH * src_pitch, weights += BATCH * weight_pitch)
            sums.template add<BATCH, true>(src, offsets, src_pitch, present, weights, weight_pitch);
    } else {
        for (; channels >= BATCH; channels -= BATCH, src += BATCH * src_pitch, weights += BATCH * weight_pitch)
            sums.template add<BATCH, false>(src, offsets, src_pitch, present, weights, weight_pitch);
    }
#pragma unroll 1
    for (; channels > 0; channels--, src += src_pitch, weights += weight_pitch)
        sums.template add<1, false>(src, offsets, src_pitch, present, weights, weight_pitch);
}

template <class S, class Index>
__device__ __forceinline__ void
sum_taps(const parameters &layer, const tile<Index> &tile, const source<Index> (&source)[S::PIXELS], uint32_t exist,
         const typename S::Element *src, const typename S::Element *weights, thread_sums<S> &sums)
{
    using Element = typename S::Element;
    const Index src_pitch = (Index)layer.src_strides.c, weight_pitch = (Index)layer.weight_pitch;
    const Index group_in = (Index)layer.group_in, segment = (Index)layer.segment;
    Index terms = 0;
    for (Index row_tap = 0; row_tap < tile.row.taps; row_tap++) {
        for (Index column_tap = 0; column_tap < tile.column.taps; column_tap++) {
            const Index row = row_tap * (Index)layer.rows.shift_step;
            const Index column = column_tap * (Index)layer.columns.shift_step;
            unsigned_index<Index> offsets[S::PIXELS];
            uint32_t present = 0;
#pragma unroll
            for (int p = 0; p < S::PIXELS; p++) {
                offsets[p] = source[p].offset - distance(layer, row, column);
                if ((exist >> p & 1) && has_tap(layer, source[p], row, column))
                    present |= 1u << p;
            }
            const Element *tap_weights = weights + weight_offset(layer, tile, row_tap, column_tap);
            for (Index first = 0; first < group_in; first += segment) {
                const Index channels = min(segment, group_in - first);
                if (terms + channels > segment) {
                    sums.end_segment();
                    terms = 0;
                }
                terms += channels;
                if (present != 0)
                    sum_channels<S, Index>(layer, src + first * src_pitch, offsets, present,
                                           tap_weights + first * weight_pitch, channels, sums);
            }
        }
    }
    sums.end_segment();
}

/* Runs the post-ops and stores, channel after channel in a loop, so that the text of the kinds is there once. place(p): of
 * the pixel in the addend, channel 0. */
template <class S, class Index, class Place>
__device__ __forceinline__ void store_with_posts(const parameters &layer,
                                                 const typename S::Compute (&totals)[S::PIXELS * S::CHANNELS],
                                                 Index first_channel, int channels, uint32_t exist,
                                                 const Index (&target)[S::PIXELS], const Place &place)
{
    using Element = typename S::Element;
    using Compute = typename S::Compute;
#pragma unroll 1
    for (int c = 0; c < channels; c++) {
        const Index channel = first_channel + c;
        const Compute bias = channel_bias<Element>(layer.bias, channel);
        Compute values[S::PIXELS];
#pragma unroll
        for (int p = 0; p < S::PIXELS; p++) {
            Compute sum = totals[p * S::CHANNELS]; /* registers are not indexed */
#pragma unroll
            for (int other = 1; other < S::CHANNELS; other++)
                sum = c == other ? totals[p * S::CHANNELS + other] : sum;
            values[p] = finish_sum(sum, bias);
        }
        run_layer_posts<Element>(
            layer.posts, values, [&](int) { return channel; },
            [&](int p) {
                return exist >> p & 1 ? place(p) + (int64_t)channel * layer.posts.addend_strides.c : NO_PLACE;
            });
        Element *dst = static_cast<Element *>(layer.dst) + channel * (Index)layer.dst_strides.c;
#pragma unroll
        for (int p = 0; p < S::PIXELS; p++)
            if (exist >> p & 1)
                dst[target[p]] = to_output<Element>(values[p]);
    }
}

template <class S, class Index>
__device__ __forceinline__ void compute_tile(const parameters &layer, unsigned_index<Index> number)
{
    const tile<Index> tile = find_tile<Index>(layer, number);
    using Element = typename S::Element;
    using Compute = typename S::Compute;
    const int lanes = 1 << layer.channel_lanes_log2; /* of channel blocks; the other threads have other pixels */
    const int lane = (int)threadIdx.x & (lanes - 1), pixel_lane = (int)threadIdx.x >> layer.channel_lanes_log2;
    const int pixel_lanes = THREADS >> layer.channel_lanes_log2, tile_pixels = pixel_lanes * S::PIXELS;
    const Index group_blocks = (Index)layer.packed_out / S::CHANNELS;
    const Index block = tile.channel_tile * lanes + lane;
    const Index first = tile.pixel_tile * tile_pixels, pixels = pixels_from(layer, tile, first);
    if (block >= (Index)layer.groups * group_blocks || pixels <= 0)
        return;

    const Index group = block / group_blocks, first_of_group = (block - group * group_blocks) * S::CHANNELS;
    source<Index> source[S::PIXELS];
    Index target[S::PIXELS];
    uint32_t exist = 0;
#pragma unroll
    for (int p = 0; p < S::PIXELS; p++) {
        const int local = p * pixel_lanes + pixel_lane;
        const pixel<Index> pixel = find_pixel(tile, first, local, tile_pixels);
        source[p] = find_source(layer, tile, pixel);
        target[p] = target_offset(layer, layer.dst_strides, tile, pixel);
        if (local < pixels)
            exist |= 1u << p;
    }

    thread_sums<S> sums = {};
    sum_taps<S, Index>(layer, tile, source, exist,
                       static_cast<const Element *>(layer.src) +
                           group * (Index)layer.group_in * (Index)layer.src_strides.c,
                       static_cast<const Element *>(layer.weights) + block * S::CHANNELS, sums);

    const Index first_channel = group * (Index)layer.group_out + first_of_group;
    const Index dst_pitch = (Index)layer.dst_strides.c;
    Element *dst = static_cast<Element *>(layer.dst) + first_channel * dst_pitch;
    if (layer.posts.steps.count > 0) {
        const auto place = [&](int p) {
            const auto of = find_tile<Index>(layer, forgotten(number));
            const int pixel_lane = (int)threadIdx.x >> layer.channel_lanes_log2;
            const int pixel_lanes = THREADS >> layer.channel_lanes_log2, pixels = pixel_lanes * S::PIXELS;
            const auto found = find_pixel(of, of.pixel_tile * pixels, p * pixel_lanes + pixel_lane, pixels);
            return (int64_t)target_offset(layer, layer.posts.addend_strides, of, found);
        };
        return store_with_posts<S>(layer, sums.total, first_channel,
                                   (int)min((Index)S::CHANNELS, (Index)layer.group_out - first_of_group), exist, target,
                                   place);
    }
#pragma unroll
    for (int c = 0; c < S::CHANNELS; c++) {
        if (c >= (Index)layer.group_out - first_of_group)
            break;
        const Compute bias = channel_bias<Element>(layer.bias, first_channel + c);
#pragma unroll
        for (int p = 0; p < S::PIXELS; p++)
            if (exist >> p & 1)
                dst[target[p] + c * dst_pitch] = finish_output<Element>(sums.total[p * S::CHANNELS + c], bias);
    }
}

template <class S, class Index>
__global__ void __launch_bounds__(THREADS, sizeof(Index) == 4 ? S::BLOCKS : 1)
    direct_kernel(const __grid_constant__ parameters layer)
{
    using Unsigned = unsigned_index<Index>;
    for (Unsigned number = blockIdx.x; number < (Unsigned)layer.tiles; number += gridDim.x)
        compute_tile<S, Index>(layer, number);
}

/* The kernels of a shape, which has to be that of the host's table. */
template <class S, int number> struct kernels_of {
    static constexpr kernel_shape SHAPE = direct_shape(sizeof(typename S::Element) == 8, number);
    static_assert(SHAPE.channels == S::CHANNELS && SHAPE.pixels == THREADS * S::PIXELS && SHAPE.threads == THREADS,
                  "direct_shape has the kernel's numbers");
    static constexpr kernel_pair value = {direct_kernel<S, int64_t>, direct_kernel<S, int32_t>};
};
/* Channels, pixels, and blocks on a multiprocessor: as many as their registers allow. */
template <class Element>
constexpr kernel_pair kernels[SHAPES] = {kernels_of<shape<Element, 8, 2, 2>, 0>::value,
                                         kernels_of<shape<Element, 4, 4, 2>, 1>::value,
                                         kernels_of<shape<Element, 1, 4, 2>, 2>::value};
template <>
constexpr kernel_pair kernels<double>[SHAPES] = {kernels_of<shape<double, 8, 1, 2>, 0>::value,
                                                 kernels_of<shape<double, 4, 2, 2>, 1>::value,
                                                 kernels_of<shape<double, 1, 4, 2>, 2>::value};

} // namespace

extern "C" const void *tconv_general_direct_kernel(tconv_dtype dtype, int number, bool is_narrow)
{
    const kernel_pair *pairs = with_element(dtype, [](auto element) { return kernels<decltype(element)>; });
    return (const void *)(is_narrow ? pairs[number].narrow : pairs[number].wide);
}

} // namespace tconv::general
