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

ALWAYS_INLINE NAME(vector)
    NAME(activated)(NAME(vector) y, const tconv_post_op *post, NAME(vector) first, NAME(vector) second)
{
    switch (post->kind) {
    case TCONV_POST_SIGMOID: return NAME(post_sigmoid)(y);
    case TCONV_POST_TANH: return NAME(post_tanh)(y);
    case TCONV_POST_SILU: return NAME(post_silu)(y);
    case TCONV_POST_GELU: return NAME(post_gelu)(y);
    case TCONV_POST_GELU_TANH: return NAME(post_gelu_tanh)(y);
    case TCONV_POST_MISH: return NAME(post_mish)(y);
    case TCONV_POST_ELU: return NAME(post_elu)(y, (float)post->alpha - (NAME(vector)){0});
    case TCONV_POST_SOFTPLUS: return NAME(post_softplus)(y);
    case TCONV_POST_HARDSWISH: return NAME(post_hardswish)(y);
    case TCONV_POST_SNAKE: return NAME(post_snake)(y, first, second);
    default: return y;
    }
}

/* Lanes beyond a row are zeros. */
static void NAME(activate)(float *row, int64_t count, const tconv_post_op *post, const float *first,
                           const float *second)
{
    const int64_t lanes = VECTOR_BYTES / 4, step = post->kind == TCONV_POST_SNAKE ? lanes : 0;
    NAME(vector) y, a = {0}, b = {0};
    for (; count >= lanes; row += lanes, first += step, second += step, count -= lanes) {
        if (step > 0) {
            a = *(const NAME(loose_vector) *)first;
            b = *(const NAME(loose_vector) *)second;
        }
        *(NAME(loose_vector) *)row = NAME(activated)(*(const NAME(loose_vector) *)row, post, a, b);
    }
    const size_t bytes = (size_t)count * sizeof(float);
    y = a = b = (NAME(vector)){0};
    memcpy(&y, row, bytes);
    if (step > 0) {
        memcpy(&a, first, bytes);
        memcpy(&b, second, bytes);
    }
    y = NAME(activated)(y, post, a, b);
    memcpy(row, &y, bytes);
}
