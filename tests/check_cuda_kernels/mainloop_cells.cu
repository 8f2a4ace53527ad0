/* The main loop of cuda_cells. */
#include "../../src/cuda/cells/mainloop.cuh"
#include "families.h"
#include "mainloops.h"

namespace tconv::check
{

namespace
{

constexpr int CELLS_PITCH = 72, CELLS_STEPS = 2; /* floats from a channel to the next; wgmma steps */

/* Multiplies the 64 positions of a warpgroup by one window of the weights, or by all. */
template <bool STRICT, int MMA_N, int first, int count>
__global__ void __launch_bounds__(WARPGROUP)
    multiply_cells(const float *pixels, const char *weights, int b_rows, int b_row, float *sums)
{
#ifdef TCONV_CHECK_HOPPER
    constexpr int SUMS = (first + count) * MMA_N / 2, CHANNELS = CELLS_STEPS * cells::MMA_K;
    extern __shared__ __align__(1024) char buffers[];
    __shared__ __align__(16) float planes[CHANNELS * CELLS_PITCH];
    copy_to_shared(buffers, weights, b_rows * CHANNELS * 4 * (STRICT ? 2 : 1));
    copy_to_shared(reinterpret_cast<char *>(planes), reinterpret_cast<const char *>(pixels), (int)sizeof planes);
    fence_proxy_async();
    __syncthreads();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    cells::operand_strides strides;
    strides.half_k = 4 * CELLS_PITCH * sizeof(float);
    strides.a_step = 2 * strides.half_k;
    strides.small_part = 2 * b_rows;
    strides.b_step = (STRICT ? 2 : 1) * strides.small_part;
    cells::pixel_pair own;
    for (int half = 0; half < 2; half++)
        own.half[half] = shared_address(planes + lane % 4 * CELLS_PITCH + warp * WARP_M +
                                        cells::warp_position(true, lane / 4, half));
    uint32_t loaded[CELLS_STEPS][4];
    cells::a_fragments<STRICT, CELLS_STEPS> a;
    cells::load_fragments<false>(own, strides, loaded);
    if (!STRICT)
        cells::round_fragments(loaded, 1.0f);
    cells::take_fragments(loaded, a);
    float accumulators[SUMS];
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        accumulators[i] = 0;
        asm volatile("" : "+f"(accumulators[i])); /* there before the first product, not in between */
    }
    const uint32_t b = descriptor_low(shared_address(buffers), b_rows * 16) + b_row;
    cells::multiply_window<STRICT, MMA_N, first, count>(accumulators, a, b, strides);
    wgmma_wait<0>();
    cells::keep_until_here(a, false);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i * WARPGROUP + threadIdx.x] = accumulators[i];
#endif
}

template <bool STRICT, int MMA_N, int first, int count> void check_cells_window()
{
    constexpr int CHANNELS = CELLS_STEPS * cells::MMA_K, B_ROW = 8, B_ROWS = count * MMA_N + 2 * B_ROW;
    constexpr int SUMS = (first + count) * MMA_N / 2;
    for (bool integers : {true, false}) {
        const factor_mode mode = STRICT ? AS_PARTS : AS_TF32;
        std::vector<float> planes((size_t)CHANNELS * CELLS_PITCH), values(planes.size());
        for (size_t i = 0; i < planes.size(); i++) {
            planes[i] = integers ? (float)random_integer(-4, 4) : random_real();
            values[i] = STRICT ? planes[i] : float_of(tf32_of(bits_of(planes[i])));
        }
        stage_bytes b = {{}, mode};
        b.bytes.resize((size_t)B_ROWS * CHANNELS * 4 * b.planes());
        std::vector<factor> weights((size_t)B_ROWS * CHANNELS);
        for (int row = 0; row < B_ROWS; row++)
            for (int k = 0; k < CHANNELS; k++) {
                const size_t step = (size_t)(k / 8 * b.planes()) * 2 * B_ROWS, half = (size_t)(k / 4 % 2) * B_ROWS;
                factor &made = weights[(size_t)row * CHANNELS + k] = make_factor(mode, integers);
                b.put(made, (step + half + row) * 16 + k % 4 * 4, (size_t)2 * B_ROWS * 16);
            }
        std::vector<double> wanted((size_t)SUMS * WARPGROUP, 0), bounds(wanted.size(), 0);
        for (int i = first * MMA_N / 2; i < SUMS; i++)
            for (int thread = 0; thread < WARPGROUP; thread++) {
                /* A thread's rows r and r + 8 hold neighbouring positions, the later first from row 4 on. */
                const int row = thread % 32 / 4, half = i / 2 % 2;
                const int position = thread / 32 * 16 + 2 * row + (row < 4 ? half : 1 - half);
                const int n = column_of(thread, i - first * MMA_N / 2);
                double magnitudes = 0, sum = 0;
                for (int k = 0; k < CHANNELS; k++) {
                    const double term = (double)values[(size_t)k * CELLS_PITCH + position] *
                                        weights[(size_t)(B_ROW + n) * CHANNELS + k].value;
                    sum += term;
                    magnitudes += fabs(term);
                }
                wanted[(size_t)i * WARPGROUP + thread] = sum;
                bounds[(size_t)i * WARPGROUP + thread] = bound_of(mode, integers, magnitudes, CHANNELS);
            }
        begin_case("%d of N from %d on, %s", count * MMA_N, first * MMA_N, integers ? "integers" : "reals");
        const device_buffer pixels = input("planes", planes), from = input("weights", b.bytes),
                            sums = output("sums", wanted.size() * sizeof(float));
        allow_shared_bytes(multiply_cells<STRICT, MMA_N, first, count>, 64 * 1024);
        multiply_cells<STRICT, MMA_N, first, count>
            <<<1, WARPGROUP, b.bytes.size()>>>(pixels.as<float>(), from.as<char>(), B_ROWS, B_ROW, sums.as<float>());
        finish_kernels();
        compare_floats(sums, wanted, bounds);
    }
}

template <bool STRICT> void check_cells()
{
    check_cells_window<STRICT, 32, 0, 4>();
    check_cells_window<STRICT, 32, 1, 2>();
    check_cells_window<STRICT, 64, 1, 1>();
    check_cells_window<STRICT, 128, 0, 1>();
}

const entry entries[] = {
    {"cuda/cells/multiply_window tf32", check_cells<false>, nullptr, true},
    {"cuda/cells/multiply_window strict", check_cells<true>, nullptr, true},
};

} // namespace

void check_mainloop_cells()
{
    check_entries(entries);
}

} // namespace tconv::check
