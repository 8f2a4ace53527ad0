/* The formulas of tconv_post_kind, in forms that keep their digits and their limits. */
#include "post_exact.h"

#include <math.h>

/* y / (1 + exp(-x)), which is -0 at -Inf as its limit is. */
static double times_sigmoid(double y, double x)
{
    return y == -INFINITY ? -0.0 : y / (1 + exp(-x));
}

static double softplus(double y)
{
    return y > 0 ? y + log1p(exp(-y)) : log1p(exp(y));
}

/* What the argument of erfc loses in rounding, times erfc's derivative, is taken off: in the left tail it would be y * y units
 * in the last place. Beyond 40 the function is y, or below every double. */
static double gelu(double y)
{
    const double root_half = 0.70710678118654752440, root_half_rest = -4.8336466567264565e-17;
    const double slope = 1.12837916709551257390; /* 2 / sqrt(pi) */
    if (y > 40 || y < -40)
        return y > 0 ? y : -0.0;
    const double t = -y * root_half, rest = fma(-y, root_half, -t) - y * root_half_rest;
    return 0.5 * y * (erfc(t) - rest * slope * exp(-t * t));
}

/* y * (1 + tanh(u)) / 2 is y / (1 + exp(-2 u)). */
static double gelu_tanh(double y)
{
    const double twice_root = 1.59576912160573071176; /* 2 sqrt(2 / pi) */
    return times_sigmoid(y, twice_root * (y + 0.044715 * y * y * y));
}

static double clamp(double y, double least, double most)
{
    return y < least ? least : y > most ? most : y; /* NaN is neither */
}

static double leaky_relu(double y, double slope)
{
    if (slope == 0)
        return y < 0 ? 0 : y;
    return y > 0 ? y : slope * y;
}

static double hardswish(double y)
{
    return y == -INFINITY ? -0.0 : y * clamp(y + 3, 0, 6) / 6;
}

double tconv_post_in_double(const tconv_post_op *post, double y, tconv_post_values values)
{
    switch (post->kind) {
    case TCONV_POST_ADD_CHANNEL: return y + values.first;
    case TCONV_POST_MUL_CHANNEL: return y * values.first;
    case TCONV_POST_ADD_TENSOR: return y + post->alpha * values.first;
    case TCONV_POST_LINEAR: return fma(post->alpha, y, post->beta);
    case TCONV_POST_CLAMP: return clamp(y, post->alpha, post->beta);
    case TCONV_POST_LEAKY_RELU: return leaky_relu(y, post->alpha);
    case TCONV_POST_SIGMOID: return 1 / (1 + exp(-y));
    case TCONV_POST_TANH: return tanh(y);
    case TCONV_POST_SILU: return times_sigmoid(y, y);
    case TCONV_POST_GELU: return gelu(y);
    case TCONV_POST_GELU_TANH: return gelu_tanh(y);
    case TCONV_POST_MISH: return y == -INFINITY ? -0.0 : y * tanh(softplus(y));
    case TCONV_POST_ELU: return y > 0 ? y : post->alpha * expm1(y);
    case TCONV_POST_SOFTPLUS: return softplus(y);
    case TCONV_POST_HARDSWISH: return hardswish(y);
    case TCONV_POST_SNAKE: {
        const double sine = isinf(y) ? 0 : sin(values.first * y); /* Inf is the limit, whatever the sine is */
        return y + values.second * sine * sine;
    }
    }
    return y;
}
