/*
 * Post-ops by the formulas of tconv.h in double, a second time beside the library's, and the error that an output may have.
 *
 * The error goes along step by step. A step f takes a value whose error is e to one whose error is at most L e, where L
 * is the largest |f'|, plus what the step may add: as many units in the last place as tconv_post_op promises. In f64 the
 * formulas here round as often as the library does, and each rounding counts twice.
 */
#include <math.h>

#include "case.h"
#include "element.h"
#include "post.h"

/* Roundings to nearest, of half a unit in the last place each, that are worth the error of SIGMOID to SOFTPLUS, and SNAKE; and
 * of those functions that have less to keep in TF32 and 16 bits, where results below a larger number may be 0, too. */
#define FUNCTION_ROUNDINGS 8
#define COARSE_ROUNDINGS   32
#define COARSE_LEAST       0x1p-118
/* The most binary digits after the point of numbers that keep integers exact. */
#define MOST_FRACTION 6
/* The largest integer up to which f32 holds them all. */
#define LARGEST_EXACT 0x1p24

/* ----------------------------------------------------------------------------------------------------------- formulas */

static double sigmoid_of(double y)
{
    return y >= 0 ? 1 / (1 + exp(-y)) : exp(y) / (1 + exp(y));
}

static double softplus_of(double y)
{
    return fmax(y, 0) + log1p(exp(-fabs(y)));
}

/* Returns y times a factor that vanishes faster than y grows at -Inf. */
static double vanishing(double y, double factor)
{
    return factor == 0 ? copysign(0, y) : y * factor;
}

static double clamped(double y, double least, double most)
{
    if (isnan(y))
        return y;
    return fmin(fmax(y, least), most);
}

double harness_post_value(const tconv_post_op *post, double y, double first, double second)
{
    const double a = post->alpha, b = post->beta;
    if (isnan(y))
        return y;
    switch (post->kind) {
    case TCONV_POST_ADD_CHANNEL: return y + first;
    case TCONV_POST_MUL_CHANNEL: return y * first;
    case TCONV_POST_ADD_TENSOR: return y + a * first;
    case TCONV_POST_LINEAR: return fma(a, y, b);
    case TCONV_POST_CLAMP: return clamped(y, a, b);
    case TCONV_POST_LEAKY_RELU: return y > 0 ? y : a == 0 ? 0 : a * y;
    case TCONV_POST_SIGMOID: return sigmoid_of(y);
    case TCONV_POST_TANH: return tanh(y);
    case TCONV_POST_SILU: return vanishing(y, sigmoid_of(y));
    case TCONV_POST_GELU: return vanishing(y, (double)erfcl(-(long double)y * sqrtl(0.5L)) / 2);
    case TCONV_POST_GELU_TANH: {
        const double pi = 3.14159265358979323846;
        return vanishing(y, sigmoid_of(2 * sqrt(2 / pi) * (y + 0.044715 * y * y * y)));
    }
    case TCONV_POST_MISH: return vanishing(y, tanh(softplus_of(y)));
    case TCONV_POST_ELU: return y > 0 ? y : a * expm1(y);
    case TCONV_POST_SOFTPLUS: return softplus_of(y);
    case TCONV_POST_HARDSWISH: return vanishing(y, clamped(y + 3, 0, 6) / 6);
    case TCONV_POST_SNAKE: return isinf(y) ? y : y + second * sin(first * y) * sin(first * y);
    }
    return y;
}

/* ------------------------------------------------------------------------------------------------------ exact integers */

/* Returns how many binary digits after the point a number has, MOST_FRACTION + 1 for more than that many. */
static int fraction_digits(double number)
{
    int digits = 0;
    while (digits <= MOST_FRACTION && ldexp(number, digits) != floor(ldexp(number, digits)))
        ++digits;
    return digits;
}

/* What a list has made of a sum s so far: |y| <= scale * s + offset, y a multiple of 2^-digits. */
struct reach {
    double scale, offset;
    int digits;
};

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Returns what one more step makes of it; digits above MOST_FRACTION where nothing is exact. */
static struct reach extended(struct reach reach, const tconv_post_op *post, double added)
{
    const double a = post->alpha, b = post->beta;
    const int digits_a = isinf(a) ? 0 : fraction_digits(a), digits_b = isinf(b) ? 0 : fraction_digits(b);
    double factor = 1, offset = 0;
    switch (post->kind) {
    case TCONV_POST_ADD_CHANNEL: offset = added; break;
    case TCONV_POST_MUL_CHANNEL: factor = HARNESS_LARGEST_FACTOR; break;
    case TCONV_POST_ADD_TENSOR:
        offset = fabs(a) * added;
        reach.digits = larger(reach.digits, digits_a);
        break;
    case TCONV_POST_LINEAR:
        factor = fabs(a), offset = fabs(b);
        reach.digits = larger(reach.digits + digits_a, digits_b);
        break;
    case TCONV_POST_CLAMP: /* a bound beyond 0 is reached from any value */
        offset = fmax(fmax(a, -b), 0);
        reach.digits = larger(reach.digits, larger(digits_a, digits_b));
        break;
    case TCONV_POST_LEAKY_RELU:
        factor = fmax(1, fabs(a));
        reach.digits += digits_a;
        break;
    case TCONV_POST_SIGMOID:
    case TCONV_POST_TANH:
    case TCONV_POST_SILU:
    case TCONV_POST_GELU:
    case TCONV_POST_GELU_TANH:
    case TCONV_POST_MISH:
    case TCONV_POST_ELU:
    case TCONV_POST_SOFTPLUS:
    case TCONV_POST_HARDSWISH:
    case TCONV_POST_SNAKE: reach.digits = MOST_FRACTION + 1; break;
    }
    reach.scale *= factor;
    reach.offset = reach.offset * factor + offset;
    return reach;
}

/* Returns the largest sum that stays at most `most`. */
static double largest_below(const struct reach *reach, double most)
{
    const double room = most - reach->offset;
    if (room < 0)
        return 0;
    return reach->scale > 0 ? room / reach->scale : INFINITY;
}

double harness_posts_largest_sum(const tconv_desc *desc, double added, double limit, double most)
{
    struct reach reach = {1, 0, 0};
    for (int i = 0; i < desc->post_count; ++i) {
        reach = extended(reach, &desc->post[i], added);
        if (reach.digits > MOST_FRACTION)
            return 0;
        limit = fmin(limit, largest_below(&reach, ldexp(LARGEST_EXACT, -reach.digits)));
    }
    return fmin(limit, largest_below(&reach, most));
}

/* --------------------------------------------------------------------------------------------------------------- errors */

/* One step on the way of an output. */
struct step {
    const tconv_post_op *post;
    double first, second; /* of the operand */
    double y, error;      /* the value before it, and its error */
    double value;         /* the value after it */
    double unit;          /* relative error of one rounding */
    double least;         /* absolute error of a function near 0 */
    bool rounds_numbers;  /* whether alpha and beta are rounded, to f32 */
    bool is_coarse;       /* whether the layer's products are of TF32, or its elements of 16 bits */
    bool is_fused;        /* whether the result is not rounded: an ADD_CHANNEL follows MUL_CHANNEL */
};

/* Returns the error of a number in the type of sums. */
static double number_error(const struct step *step, double number)
{
    return step->rounds_numbers && isfinite(number) ? fabs(number - (double)(float)number) : 0;
}

/* Returns the error after a step that multiplies the error before by at most `slope` and then makes this many roundings
 * of its result. */
static double carried(const struct step *step, double slope, double roundings)
{
    const double error = slope * step->error;
    return error + roundings * step->unit * (fabs(step->value) + error) + (roundings > 0 ? step->least : 0);
}

/* Returns the error after SIGMOID, TANH, SILU, GELU, MISH or SOFTPLUS. */
static double function_error(const struct step *step, double slope)
{
    return step->is_coarse ? carried(step, slope, COARSE_ROUNDINGS) + COARSE_LEAST
                           : carried(step, slope, FUNCTION_ROUNDINGS);
}

/* A bound of CLAMP may be rounded; that counts where the value may reach it. */
static double clamp_error(const struct step *step)
{
    const double a = step->post->alpha, b = step->post->beta;
    double error = step->error;
    if (step->y - step->error <= a)
        error += number_error(step, a);
    if (step->y + step->error >= b)
        error += number_error(step, b);
    return error;
}

static double leaky_relu_error(const struct step *step)
{
    const double a = step->post->alpha, largest = fabs(step->y) + step->error;
    if (step->y > step->error)
        return step->error;
    return fmax(1, fabs(a)) * step->error + (fabs(a) * step->unit + number_error(step, a)) * largest + step->least;
}

/* The sum y + 3 is rounded as well, to at most 3 units of rounding around 6. */
static double hardswish_error(const struct step *step)
{
    const bool in_range = fabs(step->y) <= 3 + step->error;
    return carried(step, 1.5, 3) + (in_range ? step->unit * (fabs(step->y) + step->error) : 0);
}

/* Returns the error after the step. The slopes are the largest |f'|, rounded up. */
static double error_after(const struct step *step)
{
    const double a = step->post->alpha, b = step->post->beta, largest = fabs(step->y) + step->error;
    const double number = number_error(step, a), addend = fabs(a * step->first);
    switch (step->post->kind) {
    case TCONV_POST_ADD_CHANNEL: return carried(step, 1, 1);
    case TCONV_POST_MUL_CHANNEL: return carried(step, fabs(step->first), step->is_fused ? 0 : 1);
    case TCONV_POST_ADD_TENSOR:
        return carried(step, 1, 1) + (1 + step->unit) * (step->unit * addend + number * fabs(step->first));
    case TCONV_POST_LINEAR:
        return carried(step, fabs(a), 1) + (1 + step->unit) * (number * largest + number_error(step, b));
    case TCONV_POST_CLAMP: return clamp_error(step);
    case TCONV_POST_LEAKY_RELU: return leaky_relu_error(step);
    case TCONV_POST_SIGMOID: return function_error(step, 0.25);
    case TCONV_POST_TANH:
    case TCONV_POST_SOFTPLUS: return function_error(step, 1);
    case TCONV_POST_SILU: return function_error(step, 1.09984);
    case TCONV_POST_GELU: return function_error(step, 1.129);
    case TCONV_POST_GELU_TANH: return carried(step, 1.129, FUNCTION_ROUNDINGS);
    case TCONV_POST_MISH: return function_error(step, 1.08850);
    case TCONV_POST_ELU: return carried(step, fmax(1, fabs(a)), FUNCTION_ROUNDINGS) + number;
    case TCONV_POST_HARDSWISH: return hardswish_error(step);
    case TCONV_POST_SNAKE: /* the derivative of b sin(a y)^2 is a b sin(2 a y) */
        return (1 + fabs(step->first * step->second)) * step->error +
               FUNCTION_ROUNDINGS * step->unit * (largest + fabs(step->second)) + step->least;
    }
    return step->error;
}

/* Reads what the index-th post-op takes of its operand for an output. */
static void take_operand(const harness_case *test, int index, const int64_t at[4], struct step *step)
{
    const tconv_desc *desc = &test->layer.desc;
    const harness_role role = (harness_role)(HARNESS_POST + index);
    const tconv_dtype dtype = harness_role_dtype(desc, role);
    const void *data = test->tensors[role].data;
    const int vectors = harness_post_vectors(step->post->kind);
    step->first = step->second = 0;
    if (step->post->kind == TCONV_POST_ADD_TENSOR)
        step->first =
            harness_element_get(dtype, data, harness_view_index(&test->views[role], at[0], at[1], at[2], at[3]));
    if (vectors > 0)
        step->first = harness_element_get(dtype, data, at[1]);
    if (vectors > 1)
        step->second = harness_element_get(dtype, data, desc->out_channels + at[1]);
}

void harness_apply_posts(const harness_case *test, const int64_t at[4], double *value, double *error)
{
    const tconv_desc *desc = &test->layer.desc;
    const bool is_f64 = desc->dtype == TCONV_F64;
    struct step step = {.value = *value,
                        .error = error != NULL ? *error : 0,
                        .unit = is_f64 ? 2 * 0x1p-53 : 0x1p-24,
                        .least = is_f64 ? 0x1p-1022 : 0x1p-126,
                        .rounds_numbers = !is_f64,
                        .is_coarse = desc->dtype == TCONV_F16 || desc->dtype == TCONV_BF16 ||
                                     (desc->dtype == TCONV_F32 && desc->math == TCONV_MATH_TF32)};
    for (int i = 0; i < desc->post_count; ++i) {
        step.post = &desc->post[i];
        step.is_fused = i + 1 < desc->post_count && desc->post[i + 1].kind == TCONV_POST_ADD_CHANNEL;
        take_operand(test, i, at, &step);
        step.y = step.value;
        step.value = harness_post_value(step.post, step.y, step.first, step.second);
        step.error = error_after(&step);
    }
    *value = step.value;
    if (error != NULL)
        *error = step.error;
}
