/*
 * The 16-bit formats in plain C: IEEE 754 binary16 (f16) and the upper half of a binary32 (bf16), each as uint16_t.
 *
 * Conversions to 16 bits round once, to nearest even, straight from the source format; subnormals, infinities and NaNs
 * (which become quiet) included. Machines that convert in hardware give the same bits.
 */
#ifndef TCONV_CPU_KERNELS_HALF_H
#define TCONV_CPU_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tconv_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tconv_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float tconv_float_from_bf16(uint16_t bf16)
{
    return tconv_float_of_bits((uint32_t)bf16 << 16);
}

static inline uint16_t tconv_bf16_from_float(float value)
{
    uint32_t bits = tconv_bits_of_float(value);
    uint32_t rounded =
        (bits + 0x7fff + (bits >> 16 & 1)) >> 16; /* adds half less one, and the kept bit: ties go to even */
    uint32_t quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

static inline float tconv_float_from_f16(uint16_t f16)
{
    uint32_t sign = (uint32_t)(f16 & 0x8000) << 16, magnitude = f16 & 0x7fffu, bits;
    if (magnitude >= 0x7c00) /* infinity, NaN */
        bits = magnitude << 13 | 0x7f800000 | (magnitude > 0x7c00 ? 0x400000 : 0);
    else if (magnitude >= 0x0400)
        bits = (magnitude << 13) + ((127u - 15u) << 23);
    else /* subnormal: magnitude * 2^-24, exact */
        bits = tconv_bits_of_float((float)magnitude * 0x1p-24f);
    return tconv_float_of_bits(sign | bits);
}

/* Returns the upper bits of a significand, rounded to nearest even, for a shift of 1 to 63. A carry into the exponent
 * is right. */
static inline uint64_t tconv_round_shift(uint64_t significand, int shift)
{
    uint64_t kept = significand >> shift, half = (uint64_t)1 << (shift - 1), rest = significand & (half * 2 - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

/* Converts a double to a 16-bit format with the given width of the stored fraction and least normal exponent; the
 * format's infinity has all exponent bits set. */
static inline uint16_t tconv_half_from_double(double value, int fraction_bits, int least_exponent, uint16_t infinity)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    uint64_t fraction = bits & 0xfffffffffffffu, rounded;
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    if (exponent == 1024) {
        uint64_t payload = fraction >> (52 - fraction_bits) | (uint64_t)1 << (fraction_bits - 1);
        return (uint16_t)(sign | infinity | (fraction != 0 ? payload : 0));
    }
    if (exponent == -1023) /* a double this small rounds to zero in either format */
        return sign;
    if (exponent >= least_exponent) {
        uint64_t biased = (uint64_t)(exponent - least_exponent + 1) << 52;
        rounded = tconv_round_shift(biased | fraction, 52 - fraction_bits);
    } else {
        int shift = 52 - fraction_bits + least_exponent - exponent;
        rounded = shift < 64 ? tconv_round_shift(fraction | (uint64_t)1 << 52, shift) : 0;
    }
    return (uint16_t)(sign | (rounded < infinity ? rounded : infinity));
}

static inline uint16_t tconv_f16_from_double(double value)
{
    return tconv_half_from_double(value, 10, -14, 0x7c00);
}

static inline uint16_t tconv_bf16_from_double(double value)
{
    return tconv_half_from_double(value, 7, -126, 0x7f80);
}

/* A float is a double exactly, so this too rounds once. */
static inline uint16_t tconv_f16_from_float(float value)
{
    uint32_t bits = tconv_bits_of_float(value), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude - 0x38800000 >= 0x47800000 - 0x38800000) /* not a normal f16: below 2^-14 or from 2^16 on, or NaN */
        return tconv_f16_from_double(value);
    uint32_t rebiased = magnitude - ((127u - 15u) << 23);
    return (uint16_t)(sign | (rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13);
}

#endif
