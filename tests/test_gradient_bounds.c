/*
 * The gradients read and write no byte that is not the layer's, and compute with nothing that nobody wrote: tensors and
 * the workspace lie next to pages that may not be touched, before or behind them; what is read may not be written; gaps
 * of slices hold signalling NaNs, and so does the workspace, or other bits, which change no bit of a result and raise no
 * floating-point exception. These are tests of the suite gradients.
 */
#include <criterion/criterion.h>
#include <fenv.h>
#include <string.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/guard.h"
#include "support/part.h"
#include "support/ways.h"

#define COUNT(array)   (sizeof(array) / sizeof((array)[0]))
#define RANDOM_LAYERS  200
#define LARGEST_CORNER 1e6 /* FLOP: four corners of five; larger ones address memory as others do */

static const tconv_op ops[] = {TCONV_BACKWARD_DATA, TCONV_BACKWARD_WEIGHTS};
static struct way ways[MAX_WAYS];
static size_t way_count;

/* What the workspace holds, eight bytes at a time: signalling NaNs of f32 and of f64, zeros and ones. */
static const uint64_t held[] = {0x7fa000017fa00001, 0x7ff4000000000001, 0, 0x3f8000003f800000};

/* Signalling NaNs by dtype. Elements that hold only ones, as harness_buffer_create leaves those of gaps, become one. */
static void poison_gaps(tconv_dtype dtype, unsigned char *data, int64_t count)
{
    static const uint64_t signalling[] = {
        [TCONV_F32] = 0x7fa00001, [TCONV_F64] = 0x7ff4000000000001, [TCONV_F16] = 0x7d01, [TCONV_BF16] = 0x7fa1};
    static const unsigned char untouched[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const size_t size = harness_element_size(dtype);
    for (int64_t i = 0; i < count; i++, data += size)
        if (memcmp(data, untouched, size) == 0)
            memcpy(data, &signalling[dtype], size); /* the lower bytes, which come first */
}

/* How a case is run. */
struct manner {
    enum guard_side side;
    int threads;
    bool pack_once;
    uint64_t held; /* by the workspace */
};

/* The tensors of a call in guarded memory. */
struct placed {
    struct guarded memory[HARNESS_ROLES];
    tconv_tensor tensors[HARNESS_ROLES];
    const tconv_tensor *given[HARNESS_ROLES]; /* NULL for those that the call does not have */
};

static void place(const harness_case *test, enum guard_side side, struct placed *placed)
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    memset(placed, 0, sizeof *placed);
    for (int role = 0; role < HARNESS_ROLES; role++) {
        const bool reads = harness_case_reads(test, (harness_role)role);
        const int64_t extent = test->views[role].extent;
        const size_t bytes = (size_t)extent * harness_element_size(dtype);
        if (!reads && !harness_case_writes(test, (harness_role)role))
            continue;
        placed->memory[role] = guard_allocate(bytes, side);
        placed->tensors[role] = (tconv_tensor){placed->memory[role].data, dtype, TCONV_LOCATION_HOST};
        placed->given[role] = &placed->tensors[role];
        if (test->tensors[role].data != NULL)
            memcpy(placed->memory[role].data, test->tensors[role].data, bytes);
        if (!reads)
            continue;
        poison_gaps(dtype, placed->memory[role].data, extent);
        guard_protect(&placed->memory[role]);
    }
}

/* Copies what was written to buffers with guards of their own, as harness_compare wants them. */
static void take_output(const harness_case *test, const struct way *way, const struct placed *placed,
                        harness_output *output)
{
    const size_t element = harness_element_size(test->layer.desc.dtype);
    *output = (harness_output){.implementation = way->implementation};
    for (int role = 0; role < HARNESS_ROLES; role++) {
        if (!harness_case_writes(test, (harness_role)role))
            continue;
        output->tensors[role] = harness_buffer_create(test->views[role].extent, element, 0);
        memcpy(output->tensors[role].data, placed->memory[role].data, (size_t)test->views[role].extent * element);
    }
}

/* Runs the case with all memory next to forbidden pages. Returns false where the way does not take it; *raised has the
 * exceptions that it raised. */
static bool run_guarded(const harness_case *test, const struct way *way, const struct manner *manner,
                        harness_output *output, int *raised)
{
    tconv_options options = way_options(way);
    tconv_plan *plan, *packed = NULL;
    tconv_issue issue;
    struct placed placed;
    size_t size;
    use_threads(&options, manner->threads);
    if (tconv_plan_create(&test->layer.desc, &options, &plan, &issue) != TCONV_SUCCESS) {
        cr_assert_eq(issue.status, TCONV_ERROR_UNSUPPORTED, "%s: %s", way->text, issue.message);
        return false;
    }
    place(test, manner->side, &placed);
    feclearexcept(FE_ALL_EXCEPT);
    if (manner->pack_once && harness_case_reads(test, HARNESS_WEIGHTS)) {
        cr_assert_eq(tconv_plan_pack_weights(plan, placed.given[HARNESS_WEIGHTS], NULL, &packed, &issue), TCONV_SUCCESS,
                     "%s", issue.message);
        placed.given[HARNESS_WEIGHTS] = NULL;
    }
    const tconv_plan *use = packed != NULL ? packed : plan;
    cr_assert_eq(tconv_plan_workspace_size(use, &size), TCONV_SUCCESS);
    struct guarded workspace = guard_allocate(size, manner->side);
    for (size_t i = 0; i + sizeof manner->held <= size; i += sizeof manner->held)
        memcpy((char *)workspace.data + i, &manner->held, sizeof manner->held);
    cr_assert_eq(tconv_plan_execute(use, placed.given[HARNESS_SRC], placed.given[HARNESS_WEIGHTS],
                                    placed.given[HARNESS_BIAS], placed.given[HARNESS_DST], workspace.data, size, NULL),
                 TCONV_SUCCESS);
    *raised = fetestexcept(FE_INVALID | FE_DIVBYZERO);
    take_output(test, way, &placed, output);
    guard_release(&workspace);
    for (int role = 0; role < HARNESS_ROLES; role++)
        if (placed.tensors[role].data != NULL)
            guard_release(&placed.memory[role]);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
    return true;
}

/* Runs a case by every way with each content of the workspace, and compares results, bits and exceptions. */
static size_t check_case(const harness_case *test, size_t seed)
{
    size_t taken = 0;
    for (size_t w = 0; w < way_count; w++) {
        harness_output first = {0}, other;
        for (size_t i = 0; i < COUNT(held); i++) {
            const struct manner manner = {(seed + i / 2) % 2 == 0 ? GUARD_AFTER : GUARD_BEFORE,
                                          thread_counts[(seed / 2) % THREAD_COUNTS], (seed + w + i) % 3 == 0, held[i]};
            harness_output *output = i == 0 ? &first : &other;
            harness_failure failure;
            int raised;
            if (!run_guarded(test, &ways[w], &manner, output, &raised))
                break;
            cr_assert(harness_compare(test, output, &failure), "%s: %s", ways[w].text, failure.text);
            cr_assert(harness_same_bits(test, &first, output, &failure), "%s: %s", ways[w].text, failure.text);
            if (raised != 0) {
                char layer[HARNESS_LAYER_TEXT];
                harness_layer_format(&test->layer, layer, sizeof layer);
                cr_assert_fail("%s: an exception was raised: %s", ways[w].text, layer);
            }
            if (i > 0)
                harness_output_release(&other);
            taken += i == 0;
        }
        harness_output_release(&first);
    }
    return taken;
}

static size_t check_layer(const harness_layer *layer, size_t seed)
{
    size_t taken = 0;
    for (size_t i = 0; layer->desc.batch > 0 && i < COUNT(ops); i++) {
        harness_layer own = *layer;
        own.desc.op = ops[i];
        if (!harness_has_integers(&own))
            continue;
        harness_case test = make_case(&own, HARNESS_INTEGERS, seed);
        taken += check_case(&test, seed);
        harness_case_destroy(&test);
    }
    return taken;
}

Test(gradients, no_access_out_of_bounds_on_random_layers)
{
    harness_random random;
    harness_layer layer;
    size_t taken = 0;
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    harness_random_seed(&random, 15);
    for (size_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_random_layer(&random, &layer);
        layer.desc.accumulate = i % 3 == 2;
        if (in_part(i))
            taken += check_layer(&layer, i);
    }
    cr_assert_gt(taken, 0);
}

/* Each corner in one of its forms; which one goes round. */
Test(gradients, no_access_out_of_bounds_on_corners)
{
    size_t taken = 0;
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < harness_corner_count(); i += HARNESS_CORNER_FORMS) {
        harness_layer layer;
        harness_corner(i + i / HARNESS_CORNER_FORMS * 5 % HARNESS_CORNER_FORMS, &layer);
        if (in_part(i) && harness_layer_flops(&layer.desc) <= LARGEST_CORNER)
            taken += check_layer(&layer, i / HARNESS_CORNER_FORMS);
    }
    cr_assert_gt(taken, 0);
}
