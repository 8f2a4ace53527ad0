/* Matrices of factors, and what a matrix product of them is: for the products of a warp and of a warpgroup. */
#ifndef TCONV_CHECK_CUDA_PRODUCTS_H
#define TCONV_CHECK_CUDA_PRODUCTS_H

#include <algorithm>
#include <cstdio>

#include "check.h"

namespace tconv::check
{

enum factor_type { FACTOR_TF32, FACTOR_F16, FACTOR_BF16 };

inline int factor_bytes(factor_type type)
{
    return type == FACTOR_TF32 ? 4 : 2;
}

/* What factors are: integers, whose sums are exact; reals of the type; or reals of f32, whose low bits TF32 ignores. */
enum factor_kind { FACTOR_INTEGERS, FACTOR_REALS };

/* Rows of K factors; the values are those that the tensor cores see. */
struct factors {
    int rows, K;
    factor_type type;
    std::vector<double> values;
    std::vector<uint8_t> bytes; /* [row][K], as they lie in memory */
    double at(int row, int k) const
    {
        return values[(size_t)row * K + k];
    }
    /* Copies the factor to a place in memory. */
    void put(int row, int k, void *to) const
    {
        const size_t size = (size_t)factor_bytes(type);
        memcpy(to, &bytes[((size_t)row * K + k) * size], size);
    }
    void copy_row(int from, int to)
    {
        const size_t size = (size_t)K * factor_bytes(type);
        memmove(&bytes[to * size], &bytes[from * size], size);
        std::copy_n(values.begin() + (size_t)from * K, K, values.begin() + (size_t)to * K);
    }
    uint32_t bits(int row, int k) const
    {
        uint32_t bits = 0;
        put(row, k, &bits);
        return bits;
    }
};

inline factors make_factors(int rows, int K, factor_type type, factor_kind kind)
{
    factors made = {rows, K, type, {}, {}};
    made.bytes.resize((size_t)rows * K * factor_bytes(type));
    for (int i = 0; i < rows * K; i++) {
        const float value = kind == FACTOR_INTEGERS ? (float)random_integer(-8, 8) : random_real();
        uint32_t bits = type == FACTOR_TF32 ? bits_of(value) : type == FACTOR_F16 ? f16_of(value) : bf16_of(value);
        memcpy(&made.bytes[(size_t)i * factor_bytes(type)], &bits, (size_t)factor_bytes(type));
        made.values.push_back(type == FACTOR_TF32  ? float_of(bits & 0xffffe000u)
                              : type == FACTOR_F16 ? float_of_f16((uint16_t)bits)
                                                   : float_of_bf16((uint16_t)bits));
    }
    return made;
}

/* The product of row a of A and row b of B over K from `first` to `end`, and the sum of its terms' magnitudes. */
struct dot_product {
    double sum, magnitudes;
};
inline dot_product dot(const factors &A, int a, const factors &B, int b, int first, int end)
{
    dot_product made = {0, 0};
    for (int k = first; k < end; k++) {
        made.sum += A.at(a, k) * B.at(b, k);
        made.magnitudes += fabs(A.at(a, k) * B.at(b, k));
    }
    return made;
}

/* What a sum of `terms` products on the tensor cores may be off by: they cut off bits of each addition, of which they
 * keep at least 22. Integers are exact. */
inline double product_bound(factor_kind kind, const dot_product &of, int terms)
{
    return kind == FACTOR_INTEGERS ? 0 : of.magnitudes * 0x1p-22 * (terms + 1);
}

} // namespace tconv::check

#endif
