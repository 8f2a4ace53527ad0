/*
 * What tests of Hopper's main loops share: these run on stages that the host has filled, and what they multiply, by
 * which taps and in which order of stages, is compared with sums in double. The main loops of the other implementations
 * are in their kernels (whole.cu).
 */
#ifndef TCONV_CHECK_CUDA_MAINLOOPS_H
#define TCONV_CHECK_CUDA_MAINLOOPS_H

#include "hopper.cuh"

namespace tconv::check
{

constexpr int M = 64, WARPGROUP = 128; /* rows of wgmma, and threads */

/* How a mode takes factors. */
enum factor_mode { AS_TF32, AS_PARTS, AS_F16, AS_BF16 };

template <class Mode> constexpr factor_mode factor_mode_of()
{
    return Mode::STRICT                                                    ? AS_PARTS
           : Mode::TYPE == WGMMA_TF32                                      ? AS_TF32
           : Mode::TYPE == WGMMA_BF16 || Mode::TYPE == WGMMA_BF16_MN_MAJOR ? AS_BF16
                                                                           : AS_F16;
}

struct factor {
    float value;      /* what is multiplied */
    uint32_t bits[2]; /* of each plane */
};

inline factor make_factor(factor_mode mode, bool integers)
{
    const float value = integers ? (float)random_integer(-4, 4) : random_real();
    factor made = {value, {bits_of(value), 0}};
    if (mode == AS_PARTS)
        tf32_parts_of(bits_of(value), &made.bits[0], &made.bits[1]);
    if (mode == AS_TF32)
        made.value = float_of(made.bits[0] = tf32_of(bits_of(value)));
    if (mode == AS_F16)
        made.value = float_of_f16((uint16_t)(made.bits[0] = f16_of(value)));
    if (mode == AS_BF16)
        made.value = float_of_bf16((uint16_t)(made.bits[0] = bf16_of(value)));
    return made;
}

/* A stage of an operand; put says where each factor goes. */
struct stage_bytes {
    std::vector<uint8_t> bytes;
    factor_mode mode;
    int element() const
    {
        return mode == AS_TF32 || mode == AS_PARTS ? 4 : 2;
    }
    int planes() const
    {
        return mode == AS_PARTS ? 2 : 1;
    }
    void put(const factor &of, size_t at, size_t plane_bytes)
    {
        for (int plane = 0; plane < planes(); plane++)
            memcpy(&bytes[at + (size_t)plane * plane_bytes], &of.bits[plane], (size_t)element());
    }
};

/* What sums may be off by: nothing with integers; in strict f32 as the library promises; else what the tensor cores cut
 * off. */
inline double bound_of(factor_mode mode, bool integers, double magnitudes, int terms)
{
    return integers ? 0 : magnitudes * (mode == AS_PARTS ? 16 * 0x1p-24 : (terms + 1) * 0x1p-22);
}

/* The row and column of a thread's accumulator of wgmma. */
inline int row_of(int thread, int i)
{
    return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
inline int column_of(int thread, int i)
{
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

__device__ __forceinline__ void copy_to_shared(char *to, const char *from, int bytes)
{
    for (int i = (int)threadIdx.x * 16; i < bytes; i += (int)blockDim.x * 16)
        *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(from + i);
}

} // namespace tconv::check

#endif
