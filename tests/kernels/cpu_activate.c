/* The activation functions of each level, measured against the C library's double. */
#include <math.h>
#include <string.h>

#include "../../src/core/post_exact.h"
#include "cpu.h"
#include "families.h"

/* Arguments that are judged at once. */
enum { BLOCK = 1024 };

/* The longest rows by elements are of so many vectors of at most so many lanes. */
enum { MOST_VECTORS = 3, MOST_LANES = 16 };

#define ELU_ALPHA 1.25

/* One level's function. */
typedef struct activation_kernel {
    tconv_cpu_activate_function *activate;
    tconv_post_op post;
    int lanes;
} activation_kernel;

typedef struct bench_case {
    const activation_kernel *activation;
    const float *src;
    float *row;
} bench_case;

/* Where functions bend, end or leave the numbers, and where parts of an implementation may meet. */
static const float thresholds[] = {
    0,       0x1p-149f, 0x1p-126f, 0x1p-64f, 0x1p-24f, 0x1p-12f, 0.125f, 0.25f,   0.5f,  0.625f, 0.6931f, 1,
    1.5f,    2,         3,         5,        5.5f,     6,        8,      9.01f,   10,    10.24f, 10.5f,   12,
    13.265f, 13.3f,     14.5f,     16,       16.6f,    17.33f,   20,     30,      44,    64,     87.337f, 88,
    88.73f,  92.5f,     93,        100,      104,      110,      1e5f,   0x1p24f, 1e30f, 3e38f};

/* A function and a block of its arguments; the greatest error so far, in units in the last place. */
struct sweep {
    tconv_cpu_activate_function *activate;
    tconv_post_op post;
    int64_t count;
    float y[BLOCK], first[BLOCK], second[BLOCK];
    float got[BLOCK]; /* of the last block that was judged */
    double worst;
    float worst_at;
};

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns the unit in the last place of a number, of the smallest normal one for those that are smaller. */
static double last_place(double value)
{
    int exponent;
    frexp(fmax(fabs(value), 0x1p-126), &exponent);
    return ldexp(1, exponent - 24);
}

/* Fails where a result is further from the exact one than the header promises. */
static void judge(struct sweep *sweep, int64_t i)
{
    const double y = sweep->y[i], a = sweep->first[i], b = sweep->second[i], got = sweep->got[i];
    const bool is_snake = sweep->post.kind == TCONV_POST_SNAKE;
    const double exact = tconv_post_in_double(&sweep->post, y, (tconv_post_values){a, b});
    const double error = fabs(got - exact), unit = last_place(is_snake ? fabs(y) + fabs(b) : exact);
    if (isnan(exact) ? isnan(got) : got == (double)(float)exact || error <= 0x1p-126)
        return;
    if (error / unit > sweep->worst) {
        sweep->worst = error / unit;
        sweep->worst_at = sweep->y[i];
    }
    if (!(error <= 4 * unit))
        check_fail("of %.9g (%.9g, %.9g) it is %.9g, not %.9g: off by %.3g units in the last place", y, a, b, got,
                   exact, error / unit);
}

static void judge_block(struct sweep *sweep)
{
    memcpy(sweep->got, sweep->y, sizeof sweep->got);
    sweep->activate(sweep->got, sweep->count, &sweep->post, sweep->first, sweep->second);
    for (int64_t i = 0; i < sweep->count; i++)
        judge(sweep, i);
    sweep->count = 0;
}

/* SNAKE's numbers are drawn from the argument's bits: a from 2^-16 to 2^16, b as large as y within 2^-8 to 2^8, where
 * that is a number. */
static void add(struct sweep *sweep, float y)
{
    uint32_t mixed = bits_of(y) * 2654435761u;
    mixed ^= mixed >> 15;
    mixed *= 2246822519u;
    const float a = ldexpf(1 + (float)(mixed & 0xffff) * 0x1p-16f, (int)(mixed >> 16) % 32 - 16);
    const float b = ldexpf(1 + (float)(mixed >> 8 & 0xffff) * 0x1p-16f, (int)(mixed >> 24) % 16 - 8);
    if (sweep->post.kind == TCONV_POST_SNAKE && fabs((double)a * (double)y) > 1e5)
        return;
    const bool is_middling = fabsf(y) > 1e-30f && fabsf(y) < 1e30f;
    sweep->y[sweep->count] = y;
    sweep->first[sweep->count] = a;
    sweep->second[sweep->count++] = is_middling ? b * y : b;
    if (sweep->count == BLOCK)
        judge_block(sweep);
}

/* Goes through all floats by a prime stride, and through the neighbours of each threshold. */
static void sweep_floats(struct sweep *sweep)
{
    const uint32_t stride = 4099, neighbours = 200;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += stride)
        add(sweep, float_of((uint32_t)bits));
    for (size_t t = 0; t < sizeof thresholds / sizeof thresholds[0]; t++)
        for (uint32_t i = 0; i < 2 * neighbours; i++) {
            const uint32_t middle = bits_of(thresholds[t]),
                           bits = middle + i < neighbours ? i : middle + i - neighbours;
            add(sweep, float_of(bits));
            add(sweep, float_of(bits | 0x80000000u));
        }
    judge_block(sweep);
}

static void check_accuracy(const activation_kernel *activation)
{
    static struct sweep sweep;
    sweep = (struct sweep){.activate = activation->activate, .post = activation->post};
    check_case("all floats by a stride");
    sweep_floats(&sweep);
    check_remark("off by %.2f units in the last place at %.9g", sweep.worst, (double)sweep.worst_at);
}

static float activate_one(const activation_kernel *activation, float y, float first, float second)
{
    activation->activate(&y, 1, &activation->post, &first, &second);
    return y;
}

/* NaN stays, with any of its bits; infinities go to the limit; zeros keep their sign where the function is odd there. */
static void check_specials(const activation_kernel *activation)
{
    static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu};
    static const float arguments[] = {INFINITY, -INFINITY, 0, -0.0f};
    static const float wanted[][4] = {
        {1, 0, 0.5f, 0.5f},                        /* sigmoid */
        {1, -1, 0, -0.0f},                         /* tanh */
        {INFINITY, -0.0f, 0, -0.0f},               /* silu */
        {INFINITY, -0.0f, 0, -0.0f},               /* gelu */
        {INFINITY, -0.0f, 0, -0.0f},               /* gelu_tanh */
        {INFINITY, -0.0f, 0, -0.0f},               /* mish */
        {INFINITY, (float)-ELU_ALPHA, 0, -0.0f},   /* elu */
        {INFINITY, 0, 0.693147181f, 0.693147181f}, /* softplus */
        {INFINITY, -0.0f, 0, -0.0f},               /* hardswish */
        {INFINITY, -INFINITY, 0, 0},               /* snake */
    };
    const float *want = wanted[activation->post.kind - TCONV_POST_SIGMOID];
    check_case("what is no number, and zeros");
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++)
        if (!isnan(activate_one(activation, float_of(nans[i]), 0.5f, 2)))
            check_fail("of NaN %08x it is a number", (unsigned)nans[i]);
    for (size_t i = 0; i < 4; i++) {
        const float got = activate_one(activation, arguments[i], 0.5f, 2);
        if (bits_of(got) != bits_of(want[i]))
            check_fail("of %g it is %g, not %g", (double)arguments[i], (double)got, (double)want[i]);
    }
}

/* A row's elements are computed alike, wherever they stand, to the last bit; nothing is written beside them. */
static void check_lanes(const activation_kernel *activation)
{
    for (int64_t count = 0; count <= MOST_VECTORS * activation->lanes + 1; count++) {
        float alone[MOST_VECTORS * MOST_LANES + 1];
        const check_fill fill = count % 2 ? CHECK_BITS : CHECK_REALS;
        check_case("%d elements", (int)count);
        const check_buffer *first = check_input("first", TCONV_F32, count, GUARD_AFTER, fill);
        const check_buffer *second = check_input("second", TCONV_F32, count, GUARD_AFTER, fill);
        check_buffer *row = check_output("row", TCONV_F32, count, count % 2 ? GUARD_BEFORE : GUARD_AFTER);
        for (int64_t i = 0; i < count; i++) {
            const float y = (float)check_hold(row, i, fill);
            alone[i] = activate_one(activation, y, (float)check_get(first, i), (float)check_get(second, i));
            check_want(row, i, alone[i], 0);
        }
        activation->activate(row->data, count, &activation->post, first->data, second->data);
        check_outputs();
        for (int64_t i = 0; i < count; i++)
            if (!isnan(alone[i]) && memcmp(&alone[i], (const float *)row->data + i, sizeof(float)) != 0)
                check_fail("element %d is of another sign than alone", (int)i);
    }
}

static void check_activate(const void *activation)
{
    check_specials(activation);
    check_lanes(activation);
    check_accuracy(activation);
}

static void call_activate(const void *argument)
{
    const bench_case *bench = argument;
    const activation_kernel *activation = bench->activation;
    memcpy(bench->row, bench->src, BLOCK * sizeof(float));
    activation->activate(bench->row, BLOCK, &activation->post, bench->src, bench->src);
}

/* The rate of a copy stands beside it. */
static void bench_activate(const void *argument)
{
    const check_buffer *src = check_input("src", TCONV_F32, BLOCK, GUARD_AFTER, CHECK_REALS);
    const bench_case bench = {argument, src->data, check_scratch("row", TCONV_F32, BLOCK, GUARD_AFTER)->data};
    const double bytes = 2 * BLOCK * sizeof(float);
    check_rate(call_activate, &bench, bytes, "GB/s", cpu_copy_bytes(bytes));
}

/* Levels that share a table of kernels are one here. */
static void visit(const cpu_kernel *kernel)
{
    static const tconv_cpu_kernels *last;
    static const check_entry entry = {"activate", check_activate, bench_activate};
    static const char *const names[] = {"sigmoid", "tanh", "silu",     "gelu",      "gelu_tanh",
                                        "mish",    "elu",  "softplus", "hardswish", "snake"};
    if (kernel->dtype != TCONV_F32 || kernel->kernels == last)
        return;
    last = kernel->kernels;
    for (int i = 0; i <= TCONV_POST_SNAKE - TCONV_POST_SIGMOID; i++) {
        const tconv_post_kind kind = (tconv_post_kind)(TCONV_POST_SIGMOID + i);
        const activation_kernel activation = {
            last->activate, {.kind = kind, .alpha = kind == TCONV_POST_ELU ? ELU_ALPHA : 0}, kernel->lanes};
        check_kernel(&entry, &activation, "cpu/%s/activate %s", kernel->isa_name, names[i]);
    }
}

void check_cpu_activate(void)
{
    cpu_each_dtype(visit);
}
