/*
 * Layers with many channels per group are an implicit GEMM for each phase.
 *
 * M is the output channels of a group, N the phase's pixels (of all images) and K its taps times the input channels. A
 * block of threads computes a block tile of BLOCK_M x BLOCK_N: for each tap, K-blocks of BLOCK_K input channels go
 * through shared memory, weights from the packed buffer, pixels gathered from src, the next K-block under way in
 * registers while the threads multiply the present one, each an outer product of TM x TN from registers; in f64 a warp
 * multiplies on the tensor cores (mma.sync of f64), where the device has some for it.
 *
 * A thread whose pixels all have the tap multiplies without looking, others leave out the pixels that lack it. Nothing
 * is multiplied by a zero that stands for something missing; tensor cores multiply such zeros by weights that are
 * finite. Taps outside src and the numeric order: general.c.
 */
#include "../epilogue/finish.cuh"
#include "../epilogue/layer_posts.cuh"
#include "../numeric/compensated.cuh"
#include "tile.cuh"

namespace tconv::general
{

namespace
{

constexpr int THREADS = 128;
constexpr int BLOCK_K = 8;      /* input channels of a K-block */
constexpr int PIXEL_TABLES = 3; /* taps in use: the present one, the next, and the one being written */
constexpr int ADDEND_TABLE = 1; /* has where pixels lie in the addend, once no tap is in use */

/* A block tile, of which a thread has TM x TN sums: vectors of neighbours, STEP_M and STEP_N apart. */
template <class Element_, int BLOCK_M_, int BLOCK_N_, int BLOCKS_> struct tile_shape {
    using Element = Element_;
    using Compute = compute_type<Element>;
    static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, BLOCKS = BLOCKS_;
    static constexpr int VECTOR = 16 / (int)sizeof(Compute); /* one 16-byte access of shared memory */
    static constexpr int LOAD_M = BLOCK_K * BLOCK_M / THREADS,
                         LOAD_N = BLOCK_K * BLOCK_N / THREADS; /* elements a thread */
    using WeightVector = element_vector<Element, LOAD_M>;
    using Vector = element_vector<Compute, VECTOR>;
    static_assert(BLOCK_N <= THREADS && THREADS % BLOCK_N == 0, "one pixel for each thread, in whole rows");
};

template <class Element, int BLOCK_M, int BLOCK_N, int TM_, int TN_, int BLOCKS>
struct shape : tile_shape<Element, BLOCK_M, BLOCK_N, BLOCKS> {
    using Base = tile_shape<Element, BLOCK_M, BLOCK_N, BLOCKS>;
    static constexpr bool MATRIX = false;
    static constexpr int TM = TM_, TN = TN_, THREADS_N = BLOCK_N / TN, VECTOR_M = Base::VECTOR;
    static constexpr int STEP_M = BLOCK_M / TM * VECTOR_M, STEP_N = THREADS_N * Base::VECTOR;
    static constexpr int PITCH_M = BLOCK_M;
    static constexpr int PITCH_N = BLOCK_N + Base::VECTOR; /* rows start in other banks: NHWC stores column by column */
    static_assert(BLOCK_M / TM * THREADS_N == THREADS, "one TM x TN square for each thread");
    static __device__ __forceinline__ int thread_m()
    {
        return (int)threadIdx.x / THREADS_N * VECTOR_M;
    }
    static __device__ __forceinline__ int thread_n()
    {
        return (int)threadIdx.x % THREADS_N * Base::VECTOR;
    }
};

/* f64 on the tensor cores: WARPS_M warps lie along M. A thread's sums are where mma.sync has them: of each 8 by 8 in
 * row lane / 4, two columns from lane % 4 * 2 on. */
template <int BLOCK_M, int BLOCK_N, int WARPS_M, int BLOCKS>
struct matrix_shape : tile_shape<double, BLOCK_M, BLOCK_N, BLOCKS> {
    static constexpr bool MATRIX = true;
    static constexpr int WARPS_N = THREADS / WARP / WARPS_M, WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
    static constexpr int TM = WARP_M / 8, TN = WARP_N / 4, VECTOR_M = 1, STEP_M = 8, STEP_N = 8;
    static constexpr int PITCH_M = BLOCK_M + 4, PITCH_N = BLOCK_N + 4; /* four rows start in other banks */
    static_assert(WARP_M % 16 == 0 && WARP_N % 8 == 0, "whole products");
    static __device__ __forceinline__ int thread_m()
    {
        return (int)threadIdx.x / WARP / WARPS_N * WARP_M + (int)threadIdx.x % WARP / 4;
    }
    static __device__ __forceinline__ int thread_n()
    {
        return (int)threadIdx.x / WARP % WARPS_N * WARP_N + (int)threadIdx.x % 4 * 2;
    }
};

/* A lane has rows lane / 4 and 8 on, columns lane % 4 and 4 on of a, 16 by 8, and those columns as rows of b, 8 by 8,
 * in column lane / 4; top and bottom are its two neighbouring sums of each of its rows. */
[[maybe_unused]] __device__ __forceinline__ void multiply_add(double *top, double *bottom, const double (&a)[4],
                                                              const double (&b)[2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+d"(top[0]), "+d"(top[1]), "+d"(bottom[0]), "+d"(bottom[1])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#pragma unroll
    for (int k = 0; k < 2; k++) {
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(top[0]), "+d"(top[1])
            : "d"(a[2 * k]), "d"(b[k]));
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(bottom[0]), "+d"(bottom[1])
            : "d"(a[2 * k + 1]), "d"(b[k]));
    }
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool HAS_MATRICES = false;
#else
constexpr bool HAS_MATRICES = true;
#endif

template <class S, class Index> struct shared_memory {
    typename S::Compute weights[2][BLOCK_K][S::PITCH_M];
    typename S::Compute pixels[2][BLOCK_K][S::PITCH_N];
    typename S::Compute sums[S::BLOCK_M][S::BLOCK_N];            /* finished segments, then the result: see sums_at */
    lost_parts<typename S::Compute, S::TN> lost[S::TM][THREADS]; /* of the sums, each thread its own */
    Index offsets[PIXEL_TABLES][S::BLOCK_N]; /* in src, of each pixel's channel 0; -1 where the tap is missing */
    uint32_t present[PIXEL_TABLES][(S::BLOCK_N + WARP - 1) / WARP]; /* a bit for each pixel that has the tap */
};

/* The vector of sums that holds pixel n of channel m, with columns exchanged so that both reading a row (NCHW) and
 * reading a column (NHWC) spread over the banks. */
template <class S, class Index>
__device__ __forceinline__ typename S::Vector *sums_at(shared_memory<S, Index> &shared, int m, int n)
{
    constexpr int vectors = S::BLOCK_N / S::VECTOR;
    return reinterpret_cast<typename S::Vector *>(&shared.sums[m][((n / S::VECTOR) ^ (m % vectors)) * S::VECTOR]);
}

/* A walk over taps and, where channel is used, over the K-blocks of each. */
template <class Index> struct walk {
    Index row_tap, column_tap, channel;
    int table; /* of the tap */
    __device__ __forceinline__ void next_tap(Index column_taps)
    {
        channel = 0;
        table = table == PIXEL_TABLES - 1 ? 0 : table + 1;
        if (++column_tap == column_taps) {
            column_tap = 0;
            row_tap++;
        }
    }
};

/* A thread's part of the next K-block, on its way from global to shared memory. */
template <class S> struct fetched {
    typename S::WeightVector weights;
    typename S::Element pixels[S::LOAD_N];
};

/* The work for one block tile. */
template <class S, class Index> struct tile_gemm {
    using Element = typename S::Element;
    using Compute = typename S::Compute;

    const parameters &layer;
    shared_memory<S, Index> &shared;
    tile<Index> tile;
    source<Index> source;         /* of the pixel that this thread looks after */
    bool exists;                  /* that is a pixel of the phase */
    const Element *src, *weights; /* of this group; of this tile's channels */
    int first_row, row_step; /* rows of a K-block and pixels that this thread gathers: NCHW, one pixel, several rows; */
    int first_pixel, pixel_step; /* NHWC, one row, several pixels */
    Compute sum[S::TM][S::TN];   /* of the segment, zero at first */

    /* Writes where the pixels read a tap, if there is one, into its table, and goes on to the next. */
    __device__ __forceinline__ void publish_tap(walk<Index> &tap)
    {
        if (tap.row_tap == tile.row.taps)
            return;
        const int pixel = (int)threadIdx.x;
        const Index row = tap.row_tap * (Index)layer.rows.shift_step;
        const Index column = tap.column_tap * (Index)layer.columns.shift_step;
        const bool has = exists && has_tap(layer, source, row, column);
        const uint32_t present = __ballot_sync(~0u, has);
        if (pixel < S::BLOCK_N) {
            shared.offsets[tap.table][pixel] = has ? (Index)(source.offset - distance(layer, row, column)) : -1;
            if (pixel % WARP == 0)
                shared.present[tap.table][pixel / WARP] = present;
        }
        tap.next_tap(tile.column.taps);
    }

    __device__ __forceinline__ void fetch(const walk<Index> &at, fetched<S> &into) const
    {
        const int depth_of_weights = (int)threadIdx.x * S::LOAD_M / S::BLOCK_M;
        const int channel_of_weights = (int)threadIdx.x * S::LOAD_M % S::BLOCK_M;
        const int left = (int)min((Index)BLOCK_K, (Index)layer.group_in - at.channel);
        into.weights = {};
        if (depth_of_weights < left)
            into.weights = *reinterpret_cast<const typename S::WeightVector *>(
                weights + weight_offset(layer, tile, at.row_tap, at.column_tap) +
                (at.channel + depth_of_weights) * (Index)layer.weight_pitch + channel_of_weights);

        const Index pitch = (Index)layer.src_strides.c;
        const Element *channels = src + at.channel * pitch;
        if (pixel_step == 0) {
            const Index offset = shared.offsets[at.table][first_pixel];
#pragma unroll
            for (int i = 0; i < S::LOAD_N; i++) {
                const int row = first_row + i * row_step;
                into.pixels[i] = offset >= 0 && row < left ? channels[offset + row * pitch] : Element(0.0f);
            }
        } else {
#pragma unroll
            for (int i = 0; i < S::LOAD_N; i++) {
                const Index offset = shared.offsets[at.table][first_pixel + i * pixel_step];
                into.pixels[i] = offset >= 0 && first_row < left ? channels[offset + first_row * pitch] : Element(0.0f);
            }
        }
    }

    __device__ __forceinline__ void store(const fetched<S> &from, int buffer)
    {
        const int first = (int)threadIdx.x * S::LOAD_M;
        Compute *weights_row = &shared.weights[buffer][first / S::BLOCK_M][first % S::BLOCK_M];
#pragma unroll
        for (int i = 0; i < S::LOAD_M; i++)
            weights_row[i] = to_compute(from.weights.at[i]);
#pragma unroll
        for (int i = 0; i < S::LOAD_N; i++)
            shared.pixels[buffer][first_row + i * row_step][first_pixel + i * pixel_step] = to_compute(from.pixels[i]);
    }

    /* A bit for each of this thread's TN pixels that has the tap. */
    __device__ __forceinline__ uint32_t my_present(int table) const
    {
        uint32_t mine = 0;
#pragma unroll
        for (int v = 0; v < S::TN / S::VECTOR; v++) {
            const int pixel = v * S::STEP_N + S::thread_n();
            const uint32_t bits = shared.present[table][pixel / WARP] >> pixel % WARP;
            mine |= (bits & ((1u << S::VECTOR) - 1)) << v * S::VECTOR;
        }
        return mine;
    }

    template <bool all_present> __device__ __forceinline__ void multiply_row(int buffer, int depth, uint32_t present)
    {
        element_vector<Compute, S::VECTOR_M> a[S::TM / S::VECTOR_M];
        typename S::Vector b[S::TN / S::VECTOR];
#pragma unroll
        for (int v = 0; v < S::TM / S::VECTOR_M; v++)
            a[v] = *reinterpret_cast<const element_vector<Compute, S::VECTOR_M> *>(
                &shared.weights[buffer][depth][v * S::STEP_M + S::thread_m()]);
#pragma unroll
        for (int v = 0; v < S::TN / S::VECTOR; v++)
            b[v] = *reinterpret_cast<const typename S::Vector *>(
                &shared.pixels[buffer][depth][v * S::STEP_N + S::thread_n()]);
#pragma unroll
        for (int n = 0; n < S::TN; n++) {
            if (!all_present && (present >> n & 1) == 0)
                continue;
#pragma unroll
            for (int m = 0; m < S::TM; m++)
                sum[m][n] = fma(a[m / S::VECTOR_M].at[m % S::VECTOR_M], b[n / S::VECTOR].at[n % S::VECTOR], sum[m][n]);
        }
    }

    /* Multiplies a K-block by the warp together; returns false, and does not, where the K-block has pixels that lack
     * the tap and weights that are not finite. */
    __device__ __forceinline__ bool multiply_matrices(int buffer, bool all_present)
    {
        constexpr int HIGHEST_EXPONENT = 0x7ff00000; /* of Inf and NaN */
        const int row = (int)threadIdx.x % 4, column = (int)threadIdx.x % WARP / 4;
        const double *weights_row = &shared.weights[buffer][row][S::thread_m()];
        const double *pixels_row = &shared.pixels[buffer][row][S::thread_n() - row * 2 + column];
        double a[S::TM / 2][4], b[S::TN / 2][2];
        bool finite = true;
#pragma unroll
        for (int i = 0; i < S::TM / 2; i++)
#pragma unroll
            for (int part = 0; part < 4; part++) {
                a[i][part] = weights_row[part / 2 * 4 * S::PITCH_M + i * 16 + part % 2 * 8];
                finite = finite && (__double2hiint(a[i][part]) & HIGHEST_EXPONENT) != HIGHEST_EXPONENT;
            }
        if (!__all_sync(~0u, all_present || finite))
            return false;
#pragma unroll
        for (int j = 0; j < S::TN / 2; j++)
#pragma unroll
            for (int part = 0; part < 2; part++)
                b[j][part] = pixels_row[part * 4 * S::PITCH_N + j * 8];
#pragma unroll
        for (int i = 0; i < S::TM / 2; i++)
#pragma unroll
            for (int j = 0; j < S::TN / 2; j++)
                multiply_add(&sum[2 * i][2 * j], &sum[2 * i + 1][2 * j], a[i], b[j]);
        return true;
    }

    __device__ __forceinline__ void multiply(int buffer, int table)
    {
        constexpr uint32_t all = (1u << S::TN) - 1;
        const uint32_t present = my_present(table);
        if constexpr (S::MATRIX && HAS_MATRICES)
            if (!__any_sync(~0u, present != 0) || multiply_matrices(buffer, present == all))
                return;
        if (present == all) {
#pragma unroll
            for (int depth = 0; depth < BLOCK_K; depth++)
                multiply_row<true>(buffer, depth, present);
        } else if (present != 0) {
#pragma unroll 1
            for (int depth = 0; depth < BLOCK_K; depth++)
                multiply_row<false>(buffer, depth, present);
        }
    }

    /* Adds the segment to those before it, in shared memory: each thread has its own places there. */
    __device__ __forceinline__ void end_segment(bool first, bool last)
    {
#pragma unroll
        for (int m = 0; m < S::TM; m++) {
            lost_parts<Compute, S::TN> lost = {};
            if (!first)
                lost = shared.lost[m][threadIdx.x];
#pragma unroll
            for (int v = 0; v < S::TN / S::VECTOR; v++) {
                typename S::Vector *place =
                    sums_at(shared, m / S::VECTOR_M * S::STEP_M + S::thread_m() + m % S::VECTOR_M,
                            v * S::STEP_N + S::thread_n());
                typename S::Vector total = {};
                if (!first)
                    total = *place;
#pragma unroll
                for (int i = 0; i < S::VECTOR; i += 2) {
                    const int n = v * S::VECTOR + i;
                    lost.add(n, total.at[i], total.at[i + 1], sum[m][n], sum[m][n + 1]);
                    if (!last)
                        sum[m][n] = sum[m][n + 1] = 0;
                }
                *place = total;
            }
            if (!last)
                shared.lost[m][threadIdx.x] = lost;
        }
    }

    /* Sums all taps and channels; leaves the result in shared.sums, not yet visible to other threads. */
    __device__ __forceinline__ void accumulate()
    {
        walk<Index> load = {}, published = {};
        int buffer = 0;
        Index terms = 0, k_block = min((Index)BLOCK_K, (Index)layer.group_in);
        bool first_segment = true;
        fetched<S> next;

        publish_tap(published);
        __syncthreads();
        fetch(load, next);
        publish_tap(published);
        store(next, buffer);
        __syncthreads();

        for (;;) {
            const int table = load.table;
            const bool new_tap = (load.channel += BLOCK_K) >= (Index)layer.group_in;
            if (new_tap)
                load.next_tap(tile.column.taps);
            const bool more = load.row_tap < tile.row.taps;
            if (more)
                fetch(load, next);
            multiply(buffer, table);
            if (!more)
                break;
            terms += k_block;
            k_block = min((Index)BLOCK_K, (Index)layer.group_in - load.channel);
            if (terms + k_block > (Index)layer.segment) {
                end_segment(first_segment, false);
                first_segment = false;
                terms = 0;
            }
            buffer ^= 1;
            store(next, buffer);
            if (new_tap)
                publish_tap(published);
            __syncthreads();
        }
        end_segment(first_segment, true);
    }

    /* Adds the bias, runs post-ops and writes shared.sums to dst, neighbouring threads to neighbouring elements. */
    __device__ __forceinline__ void write(Index first_channel, int channels)
    {
        Element *dst = static_cast<Element *>(layer.dst) + first_channel * (Index)layer.dst_strides.c;
        const bool nhwc = layer.layout == TCONV_NHWC;
        for (int i = (int)threadIdx.x; i < S::BLOCK_M * S::BLOCK_N; i += THREADS) {
            const int m = nhwc ? i % S::BLOCK_M : i / S::BLOCK_N, n = nhwc ? i / S::BLOCK_M : i % S::BLOCK_N;
            const Index offset = shared.offsets[0][n];
            if (m >= channels || offset < 0)
                continue;
            const Compute sum = sums_at(shared, m, n)->at[n % S::VECTOR];
            Compute values[] = {add_bias<Element>(sum, layer.bias, first_channel + m)};
            if (layer.posts.steps.count > 0) {
                const int at = forgotten(i), of_tile = nhwc ? at % S::BLOCK_M : at / S::BLOCK_N;
                run_layer_posts<Element>(
                    layer.posts, values, [&](int) { return first_channel + of_tile; },
                    [&](int) {
                        return shared.offsets[ADDEND_TABLE][nhwc ? at / S::BLOCK_M : at % S::BLOCK_N] +
                               (int64_t)(first_channel + of_tile) * layer.posts.addend_strides.c;
                    });
            }
            dst[offset + m * (Index)layer.dst_strides.c] = to_output<Element>(values[0]);
        }
    }

    __device__ __forceinline__ void run()
    {
        const Index group_tiles = (Index)layer.packed_out / S::BLOCK_M;
        const Index group = tile.channel_tile / group_tiles;
        const Index first_of_group = (tile.channel_tile - group * group_tiles) * S::BLOCK_M;
        const Index first = tile.pixel_tile * S::BLOCK_N, pixels = pixels_from(layer, tile, first);
        const int local = (int)threadIdx.x % S::BLOCK_N;
        if (pixels <= 0) /* this phase has fewer pixels than the largest, from which tiles are counted */
            return;

        exists = local < pixels;
        const pixel<Index> pixel = find_pixel(tile, first, local, S::BLOCK_N);
        source = find_source(layer, tile, pixel);
        src = static_cast<const Element *>(layer.src) + group * (Index)layer.group_in * (Index)layer.src_strides.c;
        weights = static_cast<const Element *>(layer.weights) + group * (Index)layer.packed_out + first_of_group;
        const bool nhwc = layer.layout == TCONV_NHWC;
        first_row = nhwc ? (int)threadIdx.x % BLOCK_K : (int)threadIdx.x / S::BLOCK_N;
        row_step = nhwc ? 0 : THREADS / S::BLOCK_N;
        first_pixel = nhwc ? (int)threadIdx.x / BLOCK_K : local;
        pixel_step = nhwc ? THREADS / BLOCK_K : 0;
        accumulate();
        if (threadIdx.x < S::BLOCK_N)
            shared.offsets[0][local] = exists ? target_offset(layer, layer.dst_strides, tile, pixel) : -1;
        if (layer.posts.addend != NULL && threadIdx.x < S::BLOCK_N)
            shared.offsets[ADDEND_TABLE][local] = target_offset(layer, layer.posts.addend_strides, tile, pixel);
        __syncthreads();
        write(group * (Index)layer.group_out + first_of_group,
              (int)min((Index)S::BLOCK_M, (Index)layer.group_out - first_of_group));
    }
};

extern __shared__ __align__(16) unsigned char gemm_memory[];

/* With 64-bit indices a thread needs more registers, and a multiprocessor takes a block less. */
template <class S, class Index>
__global__ void __launch_bounds__(THREADS, sizeof(Index) == 4 ? S::BLOCKS : S::BLOCKS - 1)
    gemm_kernel(const __grid_constant__ parameters layer)
{
    shared_memory<S, Index> &shared = *reinterpret_cast<shared_memory<S, Index> *>(gemm_memory);
    using Unsigned = unsigned_index<Index>;
    for (Unsigned number = blockIdx.x; number < (Unsigned)layer.tiles; number += gridDim.x) {
        tile_gemm<S, Index> work = {layer, shared, find_tile<Index>(layer, number)};
        work.run();
        __syncthreads(); /* before the next tile writes shared memory */
    }
}

/* The kernels of a shape, which has to be that of the host's table. */
template <class S, int number> struct kernels_of {
    static constexpr kernel_shape SHAPE = gemm_shape(sizeof(typename S::Element) == 8, number);
    static_assert(SHAPE.channels == S::BLOCK_M && SHAPE.pixels == S::BLOCK_N && SHAPE.threads == THREADS &&
                      SHAPE.shared_bytes == (int64_t)sizeof(shared_memory<S, int64_t>),
                  "gemm_shape has the kernel's numbers");
    static constexpr kernel_pair value = {gemm_kernel<S, int64_t>, gemm_kernel<S, int32_t>};
};
template <class Element>
constexpr kernel_pair kernels[SHAPES] = {kernels_of<shape<Element, 64, 128, 8, 8, 3>, 0>::value,
                                         kernels_of<shape<Element, 32, 128, 4, 8, 4>, 1>::value,
                                         kernels_of<shape<Element, 16, 128, 4, 4, 4>, 2>::value};
template <>
constexpr kernel_pair kernels<double>[SHAPES] = {kernels_of<matrix_shape<64, 64, 2, 3>, 0>::value,
                                                 kernels_of<matrix_shape<32, 64, 1, 4>, 1>::value,
                                                 kernels_of<matrix_shape<16, 64, 1, 4>, 2>::value};

} // namespace

extern "C" const void *tconv_general_gemm_kernel(tconv_dtype dtype, int number, bool is_narrow)
{
    const kernel_pair *pairs = with_element(dtype, [](auto element) { return kernels<decltype(element)>; });
    return (const void *)(is_narrow ? pairs[number].narrow : pairs[number].wide);
}

} // namespace tconv::general
