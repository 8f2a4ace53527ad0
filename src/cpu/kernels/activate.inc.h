/*
 * The activation functions of core/activations.inc.h for a level's vectors of float; text that is included with
 *
 *     NAME(name)    a name with the suffix of float; NAME(vector) is the type of vectors
 *     VECTOR_BYTES  their bytes
 */

typedef uint32_t NAME(bits) __attribute__((vector_size(VECTOR_BYTES)));

ALWAYS_INLINE NAME(bits) NAME(post_bits)(NAME(vector) value)
{
    return (NAME(bits))value;
}

ALWAYS_INLINE NAME(vector) NAME(post_value)(NAME(bits) bits)
{
    return (NAME(vector))bits;
}

/* The product is kept apart from what follows, because multiply and add may fuse in the kernels. */
ALWAYS_INLINE NAME(vector) NAME(post_product)(NAME(vector) a, NAME(vector) b)
{
    NAME(vector) product = a * b;
    IN_REGISTER(product);
    return product;
}

ALWAYS_INLINE NAME(vector) NAME(post_quotient)(NAME(vector) a, NAME(vector) b)
{
    return a / b;
}

ALWAYS_INLINE NAME(vector) NAME(post_fma)(NAME(vector) a, NAME(vector) b, NAME(vector) c)
{
#if VECTOR_BYTES == 64
    return _mm512_fmadd_ps(a, b, c);
#elif VECTOR_BYTES == 32
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

ALWAYS_INLINE NAME(vector) NAME(post_two_product)(NAME(vector) a, NAME(vector) b, NAME(vector) * rest)
{
    const NAME(vector) product = NAME(post_product)(a, b);
#if VECTOR_BYTES > 16 || defined(__aarch64__)
    *rest = NAME(post_fma)(a, b, -product);
#else /* Dekker's product: of the halves, which have 12 bits, all products are exact */
    const NAME(vector) upper_a = NAME(post_value)(NAME(post_bits)(a) & 0xfffff000u), lower_a = a - upper_a;
    const NAME(vector) upper_b = NAME(post_value)(NAME(post_bits)(b) & 0xfffff000u), lower_b = b - upper_b;
    *rest = ((upper_a * upper_b - product) + upper_a * lower_b + lower_a * upper_b) + lower_a * lower_b;
#endif
    return product;
}

ALWAYS_INLINE NAME(vector) NAME(post_select)(NAME(vector) x, NAME(vector) y, NAME(vector) a, NAME(vector) b)
{
#if VECTOR_BYTES == 64
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
#elif VECTOR_BYTES == 32
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
#else
    const NAME(bits) mask = (NAME(bits))(x < y);
    return (NAME(vector))((mask & (NAME(bits))a) | (~mask & (NAME(bits))b));
#endif
}

/* Of a NaN and a number, the instructions of x86-64 return the second operand. */
ALWAYS_INLINE NAME(vector) NAME(post_at_least)(NAME(vector) x, NAME(vector) limit)
{
#if VECTOR_BYTES == 64
    return _mm512_max_ps(limit, x);
#elif VECTOR_BYTES == 32
    return _mm256_max_ps(limit, x);
#else
    return NAME(post_select)(x, limit, limit, x);
#endif
}

ALWAYS_INLINE NAME(vector) NAME(post_at_most)(NAME(vector) x, NAME(vector) limit)
{
#if VECTOR_BYTES == 64
    return _mm512_min_ps(limit, x);
#elif VECTOR_BYTES == 32
    return _mm256_min_ps(limit, x);
#else
    return NAME(post_select)(limit, x, limit, x);
#endif
}

#define ACTIVATION_VALUE  NAME(vector)
#define ACTIVATION_INLINE ALWAYS_INLINE
#define NUMBER(number)    ((number) - (NAME(vector)){0})
#include "../../core/activations.inc.h"
#undef ACTIVATION_VALUE
#undef ACTIVATION_INLINE
#undef NUMBER
