/*
 * The formulas of post-ops in double, the library's and the harness's: against numbers of 60 digits (mpmath 1.3), and at
 * NaN, Inf and zero. These are tests of the suite posts.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "../src/core/post_exact.h"
#include "harness.h"
#include "support/desc_numbers.h"

#define FUNCTION_ULPS 4

/* Both formulas, by the name of who has it. */
enum { LIBRARY, HARNESS, FORMULAS };
static const char *const owners[FORMULAS] = {"the library", "the harness"};

static double value_of(int owner, const tconv_post_op *post, double y, double first, double second)
{
    return owner == LIBRARY ? tconv_post_in_double(post, y, (tconv_post_values){first, second})
                            : harness_post_value(post, y, first, second);
}

/* Expects a value with an error of at most this many units in the last place of `scale`. */
static void expect_value(const tconv_post_op *post, double y, double first, double second, double expected, double ulps,
                         double scale)
{
    for (int owner = 0; owner < FORMULAS; owner++) {
        const double got = value_of(owner, post, y, first, second);
        const double allowed = ulps * DBL_EPSILON * fabs(scale);
        cr_assert(fabs(got - expected) <= allowed, "%s: %s of %.17g is %.17g, not %.17g", owners[owner],
                  harness_post_name(post->kind), y, got, expected);
    }
}

Test(posts, arithmetic_by_hand)
{
    static const struct {
        tconv_post_op post;
        double y, operand, expected;
    } rows[] = {
        {{TCONV_POST_ADD_CHANNEL, 0, 0, 0}, 3, -5, -2},
        {{TCONV_POST_MUL_CHANNEL, 0, 0, 0}, 3, -5, -15},
        {{TCONV_POST_ADD_TENSOR, 0, -0.5, 0}, 3, -5, 5.5},
        {{TCONV_POST_LINEAR, 0, 2, -7}, 3, 0, -1},
        {{TCONV_POST_LINEAR, 0, 1 + 0x1p-30, -1}, 1 - 0x1p-30, 0, -0x1p-60}, /* rounded once: not 0 */
        {{TCONV_POST_CLAMP, 0, 0, 6}, 7, 0, 6},
        {{TCONV_POST_CLAMP, 0, 0, 6}, -7, 0, 0},
        {{TCONV_POST_CLAMP, 0, 0, 6}, 5.5, 0, 5.5},
        {{TCONV_POST_CLAMP, 0, -INFINITY, 6}, -7, 0, -7},
        {{TCONV_POST_CLAMP, 0, 0, INFINITY}, 7, 0, 7},
        {{TCONV_POST_LEAKY_RELU, 0, 0.25, 0}, 8, 0, 8},
        {{TCONV_POST_LEAKY_RELU, 0, 0.25, 0}, -8, 0, -2},
        {{TCONV_POST_LEAKY_RELU, 0, -2, 0}, -8, 0, 16},
        {{TCONV_POST_LEAKY_RELU, 0, 0, 0}, -8, 0, 0},
        {{TCONV_POST_HARDSWISH, 0, 0, 0}, -3, 0, 0},
        {{TCONV_POST_HARDSWISH, 0, 0, 0}, -1.5, 0, -0.375},
        {{TCONV_POST_HARDSWISH, 0, 0, 0}, 3, 0, 3},
        {{TCONV_POST_HARDSWISH, 0, 0, 0}, 12, 0, 12},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_value(&rows[i].post, rows[i].y, rows[i].operand, 0, rows[i].expected, 0, 0);
}

/* ELU has alpha 1.5 here, SNAKE the operands 1.5 and 0.75. */
Test(posts, functions_by_60_digits)
{
    static const double arguments[] = {-20, -5, -2.5, -1, -0.25, -0x1p-40, 0x1p-40, 0.5, 1, 3.5, 20};
    static const struct {
        tconv_post_kind kind;
        double values[COUNT(arguments)];
    } rows[] = {
        {TCONV_POST_SIGMOID,
         {2.0611536181902037e-09, 0.0066928509242848554, 0.07585818002124355, 0.2689414213699951, 0.4378234991142019,
          0.4999999999997726, 0.5000000000002274, 0.6224593312018546, 0.7310585786300049, 0.9706877692486436,
          0.9999999979388464}},
        {TCONV_POST_TANH,
         {-1.0, -0.9999092042625951, -0.9866142981514303, -0.7615941559557649, -0.24491866240370913,
          -9.094947017729282e-13, 9.094947017729282e-13, 0.46211715726000974, 0.7615941559557649, 0.9981778976111987,
          1.0}},
        {TCONV_POST_SILU,
         {-4.122307236380407e-08, -0.03346425462142428, -0.18964545005310887, -0.2689414213699951, -0.10945587477855047,
          -4.547473508862573e-13, 4.547473508866709e-13, 0.3112296656009273, 0.7310585786300049, 3.397407192370253,
          19.99999995877693}},
        {TCONV_POST_GELU,
         {-5.507248237212468e-88, -1.4332578593959695e-06, -0.015524163314440337, -0.15865525393145705,
          -0.10032341857926907, -4.5474735088613414e-13, 4.547473508867941e-13, 0.34573123063700656, 0.8413447460685429,
          3.4991857982233756, 20.0}},
        {TCONV_POST_GELU_TANH,
         {-3.3754509563109673e-261, -2.291796196629506e-07, -0.015084266089998582, -0.1588080093917233,
          -0.100324649298315, -4.5474735088613414e-13, 4.547473508867941e-13, 0.34571400982514394, 0.8411919906082767,
          3.499383802344626, 20.0}},
        {TCONV_POST_MISH,
         {-4.122307240628761e-08, -0.033576237730161704, -0.19681620390653334, -0.3034014613741089,
          -0.12992696367914103, -5.456968210634923e-13, 5.456968210640217e-13, 0.37524521130489513, 0.8650983882673103,
          3.493990715117519, 20.0}},
        {TCONV_POST_ELU,
         {-1.4999999969082696, -1.4898930795013718, -1.376872502064152, -0.9481808382428365, -0.3317988253928927,
          -1.364242052658772e-12, 9.094947017729282e-13, 0.5, 1.0, 3.5, 20.0}},
        {TCONV_POST_SOFTPLUS,
         {2.061153620314381e-09, 0.006715348489118068, 0.07888973429254963, 0.3132616875182228, 0.5759394198788436,
          0.6931471805594905, 0.6931471805604, 0.9740769841801067, 1.3132616875182228, 3.5297504182726205,
          20.000000002061153}},
        {TCONV_POST_HARDSWISH,
         {0.0, 0.0, -0.20833333333333334, -0.3333333333333333, -0.11458333333333333, -4.5474735088632624e-13,
          4.547473508866019e-13, 0.2916666666666667, 0.6666666666666666, 3.5, 20.0}},
        {TCONV_POST_SNAKE,
         {-19.267845132344316, -4.340117032677942, -2.2549882441881346, -0.25375281377483294, -0.14938332582768282,
          -9.094947017715324e-13, 9.094947017743241e-13, 0.8484735493746114, 1.746247186225167, 4.053326347998497,
          20.732154867655684}},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t j = 0; j < COUNT(arguments); j++) {
            const bool is_snake = rows[i].kind == TCONV_POST_SNAKE;
            const tconv_post_op post = {rows[i].kind, 0, rows[i].kind == TCONV_POST_ELU ? 1.5 : 0, 0};
            const double y = arguments[j], expected = rows[i].values[j];
            /* The argument of exp in GELU_TANH is rounded, which counts by its cube. */
            const double more = rows[i].kind == TCONV_POST_GELU_TANH ? fabs(y * y * y) : 0;
            expect_value(&post, y, 1.5, 0.75, expected, FUNCTION_ULPS + more, is_snake ? fabs(y) + 0.75 : expected);
        }
}

static tconv_post_op example(int kind)
{
    tconv_post_op post = {(tconv_post_kind)kind, 0, 0, 0};
    if (harness_post_numbers(post.kind) > 0)
        post.alpha = 0.5;
    if (harness_post_numbers(post.kind) > 1)
        post.beta = 6;
    return post;
}

Test(posts, nan_stays_nan)
{
    for (int kind = 1; kind <= TCONV_POST_SNAKE; kind++)
        for (int owner = 0; owner < FORMULAS; owner++) {
            const tconv_post_op post = example(kind);
            cr_assert(isnan(value_of(owner, &post, NAN, 0.5, 0.5)), "%s: %s", owners[owner],
                      harness_post_name(post.kind));
        }
}

/* The limits at -Inf and Inf; a zero has the sign of its limit. */
Test(posts, inf_goes_to_the_limit)
{
    static const struct {
        tconv_post_kind kind;
        double below, above;
    } rows[] = {
        {TCONV_POST_ADD_CHANNEL, -INFINITY, INFINITY},
        {TCONV_POST_MUL_CHANNEL, -INFINITY, INFINITY},
        {TCONV_POST_ADD_TENSOR, -INFINITY, INFINITY},
        {TCONV_POST_LINEAR, -INFINITY, INFINITY},
        {TCONV_POST_CLAMP, 0.5, 6},
        {TCONV_POST_LEAKY_RELU, -INFINITY, INFINITY},
        {TCONV_POST_SIGMOID, 0, 1},
        {TCONV_POST_TANH, -1, 1},
        {TCONV_POST_SILU, -0.0, INFINITY},
        {TCONV_POST_GELU, -0.0, INFINITY},
        {TCONV_POST_GELU_TANH, -0.0, INFINITY},
        {TCONV_POST_MISH, -0.0, INFINITY},
        {TCONV_POST_ELU, -0.5, INFINITY},
        {TCONV_POST_SOFTPLUS, 0, INFINITY},
        {TCONV_POST_HARDSWISH, -0.0, INFINITY},
        {TCONV_POST_SNAKE, -INFINITY, INFINITY},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int owner = 0; owner < FORMULAS; owner++) {
            const tconv_post_op post = example((int)rows[i].kind);
            const double below = value_of(owner, &post, -INFINITY, 0.5, 0.5);
            const double above = value_of(owner, &post, INFINITY, 0.5, 0.5);
            cr_assert(below == rows[i].below && signbit(below) == signbit(rows[i].below), "%s: %s of -Inf is %g",
                      owners[owner], harness_post_name(post.kind), below);
            cr_assert_eq(above, rows[i].above, "%s: %s of Inf is %g", owners[owner], harness_post_name(post.kind),
                         above);
        }
    const tconv_post_op relu = {TCONV_POST_LEAKY_RELU, 0, 0, 0};
    for (int owner = 0; owner < FORMULAS; owner++)
        cr_assert_eq(value_of(owner, &relu, -INFINITY, 0, 0), 0, "%s: ReLU of -Inf", owners[owner]);
}

/* Functions through the origin keep the sign of a zero. */
Test(posts, zero_keeps_its_sign)
{
    static const tconv_post_kind kinds[] = {TCONV_POST_LEAKY_RELU, TCONV_POST_TANH,     TCONV_POST_SILU,
                                            TCONV_POST_GELU,       TCONV_POST_MISH,     TCONV_POST_GELU_TANH,
                                            TCONV_POST_ELU,        TCONV_POST_HARDSWISH};
    for (size_t i = 0; i < COUNT(kinds); i++)
        for (int owner = 0; owner < FORMULAS; owner++) {
            const tconv_post_op post = example((int)kinds[i]);
            const double below = value_of(owner, &post, -0.0, 0, 0), above = value_of(owner, &post, 0.0, 0, 0);
            cr_assert(below == 0 && signbit(below) && above == 0 && !signbit(above), "%s: %s of -0 is %g, of 0 %g",
                      owners[owner], harness_post_name(post.kind), below, above);
        }
}

/* The two formulas were written apart; they agree everywhere that the harness draws. */
Test(posts, formulas_agree)
{
    harness_random random;
    harness_random_seed(&random, 3);
    for (int i = 0; i < 200000; i++) {
        const int kind = 1 + i % TCONV_POST_SNAKE;
        tconv_post_op post = example(kind);
        const double y = ldexp(harness_random_real(&random), (int)harness_random_integer(&random, -30, 8));
        const double first = harness_random_real(&random), second = harness_random_real(&random);
        const double a = value_of(LIBRARY, &post, y, first, second), b = value_of(HARNESS, &post, y, first, second);
        const double scale = kind == TCONV_POST_SNAKE ? fabs(y) + fabs(second) : fabs(b);
        cr_assert(fabs(a - b) <= 2 * FUNCTION_ULPS * DBL_EPSILON * scale + DBL_MIN, "%s of %.17g: %.17g and %.17g",
                  harness_post_name(post.kind), y, a, b);
    }
}
