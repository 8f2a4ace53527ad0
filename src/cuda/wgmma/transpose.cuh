/* The transpose warps: they bring planes of src from raw stages, from the B stages themselves, or from src where TMA
 * cannot read it, to the K-major B operand, pixels of CORE_ROW_BYTES of channels, rounded or split on the way. */
#ifndef TCONV_CUDA_WGMMA_TRANSPOSE_CUH
#define TCONV_CUDA_WGMMA_TRANSPOSE_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/sync.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

__device__ __forceinline__ uint32_t load_word(uint32_t address)
{
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

/* The core matrix rows of one lane's pixels: one pixel of f32, two of the 16-bit types. A word is what one load brings:
 * a channel of these pixels. */
template <class Mode> struct core_rows_of {
    static constexpr int PIXELS = 1, CHANNELS = 4;
    static __device__ __forceinline__ void store(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t plane)
    {
        uint32_t big[CHANNELS], small[CHANNELS];
        round_or_split<Mode::STRICT>(words, big, small);
        store_shared_16(to, big);
        if (Mode::STRICT)
            store_shared_16(to + plane, small);
    }
    static __device__ __forceinline__ void store_rounded(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t)
    {
        store_shared_16(to, words);
    }
    /* Stores only pixels whose column exists: the first one's is `column`. */
    static __device__ __forceinline__ void store_inside(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t plane,
                                                        int column, int columns)
    {
        if ((unsigned)column < (unsigned)columns)
            store(words, to, plane);
    }
    /* Stores one pixel's channels, as bits. */
    static __device__ __forceinline__ void store_pixel(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t plane)
    {
        store(values, to, plane);
    }
};

struct core_rows_of_16_bits {
    static constexpr int PIXELS = 2, CHANNELS = 8;
    static constexpr uint32_t LOW = 0x5410, HIGH = 0x7632; /* of two words, as __byte_perm selects them */
    static __device__ __forceinline__ void store_one(const uint32_t (&words)[CHANNELS], uint32_t selected, uint32_t to)
    {
        uint32_t pairs[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            pairs[c] = __byte_perm(words[2 * c], words[2 * c + 1], selected);
        store_shared_16(to, pairs);
    }
    /* Lanes are 32 bytes apart: every other four of them store their second pixel first, so that no bank is met twice.
     * The second pixel lies `next` bytes after the first. */
    static __device__ __forceinline__ void store_rounded(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t next)
    {
        const bool second = (threadIdx.x & 4) != 0;
        store_one(words, second ? HIGH : LOW, to + (second ? next : 0));
        store_one(words, second ? LOW : HIGH, to + (second ? 0 : next));
    }
    static __device__ __forceinline__ void store(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t)
    {
        store_rounded(words, to, CORE_ROW_BYTES);
    }
    static __device__ __forceinline__ void store_inside(const uint32_t (&words)[CHANNELS], uint32_t to, uint32_t,
                                                        int column, int columns)
    {
        const int second = (threadIdx.x & 4) != 0;
        if ((unsigned)(column + second) < (unsigned)columns)
            store_one(words, second ? HIGH : LOW, to + second * CORE_ROW_BYTES);
        if ((unsigned)(column + 1 - second) < (unsigned)columns)
            store_one(words, second ? LOW : HIGH, to + (1 - second) * CORE_ROW_BYTES);
    }
    static __device__ __forceinline__ void store_pixel(const uint32_t (&values)[CHANNELS], uint32_t to, uint32_t)
    {
        store_one(values, LOW, to);
    }
};
template <> struct core_rows_of<f16_mode> : core_rows_of_16_bits {
};
template <> struct core_rows_of<bf16_mode> : core_rows_of_16_bits {
};

/* Loads a lane's pixels of one core count times, `step` pixels apart. */
template <class Mode, int count>
__device__ __forceinline__ void load_words(uint32_t (&words)[count][core_rows_of<Mode>::CHANNELS], uint32_t from,
                                           uint32_t channel_bytes, int step)
{
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int c = 0; c < core_rows_of<Mode>::CHANNELS; c++)
            words[i][c] = load_word(from + c * channel_bytes + i * step * (uint32_t)sizeof(typename Mode::Element));
}

/* Transposes these pixels. All are loaded before the first is stored; the last may not exist: what lies beyond the
 * patch is read, but not stored. */
template <class Mode, int count>
__device__ __forceinline__ void transpose(uint32_t from, uint32_t channel_bytes, uint32_t to, uint32_t plane, int step,
                                          bool last_exists)
{
    using CoreRows = core_rows_of<Mode>;
    uint32_t words[count][CoreRows::CHANNELS];
    load_words<Mode>(words, from, channel_bytes, step);
#pragma unroll
    for (int i = 0; i < count; i++)
        if (i < count - 1 || last_exists)
            CoreRows::store(words[i], to + i * step * CORE_ROW_BYTES, plane);
}

template <class Mode>
__device__ __forceinline__ void transpose_raw_stages(const parameters &params, const shared_layout &shared, int warp,
                                                     int lane)
{
    using CoreRows = core_rows_of<Mode>;
    constexpr int AT_ONCE = Mode::STRICT ? 2 : CoreRows::PIXELS == 2 ? 2 : 4;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int patch = params.patch, cores = 2 * params.k_steps;
    const uint32_t channel_bytes = patch * element, core_bytes = patch * CORE_ROW_BYTES, plane = cores * core_bytes;
    /* Two warps go over each of two cores, or one over each of four. */
    const int core_warps = cores == 2 ? 2 : 1, first_core = warp / core_warps, core_step = TRANSPOSE_WARPS / core_warps;
    const int warp_pixel = warp % core_warps * WARP * CoreRows::PIXELS, lane_pixel = lane * CoreRows::PIXELS;
    const int step = core_warps * WARP * CoreRows::PIXELS;
    pipeline_state raw = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        for (int k_block = 0; k_block < params.k_blocks; k_block++) {
            mbarrier_wait(shared.raw_full + 8 * raw.at, raw.parity);
            mbarrier_wait(shared.b_empty + 8 * stage.at, stage.parity);
            for (int core = first_core; core < cores; core += core_step) {
                const uint32_t from =
                    shared.raw_stages + raw.at * params.raw_stage_bytes + core * CoreRows::CHANNELS * channel_bytes;
                const uint32_t to = shared.b_stages + stage.at * params.b_stage_bytes + core * core_bytes;
                int first = warp_pixel; /* the same in all lanes, so that they do not diverge */
#pragma unroll 1
                for (; first + (AT_ONCE - 1) * step < patch; first += AT_ONCE * step) {
                    const int pixel = first + lane_pixel;
                    transpose<Mode, AT_ONCE>(from + pixel * element, channel_bytes, to + pixel * CORE_ROW_BYTES, plane,
                                             step, pixel + (AT_ONCE - 1) * step < patch);
                }
#pragma unroll 1
                for (; first < patch; first += step) {
                    const int pixel = first + lane_pixel;
                    transpose<Mode, 1>(from + pixel * element, channel_bytes, to + pixel * CORE_ROW_BYTES, plane, step,
                                       pixel < patch);
                }
            }
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane)) {
                mbarrier_arrive(shared.b_full + 8 * stage.at);
                mbarrier_arrive(shared.raw_empty + 8 * raw.at);
            }
            raw.next(params.raw_stages);
            stage.next(params.b_stages);
        }
    }
}

/* Transposes a row of planes where it lies: a warp reads it whole before it writes. A lane has pixels count times, of
 * which the last may not exist. TMA has rounded to TF32 already. With space-to-depth, odd pixels follow all even
 * ones. */
template <class Mode, int count, bool space_to_depth>
__device__ __forceinline__ void transpose_row(uint32_t row, int pitch, int lane)
{
    using CoreRows = core_rows_of<Mode>;
    constexpr int STEP = WARP * CoreRows::PIXELS;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int pixel = lane * CoreRows::PIXELS;
    const bool last_exists = pixel + (count - 1) * STEP < pitch;
    uint32_t from = row + pixel * element, last = last_exists ? from + (count - 1) * STEP * element : from;
    uint32_t words[count][CoreRows::CHANNELS];
#pragma unroll
    for (int c = 0; c < CoreRows::CHANNELS; c++) {
#pragma unroll
        for (int i = 0; i < count - 1; i++)
            words[i][c] = load_word(from + i * STEP * element);
        words[count - 1][c] = load_word(last);
        from += pitch * element;
        last += pitch * element;
    }
    __syncwarp();
    constexpr int DEPTH = space_to_depth ? 2 : 1;
    const uint32_t next = (space_to_depth ? pitch / 2 : 1) * CORE_ROW_BYTES; /* from an even pixel to an odd one */
    const uint32_t to = row + pixel / DEPTH * CORE_ROW_BYTES + pixel % DEPTH * next;
#pragma unroll
    for (int i = 0; i < count; i++)
        if (i < count - 1 || last_exists)
            CoreRows::store_rounded(words[i], to + i * (STEP / DEPTH) * CORE_ROW_BYTES, next);
}

template <class Mode, int count, bool space_to_depth>
__device__ __forceinline__ void transpose_stages(const parameters &params, const shared_layout &shared, int warp,
                                                 int lane)
{
    const uint32_t row_bytes = params.pitch * CORE_ROW_BYTES;
    const int tiles = (params.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    pipeline_state stage = {0, 0};
    for (int64_t left = (int64_t)tiles * params.k_blocks; left > 0; left--) {
        const uint32_t first = shared.b_stages + stage.at * params.b_stage_bytes;
        mbarrier_wait(shared.raw_full + 8 * stage.at, stage.parity);
#pragma unroll 1
        for (uint32_t row = warp * row_bytes; row < params.b_stage_bytes; row += TRANSPOSE_WARPS * row_bytes)
            transpose_row<Mode, count, space_to_depth>(first + row, params.pitch, lane);
        fence_proxy_async();
        __syncwarp();
        if (arrives_for_warp(lane))
            mbarrier_arrive(shared.b_full + 8 * stage.at);
        stage.next(params.b_stages);
    }
}

template <class Mode, bool space_to_depth>
constexpr int TRANSPOSED_COLUMNS = max_transposed_columns(sizeof(typename Mode::Element), space_to_depth);

/* Does the same, compiled for each count that a row may take. */
template <class Mode, bool space_to_depth, int count = 1>
__device__ __forceinline__ void transpose_in_place(const parameters &params, const shared_layout &shared, int warp,
                                                   int lane)
{
    constexpr int STEP = WARP * core_rows_of<Mode>::PIXELS;
    if constexpr (count * STEP < TRANSPOSED_COLUMNS<Mode, space_to_depth>) {
        if (params.pitch > count * STEP) {
            transpose_in_place<Mode, space_to_depth, count + 1>(params, shared, warp, lane);
            return;
        }
    }
    transpose_stages<Mode, count, space_to_depth>(params, shared, warp, lane);
}

/* The pixel of a raw stage that a lane transposes: its column in the patch, which may not exist there, and which pixel
 * of the patch it is. It is found by a division once, then moved on by steps; rows of the box end before column
 * `end`. */
struct pixel_walk {
    int column, pixel;
    __device__ __forceinline__ void next(const parameters &params, int end)
    {
        column += params.transpose_columns;
        pixel += params.transpose_pixels;
        if (column >= end) {
            column -= params.box_pitch;
            pixel += params.pitch - params.box_pitch;
        }
    }
};

/* Does the same as `transpose` where the patch leaves columns of the box out. The first pixel lies `left` before the
 * box's end. */
template <class Mode, int count>
__device__ __forceinline__ void transpose_inside(const parameters &params, uint32_t from, uint32_t channel_bytes,
                                                 uint32_t to, uint32_t plane, int step, pixel_walk &at, int end,
                                                 int left)
{
    using CoreRows = core_rows_of<Mode>;
    uint32_t words[count][CoreRows::CHANNELS];
    load_words<Mode>(words, from, channel_bytes, step);
#pragma unroll
    for (int i = 0; i < count; i++) {
        if (i < count - 1 || i * step < left)
            CoreRows::store_inside(words[i], to + at.pixel * CORE_ROW_BYTES, plane, at.column, params.pitch);
        at.next(params, end);
    }
}

/* Transposes raw stages into tight patches: slower by a walk over the columns, faster where patches have several rows,
 * of which more fit into the N of an MMA. */
template <class Mode>
__device__ __forceinline__ void transpose_raw_stages_tightly(const parameters &params, const shared_layout &shared,
                                                             int warp, int lane)
{
    using CoreRows = core_rows_of<Mode>;
    constexpr int AT_ONCE = Mode::STRICT ? 2 : CoreRows::PIXELS == 2 ? 2 : 4;
    constexpr uint32_t element = sizeof(typename Mode::Element);
    const int patch = params.box_patch, cores = 2 * params.k_steps, step = params.transpose_step;
    const uint32_t channel_bytes = patch * element, core_bytes = params.patch * CORE_ROW_BYTES;
    const uint32_t plane = cores * core_bytes;
    const int core_warps = cores == 2 ? 2 : 1, first_core = warp / core_warps, core_step = TRANSPOSE_WARPS / core_warps;
    const int warp_pixel = warp % core_warps * WARP * CoreRows::PIXELS,
              first_pixel = warp_pixel + lane * CoreRows::PIXELS;
    const int first_row = first_pixel / params.box_pitch, first_column = first_pixel - first_row * params.box_pitch;
    pipeline_state raw = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        const int skipped = stage_column(params, tile) - box_column(params, tile), end = params.box_pitch - skipped;
        for (int k_block = 0; k_block < params.k_blocks; k_block++) {
            mbarrier_wait(shared.raw_full + 8 * raw.at, raw.parity);
            mbarrier_wait(shared.b_empty + 8 * stage.at, stage.parity);
            for (int core = first_core; core < cores; core += core_step) {
                uint32_t from = shared.raw_stages + raw.at * params.raw_stage_bytes +
                                core * CoreRows::CHANNELS * channel_bytes + first_pixel * element;
                const uint32_t to = shared.b_stages + stage.at * params.b_stage_bytes + core * core_bytes;
                pixel_walk at = {first_column - skipped, first_row * params.pitch + first_column - skipped};
                int left = patch - warp_pixel; /* the same in all lanes, so that they do not diverge */
#pragma unroll 1
                for (; left > (AT_ONCE - 1) * step; left -= AT_ONCE * step, from += AT_ONCE * step * element)
                    transpose_inside<Mode, AT_ONCE>(params, from, channel_bytes, to, plane, step, at, end,
                                                    left - lane * CoreRows::PIXELS);
#pragma unroll 1
                for (; left > 0; left -= step, from += step * element)
                    transpose_inside<Mode, 1>(params, from, channel_bytes, to, plane, step, at, end,
                                              left - lane * CoreRows::PIXELS);
            }
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane)) {
                mbarrier_arrive(shared.b_full + 8 * stage.at);
                mbarrier_arrive(shared.raw_empty + 8 * raw.at);
            }
            raw.next(params.raw_stages);
            stage.next(params.b_stages);
        }
    }
}

/* Loads the bits of an element of src; 0 outside of it. */
__device__ __forceinline__ uint32_t load_element(const float *from, bool exists)
{
    return exists ? __float_as_uint(*from) : 0;
}
template <class Half> __device__ __forceinline__ uint32_t load_element(const Half *from, bool exists)
{
    return exists ? *reinterpret_cast<const uint16_t *>(from) : 0;
}

/* Gathers B stages from src itself, element by element, where it lies so that TMA cannot read it. */
template <class Mode>
__device__ __forceinline__ void gather_src(const parameters &params, const shared_layout &shared, int warp, int lane)
{
    using CoreRows = core_rows_of<Mode>;
    using Element = typename Mode::Element;
    constexpr int AT_ONCE = Mode::STRICT ? 2 : 4; /* cores whose loads are under way */
    const int cores = 2 * params.k_steps;
    const uint32_t core_bytes = params.patch * CORE_ROW_BYTES, plane = cores * core_bytes;
    pipeline_state stage = {0, 1};
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        const int first_column = stage_column(params, tile), first_row = tile.row + params.first_row;
        const Element *src = static_cast<const Element *>(params.src) + tile.image * params.src_image +
                             (int64_t)tile.group * params.group_in * params.src_channel;
        for (int channels = params.group_in; channels > 0; channels -= params.k_block_channels) {
            mbarrier_wait(shared.b_empty + 8 * stage.at, stage.parity);
            const uint32_t to = shared.b_stages + stage.at * params.b_stage_bytes;
            for (int pixel = warp * WARP + lane; pixel < params.patch; pixel += TRANSPOSE_WARPS * WARP) {
                const int patch_row = pixel / params.pitch, column_of = pixel - patch_row * params.pitch;
                const int row = first_row + patch_row, column = first_column + column_of;
                const int place = params.space_to_depth_log2 == 0
                                      ? pixel
                                      : pixel - column_of + (column_of & 1) * (params.pitch / 2) + column_of / 2;
                const bool inside =
                    (unsigned)row < (unsigned)params.in_rows && (unsigned)column < (unsigned)params.in_columns;
                int left = inside ? min(channels, params.k_block_channels) : 0;
                const Element *from = src + (int64_t)row * params.in_columns + column;
#pragma unroll 1
                for (int first = 0; first < cores; first += AT_ONCE) {
                    uint32_t values[AT_ONCE][CoreRows::CHANNELS];
#pragma unroll
                    for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                        for (int c = 0; c < CoreRows::CHANNELS; c++) {
                            const int channel = i * CoreRows::CHANNELS + c;
                            values[i][c] = load_element(from + channel * params.src_channel, channel < left);
                        }
#pragma unroll
                    for (int i = 0; i < AT_ONCE; i++)
                        if (first + i < cores)
                            CoreRows::store_pixel(values[i], to + (first + i) * core_bytes + place * CORE_ROW_BYTES,
                                                  plane);
                    from += AT_ONCE * CoreRows::CHANNELS * params.src_channel;
                    left -= AT_ONCE * CoreRows::CHANNELS;
                }
            }
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane))
                mbarrier_arrive(shared.b_full + 8 * stage.at);
            stage.next(params.b_stages);
            src += params.k_block_channels * params.src_channel;
        }
    }
}

} // namespace tconv::wgmma

#endif
