/* src/cuda/numeric/activations.cuh and fast_activations.cuh, measured against the C library's double. */
#include "../../src/core/post_exact.h"
#include "../../src/cuda/numeric/activations.cuh"
#include "../../src/cuda/numeric/fast_activations.cuh"
#include "check.h"
#include "families.h"

namespace tconv::check
{

namespace
{

constexpr int THREADS = 256;      /* of a block */
constexpr uint32_t STRIDE = 1021; /* from one word of a float to the next that is checked; a prime */
constexpr float ELU_ALPHA = 1.25f;

/* What a function is given: its argument, and SNAKE's numbers or ELU's. */
struct arguments {
    float y, first, second;
};

#define PIECE(kind_name, call)                                                                                         \
    struct kind_name##_piece {                                                                                         \
        static __device__ float of(arguments given)                                                                    \
        {                                                                                                              \
            return call;                                                                                               \
        }                                                                                                              \
    };
PIECE(sigmoid, post_sigmoid(given.y))
PIECE(tanh, post_tanh(given.y))
PIECE(silu, post_silu(given.y))
PIECE(gelu, post_gelu(given.y))
PIECE(gelu_tanh, post_gelu_tanh(given.y))
PIECE(mish, post_mish(given.y))
PIECE(elu, post_elu(given.y, ELU_ALPHA))
PIECE(softplus, post_softplus(given.y))
PIECE(hardswish, post_hardswish(given.y))
PIECE(snake, post_snake(given.y, given.first, given.second))
PIECE(fast_sigmoid, tconv::fast_sigmoid(given.y))
PIECE(fast_tanh, tconv::fast_tanh(given.y))
PIECE(fast_silu, tconv::fast_silu(given.y))
PIECE(fast_gelu, tconv::fast_gelu(given.y))
PIECE(fast_mish, tconv::fast_mish(given.y))
PIECE(fast_softplus, tconv::fast_softplus(given.y))

template <class Piece> __global__ void __launch_bounds__(THREADS) apply(const arguments *from, float *to, int count)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i < count)
        to[i] = Piece::of(from[i]);
}

/* All floats by a stride, and what is no number; of SNAKE's those of whose products the header says something. */
std::vector<arguments> arguments_of(tconv_post_kind kind)
{
    std::vector<arguments> made;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += STRIDE) {
        const float y = float_of((uint32_t)bits), size = std::ldexp(1 + random_real() / 2, random_integer(-8, 8));
        const float first = std::ldexp(1 + random_real() / 2, random_integer(-16, 16));
        if (kind != TCONV_POST_SNAKE)
            made.push_back({y, 0, 0});
        else if (std::isnan(y) || std::fabs((double)first * y) <= 1e5)
            made.push_back({y, first, std::fabs(y) > 1e-30f && std::fabs(y) < 1e30f ? size * y : size});
    }
    for (float y : {0.0f, -0.0f, (float)INFINITY, (float)-INFINITY, (float)NAN})
        if (kind != TCONV_POST_SNAKE || !std::isinf(y))
            made.push_back({y, 0.5f, 2});
    return made;
}

/* Fails where a result is further from the exact one than tconv.h promises, or a zero has another sign. */
void judge(tconv_post_kind kind, bool fast, const arguments &given, float got)
{
    const tconv_post_op post = {kind, 0, kind == TCONV_POST_ELU ? ELU_ALPHA : 0, 0};
    const double exact = tconv_post_in_double(&post, given.y, {given.first, given.second});
    const double error = std::fabs(got - exact);
    const double size =
        kind == TCONV_POST_SNAKE ? std::fabs((double)given.y) + std::fabs((double)given.second) : std::fabs(exact);
    int exponent;
    std::frexp(std::fmax(size, 0x1p-126), &exponent);
    const double unit = std::ldexp(1, exponent - 24);
    const bool is_near = got == (float)exact || error <= std::fmax((fast ? 16 : 4) * unit, fast ? 0x1p-118 : 0x1p-126);
    const bool is_same_zero = exact != 0 || std::signbit(got) == std::signbit(exact);
    if (std::isnan(exact) ? !std::isnan(got) : !is_near || !is_same_zero)
        fail("of %.9g (%.9g, %.9g) it is %.9g, not %.9g: off by %.3g units in the last place", given.y, given.first,
             given.second, got, exact, error / unit);
}

template <class Piece, tconv_post_kind kind, bool fast = false> void check_activation()
{
    const std::vector<arguments> given = arguments_of(kind);
    const int count = (int)given.size();
    begin_case("%d arguments", count);
    const device_buffer from = input("arguments", given), to = output("results", given.size() * sizeof(float));
    apply<Piece><<<(count + THREADS - 1) / THREADS, THREADS>>>(from.as<arguments>(), to.as<float>(), count);
    finish_kernels();
    const std::vector<float> got = contents<float>(to);
    for (size_t i = 0; i < given.size(); i++)
        judge(kind, fast, given[i], got[i]);
}

const entry entries[] = {
    {"cuda/numeric/post_sigmoid", check_activation<sigmoid_piece, TCONV_POST_SIGMOID>, nullptr, false},
    {"cuda/numeric/post_tanh", check_activation<tanh_piece, TCONV_POST_TANH>, nullptr, false},
    {"cuda/numeric/post_silu", check_activation<silu_piece, TCONV_POST_SILU>, nullptr, false},
    {"cuda/numeric/post_gelu", check_activation<gelu_piece, TCONV_POST_GELU>, nullptr, false},
    {"cuda/numeric/post_gelu_tanh", check_activation<gelu_tanh_piece, TCONV_POST_GELU_TANH>, nullptr, false},
    {"cuda/numeric/post_mish", check_activation<mish_piece, TCONV_POST_MISH>, nullptr, false},
    {"cuda/numeric/post_elu", check_activation<elu_piece, TCONV_POST_ELU>, nullptr, false},
    {"cuda/numeric/post_softplus", check_activation<softplus_piece, TCONV_POST_SOFTPLUS>, nullptr, false},
    {"cuda/numeric/post_hardswish", check_activation<hardswish_piece, TCONV_POST_HARDSWISH>, nullptr, false},
    {"cuda/numeric/post_snake", check_activation<snake_piece, TCONV_POST_SNAKE>, nullptr, false},
    {"cuda/numeric/fast_sigmoid", check_activation<fast_sigmoid_piece, TCONV_POST_SIGMOID, true>, nullptr, false},
    {"cuda/numeric/fast_tanh", check_activation<fast_tanh_piece, TCONV_POST_TANH, true>, nullptr, false},
    {"cuda/numeric/fast_silu", check_activation<fast_silu_piece, TCONV_POST_SILU, true>, nullptr, false},
    {"cuda/numeric/fast_gelu", check_activation<fast_gelu_piece, TCONV_POST_GELU, true>, nullptr, false},
    {"cuda/numeric/fast_mish", check_activation<fast_mish_piece, TCONV_POST_MISH, true>, nullptr, false},
    {"cuda/numeric/fast_softplus", check_activation<fast_softplus_piece, TCONV_POST_SOFTPLUS, true>, nullptr, false},
};

} // namespace

void check_activations()
{
    check_entries(entries);
}

} // namespace tconv::check
