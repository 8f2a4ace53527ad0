/* The main loop of cuda_igemm. */
#include "../../src/cuda/igemm/mainloop.cuh"
#include "families.h"
#include "mainloops.h"

namespace tconv::check
{

namespace
{

/* Runs the main loop of two warpgroups on stages that are all full: none is filled twice. */
template <class Mode, int N, bool uneven>
__global__ void __launch_bounds__(2 * WARPGROUP, 1)
    multiply_igemm(const __grid_constant__ igemm::parameters layer, const __grid_constant__ igemm::tile_record tile,
                   const char *a, const char *b, float *sums)
{
#ifdef TCONV_CHECK_HOPPER
    extern __shared__ __align__(1024) char buffers[];
    __shared__ uint64_t barriers[2 * STAGE_BARRIERS];
    const uint32_t first = shared_address(barriers), memory = shared_address(buffers);
    const int b_bytes = (int)(layer.b_stages * layer.b_stage_bytes),
              a_stage_bytes = (int)(layer.a_stage_taps * layer.a_tile_bytes);
    const stage_ring b_ring = {first, memory, layer.b_stage_bytes, layer.b_stages},
                     a_ring = {first + 8 * STAGE_BARRIERS, memory + b_bytes, (uint32_t)a_stage_bytes, layer.a_stages};
    copy_to_shared(buffers, b, b_bytes);
    copy_to_shared(buffers + b_bytes, a, layer.a_stages * a_stage_bytes);
    if (threadIdx.x == 0) {
        b_ring.init(1, WARPGROUPS);
        a_ring.init(1, WARPGROUPS);
        mbarrier_init_fence();
        for (int i = 0; i < MAX_STAGES; i++) {
            mbarrier_arrive(b_ring.barriers + 8 * i);
            mbarrier_arrive(a_ring.barriers + 8 * i);
        }
    }
    fence_proxy_async();
    __syncthreads();
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    igemm::accumulators<Mode, N> accumulators;
    consumer_state b_stage(b_ring), a_stage(a_ring);
    igemm::multiply_block_tile<Mode, N, uneven>(layer, tile, warpgroup, true, threadIdx.x % WARPGROUP == 0, b_stage,
                                                a_stage, accumulators);
    __syncthreads();
    /* Both warpgroups have released every stage that they read. */
    if (threadIdx.x == 0) {
        const int a_stages =
            layer.k_blocks * ((tile.row_taps * tile.column_taps + layer.a_stage_taps - 1) / layer.a_stage_taps);
        for (int i = 0; i < layer.b_stages; i++)
            if (!mbarrier_test(b_ring.barriers + EMPTY + 8 * i, 0))
                __trap();
        for (int i = 0; i < a_stages; i++)
            if (!mbarrier_test(a_ring.barriers + EMPTY + 8 * i, 0))
                __trap();
    }
#pragma unroll
    for (int mma = 0; mma < Mode::MMA_TILES; mma++)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sums[(mma * (N / 2) + i) * 2 * WARPGROUP + threadIdx.x] = accumulators.of[mma][i];
#endif
}

struct igemm_loop {
    int pixel_bytes, row_taps, column_taps, a_stage_taps, k_blocks;
    bool per_tap, uneven;
};

igemm::parameters make_igemm_loop(const igemm_loop &of, int N, int planes, int mma_tiles)
{
    igemm::parameters layer = {};
    const int taps = of.row_taps * of.column_taps;
    layer.pixel_bytes = of.pixel_bytes;
    layer.k_steps = of.pixel_bytes / 32;
    layer.k_blocks = of.k_blocks;
    layer.per_tap = of.per_tap;
    layer.pitch = 24;
    layer.row_step = layer.column_step = layer.src_phases = 1;
    layer.a_stage_taps = of.a_stage_taps;
    layer.m_tiles = 2;
    layer.stage_pixels = (N * mma_tiles + 2 * layer.pitch + 16 + 63) / 64 * 64;
    layer.plane_bytes = (uint32_t)(layer.stage_pixels * of.pixel_bytes);
    layer.b_stage_bytes = planes * layer.plane_bytes;
    layer.b_stages = of.k_blocks * (of.per_tap ? taps : 1);
    layer.a_tile_bytes = (uint32_t)(layer.m_tiles * layer.k_steps * planes * M * 32);
    layer.a_stages = of.k_blocks * ((taps + of.a_stage_taps - 1) / of.a_stage_taps);
    layer.mma_taps[0] = of.column_taps;
    layer.mma_taps[1] = of.uneven ? of.column_taps - 1 : of.column_taps;
    for (int warpgroup = 0; warpgroup < 2; warpgroup++)
        for (int mma = 0; mma < mma_tiles; mma++) {
            layer.mma_m_tile[warpgroup][mma] = of.uneven ? mma : warpgroup;
            layer.mma_pixel[warpgroup][mma] = of.uneven ? warpgroup * 8 : mma * N;
        }
    return layer;
}

template <class Mode, int N, bool uneven> void check_igemm_loop(const igemm_loop &of, bool integers)
{
    const factor_mode mode = factor_mode_of<Mode>();
    stage_bytes a = {{}, mode}, b = {{}, mode};
    const igemm::parameters layer = make_igemm_loop(of, N, Mode::PLANES, Mode::MMA_TILES);
    igemm::tile_record tile = {};
    const int element = a.element(), in_core = 16 / element, K = of.pixel_bytes / element;
    const int taps = of.row_taps * of.column_taps, a_stage_of_k_block = (taps + of.a_stage_taps - 1) / of.a_stage_taps;
    tile.row_taps = of.row_taps;
    tile.column_taps = of.column_taps;
    tile.first_shift = of.per_tap ? 0 : 2 * layer.pitch + 5; /* room for all taps before it */
    a.bytes.resize((size_t)layer.a_stages * of.a_stage_taps * layer.a_tile_bytes);
    b.bytes.resize((size_t)layer.b_stages * layer.b_stage_bytes);
    std::vector<factor> weights((size_t)of.k_blocks * taps * 2 * M * K),
        pixels((size_t)layer.b_stages * layer.stage_pixels * K);
    for (size_t i = 0; i < weights.size(); i++) {
        weights[i] = make_factor(mode, integers);
        const size_t k = i % K, m = i / K % M, m_tile = i / K / M % 2, tap = i / K / M / 2 % taps,
                     k_block = i / K / M / 2 / taps;
        const size_t a_tile =
            (k_block * a_stage_of_k_block + tap / of.a_stage_taps) * of.a_stage_taps + tap % of.a_stage_taps;
        const size_t product = m_tile * layer.k_steps + k / (2 * in_core);
        a.put(weights[i],
              a_tile * layer.a_tile_bytes + product * Mode::PLANES * M * 32 + (k / in_core % 2 * M + m) * 16 +
                  k % in_core * element,
              M * 32);
    }
    for (size_t i = 0; i < pixels.size(); i++) {
        pixels[i] = make_factor(mode, integers);
        const size_t k = i % K, pixel = i / K % layer.stage_pixels, stage = i / K / layer.stage_pixels;
        b.put(pixels[i],
              stage * layer.b_stage_bytes + swizzled((uint32_t)(pixel * of.pixel_bytes + k * element), of.pixel_bytes),
              layer.plane_bytes);
    }
    std::vector<double> wanted((size_t)Mode::MMA_TILES * N * WARPGROUP), bounds(wanted.size());
    for (size_t at = 0; at < wanted.size(); at++) {
        const int thread = (int)(at % (2 * WARPGROUP)), i = (int)(at / (2 * WARPGROUP)) % (N / 2),
                  mma = (int)(at / (2 * WARPGROUP)) / (N / 2), warpgroup = thread / WARPGROUP;
        double sum = 0, magnitudes = 0;
        for (int k_block = 0; k_block < of.k_blocks; k_block++)
            for (int tap = 0; tap < taps; tap++) {
                const int row = tap / of.column_taps, column = tap % of.column_taps;
                if (uneven && column >= layer.mma_taps[mma])
                    continue;
                const int stage = of.per_tap ? k_block * taps + tap : k_block;
                const int pixel = layer.mma_pixel[warpgroup][mma] + column_of(thread % WARPGROUP, i) +
                                  tile.first_shift - (of.per_tap ? 0 : row * layer.pitch + column);
                const factor *w =
                    &weights[((((size_t)k_block * taps + tap) * 2 + layer.mma_m_tile[warpgroup][mma]) * M +
                              row_of(thread % WARPGROUP, i)) *
                             K];
                const factor *x = &pixels[((size_t)stage * layer.stage_pixels + pixel) * K];
                for (int k = 0; k < K; k++) {
                    sum += (double)w[k].value * x[k].value;
                    magnitudes += fabs((double)w[k].value * x[k].value);
                }
            }
        wanted[at] = sum;
        bounds[at] = bound_of(mode, integers, magnitudes, of.k_blocks * taps * K);
    }
    begin_case("N %d, pixels of %d bytes, %d x %d taps, %d in an A stage, %d K-blocks%s, %s", N, of.pixel_bytes,
               of.row_taps, of.column_taps, of.a_stage_taps, of.k_blocks, of.per_tap ? ", per tap" : "",
               integers ? "integers" : "reals");
    const device_buffer from_a = input("A stages", a.bytes), from_b = input("B stages", b.bytes),
                        sums = output("sums", wanted.size() * sizeof(float));
    const size_t shared_bytes = a.bytes.size() + b.bytes.size();
    allow_shared_bytes(multiply_igemm<Mode, N, uneven>, 220 * 1024);
    multiply_igemm<Mode, N, uneven>
        <<<1, 2 * WARPGROUP, shared_bytes>>>(layer, tile, from_a.as<char>(), from_b.as<char>(), sums.as<float>());
    finish_kernels();
    compare_floats(sums, wanted, bounds);
}

template <class Mode, int N> void check_igemm()
{
    static const igemm_loop loops[] = {{128, 1, 1, 1, 2, false, false},
                                       {128, 2, 2, 2, 1, false, false},
                                       {128, 1, 3, 2, 1, false, false},
                                       {128, 1, 2, 1, 1, true, false}};
    for (const igemm_loop &of : loops)
        for (bool integers : {true, false})
            check_igemm_loop<Mode, N, false>(of, integers);
    if (sizeof(typename Mode::Element) == 2)
        check_igemm_loop<Mode, N, false>({64, 2, 3, 4, 2, false, false}, false);
}

template <class Mode, int N> void check_igemm_uneven()
{
    for (bool integers : {true, false})
        check_igemm_loop<Mode, N, true>({128, 1, 2, 1, 1, false, true}, integers);
}

const entry entries[] = {
    {"cuda/igemm/multiply_block_tile tf32", check_igemm<igemm::tf32_mode, 64>, nullptr, true},
    {"cuda/igemm/multiply_block_tile strict", check_igemm<igemm::strict_mode, 64>, nullptr, true},
    {"cuda/igemm/multiply_block_tile strict_long", check_igemm<igemm::strict_long_mode, 64>, nullptr, true},
    {"cuda/igemm/multiply_block_tile f16", check_igemm<igemm::f16_mode, 96>, nullptr, true},
    {"cuda/igemm/multiply_block_tile bf16 uneven", check_igemm_uneven<igemm::bf16_mode, 64>, nullptr, true},
};

} // namespace

void check_mainloop_igemm()
{
    check_entries(entries);
}

} // namespace tconv::check
