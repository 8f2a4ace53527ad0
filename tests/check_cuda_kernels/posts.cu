/* src/cuda/epilogue/posts.cuh: each kind of post-op on numbers of all sizes and on what is no number, against the formulas
 * in double (core/post_exact.c), as exact as tconv.h promises; and lists of steps one after another. */
#include "../../src/core/post_exact.h"
#include "../../src/cuda/epilogue/posts.cuh"
#include "check.h"
#include "families.h"

namespace tconv::check
{

namespace
{

constexpr int THREADS = 256; /* of a block */
constexpr int COUNT = 4;     /* values of a thread */
constexpr int SHIFT = 10;    /* every 1024th number, each with lower bits of its own */
constexpr int NUMBERS = 1 << (32 - SHIFT);
constexpr float FIRST = 2.5f, SECOND = 0.7f, ELEMENT = -1.3f; /* of channels, and of the addend */

__global__ void __launch_bounds__(THREADS)
    run_on_numbers(const __grid_constant__ post_steps steps, const element_vector<float, COUNT> *from,
                   element_vector<float, COUNT> *to, int count)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= count)
        return;
    float values[COUNT];
    element_vector<float, COUNT> all = from[i];
#pragma unroll
    for (int e = 0; e < COUNT; e++)
        values[e] = all.at[e];
    const auto numbers_of = [](float number) {
        element_vector<float, COUNT> vector;
#pragma unroll
        for (int e = 0; e < COUNT; e++)
            vector.at[e] = number;
        return vector;
    };
    run_posts(
        steps, values, [&](const void *array) { return numbers_of(*static_cast<const float *>(array)); },
        [&]() { return numbers_of(ELEMENT); });
#pragma unroll
    for (int e = 0; e < COUNT; e++)
        all.at[e] = values[e];
    to[i] = all;
}

std::vector<float> numbers_of_all_sizes()
{
    std::vector<float> numbers(NUMBERS);
    for (uint32_t i = 0; i < NUMBERS; i++)
        numbers[i] = float_of(i << SHIFT | (i % 8 == 0 ? 0 : random_bits() >> (32 - SHIFT)));
    return numbers;
}

post_step step_of(int kind, float alpha, float beta, const device_buffer &channels)
{
    post_step step = {};
    step.kind = kind;
    step.alpha.f32 = alpha;
    step.beta.f32 = beta;
    step.first = channels.as<float>();
    step.second = channels.as<float>() + 1;
    return step;
}

std::vector<float> run(const post_steps &steps, const std::vector<float> &numbers)
{
    const int count = (int)numbers.size() / COUNT;
    const device_buffer from = input("numbers", numbers), to = output("results", numbers.size() * sizeof(float));
    run_on_numbers<<<(count + THREADS - 1) / THREADS, THREADS>>>(steps, from.as<element_vector<float, COUNT>>(),
                                                                 to.as<element_vector<float, COUNT>>(), count);
    finish_kernels();
    return contents<float>(to);
}

/* A unit in the last place of a float of that size. */
double unit_of(double value)
{
    const int exponent = value == 0 ? -126 : std::ilogb(value);
    return std::ldexp(1, (exponent > -126 ? exponent : -126) - 23);
}

/* What tconv.h allows: half a unit for an operation that is rounded; HARDSWISH and ADD_TENSOR have two; then 4 units. */
double bound_of(int kind, double y, double wanted)
{
    if (kind <= TCONV_POST_LEAKY_RELU && kind != TCONV_POST_ADD_TENSOR)
        return 0.50001 * unit_of(wanted);
    if (kind == TCONV_POST_ADD_TENSOR)
        return 0.50001 * (unit_of(wanted) + unit_of(1.5 * ELEMENT));
    if (kind == TCONV_POST_SNAKE)
        return 4 * unit_of(std::fabs(y) + SECOND);
    return 4 * unit_of(wanted) + std::ldexp(1, -126);
}

/* Fails where the result is not within its bound of what is wanted. */
void judge(int kind, float y, double wanted, float got)
{
    const double infinite = 3.4028235677973366e38; /* what is no smaller is rounded to infinity */
    if (kind == TCONV_POST_SNAKE && !(std::fabs((double)FIRST * y) <= 1e5))
        return;
    const bool right = std::isnan(wanted)              ? std::isnan(got)
                       : std::fabs(wanted) >= infinite ? std::isinf(got) && (got > 0) == (wanted > 0)
                                                       : std::fabs(got - wanted) <= bound_of(kind, y, wanted);
    const bool is_limit = std::isinf(y) && wanted == 0;
    if (!right || (is_limit && std::signbit(got) != std::signbit(wanted)))
        fail("kind %d of %.9g (%#x) is %.9g, not %.17g", kind, (double)y, bits_of(y), (double)got, wanted);
}

template <int kind> void check_kind()
{
    const float alpha = kind == TCONV_POST_CLAMP ? -1.0f : 1.5f, beta = kind == TCONV_POST_CLAMP ? 2.0f : 0.3f;
    const tconv_post_op post = {(tconv_post_kind)kind, 0, (double)alpha, (double)beta};
    const tconv_post_values values = {kind == TCONV_POST_ADD_TENSOR ? (double)ELEMENT : (double)FIRST, (double)SECOND};
    const std::vector<float> numbers = numbers_of_all_sizes();
    begin_case("%d numbers", NUMBERS);
    const device_buffer channels = input("channels", std::vector<float>{FIRST, SECOND});
    post_steps steps = {};
    steps.count = 1;
    steps.of[0] = step_of(kind, alpha, beta, channels);
    const std::vector<float> got = run(steps, numbers);
    for (size_t i = 0; i < numbers.size(); i++)
        judge(kind, numbers[i],
              kind == POST_MUL_ADD_CHANNEL ? std::fma((double)numbers[i], (double)FIRST, (double)SECOND)
                                           : tconv_post_in_double(&post, (double)numbers[i], values),
              got[i]);
}

/* A slope of 0 gives 0 for -Inf, and keeps NaN. */
void check_relu()
{
    const std::vector<float> numbers = {-INFINITY, INFINITY, NAN, -2, 3, 0, -0.0f, 1e-40f};
    begin_case("slope 0");
    const device_buffer channels = input("channels", std::vector<float>{FIRST, SECOND});
    post_steps steps = {};
    steps.count = 1;
    steps.of[0] = step_of(TCONV_POST_LEAKY_RELU, 0, 0, channels);
    const std::vector<float> got = run(steps, numbers);
    for (size_t i = 0; i < numbers.size(); i++)
        if (std::isnan(numbers[i]) ? !std::isnan(got[i]) : got[i] != (numbers[i] > 0 ? numbers[i] : 0))
            fail("%g gives %g", (double)numbers[i], (double)got[i]);
}

/* Each step is rounded: a product and the sum of another step are not joined. */
void check_list()
{
    const std::vector<float> numbers = numbers_of_all_sizes();
    begin_case("three steps");
    const device_buffer channels = input("channels", std::vector<float>{FIRST, SECOND});
    post_steps steps = {};
    steps.count = 3;
    steps.of[0] = step_of(TCONV_POST_MUL_CHANNEL, 0, 0, channels);
    steps.of[1] = step_of(TCONV_POST_CLAMP, -100, 100, channels);
    steps.of[2] = step_of(TCONV_POST_LINEAR, 1, -0.7f, channels);
    const std::vector<float> got = run(steps, numbers);
    for (size_t i = 0; i < numbers.size(); i++) {
        volatile float product = numbers[i] * FIRST;
        const float within = product < -100 ? -100 : product > 100 ? 100 : product;
        const float wanted = within - 0.7f;
        if (std::isnan(wanted) ? !std::isnan(got[i]) : got[i] != wanted)
            fail("%.9g gives %.9g, not %.9g", (double)numbers[i], (double)got[i], (double)wanted);
    }
}

template <int kind> void bench_kind()
{
    const std::vector<float> numbers = numbers_of_all_sizes();
    begin_case("rate");
    const device_buffer channels = input("channels", std::vector<float>{FIRST, SECOND});
    const device_buffer from = input("numbers", numbers), to = output("results", numbers.size() * sizeof(float));
    post_steps steps = {};
    steps.count = 1;
    steps.of[0] = step_of(kind, 1.5f, 1.75f, channels);
    rate(
        "4 values a thread",
        [&]() {
            run_on_numbers<<<NUMBERS / COUNT / THREADS, THREADS>>>(
                steps, from.as<element_vector<float, COUNT>>(), to.as<element_vector<float, COUNT>>(), NUMBERS / COUNT);
        },
        2.0 * NUMBERS * sizeof(float), "B", l2_rate());
}

#define KIND(name, kind)                                                                                               \
    {                                                                                                                  \
        "cuda/epilogue/post " name, check_kind<kind>, bench_kind<kind>, false                                          \
    }

const entry entries[] = {
    KIND("mul_add_channel", POST_MUL_ADD_CHANNEL),
    KIND("add_channel", TCONV_POST_ADD_CHANNEL),
    KIND("mul_channel", TCONV_POST_MUL_CHANNEL),
    KIND("add_tensor", TCONV_POST_ADD_TENSOR),
    KIND("linear", TCONV_POST_LINEAR),
    KIND("clamp", TCONV_POST_CLAMP),
    KIND("leaky_relu", TCONV_POST_LEAKY_RELU),
    KIND("sigmoid", TCONV_POST_SIGMOID),
    KIND("tanh", TCONV_POST_TANH),
    KIND("silu", TCONV_POST_SILU),
    KIND("gelu", TCONV_POST_GELU),
    KIND("gelu_tanh", TCONV_POST_GELU_TANH),
    KIND("mish", TCONV_POST_MISH),
    KIND("elu", TCONV_POST_ELU),
    KIND("softplus", TCONV_POST_SOFTPLUS),
    KIND("hardswish", TCONV_POST_HARDSWISH),
    KIND("snake", TCONV_POST_SNAKE),
    {"cuda/epilogue/post relu", check_relu, nullptr, false},
    {"cuda/epilogue/post list", check_list, nullptr, false},
};

} // namespace

void check_posts()
{
    check_entries(entries);
}

} // namespace tconv::check
