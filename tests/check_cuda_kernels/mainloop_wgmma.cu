/* The main loop of cuda_wgmma. */
#include "../../src/cuda/wgmma/mainloop.cuh"
#include "families.h"
#include "mainloops.h"

namespace tconv::check
{

namespace
{

/* Multiplies one A stage by one B stage, `rounds` times over, and writes a thread's accumulators one after another. */
template <class Mode, int N>
__global__ void __launch_bounds__(WARPGROUP) multiply_wgmma(const __grid_constant__ wgmma::parameters params,
                                                            const char *a, const char *b, int rounds, float *sums)
{
#ifdef TCONV_CHECK_HOPPER
    extern __shared__ __align__(1024) char buffers[];
    copy_to_shared(buffers, b, (int)params.b_stage_bytes);
    copy_to_shared(buffers + params.b_stage_bytes, a, (int)params.a_stage_bytes);
    fence_proxy_async();
    __syncthreads();
    float accumulators[wgmma::MMA_TILES][N / 2];
    wgmma::operands at;
    const wgmma::mma_schedule schedule = wgmma::in_registers(params.schedule[0]);
    at.pixels_small = params.k_steps * 2 * params.patch;
    const uint32_t pixels = descriptor_address(shared_address(buffers)),
                   weights = descriptor_address(shared_address(buffers) + params.b_stage_bytes);
    uint32_t first_weights[wgmma::MMA_TILES], first_pixel[wgmma::MMA_TILES];
#pragma unroll
    for (int i = 0; i < wgmma::MMA_TILES; i++) {
        first_weights[i] = descriptor_low(0, params.weights_leading_bytes) + i * params.mma_tile_weights;
        first_pixel[i] = descriptor_low(0, params.pixels_leading_bytes) + params.mma_tile_first_pixel[0][i];
    }
    pending_release pending = {0, 0};
    int accumulate = 0;
#pragma unroll 1
    for (int i = 0; i < rounds; i++) {
        at.begin(first_weights, weights, first_pixel, pixels);
        wgmma::multiply_mma_tiles<Mode, N>(accumulators, params, at, schedule, accumulate, pending);
    }
    wgmma_wait<0>();
    if (sums == nullptr && accumulators[0][0] != 12345)
        return;
#pragma unroll
    for (int mma_tile = 0; mma_tile < wgmma::MMA_TILES; mma_tile++)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sums[(mma_tile * (N / 2) + i) * WARPGROUP + threadIdx.x] = accumulators[mma_tile][i];
#endif
}

struct wgmma_loop {
    int k_steps, taps[2];
    bool column_phases; /* the MMA tiles have weights of their own */
};

/* As lay_out_stages has it. */
wgmma::parameters make_wgmma_loop(const wgmma_loop &of, int N, int planes, bool mn_major)
{
    wgmma::parameters params = {};
    const int mma_rows = planes * M * 2, taps = of.taps[0] + (of.column_phases ? of.taps[1] : 0);
    params.k_steps = of.k_steps;
    params.column_step = 1;
    params.patch = mn_major ? 2 * N : 2 * N + 16;
    params.pixels_leading_bytes = (uint32_t)(mn_major ? of.k_steps * 16 * 128 : params.patch * 16);
    params.k_step_pixels = mn_major ? 16 * 128 / 16 : 2 * params.patch;
    params.k_step_weights = taps * mma_rows;
    params.mma_tile_weights = of.column_phases ? of.taps[0] * mma_rows : 0;
    params.weights_leading_bytes = M * 16;
    params.a_stage_bytes = (uint32_t)(of.k_steps * taps * mma_rows * 16);
    params.b_stage_bytes = mn_major ? (uint32_t)((2 * N + 63) / 64 * 64 * of.k_steps * 32)
                                    : (uint32_t)(planes * 2 * of.k_steps * params.patch * 16);
    params.same_schedule = of.taps[0] == of.taps[1];
    for (int i = 0; i < 2; i++) {
        wgmma::mma_schedule &schedule = params.schedule[i];
        const bool pairs = of.taps[i] == 2 && of.k_steps % 2 == 0, along_k = of.taps[i] == 1;
        params.column_taps[i] = of.taps[i];
        params.mma_tile_first_pixel[0][i] = mn_major ? i * 2 * (int)params.pixels_leading_bytes / 16 : 7 + i * (N + 3);
        schedule.outer = pairs || along_k ? 1 : of.k_steps;
        schedule.inner = pairs || along_k ? of.k_steps * of.taps[i] : of.taps[i];
        schedule.outer_weights = params.k_step_weights;
        schedule.outer_pixels = params.k_step_pixels;
        schedule.weights = along_k ? params.k_step_weights : mma_rows;
        schedule.pixels = along_k ? params.k_step_pixels : -params.column_step;
        schedule.pair_weights = pairs ? params.k_step_weights : 2 * schedule.weights;
        schedule.pair_pixels = pairs ? params.k_step_pixels : 2 * schedule.pixels;
    }
    return params;
}

/* Fills an A stage: [K step][MMA tile and its taps][plane][core][64 rows][channels]. weights: [MMA tile][tap][row]
 * [K]. */
void fill_a_stage(const wgmma_loop &of, stage_bytes *stage, std::vector<factor> *weights, int most_taps, bool integers)
{
    const int element = stage->element(), in_core = 16 / element, K = of.k_steps * 2 * in_core,
              planes = stage->planes();
    const int all_taps = of.taps[0] + (of.column_phases ? of.taps[1] : 0);
    for (int mma_tile = 0; mma_tile < (of.column_phases ? 2 : 1); mma_tile++)
        for (int tap = 0; tap < of.taps[mma_tile]; tap++)
            for (int m = 0; m < M; m++)
                for (int k = 0; k < K; k++) {
                    const factor made = make_factor(stage->mode, integers);
                    const int step = k / (2 * in_core), core = k / in_core % 2, in_stage = mma_tile * of.taps[0] + tap;
                    const size_t product = (size_t)(step * all_taps + in_stage) * planes * 2 * M * 16;
                    stage->put(made, product + ((size_t)core * M + m) * 16 + (size_t)(k % in_core * element),
                               2 * M * 16);
                    (*weights)[(((size_t)mma_tile * most_taps + tap) * M + m) * K + k] = made;
                }
}

template <class Mode, int N> void check_wgmma_loop(const wgmma_loop &of, bool integers)
{
    constexpr int ROUNDS = 2;
    const factor_mode mode = factor_mode_of<Mode>();
    stage_bytes a = {{}, mode}, b = {{}, mode};
    const wgmma::parameters params = make_wgmma_loop(of, N, Mode::PLANES, Mode::MN_MAJOR);
    const int element = a.element(), in_core = 16 / element, K = of.k_steps * 2 * in_core;
    const int most_taps = of.taps[0] > of.taps[1] ? of.taps[0] : of.taps[1];
    const int pixels_of_all = Mode::MN_MAJOR ? (int)params.b_stage_bytes / (K * 2) : params.patch;
    a.bytes.resize(params.a_stage_bytes);
    b.bytes.resize(params.b_stage_bytes);
    std::vector<factor> weights((size_t)2 * most_taps * M * K), pixels((size_t)pixels_of_all * K);
    fill_a_stage(of, &a, &weights, most_taps, integers);
    for (int pixel = 0; pixel < pixels_of_all; pixel++)
        for (int k = 0; k < K; k++) {
            factor &made = pixels[(size_t)pixel * K + k] = make_factor(mode, integers);
            if (Mode::MN_MAJOR)
                b.put(made,
                      (size_t)(pixel / 64) * params.pixels_leading_bytes +
                          swizzled((uint32_t)(k * 128 + pixel % 64 * 2), 128),
                      0);
            else
                b.put(made, ((size_t)(k / in_core) * params.patch + pixel) * 16 + (size_t)(k % in_core * element),
                      (size_t)(2 * of.k_steps * params.patch) * 16);
        }
    std::vector<double> wanted((size_t)N * WARPGROUP), bounds(wanted.size());
    for (int mma_tile = 0; mma_tile < 2; mma_tile++)
        for (int i = 0; i < N / 2; i++)
            for (int thread = 0; thread < WARPGROUP; thread++) {
                double sum = 0, magnitudes = 0;
                const int first = Mode::MN_MAJOR ? mma_tile * 128 : params.mma_tile_first_pixel[0][mma_tile];
                for (int tap = 0; tap < of.taps[mma_tile]; tap++)
                    for (int k = 0; k < K; k++) {
                        const size_t of_tile = of.column_phases ? (size_t)mma_tile : 0;
                        const double term =
                            (double)weights[((of_tile * most_taps + tap) * M + row_of(thread, i)) * K + k].value *
                            pixels[(size_t)(first + column_of(thread, i) - tap) * K + k].value;
                        sum += ROUNDS * term;
                        magnitudes += ROUNDS * fabs(term);
                    }
                const size_t at = ((size_t)mma_tile * (N / 2) + i) * WARPGROUP + thread;
                wanted[at] = sum;
                bounds[at] = bound_of(mode, integers, magnitudes, ROUNDS * most_taps * K);
            }
    begin_case("N %d, %d K steps, %d and %d taps%s, %s", N, of.k_steps, of.taps[0], of.taps[1],
               of.column_phases ? ", column phases" : "", integers ? "integers" : "reals");
    const device_buffer from_a = input("A stage", a.bytes), from_b = input("B stage", b.bytes),
                        sums = output("sums", wanted.size() * sizeof(float));
    const size_t shared_bytes = params.a_stage_bytes + params.b_stage_bytes;
    allow_shared_bytes(multiply_wgmma<Mode, N>, 200 * 1024);
    multiply_wgmma<Mode, N>
        <<<1, WARPGROUP, shared_bytes>>>(params, from_a.as<char>(), from_b.as<char>(), ROUNDS, sums.as<float>());
    finish_kernels();
    compare_floats(sums, wanted, bounds);
}

template <class Mode, int N> void check_wgmma()
{
    static const wgmma_loop loops[] = {{1, {1, 1}, false}, {2, {1, 1}, true},  {2, {2, 2}, false}, {4, {2, 2}, true},
                                       {1, {2, 2}, false}, {2, {3, 3}, false}, {2, {3, 2}, true},  {1, {5, 4}, true}};
    for (const wgmma_loop &of : loops)
        for (bool integers : {true, false})
            if (!Mode::MN_MAJOR || of.taps[0] == 1)
                check_wgmma_loop<Mode, N>(of, integers);
}

template <class Mode, int N> void bench_wgmma()
{
    constexpr int ROUNDS = 512;
    begin_case("rate");
    const wgmma_loop of = {4, {Mode::MN_MAJOR ? 1 : 2, Mode::MN_MAJOR ? 1 : 2}, false};
    const wgmma::parameters params = make_wgmma_loop(of, N, Mode::PLANES, Mode::MN_MAJOR);
    const device_buffer a = input("A stage", std::vector<uint8_t>(params.a_stage_bytes, 0)),
                        b = input("B stage", std::vector<uint8_t>(params.b_stage_bytes, 0));
    const size_t shared_bytes = params.a_stage_bytes + params.b_stage_bytes;
    const int blocks = 2 * machine().multiprocessors, size = sizeof(typename Mode::Element);
    allow_shared_bytes(multiply_wgmma<Mode, N>, 200 * 1024);
    rate(
        "two warpgroups",
        [&] {
            multiply_wgmma<Mode, N>
                <<<blocks, WARPGROUP, shared_bytes>>>(params, a.as<char>(), b.as<char>(), ROUNDS, nullptr);
        },
        2.0 * M * N * 2 * of.k_steps * (32 / size) * of.taps[0] * ROUNDS * blocks, "GFLOP/s",
        wgmma_rate(size) / (Mode::STRICT ? 3 : 1));
}

const entry entries[] = {
    {"cuda/wgmma/multiply_mma_tiles tf32", check_wgmma<wgmma::tf32_mode, 96>, bench_wgmma<wgmma::tf32_mode, 128>, true},
    {"cuda/wgmma/multiply_mma_tiles strict", check_wgmma<wgmma::strict_mode, 64>, bench_wgmma<wgmma::strict_mode, 80>,
     true},
    {"cuda/wgmma/multiply_mma_tiles f16", check_wgmma<wgmma::f16_mode, 104>, bench_wgmma<wgmma::f16_mode, 128>, true},
    {"cuda/wgmma/multiply_mma_tiles bf16 mn-major", check_wgmma<wgmma::bf16_mn_major_mode, 128>,
     bench_wgmma<wgmma::bf16_mn_major_mode, 128>, true},
};

} // namespace

void check_mainloop_wgmma()
{
    check_entries(entries);
}

} // namespace tconv::check
