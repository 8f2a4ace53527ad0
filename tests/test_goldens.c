/*
 * Layers and their gradients, computed by PyTorch in float64 (goldens/make_goldens.py, which also tells how the numbers
 * are made), against every implementation in every dtype, layout and weight layout.
 *
 * On the "exact" filling all sums are exact in f32, so that the result, rounded once to the dtype, is the only right
 * one, and is compared bit for bit. On the "real" filling the error may be 16 * 2^-53 * bound in f64 and
 * 18 * 2^-24 * bound in f32: 16 for the library and 1 each for rounding both factors to f32. bound is the sum of the
 * absolute values of the terms: of |src||weights| + |bias|, or of a gradient's, which for the bias have one factor.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/embedded.h"
#include "support/gradients.h"
#include "support/ways.h"

#define MAX_LAYERS    128
#define BLOCK_BYTES   16   /* bytes of one output element in goldens.bin, or in gradients.bin */
#define MAX_GRADIENTS 1400 /* the most elements of a layer's gradients in gradients.bin: GRADIENT_ELEMENTS */

struct golden {
    char name[40];
    harness_layer layer;
    int64_t out_d, out_h, out_w;
    size_t offset; /* offset of its first element in goldens.bin */
    bool has_gradients;
    size_t gradients; /* offset of the first element of its gradients in gradients.bin */
};

enum filling { EXACT, REAL };

static uint64_t value_bits(uint64_t stream, uint64_t i)
{
    uint64_t z = (stream << 32 | i) + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double value_of(enum filling filling, uint64_t stream, uint64_t i)
{
    uint64_t bits = value_bits(stream, i);
    if (filling == EXACT)
        return ((double)((bits >> 32) % 65) - 32.0) / 8.0;
    return (double)(bits >> 11) * 0x1p-52 - 1.0;
}

/* Reads one line of goldens.csv. */
static void read_row(const char *line, struct golden *golden)
{
    tconv_desc *desc = &golden->layer.desc;
    int bias;
    tconv_desc_init(desc);
    int read = sscanf(line,
                      "%39[^,],%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64
                      ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64
                      ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%d,%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64
                      ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64,
                      golden->name, &desc->batch, &desc->in_channels, &desc->in_h, &desc->in_w, &desc->out_channels,
                      &desc->kernel_h, &desc->kernel_w, &desc->stride_h, &desc->stride_w, &desc->pad_top,
                      &desc->pad_left, &desc->pad_bottom, &desc->pad_right, &desc->output_padding_h,
                      &desc->output_padding_w, &desc->dilation_h, &desc->dilation_w, &desc->groups, &bias,
                      &golden->out_h, &golden->out_w, &desc->in_d, &desc->kernel_d, &desc->stride_d, &desc->pad_front,
                      &desc->pad_back, &desc->output_padding_d, &desc->dilation_d, &golden->out_d);
    cr_assert_eq(read, 30, "a row of goldens.csv has %d fields: %.80s", read, line);
    golden->layer.has_bias = bias != 0;
}

/* Returns the elements of a tensor. */
static int64_t elements_of(const harness_layer *layer, harness_role role)
{
    const harness_view view = harness_view_of(&layer->desc, role);
    return harness_view_elements(&view);
}

/* Returns how many elements of a layer's gradients come before those of a role; of HARNESS_DST, which is the last role,
 * how many there are. */
static int64_t gradients_before(const harness_layer *layer, harness_role role)
{
    int64_t count = 0;
    for (int before = 0; before < (int)role; before++)
        count += elements_of(layer, (harness_role)before);
    return count;
}

static size_t read_goldens(struct golden goldens[MAX_LAYERS])
{
    size_t count = 0, offset = 0, gradients = 0;
    char *text = malloc(goldens_csv_size + 1), *rest = NULL;
    cr_assert_not_null(text);
    memcpy(text, goldens_csv, goldens_csv_size);
    text[goldens_csv_size] = '\0';
    strtok_r(text, "\n", &rest); /* the header */
    for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL; count++) {
        cr_assert_lt(count, MAX_LAYERS);
        struct golden *golden = &goldens[count];
        read_row(line, golden);
        golden->offset = offset;
        offset += BLOCK_BYTES * (size_t)(golden->layer.desc.batch * golden->layer.desc.out_channels * golden->out_d *
                                         golden->out_h * golden->out_w);
        const int64_t elements = gradients_before(&golden->layer, HARNESS_DST);
        golden->has_gradients = elements <= MAX_GRADIENTS;
        golden->gradients = gradients;
        gradients += golden->has_gradients ? BLOCK_BYTES * (size_t)elements : 0;
    }
    free(text);
    cr_assert_eq(offset, goldens_bin_size, "goldens.csv and goldens.bin are not of one run");
    cr_assert_eq(gradients, gradients_bin_size, "goldens.csv and gradients.bin are not of one run");
    cr_assert_geq(count, 60);
    return count;
}

static void fill(const harness_view *view, tconv_dtype dtype, void *data, enum filling filling, uint64_t stream)
{
    uint64_t i = 0;
    for (int64_t a = 0; a < view->shape[0]; a++)
        for (int64_t b = 0; b < view->shape[1]; b++)
            for (int64_t c = 0; c < view->shape[2]; c++)
                for (int64_t d = 0; d < view->shape[3]; d++)
                    harness_element_set(dtype, data, harness_view_index(view, a, b, c, d),
                                        value_of(filling, stream, i++));
}

/* Makes the golden's tensors in the layer's dtype and layouts. */
static harness_case make_case(const harness_layer *layer, size_t index, enum filling filling)
{
    harness_case test;
    tconv_issue issue;
    const tconv_dtype dtype = layer->desc.dtype;
    cr_assert_eq(harness_case_create_unanswered(&test, layer, HARNESS_REALS, 1, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    for (int role = 0; role < HARNESS_ROLES; role++)
        if (harness_case_reads(&test, (harness_role)role))
            fill(&test.views[role], dtype, test.tensors[role].data, filling, 4 * index + (size_t)role);
    return test;
}

/* Returns PyTorch's numbers for a tensor that the layer's operation writes. */
static const unsigned char *block_of(const struct golden *golden, tconv_op op, harness_role role)
{
    if (op == TCONV_FORWARD)
        return goldens_bin + golden->offset;
    return gradients_bin + golden->gradients + BLOCK_BYTES * (size_t)gradients_before(&golden->layer, role);
}

static void compare(const struct golden *golden, const harness_case *test, const harness_output *output,
                    harness_role role, enum filling filling, const char *way)
{
    const tconv_desc *desc = &test->layer.desc;
    const harness_view *view = &test->views[role];
    const unsigned char *block = block_of(golden, desc->op, role);
    const double units = role == HARNESS_BIAS ? 17 : 18;
    const int64_t *shape = view->shape;
    for (int64_t n = 0; n < shape[0]; n++)
        for (int64_t c = 0; c < shape[1]; c++)
            for (int64_t h = 0; h < shape[2]; h++)
                for (int64_t w = 0; w < shape[3]; w++, block += BLOCK_BYTES) {
                    double real, right, allowed = 0;
                    float exact, bound;
                    double got = harness_element_get(desc->dtype, output->tensors[role].data,
                                                     harness_view_index(view, n, c, h, w));
                    memcpy(&real, block, sizeof real);
                    memcpy(&exact, block + 8, sizeof exact);
                    memcpy(&bound, block + 12, sizeof bound);
                    right = filling == EXACT ? harness_element_round(desc->dtype, exact) : real;
                    if (filling == REAL)
                        allowed = (desc->dtype == TCONV_F64 ? 16 * 0x1p-53 : units * 0x1p-24) * (double)bound;
                    cr_assert(fabs(got - right) <= allowed,
                              "%s, %s, %s %s %s %s: %s (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                              ") is %.17g, PyTorch has %.17g",
                              golden->name, way, harness_op_name(desc->op), harness_dtype_name(desc->dtype),
                              harness_layout_name(desc->layout), harness_weight_layout_name(desc->weight_layout),
                              harness_role_name(role), n, c, h, w, got, right);
                }
}

/* Checks one layer in one form by all ways; returns how many took it. */
static size_t check_form(const struct golden *golden, size_t index, const harness_layer *layer, enum filling filling,
                         const struct way *ways, size_t way_count)
{
    harness_case test = make_case(layer, index, filling);
    size_t taken = 0;
    for (size_t w = 0; w < way_count; w++) {
        harness_output output;
        if (filling == REAL && ways[w].math == TCONV_MATH_TF32)
            continue; /* TF32 rounds to 11 bits */
        if (!run_way(&test, &ways[w], 2, (index + w) % 2 != 0, &output))
            continue;
        for (int role = 0; role < HARNESS_ROLES; role++)
            if (harness_case_writes(&test, (harness_role)role))
                compare(golden, &test, &output, (harness_role)role, filling, ways[w].text);
        harness_output_release(&output);
        taken++;
    }
    harness_case_destroy(&test);
    return taken;
}

/* Checks one layer in all forms by all ways; returns how often one took it. */
static size_t check_golden(const struct golden *golden, size_t index, tconv_op op, enum filling filling,
                           const struct way *ways, size_t way_count)
{
    size_t taken = 0;
    for (int form = 0; form < GRADIENT_FORMS; form++) {
        harness_layer layer = golden->layer;
        gradient_set_form(&layer, form);
        if (filling == REAL && layer.desc.dtype != TCONV_F32 && layer.desc.dtype != TCONV_F64)
            continue; /* rounding src and weights to 11 or 8 bits leaves nothing to compare */
        layer.desc.math = TCONV_MATH_STRICT;
        layer.desc.op = op;
        layer.has_bias = layer.has_bias || op == TCONV_BACKWARD_WEIGHTS;
        const size_t taken_now = check_form(golden, index, &layer, filling, ways, way_count);
        cr_assert(op != TCONV_FORWARD || taken_now > 0, "nothing takes golden %s", golden->name);
        taken += taken_now;
    }
    return taken;
}

static void check_goldens(tconv_backend backend, enum filling filling)
{
    static struct golden goldens[MAX_LAYERS];
    struct way ways[MAX_WAYS];
    size_t layers = read_goldens(goldens), way_count = list_ways(backend, ways);
    for (size_t i = 0; i < layers; i++)
        check_golden(&goldens[i], i, TCONV_FORWARD, filling, ways, way_count);
}

static void check_gradients(tconv_backend backend, enum filling filling)
{
    static struct golden goldens[MAX_LAYERS];
    struct way ways[MAX_WAYS];
    size_t layers = read_goldens(goldens), way_count = list_ways(backend, ways), taken = 0;
    for (size_t i = 0; i < layers; i++)
        for (int op = TCONV_BACKWARD_DATA; goldens[i].has_gradients && op <= TCONV_BACKWARD_WEIGHTS; op++)
            taken += check_golden(&goldens[i], i, (tconv_op)op, filling, ways, way_count);
    gradient_expect_taken(backend, taken);
}

Test(goldens, shapes_are_pytorchs)
{
    static struct golden goldens[MAX_LAYERS];
    size_t layers = read_goldens(goldens);
    for (size_t i = 0; i < layers; i++) {
        int64_t shape[5];
        tconv_issue issue;
        cr_assert_eq(tconv_output_shape3d(&goldens[i].layer.desc, shape, &issue), TCONV_SUCCESS, "%s: %s",
                     goldens[i].name, issue.message);
        cr_assert(shape[2] == goldens[i].out_d && shape[3] == goldens[i].out_h && shape[4] == goldens[i].out_w,
                  "%s: %" PRId64 " x %" PRId64 " x %" PRId64 ", PyTorch has %" PRId64 " x %" PRId64 " x %" PRId64,
                  goldens[i].name, shape[2], shape[3], shape[4], goldens[i].out_d, goldens[i].out_h, goldens[i].out_w);
    }
}

/* The formula that the harness judges by, without the library. */
Test(goldens, the_harness_has_pytorchs_formula)
{
    static struct golden goldens[MAX_LAYERS];
    size_t layers = read_goldens(goldens);
    for (size_t i = 0; i < layers; i++)
        for (int op = TCONV_FORWARD; op <= (goldens[i].has_gradients ? TCONV_BACKWARD_WEIGHTS : TCONV_FORWARD); op++) {
            harness_layer layer = goldens[i].layer;
            layer.desc.op = (tconv_op)op;
            layer.has_bias = layer.has_bias || op == TCONV_BACKWARD_WEIGHTS;
            harness_case test = make_case(&layer, i, EXACT);
            for (int role = 0; role < HARNESS_ROLES; role++) {
                const int64_t *shape = test.views[role].shape, elements = harness_view_elements(&test.views[role]);
                for (int64_t e = 0; harness_case_writes(&test, (harness_role)role) && e < elements; e++) {
                    const int64_t at[4] = {e / shape[3] / shape[2] / shape[1], e / shape[3] / shape[2] % shape[1],
                                           e / shape[3] % shape[2], e % shape[3]};
                    double value, bound;
                    float exact;
                    harness_element_answer(&test, (harness_role)role, at, &value, &bound);
                    memcpy(&exact, block_of(&goldens[i], layer.desc.op, (harness_role)role) + BLOCK_BYTES * e + 8,
                           sizeof exact);
                    cr_assert(value == (double)exact, "%s, %s, %s %d: %.17g, PyTorch has %.17g", goldens[i].name,
                              harness_op_name(layer.desc.op), harness_role_name((harness_role)role), (int)e, value,
                              (double)exact);
                }
            }
            harness_case_destroy(&test);
        }
}

Test(goldens, exact_sums_are_pytorchs_bit_for_bit)
{
    check_goldens(TCONV_BACKEND_CPU, EXACT);
}

Test(goldens, reals_are_pytorchs_within_bounds)
{
    check_goldens(TCONV_BACKEND_CPU, REAL);
}

Test(goldens_cuda, exact_sums_are_pytorchs_bit_for_bit)
{
    skip_without_cuda();
    check_goldens(TCONV_BACKEND_CUDA, EXACT);
}

Test(goldens_cuda, reals_are_pytorchs_within_bounds)
{
    skip_without_cuda();
    check_goldens(TCONV_BACKEND_CUDA, REAL);
}

Test(goldens, exact_gradients_are_pytorchs_bit_for_bit)
{
    check_gradients(TCONV_BACKEND_CPU, EXACT);
}

Test(goldens, real_gradients_are_pytorchs_within_bounds)
{
    check_gradients(TCONV_BACKEND_CPU, REAL);
}

Test(goldens_cuda, exact_gradients_are_pytorchs_bit_for_bit)
{
    skip_without_cuda();
    check_gradients(TCONV_BACKEND_CUDA, EXACT);
}

Test(goldens_cuda, real_gradients_are_pytorchs_within_bounds)
{
    skip_without_cuda();
    check_gradients(TCONV_BACKEND_CUDA, REAL);
}
