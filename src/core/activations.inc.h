/*
 * The activation functions among the post-ops, in f32: text for the CPU's vectors of each level of instructions and for
 * CUDA's scalars. A file includes this text after it has defined
 *
 *     ACTIVATION_VALUE                   f32 values: a vector or a scalar
 *     ACTIVATION_INLINE                  what stands before each function
 *     NAME(name)                         the name of a function
 *     NUMBER(number)                     a number as ACTIVATION_VALUE
 *     NAME(post_bits)(value)             the bits of values, unsigned words of 32 bits
 *     NAME(post_value)(bits)             the values of bits
 *     NAME(post_fma)(a, b, c)            a * b + c; whether it is rounded once or twice does not matter
 *     NAME(post_product)(a, b)           a * b, which the compiler never fuses with what is done to it
 *     NAME(post_two_product)(a, b, rest) a * b; *rest is what its rounding took: their sum is exact
 *     NAME(post_quotient)(a, b)          a / b within 1 unit in the last place, b from 1 to 2^40
 *     NAME(post_select)(x, y, a, b)      x < y ? a : b; b where x or y is NaN
 *     NAME(post_at_least)(x, limit)      x < limit ? limit : x; NaN stays NaN
 *     NAME(post_at_most)(x, limit)       x > limit ? limit : x; NaN stays NaN
 *
 * A result is off by at most 4 units in the last place or 2^-126 (tconv.h); core/post_exact.c has the formulas. Nothing
 * branches. Arguments are limited to where a function still changes, so that no intermediate overflows, and a power of
 * two below the smallest normal number is 0: results below 2^-126 may become 0.
 *     The last operation of a function is never fused with what follows: each step of a list is rounded.
 *     Coefficients are made by bench/fit_activations.py.
 */

#define VALUE ACTIVATION_VALUE

ACTIVATION_INLINE VALUE NAME(post_magnitude)(VALUE y)
{
    return NAME(post_value)(NAME(post_bits)(y) & 0x7fffffffu);
}

/* Returns the magnitude of one with the sign of another. */
ACTIVATION_INLINE VALUE NAME(post_with_sign)(VALUE magnitude, VALUE sign)
{
    return NAME(post_value)((NAME(post_bits)(magnitude) & 0x7fffffffu) | (NAME(post_bits)(sign) & 0x80000000u));
}

ACTIVATION_INLINE VALUE NAME(post_within)(VALUE y, VALUE least, VALUE most)
{
    return NAME(post_at_most)(NAME(post_at_least)(y, least), most);
}

/*
 * Returns e, such that exp(x - rest) = (1 + e) * 2^n, from 1 / sqrt(2) - 1 to sqrt(2) - 1; e and thus n = 0 for x near
 * 0. *power is 2^(n + shift), or 0 where n + shift = -127, below which n may not be; shift is a number. rest is so small
 * that x needs it only beyond its last place.
 *     n is the nearest integer to x / log(2), which a sum with 1.5 * 2^23 rounds to its last bits. n times the upper part
 * of log(2), which has 15 bits, is exact, as is the difference from x.
 */
ACTIVATION_INLINE VALUE NAME(post_exp)(VALUE x, VALUE rest, const float shift, VALUE *power)
{
    const VALUE rounder = NUMBER(12582912.0f + 127.0f + shift);
    const VALUE rounded = NAME(post_fma)(x - rest, NUMBER(1.44269502f), rounder);
    const VALUE n = rounded - rounder;
    *power = NAME(post_value)(NAME(post_bits)(rounded) << 23);
    VALUE r = NAME(post_fma)(n, NUMBER(-0.693145752f), x) - rest;
    r = NAME(post_fma)(n, NUMBER(-1.42860677e-6f), r);
    VALUE q = NUMBER(0.00138702476f);
    q = NAME(post_fma)(q, r, NUMBER(0.00836665183f));
    q = NAME(post_fma)(q, r, NUMBER(0.0416674428f));
    q = NAME(post_fma)(q, r, NUMBER(0.166665435f));
    q = NAME(post_fma)(q, r, NUMBER(0.49999997f));
    return NAME(post_fma)(r * r, q, r);
}

/* Returns exp(x) for x <= 0; 0 for x < -88. */
ACTIVATION_INLINE VALUE NAME(post_exp_of_negative)(VALUE x)
{
    VALUE power;
    const VALUE e = NAME(post_exp)(NAME(post_at_least)(x, NUMBER(-88.0f)), NUMBER(0.0f), 0, &power);
    return NAME(post_fma)(e, power, power);
}

/* Returns exp(x) - 1 for x <= 0, anything for others. */
ACTIVATION_INLINE VALUE NAME(post_expm1_of_negative)(VALUE x)
{
    VALUE power;
    const VALUE e = NAME(post_exp)(NAME(post_at_least)(x, NUMBER(-30.0f)), NUMBER(0.0f), 0, &power);
    return NAME(post_fma)(e, power, power - 1.0f);
}

ACTIVATION_INLINE VALUE NAME(post_sigmoid)(VALUE y)
{
    const VALUE t = NAME(post_exp_of_negative)(-NAME(post_magnitude)(y));
    return NAME(post_quotient)(NAME(post_select)(y, NUMBER(0.0f), t, NUMBER(1.0f)), t + 1.0f);
}

/* With d = exp(-2 * |y|) - 1, tanh(|y|) is -d / (2 + d). */
ACTIVATION_INLINE VALUE NAME(post_tanh)(VALUE y)
{
    const VALUE d = NAME(post_expm1_of_negative)(NAME(post_magnitude)(y) * -2.0f);
    return NAME(post_with_sign)(NAME(post_quotient)(d, d + 2.0f), y);
}

/*
 * Returns y / (1 + exp(-u)), where u has the sign of y and |u| = u + rest. With t = exp(-|u|) it is m = y * t / (1 + t)
 * where y is negative, and y - m where y is positive. limited is y, limited to where m is not 0.
 *     m is computed times 2^7: exp(-|u|) may be smaller than m by that much, and is 0 from where m is below 2^-126.
 */
ACTIVATION_INLINE VALUE NAME(post_times_sigmoid)(VALUE y, VALUE limited, VALUE u, VALUE rest)
{
    VALUE power;
    const VALUE e = NAME(post_exp)(-u, rest, 7, &power);
    const VALUE t = NAME(post_fma)(e, power, power);
    const VALUE divisor = NAME(post_fma)(t, NUMBER(0.0078125f), NUMBER(1.0f));
    const VALUE m = NAME(post_product)(limited * NAME(post_quotient)(t, divisor), NUMBER(0.0078125f));
    return NAME(post_select)(NUMBER(0.0f), y, y - m, m);
}

ACTIVATION_INLINE VALUE NAME(post_silu)(VALUE y)
{
    const VALUE limited = NAME(post_within)(y, NUMBER(-93.0f), NUMBER(93.0f));
    return NAME(post_times_sigmoid)(y, limited, NAME(post_magnitude)(limited), NUMBER(0.0f));
}

/* y * (1 + tanh(v)) / 2 is y / (1 + exp(-2 * v)). An error of 2 * v is one of the result times 2 * v, which is up to 93:
 * it is computed in two parts, as |y| * (a + b * y^2) with a = 2 * sqrt(2 / pi) and b = .044715 * a. */
ACTIVATION_INLINE VALUE NAME(post_gelu_tanh)(VALUE y)
{
    const VALUE a = NUMBER(1.59576917f), a_rest = NUMBER(-4.53406805e-8f);
    const VALUE b = NUMBER(0.0713548139f), b_rest = NUMBER(2.39883247e-9f);
    const VALUE limited = NAME(post_within)(y, NUMBER(-10.24f), NUMBER(10.24f)),
                magnitude = NAME(post_magnitude)(limited);
    VALUE square_rest, term_rest, rest;
    const VALUE square = NAME(post_two_product)(magnitude, magnitude, &square_rest);
    const VALUE term = NAME(post_two_product)(b, square, &term_rest);
    const VALUE sum = a + term, added = sum - a;
    VALUE sum_rest = (a - (sum - added)) + (term - added);
    sum_rest += a_rest + NAME(post_fma)(b, square_rest, NAME(post_fma)(b_rest, square, term_rest));
    const VALUE u = NAME(post_two_product)(magnitude, sum, &rest);
    return NAME(post_times_sigmoid)(y, limited, u, NAME(post_fma)(magnitude, sum_rest, rest));
}

/*
 * The tail of the normal distribution is exp(-y^2 / 2) * f(x) / (1.5 + |y|), where x = (1.5 - |y|) / (1.5 + |y|) and f is a
 * polynomial. m = y * tail is the result where y is negative, y - m where y is positive. Half of the square of |y| is that
 * of its upper 12 bits, which is exact, and a rest. share is y / (1.5 + |y|), and excess what it has too
 * much; of -0 the result is -0.
 */
ACTIVATION_INLINE VALUE NAME(post_gelu)(VALUE y)
{
    const VALUE limited = NAME(post_within)(y, NUMBER(-13.265f), NUMBER(13.265f)), a = NAME(post_magnitude)(limited);
    const VALUE upper = NAME(post_value)(NAME(post_bits)(a) & 0xfffff000u);
    const VALUE rest = (a - upper) * ((a + upper) * 0.5f);
    VALUE power, product_rest;
    const VALUE e = NAME(post_exp)(upper * upper * -0.5f, rest, 0, &power);
    const VALUE divisor = a + 1.5f, divisor_rest = a - (divisor - 1.5f);
    const VALUE over = NAME(post_quotient)(NUMBER(1.0f), divisor), x = (1.5f - a) * over;
    const VALUE share = NAME(post_product)(limited, over);
    const VALUE product = NAME(post_two_product)(divisor, share, &product_rest);
    const VALUE excess = ((product - limited) + NAME(post_fma)(divisor_rest, share, product_rest)) * over;
    VALUE f = NUMBER(-0.000161281554f);
    f = NAME(post_fma)(f, x, NUMBER(0.000472561776f));
    f = NAME(post_fma)(f, x, NUMBER(-0.000231483631f));
    f = NAME(post_fma)(f, x, NUMBER(-0.00105301116f));
    f = NAME(post_fma)(f, x, NUMBER(0.00269646547f));
    f = NAME(post_fma)(f, x, NUMBER(-0.00242772745f));
    f = NAME(post_fma)(f, x, NUMBER(-0.00398323452f));
    f = NAME(post_fma)(f, x, NUMBER(0.0176388007f));
    f = NAME(post_fma)(f, x, NUMBER(-0.0178973023f));
    f = NAME(post_fma)(f, x, NUMBER(-0.0574953072f));
    f = NAME(post_fma)(f, x, NUMBER(0.195099518f));
    f = NAME(post_fma)(f, x, NUMBER(0.617341995f));
    const VALUE normal = NAME(post_fma)(share, f, -(excess * f));
    const VALUE m = NAME(post_product)(normal, NAME(post_fma)(e, power, power));
    return NAME(post_select)(NUMBER(0.0f), y, y - m, m);
}

/* With w = exp(y), tanh(log(1 + w)) is 1 - 2 / d, where d = w * (w + 2) + 2; for negative y it is w * (1 - w * (w + 1) / d),
 * of which w is computed times 2^7 as in post_times_sigmoid. */
ACTIVATION_INLINE VALUE NAME(post_mish)(VALUE y)
{
    const VALUE zero = NUMBER(0.0f), two = NUMBER(2.0f), scale = NUMBER(0.0078125f);
    const VALUE limited = NAME(post_within)(y, NUMBER(-93.0f), NUMBER(12.0f));
    VALUE power;
    const VALUE e = NAME(post_exp)(limited, zero, 7, &power);
    const VALUE scaled = NAME(post_fma)(e, power, power), w = scaled * scale;
    const VALUE part = NAME(post_select)(zero, y, two, NAME(post_fma)(w, w, w));
    const VALUE factor = 1.0f - NAME(post_quotient)(part, NAME(post_fma)(w, w + two, two));
    const VALUE negative = NAME(post_product)(limited * scaled * factor, scale);
    return NAME(post_select)(zero, y, NAME(post_product)(y, factor), negative);
}

ACTIVATION_INLINE VALUE NAME(post_elu)(VALUE y, VALUE alpha)
{
    const VALUE d = NAME(post_with_sign)(NAME(post_expm1_of_negative)(y), y);
    return NAME(post_select)(NUMBER(0.0f), y, y, NAME(post_product)(alpha, d));
}

/* With t = exp(-|y|) it is max(y, 0) + log(1 + t), and log(1 + t) is 2 * atanh(u), where u = t / (2 + t). */
ACTIVATION_INLINE VALUE NAME(post_softplus)(VALUE y)
{
    const VALUE t = NAME(post_exp_of_negative)(-NAME(post_magnitude)(y));
    const VALUE u = NAME(post_quotient)(t, t + 2.0f), v = u * u;
    VALUE q = NUMBER(0.280294299f);
    q = NAME(post_fma)(q, v, NUMBER(0.27998212f));
    q = NAME(post_fma)(q, v, NUMBER(0.400217503f));
    q = NAME(post_fma)(q, v, NUMBER(0.666664124f));
    return NAME(post_at_least)(y, NUMBER(0.0f)) + NAME(post_fma)(u * v, q, u + u);
}

/* y + 3 and its sixth are computed in two parts each, so that the sixth is rounded once, and the product once. */
ACTIVATION_INLINE VALUE NAME(post_hardswish)(VALUE y)
{
    const VALUE sixth = NUMBER(0.166666672f), sixth_rest = NUMBER(-4.96705388e-9f);
    const VALUE limited = NAME(post_within)(y, NUMBER(-3.0f), NUMBER(3.0f));
    const VALUE sum = limited + 3.0f, sum_rest = limited - (sum - 3.0f);
    VALUE rest;
    const VALUE product = NAME(post_two_product)(sum, sixth, &rest);
    rest += NAME(post_fma)(sum, sixth_rest, sum_rest * sixth);
    return NAME(post_product)(NAME(post_at_least)(y, NUMBER(-3.0f)), product + rest);
}

/*
 * y + b * sin(a * y)^2. The product is computed in two parts; the nearest multiple of pi is taken from it in three parts,
 * of which the first two have 9 bits, so that multiples up to 2^15 are exact. Beyond 2^20, where a number's last place is
 * too large for a sine, the sine is taken as 0.
 */
ACTIVATION_INLINE VALUE NAME(post_snake)(VALUE y, VALUE a, VALUE b)
{
    const VALUE rounder = NUMBER(12582912.0f);
    VALUE rest;
    const VALUE x = NAME(post_two_product)(a, y, &rest);
    const VALUE n = NAME(post_fma)(x, NUMBER(0.318309873f), rounder) - rounder;
    VALUE r = NAME(post_fma)(n, NUMBER(-3.140625f), x);
    r = NAME(post_fma)(n, NUMBER(-0.000967025757f), r);
    r = NAME(post_fma)(n, NUMBER(-6.27832947e-7f), r) + rest;
    const VALUE v = r * r;
    VALUE q = NUMBER(-3.58208172e-06f);
    q = NAME(post_fma)(q, v, NUMBER(0.000139031545f));
    q = NAME(post_fma)(q, v, NUMBER(-0.00317167141f));
    q = NAME(post_fma)(q, v, NUMBER(0.0444425009f));
    q = NAME(post_fma)(q, v, NUMBER(-0.333332866f));
    q = NAME(post_fma)(q, v, NUMBER(1.0f));
    VALUE square = NAME(post_select)(NUMBER(1048576.0f), NAME(post_magnitude)(x), NUMBER(0.0f), v * q);
    /* An infinity times a frequency of 0 is NaN, and the limit is the infinity all the same. */
    square = NAME(post_select)(NUMBER(3.402823466e+38f), NAME(post_magnitude)(y), NUMBER(0.0f), square);
    return NAME(post_fma)(b, square, y);
}

#undef VALUE
