/*
 * Conversions between float64 and the dtypes. One function rounds to both 16-bit formats: a value v is a multiple of
 * its quantum, 2^(exponent of v - precision), bounded below by the format's smallest number; dividing by the quantum,
 * rounding to an integer (the default mode: nearest, ties to even) and multiplying again rounds once and exactly.
 */
#include "element.h"

#include <math.h>
#include <string.h>

typedef struct format {
    size_t size;
    int precision;        /* bits of the significand, the implied one included */
    int minimum_exponent; /* exponent of the smallest quantum, the smallest positive number */
    double overflow;      /* values from here on round to infinity */
} format;

static const format formats[] = {
    [TCONV_F32] = {4, 24, -149, 0x1.ffffffp127},
    [TCONV_F64] = {8, 53, -1074, INFINITY},
    [TCONV_F16] = {2, 11, -24, 65520.0},
    [TCONV_BF16] = {2, 8, -133, 0x1.ffp127},
};

/* Returns 2 to the exponent, which is -1022 to 1023. ldexp takes ten times as long, and every element of a 16-bit type
 * needs it. */
static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

size_t harness_element_size(tconv_dtype dtype)
{
    return (size_t)dtype < sizeof formats / sizeof formats[0] ? formats[dtype].size : 0;
}

static int quantum_exponent(const format *kind, double value)
{
    int exponent;
    frexp(value, &exponent);
    exponent -= kind->precision;
    return exponent > kind->minimum_exponent ? exponent : kind->minimum_exponent;
}

double harness_element_round(tconv_dtype dtype, double value)
{
    const format *kind = &formats[dtype];
    if (dtype == TCONV_F64 || isnan(value) || isinf(value) || value == 0)
        return value;
    if (dtype == TCONV_F32)
        return (double)(float)value;
    if (fabs(value) >= kind->overflow)
        return copysign(INFINITY, value);
    int exponent = quantum_exponent(kind, value);
    return rint(value * power_of_two(-exponent)) * power_of_two(exponent);
}

double harness_element_half_ulp(tconv_dtype dtype, double value)
{
    const format *kind = &formats[dtype];
    return ldexp(0.5, value == 0 || !isfinite(value) ? kind->minimum_exponent : quantum_exponent(kind, value));
}

/* Encodes a value that was rounded to f16: the sign, then the exponent plus the significand in units of the quantum,
 * whose implied bit carries into the exponent. */
static uint16_t encode_f16(double value)
{
    unsigned sign = signbit(value) ? 0x8000u : 0;
    if (isnan(value))
        return (uint16_t)(sign | 0x7e00u);
    if (isinf(value))
        return (uint16_t)(sign | 0x7c00u);
    if (value == 0)
        return (uint16_t)sign;
    const format *kind = &formats[TCONV_F16];
    int exponent = quantum_exponent(kind, value);
    unsigned significand = (unsigned)(fabs(value) * power_of_two(-exponent));
    return (uint16_t)(sign | (((unsigned)(exponent - kind->minimum_exponent) << 10) + significand));
}

static double decode_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 0x1f;
    int fraction = bits & 0x3ff;
    double magnitude;
    if (exponent == 0x1f)
        magnitude = fraction != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        magnitude = fraction * power_of_two(-24);
    else
        magnitude = (fraction + 0x400) * power_of_two(exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

static uint16_t encode_bf16(double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if (isnan(value))
        bits |= 0x400000u; /* so that the upper half alone is still a NaN */
    return (uint16_t)(bits >> 16);
}

static double decode_bf16(uint16_t upper)
{
    uint32_t bits = (uint32_t)upper << 16;
    float narrow;
    memcpy(&narrow, &bits, sizeof narrow);
    return (double)narrow;
}

double harness_element_get(tconv_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case TCONV_F32: return (double)((const float *)data)[index];
    case TCONV_F64: return ((const double *)data)[index];
    case TCONV_F16: return decode_f16(((const uint16_t *)data)[index]);
    case TCONV_BF16: return decode_bf16(((const uint16_t *)data)[index]);
    }
    return 0;
}

void harness_element_set(tconv_dtype dtype, void *data, int64_t index, double value)
{
    switch (dtype) {
    case TCONV_F32: ((float *)data)[index] = (float)value; break;
    case TCONV_F64: ((double *)data)[index] = value; break;
    case TCONV_F16: ((uint16_t *)data)[index] = encode_f16(harness_element_round(dtype, value)); break;
    case TCONV_BF16: ((uint16_t *)data)[index] = encode_bf16(harness_element_round(dtype, value)); break;
    }
}
