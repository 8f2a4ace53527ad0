/*
 * The bound on the error of a sum, at the worst case of each order of summation: one large term and many that are just
 * too small to change it, at the first and last place of a segment and elsewhere; the same with signs that alternate;
 * terms in rising and falling order. docs/precision.md derives for each implementation the bound that it is held to
 * here. Terms that are alike, and random ones, are held to a smaller bound by suite `sums` and by the harness.
 *
 * A pattern gives the terms of one output channel (of the gradients, of one input channel), so that a run tries as many
 * patterns as there are channels.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../cli/harness/element.h"
#include "support/gradients.h"
#include "support/part.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ------------------------------------------------------------------------------------------------------- the bounds */

/* The table of docs/precision.md, in units of 2^-24 of the sum of magnitudes; on CUDA for the tensor cores that lose most. */
static const struct {
    const char *implementation;
    double units;
} proved[] = {
    {"cpu_reference", 1.001},  {"cpu_phases", 64},     {"cpu_pixels", 64},  {"cpu_col2im", 64},
    {"cpu_bf16", 64},          {"cpu_dgrad", 64},      {"cpu_wgrad", 64},   {"cuda_general", 52},
    {"cuda_depthwise", 51},    {"cuda_depthwise", 32}, {"cuda_rows", 66},   {"cuda_cells", 78},
    {"cuda_wgmma", 78},        {"cuda_igemm", 79},     {"cuda_mma", 156},   {"cuda_col2im", 157},
    {"cuda_gemm_col2im", 159}, {"cuda_frames", 66},    {"cuda_dgrad", 156}, {"cuda_wgrad", 112},
    {"cuda_nhwc", 159},        {"cuda_finish", 160},
};

static double units_of(const struct way *way)
{
    for (size_t i = 0; i < COUNT(proved); i++)
        if (strcmp(way->implementation, proved[i].implementation) == 0)
            return proved[i].units;
    cr_assert_fail("%s has no bound in docs/precision.md", way->implementation);
    return 0;
}

/* -------------------------------------------------------------------------------------------------------- the terms */

enum kind {
    LARGE,    /* a term of 1 at some place, all others small */
    SWINGING, /* the same, with small ones whose signs alternate */
    HELD,     /* all terms are small, and the bias or what the output holds is 1 */
    RISING,   /* by size */
    FALLING,
    CANCELLING /* falling, with signs that alternate */
};

/* Places in a sum. */
enum { LAST = -1, MIDDLE = -2 };

struct pattern {
    enum kind kind;
    int64_t place; /* of the large term */
    float small;   /* of those in the same instruction of a tensor core as the first term */
    float later;   /* of those behind */
};

/* Just below half a unit in the last place of 1, and what is so much less for sums of 2, 4, ... of them. */
#define HALF_ULP 0x1.fap-25F
#define FEW      32 /* terms that are `small` */

static const struct pattern patterns[] = {
    {LARGE, 0, HALF_ULP, HALF_ULP},
    {LARGE, 0, HALF_ULP / 2, HALF_ULP / 2},
    {LARGE, 0, HALF_ULP * 2, HALF_ULP * 2},
    {LARGE, 0, HALF_ULP / 4, HALF_ULP / 4},
    {LARGE, 0, HALF_ULP / 8, HALF_ULP / 8},
    {LARGE, 0, HALF_ULP / 16, HALF_ULP / 16},
    {LARGE, 0, HALF_ULP / 2, HALF_ULP / 32},
    {LARGE, 0, HALF_ULP / 2, HALF_ULP / 16},
    {LARGE, 0, HALF_ULP, HALF_ULP / 32},
    {LARGE, 0, 0x1.7ap-24F, HALF_ULP / 32},
    {LARGE, 0, 0x1.ffep-14F, HALF_ULP / 32},
    {LARGE, 0, 0x1.a37p-14F, HALF_ULP / 32},
    {LARGE, LAST, HALF_ULP, HALF_ULP},
    {LARGE, LAST, HALF_ULP / 2, HALF_ULP / 2},
    {LARGE, MIDDLE, HALF_ULP, HALF_ULP},
    {LARGE, MIDDLE, HALF_ULP / 2, HALF_ULP / 2},
    {LARGE, 1, HALF_ULP, HALF_ULP},
    {LARGE, 47, HALF_ULP, HALF_ULP},
    {LARGE, 48, HALF_ULP, HALF_ULP},
    {SWINGING, 0, HALF_ULP, HALF_ULP},
    {SWINGING, MIDDLE, HALF_ULP / 2, HALF_ULP},
    {HELD, 0, HALF_ULP, HALF_ULP},
    {HELD, 0, HALF_ULP / 2, HALF_ULP / 2},
    {RISING, 0, 0, 0},
    {FALLING, 0, 0, 0},
    {CANCELLING, 0, 0, 0},
    {CANCELLING, 0, 1, 0},
};

/* A factor that splits badly: what its first 11 bits leave has 12 bits, of which TF32 holds 11. */
#define BAD_FACTOR 0x1.001ffep0
#define FORMS      3

static int64_t place_of(const struct pattern *pattern, int64_t count)
{
    const int64_t place = pattern->place == LAST ? count - 1 : pattern->place == MIDDLE ? count / 2 : pattern->place;
    return place < count ? place : count - 1;
}

/* Returns term `index` of `count`. */
static double term_of(const struct pattern *pattern, int64_t index, int64_t count)
{
    const double small = index < FEW ? pattern->small : pattern->later, sign = index % 2 == 0 ? 1 : -1;
    switch (pattern->kind) {
    case LARGE: return index == place_of(pattern, count) ? 1 : small;
    case SWINGING: return index == place_of(pattern, count) ? 1 : sign * small;
    case HELD: return small;
    case RISING: return 1.8824634552001953 * (double)(index + 1) / (double)count;
    case FALLING: return 1.8824634552001953 * (double)(count - index) / (double)count;
    default: return sign * (pattern->small > 0 ? 1.2800350189208984 : (double)(count - index) / (double)count);
    }
}

/* ------------------------------------------------------------------------------------------------------- the tensors */

/* What the tensors of a run hold. */
struct form {
    bool taps_outside; /* terms are numbered tap by tap, else channel by channel */
    bool of_dst;       /* of the gradients of weights and bias: that of dst varies, else src */
    double factor;     /* of all terms */
    size_t first;      /* the pattern of channel 0 */
};

/* A tensor's number as the pattern and the place of the term that it is in. */
struct place {
    int64_t channel, index, count; /* channel: that chooses the pattern */
};

/* The place of a weight among the terms of an output, of its phase. */
static struct place place_of_weight(const tconv_desc *desc, const struct form *form, const int64_t at[4])
{
    const int64_t group_in = desc->in_channels / desc->groups, group_out = desc->out_channels / desc->groups;
    const bool forward = desc->op == TCONV_FORWARD;
    const int64_t stride_h = forward ? desc->stride_h : 1, stride_w = forward ? desc->stride_w : 1;
    const int64_t rows = (desc->kernel_h + stride_h - 1) / stride_h;
    const int64_t columns = (desc->kernel_w + stride_w - 1) / stride_w;
    const int64_t tap = at[2] / stride_h * columns + at[3] / stride_w, taps = rows * columns;
    const int64_t channel = forward ? at[0] % group_in : at[1], channels = forward ? group_in : group_out;
    return (struct place){.channel = forward ? at[0] / group_in * group_out + at[1] : at[0],
                          .index = form->taps_outside ? tap * channels + channel : channel * taps + tap,
                          .count = channels * taps};
}

static struct place place_of_pixel(const harness_view *view, const int64_t at[4])
{
    const int64_t *shape = view->shape;
    return (struct place){at[1], (at[0] * shape[2] + at[2]) * shape[3] + at[3], shape[0] * shape[2] * shape[3]};
}

static bool step(const int64_t shape[4], int64_t at[4])
{
    for (int axis = 3; axis >= 0; axis--) {
        if (++at[axis] < shape[axis])
            return true;
        at[axis] = 0;
    }
    return false;
}

static const struct pattern *pattern_of(size_t first, int64_t channel)
{
    return &patterns[(first + (size_t)channel) % COUNT(patterns)];
}

/* The tensor that varies. */
static harness_role varied(tconv_op op, const struct form *form)
{
    return op != TCONV_BACKWARD_WEIGHTS ? HARNESS_WEIGHTS : form->of_dst ? HARNESS_DST : HARNESS_SRC;
}

/* Fills a tensor with terms, or, where it is not the one that varies, with the factor. */
static void fill(harness_case *test, harness_role role, const struct form *form)
{
    const tconv_desc *desc = &test->layer.desc;
    const harness_view *view = &test->views[role];
    int64_t at[4] = {0};
    do {
        double value = form->factor;
        if (role == varied(desc->op, form)) {
            const struct place place =
                role == HARNESS_WEIGHTS ? place_of_weight(desc, form, at) : place_of_pixel(view, at);
            value *= term_of(pattern_of(form->first, place.channel), place.index, place.count);
        }
        harness_element_set(desc->dtype, test->tensors[role].data, harness_view_index(view, at[0], at[1], at[2], at[3]),
                            value);
    } while (step(view->shape, at));
}

/* Fills the bias, or what outputs hold: 1 where the pattern is HELD, else 0. axis: that chooses the pattern. */
static void fill_held(harness_case *test, harness_role role, int axis, const struct form *form)
{
    const harness_view *view = &test->views[role];
    int64_t at[4] = {0};
    do {
        harness_element_set(test->layer.desc.dtype, test->tensors[role].data,
                            harness_view_index(view, at[0], at[1], at[2], at[3]),
                            pattern_of(form->first, at[axis])->kind == HELD);
    } while (step(view->shape, at));
}

static void fill_case(harness_case *test, const struct form *form)
{
    for (int role = 0; role < HARNESS_ROLES; role++) {
        const bool is_weights = role == HARNESS_WEIGHTS;
        if (harness_case_adds_to(test, (harness_role)role) ||
            (role == HARNESS_BIAS && harness_case_reads(test, HARNESS_BIAS)))
            fill_held(test, (harness_role)role, role == HARNESS_BIAS || (is_weights && !form->of_dst) ? 0 : 1, form);
        else if (harness_case_reads(test, (harness_role)role))
            fill(test, (harness_role)role, form);
    }
}

/* ------------------------------------------------------------------------------------------------------- the verdict */

/* The worst that a way has shown. */
struct worst {
    double units;
    char text[HARNESS_LAYER_TEXT + 80];
};

/* An element with its right answer. */
struct sample {
    harness_role role;
    int64_t at[4];
    double value, bound;
};

enum { MOST_SAMPLES = 512 };

/* Adds an element in the middle of the tensor's axes, but for those of channels. */
static void add_sample(const harness_case *test, harness_role role, int64_t a, int64_t b, int64_t beside,
                       struct sample samples[MOST_SAMPLES], size_t *count)
{
    const int64_t *shape = test->views[role].shape;
    if (*count == MOST_SAMPLES || beside >= shape[3])
        return;
    struct sample *added = &samples[(*count)++];
    *added = (struct sample){.role = role, .at = {a, b, shape[2] / 2, (shape[3] / 2 + beside) % shape[3]}};
    if (test->layer.desc.op == TCONV_BACKWARD_WEIGHTS && role == HARNESS_BIAS)
        added->at[2] = added->at[3] = 0;
    harness_element_answer(test, role, added->at, &added->value, &added->bound);
}

static size_t list_samples(const harness_case *test, struct sample samples[MOST_SAMPLES])
{
    size_t count = 0;
    for (int role = 0; role < HARNESS_ROLES; role++) {
        const int64_t *shape = test->views[role].shape;
        const bool image = role == HARNESS_SRC || role == HARNESS_DST;
        if (!harness_case_writes(test, (harness_role)role))
            continue;
        for (int64_t a = image ? shape[0] - 1 : 0; a < shape[0]; a++)
            for (int64_t b = 0; b < shape[1] && b < (int64_t)COUNT(patterns); b++)
                for (int64_t beside = 0; beside < (image ? 2 : 1); beside++)
                    add_sample(test, (harness_role)role, a, b, beside, samples, &count);
    }
    return count;
}

static void judge(const harness_case *test, const struct way *way, const harness_output *output,
                  const struct sample *samples, size_t count, struct worst *worst)
{
    for (size_t i = 0; i < count; i++) {
        const struct sample *sample = &samples[i];
        const int64_t *at = sample->at,
                      index = harness_view_index(&test->views[sample->role], at[0], at[1], at[2], at[3]);
        const double got = harness_element_get(test->layer.desc.dtype, output->tensors[sample->role].data, index);
        const double units = sample->bound > 0 ? fabs(got - sample->value) / sample->bound * 0x1p24 : 0;
        if (units <= worst->units)
            continue;
        worst->units = units;
        const int length = snprintf(worst->text, sizeof worst->text, "%s[%d,%d,%d,%d] ",
                                    harness_role_name(sample->role), (int)at[0], (int)at[1], (int)at[2], (int)at[3]);
        harness_layer_format(&test->layer, worst->text + length, sizeof worst->text - (size_t)length);
        cr_expect(units <= units_of(way), "%s: off by %.2f units, and at most %.0f are proved: %s", way->text, units,
                  units_of(way), worst->text);
    }
}

/* Runs a layer by all ways, with all patterns. */
static void try_layer(const harness_layer *layer, const struct way *ways, size_t way_count, struct worst *worst)
{
    static struct sample samples[MOST_SAMPLES];
    const tconv_op op = layer->desc.op;
    const bool weights = op == TCONV_BACKWARD_WEIGHTS;
    const int64_t channels = op == TCONV_FORWARD ? layer->desc.out_channels : layer->desc.in_channels;
    harness_case test;
    tconv_issue issue;
    cr_assert_eq(harness_case_create_unanswered(&test, layer, HARNESS_REALS, 1, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    for (size_t first = 0; first < COUNT(patterns); first += (size_t)channels)
        for (size_t i = 0; i < FORMS; i++) {
            const struct form form = {i == 1, weights && i == 1, i == 2 ? BAD_FACTOR : 1, first};
            fill_case(&test, &form);
            const size_t count = list_samples(&test, samples);
            for (size_t w = 0; w < way_count; w++) {
                harness_output output;
                if (ways[w].math == TCONV_MATH_TF32 || !run_way(&test, &ways[w], 1, false, &output))
                    continue;
                judge(&test, &ways[w], &output, samples, count, &worst[w]);
                harness_output_release(&output);
            }
        }
    harness_case_destroy(&test);
}

/* Layers whose sums go through channels, taps and both: of a segment, a few of them, and long. The gradient of src has the
 * channels exchanged. */
static const char *const through_weights[] = {
    "ci=48 h=8 w=16 co=16 k=1 b=1",
    "ci=48 h=8 w=16 co=8 k=3 p=1 b=1",
    "n=2 ci=1024 h=4 w=20 co=8 k=1 b=1",
    "ci=4096 h=2 w=32 co=8 k=2 b=1",
    "ci=160 h=8 w=16 co=8 k=3 p=1 b=1 acc=1",
    "ci=96 h=8 w=16 co=8 k=4 s=2 p=1 b=1",
    "ci=64 h=12 w=16 co=3 k=5 s=1 p=2 b=1",
    "ci=16 h=9 w=64 co=2 k=7x11 s=1 b=1",
    "ci=12 h=4 w=300 co=2 k=1x64 s=1x8 b=1",
    "ci=24 h=16 w=20 co=24 k=7 g=24 p=3 b=1",
    "ci=24 h=16 w=20 co=24 k=4 s=2 p=1 g=24 b=1",
    "ci=192 h=8 w=9 co=96 k=3 g=3 p=1 b=1 acc=1",
    "ci=384 h=3 w=4 co=4 k=16x16 s=8 b=1",
};

/* Layers whose gradients of weights have many pixels. */
static const char *const through_pixels[] = {
    "ci=24 h=8 w=6 co=8 k=1 b=1",
    "n=3 ci=24 h=40 w=52 co=8 k=3 p=1 b=1",
    "n=2 ci=24 h=64 w=64 co=4 k=4 s=2 p=1 b=1 acc=1",
    "n=2 ci=24 h=60 w=60 co=24 k=3 g=24 p=1 b=1",
    "n=64 ci=24 h=5 w=5 co=16 k=2 s=2 b=1",
    "n=1 ci=8 h=500 w=500 co=2 k=1 b=1",
};

static void try_all(tconv_backend backend)
{
    static struct worst worst[3][MAX_WAYS];
    struct way ways[MAX_WAYS];
    const size_t way_count = list_ways(backend, ways);
    memset(worst, 0, sizeof worst);
    for (int op = TCONV_FORWARD; op <= TCONV_BACKWARD_WEIGHTS; op++) {
        const bool weights = op == TCONV_BACKWARD_WEIGHTS;
        const size_t problems = weights ? COUNT(through_pixels) : COUNT(through_weights);
        for (size_t i = 0; i < 2 * problems; i++) {
            harness_layer layer =
                gradient_layer(weights ? through_pixels[i / 2] : through_weights[i / 2], (tconv_op)op);
            layer.desc.layout = i % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            layer.desc.math = TCONV_MATH_STRICT;
            if (op == TCONV_BACKWARD_DATA) {
                const int64_t summed = layer.desc.in_channels;
                layer.desc.in_channels = layer.desc.out_channels, layer.desc.out_channels = summed;
                layer.has_bias = false;
            }
            if (in_part((uint64_t)op * 1000 + i))
                try_layer(&layer, ways, way_count, worst[op]);
        }
        for (size_t w = 0; w < way_count; w++)
            if (worst[op][w].text[0] != 0)
                fprintf(stderr, "%-18s %-36s %7.2f units  %s\n", harness_op_name((tconv_op)op), ways[w].text,
                        worst[op][w].units, worst[op][w].text);
    }
    for (size_t w = 0; w < way_count && is_whole(); w++)
        cr_expect(ways[w].math == TCONV_MATH_TF32 || way_is_of_streams_alone(&ways[w]) || worst[0][w].text[0] != 0 ||
                      worst[1][w].text[0] != 0 || worst[2][w].text[0] != 0,
                  "%s takes none of the layers", ways[w].text);
}

Test(worst_sums, stay_in_the_bounds_that_are_proved)
{
    try_all(TCONV_BACKEND_CPU);
}

Test(worst_sums_cuda, stay_in_the_bounds_that_are_proved)
{
    skip_without_cuda();
    try_all(TCONV_BACKEND_CUDA);
}
